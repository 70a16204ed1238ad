"""The drawn world: scenes with exact masks, made from a seed.

A scene is laid out (`Layout`: which things, where, in which setting), drawn (`Scene`: the picture
and one exact mask a thing) and told (`Caption`: a text, and which characters of it speak of which
things). All of it is a pure function of its seed, so the truth about any picture can be made again.

Held out: `is_held_out(layout)` is true for about one combination of things, colours and setting in
eight, and always for the pairs in `UNSEEN_PAIRS`; training must skip those layouts. Seeds from
`HELD_OUT_SEED` on are for evaluation.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

from heedmap.tiny.shapes import DRAWINGS, Part

SIZE = 128
"""Side of a picture in pixels."""

NOUNS: tuple[str, ...] = tuple(DRAWINGS)
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (224, 48, 44),
    "orange": (246, 142, 34),
    "yellow": (252, 218, 58),
    "green": (66, 168, 72),
    "blue": (52, 108, 226),
    "purple": (136, 68, 190),
    "pink": (250, 150, 196),
    "white": (247, 247, 244),
}
SETTINGS: dict[str, tuple[str, ...]] = {
    "none": ("on a plain background",),
    "meadow": ("in a meadow", "on a meadow", "on grass", "on the grass"),
    "night": ("at night", "in the night", "under the stars"),
    "beach": ("on the beach", "at the beach", "by the sea"),
    "snow": ("in the snow", "in snow", "in winter"),
    "sunset": ("at sunset", "in the sunset", "in the evening"),
}
SIZES: dict[str, tuple[str, ...]] = {"small": ("small", "little"), "big": ("big", "large")}
RELATIONS: dict[str, tuple[str, ...]] = {
    "left": ("left of", "to the left of"),
    "right": ("right of", "to the right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
    "beside": ("next to", "beside"),
    "with": ("and", "with"),
}
PREFIXES = ("a photo of ", "a picture of ", "a drawing of ", "an image of ", "there is ")
FILLERS = ("lovely", "very", "nice", "old", "happy", "funny", "beautiful", "tiny cute", "shiny")

UNSEEN_PAIRS = frozenset(
    {("red", "cactus"), ("blue", "mushroom"), ("green", "cat"), ("yellow", "boat")}
)
"""Colours and nouns that never meet in training, in any scene."""
HELD_OUT_SEED = 1_000_000_000
"""Training draws seeds below this number, evaluation from it on."""

_SHADES: dict[str, tuple[int, int, int]] = {
    "ink": (38, 32, 48),
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
_SCALE = 3  # drawn this many times larger, then averaged down: that is the antialiasing


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing of a scene: centre (x, y) and half side `radius`, as fractions of the picture."""

    noun: str
    colour: str
    size: Literal["", "small", "big"]
    x: float
    y: float
    radius: float
    squash: float
    detail: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What a scene holds. `relation` is how thing 0 lies to thing 1 ("" unless there are two)."""

    seed: int
    things: tuple[Thing, ...]
    setting: str
    relation: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A drawn layout.

    `image`: uint8 (128, 128, 3). `masks`: bool (things, 128, 128), the pixels of each thing that
    are seen (contour included; a thing in front takes its pixels from those behind).
    """

    layout: Layout
    image: np.ndarray
    masks: np.ndarray


@dataclass(frozen=True, slots=True)
class Mention:
    """Characters start..end of a caption that speak of `things` (indices), or of the setting."""

    start: int
    end: int
    kind: Literal["noun", "colour", "size", "setting"]
    things: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Caption:
    """A text for a scene and what its words speak of."""

    text: str
    mentions: tuple[Mention, ...]


# --- layout -----------------------------------------------------------------------------------


def is_held_out(layout: Layout) -> bool:
    """Whether this combination of things, colours and setting is kept from training."""
    pairs = sorted((t.colour, t.noun) for t in layout.things)
    if any(pair in UNSEEN_PAIRS for pair in pairs):
        return True
    return zlib.crc32(f"{pairs}{layout.setting}".encode()) % 8 == 0


def lay_out(seed: int, count: int | None = None, held_out: bool | None = None) -> Layout:
    """The layout of a seed: one to three things in a setting.

    Args:
        seed: any integer; equal seeds give equal layouts.
        count: how many things (1, 2 or 3), or None to draw it (45, 45 and 10 %).
        held_out: True or False to draw again, from the same generator, until `is_held_out` says so.
    """
    rng = Random(seed)
    while True:
        layout = _draw_layout(seed, rng, count)
        if held_out is None or is_held_out(layout) == held_out:
            return layout


def _draw_layout(seed: int, rng: Random, count: int | None) -> Layout:
    if count is None:
        count = rng.choices((1, 2, 3), (45, 45, 10))[0]
    setting = "none" if rng.random() < 0.3 else rng.choice(tuple(SETTINGS)[1:])
    kinds = [(rng.choice(tuple(COLOURS)), rng.choice(NOUNS))]
    while len(kinds) < count:
        kind = (rng.choice(tuple(COLOURS)), rng.choice(NOUNS))
        if count == 2 and rng.random() < 0.06:
            kind = (kind[0], kinds[0][1])
        if kind not in kinds and (count == 2 or kind[1] not in {noun for _, noun in kinds}):
            kinds.append(kind)
    relation = ""
    sizes: list[Literal["", "small", "big"]] = [""] * count
    if count == 1:
        sizes = [rng.choices(("", "small", "big"), (50, 20, 30))[0]]
        low, high = {"": (0.20, 0.30), "small": (0.15, 0.175), "big": (0.30, 0.34)}[sizes[0]]
        radii = [rng.uniform(low, high)]
        spread = min(0.2, 0.97 / 2 - radii[0])
        places = [(0.5 + rng.uniform(-spread, spread), 0.54 + rng.uniform(-0.09, 0.09))]
    elif count == 2:
        relation = rng.choices(tuple(RELATIONS), (16, 16, 14, 14, 15, 25))[0]
        if rng.random() < 0.25:
            sizes = rng.choice([["big", "small"], ["small", "big"]])
        across = relation not in ("above", "below")
        radii = [
            rng.uniform(*{"": (0.185, 0.225), "small": (0.14, 0.16), "big": (0.22, 0.24)}[s])
            for s in sizes
        ]
        near, far = (0.26 + rng.uniform(-0.02, 0.02), 0.74 + rng.uniform(-0.02, 0.02))
        if relation in ("left", "above") or (relation in ("beside", "with") and rng.random() < 0.5):
            spots = [near, far]
        else:
            spots = [far, near]
        drift = [0.56 + rng.uniform(-0.08, 0.08) for _ in spots]
        places = [(s, d) if across else (d - 0.06, s) for s, d in zip(spots, drift, strict=True)]
    else:
        radii = [rng.uniform(0.145, 0.165) for _ in kinds]
        row = 0.6 + rng.uniform(-0.1, 0.1)
        places = [(x, row + rng.uniform(-0.05, 0.05)) for x in (0.18, 0.5, 0.82)]
    things = tuple(
        Thing(
            noun=noun,
            colour=colour,
            size=size,
            x=x,
            y=min(max(y, radius + 0.02), 0.98 - radius),
            radius=radius,
            squash=rng.uniform(0.94, 1.06),
            detail=rng.randrange(2**30),
        )
        for (colour, noun), size, (x, y), radius in zip(kinds, sizes, places, radii, strict=True)
    )
    return Layout(seed, things, setting, relation)


# --- drawing ----------------------------------------------------------------------------------


def draw(layout: Layout) -> Scene:
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
    shades = _tints(thing.colour, rng)
    paths: list[tuple[Part, np.ndarray, np.ndarray]] = []
    for part in DRAWINGS[thing.noun](rng):
        inner, outer = _path(part, contour / unit)
        scale = np.array([unit * thing.squash, unit / thing.squash])
        centre = np.array([thing.x, thing.y]) * SIZE * _SCALE
        paths.append((part, inner * scale + centre, outer * scale + centre))
    ink = _SHADES["ink"]
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


def _tints(colour: str, rng: Random) -> dict[str, tuple[int, int, int]]:
    light = rng.uniform(0.95, 1.04)
    base = tuple(min(255, round(c * light)) for c in COLOURS[colour])
    dark = tuple(round(c * 0.76) for c in base)
    pale = tuple(round(c + (255 - c) * 0.45) for c in base)
    if colour == "white":
        pale = tuple(round(c * 0.93) for c in base)
        dark = tuple(round(c * 0.84) for c in base)
    return {**_SHADES, "base": base, "dark": dark, "light": pale}  # type: ignore[dict-item]


def _gradient(stops: Sequence[tuple[float, tuple[int, int, int]]]) -> Image.Image:
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

    def disc(x: float, y: float, rx: float, ry: float, fill: tuple[int, int, int]) -> None:
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


# --- captions ---------------------------------------------------------------------------------


def vocabulary() -> frozenset[str]:
    """Every word that captions are made of, apart from the letters without meaning."""
    texts = (*NOUNS, *COLOURS, *PREFIXES, *FILLERS, "a an the and with")
    ways = (*SETTINGS.values(), *SIZES.values(), *RELATIONS.values())
    return frozenset(" ".join((*texts, *(w for group in ways for w in group))).split())


class _Writer:
    """Builds a caption from pieces and remembers which characters speak of what."""

    def __init__(self) -> None:
        self.text = ""
        self.mentions: list[Mention] = []

    def say(self, words: str) -> None:
        self.text += words

    def mention(
        self,
        words: str,
        kind: Literal["noun", "colour", "size", "setting"],
        things: tuple[int, ...],
    ) -> None:
        start = len(self.text)
        self.text += words
        self.mentions.append(Mention(start, len(self.text), kind, things))

    def done(self) -> Caption:
        return Caption(self.text, tuple(self.mentions))


def caption(layout: Layout, rng: Random) -> Caption:
    """A caption in words drawn from `rng`: things, colours, sizes and setting in several wordings.

    Colours (one in six), sizes and settings are left out at times; 8 % carry filler words. Of one
    thing alone 6 % name it by letters without meaning: the letter tokens are trained too, and a
    word that was never seen draws something rather than nothing.
    """
    return _tell(layout, rng, wording="free")


def object_caption(layout: Layout, rng: Random, *, colours: bool = True) -> Caption:
    """As `caption`, but nouns, relation and setting are always said, and colours where asked."""
    return _tell(layout, rng, wording="clear" if colours else "plain")


def _tell(layout: Layout, rng: Random, wording: Literal["clear", "plain", "free"]) -> Caption:
    out = _Writer()
    free = wording == "free"
    n = len(layout.things)
    same_noun = n > 1 and len({t.noun for t in layout.things}) < n
    with_colours = wording == "clear" or (free and rng.random() < 0.84) or same_noun
    say_setting = layout.setting != "none" and (not free or rng.random() < 0.88)
    if layout.setting == "none":
        say_setting = rng.random() < 0.12
    phrase = rng.choice(SETTINGS[layout.setting])
    setting_first = say_setting and layout.setting != "none" and rng.random() < 0.1
    articles = rng.choices(("a", "the", ""), (70, 10, 20))[0]
    filler = free and rng.random() < 0.08
    gibberish = free and n == 1 and rng.random() < 0.06

    if not setting_first and rng.random() < 0.2:
        out.say(rng.choice(PREFIXES))
    if setting_first:
        out.mention(phrase, "setting", ())
        out.say(", ")
    for i, thing in enumerate(layout.things):
        if i:
            out.say(_link(layout, i, rng))
        words: list[tuple[str, Literal["noun", "colour", "size"] | None]] = []
        if filler and i == 0:
            words.append((_unknown(rng) if rng.random() < 0.5 else rng.choice(FILLERS), None))
        if thing.size and rng.random() < 0.7:
            words.append((rng.choice(SIZES[thing.size]), "size"))
        if with_colours:
            words.append((thing.colour, "colour"))
        words.append((_unknown(rng), None) if gibberish else (thing.noun, "noun"))
        if articles == "a":
            out.say("an " if words[0][0][0] in "aeiou" else "a ")
        elif articles:
            out.say(articles + " ")
        for k, (word, kind) in enumerate(words):
            out.say(" " if k else "")
            if kind is None:
                out.say(word)
            else:
                out.mention(word, kind, (i,))
    if say_setting and not setting_first:
        out.say(" ")
        out.mention(phrase, "setting", ())
    return out.done()


def _link(layout: Layout, i: int, rng: Random) -> str:
    if len(layout.things) == 2:
        return f" {rng.choice(RELATIONS[layout.relation])} "
    return " and " if i == len(layout.things) - 1 else ", "


def _unknown(rng: Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "".join(rng.choice(letters) for _ in range(rng.randint(3, 8)))
