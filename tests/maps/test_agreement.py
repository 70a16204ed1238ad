"""Rank correlation, AUC and Otsu's region: against scipy and scikit-image, and by hand."""

import numpy as np
import pytest
from scipy import stats
from skimage.filters import threshold_otsu

from heedmap.maps.recordings import is_even, rank_correlation
from heedmap.results.ablations import auc, changed_region


def draw_with_ties(seed: int, shape=(9, 7)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 12, shape).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_rank_correlation_with_ties_equals_scipys(seed):
    a = draw_with_ties(seed)
    b = draw_with_ties(seed + 10) + a
    expected = stats.spearmanr(a.ravel(), b.ravel()).statistic
    assert rank_correlation(a, b) == pytest.approx(expected, abs=1e-12)
    assert rank_correlation(a, a**3) == 1  # only the order counts
    assert rank_correlation(a, -a) == -1


@pytest.mark.parametrize("seed", range(3))
def test_auc_with_ties_equals_scipys(seed):
    values = draw_with_ties(seed)
    inside = draw_with_ties(seed + 20) > 7
    pairs = inside.sum() * (~inside).sum()
    expected = stats.mannwhitneyu(values[inside], values[~inside]).statistic / pairs
    assert auc(values, inside) == pytest.approx(expected, abs=1e-12)
    assert auc(values, np.ones_like(inside)) is None
    assert auc(values, np.zeros_like(inside)) is None


@pytest.mark.parametrize("level", [0.2, -3.0, 1e-7])
def test_a_map_that_is_constant_up_to_rounding_agrees_with_nothing(level):
    values = draw_with_ties(0)
    noise = np.random.default_rng(1).standard_normal((9, 7))
    rounded = (level * (1 + 1e-6 * noise)).astype(np.float32)
    assert np.ptp(rounded) > 0 and is_even(rounded)
    assert rank_correlation(rounded, values) is None
    assert rank_correlation(values, rounded) is None
    assert auc(rounded, values > 7) == 0.5
    assert not changed_region(rounded).any()
    # A little more is a map, however small its values are.
    sloped = level * (1 + 3e-6 * values)
    assert rank_correlation(sloped, values) == pytest.approx(np.sign(level))
    assert auc(sloped, values > 7) == (level > 0)
    assert changed_region(sloped).any()


@pytest.mark.parametrize("seed", range(3))
def test_the_changed_region_is_cut_at_otsus_threshold(seed):
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 90, 300)
    high = rng.integers(60, 256, 84)
    values = np.concatenate([low, high]).reshape(16, 24)
    expected = values > threshold_otsu(values.astype(np.uint8))
    np.testing.assert_array_equal(changed_region(values), expected)
