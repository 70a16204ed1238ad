"""What pictures are measured by: pure functions of arrays and of what the judge found."""

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from skimage.color import rgb2lab
from skimage.morphology import dilation, footprint_rectangle

from evaluation import judge
from world import layouts, scenes

Figures = dict[str, Any]
MARGIN = 2
"""Cells that a region is wider than its things.

One latent cell (8 pixels, two cells of the judge): the judge gives a cell to a thing from half of
it on, so contours stick out, and the decoder spreads a change of a latent cell over its neighbours.
"""
SPREAD = 10.0
"""How far colours are told apart softly, in units of CIELAB.

The world's colours are at least 25 apart; pink and the light shade of red only 20.
"""


def share(marks: Sequence[bool]) -> float | None:
    """The share of what is true; None of nothing."""
    return round(sum(marks) / len(marks), 4) if marks else None


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return round(statistics.fmean(values), 6) if values else None


# --- places -----------------------------------------------------------------------------------


def cells(things: Iterable[judge.Found]) -> np.ndarray:
    """The cells of all of these things: bool (32, 32)."""
    return np.logical_or.reduce(
        [np.zeros((judge.GRID, judge.GRID), bool), *(t.mask for t in things)]
    )


def widened(mask: np.ndarray, margin: int = MARGIN) -> np.ndarray:
    """A mask (h, w) with all cells that are at most `margin` away from it, corners included."""
    side = 2 * margin + 1
    return dilation(mask, footprint_rectangle((side, side)))


def pixels(mask: np.ndarray) -> np.ndarray:
    """A mask of cells (32, 32) as one of pixels (128, 128)."""
    return mask.repeat(judge.CELL, 0).repeat(judge.CELL, 1)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """The intersection of two masks by their union; 0 where both are empty."""
    return float((a & b).sum() / max((a | b).sum(), 1))


def squared_error(a: np.ndarray, b: np.ndarray, where: np.ndarray) -> float:
    """The mean squared difference of pictures uint8 (h, w, 3) over the pixels `where` (h, w).

    Values count from 0 to 1. Over no pixels it is 0.
    """
    if not where.any():
        return 0.0
    return float(np.square((a.astype(float) - b.astype(float))[where] / 255).mean())


def ratios(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float | None, float | None]:
    """The ratio of the means, and the median of the ratios of those whose whole is not 0."""
    if not sum(wholes):
        return None, None
    each = [part / whole for part, whole in zip(parts, wholes, strict=True) if whole]
    return round(sum(parts) / sum(wholes), 4), round(statistics.median(each), 4)


# --- colours ----------------------------------------------------------------------------------


def colour_share(picture: np.ndarray, where: np.ndarray, colour: str) -> float:
    """How much of the pixels `where` (h, w) of a picture uint8 (h, w, 3) has this colour: 0 to 1.

    Each pixel is shared out among the world's colours by its distance in CIELAB to the nearest of
    their shades (things are painted in a base colour, a darker and a lighter one), as a softmax of
    -d²/2σ² with σ = `SPREAD`. Unlike the chroma in a hue's direction it serves white and pink too,
    and it does not fall where a colour grows fuller than the world's own.
    """
    lab = rgb2lab(picture[where] / 255)  # (pixels, 3)
    far = {name: _distance(lab, name) for name in layouts.COLOURS}
    near = np.stack([-(d**2) / (2 * SPREAD**2) for d in far.values()])
    near = np.exp(near - near.max(axis=0))
    return float((near / near.sum(axis=0))[list(far).index(colour)].mean())


def _distance(lab: np.ndarray, colour: str) -> np.ndarray:
    """From each of the pixels (n, 3) to the nearest shade of a colour."""
    named = scenes.tints(colour)
    painted = np.array([named[name] for name in ("base", "dark", "light")], dtype=float)
    shades = rgb2lab(painted[None] / 255)[0]
    return np.linalg.norm(lab[:, None] - shades, axis=-1).min(axis=1)


# --- rising -----------------------------------------------------------------------------------


def rises(values: Sequence[float], tolerance: float = 0.0) -> bool:
    """Whether a measure goes up all the way.

    Without a tolerance each value is above the one before; with one, none is below the one before
    by more than that, and the last is above the first by more than that.
    """
    if not tolerance:
        return all(a < b for a, b in pairwise(values))
    return values[-1] - values[0] > tolerance and all(
        b >= a - tolerance for a, b in pairwise(values)
    )
