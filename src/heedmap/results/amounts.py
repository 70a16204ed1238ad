"""How much a grid of edits may be, so that what is drawn can be read back."""

import math
from collections.abc import Iterable, Sized

from heedmap.errors import ArgumentError
from heedmap.files.values import MAX_CELLS

__all__ = ["check_amount", "check_axes", "excess"]

_MOST_PIXELS = 2**28  # of all cells: a thousand of 512×512, three bytes each


def check_axes(axes: Iterable[Sized]) -> None:
    """Raise an ArgumentError if nothing varies, or too much does."""
    axes = [*axes]
    check_amount(math.prod(map(len, axes)))
    if all(len(axis) == 1 for axis in axes):
        raise ArgumentError(
            "nothing varies in this grid: give several targets, seeds, weights of a word or "
            "windows, as in weights={'red': [0, 1, 2]} (--weight red=0:2:3)"
        )


def check_amount(cells: int, each: tuple[int, int] = (1, 1)) -> None:
    """Raise an ArgumentError if there are more cells, or pixels of all, than can be read back."""
    if too := excess(cells, each):
        raise ArgumentError(f"this grid would have {too}; give fewer targets, seeds or values")


def excess(cells: int, each: tuple[int, int] = (1, 1)) -> str:
    """Why a grid of so many cells, each of a size (W, H), is not read back; empty if it is."""
    if cells > MAX_CELLS:
        return f"{cells:,} cells: expected at most {MAX_CELLS:,}"
    width, height = each
    if cells * width * height > _MOST_PIXELS:
        most = _MOST_PIXELS // (width * height)
        return f"{cells:,} cells of {width}×{height} pixels: expected at most {most:,} of those"
    return ""
