"""What is in a scene of the drawn world: its things, where they lie, its setting; from a seed.

Each thing has a natural colour (`NATURAL`), in which it is drawn where a caption tells none.

Held out: `is_held_out(layout)` is true for about one combination of things, colours and setting in
eight, and always for the pairs in `UNSEEN_PAIRS`; training must skip those layouts. Seeds from
`HELD_OUT_SEED` on are for evaluation.
"""

import zlib
from dataclasses import dataclass
from random import Random
from typing import Literal

from world.sprites import DRAWINGS

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
    "black": (42, 40, 46),
    "grey": (140, 143, 150),
    "brown": (126, 76, 42),
}
NATURAL: dict[str, str] = {
    "cat": "orange", "dog": "brown", "fish": "blue", "snail": "brown", "butterfly": "yellow",
    "house": "white", "car": "red", "boat": "white", "balloon": "red", "rocket": "grey",
    "tree": "green", "flower": "pink", "mushroom": "red", "cactus": "green",
}  # fmt: skip
"""The colour that each thing has by itself; only of such a thing a caption may leave it out."""
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

Size = Literal["", "small", "big"]
Kind = Literal["different", "twins", "several"]
"""What the things of a layout are to each other: no two alike; one noun in two colours; all one."""
UNSEEN_PAIRS = frozenset({("red", "cactus"), ("blue", "mushroom"), ("green", "cat"),
                          ("yellow", "boat")})  # fmt: skip
"""Colour and noun that never meet in training, in any scene."""
HELD_OUT_SEED = 1_000_000_000
"""Training draws seeds below this number, evaluation from it on."""
_BY_NATURE = {"different": 0.25, "twins": 0.25, "several": 0.4}
"""Share of things that are drawn in their natural colour on purpose (chance adds some)."""
Spots = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing of a scene: centre (x, y) and half side `radius`, as fractions of the picture."""

    noun: str
    colour: str
    size: Size
    x: float
    y: float
    radius: float
    squash: float
    detail: int

    @property
    def natural(self) -> bool:
        """Whether it has the colour that such a thing has by itself."""
        return self.colour == NATURAL[self.noun]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a scene holds.

    `relation` is how thing 0 lies to thing 1 where there are two that differ; "several" where two
    or three are alike; else "".
    """

    seed: int
    things: tuple[Thing, ...]
    setting: str
    relation: str


def is_held_out(layout: Layout) -> bool:
    """Whether this combination of things, colours and setting is kept from training."""
    pairs = sorted((t.colour, t.noun) for t in layout.things)
    if any(pair in UNSEEN_PAIRS for pair in pairs):
        return True
    return zlib.crc32(f"{pairs}{layout.setting}".encode()) % 8 == 0


def lay_out(
    seed: int, count: int | None = None, held_out: bool | None = None, kind: Kind = "different"
) -> Layout:
    """The layout of a seed: one to three things in a setting.

    Args:
        seed: any integer; equal seeds give equal layouts.
        count: how many things (1, 2 or 3), or None to draw it (45, 45 and 10 %; 60 and 40 % two
            and three that are alike). Twins are two.
        held_out: True or False to draw again, from the same generator, until `is_held_out` says so.
        kind: what the things are to each other.
    """
    rng = Random(seed)
    while True:
        layout = _draw_layout(seed, rng, count, kind)
        if held_out is None or is_held_out(layout) == held_out:
            return layout


def _draw_layout(seed: int, rng: Random, count: int | None, kind: Kind) -> Layout:
    if kind == "twins":
        count = 2
    elif count is None:
        several = kind == "several"
        count = rng.choices((1, 2, 3), (0, 60, 40) if several else (45, 45, 10))[0]
    setting = "none" if rng.random() < 0.3 else rng.choice(tuple(SETTINGS)[1:])
    pairs = _pairs(rng, count, kind)
    relation = ""
    if kind == "several":
        relation = "several"
        places, radii, sizes = _places_of_several(rng, count)
    elif count == 1:
        places, radii, sizes = _place_of_one(rng)
    elif count == 2:
        relation = rng.choices(tuple(RELATIONS), (16, 16, 14, 14, 15, 25))[0]
        places, radii, sizes = _places_of_two(rng, relation)
    else:
        places, radii, sizes = _places_of_three(rng)
    things = tuple(
        Thing(
            noun=noun, colour=colour, size=size, x=x, y=min(max(y, radius + 0.02), 0.98 - radius),
            radius=radius, squash=rng.uniform(0.94, 1.06),
            detail=rng.randrange(2**30),
        )
        for (colour, noun), size, (x, y), radius in zip(pairs, sizes, places, radii, strict=True)
    )  # fmt: skip
    return Layout(seed, things, setting, relation)


def _pairs(rng: Random, count: int, kind: Kind) -> list[tuple[str, str]]:
    """Colour and noun of each thing."""

    def draw(noun: str | None = None) -> tuple[str, str]:
        noun = noun or rng.choice(NOUNS)
        by_nature = rng.random() < _BY_NATURE[kind]
        return (NATURAL[noun] if by_nature else rng.choice(tuple(COLOURS)), noun)

    pairs = [draw()]
    if kind == "several":
        return pairs * count
    while len(pairs) < count:
        twin = kind == "twins" or (count == 2 and rng.random() < 0.06)
        pair = draw(pairs[0][1] if twin else None)
        if pair not in pairs and (count == 2 or pair[1] not in {noun for _, noun in pairs}):
            pairs.append(pair)
    return pairs


# --- where things lie, how large they are, and in which size they are told ---------------------


def _place_of_one(rng: Random) -> tuple[Spots, list[float], list[Size]]:
    sizes: list[Size] = [rng.choices(("", "small", "big"), (50, 20, 30))[0]]
    low, high = {"": (0.20, 0.30), "small": (0.15, 0.175), "big": (0.30, 0.34)}[sizes[0]]
    radii = [rng.uniform(low, high)]
    spread = min(0.2, 0.97 / 2 - radii[0])
    places = [(0.5 + rng.uniform(-spread, spread), 0.54 + rng.uniform(-0.09, 0.09))]
    return places, radii, sizes


def _places_of_two(rng: Random, relation: str) -> tuple[Spots, list[float], list[Size]]:
    sizes: list[Size] = ["", ""]
    if rng.random() < 0.25:
        sizes = rng.choice([["big", "small"], ["small", "big"]])
    across = relation not in ("above", "below")
    ranges = {"": (0.185, 0.225), "small": (0.14, 0.16), "big": (0.22, 0.24)}
    radii = [rng.uniform(*ranges[s]) for s in sizes]
    near, far = (0.26 + rng.uniform(-0.02, 0.02), 0.74 + rng.uniform(-0.02, 0.02))
    if relation in ("left", "above") or (relation in ("beside", "with") and rng.random() < 0.5):
        spots = [near, far]
    else:
        spots = [far, near]
    drift = [0.56 + rng.uniform(-0.08, 0.08) for _ in spots]
    places = [(s, d) if across else (d - 0.06, s) for s, d in zip(spots, drift, strict=True)]
    return places, radii, sizes


def _places_of_three(rng: Random) -> tuple[Spots, list[float], list[Size]]:
    radii = [rng.uniform(0.145, 0.165) for _ in range(3)]
    row = 0.6 + rng.uniform(-0.1, 0.1)
    return [(x, row + rng.uniform(-0.05, 0.05)) for x in (0.18, 0.5, 0.82)], radii, [""] * 3


def _places_of_several(rng: Random, count: int) -> tuple[Spots, list[float], list[Size]]:
    """Two beside each other; three in a row with one out of line, or in a triangle.

    Never so near that two of one colour would run into one.
    """
    if count == 2:
        size: Size = rng.choices(("", "small", "big"), (80, 10, 10))[0]
        low, high = {"": (0.165, 0.18), "small": (0.14, 0.155), "big": (0.185, 0.195)}[size]
        shapes = [rng.uniform(low, high) for _ in range(2)]
        places = [(x + rng.uniform(-0.01, 0.01), _near(rng, 0.56, 0.07)) for x in (0.25, 0.75)]
        return places, shapes, [size, size]
    if rng.random() < 0.5:
        radii = [rng.uniform(0.115, 0.13) for _ in range(3)]
        row, middle = _near(rng, 0.58, 0.06), rng.choice((-0.1, 0.1)) + rng.uniform(-0.03, 0.03)
        return [(0.16, row), (0.5, row + middle), (0.84, row)], radii, [""] * 3
    radii = [rng.uniform(0.15, 0.165) for _ in range(3)]
    top, bottom = _near(rng, 0.3, 0.02), _near(rng, 0.74, 0.02)
    one, two = (top, bottom) if rng.random() < 0.5 else (bottom, top)
    middle = 0.5 + rng.uniform(-0.04, 0.04)
    return [(0.25, two), (0.75, two), (middle, one)], radii, [""] * 3


def _near(rng: Random, value: float, by: float) -> float:
    return value + rng.uniform(-by, by)
