"""How many cells a grid may have."""

import math
from collections.abc import Iterable, Sized

from heedmap.errors import ArgumentError
from heedmap.io.values import MAX_CELLS


def check_axes(axes: Iterable[Sized]) -> None:
    """Raise an ArgumentError if nothing varies, or there would be too many cells."""
    axes = [*axes]
    cells = math.prod(map(len, axes))
    if cells > MAX_CELLS:
        raise ArgumentError(
            f"this grid would have {cells:,} cells: expected at most {MAX_CELLS:,}; give fewer "
            "targets, seeds or values"
        )
    if all(len(axis) == 1 for axis in axes):
        raise ArgumentError(
            "nothing varies in this grid: give several targets, seeds, weights of a word or "
            "windows, as in weights={'red': [0, 1, 2]} (--weight red=0:2:3)"
        )
