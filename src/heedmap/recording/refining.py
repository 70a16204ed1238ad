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
from heedmap.mathematics.probabilities import affinities
from heedmap.mathematics.rules import steps_within
from heedmap.recording.accumulation import RunningMean, regrid

Item = TypeVar("Item")
PROPAGATION_CELLS = (16, 48)
"""Cells on the short side of the self-attention layers along which maps are propagated: the
coarsest from 16 on, which tell things apart where finer ones tell textures, but none so fine that
it would cost as much as the model. Where there are none, the finest below."""
PROPAGATION_LAYERS = 6
"""The largest number of these layers, evenly taken of those with the grid."""
PROPAGATION_WINDOW = (0.5, 1.0)
"""The part of the run in which maps are propagated."""
PROPAGATION_STEPS = 2
"""The largest number of the steps at which they are, evenly taken of this part.

On the drawn world masks of four steps, of two, and of one are within 0.1 points of each other.
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
    """The mean map of each image, and the image's attention to itself, which refines it.

    Args:
        grid: (h, w) of the layers along which maps are propagated.

    Attributes:
        grid: (h, w) on which they are: that of the layers, or a coarser one.
    """

    def __init__(self, grid: GridShape) -> None:
        self._layer_grid = grid
        self.grid = coarsened(grid)
        # (Q, K), by image and the layers' grid.
        self._plain: defaultdict[int, defaultdict[GridShape, RunningMean]]
        self._plain = defaultdict(lambda: defaultdict(RunningMean))
        # (Q, Q), by image.
        self._affinities: defaultdict[int, RunningMean] = defaultdict(RunningMean)

    def add_maps(
        self,
        image: int,
        grid: GridShape,
        maps: Tensor,
        passes: int,
    ) -> None:
        """Add an image's maps (L, Q, K) in layers of a grid, of steps of `passes` passes."""
        total = maps.sum(dim=0)
        total = total / passes if passes > 1 else total
        self._plain[image][grid].merge(total, len(maps) / passes)

    def add_attention(self, image: int, row: RowAttention, passes: int) -> None:
        """Add a layer of an image's attention to itself, of a step of `passes` passes."""
        query = self._averaged(row.query)
        key = self._averaged(take(row.keys, row.layout.position_keys))
        total = affinities(query, key, scale=row.scale)
        total = total / passes if passes > 1 else total
        self._affinities[image].merge(total, 1 / passes)

    def _averaged(self, states: Tensor) -> Tensor:
        """Return queries or keys (H, Q, d) on the maps' grid."""
        if self.grid == self._layer_grid:
            return states
        planes = states.float().mT.unflatten(-1, self._layer_grid)
        # Five times as fast.
        planes = planes.contiguous(memory_format=torch.channels_last)
        return adaptive_avg_pool2d(planes, self.grid).flatten(-2).mT

    def _mean(self, image: int) -> Tensor:
        """Return the mean map (Q, K) of an image so far."""
        mean = RunningMean()
        for grid, part in self._plain[image].items():
            assert part.total is not None
            mean.merge(regrid(part.total[None], grid, self.grid)[0], part.weight)
        return mean.value()

    def value(self, image: int) -> np.ndarray | None:
        """Return an image's refined maps (h, w, K), float32; None if none was propagated."""
        if image not in self._affinities or image not in self._plain:
            return None
        affinities = self._affinities[image].value()
        # Autocast would use half precision here.
        with torch.autocast(affinities.device.type, enabled=False):
            return self._map(affinities @ self._mean(image))

    def current(self, image: int) -> np.ndarray:
        """Return an image's maps (2, h, w, K) so far: refined, and plain.

        Before maps are propagated both are plain.
        """
        plain = self._map(self._mean(image))
        refined = self.value(image)
        return np.stack([plain if refined is None else refined, plain])

    def _map(self, mean: Tensor) -> np.ndarray:
        return mean.reshape(*self.grid, -1).cpu().numpy()
