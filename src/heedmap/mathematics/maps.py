"""Agreement of two maps by the order of their values, and maps refined by the edges of an image.

A share of attention and a change of an image have no unit in common, but both have places where
they are large. Equal values share their rank. Axes: h, w the grid of the maps.
"""

import numpy as np

from heedmap.checks import alike

SMOOTH = 1e-3
"""The variance of colours (0 to 1) below which an image guides nothing.

Chosen on the drawn world; a tenth of it is a point better there, and worse on images with grain.
"""
_FINE = 6  # least radius in pixels at which the filter subsamples


def is_even(values: np.ndarray) -> bool:
    """Return whether a map is constant but for rounding, or holds NaN."""
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
    """Return the area under the ROC curve of a map as a classifier of a region.

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


def guided(picture: np.ndarray, maps: np.ndarray, radius: int) -> np.ndarray:
    """Move the edges of maps to the edges of an image near them, by a guided filter.

    Around each pixel a map is taken for a linear function of the colours (He, Sun and Tang, *Guided
    Image Filtering*, TPAMI 2013; large images are subsampled after He and Sun, arXiv 1505.00996).
    Where the colours say nothing it is smoothed. The result of a half turn of the inputs is a half
    turn of the result.

    Args:
        picture: uint8 (H, W, 3).
        maps: (N, H, W), 0 to 1.
        radius: pixels on each side that are looked at; as far as the maps are blurred.

    Returns:
        float32 (N, H, W), 0 to 1.
    """
    import torch  # maps are compared without it
    from kornia.filters import guided_blur

    guide = torch.tensor(picture).movedim(-1, 0)[None].float() / 255
    values = torch.tensor(maps, dtype=torch.float32)[None]
    radius = min(radius, (min(picture.shape[:2]) - 1) // 2)  # a window fits into the image
    if radius < 1:
        return values[0].numpy()
    coarse = max(1, radius // _FINE)
    result = guided_blur(guide, values, 2 * radius + 1, SMOOTH, subsample=coarse)
    if coarse > 1:
        # Subsampling takes the first pixel of each square, which moves a map by half a square. The
        # turned inputs move it back; linear functions of the colours keep their mean.
        around, back = guide.flip(-2, -1), values.flip(-2, -1)
        other = guided_blur(around, back, 2 * radius + 1, SMOOTH, subsample=coarse)
        result = (result + other.flip(-2, -1)) / 2
    return result[0].clamp(0, 1).numpy()
