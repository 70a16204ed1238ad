"""Arrays to pixels: maps resized and coloured, heat laid over a picture.

Pure functions of arrays and Pillow images: no file is written, no global state touched (matplotlib
lends its colour maps; pyplot is never imported), and the same arguments give the same pixels. `h`,
`w` are the rows and columns of a map, `H`, `W` those of a picture. Whatever cannot be drawn raises
`ArgumentError`.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from heedmap.checks import alike, finite, in_order, whole
from heedmap.errors import ArgumentError, quoted
from heedmap.io.reading import MAX_SIDE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

COLORMAPS = ("inferno", "magma", "plasma", "viridis", "cividis")  # perceptually even, dark is less
COLORMAP, OPACITY = "inferno", 0.85
SIGNED = "managua_r"  # of scales with values below 0: blue below, dark at 0, orange above

# How bright and how grey the picture is under the heat. Chosen by eye on bright,
# dark and white pictures: cold places stay clear, hot ones glow on all of them.
LIGHT, GREY = 0.6, 0.4
OPACITY_PAINTED = 0.6  # what is painted evenly shall show through
GREY_SEVERAL = 0.9  # hues are told apart more easily where the picture has hardly any
# Okabe and Ito's colours, which are told apart with any kind of colour vision.
HUES = ("#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#0072b2")


def enlarge(image: Image.Image, *, short_side: int = 256) -> Image.Image:
    """Enlarge a small picture by a whole number, so that it can be looked at (RGB, Lanczos).

    It is the smallest that brings the short side to `short_side` pixels; a picture that has them
    keeps its size.
    """
    picture, enough = to_rgb(image), whole("short_side", short_side, least=1, most=MAX_SIDE)
    times = math.ceil(enough / min(picture.size))
    size = picture.width * times, picture.height * times
    return picture.resize(size, Image.Resampling.LANCZOS)


def shrunk(image: Image.Image, side: int) -> Image.Image:
    """A picture of at most so many pixels on a side; one that has no more as it is."""
    if max(image.size) <= side:
        return image
    width, height = (max(1, round(n * side / max(image.size))) for n in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3)


def resize_map(values: ArrayLike, size: tuple[int, int]) -> NDArray[np.float32]:
    """Resize a finite map bilinearly: (h, w) -> (H, W) float32, for `size` = (W, H).

    Cell centres lie at half pixels and the border is held. Nothing rings below the least or above
    the greatest value; a constant stays the same to the bit. A map that shrinks is averaged over
    what each pixel covers.
    """
    cells = _map(values)
    resized = Image.fromarray(cells).resize(_box(size), Image.Resampling.BILINEAR)
    return np.clip(np.asarray(resized, dtype=np.float32), cells.min(), cells.max())


def colour(values: ArrayLike, colormap: str = COLORMAP) -> NDArray[np.uint8]:
    """Give each value its colour: (h, w) in [0, 1] -> (h, w, 3) uint8, by one of `COLORMAPS`."""
    shares = _map(values)
    if shares.min() < 0 or shares.max() > 1:
        span = f"{shares.min():.4g} to {shares.max():.4g}"
        raise ArgumentError(f"the values to colour are {span}: expected 0 to 1; scale them first")
    return _table(colormap)[np.rint(shares * 255).astype(np.uint8)]


def overlay(image: Image.Image, values: ArrayLike, *, low: float, high: float) -> Image.Image:
    """Lay the heat of a map over a picture.

    Values from `low` to `high` become heat from 0 to 1; what lies outside is clipped. The picture
    is dimmed and greyed a little, everywhere alike, so that heat reads on bright and on dark; then
    colour covers it as heat goes, from nothing at 0 to `OPACITY` at 1. A scale that begins below 0
    is centred on 0, where nothing is covered, and has the colours of `SIGNED`. Where `low` and
    `high` are the same, but for rounding (of constant maps), there is no contrast to show, and all
    is cold.

    Args:
        image: a picture of any mode, of size (W, H).
        values: (h, w), finite; resized to the picture by `resize_map`.
        low: the value that is cold; the caller decides if the scale is a word's own or shared.
        high: the value that is hot, not below `low`.

    Returns:
        An RGB picture of size (W, H).
    """
    base = _dimmed(image, GREY)
    place, hot = _scaled(values, image.size, low, high)
    mixed = base + (colour(place, _colormap(low)) - base) * (OPACITY * hot)[..., None]
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def overlay_several(
    image: Image.Image, maps: Sequence[ArrayLike], spans: Sequence[tuple[float, float]]
) -> Image.Image:
    """Lay several maps over an almost grey picture, each in one of `HUES`, in their order.

    Where several act, their hues are averaged by how much each acts, and the picture shines through
    as if the heats lay one over the other: their order does not matter.

    Args:
        image: a picture of any mode, of size (W, H).
        maps: each (h, w), finite.
        spans: of each map, the value that is cold and the value that is hot.

    Returns:
        An RGB picture of size (W, H).
    """
    if len(maps) != len(spans) or not 1 <= len(maps) <= len(HUES):
        given = f"{len(maps)} maps, {len(spans)} spans, {len(HUES)} hues"
        raise ArgumentError(f"{given} were given: expected a span and a hue for each map")
    base = _dimmed(image, GREY_SEVERAL)
    hot = [_scaled(one, image.size, *span)[1] for one, span in zip(maps, spans, strict=True)]
    cover = OPACITY * np.stack(hot, axis=-1)  # (H, W, N)
    clear = np.prod(1 - cover, axis=-1, keepdims=True)
    total = cover.sum(axis=-1, keepdims=True)
    colours = hue_colours()[: len(maps)].astype(int)
    mixed = base * clear + cover @ colours / np.where(total > 0, total, 1) * (1 - clear)
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def labelled(image: Image.Image, labels: NDArray[np.uint8]) -> Image.Image:
    """Paint the parts of an almost grey picture: label n in the n-th of `HUES`, 0 not at all.

    After the last hue they begin again.

    Args:
        image: a picture of any mode, of size (W, H).
        labels: (H, W).

    Returns:
        An RGB picture of size (W, H).
    """
    base = _dimmed(image, GREY_SEVERAL)
    colours = np.resize(hue_colours(), (255, 3))[labels.astype(int) - 1]
    mixed = np.where(labels[..., None] > 0, base + (colours - base) * OPACITY_PAINTED, base)
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def hue_colours() -> NDArray[np.uint8]:
    """`HUES` as numbers: uint8 (N, 3)."""
    return np.array([[int(hue[at : at + 2], 16) for at in (1, 3, 5)] for hue in HUES], np.uint8)


def plot(
    ax: "Axes",
    image: Image.Image | None,
    values: ArrayLike,
    size: tuple[int, int],
    *,
    low: float,
    high: float,
) -> "AxesImage":
    """Draw on axes what `overlay` draws, or `heat` where there is no picture, in pixels of it.

    Args:
        ax: axes of any figure; their ticks are hidden.
        image: the picture, of any mode.
        values: (h, w), finite.
        size: (W, H), the picture's.
        low: the value that is cold.
        high: the value that is hot.

    Returns:
        The heat, whose colours go from `low` to `high`: of it `figure.colorbar` makes a bar.
    """
    if not hasattr(ax, "imshow"):
        raise ArgumentError(
            f"ax is {quoted(ax)}: expected axes of matplotlib, as in Figure().add_subplot()"
        )
    place, hot = _scaled(values, size, low, high)
    low, high = centred(low, high) if low < 0 else (low, high)
    cover = None
    if image is not None:
        cover = OPACITY * hot
        ax.imshow(
            np.rint(_dimmed(image, GREY)).astype(np.uint8), origin="upper", interpolation="auto"
        )
    ax.set_axis_off()
    return ax.imshow(
        low + place * (high - low),
        _colormap(low),
        vmin=low,
        vmax=high,
        alpha=cover,
        origin="upper",
        interpolation="auto",
    )


def _dimmed(image: Image.Image, grey: float) -> NDArray[np.floating]:
    """A picture (H, W, 3) as it lies under heat."""
    picture = np.asarray(to_rgb(image), dtype=np.float32)
    light = picture @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    return (picture + (light[..., None] - picture) * grey) * LIGHT


def heat(values: ArrayLike, size: tuple[int, int], *, low: float, high: float) -> Image.Image:
    """Draw the heat of a map alone, where no picture is known or a picture would hide it.

    The arguments are those of `overlay`, with the `size` (W, H) in place of the picture.
    """
    return Image.fromarray(colour(_scaled(values, size, low, high)[0], _colormap(low)))


def centred(low: float, high: float) -> tuple[float, float]:
    """Widen a scale until 0 is its middle, unless it has no contrast."""
    most = max(-low, high)
    return (low, high) if alike(low, high) else (-most, most)


def _colormap(low: float) -> str:
    """Name the colour map of a scale that begins at `low`."""
    return SIGNED if low < 0 else COLORMAP


def _scaled(
    values: ArrayLike, size: tuple[int, int], low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Resize a map to a picture and scale it from `low` to `high`.

    Returns:
        The place of each pixel on the scale, (H, W) from 0 to 1, and its heat, (H, W) from 0 to 1.
        The two are the same, but on a scale that begins below 0 the heat is the distance from 0.
    """
    low, high = finite("low", low), finite("high", high)
    if low > high:
        raise ArgumentError(f"low is {low:g} and high {high:g}: expected low not above high")
    low, high = centred(low, high) if low < 0 else (low, high)
    spread = resize_map(values, size).astype(np.float64)
    if alike(low, high):
        place = np.full_like(spread, 0.5 if low < 0 else 0)
    else:
        place = np.clip((spread - low) / (high - low), 0, 1)
    return place, abs(2 * place - 1) if low < 0 else place


def _box(size: object) -> tuple[int, int]:
    """A size (width, height) in pixels."""
    sides = in_order(size) or []
    if len(sides) != 2:
        raise ArgumentError(f"size is {quoted(size)}: expected (width, height)")
    width, height = (
        whole(f"the {what}", side, least=1, most=2**20)
        for what, side in zip(("width", "height"), sides, strict=True)
    )
    return width, height


def to_rgb(image: Image.Image) -> Image.Image:
    """A picture of any mode as RGB; what is transparent shows white, and 16 bits of grey are 8."""
    if not isinstance(image, Image.Image):
        raise ArgumentError(f"the picture is of {type(image).__name__}: expected a Pillow image")
    given = f"of mode {image.mode!r}, {image.width}×{image.height}"
    if min(image.size) < 1:
        raise ArgumentError(f"the picture is {given}: expected pixels with 8-bit colours")
    if image.mode in ("I", "F"):  # whose least and greatest values nobody knows
        raise ArgumentError(
            f"the picture is {given}: expected pixels with 8-bit colours; scale its values to 0 to "
            "255, and convert it to mode 'L'"
        )
    try:
        if image.mode.startswith("I;16"):
            image = _eight_bits(image)
        if image.mode == "La":  # from which Pillow comes to no other mode
            image = image.convert("LA")
        if image.has_transparency_data:
            white = Image.new("RGBA", image.size, (255, 255, 255, 255))
            image = Image.alpha_composite(white, image.convert("RGBA"))
        return image.convert("RGB")
    except MemoryError:
        raise
    except Exception as error:  # pixels may be read as late as here: Pillow raises anything then
        raise ArgumentError(
            f"the picture, {given}, cannot be read, since it is broken or closed: expected one "
            "that Pillow reads to its end; open it again, or take another"
        ) from error


def _eight_bits(image: Image.Image) -> Image.Image:
    """A picture of 16 bits of grey with 8 of them; what is transparent is white."""
    wide = np.asarray(image)
    grey = np.rint(wide / 257).astype(np.uint8)
    grey[wide == image.info.get("transparency", -1)] = 255
    return Image.fromarray(grey)


def _map(values: ArrayLike) -> NDArray[np.float32]:
    """Checked values as (h, w) float32."""
    try:
        given = np.asarray(values)
    except ValueError:
        raise ArgumentError(
            "the map has rows of several lengths: expected an array (h, w)"
        ) from None
    if given.ndim != 2 or given.size == 0 or given.dtype.kind not in "buif":
        what = f"shape {given.shape} of {given.dtype}"
        raise ArgumentError(f"the map has {what}: expected an array (h, w) of real numbers")
    with np.errstate(over="ignore"):
        cells = np.ascontiguousarray(given, dtype=np.float32)
    if wrong := int(np.count_nonzero(~np.isfinite(cells))):
        raise ArgumentError(
            f"{wrong} of {cells.size} values of a map are NaN or Inf: expected none"
        )
    return cells


@cache
def _table(colormap: str) -> NDArray[np.uint8]:
    """The 256 colours of a colour map, (256, 3)."""
    from matplotlib import colormaps

    return colormaps[colormap](np.arange(256), bytes=True)[:, :3]
