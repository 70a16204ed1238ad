"""What is in a scene of the drawn world: its things, where they lie, its setting; from a seed.

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

UNSEEN_PAIRS = frozenset(
    {("red", "cactus"), ("blue", "mushroom"), ("green", "cat"), ("yellow", "boat")}
)
"""Colours and nouns that never meet in training, in any scene."""
HELD_OUT_SEED = 1_000_000_000
"""Training draws seeds below this number, evaluation from it on."""


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
