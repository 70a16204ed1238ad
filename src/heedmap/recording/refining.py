"""The word maps of one branch, refined by self-attention while a run goes on.

The maps so far (the mean over layers, steps and heads) are carried along the attention of the
picture to itself in layers of one middle grid, in the later part of the run, where the picture has
its shapes. What is kept is two sums an image, whatever the number of steps.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from heedmap.backends.family import GridShape
from heedmap.mathematics.probabilities import Scores
from heedmap.mathematics.refining import refined
from heedmap.mathematics.windows import steps_within
from heedmap.recording.tallies import regrid

CARRYING = (16, 48)
"""Cells on the short side of the layers that carry: the coarsest from 16 on, which tell things
apart where finer ones tell textures, but none so fine that it would cost as much as the model.
Where there are none, the finest below."""
LAYERS = 6
"""As many layers carry at most, evenly taken of those with the grid."""
WINDOW = (0.5, 1.0)
"""The part of the run in which they do."""


def middle_grid(grids: Iterable[GridShape]) -> GridShape | None:
    """The grid (h, w) whose layers carry, of all these; None where all are too fine."""
    least, most = CARRYING
    there = {grid for grid in grids if min(grid) <= most}
    fine = {grid for grid in there if min(grid) >= least}
    if fine:
        return min(fine, key=_size)
    return max(there, key=_size, default=None)


def carriers(own: Mapping[str, GridShape], cross: Mapping[str, GridShape]) -> tuple[str, ...]:
    """The self-attention layers that carry; maybe none.

    Args:
        own: all of them, with their grids (h, w).
        cross: the layers that read the prompt, with theirs. Where the text acts on a finer grid,
            as in a model with self-attention in its middle alone, coarser maps would be no truer.
    """
    best = middle_grid(own.values())
    if best is None:
        return ()
    if min(best) < min(CARRYING[0], max(map(min, cross.values()))):
        return ()
    found = [name for name, grid in own.items() if grid == best]
    count = min(LAYERS, len(found))
    return tuple(found[(2 * i + 1) * len(found) // (2 * count)] for i in range(count))


class Refiner:
    """The refined maps of each image of one branch.

    Args:
        grid: (h, w) of the layers that carry.
    """

    def __init__(self, grid: GridShape) -> None:
        self.grid = grid
        self._drawn: dict[int, torch.Tensor] = {}  # by image, the sum of P: (Q, K) on the grid
        self._heard: dict[int, float] = {}
        self._carried: dict[int, torch.Tensor] = {}
        self._shares: dict[int, float] = {}

    def hear(self, image: int, p: torch.Tensor, grid: GridShape, passes: int) -> None:
        """Take in what the words draw in a cross-attention layer.

        Args:
            image: its number.
            p: (H, Q, K), of one head or several.
            grid: (h, w) of the layer.
            passes: how many of the model's passes make the step.
        """
        p = regrid(p.mean(dim=0, keepdim=True), grid, self.grid)[0] / passes
        self._drawn[image] = self._drawn[image] + p if image in self._drawn else p
        self._heard[image] = self._heard.get(image, 0.0) + 1 / passes

    def carry(self, image: int, scores: Scores, row: int, passes: int) -> None:
        """Carry the maps so far along a self-attention layer's row of the batch."""
        if image not in self._drawn:
            return
        so_far = self._drawn[image] / self._heard[image]
        made = refined(scores.query[row], scores.key[row], so_far, scale=scores.scale) / passes
        self._carried[image] = self._carried[image] + made if image in self._carried else made
        self._shares[image] = self._shares.get(image, 0.0) + 1 / passes

    def mean(self, image: int) -> np.ndarray | None:
        """The refined maps (h, w, K) of an image, float32; None where nothing was carried."""
        if image not in self._carried:
            return None
        return (self._carried[image] / self._shares[image]).reshape(*self.grid, -1).cpu().numpy()

    def plain(self, image: int) -> np.ndarray:
        """The maps (h, w, K) of an image that are carried, as far as the run has come, float32."""
        return (self._drawn[image] / self._heard[image]).reshape(*self.grid, -1).cpu().numpy()


def carries(step: int, steps: int) -> bool:
    """Whether a step is in the part of the run in which layers carry."""
    return step in steps_within(*WINDOW, steps) or step == steps - 1  # of one step that one


def _size(grid: GridShape) -> tuple[int, int]:
    return min(grid), max(grid)
