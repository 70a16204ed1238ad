"""Pictures: heat laid over a picture, and sheets of many captioned panels.

Pure functions of arrays, text and Pillow images: no file is written, no global state touched
(matplotlib lends its colour maps and fonts; pyplot is never imported), and the same arguments give
the same pixels. Single pictures are drawn by `overlays`, whose names are here too; below
they are set in grids, tables and sheets. Whatever cannot be drawn raises `ArgumentError`.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from heedmap.checks import finite, whole
from heedmap.errors import ArgumentError
from heedmap.figures.lettering import Text, fit_text
from heedmap.figures.overlays import (
    COLORMAP,
    COLORMAPS,
    OPACITY,
    colour,
    enlarge,
    heat,
    overlay,
    overlay_several,
    resize_map,
    shrunk,
    to_rgb,
)

__all__ = [
    "COLORMAPS",
    "Panel",
    "ScaleBar",
    "colour",
    "contact_sheet",
    "enlarge",
    "framed",
    "grid",
    "heat",
    "joined",
    "overlay",
    "overlay_several",
    "png",
    "resize_map",
    "sheet",
    "shrunk",
    "table",
    "to_rgb",
]

_LONGEST = 1000  # signs of a title; a prompt of CLIP has some 400 at most
MAX_WIDTH = 2400  # px: no sheet is wider

_SIDES = (384, 320, *range(256, 15, -8))  # px: what a panel may measure, best first
_COLUMN = 112  # px: the narrowest column: a caption needs room beside a slim picture
_GAP, _MARGIN = 20, 32  # px
_WHITE, _INK, _SOFT, _RULE = (255, 255, 255), (29, 29, 31), (99, 99, 104), (205, 205, 209)


@dataclass(frozen=True)
class Panel:
    """A picture with its caption and, smaller, a note: text of any length and script."""

    caption: str
    picture: Image.Image
    note: str = ""


@dataclass(frozen=True)
class ScaleBar:
    """What the colours of a sheet mean: a scale's name, and what is cold and what is hot on it.

    Attributes:
        name: of the scale, such as "shared by the words".
        low: the number at the cold end of the bar, or words for it.
        high: the same at the hot end.
        opacity: that of the overlays: the bar is one on grey, so that it shows their colours.
        colormap: that of the pictures.
        alone: whether the pictures are `heat` alone, without a picture below it.
    """

    name: str
    low: float | str
    high: float | str
    opacity: float = OPACITY
    colormap: str = COLORMAP
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

    def draw(self, size: tuple[int, int]) -> Image.Image:
        """Draw the bar without its texts, at a size (W, H)."""
        ramp = np.linspace(0, 1, 256)[None]
        if self.alone:
            return heat(ramp, size, low=0, high=1, colormap=self.colormap)
        grey = Image.new("RGB", size, (176, 176, 176))
        return overlay(grey, ramp, low=0, high=1, opacity=self.opacity, colormap=self.colormap)


def grid(panels: Sequence[Panel], *, columns: int | None = None) -> Image.Image:
    """Set panels in rows, in reading order, captions beneath: an RGB picture without margins.

    All get one size, in the shape of the first picture: as large as their number and the width of
    a sheet allow. Pictures of another shape are fitted in, never distorted. Without `columns`, the
    grid comes near 16:9.
    """
    if not panels:
        raise ArgumentError("a grid needs at least one panel; got none")
    pictures = [to_rgb(panel.picture) for panel in panels]
    columns, wide, high = _plan(len(panels), pictures[0].width / pictures[0].height, columns)
    room, size = max(wide, _COLUMN), min(26, max(16, round(math.sqrt(wide * high) * 0.075)))
    captions = [fit_text(panel.caption, room, size=size) for panel in panels]
    notes = [fit_text(panel.note, room, size=max(11, round(size * 0.8))) for panel in panels]
    texts = [caption.height + note.height for caption, note in zip(captions, notes, strict=True)]
    rows = [high + 6 + max(texts[i : i + columns]) + _GAP for i in range(0, len(panels), columns)]
    paper = Image.new("RGB", (columns * (room + _GAP) - _GAP, sum(rows) - _GAP), _WHITE)
    for index, picture in enumerate(pictures):
        x, y = index % columns * (room + _GAP), sum(rows[: index // columns])
        _paste(paper, picture, (x, y, room, high), _fitted(picture, wide, high))
        y += high + 6
        captions[index].draw(paper, x, y, room, _INK, True)
        notes[index].draw(paper, x, y + captions[index].height, room, _SOFT, True)
    return paper


def _fitted(picture: Image.Image, wide: int, high: int) -> tuple[int, int]:
    """The largest size in the shape of a picture that fits into `wide` × `high` pixels."""
    fit = min(wide / picture.width, high / picture.height)
    return max(1, round(picture.width * fit)), max(1, round(picture.height * fit))


def _paste(
    paper: Image.Image,
    picture: Image.Image,
    place: tuple[int, int, int, int],
    size: tuple[int, int],
) -> None:
    """Set a picture of this size, outlined, in the middle of a place (x, y, width, height)."""
    picture = picture.resize(size, Image.Resampling.LANCZOS)
    ImageDraw.Draw(picture).rectangle((0, 0, size[0] - 1, size[1] - 1), outline=_RULE)
    x, y, width, height = place
    paper.paste(picture, (x + (width - size[0]) // 2, y + (height - size[1]) // 2))


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
    scale: str,
    low: float | str,
    high: float | str,
    opacity: float = OPACITY,
    colormap: str = COLORMAP,
    columns: int | None = None,
    caption: str = "",
    note: str = "the picture",
) -> Image.Image:
    """Draw a sheet: title, the picture and then the panels, and the scale with its colour bar.

    Args:
        image: the picture, first of the grid; None where none is known, and panels are heat alone.
        panels: as a rule one a word, each an `overlay`.
        title: the prompt; as in `framed`.
        scale: the name of the scale; with the four that follow a `ScaleBar`.
        low: what is cold.
        high: what is hot.
        opacity: that of the panels.
        colormap: that of the panels.
        columns: as in `grid`.
        caption: of the picture.
        note: below it, smaller.

    Returns:
        An RGB picture, at most `MAX_WIDTH` wide.
    """
    first = [] if image is None else [Panel(caption, image, note)]
    bar = ScaleBar(scale, low, high, opacity, colormap, image is None)
    return framed(grid([*first, *panels], columns=columns), title=title, bar=bar)


def framed(
    body: Image.Image, *, title: str, note: str = "", bar: ScaleBar | None = None
) -> Image.Image:
    """Set a title and a note above a body such as a `grid`, and a colour bar with its scale below.

    Args:
        body: what to frame; kept as it is, in the middle.
        title: wrapped; of one beyond any prompt the first thousand signs.
        note: below the title, smaller; the same.
        bar: what the colours mean; left out where none are to be explained.
    """
    width = max(body.width, 480)
    size = min(22, max(16, width // 75))
    title, note = (
        text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in (title, note)
    )
    head = fit_text(title, width, size=min(30, max(24, width // 60)), least=15, lines=3)
    said = fit_text(note, width, size=size, least=12, lines=3)
    top = _MARGIN + head.height + said.height + (size if head.lines or said.lines else 0)
    foot = top + body.height + 3 * size // 2
    texts: list[tuple[Text, int]] = []
    end = top + body.height
    if bar is not None:
        cold, hot = (fit_text(end, width // 4, size=size, lines=1) for end in bar.ends())
        at_bar = _MARGIN + cold.width + size // 2
        at_hot = at_bar + width // 5 + size // 2
        at_name = at_hot + hot.width + 2 * size
        name = fit_text(f"scale: {bar.name}", _MARGIN + width - at_name, size=size)
        texts = [(cold, _MARGIN), (hot, at_hot), (name, at_name)]
        end = foot + max(text.height for text, _ in texts)
    paper = Image.new("RGB", (width + 2 * _MARGIN, end + _MARGIN), _WHITE)
    head.draw(paper, _MARGIN, _MARGIN, width, _INK, False)
    said.draw(paper, _MARGIN, _MARGIN + head.height, width, _SOFT, False)
    paper.paste(body, ((paper.width - body.width) // 2, top))
    for text, x in texts:
        text.draw(paper, x, foot, text.width, _SOFT, False)
    if bar is not None:
        paper.paste(
            bar.draw((width // 5, size)),
            (texts[0][0].width + _MARGIN + size // 2, foot + size // 6),
        )
    return paper


def contact_sheet(
    rows: Sequence[tuple[str, Sequence[Image.Image | str]]],
    columns: Sequence[str],
    *,
    title: str,
    note: str = "",
    side: int = 256,
    least: int = 96,
    bar: ScaleBar | None = None,
) -> Image.Image:
    """Draw pictures in a `table` whose rows and columns are labelled, `framed`."""
    return framed(table(rows, columns, side=side, least=least), title=title, note=note, bar=bar)


def table(
    rows: Sequence[tuple[str, Sequence[Image.Image | str]]],
    columns: Sequence[str],
    *,
    side: int = 256,
    least: int = 96,
) -> Image.Image:
    """Draw pictures in rows and columns with their labels, without margins.

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
            f"a contact sheet needs one picture a column in every row; got {given} pictures for "
            f"{len(columns)} columns"
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
    top = max(label.height for label in labels) + 6
    # A row is as high as its pictures: among runs of different shape some are flat.
    tall = [
        max((_fitted(c, wide, high)[1] for c in row if not isinstance(c, str)), default=high)
        for row in cells
    ]
    down = [max(tall[n], head.height) + gap for n, head in enumerate(heads)]
    paper = Image.new(
        "RGB", (at + len(columns) * (wide + gap) - gap, top + sum(down) - gap), _WHITE
    )
    for index, label in enumerate(labels):  # all stand on the pictures
        label.draw(paper, at + index * (wide + gap), top - 6 - label.height, wide, _INK, True)
    for number, row in enumerate(cells):
        y = top + sum(down[:number])
        head, deep = heads[number], down[number] - gap
        head.draw(paper, 0, y + (deep - head.height) // 2, aside, _INK, False)
        for index, cell in enumerate(row):
            x = at + index * (wide + gap)
            if isinstance(cell, str):
                said = fit_text(cell, wide, size=size - 4)
                said.draw(paper, x, y + (deep - said.height) // 2, wide, _SOFT, True)
            else:
                _paste(paper, cell, (x, y, wide, deep), _fitted(cell, wide, high))
    return paper


def joined(parts: Sequence[Image.Image], *, across: bool) -> Image.Image:
    """Set bodies beside (or below) one another, on white, flush at the top (or the left)."""
    ends = [sum(p.size[0 if across else 1] + _MARGIN for p in parts[:n]) for n in range(len(parts))]
    places = [(end, 0) if across else (0, end) for end in ends]
    far = [(x + p.width, y + p.height) for p, (x, y) in zip(parts, places, strict=True)]
    paper = Image.new("RGB", (max(x for x, _ in far), max(y for _, y in far)), _WHITE)
    for part, place in zip(parts, places, strict=True):
        paper.paste(part, place)
    return paper


def png(image: Image.Image, text: PngInfo | None = None) -> bytes:
    """A picture as the bytes of a PNG file, with what else it tells as text."""
    file = io.BytesIO()
    # Pillow packs at 6 unless told otherwise: sheets take twice as long, and are no smaller.
    image.save(file, "PNG", compress_level=4, pnginfo=text)
    return file.getvalue()
