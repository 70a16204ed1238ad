"""Masks of the things in a picture of the drawn world, by its pixels alone.

The judge says which things there are and in which of its cells; here each pixel near the edge of
these is given to a thing or to the background, by its colour and by where it lies. No attention and
nothing of the model under test takes part, so maps of pictures that it drew can be held against
these masks (`truth.drawn`).
"""

from collections.abc import Sequence

import numpy as np
import torch
from skimage.color import rgb2lab
from skimage.measure import label
from skimage.morphology import dilation, erosion, footprint_rectangle

from evaluation import measures
from evaluation.judge import Found
from world import scenes

INNER, OUTER = 11, 11
"""The sides of squares: pixels are surely a thing's where all of such a square is, and surely the
background's where nothing of one is. What lies between is asked."""
CLOSE = 2.0
"""How much a pixel's distance counts: as much as so many units of CIELAB."""


def masks(picture: np.ndarray, things: Sequence[Found]) -> np.ndarray:
    """The pixels of things that the judge found in a picture.

    What is asked goes to whom the nearest sure pixel belongs to, in colour and place; the contour,
    which has a colour of its own, to the thing whose cells are nearest to it. Of a thing is then
    what hangs together with its sure pixels, and what that encloses.

    Args:
        picture: uint8 (128, 128, 3).
        things: N of them, as `judge.detect` has them.

    Returns:
        bool (N, 128, 128); no pixel is of two things but where one encloses another.
    """
    if not things:
        return np.zeros((0, *picture.shape[:2]), bool)
    cells = [measures.pixels(thing.mask) for thing in things]
    sure = [_within(one) for one in cells]
    rest = ~dilation(np.logical_or.reduce(cells), footprint_rectangle((OUTER, OUTER)))
    asked = ~rest & ~np.logical_or.reduce(sure)
    told = _told(rgb2lab(picture / 255))
    far = [_distance(told[asked], told[rest])]
    for thing, own, inside in zip(things, cells, sure, strict=True):
        ink = rgb2lab(np.array([[scenes.tints(thing.colour)["ink"]]]) / 255)
        contour = _told(np.broadcast_to(ink, picture.shape))
        nearest = np.minimum(
            _distance(told[asked], told[inside]), _distance(told[asked], contour[own])
        )
        far.append(nearest)
    owner = np.argmin(far, axis=0)
    made = np.array(sure)
    made[:, asked] = owner == np.arange(1, len(things) + 1)[:, None]
    return np.array([_whole(one, inside) for one, inside in zip(made, sure, strict=True)])


def _within(cells: np.ndarray) -> np.ndarray:
    """A thing's sure pixels; of one as narrow as a cell, all that the judge gives to it."""
    inside = erosion(np.pad(cells, INNER, mode="edge"), footprint_rectangle((INNER, INNER)))
    inside = inside[INNER:-INNER, INNER:-INNER]
    return inside if inside.any() else cells


def _told(lab: np.ndarray) -> np.ndarray:
    """Colour and place of each pixel, in units of CIELAB: (h, w, 5)."""
    rows, columns = np.indices(lab.shape[:2])
    return np.dstack([lab, CLOSE * rows, CLOSE * columns])


def _distance(points: np.ndarray, to: np.ndarray) -> np.ndarray:
    """From each of the points (n, 5) to the nearest of others (m, 5); without any, infinity."""
    if not len(to) or not len(points):
        return np.full(len(points), np.inf)
    near, others = torch.from_numpy(points).float(), torch.from_numpy(to).float()
    return torch.cdist(near, others).amin(dim=1).numpy()


def _whole(mask: np.ndarray, sure: np.ndarray) -> np.ndarray:
    """What hangs together with sure pixels, corners included, and what that encloses."""
    pieces = np.asarray(label(mask, connectivity=2))
    held = np.isin(pieces, np.unique(pieces[sure & mask])) & mask
    outside = np.asarray(label(np.pad(~held, 1, constant_values=True), connectivity=1))
    return outside[1:-1, 1:-1] != outside[0, 0]
