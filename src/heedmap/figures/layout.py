"""Sheets of many captioned panels and tables: where everything stands, in pixels.

Pure functions of texts and Pillow images: no file is written, no global state touched, and the same
arguments give the same figure. Whatever cannot be drawn raises `ArgumentError`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from heedmap.checks import finite, whole
from heedmap.errors import ArgumentError
from heedmap.figures.blocks import SOFT, Block, LineAt, PictureAt, lines_at, picture_at
from heedmap.figures.lettering import fit_text
from heedmap.figures.overlays import heat, overlay, to_rgb

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

__all__ = ["MAX_WIDTH", "Panel", "ScaleBar", "framed", "in_rows", "sheet", "table"]

MAX_WIDTH = 2400  # px: no sheet is wider

_SIDES = (384, 320, *range(256, 15, -8))  # px: what a panel may measure, best first
_COLUMN = 112  # px: the narrowest column: a caption needs room beside a slim picture
_GAP, _MARGIN = 20, 32  # px


@dataclass(frozen=True)
class Panel:
    """A picture with its caption and, smaller, a note: text in any script, as it is drawable."""

    caption: str
    picture: Image.Image
    note: str = ""


@dataclass(frozen=True)
class ScaleBar:
    """What the colours of a sheet mean: a scale's name, and what is cold and what is hot on it.

    The bar is an overlay on grey, so that it shows the colours of overlays.

    Attributes:
        name: of the scale, such as "shared by the words".
        low: the number at the cold end of the bar, or words for it.
        high: the same at the hot end.
        alone: whether the pictures are `heat` alone, without a picture below it.
    """

    name: str
    low: float | str
    high: float | str
    alone: bool = False

    def ends(self) -> tuple[str, str]:
        """What stands at the cold and at the hot end."""
        low, high = (
            e if isinstance(e, str) else finite(name, e)
            for name, e in (("low", self.low), ("high", self.high))
        )
        if isinstance(low, float) and isinstance(high, float) and abs(low) < high / 1000:
            low = "0"  # as near as can be seen
        cold, hot = (e if isinstance(e, str) else f"{e:.3g}" for e in (low, high))
        return cold, hot

    def block(self, width: int, size: int) -> Block:
        """The bar with its texts of `size` pixels, in a room of this width."""
        cold, hot = (fit_text(end, width // 4, size=size, lines=1) for end in self.ends())
        at_bar = cold.width + size // 2
        at_hot = at_bar + width // 5 + size // 2
        at_name = at_hot + hot.width + 2 * size
        name = fit_text(f"scale: {self.name}", width - at_name, size=size)
        bar = self.drawn((width // 5, size))
        things = (
            PictureAt(at_bar, size // 6, bar, bar.size, outlined=False),
            *lines_at(cold, 0, 0, cold.width, colour=SOFT),
            *lines_at(hot, at_hot, 0, hot.width, colour=SOFT),
            *lines_at(name, at_name, 0, name.width, colour=SOFT),
        )
        return Block(width, max(text.height for text in (cold, hot, name)), things)

    def drawn(self, size: tuple[int, int]) -> Image.Image:
        """The bar without its texts, at a size (W, H)."""
        ramp = np.linspace(0, 1, 256)[None]
        if self.alone:
            return heat(ramp, size, low=0, high=1)
        grey = Image.new("RGB", size, (176, 176, 176))
        return overlay(grey, ramp, low=0, high=1)


def in_rows(panels: Sequence[Panel], *, columns: int | None = None) -> Block:
    """Set panels in rows, in reading order, captions beneath, without margins.

    All get one size, in the shape of the first picture: as large as their number and the width of
    a sheet allow. Pictures of another shape are fitted in, never distorted. Without `columns`, the
    whole comes near 16:9.
    """
    if not panels:
        raise ArgumentError("the figure has no panels: expected at least one")
    pictures = [to_rgb(panel.picture) for panel in panels]
    columns, wide, high = _plan(len(panels), pictures[0].width / pictures[0].height, columns)
    room, size = max(wide, _COLUMN), min(26, max(16, round(math.sqrt(wide * high) * 0.075)))
    captions = [fit_text(panel.caption, room, size=size) for panel in panels]
    notes = [fit_text(panel.note, room, size=max(11, round(size * 0.8))) for panel in panels]
    texts = [caption.height + note.height for caption, note in zip(captions, notes, strict=True)]
    rows = [high + 6 + max(texts[i : i + columns]) + _GAP for i in range(0, len(panels), columns)]
    things: list[PictureAt | LineAt] = []
    for index, picture in enumerate(pictures):
        x, y = index % columns * (room + _GAP), sum(rows[: index // columns])
        things.append(picture_at(picture, (x, y, room, high), _fitted(picture, wide, high)))
        y += high + 6
        things += lines_at(captions[index], x, y, room, middle=True)
        y += captions[index].height
        things += lines_at(notes[index], x, y, room, colour=SOFT, middle=True)
    return Block(columns * (room + _GAP) - _GAP, sum(rows) - _GAP, tuple(things))


def _fitted(picture: Image.Image, wide: int, high: int) -> tuple[int, int]:
    """The largest size in the shape of a picture that fits into `wide` × `high` pixels."""
    fit = min(wide / picture.width, high / picture.height)
    return max(1, round(picture.width * fit)), max(1, round(picture.height * fit))


def _plan(count: int, shape: float, columns: int | None) -> tuple[int, int, int]:
    """How many columns of panels how wide and high: the largest that make a sensible sheet."""
    limit = MAX_WIDTH - 2 * _MARGIN + _GAP
    most = limit // (_COLUMN + _GAP)  # for captions to fit
    columns = None if columns is None else whole("columns", columns, least=1, most=most)
    root = min(max(shape, 1 / 40), 40) ** 0.5
    plan = (1, 1, 1)
    for side in _SIDES:
        wide, high = round(side * root), round(side / root)
        fits: list[tuple[float, int, bool]] = []
        for n in [min(count, columns)] if columns else range(1, min(count, most) + 1):
            rows = math.ceil(count / n)
            width, height = n * (max(wide, _COLUMN) + _GAP), rows * (high + side // 5 + _GAP)
            odd = abs(math.log(width / height * 9 / 16)) + rows * n / count
            if width <= limit:
                fits.append((odd, n, height <= 1450 and (side <= 256 or width * height <= 1.6e6)))
        if fits:
            _, n, sensible = min(fits)
            plan = n, wide, high
            if sensible or side <= 96:
                break
    return plan


def sheet(
    image: Image.Image | None,
    panels: Sequence[Panel],
    *,
    title: str,
    bar: ScaleBar,
    caption: str = "",
    note: str = "the picture",
) -> "Sheet":
    """Draw a sheet: title, the picture and then the panels, and the scale with its colour bar.

    Args:
        image: the picture, first of the panels; None where none is known.
        panels: as a rule one a word, each an `overlay`.
        title: the prompt; as in `framed`.
        bar: what the colours of the panels mean.
        caption: of the picture.
        note: below it, smaller.
    """
    first = [] if image is None else [Panel(caption, image, note)]
    return framed(in_rows([*first, *panels]), title=title, bar=bar)


def framed(body: Block, *, title: str, note: str = "", bar: ScaleBar | None = None) -> "Sheet":
    """Set a title and a note above a body such as panels `in_rows`, and a colour bar below it.

    Args:
        body: what to frame; kept as it is, in the middle.
        title: wrapped; of this and all other texts, the first thousand signs.
        note: below the title, smaller.
        bar: what the colours mean; left out where none are to be explained.
    """
    from heedmap.figures.sheet import Sheet

    width = max(body.width, 480)
    size = min(22, max(16, width // 75))
    head = fit_text(title, width, size=min(30, max(24, width // 60)), least=15, lines=3)
    under = fit_text(note, width, size=size, least=12, lines=3)
    top = _MARGIN + head.height + under.height + (size if head.texts or under.texts else 0)
    things: list[PictureAt | LineAt] = [
        *lines_at(head, _MARGIN, _MARGIN, width),
        *lines_at(under, _MARGIN, _MARGIN + head.height, width, colour=SOFT),
        *body.at(_MARGIN + (width - body.width) // 2, top),
    ]
    end = top + body.height
    if bar is not None:
        end += 3 * size // 2
        scale = bar.block(width, size)
        things += scale.at(_MARGIN, end)
        end += scale.height
    return Sheet.of(Block(width + 2 * _MARGIN, end + _MARGIN, tuple(things)), title)


def table(
    rows: Sequence[tuple[str, Sequence[Image.Image | str]]],
    columns: Sequence[str],
    *,
    side: int = 256,
    least: int = 96,
) -> Block:
    """Set pictures in rows and columns with their labels, without margins.

    All get one size, in the shape of the first: `side` pixels (the geometric mean of its sides)
    where a sheet of `MAX_WIDTH` holds the columns, else as many as it does, yet `least` at least:
    then the sheet is wider.

    Args:
        rows: the label of each and its pictures, one a column; empty labels take no room. A text
            in place of a picture says why there is none.
        columns: a label for each.
        side: how large pictures are if there is room; small ones are enlarged to it.
        least: how large they are at least.
    """
    if not rows or not columns or any(len(row) != len(columns) for _, row in rows):
        given = ", ".join(str(len(row)) for _, row in rows) or "no"
        raise ArgumentError(
            f"the table has {given} pictures in its rows and {len(columns)} columns: expected one "
            "picture a column in every row"
        )
    cells = [[c if isinstance(c, str) else to_rgb(c) for c in row] for _, row in rows]
    first = next((c for row in cells for c in row if not isinstance(c, str)), None)
    shape = 1.0 if first is None else first.width / first.height
    root = min(max(shape, 1 / 4), 4) ** 0.5
    size, gap = (20, 12) if side >= _COLUMN else (15, 4)  # px of labels, and between pictures
    heads = [fit_text(label, 200, size=size, lines=max(3, side // 40)) for label, _ in rows]
    aside = max(head.width for head in heads)
    at = aside + (12 if aside else 0)
    room = (MAX_WIDTH - 2 * _MARGIN - at + gap) / len(columns) - gap
    wide = max(int(min(side * root, room)), round(least * root))
    high = max(1, round(wide / root**2))
    labels = [fit_text(label, wide, size=size) for label in columns]
    y = max(label.height for label in labels) + 6
    things: list[PictureAt | LineAt] = []
    for index, label in enumerate(labels):  # all stand on the pictures
        things += lines_at(
            label, at + index * (wide + gap), y - 6 - label.height, wide, middle=True
        )
    for head, row in zip(heads, cells, strict=True):
        # A row is as high as its pictures: among runs of different shape some are flat.
        sizes = [None if isinstance(c, str) else _fitted(c, wide, high) for c in row]
        deep = max(max((s[1] for s in sizes if s), default=high), head.height)
        things += lines_at(head, 0, y + (deep - head.height) // 2, aside)
        for index, (cell, fitted) in enumerate(zip(row, sizes, strict=True)):
            x = at + index * (wide + gap)
            if isinstance(cell, str):
                why = fit_text(cell, wide, size=size - 4)
                middle = y + (deep - why.height) // 2
                things += lines_at(why, x, middle, wide, colour=SOFT, middle=True)
            elif fitted:
                things.append(picture_at(cell, (x, y, wide, deep), fitted))
        y += deep + gap
    return Block(at + len(columns) * (wide + gap) - gap, y - gap, tuple(things))
