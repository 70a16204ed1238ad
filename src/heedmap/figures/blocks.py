"""Boxes of pictures and lines of text: what a figure is put together from.

Places are in pixels, from the top left corner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PIL import Image

from heedmap.figures.lettering import Lines, runs_left

__all__ = ["INK", "SOFT", "Block", "LineAt", "PictureAt", "beside"]

INK, SOFT = "#1d1d1f", "#636368"


@dataclass(frozen=True)
class PictureAt:
    """An RGB picture at a place, resized to what it takes there."""

    x: float
    y: float
    picture: Image.Image
    size: tuple[int, int]
    outlined: bool = True


@dataclass(frozen=True)
class LineAt:
    """A line of drawable text, its base line's beginning at a place."""

    x: float
    y: float
    text: str
    size: int
    colour: str


@dataclass(frozen=True)
class Block:
    """Things at their places in a room of this size."""

    width: int
    height: int
    things: tuple[PictureAt | LineAt, ...] = ()

    @classmethod
    def of(cls, picture: Image.Image, size: tuple[int, int] | None = None) -> "Block":
        """An RGB picture pixel by pixel, or outlined at a size."""
        shown = PictureAt(0, 0, picture, size or picture.size, outlined=size is not None)
        return cls(*shown.size, (shown,))

    @classmethod
    def text(cls, lines: Lines, room: int, colour: str = INK, *, middle: bool = False) -> "Block":
        """Text in a column `room` wide: in its middle, or from the side where its script begins."""
        size, step, things = lines.size, round(lines.size * 1.3), list[LineAt]()
        for number, (line, wide) in enumerate(zip(lines.texts, lines.widths, strict=True)):
            left = (room - wide) * (0.5 if middle else runs_left(line))
            things.append(LineAt(left, number * step + size, line, size, colour))
        return cls(room, len(things) * step, tuple(things))


def beside(parts: Sequence[Block], *, across: bool, gap: int = 0, lean: float = 0) -> Block:
    """Set blocks beside (or below) one another.

    Args:
        parts: in reading order.
        across: whether beside.
        gap: pixels between two.
        lean: where those stand that are less high (or wide) than others: 0 is flush at the top (or
            the left), 0.5 in the middle, 1 at the foot.
    """
    things: list[PictureAt | LineAt] = []
    deep = max((part.height if across else part.width for part in parts), default=0)
    end = 0
    for part in parts:
        along, other = (part.width, part.height) if across else (part.height, part.width)
        aside = int((deep - other) * lean)
        x, y = (end, aside) if across else (aside, end)
        things += (replace(thing, x=thing.x + x, y=thing.y + y) for thing in part.things)
        end += along + gap
    end = max(0, end - gap)
    return Block(*((end, deep) if across else (deep, end)), tuple(things))
