"""Images: maps resized, coloured and laid over an image, mosaics of steps.

Axes: h, w the rows and columns of a map · H, W those of an image.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageColor, ImageOps

from heedmap.checks import check_int, is_constant
from heedmap.errors import ArgumentError, quoted
from heedmap.io.reading import MAX_SIDE
from heedmap.io.schemas import StepSource

# Perceptually even, dark is less.
COLORMAPS = (
    "inferno",
    "magma",
    "plasma",
    "viridis",
    "cividis",
)
COLORMAP = "inferno"
OPACITY = 0.85
# Of scales with values below 0: blue below, dark at 0, orange above.
SIGNED = "managua_r"

# How bright and how grey the image is under the heat. Chosen by eye on bright, dark and white
# images: cold places stay clear, hot ones glow on all of them.
LIGHT = 0.6
GREY = 0.4
STEP_SIDE = 64  # pixels on the short side of a step's image at most
OPACITY_PAINTED = 0.6  # of an even colour, so that the image stays visible
GREY_SEVERAL = 0.9  # hues are easier to distinguish over an image that has hardly any
# Okabe and Ito's colours, which differ for any kind of colour vision.
HUES = ("#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#0072b2")


def enlarge(image: Image.Image, *, short_side: int = 256) -> Image.Image:
    """Enlarge an image (RGB, Lanczos) by a whole number until its short side is long enough."""
    rgb = to_rgb(image)
    enough = check_int(
        "short_side",
        short_side,
        least=1,
        most=MAX_SIDE,
    )
    times = math.ceil(enough / min(rgb.size))
    return ImageOps.scale(rgb, times, Image.Resampling.LANCZOS)


def resize_map(values: ArrayLike, size: tuple[int, int]) -> NDArray[np.float32]:
    """Resize a finite map bilinearly: (h, w) -> (H, W) float32, for `size` = (W, H).

    Cell centres lie at half pixels and the border is held. Nothing rings below the least or above
    the greatest value; a constant map stays the same to the bit. A map that shrinks is averaged
    over the area of each pixel.
    """
    cells = np.ascontiguousarray(values, dtype=np.float32)
    resized = Image.fromarray(cells).resize(size, Image.Resampling.BILINEAR)
    return np.clip(np.asarray(resized, dtype=np.float32), cells.min(), cells.max())


def colour(values: ArrayLike, colormap: str = COLORMAP) -> NDArray[np.uint8]:
    """Return the colour of each value: (h, w) in [0, 1] -> (h, w, 3) uint8, by `COLORMAPS`."""
    from matplotlib import colormaps

    levels = np.rint(np.asarray(values) * 255).astype(np.uint8)
    return colormaps[colormap](levels, bytes=True)[..., :3]


def overlay(
    image: Image.Image,
    values: ArrayLike,
    *,
    low: float,
    high: float,
) -> Image.Image:
    """Lay the heat of a map (h, w) over an image: an RGB image of its size.

    Values from `low` to `high` become heat from 0 to 1; values outside are clipped. The image is
    dimmed and greyed a little, everywhere alike, so that heat is visible on bright and on dark;
    then colour covers it in proportion to the heat, from nothing at 0 to `OPACITY` at 1. A scale
    that begins below 0 is centred on 0, where nothing is covered, and has the colours of `SIGNED`.
    If `low` and `high` are equal up to rounding (constant maps), all is cold.
    """
    position = _scaled(values, image.size, low, high)
    hot = abs(2 * position - 1) if low < 0 else position
    return _painted(image, GREY, colour(position, colormap(low)), OPACITY * hot)


def heat(
    values: ArrayLike,
    size: tuple[int, int],
    *,
    low: float,
    high: float,
) -> Image.Image:
    """Draw the heat of a map without an image, at a `size` (W, H); arguments as of `overlay`."""
    return Image.fromarray(colour(_scaled(values, size, low, high), colormap(low)))


def labelled(image: Image.Image, labels: NDArray[np.uint8]) -> Image.Image:
    """Paint an almost grey image (W, H): label n of (H, W) in the n-th of `HUES`, 0 not at all."""
    colours = hue_colours()[labels.astype(int) - 1]
    opacity = np.float32(OPACITY_PAINTED) * (labels > 0)
    return _painted(image, GREY_SEVERAL, colours, opacity)


def hue_colours() -> NDArray[np.uint8]:
    """Return the colours of the labels 1 to 255, `HUES` again and again: uint8 (255, 3)."""
    colours = [ImageColor.getrgb(hue) for hue in HUES]
    return np.resize(np.array(colours, np.uint8), (255, 3))


def centred(low: float, high: float) -> tuple[float, float]:
    """Widen a scale until 0 is its middle, unless it has no contrast."""
    most = max(-low, high)
    return (low, high) if is_constant(low, high) else (-most, most)


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image of any mode of 8 bits as RGB, transparent pixels as white."""
    if not isinstance(image, Image.Image) or image.mode[0] in "IF":
        raise ArgumentError(
            f"the image is {quoted(image)}: expected a Pillow image with 8-bit colours; scale "
            "its values to 0 to 255, and convert it to mode 'L'"
        )
    try:
        if image.has_transparency_data:
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image.convert("RGBA"))
        return image.convert("RGB")
    except OSError as error:  # Pillow reads pixels as late as here
        raise ArgumentError(f"the image cannot be read: {error}") from error


def _painted(
    image: Image.Image,
    grey: float,
    colours: NDArray[np.uint8],
    opacity: NDArray[np.floating],
) -> Image.Image:
    """Dim an image, grey it by a share, and cover it with colours (H, W, 3), each by (H, W)."""
    rgb = np.asarray(to_rgb(image), dtype=np.float32)
    light = rgb @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    base = (rgb + (light[..., None] - rgb) * grey) * LIGHT
    mixed = base + (colours - base) * opacity[..., None]
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def colormap(low: float) -> str:
    """Return the name of the colour map of a scale that begins at `low`."""
    return SIGNED if low < 0 else COLORMAP


def _scaled(
    values: ArrayLike,
    size: tuple[int, int],
    low: float,
    high: float,
) -> NDArray[np.float64]:
    """Resize a map to an image and return the position of each pixel on the scale: (H, W), 0 to 1.

    A scale that begins below 0 is centred on 0.
    """
    low, high = centred(low, high) if low < 0 else (float(low), float(high))
    spread = resize_map(values, size).astype(np.float64)
    if is_constant(low, high):
        return np.full_like(spread, 0.5 if low < 0 else 0)
    return np.clip((spread - low) / (high - low), 0, 1)


# --- images of steps ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StepPictures:
    """One small image for each step, all of one size.

    Attributes:
        frames: RGB, by step. Colours are fitted, not decoded: edges are soft, tones near, above all
            in a part that inpainting puts back at the end.
        shows: "prediction" where each is the model's prediction of the finished image; "latents",
            the noisy ones after the step, where its scheduler gives no prediction.
    """

    frames: tuple[Image.Image, ...] = field(repr=False)
    shows: StepSource

    @property
    def size(self) -> tuple[int, int]:
        """(W, H) of each."""
        return self.frames[0].size

    def mosaic(self) -> Image.Image:
        """Return all of them as one image, row by row (`mosaic_size`)."""
        sheet = Image.new("RGB", mosaic_size(len(self.frames), self.size))
        for number, frame in enumerate(self.frames):
            sheet.paste(frame, _cell(number, sheet, self.size))
        return sheet


def mosaic_size(count: int, size: tuple[int, int]) -> tuple[int, int]:
    """Return (W, H) of a mosaic of `count` images of a size, as many in a row as in a column."""
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    return columns * size[0], rows * size[1]


def of_mosaic(
    sheet: Image.Image,
    count: int,
    size: tuple[int, int],
    shows: StepSource,
) -> StepPictures:
    """Cut a mosaic into its images (`StepPictures.mosaic`)."""
    frames = (sheet.crop(_cell(number, sheet, size)) for number in range(count))
    return StepPictures(tuple(frames), shows)


def _cell(
    number: int,
    sheet: Image.Image,
    size: tuple[int, int],
) -> tuple[int, int, int, int]:
    """Return the box of an image in a mosaic of images of a size."""
    width, height = size
    row, column = divmod(number, sheet.width // width)
    x = column * width
    y = row * height
    return x, y, x + width, y + height
