"""Arrays to pictures: heat laid over a picture, and sheets of many captioned panels.

Pure functions of arrays, text and Pillow images: no file is written, no global state touched
(matplotlib lends its colour maps and fonts; pyplot is never imported), and the same arguments give
the same pixels. `h`, `w` are the rows and columns of a map, `H`, `W` those of a picture. Whatever
cannot be drawn raises `ArgumentError`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw

from heedmap.errors import ArgumentError
from heedmap.lettering import fit_text

__all__ = [
    "COLORMAPS",
    "Panel",
    "colour",
    "contact_sheet",
    "enlarge",
    "grid",
    "overlay",
    "resize_map",
    "sheet",
]

COLORMAPS = ("inferno", "magma", "plasma", "viridis", "cividis")  # perceptually even, dark is less
COLORMAP, OPACITY = "inferno", 0.85
MAX_WIDTH = 2400  # px: no sheet is wider

# How bright and how grey the picture is under the heat at full opacity. Chosen by eye on bright,
# dark and white pictures: cold places stay clear, hot ones glow on all of them.
LIGHT, GREY = 0.6, 0.4
_SIDES = (384, 320, *range(256, 15, -8))  # px: what a panel may measure, best first
_COLUMN = 112  # px: the narrowest column: a caption needs room beside a slim picture
_GAP, _MARGIN = 20, 32  # px
_WHITE, _INK, _SOFT, _RULE = (255, 255, 255), (29, 29, 31), (99, 99, 104), (205, 205, 209)


# --- maps and pictures ------------------------------------------------------------------------


def enlarge(image: Image.Image, *, factor: int | None = None, short_side: int = 256) -> Image.Image:
    """Enlarge a small picture by a whole number, so that it can be looked at (RGB, Lanczos).

    Without a `factor` (at least 1) it is the smallest that brings the short side to `short_side`
    pixels; a picture that has them keeps its size.
    """
    picture, enough = _rgb(image), _whole("short_side", short_side)
    times = math.ceil(enough / min(picture.size)) if factor is None else _whole("factor", factor)
    size = picture.width * times, picture.height * times
    return picture.resize(size, Image.Resampling.LANCZOS)


def resize_map(values: ArrayLike, size: tuple[int, int]) -> NDArray[np.float32]:
    """Resize a finite map bilinearly: (h, w) -> (H, W) float32, for `size` = (W, H).

    Cell centres lie at half pixels and the border is held. Nothing rings below the least or above
    the greatest value; a constant stays the same to the bit. A map that shrinks is averaged over
    what each pixel covers.
    """
    cells = _map(values)
    if len(size) != 2:
        raise ArgumentError(f"size must be (width, height); got {size!r}")
    box = _whole("the width", size[0]), _whole("the height", size[1])
    resized = Image.fromarray(cells).resize(box, Image.Resampling.BILINEAR)
    return np.clip(np.asarray(resized, dtype=np.float32), cells.min(), cells.max())


def colour(values: ArrayLike, colormap: str = COLORMAP) -> NDArray[np.uint8]:
    """Give each value its colour: (h, w) in [0, 1] -> (h, w, 3) uint8, by one of `COLORMAPS`."""
    heat = _map(values)
    if heat.min() < 0 or heat.max() > 1:
        span = f"{heat.min():.4g} to {heat.max():.4g}"
        raise ArgumentError(f"values to colour must lie in [0, 1]; got {span}: scale them first")
    return _table(colormap)[np.rint(heat * 255).astype(np.uint8)]


def overlay(
    image: Image.Image,
    values: ArrayLike,
    *,
    low: float,
    high: float,
    opacity: float = OPACITY,
    colormap: str = COLORMAP,
) -> Image.Image:
    """Lay the heat of a map over a picture.

    Values from `low` to `high` become heat from 0 to 1; what lies outside is clipped. The picture
    is dimmed and greyed a little, everywhere alike, so that heat reads on bright and on dark; then
    colour covers it as heat goes, from nothing at 0 to `opacity` at 1. With `low == high` (a
    constant map on its own scale) there is no contrast to show, and all is cold.

    Args:
        image: a picture of any mode, of size (W, H).
        values: (h, w), finite; resized to the picture by `resize_map`.
        low: the value that is cold; the caller decides if the scale is a word's own or shared.
        high: the value that is hot, not below `low`.
        opacity: in [0, 1]; 0 gives the picture itself.
        colormap: one of `COLORMAPS`.

    Returns:
        An RGB picture of size (W, H).
    """
    picture = np.asarray(_rgb(image), dtype=np.float32)  # (H, W, 3)
    low, high, opacity = _real("low", low), _real("high", high), _real("opacity", opacity)
    if low > high:
        raise ArgumentError(f"low must not be above high; got low={low:g}, high={high:g}")
    if not 0 <= opacity <= 1:
        raise ArgumentError(f"opacity must lie in [0, 1]; got {opacity:g}")
    spread = resize_map(values, image.size).astype(np.float64)  # (H, W)
    heat = np.clip((spread - low) / (high - low), 0, 1) if high > low else spread * 0
    grey = picture @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    quiet = (picture + (grey[..., None] - picture) * GREY) * LIGHT
    base = picture + (quiet - picture) * min(1.0, opacity / OPACITY)
    mixed = base + (colour(heat, colormap) - base) * (opacity * heat)[..., None]
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def _rgb(image: Image.Image) -> Image.Image:
    """A picture of any mode as RGB; what is transparent shows white."""
    if not isinstance(image, Image.Image):
        raise ArgumentError(f"a picture must be a Pillow image; got {type(image).__name__}")
    if min(image.size) < 1 or image.mode[0] in "IF":
        given = f"mode {image.mode!r}, {image.width}×{image.height}"
        raise ArgumentError(f"a picture must have pixels and 8-bit colours; got {given}")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")


def _map(values: ArrayLike) -> NDArray[np.float32]:
    """Checked values as (h, w) float32."""
    try:
        given = np.asarray(values)
    except ValueError:
        raise ArgumentError("a map must be an array (h, w); got rows of unequal length") from None
    if given.ndim != 2 or given.size == 0 or given.dtype.kind not in "buif":
        what = f"shape {given.shape} of {given.dtype}"
        raise ArgumentError(f"a map must be an array (h, w) of real numbers; got {what}")
    with np.errstate(over="ignore"):
        cells = np.ascontiguousarray(given, dtype=np.float32)
    if wrong := int(np.count_nonzero(~np.isfinite(cells))):
        raise ArgumentError(f"a map must be finite; {wrong} of {cells.size} values are NaN or Inf")
    return cells


def _real(name: str, value: float, whole: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or (whole and (number < 1 or number % 1)):
        kind = "a whole number of at least 1" if whole else "a finite number"
        raise ArgumentError(f"{name} must be {kind}; got {value!r}")
    return number


def _whole(name: str, value: int) -> int:
    return int(_real(name, value, whole=True))


@cache
def _table(colormap: str) -> NDArray[np.uint8]:
    """The 256 colours of a colour map, (256, 3)."""
    if colormap not in COLORMAPS:
        raise ArgumentError(f"colormap must be one of {', '.join(COLORMAPS)}; got {colormap!r}")
    from matplotlib import colormaps

    return colormaps[colormap](np.arange(256), bytes=True)[:, :3]


# --- sheets -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """A picture with its caption and, smaller, a note: text of any length and script."""

    caption: str
    picture: Image.Image
    note: str = ""


def grid(panels: Sequence[Panel], *, columns: int | None = None) -> Image.Image:
    """Set panels in rows, in reading order, captions beneath: an RGB picture without margins.

    All get one size, in the shape of the first picture: as large as their number and the width of
    a sheet allow. Pictures of another shape are fitted in, never distorted. Without `columns`, the
    grid comes near 16:9.
    """
    if not panels:
        raise ArgumentError("a grid needs at least one panel; got none")
    pictures = [_rgb(panel.picture) for panel in panels]
    columns, wide, high = _plan(len(panels), pictures[0].width / pictures[0].height, columns)
    room, size = max(wide, _COLUMN), min(26, max(16, round(math.sqrt(wide * high) * 0.075)))
    captions = [fit_text(panel.caption, room, size=size) for panel in panels]
    notes = [fit_text(panel.note, room, size=max(11, round(size * 0.8))) for panel in panels]
    texts = [caption.height + note.height for caption, note in zip(captions, notes, strict=True)]
    rows = [high + 6 + max(texts[i : i + columns]) + _GAP for i in range(0, len(panels), columns)]
    paper = Image.new("RGB", (columns * (room + _GAP) - _GAP, sum(rows) - _GAP), _WHITE)
    for index, picture in enumerate(pictures):
        x, y = index % columns * (room + _GAP), sum(rows[: index // columns])
        fit = min(wide / picture.width, high / picture.height)
        box = max(1, round(picture.width * fit)), max(1, round(picture.height * fit))
        picture = picture.resize(box, Image.Resampling.LANCZOS)
        ImageDraw.Draw(picture).rectangle((0, 0, box[0] - 1, box[1] - 1), outline=_RULE)
        paper.paste(picture, (x + (room - box[0]) // 2, y + (high - box[1]) // 2))
        y += high + 6
        captions[index].draw(paper, x, y, room, _INK, True)
        notes[index].draw(paper, x, y + captions[index].height, room, _SOFT, True)
    return paper


def _plan(count: int, shape: float, columns: int | None) -> tuple[int, int, int]:
    """How many columns of panels how wide and high: the largest that make a sensible sheet."""
    limit = MAX_WIDTH - 2 * _MARGIN + _GAP
    most = limit // (_COLUMN + _GAP)
    if columns is not None and _whole("columns", columns) > most:
        raise ArgumentError(f"columns must be at most {most}, for captions to fit; got {columns}")
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
    image: Image.Image,
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
        image: the picture, first of the grid.
        panels: as a rule one a word, each an `overlay`.
        title: the prompt; wrapped, never cut.
        scale: the name of the scale, such as "shared by the words".
        low: the number at the cold end of the bar, or words for it.
        high: the same at the hot end.
        opacity: that of the panels: the bar is an overlay on grey, so that it shows their colours.
        colormap: that of the panels.
        columns: as in `grid`.
        caption: of the picture.
        note: below it, smaller.

    Returns:
        An RGB picture, at most `MAX_WIDTH` wide.
    """
    first = Panel(caption, image, note)
    cells = grid([first, *panels], columns=columns)
    width = max(cells.width, 480)
    head = fit_text(title, width, size=min(30, max(24, width // 60)), least=15, lines=3)
    size = min(22, max(16, width // 75))
    ends = [e if isinstance(e, str) else f"{_real('low and high', e):.3g}" for e in (low, high)]
    cold, hot = (fit_text(end, width // 4, size=size, lines=1) for end in ends)
    grey, ramp = Image.new("RGB", (width // 5, size), (176, 176, 176)), np.linspace(0, 1, 256)[None]
    bar = overlay(grey, ramp, low=0, high=1, opacity=opacity, colormap=colormap)
    at_bar = _MARGIN + cold.width + size // 2
    at_hot = at_bar + bar.width + size // 2
    at_name = at_hot + hot.width + 2 * size
    name = fit_text(f"scale: {scale}", _MARGIN + width - at_name, size=size)
    top = _MARGIN + head.height + (size if head.lines else 0)
    foot = top + cells.height + 3 * size // 2
    height = foot + max(cold.height, hot.height, name.height) + _MARGIN
    paper = Image.new("RGB", (width + 2 * _MARGIN, height), _WHITE)
    head.draw(paper, _MARGIN, _MARGIN, width, _INK, False)
    paper.paste(cells, ((paper.width - cells.width) // 2, top))
    paper.paste(bar, (at_bar, foot + size // 6))
    for text, x in ((cold, _MARGIN), (hot, at_hot), (name, at_name)):
        text.draw(paper, x, foot, text.width, _SOFT, False)
    return paper


def contact_sheet(
    rows: Sequence[tuple[str, Sequence[Image.Image]]],
    columns: Sequence[str],
    *,
    title: str,
    note: str = "",
    side: int = 256,
    least: int = 96,
) -> Image.Image:
    """Draw pictures in a table whose rows and columns are labelled.

    All get one size, in the shape of the first: `side` pixels (the geometric mean of its sides)
    where a sheet of `MAX_WIDTH` holds the columns, else as many as it does, yet `least` at least:
    then the sheet is wider.

    Args:
        rows: the label of each and its pictures, one a column; empty labels take no room.
        columns: a label for each.
        title: above it all; wrapped, never cut.
        note: below the title, smaller.
        side: how large pictures are if there is room; small ones are enlarged to it.
        least: how large they are at least.
    """
    if not rows or not columns or any(len(row) != len(columns) for _, row in rows):
        given = ", ".join(str(len(row)) for _, row in rows) or "no"
        raise ArgumentError(
            f"a contact sheet needs one picture a column in every row; got {given} pictures for "
            f"{len(columns)} columns"
        )
    cells = [[_rgb(picture) for picture in row] for _, row in rows]
    shape = cells[0][0].width / cells[0][0].height
    root = min(max(shape, 1 / 4), 4) ** 0.5
    size = 20  # px of labels
    heads = [fit_text(label, 200, size=size, lines=3) for label, _ in rows]
    aside = max(head.width for head in heads)
    at = _MARGIN + aside + (12 if aside else 0)
    gap = 12
    room = (MAX_WIDTH - at - _MARGIN + gap) / len(columns) - gap
    wide = max(int(min(side * root, room)), round(least * root))
    high = max(1, round(wide / root**2))
    labels = [fit_text(label, wide, size=size) for label in columns]
    width = max(at - _MARGIN + len(columns) * (wide + gap) - gap, 480)
    name = fit_text(title, width, size=min(30, max(22, width // 60)), least=15, lines=3)
    about = fit_text(note, width, size=size - 2, least=12, lines=3)
    above = _MARGIN + name.height + about.height + gap
    top = above + max(label.height for label in labels) + 6
    down = [max(high, head.height) + gap for head in heads]
    paper = Image.new("RGB", (width + 2 * _MARGIN, top + sum(down) - gap + _MARGIN), _WHITE)
    name.draw(paper, _MARGIN, _MARGIN, width, _INK, False)
    about.draw(paper, _MARGIN, _MARGIN + name.height, width, _SOFT, False)
    for index, label in enumerate(labels):  # all stand on the pictures
        label.draw(paper, at + index * (wide + gap), top - 6 - label.height, wide, _INK, True)
    for number, row in enumerate(cells):
        y = top + sum(down[:number])
        heads[number].draw(
            paper, _MARGIN, y + (high - heads[number].height) // 2, aside, _INK, False
        )
        for index, picture in enumerate(row):
            fit = min(wide / picture.width, high / picture.height)
            box = max(1, round(picture.width * fit)), max(1, round(picture.height * fit))
            x = at + index * (wide + gap) + (wide - box[0]) // 2
            picture = picture.resize(box, Image.Resampling.LANCZOS)
            ImageDraw.Draw(picture).rectangle((0, 0, box[0] - 1, box[1] - 1), outline=_RULE)
            paper.paste(picture, (x, y + (high - box[1]) // 2))
    return paper
