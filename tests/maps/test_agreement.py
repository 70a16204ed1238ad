"""Ranks, correlation, AUC and Otsu's region: by their definitions and by hand, with ties."""

import numpy as np
import pytest
from skimage.filters import threshold_otsu

from heedmap.maps.recordings import is_even, rank_correlation, ranks
from heedmap.results.ablations import auc, changed_region


def counted_ranks(values: np.ndarray) -> np.ndarray:
    """By the definition: how many are less, and half of those that are equal, itself included."""
    flat = values.ravel()
    less = (flat[None] < flat[:, None]).sum(axis=1)
    equal = (flat[None] == flat[:, None]).sum(axis=1)
    return (less + (equal + 1) / 2).reshape(values.shape)


def counted_auc(values: np.ndarray, inside: np.ndarray) -> float:
    """By the definition: over all pairs of a place inside and one outside."""
    pairs = values[inside][:, None] - values[~inside][None]
    return float(((pairs > 0) + 0.5 * (pairs == 0)).mean())


def with_ties(seed: int, shape=(9, 7)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 12, shape).astype(np.float32)


def test_ranks_equal_those_worked_out_by_hand():
    np.testing.assert_array_equal(ranks(np.array([[30, 10], [20, 20]])), [[4, 1], [2.5, 2.5]])
    np.testing.assert_array_equal(ranks(np.full(5, 7.0)), np.full(5, 3.0))


@pytest.mark.parametrize("seed", range(3))
def test_ranks_with_ties_equal_the_definition(seed):
    values = with_ties(seed)
    np.testing.assert_array_equal(ranks(values), counted_ranks(values))


@pytest.mark.parametrize("seed", range(3))
def test_rank_correlation_is_the_correlation_of_the_ranks(seed):
    a, b = with_ties(seed), with_ties(seed + 10) + with_ties(seed)
    wanted = np.corrcoef(counted_ranks(a).ravel(), counted_ranks(b).ravel())[0, 1]
    assert rank_correlation(a, b) == pytest.approx(wanted, abs=1e-12)
    assert rank_correlation(b, a) == pytest.approx(wanted, abs=1e-12)


def test_rank_correlation_equals_the_value_worked_out_by_hand():
    # Without ties it is 1 - 6 Σd² / n(n² - 1): here Σd² = 0 + 1 + 1 + 0 of n = 4.
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[10.0, 30.0], [20.0, 400.0]])
    assert rank_correlation(a, b) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert rank_correlation(a, a**3) == 1  # only the order counts
    assert rank_correlation(a, -a) == -1


def test_a_constant_map_has_no_rank_correlation():
    flat, values = np.full((3, 3), 0.2), with_ties(0, (3, 3))
    assert rank_correlation(flat, values) is None
    assert rank_correlation(values, flat) is None
    assert rank_correlation(flat, flat) is None


@pytest.mark.parametrize("level", [0.2, -3.0, 1e-7, 1e6])
def test_a_map_that_is_constant_up_to_rounding_has_no_rank_correlation(level):
    values = with_ties(0)
    rounded = (level * (1 + 1e-6 * np.random.default_rng(1).standard_normal((9, 7)))).astype("f4")
    assert np.ptp(rounded) > 0 and is_even(rounded)
    assert rank_correlation(rounded, values) is None
    assert rank_correlation(values, rounded) is None
    assert auc(rounded, values > 7) == 0.5
    assert not changed_region(rounded).any()
    # A little more is a map, however small its values are.
    seen = level * (1 + 3e-6 * values)
    assert not is_even(seen)
    assert rank_correlation(seen, values) == pytest.approx(1 if level > 0 else -1)
    assert auc(seen, values > 7) == (level > 0)
    assert changed_region(seen).any()


def test_a_map_with_nan_has_no_rank_correlation():
    odd = with_ties(0)
    odd[2, 3] = np.nan
    assert is_even(odd) and rank_correlation(odd, with_ties(1)) is None


@pytest.mark.parametrize("seed", range(4))
def test_auc_with_ties_equals_the_definition(seed):
    values, inside = with_ties(seed), with_ties(seed + 20) > 7
    wanted = counted_auc(values, inside)
    assert auc(values, inside) == pytest.approx(wanted, abs=1e-12)
    assert auc(-values, inside) == pytest.approx(1 - wanted, abs=1e-12)


def test_auc_equals_the_value_worked_out_by_hand():
    inside = np.array([True, True, False, False])
    assert auc(np.array([4.0, 3.0, 2.0, 1.0]), inside) == 1
    assert auc(np.array([1.0, 2.0, 3.0, 4.0]), inside) == 0
    assert auc(np.array([4.0, 2.0, 2.0, 1.0]), inside) == (1 + 1 + 0.5 + 1) / 4
    assert auc(np.ones(4), inside) == 0.5
    for nothing in (np.ones(4, bool), np.zeros(4, bool)):
        assert auc(np.arange(4.0), nothing) is None


def test_the_changed_region_equals_the_one_worked_out_by_hand():
    values = np.array([[0.0, 0.1, 0.9], [0.1, 1.0, 0.0]])
    np.testing.assert_array_equal(changed_region(values), values > 0.5)
    # One that stands out counts for less than two groups do.
    uneven = np.array([[0.0, 0.0, 0.6, 0.6, 0.6, 0.7]])
    np.testing.assert_array_equal(changed_region(uneven), uneven > 0.5)
    for same in (np.full((4, 4), 0.3), np.array([[0.3]]), np.zeros((2, 3), np.float32)):
        found = changed_region(same)
        assert found.dtype == bool and found.shape == same.shape and not found.any()
    two = np.array([[0.1, 0.2]])
    np.testing.assert_array_equal(changed_region(two), [[False, True]])


@pytest.mark.parametrize("seed", range(4))
def test_the_changed_region_is_cut_at_otsus_threshold(seed):
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.integers(0, 90, 300), rng.integers(60, 256, 84)]).reshape(16, 24)
    wanted = values > threshold_otsu(values.astype(np.uint8))
    np.testing.assert_array_equal(changed_region(values), wanted)
