"""Pictures and lines of text at their places: what a figure is put together from.

Places are in pixels, from the top left corner.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from PIL import Image

from heedmap.figures.lettering import Lines, runs_left

__all__ = ["INK", "SOFT", "Block", "LineAt", "PictureAt", "beside", "lines_at", "picture_at"]

INK, SOFT = "#1d1d1f", "#636368"


@dataclass(frozen=True)
class PictureAt:
    """A picture at a place, resized to what it takes there."""

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
    def of(cls, picture: Image.Image) -> "Block":
        """A picture alone, pixel by pixel."""
        return cls(*picture.size, (PictureAt(0, 0, picture, picture.size, outlined=False),))

    def at(self, x: int, y: int) -> Iterable[PictureAt | LineAt]:
        """Its things, for a room in which its corner lies here."""
        return (replace(thing, x=thing.x + x, y=thing.y + y) for thing in self.things)


def beside(parts: Sequence[Block], *, across: bool, gap: int = 32) -> Block:
    """Set blocks beside (or below) one another, flush at the top (or the left)."""
    things: list[PictureAt | LineAt] = []
    width = height = 0
    for part in parts:
        x, y = (width + gap if width else 0, 0) if across else (0, height + gap if height else 0)
        things += part.at(x, y)
        width, height = max(width, x + part.width), max(height, y + part.height)
    return Block(width, height, tuple(things))


def picture_at(
    picture: Image.Image, place: tuple[int, int, int, int], size: tuple[int, int]
) -> PictureAt:
    """A picture of this size, outlined, in the middle of a place (x, y, width, height)."""
    x, y, width, height = place
    return PictureAt(x + (width - size[0]) // 2, y + (height - size[1]) // 2, picture, size)


def lines_at(
    lines: Lines, x: int, y: int, room: int, *, colour: str = INK, middle: bool = False
) -> Iterable[LineAt]:
    """Text in a column `room` wide: in its middle, or from the side where the script begins."""
    for number, (text, wide) in enumerate(zip(lines.texts, lines.widths, strict=True)):
        slack = room - wide
        left = x + (slack / 2 if middle else slack if runs_left(text) else 0)
        yield LineAt(left, y + number * lines.step + lines.size, text, lines.size, colour)
