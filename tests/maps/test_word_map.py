"""One word's heat map: its scales, its mask, its peak."""

import numpy as np
import pytest

from heedmap.errors import ArgumentError
from heedmap.maps.heatmaps import HeatMap, common_range


def heat_map(values, size: tuple[int, int], **options) -> HeatMap:
    return HeatMap("cat", np.array(values, dtype=np.float32), size, **options)


def test_each_scale_has_its_range():
    heat = heat_map([[0.1, 0.4], [0.2, 0.3]], (2, 2), shared=(0.05, 0.9))
    assert heat.value_range("word") == pytest.approx((0.1, 0.4))
    assert heat.value_range("shared") == (0.05, 0.9)
    assert heat.value_range("raw") == (0, 1)
    # A phrase, or a token that is no word, may draw more or less than any of the words.
    beyond = heat_map([[0.0, 1.25]], (2, 1), shared=(0.5, 0.75))
    assert beyond.value_range("shared") == (0, 1.25)
    assert common_range([heat, beyond], "shared") == (0, 1.25)
    for scale in ("loud", None, ["raw"]):
        with pytest.raises(ArgumentError, match="scale"):
            heat.value_range(scale)


def test_scales_include_words_with_negative_weights():
    """All words of a prompt with a negative weight have scales whose middle is 0."""
    below = heat_map([[-0.3, -0.1]], (2, 1), shared=(-0.3, 0.2))
    above = heat_map([[0.05, 0.2]], (2, 1), shared=(-0.3, 0.2))
    for scale, most in (("shared", 0.3), ("raw", 1.0)):
        expected = pytest.approx((-most, most))
        assert below.value_range(scale) == expected
        assert above.value_range(scale) == expected
    assert below.value_range("word") == pytest.approx((-0.3, 0.3))
    assert above.value_range("word") == pytest.approx((-0.2, 0.2))


@pytest.mark.parametrize("size", [(128, 128), (256, 128), (100, 300)])
def test_the_peak_is_the_pixel_under_the_hottest_cell(size):
    w, h = size
    cells = (64 * h // min(size), 64 * w // min(size))
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.random(cells)
        row, column = np.unravel_index(values.argmax(), cells)
        x, y = heat_map(values, size).peak
        assert x <= (column + 0.5) / cells[1] * w < x + 1
        assert y <= (row + 0.5) / cells[0] * h < y + 1


def test_under_a_negative_weight_a_word_acts_where_its_map_is_lowest():
    values = np.full((64, 64), -0.01)
    values[20, 40] = -0.3
    values[20, 41] = -0.2
    heat = heat_map(values, (64, 64))
    mirror = heat_map(-values, (64, 64))
    assert heat.peak == (40, 20) and heat.extremum == pytest.approx(-0.3)
    assert mirror.extremum == -heat.extremum
    assert heat.mask()[20, 40] and heat.mask().sum() < 10
    np.testing.assert_array_equal(heat.mask(), mirror.mask())


def test_a_mask_shrinks_as_the_threshold_rises():
    """A ramp from left to right is cut by a vertical line."""
    ramp = np.tile(np.linspace(0, 1, 64), (64, 1))
    heat = heat_map(ramp, (256, 128))
    for threshold, share in ((0.0, 1), (0.25, 0.75), (0.5, 0.5), (0.75, 0.25)):
        mask = heat.mask(threshold)
        assert mask.shape == (128, 256) and mask.dtype == bool
        assert (mask == mask[:1]).all() and (np.diff(mask[0].astype(int)) >= 0).all()
        assert mask.mean() == pytest.approx(share, abs=0.02)
    with pytest.raises(ArgumentError, match="threshold"):
        heat.mask(2)
