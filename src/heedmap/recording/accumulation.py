"""Sums of attention probabilities while a model runs.

Axes: H head · Q position (Q = h·w, row-major) · K token.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from heedmap.backends.base import GridShape
from heedmap.mathematics.events import RowAttention
from heedmap.mathematics.rules import Site
from heedmap.options import Axis

CACHED = 2**18
"""The largest number of probabilities that a CPU computes together: 1 MiB, which stay in the
cache."""


def shares_of_text(p: Tensor) -> Tensor:
    """Return probabilities (…, K) of all of the text's tokens by their sum.

    Those of negative weights count by their magnitude; where all are 0, the shares are 0.
    """
    total = p.abs().sum(dim=-1, keepdim=True)
    return p / total.clamp_min(torch.finfo(p.dtype).tiny)


def head_mean(p: Tensor) -> Tensor:
    """Return the mean over heads (…, 1, Q, K) of probabilities (…, H, Q, K).

    To go along the memory is five times as fast.
    """
    if p.stride(-1) == 1:
        return p.mean(dim=-3, keepdim=True)
    return p.mT.mean(dim=-3, keepdim=True).mT


def mean_over_heads(row: RowAttention, tokens: Sequence[int]) -> Tensor:
    """Return the mean over heads (1, Q, K') of probabilities of tokens."""
    heads, positions, _ = row.query.shape
    size = heads * positions * len(tokens)
    if row.query.device.type != "cpu" or size <= CACHED:
        return head_mean(row.probabilities(tokens))
    # One head after the other stays in the cache, and no (H, Q, K) tensor is made.
    total = row.probabilities(tokens, slice(0, 1))
    for head in range(1, heads):
        total += row.probabilities(tokens, slice(head, head + 1))
    return total.div_(heads)


@dataclass(eq=False)
class RunningMean:
    """A mean over steps; the passes of one step share its weight."""

    total: Tensor | None = None
    weight: float = 0.0

    def merge(self, total: Tensor, weight: float) -> None:
        """Add a sum of parts with the sum of their weights."""
        self.total = total.clone() if self.total is None else self.total.add_(total)
        self.weight += weight

    def value(self) -> Tensor:
        """Return the mean, a new tensor; something must have been added."""
        assert self.total is not None
        return self.total / self.weight


class AttentionAccumulator:
    """Means of one branch's probabilities: one for each combination of the axes kept.

    Args:
        keep: the axes to keep; the others are averaged.
        mean_grid: (h, w) to which layers are resized where they are averaged.
    """

    def __init__(self, keep: frozenset[Axis], mean_grid: GridShape) -> None:
        self.keep = keep
        self.mean_grid = mean_grid
        # Means (L, H, Q, K) by image, layers and step (0 where steps are averaged).
        self._means: defaultdict[tuple[int, tuple[str, ...], int], RunningMean] = (
            defaultdict(RunningMean)
        )

    def add(
        self,
        image: int,
        sites: Sequence[Sequence[Site]],
        p: Tensor,
        passes: int = 1,
    ) -> None:
        """Add an image's probabilities (N, H, Q, K) in layers of one grid.

        Args:
            image: its number.
            sites: the layers of each pass of the model, N in all.
            p: the probabilities, pass by pass.
            passes: the number of the passes of a step.
        """
        names = [tuple(site.layer for site in part) for part in sites]
        if len(names) > 1 and "step" not in self.keep and len({*names}) == 1:
            total = p.unflatten(0, (len(names), -1)).sum(dim=0)
            self._add(image, sites[0], total, len(names) / passes, passes)
            return
        parts = p.split([len(part) for part in names]) if len(names) > 1 else [p]
        for part, values in zip(sites, parts, strict=True):
            self._add(image, part, values, 1 / passes, passes)

    def _add(
        self,
        image: int,
        sites: Sequence[Site],
        p: Tensor,
        weight: float,
        passes: int,
    ) -> None:
        """Add a sum (L, H, Q, K) of passes, whose number is `weight` times that of a step."""
        step = sites[0].step if "step" in self.keep else 0
        names = ("",)
        if "layer" in self.keep:
            names = tuple(site.layer for site in sites)
        else:
            weight = weight * len(p)
            p = regrid(p.sum(dim=0), sites[0].grid, self.mean_grid)[None]
        p = p / passes if passes > 1 else p
        self._means[image, names, step].merge(p, weight)

    def mean(self, image: int, layer: str, steps: Iterable[int]) -> Tensor:
        """Return the means (S, H, Q, K) of a layer ("" where layers are averaged) at these steps.

        A step at which the layer was skipped has the layer's mean over the other steps, so that
        the mean over all steps does not depend on whether steps are kept.
        """
        steps = tuple(steps)
        totals: dict[int, Tensor] = {}
        weights: defaultdict[int, float] = defaultdict(float)
        for (number, names, step), mean in self._means.items():
            if number == image and layer in names and step in steps:
                assert mean.total is not None
                part = mean.total[names.index(layer)]
                totals[step] = totals[step] + part if step in totals else part
                weights[step] += mean.weight
        means = {step: totals[step] / weights[step] for step in totals}
        if len(means) < len(steps):
            mean = torch.stack([*means.values()]).mean(dim=0)
            means = {step: means.get(step, mean) for step in steps}
        return torch.stack([means[step] for step in steps])


def regrid(p: Tensor, grid: GridShape, wanted: GridShape) -> Tensor:
    """Return (H, Q, K) on another grid; the tensor itself where the grids are equal."""
    if grid == wanted:
        return p
    heads, _, k = p.shape
    planes = p.permute(0, 2, 1).reshape(heads, k, *grid)
    planes = interpolate(planes, size=wanted, mode="bilinear", antialias=True)
    return planes.reshape(heads, k, -1).permute(0, 2, 1)
