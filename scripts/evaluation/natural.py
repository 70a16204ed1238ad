"""Things told without a colour: have they the one that they have by themselves, all over?

A model that was told no colour may mix several, a red wall beside a green one. The judge names the
colour that holds most cells, so patchwork is measured by pixels.
"""

from collections.abc import Sequence
from functools import cache
from random import Random

import numpy as np
from skimage.color import rgb2lab
from skimage.morphology import erosion, footprint_rectangle

from evaluation import judge
from evaluation.measures import Figures, mean, pixels, share
from world import layouts, scenes
from world.sprites import DRAWINGS

NEAR, FAR = 20.0, 14.0
"""A pixel is of a foreign colour within `NEAR` of it and beyond `FAR` of all that the thing has.

In units of CIELAB. The decoder blurs: what lies between two of the thing's own shades is its own.
"""
Seen = tuple[np.ndarray, judge.Judgement, list[tuple[str, str]]]
"""A picture, what the judge saw in it, and the colour and noun of each thing that was told."""


def figures_of(seen: Sequence[Seen]) -> Figures:
    """The figures "no_colour".

    Returns:
        noun_right: share with just the things that were told, whatever their colour.
        natural: share in which they also have their natural colours.
        patchwork: how much of such a thing has another of the world's colours, the mean of all
            things whose noun is there.
    """
    parts = [
        patchwork(picture, thing)
        for picture, said, told in seen
        for thing in said.things
        if thing.noun in {noun for _, noun in told}
    ]
    return {
        "noun_right": share([_nouns(said.kinds) == _nouns(told) for _, said, told in seen]),
        "natural": share([said.kinds == told for _, said, told in seen]),
        "patchwork": mean(parts),
    }


def _nouns(kinds: list[tuple[str, str]]) -> list[str]:
    return sorted(noun for _, noun in kinds)


def patchwork(picture: np.ndarray, thing: judge.Found) -> float:
    """The share of a thing's pixels that have a colour which it has not by nature: 0 to 1.

    Its rim is left out, where its cells hold background too.
    """
    inside = erosion(thing.mask, footprint_rectangle((3, 3)))
    where = pixels(inside if inside.any() else thing.mask)
    lab = rgb2lab(picture[where] / 255)
    own, foreign = _shades(thing.noun)
    near = np.linalg.norm(lab[:, None] - foreign, axis=-1).min(axis=1)
    return float(((near <= NEAR) & (_to_mixtures(lab, own) > FAR)).mean())


@cache
def _shades(noun: str) -> tuple[np.ndarray, np.ndarray]:
    """Its own shades in CIELAB (n, 3), of every part; and those of the colours that it has not."""
    natural = layouts.NATURAL[noun]
    names = {part.shade for part in DRAWINGS[noun](Random(0))} | {"ink"}
    own = [
        (scenes.SHADES | scenes.tints(natural, light))[name]
        for name in sorted(names)
        for light in (0.95, 1.04)
    ]
    others = [
        scenes.tints(colour)[name]
        for colour in layouts.COLOURS
        if colour != natural
        for name in ("base", "dark", "light")
    ]
    lab = [rgb2lab(np.array(shades, dtype=float)[None] / 255)[0] for shades in (own, others)]
    return lab[0], lab[1]


def _to_mixtures(lab: np.ndarray, own: np.ndarray) -> np.ndarray:
    """From each of the pixels (n, 3) to the nearest mixture of two of the shades (m, 3)."""
    first, second = (own[k] for k in np.triu_indices(len(own)))
    along = second - first
    length = np.maximum((along**2).sum(axis=1), 1e-9)
    best = np.full(len(lab), np.inf)
    for start, way, size in zip(first, along, length, strict=True):
        at = np.clip((lab - start) @ way / size, 0, 1)
        best = np.minimum(best, np.linalg.norm(lab - start - at[:, None] * way, axis=1))
    return best
