import pytest

from heedmap.errors import ArgumentError
from heedmap.results.amounts import check_amount, check_axes, excess


def test_how_many_cells_a_grid_has():
    assert excess(10_000) == "" and excess(10_001).startswith(
        "10,001 cells: expected at most 10,000"
    )
    assert excess(2**14, (128, 128)) != "" and excess(2**12, (256, 256)) == ""
    assert excess(2**12 + 1, (256, 256)).endswith("expected at most 4,096 of those")


def test_a_grid_varies_something():
    check_axes([[1], [1, 2]])
    with pytest.raises(ArgumentError, match="nothing varies in this grid: give several targets"):
        check_axes([["a cat"], [1], [(0, 0.8)]])
    with pytest.raises(ArgumentError, match="10,200 cells: expected at most 10,000; give fewer"):
        check_axes([range(102), range(100)])


def test_an_amount_is_of_pixels_too():
    check_amount(1024, (512, 512))
    with pytest.raises(ArgumentError, match="1,025 cells of 512×512 pixels: expected at most 1,0"):
        check_amount(1025, (512, 512))
