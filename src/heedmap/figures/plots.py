"""Figures of matplotlib: panels with captions, tables of images, and the scale of their colours.

Lengths are in points; a figure has two pixels a point. matplotlib is imported when something is
drawn, since that takes a second.
"""

import io
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from heedmap.errors import ArgumentError, format_number
from heedmap.figures.overlays import COLORMAP, HUES, heat, overlay, to_rgb
from heedmap.io.writing import png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_WIDTH = 1200
MAX_HEIGHT = 850
"""Points of a figure, unless it has many columns or rows."""
# captions, notes, outlines
_SOFT = "#636368"
_RULE = "#cdcdd1"
_BOX = "#ff375f"  # outlines of regions
# sizes of letters
_TITLE = 14
_CAPTION = 11
_NOTE = 9
_MARGIN = 16
_GAP = 10
_CELL_GAP = 6
_COLUMN = 56
_BAR = 44
# The first comes with matplotlib; the others have the scripts that it lacks.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Noto Emoji",
    "Malgun Gothic",
    "Yu Gothic",
    "Microsoft YaHei",
    "Nirmala UI",
    "Segoe UI Emoji",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "PingFang SC",
    "Arial Unicode MS",
    "NanumGothic",
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
    ends: tuple[float, float] | tuple[str, str]
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

    All images have one size, in the shape of the first; images of another shape are fitted in. The
    title stands above all, the note below it, the scales of the colours below all. As many columns
    as bring the whole near 16:9, if None.
    """
    if not panels:
        raise ArgumentError(
            "there is nothing to draw: pass maps, as in [maps.token(0)]"
        )
    shape = panels[0].picture.width / panels[0].picture.height
    columns, wide, high = _plan(len(panels), shape, columns)
    across = max(wide, _COLUMN)
    captions = [wrap(panel.caption, across, _CAPTION) for panel in panels]
    notes = [wrap(panel.note, across, _NOTE) for panel in panels]
    caption_height = max(_height(caption, _CAPTION) for caption in captions)
    note_height = max(_height(note, _NOTE) for note in notes)
    right = across + _GAP
    down = high + 4 + caption_height + note_height + _GAP
    rows = math.ceil(len(panels) / columns)
    body = columns * right - _GAP, rows * down - _GAP
    figure, left, top = _figure(body, title, note, len(bars))
    left += (across - wide) / 2
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        corner = left + column * right, top + row * down
        ax = _axes(figure, corner, (wide, high))
        ax.set(xticks=[], yticks=[])
        ax.imshow(_fitted(panel.picture, (2 * wide, 2 * high)))
        ax.set_xlabel(
            captions[number],
            labelpad=3,
            size=_CAPTION,
        )
        ax.annotate(
            notes[number],
            (0.5, 0),
            (0, -4 - _height(captions[number], _CAPTION)),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="center",
            va="top",
            size=_NOTE,
            color=_SOFT,
        )
    return with_bars(figure, bars)


def outline(figure: "Figure", label: str, mask: np.ndarray) -> None:
    """Outline a mask (H, W), up to 1, on a figure's first panel, an image of that size.

    The label stands above the mask; below a mask that begins near the top of the image.
    """
    axes = figure.axes[0]
    axes.autoscale(False)
    scale = axes.images[0].get_size()[1] / mask.shape[1]
    # A margin of a pixel closes outlines at the edges of the image.
    start = -(scale + 1) / 2
    bottom, right = (scale * (side + 0.5) - 0.5 for side in mask.shape)
    axes.contour(
        np.pad(mask, 1).astype(float),
        levels=[mask.max() / 2],
        extent=(start, right, start, bottom),
        colors=_BOX,
        linewidths=1.5,
    )
    rows, columns = np.nonzero(mask)
    is_at_top = rows.min() < mask.shape[0] / 8
    is_at_right = columns.min() > mask.shape[1] * 3 / 4
    text = axes.text(
        scale * (columns.max() + 1 if is_at_right else columns.min()),
        scale * (rows.max() + 1 if is_at_top else rows.min()),
        label,
        va="top" if is_at_top else "bottom",
        ha="right" if is_at_right else "left",
        size=_NOTE,
        color="white",
        bbox={"fc": _BOX, "lw": 0, "pad": 1},
    )
    text.set(family=_fonts(), parse_math=False)


def draw_matrix(
    values: np.ndarray,
    labels: Sequence[str],
    *,
    title: str,
    scale: str,
) -> "Figure":
    """Draw a matrix (N, N) of values from 0 on, with N labels at its rows and above its columns."""
    from matplotlib.figure import Figure

    texts = [textwrap.shorten(label, 14, placeholder="…") for label in labels]
    side = min(20 * len(labels), MAX_HEIGHT) + 160
    figure = Figure((side / 72, side / 72), dpi=144, layout="constrained")
    figure.suptitle(wrap(title, side - _MARGIN, _TITLE), size=_TITLE)
    ax = figure.subplots()
    cells = ax.matshow(values, cmap=COLORMAP, vmin=0)
    ax.set_xticks(range(len(texts)), texts, rotation=90)
    ax.set_yticks(range(len(texts)), texts)
    figure.colorbar(cells, label=scale, location="bottom", shrink=0.5)
    return with_bars(figure, ())


def draw_table(
    rows: Sequence[tuple[str, Sequence[Image.Image]]],
    columns: Sequence[str],
    *,
    title: str = "",
    note: str = "",
    bars: Sequence[ScaleBar] = (),
    side: float = 128,
) -> "Figure":
    """Draw images in rows and columns as one image, labels at the left and above.

    A short row ends in blank places. `side` is the geometric mean of an image's sides, where the
    columns have room; the other arguments are those of `draw_panels`.
    """
    _, (first, *_) = rows[0]
    root = (first.width / first.height) ** 0.5
    labels = [wrap(label, 100, _NOTE) for label, _ in rows]
    margin = 4 + math.ceil(max(map(text_width, labels)) * _NOTE)
    fit = (MAX_WIDTH - 2 * _MARGIN - margin) / len(columns) - _CELL_GAP
    wide = round(max(min(side * root, fit), min(side, 48) * root))
    high = max(1, round(wide / root**2))
    above = [wrap(label, wide, _NOTE) for label in columns]
    head = 4 + max(_height(label, _NOTE) for label in above)
    # pixels
    across = 2 * (wide + _CELL_GAP)
    down = 2 * (high + _CELL_GAP)
    whole = Image.new("RGB", (len(columns) * across, len(rows) * down), "white")
    inner = whole.width / 2, whole.height / 2
    body = margin + inner[0], head + inner[1]
    figure, left, top = _figure(body, title, note, len(bars))
    ax = _axes(figure, (left + margin, top + head), inner)
    for number, (_, row) in enumerate(rows):
        y = number * down + high
        for column, cell in enumerate(row):
            x = column * across + wide
            small = _fitted(cell, (2 * wide, 2 * high))
            whole.paste(small, (x - small.width // 2, y - small.height // 2))
    ax.imshow(whole)
    ax.xaxis.tick_top()
    ax.set_xticks([x * across + wide for x in range(len(columns))], above)
    ax.set_yticks([y * down + high for y in range(len(rows))], labels)
    return with_bars(figure, bars)


def draw_shares(
    labels: Sequence[str],
    shares: Mapping[str, Sequence[float]],
    *,
    title: str,
    note: str,
) -> "Figure":
    """Draw a bar for each label, divided into shares by their names."""
    from matplotlib.figure import Figure

    width = 560
    height = 14 * len(labels) + 110
    figure = Figure((width / 72, height / 72), dpi=144, layout="constrained")
    figure.suptitle(wrap(title, width - _MARGIN, _TITLE), size=_TITLE)
    ax = figure.subplots()
    ax.set_title(note, size=_NOTE, color=_SOFT)
    ax.tick_params(length=0, labelsize=_NOTE)
    ax.set_prop_cycle(color=HUES)
    start = np.zeros(len(labels))
    for name, values in shares.items():
        ax.barh(range(len(labels)), values, left=start, label=name)
        start += values
    ax.set_yticks(range(len(labels)), labels)
    ax.set(xlim=(0, 1), ylim=(len(labels) - 0.5, -0.5))
    figure.legend(loc="outside lower center", ncols=len(shares))
    return with_bars(figure, ())


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
    """Break the first 1000 letters of a text, of a `size`, into lines of at most `width`."""
    text = re.sub(r"[\x00-\x1f]", " ", text[:1000])
    count = max(1, len(text))
    while lines := textwrap.wrap(text, count):
        longest = text_width("\n".join(lines)) * size
        if longest <= width or count == 1:
            break
        count = max(1, min(count - 1, int(count * width / longest)))
    return "\n".join(lines)


def text_width(lines: str) -> float:
    """Measure the longest line, in sizes of a letter; hinting may widen it by a thirtieth."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=_fonts(), size=100)
    measure = text_to_path.get_text_width_height_descent
    widths = [measure(line, font, False)[0] for line in lines.splitlines()]
    return max(widths, default=0) / 97


def _plan(count: int, shape: float, columns: int | None) -> tuple[int, int, int]:
    """Return the number of columns of panels, and the width and height of an image."""
    space = MAX_WIDTH - 2 * _MARGIN + _GAP
    rows = max(1, round(math.sqrt(count * shape / 2.1)))
    most = int(space // (_COLUMN + _GAP))
    columns = min(columns or math.ceil(count / rows), count, most)
    side = min(192, max(128, 560 / math.sqrt(count)))
    wide = min(side * math.sqrt(shape), space / columns - _GAP)
    return columns, int(wide), max(1, round(wide / shape))


def _figure(
    body: tuple[float, float],
    title: str,
    note: str,
    bars: int,
) -> tuple["Figure", float, float]:
    """Make a figure with a title, a note, and space for a body of this width and height and bars.

    Return the figure, and the distances of the body from its left and its top.
    """
    from matplotlib.figure import Figure

    width = max(body[0], 240) + 2 * _MARGIN
    across = width - 2 * _MARGIN
    title = wrap(title, across, _TITLE)
    note = wrap(note, across, _NOTE)
    head = _MARGIN + _height(title, _TITLE)
    top = head + _height(note, _NOTE) + _GAP * bool(title or note)
    foot = _MARGIN + bars * _BAR
    height = top + body[1] + foot
    figure = Figure((width / 72, height / 72), dpi=144, facecolor="white")
    corner = {"x": _MARGIN / width, "ha": "left", "va": "top"}
    figure.suptitle(
        title,
        y=1 - _MARGIN / height,
        size=_TITLE,
        **corner,
    )
    figure.text(
        s=note,
        y=1 - head / height,
        size=_NOTE,
        color=_SOFT,
        **corner,
    )
    return figure, (width - body[0]) / 2, top


def _axes(
    figure: "Figure",
    corner: tuple[float, float],
    size: tuple[float, float],
) -> "Axes":
    """Make axes without a frame; their corner is measured from the left and the top."""
    width, height = figure.get_size_inches() * 72
    left = corner[0] / width
    bottom = 1 - (corner[1] + size[1]) / height
    ax = figure.add_axes((left, bottom, size[0] / width, size[1] / height))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=_NOTE)
    return ax


def with_bars(figure: "Figure", bars: Sequence[ScaleBar]) -> "Figure":
    """Draw scales below a figure, and set the fonts of all of its texts; return the figure."""
    from matplotlib.text import Text

    width, height = figure.get_size_inches() * 72
    for number, bar in enumerate(reversed(bars)):
        ends = [_end(value) for value in bar.ends]
        name = f"scale: {bar.name}"
        low = 0
        if ends[0].startswith("−"):
            low = -1
            name = f"{name.removesuffix(' probability')} · signed weight"
        ramp = np.linspace(low, 1, 256)[None]
        if bar.alone:
            colours = heat(
                ramp,
                (256, 1),
                low=low,
                high=1,
            )
        else:
            grey = Image.new("RGB", (256, 1), (176, 176, 176))
            colours = overlay(
                grey,
                ramp,
                low=low,
                high=1,
            )
        bottom = height - _MARGIN - number * _BAR - 12
        ax = _axes(figure, (_MARGIN, bottom - 7), (110, 7))
        ax.imshow(colours, extent=(0, 1, 0, 1), aspect="auto")
        ax.set(xticks=(0, 1), xticklabels=ends, yticks=())
        for label, side in zip(ax.get_xticklabels(), ("left", "right"), strict=True):
            label.set_horizontalalignment(side)
        name = wrap(name, width - 2 * _MARGIN, _NOTE)
        ax.set_title(
            name,
            loc="left",
            pad=5,
            size=_NOTE,
            color=_SOFT,
        )
    for text in figure.findobj(Text):
        text.set(family=_fonts(), parse_math=False, usetex=False)
    return figure


def _end(value: float | str) -> str:
    return value if isinstance(value, str) else format_number(value, ".3g")


def _fitted(picture: Image.Image, box: tuple[int, int]) -> Image.Image:
    fitted = ImageOps.contain(to_rgb(picture), box, Image.Resampling.LANCZOS)
    edge = 0, 0, fitted.width - 1, fitted.height - 1
    ImageDraw.Draw(fitted).rectangle(edge, outline=_RULE)
    return fitted


def _height(lines: str, size: float) -> int:
    return math.ceil(len(lines.splitlines()) * size * 1.3)


@cache
def _fonts() -> list[str]:
    from matplotlib.font_manager import get_font_names

    installed = get_font_names()
    return [name for name in _FONTS if name in installed]
