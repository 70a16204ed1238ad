"""A block as pixels: what a sheet saves as PNG, bit for bit, without making a figure of it.

matplotlib's figure takes a tenth of a second and more to import. Its renderer alone, which draws
here what the figure would have it draw, takes half of that.
"""

from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Affine2D
from PIL import Image, ImageDraw

from heedmap.figures.blocks import INK, SOFT, Block, LineAt, PictureAt
from heedmap.figures.lettering import font

__all__ = ["DPI", "painted", "pixels"]

DPI = 72  # a pixel is a point, and sizes of letters are in pixels
_RULE = (205, 205, 209)
# On a screen that is dark: the paper, the line around pictures, and what letters become there.
_NIGHT, _NIGHT_RULE = (28, 28, 31), (74, 74, 80)
_NIGHT_INKS = {INK: "#ececee", SOFT: "#a6a6ad"}


def painted(block: Block, *, dark: bool = False) -> Image.Image:
    """A block on white, RGB, pixel by pixel: what `Sheet.of(block).image()` is.

    Args:
        block: what is to be seen, in pixels.
        dark: whether it is on dark paper instead, in light letters. Pictures stay as they are.
    """
    renderer = RendererAgg(block.width, block.height, DPI)
    brush: Any = renderer.new_gc()
    brush.set_linewidth(0)
    paper = Affine2D().scale(block.width, block.height)
    red, green, blue = _NIGHT if dark else (255, 255, 255)
    renderer.draw_path(brush, Path.unit_rectangle(), paper, (red / 255, green / 255, blue / 255, 1))
    for thing in sorted(block.things, key=lambda thing: isinstance(thing, LineAt)):  # lines on top
        if isinstance(thing, PictureAt):
            left, foot = (round(n) for n in (thing.x, block.height - thing.y - thing.size[1]))
            rule = _NIGHT_RULE if dark else _RULE
            shown = pixels(thing.picture, thing.size, int(thing.outlined), rule)
            renderer.draw_image(brush, left, foot, shown)
        else:
            inks = _NIGHT_INKS if dark else {}
            _write(renderer, thing, block.height, inks.get(thing.colour, thing.colour))
    return Image.fromarray(np.asarray(renderer.buffer_rgba())).convert("RGB")


def pixels(
    picture: Image.Image, size: tuple[int, int], outline: int, rule: tuple[int, int, int] = _RULE
) -> np.ndarray:
    """A picture as renderers take it, from the foot up: uint8 (H, W, 4).

    Resized by Pillow: as sharp as Agg's Lanczos, in a fraction of its time.

    Args:
        picture: RGB.
        size: (W, H).
        outline: pixels of the line around it, within its size; 0 for none.
        rule: the colour of that line.
    """
    shown = picture.resize(size, Image.Resampling.LANCZOS)
    if outline:
        ends = (0, 0, size[0] - 1, size[1] - 1)
        ImageDraw.Draw(shown).rectangle(ends, outline=rule, width=outline)
    return np.asarray(shown.convert("RGBA"))[::-1]


def _write(renderer: RendererAgg, line: LineAt, height: int, colour: str) -> None:
    """Draw the outlines of a line's letters, evenly set at all sizes."""
    fonts = font(line.text, line.size)
    vertices, codes = text_to_path.get_text_path(fonts, line.text)
    scale = fonts.get_size_in_points() / text_to_path.FONT_SCALE
    place = Affine2D().scale(scale).translate(line.x, height - line.y)  # from the foot up
    brush: Any = renderer.new_gc()
    brush.set_linewidth(0)
    brush.set_foreground(colour)
    renderer.draw_path(brush, Path(vertices, codes), place, brush.get_rgb())
