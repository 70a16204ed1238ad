"""The drawn world: pictures of scenes with exact masks.

A scene is laid out (`layouts`: which things, where, in which setting), drawn (here: the picture and
one exact mask a thing) and told (`captions`: a text, and which characters of it speak of which
things). All of it is a pure function of its seed, so the truth about any picture can be made again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np
from PIL import Image, ImageDraw

from world.layouts import COLOURS, Layout, Thing
from world.shapes import Part
from world.sprites import DRAWINGS

RGB = tuple[int, int, int]
SIZE = 128
"""Side of a picture in pixels."""

SHADES: dict[str, RGB] = {
    "eyewhite": (255, 255, 255),
    "blush": (245, 160, 170),
    "cream": (250, 232, 196),
    "wood": (150, 98, 56),
    "brick": (190, 112, 84),
    "window": (168, 222, 248),
    "tyre": (58, 56, 66),
    "metal": (205, 208, 216),
    "leaf": (86, 160, 70),
    "sun": (255, 214, 70),
    "spot": (255, 250, 236),
    "flame": (255, 168, 40),
    "red": (214, 54, 50),
}
"""What does not take part in a thing's colour."""
_SCALE = 3  # drawn this many times larger, then averaged down: that is the antialiasing


@dataclass(frozen=True, slots=True)
class Scene:
    """A drawn layout.

    `image`: uint8 (128, 128, 3). `masks`: bool (things, 128, 128), the pixels of each thing that
    are seen (contour included; a thing in front takes its pixels from those behind).
    """

    layout: Layout
    image: np.ndarray
    masks: np.ndarray


def render(layout: Layout) -> Scene:
    """The picture of a layout, with the exact mask of each thing."""
    canvas = _background(layout.setting, Random(layout.seed ^ 0x5EED))
    silhouettes = np.empty((len(layout.things), SIZE, SIZE), dtype=bool)
    pen = ImageDraw.Draw(canvas)
    for i, thing in enumerate(layout.things):
        # Each at its own size, in the order of the layout: later things lie in front.
        shape = Image.new("L", canvas.size)
        _draw_thing(pen, ImageDraw.Draw(shape), thing)
        silhouettes[i] = np.asarray(shape.reduce(_SCALE)) >= 128
    masks = silhouettes.copy()
    for i in range(len(masks)):
        for above in silhouettes[i + 1 :]:
            masks[i] &= ~above
    return Scene(layout, np.asarray(canvas.reduce(_SCALE)), masks)


def _draw_thing(pen: ImageDraw.ImageDraw, shape: ImageDraw.ImageDraw, thing: Thing) -> None:
    rng = Random(thing.detail)
    unit = thing.radius * SIZE * _SCALE
    contour = (1.3 + 3.2 * thing.radius) * _SCALE
    shades = SHADES | tints(thing.colour, light=rng.uniform(0.95, 1.04))
    paths: list[tuple[Part, np.ndarray, np.ndarray]] = []
    for part in DRAWINGS[thing.noun](rng):
        inner, outer = _path(part, contour / unit)
        scale = np.array([unit * thing.squash, unit / thing.squash])
        centre = np.array([thing.x, thing.y]) * SIZE * _SCALE
        paths.append((part, inner * scale + centre, outer * scale + centre))
    ink = shades["ink"]
    for part, inner, outer in paths:
        if part.contour:
            edge = outer.ravel().tolist()
            pen.polygon(edge, fill=ink)
            shape.polygon(edge, fill=255)
            if part.ellipse is None:
                line = np.concatenate([inner, inner[:2]]).ravel().tolist()
                for target, fill in ((pen, ink), (shape, 255)):
                    target.line(line, fill=fill, width=round(2 * contour), joint="curve")
    for part, inner, _ in paths:
        flat = inner.ravel().tolist()
        pen.polygon(flat, fill=shades[part.shade])
        shape.polygon(flat, fill=255)  # whiskers and ropes stand out over the contour
        if part.inner:
            line = np.concatenate([inner, inner[:2]]).ravel().tolist()
            pen.line(line, fill=ink, width=max(round(contour * 0.7), 1))


def _path(part: Part, widen: float) -> tuple[np.ndarray, np.ndarray]:
    """The part's outline and, for an ellipse, the outline widened by the contour: (points, 2)."""
    if part.ellipse is None:
        points = np.array(part.points)
        return points, points
    x, y, rx, ry, turn = part.ellipse
    circle = _circle(28 if max(rx, ry) > 0.25 else 16)
    c, s = math.cos(turn), math.sin(turn)
    rotate = np.array([[c, s], [-s, c]])
    centre = np.array([x, y])
    radii = np.array([rx, ry])
    return circle * radii @ rotate + centre, circle * (radii + widen) @ rotate + centre


@cache
def _circle(n: int) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def tints(colour: str, light: float = 1.0) -> dict[str, RGB]:
    """The shades in which a thing of a colour is painted: base, dark and light; roof and contour.

    White and black have no room on one side, so their shades lie closer together. A white house
    has a red roof; a black thing has a paler contour, so that it stands out from the night.
    """
    base = tuple(min(255, round(c * light)) for c in COLOURS[colour])
    dark = tuple(round(c * 0.76) for c in base)
    pale = tuple(round(c + (255 - c) * 0.45) for c in base)
    if colour == "white":
        dark, pale = (tuple(round(c * part) for c in base) for part in (0.84, 0.93))
    elif colour == "black":
        dark, pale = (tuple(round(c * part) for c in base) for part in (0.6, 1.7))
    elif colour == "grey":
        pale = tuple(round(c + (255 - c) * 0.25) for c in base)
    roof = (212, 70, 58) if colour == "white" else dark
    ink = (132, 128, 142) if colour == "black" else (38, 32, 48)
    named = {"base": base, "dark": dark, "light": pale, "roof": roof, "ink": ink}
    return {name: (r, g, b) for name, (r, g, b) in named.items()}


def _gradient(stops: Sequence[tuple[float, RGB]]) -> Image.Image:
    side = SIZE * _SCALE
    at = np.linspace(0, 1, side)
    rows = np.stack(
        [np.interp(at, [p for p, _ in stops], [c[k] for _, c in stops]) for k in range(3)], axis=1
    )
    column = Image.fromarray(rows.round().astype(np.uint8)[:, None, :])
    return column.resize((side, side))


@cache
def _sky(setting: str, tone: int) -> Image.Image:
    stops = {
        "meadow": [(0, (126, 196, 246)), (0.7, (214, 240, 255)), (1, (214, 240, 255))],
        "night": [(0, (16, 20, 66)), (0.8, (52, 56, 126)), (1, (52, 56, 126))],
        "beach": [(0, (110, 200, 244)), (0.55, (206, 240, 252)), (1, (206, 240, 252))],
        "snow": [(0, (168, 190, 214)), (0.7, (216, 228, 240)), (1, (216, 228, 240))],
        "sunset": [
            (0, (112, 68, 138)),
            (0.4, (240, 116, 96)),
            (0.72, (255, 204, 112)),
            (1, (255, 204, 112)),
        ],
    }
    plain = ((252, 246, 232), (238, 240, 244), (226, 240, 236))[tone]
    return _gradient(stops.get(setting, [(0, plain), (1, plain)]))


def _background(setting: str, rng: Random) -> Image.Image:
    canvas = _sky(setting, rng.randrange(3) if setting == "none" else 0).copy()
    if setting == "none":
        return canvas
    pen = ImageDraw.Draw(canvas)
    side = SIZE * _SCALE

    def disc(x: float, y: float, rx: float, ry: float, fill: RGB) -> None:
        pen.ellipse(((x - rx) * side, (y - ry) * side, (x + rx) * side, (y + ry) * side), fill=fill)

    ground = rng.uniform(0.68, 0.74)
    corner = rng.choice((0.16, 0.84))
    if setting == "meadow":
        disc(corner, 0.15, 0.085, 0.085, (255, 226, 92))
        for dx, r in ((0.0, 0.06), (0.07, 0.075), (0.15, 0.055)):
            disc(0.92 - corner + dx, 0.16, r, r * 0.7, (255, 255, 255))
        disc(rng.uniform(0.1, 0.9), ground + 0.30, 0.8, 0.36, (150, 212, 104))
        disc(rng.uniform(0.1, 0.9), ground + 0.62, 1.0, 0.56, (112, 190, 84))
    elif setting == "night":
        disc(corner, 0.16, 0.09, 0.09, (255, 244, 190))
        disc(corner + 0.045, 0.13, 0.075, 0.075, (24, 28, 78))
        for x, y in (
            (0.3, 0.1),
            (0.45, 0.22),
            (0.62, 0.07),
            (0.72, 0.26),
            (0.5, 0.4),
            (0.08, 0.36),
            (0.92, 0.4),
        ):
            disc(x, y, 0.012, 0.012, (255, 250, 214))
        disc(0.5, ground + 0.62, 1.1, 0.56, (30, 46, 70))
    elif setting == "beach":
        disc(corner, 0.15, 0.085, 0.085, (255, 226, 92))
        pen.rectangle((0, (ground - 0.2) * side, side, side), fill=(58, 150, 214))
        pen.rectangle((0, (ground - 0.03) * side, side, side), fill=(232, 248, 252))
        pen.rectangle((0, ground * side, side, side), fill=(246, 220, 160))
    elif setting == "snow":
        disc(rng.uniform(0.1, 0.9), ground + 0.58, 1.1, 0.56, (250, 252, 255))
        for x, y in (
            (0.1, 0.12),
            (0.3, 0.26),
            (0.5, 0.08),
            (0.7, 0.22),
            (0.9, 0.1),
            (0.14, 0.46),
            (0.86, 0.44),
            (0.5, 0.4),
        ):
            disc(x, y, 0.02, 0.02, (255, 255, 255))
    elif setting == "sunset":
        disc(rng.uniform(0.35, 0.65), ground - 0.06, 0.15, 0.15, (255, 240, 170))
        pen.rectangle((0, ground * side, side, side), fill=(98, 58, 96))
    return canvas
