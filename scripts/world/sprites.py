"""The things of the drawn world: each noun as a few shapes in its box.

Nothing here is random except for what the given generator decides.
"""

import math
from collections.abc import Callable, Sequence
from random import Random

from world.shapes import INSET, Part, box, curve, ellipse, mirrored, polygon, stroke


def _eye(x: float, y: float, size: float = 0.1) -> list[Part]:
    return [
        ellipse("eyewhite", x, y, size, size * 1.15, **INSET),
        ellipse("ink", x, y + size * 0.1, size * 0.55, size * 0.65, contour=False),
    ]


def cat(rng: Random) -> list[Part]:
    """A cat that sits and looks at you."""
    tail = rng.uniform(0.8, 0.95)
    return [
        stroke("base", 0.2, (0.3, 0.85), (0.65, 0.8), (tail, 0.5), (0.78, 0.15), (0.92, 0.0)),
        ellipse("base", 0.0, 0.52, 0.5, 0.46),
        ellipse("light", 0.0, 0.6, 0.26, 0.32, contour=False),
        polygon("base", (-0.6, -0.4), (-0.58, -0.98), (-0.08, -0.7)),
        polygon("base", (0.6, -0.4), (0.58, -0.98), (0.08, -0.7)),
        polygon("blush", (-0.48, -0.6), (-0.47, -0.82), (-0.28, -0.7), contour=False),
        polygon("blush", (0.48, -0.6), (0.47, -0.82), (0.28, -0.7), contour=False),
        ellipse("base", 0.0, -0.3, 0.64, 0.5, inner=True),
        *_eye(-0.26, -0.36, 0.13),
        *_eye(0.26, -0.36, 0.13),
        polygon("ink", (-0.09, -0.16), (0.09, -0.16), (0.0, -0.06), contour=False),
        stroke("ink", 0.05, (-0.3, -0.06), (-0.72, -0.12), contour=False),
        stroke("ink", 0.05, (0.3, -0.06), (0.72, -0.12), contour=False),
        ellipse("base", -0.2, 0.9, 0.2, 0.1, inner=True),
        ellipse("base", 0.2, 0.9, 0.2, 0.1, inner=True),
    ]


def dog(rng: Random) -> list[Part]:
    """A dog from the side, tail up."""
    wag = rng.uniform(-0.08, 0.1)
    return [
        stroke("base", 0.18, (-0.65, 0.15), (-0.85, -0.1), (-0.88 + wag, -0.45)),
        box("dark", -0.52, 0.4, -0.32, 0.92),
        box("dark", 0.22, 0.4, 0.42, 0.92),
        box("base", -0.72, 0.3, -0.5, 0.95),
        box("base", 0.36, 0.3, 0.58, 0.95),
        curve(
            "base", (-0.78, 0.1), (-0.3, -0.06), (0.4, -0.1), (0.66, 0.2), (0.4, 0.52), (-0.5, 0.54)
        ),
        ellipse("base", 0.48, -0.38, 0.38, 0.36, inner=True),
        ellipse("light", 0.76, -0.22, 0.24, 0.19, inner=True),
        ellipse("ink", 0.92, -0.3, 0.09, 0.08),
        curve(
            "dark",
            (0.18, -0.72),
            (0.38, -0.66),
            (0.36, -0.2),
            (0.16, 0.0),
            (0.05, -0.25),
            inner=True,
        ),
        *_eye(0.55, -0.46, 0.1),
        stroke("red", 0.12, (0.3, 0.0), (0.48, 0.04), (0.66, -0.02), contour=False),
    ]


def fish(rng: Random) -> list[Part]:
    """A fish that swims to the right."""
    fork = rng.uniform(0.42, 0.55)
    return [
        polygon("dark", (-0.45, 0.0), (-0.98, -fork), (-0.82, 0.0), (-0.98, fork)),
        curve("dark", (-0.3, -0.35), (0.0, -0.78), (0.35, -0.42)),
        curve("dark", (-0.1, 0.4), (0.0, 0.75), (0.25, 0.42)),
        ellipse("base", 0.18, 0.0, 0.76, 0.52),
        curve(
            "light",
            (0.72, 0.28),
            (0.3, 0.34),
            (-0.3, 0.2),
            (0.2, 0.48),
            (0.55, 0.42),
            contour=False,
        ),
        stroke("dark", 0.1, (0.16, -0.46), (0.06, 0.0), (0.16, 0.46), contour=False),
        stroke("dark", 0.1, (-0.18, -0.4), (-0.28, 0.0), (-0.18, 0.4), contour=False),
        *_eye(0.56, -0.14, 0.14),
        stroke("ink", 0.06, (0.92, 0.12), (0.74, 0.2), contour=False),
    ]


def snail(rng: Random) -> list[Part]:
    """A snail; the shell bears the colour."""
    lift = rng.uniform(-0.08, 0.08)
    spiral = [
        (-0.18 + r * math.cos(a), -0.02 + r * math.sin(a))
        for r, a in ((0.44 - 0.028 * k, 0.9 + 0.72 * k) for k in range(15))
    ]
    return [
        curve(
            "cream",
            (-0.95, 0.86),
            (-0.4, 0.55),
            (0.3, 0.6),
            (0.5, 0.2),
            (0.62, -0.2),
            (0.9, -0.15),
            (0.92, 0.3),
            (0.72, 0.86),
        ),
        stroke("cream", 0.1, (0.68, -0.1), (0.56, -0.62 + lift)),
        stroke("cream", 0.1, (0.82, -0.1), (0.88, -0.62 - lift)),
        ellipse("ink", 0.56, -0.66 + lift, 0.1, 0.1),
        ellipse("ink", 0.88, -0.66 - lift, 0.1, 0.1),
        ellipse("base", -0.18, 0.02, 0.66, 0.64, inner=True),
        stroke("dark", 0.13, *spiral, contour=False),
        stroke("ink", 0.06, (0.72, 0.2), (0.84, 0.2), contour=False),
    ]


def butterfly(rng: Random) -> list[Part]:
    """A butterfly with four wings."""
    open_ = rng.uniform(0.94, 1.0)
    wings = []
    for side in (-1, 1):
        s = side * open_
        wings += [
            curve(
                "base",
                (s * 0.06, -0.05),
                (s * 0.5, -0.8),
                (s * 0.95, -0.72),
                (s * 0.86, -0.1),
                (s * 0.4, 0.1),
            ),
            curve(
                "dark",
                (s * 0.06, 0.02),
                (s * 0.66, 0.08),
                (s * 0.78, 0.55),
                (s * 0.42, 0.85),
                (s * 0.12, 0.4),
            ),
            ellipse("light", s * 0.62, -0.42, 0.17, 0.2, contour=False),
            ellipse("light", s * 0.46, 0.42, 0.12, 0.14, contour=False),
            stroke("ink", 0.06, (0.0, -0.4), (s * 0.14, -0.72), (s * 0.3, -0.9), contour=False),
        ]
    return [*wings, ellipse("ink", 0.0, 0.0, 0.1, 0.52)]


def house(rng: Random) -> list[Part]:
    """A house with a roof, a door and a window."""
    door = rng.choice((-1, 1)) * 0.32
    return [
        box("brick", 0.36, -0.88, 0.6, -0.3),
        box("base", -0.74, -0.15, 0.74, 0.92),
        polygon("roof", (-0.98, -0.1), (0.0, -0.95), (0.98, -0.1), inner=True),
        box("wood", door - 0.19, 0.32, door + 0.19, 0.92, **INSET),
        box("window", -door - 0.22, 0.18, -door + 0.22, 0.58, **INSET),
        stroke("ink", 0.05, (-door, 0.18), (-door, 0.58), contour=False),
        stroke("ink", 0.05, (-door - 0.22, 0.38), (-door + 0.22, 0.38), contour=False),
    ]


def car(rng: Random) -> list[Part]:
    """A small car from the side."""
    nose = rng.uniform(0.14, 0.2)
    return [
        curve(
            "base",
            (-0.62, 0.05),
            (-0.5, -0.4),
            (-0.2, -0.58),
            (0.25, -0.55),
            (0.5, -0.15),
            (0.62, 0.1),
        ),
        polygon("window", (-0.42, -0.06), (-0.32, -0.36), (-0.06, -0.42), (-0.06, -0.06), **INSET),
        polygon("window", (0.06, -0.06), (0.06, -0.42), (0.24, -0.38), (0.42, -0.06), **INSET),
        curve(
            "base",
            (-0.95, 0.38),
            (-0.88, -0.02),
            (-0.2, -0.04),
            (0.55, -0.02),
            (0.92, nose),
            (0.95, 0.42),
            (0.0, 0.46),
        ),
        box("dark", -0.9, 0.3, 0.92, 0.42, contour=False),
        ellipse("eyewhite", 0.86, 0.2, 0.08, 0.08, **INSET),
        *(
            part
            for x in (-0.5, 0.52)
            for part in (
                ellipse("tyre", x, 0.46, 0.27, 0.27),
                ellipse("metal", x, 0.46, 0.12, 0.12, contour=False),
            )
        ),
    ]


def boat(rng: Random) -> list[Part]:
    """A sailing boat; hull and sails bear the colour."""
    swell = rng.uniform(0.1, 0.24)
    return [
        box("wood", -0.06, -0.95, 0.06, 0.45),
        curve("light", (0.12, -0.85), (0.55 + swell, -0.2), (0.8, 0.26), (0.12, 0.28), steps=4),
        polygon("light", (-0.14, -0.6), (-0.14, 0.28), (-0.72, 0.28)),
        polygon("base", (-0.98, 0.38), (0.98, 0.38), (0.66, 0.92), (-0.66, 0.92)),
        box("dark", -0.86, 0.48, 0.86, 0.6, contour=False),
    ]


def balloon(rng: Random) -> list[Part]:
    """A hot-air balloon."""
    stripe = rng.uniform(0.16, 0.22)
    return [
        stroke("ink", 0.05, (-0.4, 0.2), (-0.16, 0.66), contour=False),
        stroke("ink", 0.05, (0.4, 0.2), (0.16, 0.66), contour=False),
        curve(
            "base", *mirrored((0.0, -0.97), (0.6, -0.72), (0.74, -0.2), (0.42, 0.25), (0.2, 0.44))
        ),
        ellipse("light", 0.0, -0.27, stripe, 0.66, contour=False),
        stroke("dark", 0.09, (-0.72, -0.2), (0.0, -0.08), (0.72, -0.2), contour=False),
        box("wood", -0.22, 0.62, 0.22, 0.95),
        stroke("ink", 0.04, (-0.2, 0.76), (0.2, 0.76), contour=False),
    ]


def rocket(rng: Random) -> list[Part]:
    """A rocket with fins and a flame."""
    flame = rng.uniform(0.85, 0.98)
    return [
        curve("flame", (-0.2, 0.55), (0.0, flame), (0.2, 0.55), steps=4),
        curve("dark", (-0.26, 0.1), (-0.72, 0.46), (-0.68, 0.8), (-0.22, 0.56)),
        curve("dark", (0.26, 0.1), (0.72, 0.46), (0.68, 0.8), (0.22, 0.56)),
        curve("base", *mirrored((0.0, -0.98), (0.3, -0.55), (0.38, 0.0), (0.26, 0.58))),
        curve("dark", *mirrored((0.0, -0.96), (0.22, -0.66), (0.25, -0.55)), contour=False),
        ellipse("window", 0.0, -0.12, 0.19, 0.19, **INSET),
    ]


def tree(rng: Random) -> list[Part]:
    """A leafy tree; the crown bears the colour."""
    lean = rng.uniform(-0.06, 0.06)
    return [
        polygon("wood", (-0.14, 0.2), (0.14, 0.2), (0.22, 0.95), (-0.22, 0.95)),
        ellipse("base", -0.45, 0.0, 0.44, 0.38),
        ellipse("base", 0.45, 0.0, 0.44, 0.38),
        ellipse("base", lean, -0.42, 0.58, 0.52),
        ellipse("base", 0.0, 0.05, 0.5, 0.36, contour=False),
        ellipse("light", -0.2 + lean, -0.55, 0.2, 0.15, contour=False),
        ellipse("dark", 0.4, 0.1, 0.2, 0.12, contour=False),
        ellipse("dark", -0.3, 0.12, 0.16, 0.1, contour=False),
    ]


def flower(rng: Random) -> list[Part]:
    """A flower; the petals bear the colour."""
    turn = rng.uniform(0.0, 0.5)
    petals = []
    for k in range(6):
        a = turn + k * math.pi / 3
        petals.append(
            ellipse(
                "base", 0.42 * math.cos(a), -0.34 + 0.42 * math.sin(a), 0.3, 0.22, a, inner=True
            )
        )
    return [
        box("leaf", -0.06, -0.2, 0.06, 0.95),
        ellipse("leaf", -0.32, 0.66, 0.3, 0.13, 0.5),
        ellipse("leaf", 0.32, 0.6, 0.3, 0.13, -0.5),
        *petals,
        ellipse("sun", 0.0, -0.34, 0.22, 0.22, inner=True),
    ]


def mushroom(rng: Random) -> list[Part]:
    """A mushroom with dots on its cap."""
    dx = rng.uniform(-0.06, 0.06)
    return [
        curve(
            "cream",
            (-0.24, -0.1),
            (0.24, -0.1),
            (0.34, 0.7),
            (0.26, 0.94),
            (-0.26, 0.94),
            (-0.34, 0.7),
        ),
        curve(
            "base",
            (-0.94, 0.1),
            (-0.72, -0.52),
            (0.0, -0.92),
            (0.72, -0.52),
            (0.94, 0.1),
            (0.4, 0.22),
            (-0.4, 0.22),
        ),
        ellipse("spot", -0.42 + dx, -0.28, 0.17, 0.14, contour=False),
        ellipse("spot", 0.1 + dx, -0.56, 0.19, 0.14, contour=False),
        ellipse("spot", 0.46 + dx, -0.16, 0.16, 0.13, contour=False),
    ]


def cactus(rng: Random) -> list[Part]:
    """A cactus in a pot."""
    high = rng.uniform(-0.1, 0.1)
    return [
        stroke("base", 0.26, (0.2, 0.2), (0.62, 0.16), (0.68, 0.0), (0.68, -0.4 + high)),
        ellipse("base", 0.68, -0.4 + high, 0.13, 0.13),
        stroke("base", 0.26, (-0.2, 0.05), (-0.62, 0.0), (-0.68, -0.12), (-0.68, -0.45 - high)),
        ellipse("base", -0.68, -0.45 - high, 0.13, 0.13),
        curve("base", (-0.3, 0.6), (-0.3, -0.5), (0.0, -0.95), (0.3, -0.5), (0.3, 0.6)),
        stroke("dark", 0.07, (-0.12, 0.5), (-0.12, -0.55), contour=False),
        stroke("dark", 0.07, (0.12, 0.5), (0.12, -0.55), contour=False),
        polygon("brick", (-0.5, 0.45), (0.5, 0.45), (0.38, 0.95), (-0.38, 0.95), inner=True),
        box("brick", -0.58, 0.4, 0.58, 0.58, inner=True),
    ]


_ANIMALS = (cat, dog, fish, snail, butterfly)
_MADE = (house, car, boat, balloon, rocket)
_PLANTS = (tree, flower, mushroom, cactus)
DRAWINGS: dict[str, Callable[[Random], Sequence[Part]]] = {
    draw.__name__: draw for draw in (*_ANIMALS, *_MADE, *_PLANTS)
}
"""By noun; their order is that in which a seed chooses."""
