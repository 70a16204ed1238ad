"""Arrays to pixels: maps resized and coloured, heat laid over an image.

Axes: h, w the rows and columns of a map · H, W those of an image.
"""

import io
import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap.checks import alike, finite, whole
from heedmap.errors import ArgumentError, quoted
from heedmap.io.reading import MAX_SIDE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

COLORMAPS = ("inferno", "magma", "plasma", "viridis", "cividis")  # perceptually even, dark is less
COLORMAP, OPACITY = "inferno", 0.85
SIGNED = "managua_r"  # of scales with values below 0: blue below, dark at 0, orange above

# How bright and how grey the image is under the heat. Chosen by eye on bright, dark and white
# images: cold places stay clear, hot ones glow on all of them.
LIGHT, GREY = 0.6, 0.4
OPACITY_PAINTED = 0.6  # of an even colour, so that the image stays visible
GREY_SEVERAL = 0.9  # hues are easier to distinguish over an image that has hardly any
# Okabe and Ito's colours, which differ for any kind of colour vision.
HUES = ("#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#0072b2")


def png(image: Image.Image, text: PngInfo | None = None) -> bytes:
    """Return an image as the bytes of a PNG file, with text chunks if given."""
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=4, pnginfo=text)  # at 6, Pillow's own, twice as slow
    return file.getvalue()


def enlarge(image: Image.Image, *, short_side: int = 256) -> Image.Image:
    """Enlarge an image by the smallest whole number that brings its short side to `short_side`.

    Returns:
        An RGB image (Lanczos); one that is large enough keeps its size.
    """
    rgb, enough = to_rgb(image), whole("short_side", short_side, least=1, most=MAX_SIDE)
    times = math.ceil(enough / min(rgb.size))
    return rgb.resize((rgb.width * times, rgb.height * times), Image.Resampling.LANCZOS)


def shrunk(image: Image.Image, side: int) -> Image.Image:
    """Return an image with at most `side` pixels on its long side; a smaller one unchanged."""
    if max(image.size) <= side:
        return image
    width, height = (max(1, round(n * side / max(image.size))) for n in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3)


def resize_map(values: ArrayLike, size: tuple[int, int]) -> NDArray[np.float32]:
    """Resize a finite map bilinearly: (h, w) -> (H, W) float32, for `size` = (W, H).

    Cell centres lie at half pixels and the border is held. Nothing rings below the least or above
    the greatest value; a constant map stays the same to the bit. A map that shrinks is averaged
    over the area of each pixel.
    """
    cells = _map(values)
    if min(size) < 1:
        raise ArgumentError(f"size is {quoted(size)}: expected (width, height) of at least 1")
    resized = Image.fromarray(cells).resize(size, Image.Resampling.BILINEAR)
    return np.clip(np.asarray(resized, dtype=np.float32), cells.min(), cells.max())


def colour(values: ArrayLike, colormap: str = COLORMAP) -> NDArray[np.uint8]:
    """Return the colour of each value: (h, w) in [0, 1] -> (h, w, 3) uint8, by `COLORMAPS`."""
    shares = _map(values)
    if shares.min() < 0 or shares.max() > 1:
        span = f"{shares.min():.4g} to {shares.max():.4g}"
        raise ArgumentError(f"the values to colour are {span}: expected 0 to 1; scale them first")
    return _table(colormap)[np.rint(shares * 255).astype(np.uint8)]


def overlay(image: Image.Image, values: ArrayLike, *, low: float, high: float) -> Image.Image:
    """Lay the heat of a map over an image.

    Values from `low` to `high` become heat from 0 to 1; values outside are clipped. The image is
    dimmed and greyed a little, everywhere alike, so that heat is visible on bright and on dark;
    then colour covers it in proportion to the heat, from nothing at 0 to `OPACITY` at 1. A scale
    that begins below 0 is centred on 0, where nothing is covered, and has the colours of `SIGNED`.
    Where `low` and `high` are the same, but for rounding (of constant maps), all is cold.

    Args:
        image: an image of any mode, of size (W, H).
        values: (h, w), finite; resized to the image by `resize_map`.
        low: the cold value; the caller decides if the scale is a word's own or shared.
        high: the hot value, not below `low`.

    Returns:
        An RGB image of size (W, H).
    """
    base = _dimmed(image, GREY)
    place, hot = _scaled(values, image.size, low, high)
    mixed = base + (colour(place, _colormap(low)) - base) * (OPACITY * hot)[..., None]
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def heat(values: ArrayLike, size: tuple[int, int], *, low: float, high: float) -> Image.Image:
    """Draw the heat of a map without an image, at a `size` (W, H); arguments as of `overlay`."""
    return Image.fromarray(colour(_scaled(values, size, low, high)[0], _colormap(low)))


def labelled(image: Image.Image, labels: NDArray[np.uint8]) -> Image.Image:
    """Paint the parts of an almost grey image.

    Args:
        image: an image of any mode, of size (W, H).
        labels: (H, W); label n has the n-th of `HUES`, which repeat after the last, and 0 none.

    Returns:
        An RGB image of size (W, H).
    """
    base = _dimmed(image, GREY_SEVERAL)
    colours = np.resize(hue_colours(), (255, 3))[labels.astype(int) - 1]
    mixed = np.where(labels[..., None] > 0, base + (colours - base) * OPACITY_PAINTED, base)
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def hue_colours() -> NDArray[np.uint8]:
    """Return `HUES` as numbers: uint8 (N, 3)."""
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
    """Draw the pixels of `overlay` on axes, or those of `heat` without an image.

    Args:
        ax: axes of any figure; their ticks are hidden, their units are the image's pixels.
        image: the image, of any mode.
        values: (h, w), finite.
        size: (W, H), the image's.
        low: the cold value.
        high: the hot value.

    Returns:
        The heat, whose colours go from `low` to `high`; `figure.colorbar` makes a bar of it.
    """
    if not hasattr(ax, "imshow"):
        raise ArgumentError(
            f"ax is {quoted(ax)}: expected axes of matplotlib, as in Figure().add_subplot()"
        )
    place, hot = _scaled(values, size, low, high)
    low, high = centred(low, high) if low < 0 else (low, high)
    if image is not None:
        ax.imshow(np.rint(_dimmed(image, GREY)).astype(np.uint8), origin="upper")
    ax.set_axis_off()
    cover = None if image is None else OPACITY * hot
    spread = low + place * (high - low)
    return ax.imshow(spread, _colormap(low), vmin=low, vmax=high, alpha=cover, origin="upper")


def centred(low: float, high: float) -> tuple[float, float]:
    """Widen a scale until 0 is its middle, unless it has no contrast."""
    most = max(-low, high)
    return (low, high) if alike(low, high) else (-most, most)


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image of any mode as RGB: transparent pixels white, 16 bits of grey as 8."""
    if not isinstance(image, Image.Image):
        raise ArgumentError(f"the picture is of {type(image).__name__}: expected a Pillow image")
    given = f"of mode {image.mode!r}, {image.width}×{image.height}"
    if min(image.size) < 1 or image.mode in ("I", "F"):  # of unknown least and greatest values
        raise ArgumentError(
            f"the picture is {given}: expected pixels with 8-bit colours; scale its values to 0 to "
            "255, and convert it to mode 'L'"
        )
    try:
        if image.mode.startswith("I;16"):
            image = Image.fromarray(np.rint(np.asarray(image) / 257).astype(np.uint8))
        if image.has_transparency_data:
            white = Image.new("RGBA", image.size, (255, 255, 255, 255))
            image = Image.alpha_composite(white, image.convert("RGBA"))
        return image.convert("RGB")
    except MemoryError:
        raise
    except Exception as error:  # Pillow reads the pixels as late as here, and raises anything
        raise ArgumentError(
            f"the picture, {given}, cannot be read, since it is broken or closed: open it again, "
            "or take another"
        ) from error


def _dimmed(image: Image.Image, grey: float) -> NDArray[np.floating]:
    """Return an image (H, W, 3) as it lies under heat."""
    rgb = np.asarray(to_rgb(image), dtype=np.float32)
    light = rgb @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    return (rgb + (light[..., None] - rgb) * grey) * LIGHT


def _colormap(low: float) -> str:
    return SIGNED if low < 0 else COLORMAP


def _scaled(
    values: ArrayLike, size: tuple[int, int], low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Resize a map to an image and scale it from `low` to `high`.

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


def _map(values: ArrayLike) -> NDArray[np.float32]:
    """Return checked values as (h, w) float32."""
    given = np.asarray(values)
    if given.ndim != 2 or given.size == 0 or given.dtype.kind not in "buif":
        what = f"shape {given.shape} of {given.dtype}"
        raise ArgumentError(f"the map has {what}: expected an array (h, w) of real numbers")
    with np.errstate(over="ignore"):
        cells = np.ascontiguousarray(given, dtype=np.float32)
    if not np.isfinite(cells).all():
        raise ArgumentError("the map has values that are NaN or infinite: expected none")
    return cells


@cache
def _table(colormap: str) -> NDArray[np.uint8]:
    """Return the 256 colours of a colour map, (256, 3)."""
    from matplotlib import colormaps

    return colormaps[colormap](np.arange(256), bytes=True)[:, :3]
