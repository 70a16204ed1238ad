"""Figures of matplotlib: panels with captions, tables of images, and the scale of their colours.

Lengths are in points; a figure has two pixels a point. matplotlib is imported when something is
drawn, since that takes a second.
"""

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from heedmap.errors import ArgumentError, signed
from heedmap.figures.overlays import centred, heat, overlay, png, to_rgb

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_WIDTH, MAX_HEIGHT = 1200, 850
"""Points of a figure, unless it has many columns or rows."""
_INK, _SOFT, _RULE = "#1d1d1f", "#636368", "#cdcdd1"  # captions, notes, outlines
_MARGIN, _GAP, _COLUMN = 16, 10, 56
_LINE = 1.3  # of a letter's size, from one line to the next
_LONGEST = 1000  # characters of a text
# For the scripts that the first, which matplotlib brings along, lacks.
_FONTS = (
    *("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji"),
    *("Malgun Gothic", "Yu Gothic", "Microsoft YaHei", "Nirmala UI", "Segoe UI Emoji"),
    *("Hiragino Sans", "Apple SD Gothic Neo", "PingFang SC", "Arial Unicode MS", "NanumGothic"),
)


@dataclass(frozen=True)
class Panel:
    """An image with its caption and, in smaller letters, a note."""

    caption: str
    picture: Image.Image
    note: str = ""


@dataclass(frozen=True)
class ScaleBar:
    """The name of a scale, and its values, or words for them, at the cold and the hot end.

    It has the colours of `heat` if `alone`, else those of an overlay on grey.
    """

    name: str
    low: float | str
    high: float | str
    alone: bool = False


def draw_panels(
    panels: Sequence[Panel],
    *,
    title: str = "",
    note: str = "",
    bars: Sequence[ScaleBar] = (),
    columns: int | None = None,
) -> "Figure":
    """Draw panels row by row, each on its own axes, with its caption below.

    All images have one size, in the shape of the first; images of another shape are fitted in.

    Args:
        panels: in reading order.
        title: above all, wrapped.
        note: below the title, smaller.
        bars: the scales of the colours, below all.
        columns: panels in a row; as many as bring the whole near 16:9 if None.
    """
    if not panels:
        raise ArgumentError("the figure has no panels: expected at least one")
    first = to_rgb(panels[0].picture)
    columns, wide, high = _plan(len(panels), first.width / first.height, columns)
    room = max(wide, _COLUMN)
    size = min(13, max(8, 0.075 * math.sqrt(wide * high)))
    texts = [(wrap(p.caption, room, size), wrap(p.note, room, 0.8 * size)) for p in panels]
    below = [_height(caption, size) + _height(said, 0.8 * size) for caption, said in texts]
    heights: list[float] = []
    for start in range(0, len(panels), columns):
        heights += [high, 4 + max(below[start : start + columns]) + _GAP]
    heights[-1] -= _GAP
    body = columns * (room + _GAP) - _GAP, sum(heights)
    figure, place = _framed(body, title, note, len(bars))
    grid = figure.add_gridspec(
        len(heights), columns, height_ratios=heights, hspace=0, wspace=_GAP / room, **place
    )
    for number, (panel, (caption, said)) in enumerate(zip(panels, texts, strict=True)):
        at = grid[2 * (number // columns), number % columns]
        ax = figure.add_subplot(at, xticks=[], yticks=[])
        ax.imshow(_fitted(panel.picture, (2 * wide, 2 * high)))
        ax.spines[:].set_visible(False)
        ax.set_xlabel(caption, labelpad=3, size=size, color=_INK)
        offset = 0, -4 - _height(caption, size)
        under = ax.annotate(said, (0.5, 0), offset, "axes fraction", "offset points")
        under.set(ha="center", va="top", size=0.8 * size, color=_SOFT)
    return _finished(figure, bars)


def draw_table(
    rows: Sequence[tuple[str, Sequence[Image.Image | str]]],
    columns: Sequence[str],
    *,
    title: str = "",
    note: str = "",
    bars: Sequence[ScaleBar] = (),
    side: float = 128,
) -> "Figure":
    """Draw images in rows and columns as one image, labels at the left and above.

    Args:
        rows: of each its label and an image for each column, or a text that says why there is none.
        columns: a label for each.
        title: as of `draw_panels`.
        note: as of `draw_panels`.
        bars: as of `draw_panels`.
        side: of an image, the geometric mean of its sides, where the columns have room.
    """
    first = next((to_rgb(c) for _, row in rows for c in row if not isinstance(c, str)), None)
    root = 1.0 if first is None else min(max(first.width / first.height, 1 / 4), 4) ** 0.5
    size, gap = (10, 6) if side >= _COLUMN else (7.5, 2)
    labels = [wrap(label, 100, size) for label, _ in rows]
    aside = 4 + math.ceil(max(map(text_width, labels)) * size)
    fit = (MAX_WIDTH - 2 * _MARGIN - aside + gap) / len(columns) - gap
    wide = round(max(min(side * root, fit), min(side, 48) * root))
    above = [wrap(label, wide, size) for label in columns]
    head = 4 + max(_height(label, size) for label in above)
    box = 2 * wide, max(4, round(2 * wide / root**2))
    cells = [[c if isinstance(c, str) else _fitted(c, box) for c in row] for _, row in rows]
    # Of runs of several shapes some have flat rows.
    heights = [max((c.height for c in row if not isinstance(c, str)), default=4) for row in cells]
    lefts = [number * (box[0] + 2 * gap) for number in range(len(columns))]
    tops = [sum(heights[:number]) + 2 * gap * number for number in range(len(rows))]
    whole = Image.new("RGB", (lefts[-1] + box[0], tops[-1] + heights[-1]), "white")
    figure, place = _framed(
        (aside + whole.width / 2, head + whole.height / 2), title, note, len(bars), (aside, head)
    )
    ax = figure.add_subplot(figure.add_gridspec(1, 1, **place)[0])
    for y, high, row in zip(tops, heights, cells, strict=True):
        for x, cell in zip(lefts, row, strict=True):
            if isinstance(cell, str):
                middle = x + box[0] / 2, y + high / 2
                said = wrap(cell, wide, 0.8 * size)
                ax.text(*middle, said, ha="center", va="center", size=0.8 * size, color=_SOFT)
            else:
                whole.paste(cell, (x + (box[0] - cell.width) // 2, y + (high - cell.height) // 2))
    ax.imshow(whole)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, pad=3, labelcolor=_INK, labelsize=size)
    ax.xaxis.tick_top()
    ax.set_xticks([x + box[0] / 2 for x in lefts], above)
    ax.set_yticks([y + high / 2 for y, high in zip(tops, heights, strict=True)], labels)
    return _finished(figure, bars)


def render(figure: "Figure") -> Image.Image:
    """Return a figure as an RGB image, at its own resolution."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def encode(figure: "Figure", kind: str = "png") -> bytes:
    """Return the bytes of a figure's PNG, SVG or PDF file."""
    if kind == "png":
        return png(render(figure))
    file = io.BytesIO()
    figure.savefig(file, format=kind)
    return file.getvalue()


def wrap(text: str, width: float, size: float) -> str:
    """Break text into lines of at most `width`, in letters of `size`; leave out control signs."""
    text = " ".join("".join(c for c in word if ord(c) >= 32) for word in text.split())
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    count = max(1, len(text))
    while lines := textwrap.wrap(text, count):
        longest = text_width("\n".join(lines)) * size
        if longest <= width or count == 1:
            break
        count = max(1, min(count - 1, int(count * width / longest)))
    return "\n".join(lines)


@lru_cache(maxsize=4096)
def text_width(lines: str) -> float:
    """Measure the longest line, in sizes of a letter; hinting may widen it by a thirtieth."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=_fonts(), size=100)
    measure = text_to_path.get_text_width_height_descent
    return max((measure(line, font, False)[0] for line in lines.splitlines()), default=0) / 97


def _plan(count: int, shape: float, columns: int | None) -> tuple[int, int, int]:
    """Choose the columns of a sheet, and the width and height of its images."""
    shape = min(max(shape, 1 / 16), 16)
    rows = max(1, round(math.sqrt(count * shape / 2.1)))
    most = (MAX_WIDTH - 2 * _MARGIN + _GAP) // (_COLUMN + _GAP)
    columns = min(columns or math.ceil(count / rows), count, most)
    across = (MAX_WIDTH - 2 * _MARGIN + _GAP) / columns - _GAP
    down = max(48, MAX_HEIGHT / math.ceil(count / columns) - 34)
    side = min(192, max(128, 560 / math.sqrt(count)))
    wide = min(side * math.sqrt(shape), across, down * shape)
    return columns, int(wide), max(1, round(wide / shape))


def _framed(
    body: tuple[float, float], title: str, note: str, bars: int, inset: tuple[float, float] = (0, 0)
) -> tuple["Figure", dict[str, float]]:
    """Make a figure with a title and a note, and room for a body of this width and height and bars.

    Returns:
        The figure, and the body's place in it, without an inset at the left and above.
    """
    from matplotlib.figure import Figure

    across = max(body[0], 240)
    size, small = min(15, max(12, across / 60)), _note_size(across)
    title, note = wrap(title, across, size), wrap(note, across, small)
    head = _MARGIN + _height(title, size)
    top = head + _height(note, small) + _GAP * bool(title or note)
    foot = _MARGIN + math.ceil(bars * 5 * small)
    width, height = across + 2 * _MARGIN, top + body[1] + foot
    figure = Figure((width / 72, height / 72), dpi=144, facecolor="white")
    corner = {"x": _MARGIN / width, "ha": "left", "va": "top"}
    figure.suptitle(title, y=1 - _MARGIN / height, size=size, color=_INK, **corner)
    figure.text(s=note, y=1 - head / height, size=small, color=_SOFT, **corner)
    left = (width - body[0]) / 2
    place = {"left": (left + inset[0]) / width, "right": (left + body[0]) / width}
    return figure, place | {"top": 1 - (top + inset[1]) / height, "bottom": foot / height}


def _finished(figure: "Figure", bars: Sequence[ScaleBar]) -> "Figure":
    """Draw scale bars at the foot of a figure, and set the fonts of all its texts."""
    from matplotlib.text import Text

    width, height = figure.get_size_inches() * 72
    across = width - 2 * _MARGIN
    small = _note_size(across)
    for number, bar in enumerate(reversed(bars)):
        bottom = _MARGIN + (5 * number + 1.3) * small
        box = _MARGIN / width, bottom / height, 110 / width, 0.8 * small / height
        name, ends, colours = _colours(bar)
        ax = figure.add_axes(box)
        ax.imshow(colours, extent=(0, 1, 0, 1), aspect="auto")
        ax.set(xticks=(0, 1), xticklabels=ends, yticks=())
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0, pad=2, labelcolor=_SOFT, labelsize=small)
        for label, side in zip(ax.get_xticklabels(), ("left", "right"), strict=True):
            label.set_horizontalalignment(side)
        ax.set_title(wrap(name, across, small), loc="left", pad=3, size=small, color=_SOFT)
    for text in figure.findobj(Text):
        text.set(family=_fonts(), parse_math=False, usetex=False)
    return figure


def _colours(bar: ScaleBar) -> tuple[str, tuple[str, str], Image.Image]:
    """Return the name of a scale, the texts at its ends, and its colours."""
    low, high = bar.low, bar.high
    if isinstance(low, str) or isinstance(high, str):
        negative, ends = f"{low}".startswith("−"), (f"{low}", f"{high}")
    else:
        negative = low < 0
        low, high = centred(low, high) if negative else (low, high)
        # A low that rounds to nothing beside high is 0.
        ends = "0" if abs(low) < high / 1000 else signed(low, ".3g"), signed(high, ".3g")
    name = f"{bar.name.removesuffix(' probability')} · signed weight" if negative else bar.name
    start, grey = -1 if negative else 0, Image.new("RGB", (256, 1), (176, 176, 176))
    ramp = np.linspace(start, 1, 256)[None]
    if bar.alone:
        return f"scale: {name}", ends, heat(ramp, grey.size, low=start, high=1)
    return f"scale: {name}", ends, overlay(grey, ramp, low=start, high=1)


def _fitted(picture: Image.Image, box: tuple[int, int]) -> Image.Image:
    """Resize an image until it fits into a box, and outline it."""
    fitted = ImageOps.contain(to_rgb(picture), box, Image.Resampling.LANCZOS)
    ImageDraw.Draw(fitted).rectangle((0, 0, fitted.width - 1, fitted.height - 1), outline=_RULE)
    return fitted


def _note_size(across: float) -> float:
    return min(11, max(8, across / 75))


def _height(lines: str, size: float) -> int:
    return math.ceil(len(lines.splitlines()) * size * _LINE)


@cache
def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = {*fontManager.get_font_names()}
    return [name for name in _FONTS if name in installed]
