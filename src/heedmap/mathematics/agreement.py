"""How far two maps agree: pure functions of arrays, in which only the order of values counts.

A share of attention and a change of a picture have no unit in common; what can be compared is where
each is large. Axes: h, w the maps' grid. Values that are equal share their rank.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from heedmap.checks import alike


def is_even(values: np.ndarray) -> bool:
    """Whether a map is the same everywhere, but for rounding, or holds what is not a number."""
    return alike(float(values.min()), float(values.max()))


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value among all, from 1; equal ones have the mean of theirs.

    Args:
        values: of any shape.

    Returns:
        float64 of the same shape.
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse].reshape(np.shape(values))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Spearman's rank correlation of two maps: 1 where both have one order, -1 where opposite ones.

    It is Pearson's correlation of the ranks (Spearman, 1904), which holds with ties, too.

    Args:
        a: (h, w).
        b: the same of the other map.

    Returns:
        -1 to 1; None where a map is the same everywhere, but for rounding, since it has no order.
    """
    if is_even(a) or is_even(b):
        return None
    one, other = (ranks(each).ravel() for each in (a, b))
    one, other = one - one.mean(), other - other.mean()
    size = float(np.sqrt((one @ one) * (other @ other)))
    return float(np.clip(one @ other / size, -1, 1))


def auc(values: np.ndarray, inside: np.ndarray) -> float | None:
    """The area under the curve of hits over false alarms, of all thresholds of a map.

    That is how often a place inside has more than one outside, of all such pairs; an equal pair
    counts a half (Mann and Whitney, 1947; Hanley and McNeil, 1982). 0.5 is what chance has, and a
    map that is the same everywhere, but for rounding.

    Args:
        values: (h, w).
        inside: bool (h, w), the region that the map shall find.

    Returns:
        0 to 1; None where nothing is inside, or all.
    """
    within = int(inside.sum())
    without = inside.size - within
    if not within or not without:
        return None
    if is_even(values):
        return 0.5
    above = float(ranks(values)[inside].sum()) - within * (within + 1) / 2
    return above / (within * without)


def changed_region(values: np.ndarray) -> np.ndarray:
    """Where a map is high: what Otsu's threshold parts from the rest.

    The threshold after which the two parts' means differ most, by how large they are: the greatest
    variance between the classes (Otsu, 1979), over the values themselves, without a histogram.

    Args:
        values: (h, w).

    Returns:
        bool (h, w); empty where the map is the same everywhere, but for rounding.
    """
    flat = np.sort(values, axis=None).astype(np.float64)
    if is_even(flat):
        return np.zeros(values.shape, dtype=bool)
    count, below = flat.size, np.arange(1, flat.size)
    sums = np.cumsum(flat)
    apart = sums[:-1] / below - (sums[-1] - sums[:-1]) / (count - below)
    # Among equal values it is greatest at an end: a square by what is concave.
    between = below * (count - below) * apart**2
    return values > flat[int(between.argmax())]


def stability(maps: Sequence[np.ndarray]) -> float | None:
    """How far maps of one thing agree with one another: the mean rank correlation of all pairs.

    Args:
        maps: of several noises, each (h, w); those that are the same everywhere do not count.

    Returns:
        -1 to 1; None where there are no two that have an order.
    """
    found = [rank_correlation(a, b) for a, b in combinations(maps, 2)]
    told = [one for one in found if one is not None]
    return sum(told) / len(told) if told else None
