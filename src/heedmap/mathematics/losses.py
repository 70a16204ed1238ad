"""Losses of the attention maps of words, 0 to 1: pure functions of tensors with their graph."""

import math

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

_LEAST = 1e-12  # below which a map is zero


def absence(
    part: Tensor,
    whole: Tensor,
) -> Tensor:
    """Return 1 less the largest share of a map in another, each averaged over 3×3 positions.

    A single hot position draws nothing, so neighbours count (Chefer et al., 2023, who blur).

    Args:
        part: (h, w), the map of a word.
        whole: (h, w), the sum of the maps of all words.
    """
    pair = torch.stack([part, whole])[:, None]
    near = avg_pool2d(pair, 3, 1, 1, count_include_pad=False)[:, 0]
    share = near[0] / near[1].clamp_min(_LEAST)
    return 1 - share.amax()


def outside(
    part: Tensor,
    region: Tensor,
) -> Tensor:
    """Return the share of a map (h, w) that is outside of a region (H, W), 0 to 1."""
    inside = interpolate(region[None, None], size=part.shape, mode="area")[0, 0]
    total = part.sum().clamp_min(_LEAST)
    return 1 - (part * inside).sum() / total


def divergence(
    first: Tensor,
    second: Tensor,
) -> Tensor:
    """Return the Jensen-Shannon divergence of two maps (h, w) as distributions over positions.

    It is 0 if one is a multiple of the other, and 1 if they do not overlap.
    """
    p = first / first.sum().clamp_min(_LEAST)
    q = second / second.sum().clamp_min(_LEAST)
    mean = (p + q) / 2
    total = sum(
        torch.xlogy(one, one.clamp_min(_LEAST) / mean.clamp_min(_LEAST)).sum()
        for one in (p, q)
    )
    assert isinstance(total, Tensor)
    return total / (2 * math.log(2))
