"""Maps that are propagated along the image's attention to itself while a model runs."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from heedmap.backends.base import GridShape
from heedmap.mathematics.events import RowAttention, take
from heedmap.mathematics.probabilities import device_tensor, propagate
from heedmap.mathematics.rules import steps_within
from heedmap.recording.accumulation import RunningMean, max_together, regrid

Item = TypeVar("Item")
PROPAGATION_CELLS = (16, 48)
"""Cells on the short side of the self-attention layers along which maps are propagated: the
coarsest from 16 on, which tell things apart where finer ones tell textures, but none so fine that
it would cost as much as the model. Where there are none, the finest below."""
PROPAGATION_LAYERS = 6
"""The largest number of these layers, evenly taken of those with the grid."""
PROPAGATION_WINDOW = (0.5, 1.0)
"""The part of the run in which maps are propagated."""
PROPAGATION_STEPS = 4
"""The largest number of the steps at which they are, evenly taken of this part.

Masks of all steps of the part and of 3 have an intersection over union of 0.999.
"""


def propagation_layers(
    self_attention: Mapping[str, GridShape],
    cross_attention: Mapping[str, GridShape],
) -> tuple[str, ...]:
    """Return the self-attention layers, of these, along which maps are propagated.

    There are none where all are too fine, or where the cross-attention layers are finer, as in a
    model with self-attention in its middle alone: coarser maps would be no truer.
    """
    least, most = PROPAGATION_CELLS
    grids = {grid for grid in self_attention.values() if min(grid) <= most}
    if not grids:
        return ()
    coarse = sorted(grids, key=sorted)
    best = next((grid for grid in coarse if min(grid) >= least), coarse[-1])
    finest = max(map(min, cross_attention.values()))
    if min(best) < min(least, finest):
        return ()
    names = [name for name, grid in self_attention.items() if grid == best]
    return evenly_chosen(names, PROPAGATION_LAYERS)


def evenly_chosen(items: Sequence[Item], most: int) -> tuple[Item, ...]:
    """Return `most` of these, evenly taken; all of them where there are fewer."""
    count = min(most, len(items))
    return tuple(items[(2 * i + 1) * len(items) // (2 * count)] for i in range(count))


def coarsened(grid: GridShape) -> GridShape:
    """Return a grid divided by the least whole number that makes it coarse enough, rounded up."""
    divisor = math.ceil(min(grid) / PROPAGATION_CELLS[1])
    return math.ceil(grid[0] / divisor), math.ceil(grid[1] / divisor)


@cache
def propagation_steps(steps: int) -> tuple[int, ...]:
    """Return the steps of a run at which maps are propagated; of a single one this."""
    window = steps_within(*PROPAGATION_WINDOW, steps) or (steps - 1,)
    return evenly_chosen(window, PROPAGATION_STEPS)


class RefinedMaps:
    """The mean map of each image, and its means after propagation along self-attention.

    Args:
        grid: (h, w) of the layers along which maps are propagated.

    Attributes:
        grid: (h, w) on which they are: that of the layers, or a coarser one.
    """

    def __init__(self, grid: GridShape) -> None:
        self._layer_grid = grid
        self.grid = coarsened(grid)
        # (Q, K), by image.
        self._plain: defaultdict[int, RunningMean] = defaultdict(RunningMean)
        # Since maps were last asked for, by image and the layers' grid: resized when they are.
        self._recent: defaultdict[int, defaultdict[GridShape, RunningMean]] = (
            defaultdict(lambda: defaultdict(RunningMean))
        )
        self._refined: defaultdict[int, RunningMean] = defaultdict(RunningMean)

    def add(
        self,
        image: int,
        maps: Mapping[GridShape, Sequence[Tensor]],
        order: Mapping[GridShape, Sequence[int]],
        attention: Sequence[tuple[int, RowAttention]],
        passes: int,
    ) -> None:
        """Add an image's maps, and propagate the mean so far along layers between them.

        Args:
            image: its number.
            maps: by grid the maps (L, Q, K) in layers that attend to the text.
            order: by grid the place of each of these layers among all, as they ran.
            attention: layers of the image's attention to itself, each behind the number of those
                above that ran before it.
            passes: the number of the step's passes.
        """
        if not attention:
            for grid, parts in maps.items():
                for part in parts:
                    total = part.sum(dim=0)
                    total = total / passes if passes > 1 else total
                    self._recent[image][grid].merge(total, len(part) / passes)
            return
        plain = self._plain_of(image) or RunningMean()
        number_of_maps = sum(map(len, order.values()))
        weight = plain.weight + number_of_maps / passes
        if not weight:
            return
        layers: list[RowAttention] = []
        # The number of maps in each sum, and its divisor.
        divisors: list[tuple[int, float]] = []
        for count, row in attention:
            divisor = plain.weight + count / passes
            if divisor:  # a map ran before the layer
                layers.append(row)
                divisors.append((count, divisor))
        divisors.append((number_of_maps, 1.0))
        sums: list[Tensor] = []
        if plain.total is not None:
            factors = [1 / divisor for _, divisor in divisors]
            shares = device_tensor(factors, plain.total.dtype, plain.total.device)
            sums.append(shares[:, None, None] * plain.total)
        for grid, parts in maps.items():
            planes = torch.cat([*parts])
            factors = [
                [(place < count) / passes / divisor for place in order[grid]]
                for count, divisor in divisors
            ]
            shares = device_tensor(factors, planes.dtype, planes.device)
            total = torch.tensordot(shares, planes, dims=1)
            sums.append(regrid(total, grid, self.grid))
        means = torch.stack(sums).sum(dim=0)
        if layers:
            refined = self._propagated(layers, means[:-1])
            refined = refined / passes if passes > 1 else refined
            self._refined[image].merge(refined, len(layers) / passes)
        self._plain[image] = RunningMean(means[-1].clone(), weight)

    def _propagated(self, layers: Sequence[RowAttention], means: Tensor) -> Tensor:
        """Return the sum (Q, K) of maps (L, Q, K) propagated along layers."""
        queries = [self._averaged(row.query) for row in layers]
        keys = [
            self._averaged(take(row.keys, row.layout.position_keys)) for row in layers
        ]
        first = queries[0]
        scale = layers[0].scale
        count = len(layers) * first.shape[0] * first.shape[1] ** 2
        kinds = {(row.scale, row.query.shape) for row in layers}
        if len(kinds) == 1 and count <= max_together(first.device.type):
            parts = propagate(
                torch.stack(queries), torch.stack(keys), means, scale=scale
            )
            return parts.sum(dim=0)
        each = zip(queries, keys, means, layers, strict=True)
        parts = [propagate(q, k, m, scale=row.scale) for q, k, m, row in each]
        return torch.stack(parts).sum(dim=0)

    def _plain_of(self, image: int) -> RunningMean | None:
        """Return the mean map of an image so far; None if there is none."""
        for grid, recent in self._recent.pop(image, {}).items():
            assert recent.total is not None
            resized = regrid(recent.total[None], grid, self.grid)[0]
            self._plain[image].merge(resized, recent.weight)
        return self._plain.get(image)

    def _averaged(self, states: Tensor) -> Tensor:
        """Return queries or keys (H, Q, d) on the maps' grid."""
        if self.grid == self._layer_grid:
            return states
        planes = states.float().mT.unflatten(-1, self._layer_grid)
        # Five times as fast.
        planes = planes.contiguous(memory_format=torch.channels_last)
        return adaptive_avg_pool2d(planes, self.grid).flatten(-2).mT

    def value(self, image: int) -> np.ndarray | None:
        """Return an image's refined maps (h, w, K), float32; None if none was propagated."""
        return self._map(self._refined[image]) if image in self._refined else None

    def current(self, image: int) -> np.ndarray:
        """Return an image's maps (2, h, w, K) so far: refined, and plain.

        Before maps are propagated both are plain.
        """
        mean = self._plain_of(image)
        assert mean is not None
        plain = self._map(mean)
        propagated = self.value(image)
        return np.stack([plain if propagated is None else propagated, plain])

    def _map(self, mean: RunningMean) -> np.ndarray:
        return mean.value().reshape(*self.grid, -1).cpu().numpy()
