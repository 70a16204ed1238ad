"""Agreement of two maps by the order of their values: pure functions of arrays.

A share of attention and a change of an image have no unit in common, but both have places where
they are large. Equal values share their rank. Axes: h, w the grid of the maps.
"""

import numpy as np

from heedmap.checks import alike


def is_even(values: np.ndarray) -> bool:
    """Tell whether a map is constant but for rounding, or holds NaN."""
    return alike(float(values.min()), float(values.max()))


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value among all, from 1, float64; equal ones have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse].reshape(np.shape(values))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Return Spearman's rank correlation of two maps (h, w): Pearson's of their ranks.

    Returns:
        1 for the same order to -1 for the opposite one; None if a map is constant but for rounding.
    """
    if is_even(a) or is_even(b):
        return None
    one, other = (ranks(each).ravel() for each in (a, b))
    one, other = one - one.mean(), other - other.mean()
    size = float(np.sqrt((one @ one) * (other @ other)))
    return float(np.clip(one @ other / size, -1, 1))


def auc(values: np.ndarray, inside: np.ndarray) -> float | None:
    """Return the area under the ROC curve of a map that shall find a region.

    This is the share of pairs of a place inside and one outside in which the one inside has more;
    an equal pair counts a half (Mann and Whitney, 1947; Hanley and McNeil, 1982). Chance, and a map
    that is constant but for rounding, have 0.5.

    Args:
        values: (h, w).
        inside: bool (h, w), the region.

    Returns:
        0 to 1; None if nothing is inside, or all.
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
    """Return the places where a map is above Otsu's threshold.

    The threshold has the greatest variance between the classes (Otsu, 1979), over the values
    themselves, without a histogram.

    Args:
        values: (h, w).

    Returns:
        bool (h, w); empty if the map is constant but for rounding.
    """
    flat = np.sort(values, axis=None).astype(np.float64)
    if is_even(flat):
        return np.zeros(values.shape, dtype=bool)
    count, below = flat.size, np.arange(1, flat.size)
    sums = np.cumsum(flat)
    distance = sums[:-1] / below - (sums[-1] - sums[:-1]) / (count - below)
    # Among equal values it is greatest at an end: a square of a concave function.
    variance = below * (count - below) * distance**2
    return values > flat[int(variance.argmax())]
