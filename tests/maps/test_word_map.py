"""One word's heat map: its scale, its colours over the picture, its mask, its peak."""

import numpy as np
import pytest
from making import apart, recording
from PIL import Image

from heedmap.errors import ArgumentError
from heedmap.maps.heatmaps import HeatMap, HeatMaps, common_range


def test_an_overlay_is_drawn_on_the_chosen_scale():
    picture = Image.new("RGB", (128, 128), (40, 120, 200))
    maps = HeatMaps(recording(), picture)
    heat = maps["house"]
    assert heat.overlay().size == (256, 256)
    low, high = heat.value_range("shared")
    assert low <= heat.values.min()
    assert high >= heat.values.max()
    assert heat.value_range("raw") == (0.0, 1.0)
    assert heat.overlay(scale="raw") != heat.overlay(scale="word")
    with pytest.raises(ArgumentError):
        HeatMaps(recording())["house"].overlay()
    with pytest.raises(ArgumentError):
        heat.mask(2)


def heat(values: np.ndarray, size: tuple[int, int], **more) -> HeatMap:
    return HeatMap("cat", values.astype(np.float32), size, **more)


def test_each_scale_has_its_range():
    made = heat(np.array([[0.1, 0.4], [0.2, 0.3]]), (2, 2), shared=(0.05, 0.9))
    assert made.value_range("word") == pytest.approx((0.1, 0.4))
    assert made.value_range("shared") == (0.05, 0.9)
    assert made.value_range("raw") == (0, 1)
    # What is the same everywhere is not stretched to a map of its rounding.
    even = heat((0.3 + 1e-7 * np.random.default_rng(0).random((2, 2))), (2, 2))
    assert np.ptp(even.values) > 0
    assert even.value_range("word") == (even.values.min(), even.values.min())
    flat, picture = heat(np.full((2, 2), 0.3), (2, 2)), Image.new("RGB", (2, 2))
    assert apart(even.overlay(picture), flat.overlay(picture)) == 0
    # A phrase, or a token that is no word, may draw more or less than any of the words.
    beyond = heat(np.array([[0.0, 1.25]]), (2, 1), shared=(0.5, 0.75))
    assert beyond.value_range("shared") == (0, 1.25)
    assert common_range([made, beyond], "shared") == (0, 1.25)
    for odd in ("loud", None, 3, ["raw"]):
        with pytest.raises(ArgumentError):
            made.value_range(odd)


@pytest.mark.parametrize("size", [(128, 128), (256, 128), (100, 300)])
def test_the_peak_is_the_pixel_under_the_hottest_cell(size):
    w, h = size
    cells = (64 * h // min(size), 64 * w // min(size))
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.random(cells)
        row, column = np.unravel_index(values.argmax(), cells)
        x, y = heat(values, size).peak
        assert x <= (column + 0.5) / cells[1] * w < x + 1
        assert y <= (row + 0.5) / cells[0] * h < y + 1


def test_under_a_negative_weight_a_word_acts_where_its_map_is_lowest():
    values = np.full((64, 64), -0.01)
    values[20, 40], values[20, 41] = -0.3, -0.2
    made = heat(values, (64, 64))
    assert made.peak == (40, 20) and made.extremum == pytest.approx(-0.3)
    assert heat(-values, (64, 64)).extremum == -made.extremum
    mask = made.mask()
    assert mask[20, 40] and mask.sum() < 10
    np.testing.assert_array_equal(mask, heat(-values, (64, 64)).mask())


def test_a_mask_is_of_the_pictures_size_and_grows_as_the_threshold_falls():
    ramp = np.tile(np.linspace(0, 1, 64), (64, 1))
    made = heat(ramp, (256, 128))
    shares = []
    for threshold in (0.0, 0.25, 0.5, 0.75, 1.0):
        mask = made.mask(threshold)
        assert mask.shape == (128, 256) and mask.dtype == bool
        shares.append(mask.mean())
        # A ramp from left to right is cut by a vertical line.
        assert (mask == mask[:1]).all() and (np.diff(mask[0].astype(int)) >= 0).all()
    assert shares == sorted(shares, reverse=True)
    assert shares[2] == pytest.approx(0.5, abs=0.02) and shares[1] == pytest.approx(0.75, abs=0.02)


def test_scales_include_words_with_negative_weights():
    """All words of a prompt with a negative weight have scales whose middle is 0."""
    below = HeatMap("red", np.array([[-0.3, -0.1]]), (2, 1), shared=(-0.3, 0.2))
    above = HeatMap("house", np.array([[0.05, 0.2]]), (2, 1), shared=(-0.3, 0.2))
    for scale, most in (("shared", 0.3), ("raw", 1.0)):
        assert below.value_range(scale) == above.value_range(scale) == (-most, most)
    assert below.value_range("word") == (-0.3, 0.3) and above.value_range("word") == (-0.2, 0.2)
