import pytest

from heedmap.errors import ArgumentError
from heedmap.results.grids import check_axes


def test_a_grid_varies_something_and_has_at_most_10000_cells():
    check_axes([range(100), range(100)])
    for axes in ([["a cat"], [1], [(0, 0.8)]], [range(101), range(100)]):
        with pytest.raises(ArgumentError):
            check_axes(axes)
