"""Layout of figures: panels in rows, tables, a title above and the scale's colours below.

matplotlib is imported when something is drawn, since commands without figures do not need it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from heedmap.checks import finite
from heedmap.errors import ArgumentError, signed
from heedmap.figures.blocks import (
    INK,
    SOFT,
    Block,
    PictureAt,
    TextAt,
    moved,
    note_size,
    size_for,
    stack,
    text_height,
    text_width,
    warn_of_boxes,
    wrap,
)
from heedmap.figures.overlays import centred, heat, overlay, to_rgb

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

MAX_WIDTH = 2400  # px, of a sheet

_SIDES = (384, 320, *range(256, 15, -8))  # px, of a panel, best first
_COLUMN = 112  # px, the narrowest column of captions
_GAP, _MARGIN = 20, 32  # px


@dataclass(frozen=True)
class Panel:
    """A picture with its caption and, in smaller letters, a note."""

    caption: str
    picture: Image.Image
    note: str = ""


@dataclass(frozen=True)
class ScaleBar:
    """The colours of a sheet: the scale's name, and its values at the cold and the hot end.

    Attributes:
        name: of the scale, such as "shared by the words".
        low: the number at the cold end, or words for it.
        high: the number at the hot end, or words for it.
        alone: whether the pictures are `heat`; else they are overlays, and so is the bar, on grey.
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
        """Give the texts at the cold and at the hot end."""
        if isinstance(self.low, str) or isinstance(self.high, str):
            return f"{self.low}", f"{self.high}"
        low, high = finite("low", self.low), finite("high", self.high)
        low, high = centred(low, high) if low < 0 else (low, high)
        # A low that rounds to nothing beside high is 0.
        return "0" if abs(low) < high / 1000 else signed(low, ".3g"), signed(high, ".3g")

    def block(self, width: int) -> Block:
        """Lay out the bar between its ends, and its name, in a block of this width."""
        size = note_size(width)
        cold, hot = self.ends()
        bar = self.drawn((width // 5, size))
        left = round(text_width(cold) * size) + size // 2
        right = left + bar.width + size // 2
        after = right + round(text_width(hot) * size) + 2 * size
        name = f"{self.name.removesuffix(' probability')} · signed weight"
        name = wrap(f"scale: {name if self.negative else self.name}", width - after, size)
        texts = ((0, cold), (right, hot), (after, name))
        return Block(
            width,
            max(size, text_height(name, size)),
            (
                PictureAt(left, size // 6, bar, bar.size, outlined=False),
                *(TextAt(x, 0, text, size, SOFT, "left") for x, text in texts),
            ),
        )

    def drawn(self, size: tuple[int, int]) -> Image.Image:
        """Draw the bar without its texts, at a size (W, H)."""
        low = -1 if self.negative else 0
        ramp = np.linspace(low, 1, 256)[None]
        if self.alone:
            return heat(ramp, size, low=low, high=1)
        grey = Image.new("RGB", size, (176, 176, 176))
        return overlay(grey, ramp, low=low, high=1)


# --- sheets -----------------------------------------------------------------------------------


def framed(body: Block, *, title: str, note: str = "", bar: ScaleBar | None = None) -> "Sheet":
    """Draw a block below a title and a note, with its colours below and margins around.

    Args:
        body: such as panels `in_rows`, or a `table`.
        title: wrapped. All texts end after 1000 characters.
        note: below the title, smaller.
        bar: the scale of the heat, if there is any.
    """
    from heedmap.figures.sheet import Sheet

    warn_of_boxes(title)
    width = max(body.width, 480)
    size, small = min(30, max(24, width // 60)), note_size(width)
    head, under = wrap(title, width, size), wrap(note, width, small)
    texts = [
        Block(width, text_height(text, points), (TextAt(0, 0, text, points, colour, "left"),))
        for text, points, colour in ((head, size, INK), (under, small, SOFT))
        if text
    ]
    parts = [*texts, Block(width, small if texts else 0), body]
    if bar is not None:
        parts += [Block(width, 3 * small // 2), bar.block(width)]
    whole = stack(parts)
    block = Block(whole.width + 2 * _MARGIN, whole.height + 2 * _MARGIN)
    return Sheet.of(replace(block, items=moved(whole, _MARGIN, _MARGIN)), " ".join(head.split()))


def in_rows(panels: Sequence[Panel], *, columns: int | None = None) -> Block:
    """Lay out panels in rows, captions below their pictures.

    All get one size, in the shape of the first picture: as large as their number and the width of
    a sheet allow. Pictures of another shape are fitted in.

    Args:
        panels: in reading order.
        columns: left out, as many as bring the whole near 16:9.
    """
    if not panels:
        raise ArgumentError("the figure has no panels: expected at least one")
    pictures = [to_rgb(panel.picture) for panel in panels]
    columns, wide, high = _plan(len(panels), pictures[0].width / pictures[0].height, columns)
    room = max(wide, _COLUMN)
    size = min(26, max(16, round(math.sqrt(wide * high) * 0.075)))
    size = size_for([panel.caption for panel in panels], room, size)
    small = size_for([panel.note for panel in panels], room, max(11, round(size * 0.8)))
    items: list[PictureAt | TextAt] = []
    top = bottom = 0
    for number, (panel, picture) in enumerate(zip(panels, pictures, strict=True)):
        if number % columns == 0:
            top = bottom + _GAP * (number > 0)
        centre = number % columns * (room + _GAP) + room / 2
        caption, note = wrap(panel.caption, room, size), wrap(panel.note, room, small)
        below = top + high + 6
        items.append(_fitted(picture, centre, top + high / 2, wide, high))
        if caption:
            items.append(TextAt(centre, below, caption, size))
        below += text_height(caption, size)
        if note:
            items.append(TextAt(centre, below, note, small, SOFT))
        bottom = max(bottom, below + text_height(note, small))
    return Block(min(columns, len(panels)) * (room + _GAP) - _GAP, bottom, tuple(items))


def _plan(count: int, shape: float, given: int | None = None) -> tuple[int, int, int]:
    """Choose how many columns, and how wide and high the pictures are."""
    root = min(max(shape, 1 / 40), 40) ** 0.5
    columns = wide = high = 1
    for side in _SIDES:
        wide, high = max(1, round(side * root)), max(1, round(side / root))
        across, down = max(wide, _COLUMN) + _GAP, high + side // 5 + _GAP
        most = max(1, (MAX_WIDTH - 2 * _MARGIN + _GAP) // across)
        rows = max(1, round(math.sqrt(count * across / down * 9 / 16)))
        columns = min(given or math.ceil(count / rows), most)
        rows = math.ceil(count / columns)
        small = side <= 256 or columns * across * rows * down <= 1.6e6
        if side <= 96 or (small and rows * down <= 1450 and across <= MAX_WIDTH - 2 * _MARGIN):
            break
    return columns, wide, high


def table(
    rows: Sequence[tuple[str, Sequence[Image.Image | str]]],
    columns: Sequence[str],
    *,
    side: int = 256,
    least: int = 96,
) -> Block:
    """Lay out pictures in rows and columns, with labels at the left and above.

    All get one size, in the shape of the first: `side` pixels (the geometric mean of its sides)
    where `MAX_WIDTH` has room for the columns, else less, but `least` at least; then the sheet is
    wider.

    Args:
        rows: of each its label and a picture for each column. A text in place of a picture says
            why there is none.
        columns: a label for each.
        side: of pictures, in pixels.
        least: of pictures, in pixels, where there is not enough room.
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
    size, gap = (20, 12) if side >= _COLUMN else (15, 4)
    heads = [wrap(label, 200, size) for label, _ in rows]
    aside = math.ceil(max(text_width(head) for head in heads) * size)
    aside += 12 if aside else 0
    room = (MAX_WIDTH - 2 * _MARGIN - aside + gap) / len(columns) - gap
    wide = max(int(min(side * root, room)), round(least * root))
    high = max(1, round(wide / root**2))
    size_above = size_for(columns, wide, size)
    above = [wrap(label, wide, size_above) for label in columns]
    y = max(text_height(label, size_above) for label in above) + 6
    centres = [aside + n * (wide + gap) + wide / 2 for n in range(len(columns))]
    items: list[PictureAt | TextAt] = [
        TextAt(x, y - 6, label, size_above, va="bottom")
        for x, label in zip(centres, above, strict=True)
    ]
    for head, (_, row) in zip(heads, rows, strict=True):
        cells: list[PictureAt | TextAt] = []
        for x, cell in zip(centres, row, strict=True):
            if isinstance(cell, str):
                cells.append(TextAt(x, 0, wrap(cell, wide, size - 4), size - 4, SOFT, va="center"))
            else:
                cells.append(_fitted(to_rgb(cell), x, 0, wide, high))
        heights = [cell.size[1] for cell in cells if isinstance(cell, PictureAt)]
        # Of runs of several shapes some have flat rows.
        tall = max(*heights, text_height(head, size)) if heights else high
        cells.append(TextAt(0, 0, head, size, ha="left", va="center"))
        items += moved(Block(0, 0, tuple(cells)), 0, y + tall / 2)
        y += tall + gap
    return Block(aside + len(columns) * (wide + gap) - gap, y - gap, tuple(items))


def _fitted(picture: Image.Image, x: float, y: float, wide: int, high: int) -> PictureAt:
    """Place a picture around a point, as large as fits into `wide` × `high` pixels."""
    fit = min(wide / picture.width, high / picture.height)
    width, height = max(1, round(picture.width * fit)), max(1, round(picture.height * fit))
    return PictureAt(x - width / 2, y - height / 2, picture, (width, height))
