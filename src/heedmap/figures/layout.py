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

from heedmap.checks import finite
from heedmap.errors import ArgumentError, signed
from heedmap.figures.blocks import INK, SOFT, Block, beside
from heedmap.figures.lettering import fit_text
from heedmap.figures.overlays import centred, heat, overlay, to_rgb

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

__all__ = ["MAX_WIDTH", "Laid", "Panel", "ScaleBar", "framed", "in_rows", "laid_out", "table"]

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

    @property
    def negative(self) -> bool:
        """Whether the scale begins below 0."""
        return self.low.startswith("−") if isinstance(self.low, str) else self.low < 0

    def ends(self) -> tuple[str, str]:
        """What stands at the cold and at the hot end."""
        if isinstance(self.low, str) or isinstance(self.high, str):
            return f"{self.low}", f"{self.high}"
        low, high = finite("low", self.low), finite("high", self.high)
        low, high = centred(low, high) if low < 0 else (low, high)
        # "0" is as near as can be seen.
        return "0" if abs(low) < high / 1000 else signed(low, ".3g"), signed(high, ".3g")

    def block(self, width: int, size: int) -> Block:
        """The bar with its texts of `size` pixels, in a room of this width."""
        cold, hot = (fit_text(end, width // 4, size=size, lines=1) for end in self.ends())
        bar = Block.of(self.drawn((width // 5, size)))
        left = cold.width + bar.width + hot.width + 3 * size
        name = f"{self.name.removesuffix(' probability')} · signed weight"
        name = fit_text(f"scale: {name if self.negative else self.name}", width - left, size=size)
        cold, hot, name = (Block.text(one, one.width, SOFT) for one in (cold, hot, name))
        bar = beside([Block(0, size // 6), bar], across=False)
        between, before = Block(size // 2, 0), Block(2 * size, 0)
        return beside([cold, between, bar, between, hot, before, name], across=True)

    def drawn(self, size: tuple[int, int]) -> Image.Image:
        """The bar without its texts, at a size (W, H)."""
        low = -1 if self.negative else 0
        ramp = np.linspace(low, 1, 256)[None]
        if self.alone:
            return heat(ramp, size, low=low, high=1)
        grey = Image.new("RGB", size, (176, 176, 176))
        return overlay(grey, ramp, low=low, high=1)


@dataclass(frozen=True)
class Laid:
    """What a sheet shows, before a figure is made of it: no matplotlib is imported for it.

    Attributes:
        block: everything at its place.
        title: what files say that they are.
    """

    block: Block
    title: str = ""

    def figure(self) -> "Sheet":
        """The sheet as a figure of matplotlib."""
        from heedmap.figures.sheet import Sheet

        return Sheet.of(self.block, self.title)

    def image(self, *, dark: bool = False) -> Image.Image:
        """The sheet as an RGB picture: the figure's, to the bit, and sooner; or on dark paper."""
        from heedmap.figures.painting import painted

        return painted(self.block, dark=dark)


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
    cells: list[Block] = []
    for panel, picture in zip(panels, pictures, strict=True):
        shown = _fitted(picture, wide, high, (room, high))
        caption = _caption(panel.caption, room, size)
        note = _caption(panel.note, room, max(11, round(size * 0.8)), SOFT)
        cells.append(beside([shown, Block(room, 6), caption, note], across=False))
    rows = [
        beside(cells[at : at + columns], across=True, gap=_GAP)
        for at in range(0, len(cells), columns)
    ]
    return beside(rows, across=False, gap=_GAP)


def _caption(text: str, room: int, size: int, colour: str = INK) -> Block:
    """Text in the middle of a column."""
    return Block.text(fit_text(text, room, size=size), room, colour, middle=True)


def _fitted(picture: Image.Image, wide: int, high: int, room: tuple[int, int]) -> Block:
    """A picture as large as fits into `wide` × `high` pixels, in the middle of a room."""
    fit = min(wide / picture.width, high / picture.height)
    size = max(1, round(picture.width * fit)), max(1, round(picture.height * fit))
    return _centred(Block.of(picture, size), *room)


def _centred(block: Block, width: int = 0, height: int = 0) -> Block:
    """A block in the middle of a room, if that is larger."""
    across = beside([Block(width, 0), block], across=False, lean=0.5)
    return beside([Block(0, height), across], across=True, lean=0.5)


def _plan(count: int, shape: float, given: int | None = None) -> tuple[int, int, int]:
    """How many columns of panels how wide and high: the largest that make a sensible sheet."""
    root = min(max(shape, 1 / 40), 40) ** 0.5
    columns = wide = high = 1
    for side in _SIDES:
        wide, high = round(side * root), round(side / root)
        across, down = max(wide, _COLUMN) + _GAP, high + side // 5 + _GAP
        most = min(count, max(1, (MAX_WIDTH - 2 * _MARGIN + _GAP) // across))
        plans = [
            (n, math.ceil(count / n)) for n in ([min(given, most)] if given else range(1, most + 1))
        ]
        columns, rows = min(
            plans,
            key=lambda p: (
                abs(math.log(p[0] * across / (p[1] * down) * 9 / 16)) + p[0] * p[1] / count
            ),
        )
        small = side <= 256 or columns * across * rows * down <= 1.6e6
        if side <= 96 or (small and rows * down <= 1450 and across <= MAX_WIDTH - 2 * _MARGIN):
            break
    return columns, wide, high


def framed(body: Block, *, title: str, note: str = "", bar: ScaleBar | None = None) -> "Sheet":
    """A body framed as by `laid_out`, as a figure of matplotlib."""
    return laid_out(body, title=title, note=note, bar=bar).figure()


def laid_out(body: Block, *, title: str, note: str = "", bar: ScaleBar | None = None) -> Laid:
    """Set a title and a note above a body such as panels `in_rows`, and a colour bar below it.

    Args:
        body: what to frame; kept as it is, in the middle.
        title: wrapped; of this and all other texts, the first thousand signs.
        note: below the title, smaller.
        bar: what the colours mean; left out where none are to be explained.
    """
    width = max(body.width, 480)
    size = min(22, max(16, width // 75))
    head = fit_text(title, width, size=min(30, max(24, width // 60)), least=15, lines=3)
    under = fit_text(note, width, size=size, least=12, lines=3)
    parts = [Block.text(head, width), Block.text(under, width, SOFT)]
    parts += [Block(0, size if head.texts or under.texts else 0), _centred(body, width)]
    if bar is not None:
        parts += [Block(0, 3 * size // 2), bar.block(width, size)]
    whole = beside(parts, across=False)
    return Laid(_centred(whole, width + 2 * _MARGIN, whole.height + 2 * _MARGIN), title)


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
    first = next((to_rgb(c) for _, row in rows for c in row if not isinstance(c, str)), None)
    shape = 1.0 if first is None else first.width / first.height
    root = min(max(shape, 1 / 4), 4) ** 0.5
    size, gap = (20, 12) if side >= _COLUMN else (15, 4)  # px of labels, and between pictures
    heads = [fit_text(label, 200, size=size, lines=max(3, side // 40)) for label, _ in rows]
    aside = max(head.width for head in heads)
    at = aside + (12 if aside else 0)
    room = (MAX_WIDTH - 2 * _MARGIN - at + gap) / len(columns) - gap
    wide = max(int(min(side * root, room)), round(least * root))
    high = max(1, round(wide / root**2))
    labels = [_caption(label, wide, size) for label in columns]
    lines: list[Block] = []
    for head, (_, row) in zip(heads, rows, strict=True):
        cells = [
            _caption(cell, wide, size - 4, SOFT)
            if isinstance(cell, str)
            else _fitted(to_rgb(cell), wide, high, (wide, 0))
            for cell in row
        ]
        # A row is as high as its pictures: among runs of different shape some are flat.
        bare = all(isinstance(cell, str) for cell in row)
        drawn = beside(cells, across=True, gap=gap, lean=0.5)
        parts = [Block.text(head, at), drawn, Block(0, high if bare else 0)]
        lines.append(beside(parts, across=True, lean=0.5))
    above = beside([Block(at, 0), beside(labels, across=True, gap=gap, lean=1)], across=True)
    body = beside(lines, across=False, gap=gap)
    return beside([above, body], across=False, gap=6)
