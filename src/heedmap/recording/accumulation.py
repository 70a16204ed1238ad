"""Sums of attention probabilities while a model runs, and the maps made of them.

`Tallies` keep one sum for each combination of the axes that are kept. The sums of the even and of
the odd steps tell how stable a map is over noises. Refined maps are carried along self-attention.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch.nn.functional import interpolate

from heedmap.backends.base import GridShape
from heedmap.mathematics.probabilities import Scores
from heedmap.mathematics.refining import refined
from heedmap.mathematics.rules import Site, steps_within
from heedmap.options import Axis


class Halves:
    """The sums of both halves of the steps, by image and by the grid of the layers."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int, GridShape], torch.Tensor] = {}  # (Q, K)

    def add(self, image: int, site: Site, p: torch.Tensor) -> None:
        """Take in one image at one site, once a step: its probabilities (H, Q, K)."""
        slot, mean = (image, site.step % 2, site.grid), p.mean(dim=0)  # never `p` itself
        if slot in self._sums:
            self._sums[slot] += mean
        else:
            self._sums[slot] = mean

    def of(self, image: int) -> tuple[dict[GridShape, np.ndarray], ...]:
        """For the even steps of an image and the odd ones, by grid, the sum (Q, K) of its layers.

        To resize is linear: layers of one grid can be added up first. A run of one step has only
        the first.
        """
        both = ({}, {})
        for (whose, half, grid), total in self._sums.items():
            if whose == image:
                both[half][grid] = total.cpu().numpy()
        return tuple(filter(None, both))


Probabilities = Callable[[slice, Sequence[int]], torch.Tensor]
"""From heads and tokens to their probabilities (H', Q, K') in float32, of one image at one site."""


class Tally:
    """Sums of one branch's probabilities by image, layer and step, as far as these are kept.

    Args:
        keep: the axes to keep; the others are averaged.
        positions: for each image the text tokens to take.
        halves: whether the halves of the steps are summed up, too.
    """

    def __init__(
        self, keep: frozenset[Axis], positions: Sequence[tuple[int, ...]], halves: bool = False
    ) -> None:
        self.keep = keep
        self.positions = tuple(positions)
        # By image, layer and step ("" and 0 where those axes are averaged).
        self.halves = Halves() if halves else None
        self._sums: dict[tuple[int, str, int], torch.Tensor] = {}
        self._shares: dict[tuple[int, str, int], float] = {}

    def add(
        self,
        image: int,
        site: Site,
        of: Probabilities,
        heads: int,
        mean_grid: tuple[int, int],
        device: torch.device,
        passes: int = 1,
    ) -> torch.Tensor:
        """Take in one image at one site.

        Args:
            image: its number.
            site: the layer and step.
            of: the probabilities there.
            heads: how many the layer has.
            mean_grid: (h, w) that layers are brought to where they are averaged.
            device: where they are computed.
            passes: how many of the model's passes make the step. A mean is one over steps, and a
                step's the mean of its passes, whatever is kept.

        Returns:
            The probabilities (H, Q, K) of the site on its own grid, or their mean over heads.
        """
        tokens = self.positions[image]
        kept = "head" in self.keep
        p = of(slice(None), tokens) if kept else averaged(of, tokens, heads, device)
        there = p
        if self.halves is not None:
            self.halves.add(image, site, p)
        layer = site.layer if "layer" in self.keep else ""
        if not layer:
            p = regrid(p, site.grid, mean_grid)
        if passes > 1:
            p = p / passes
        slot = (image, layer, site.step if "step" in self.keep else 0)
        if slot not in self._sums:
            self._sums[slot], self._shares[slot] = p, 1 / passes
            return there
        self._sums[slot] += p
        self._shares[slot] += 1 / passes
        return there

    def mean(self, image: int, layer: str, steps: Iterable[int]) -> torch.Tensor:
        """Return the means (S, H, Q, K) of a layer ("" where layers are averaged) at these steps.

        A step at which the layer was skipped holds the layer's mean over the other steps, so that
        the mean over all steps is the same whether or not steps are kept.
        """
        slots = [(image, layer, step) for step in steps]
        means = {
            slot: self._sums[slot] / self._shares[slot] for slot in slots if slot in self._sums
        }
        if len(means) < len(slots):
            mean = torch.stack([*means.values()]).mean(dim=0)
            means |= {slot: mean for slot in slots if slot not in means}
        return torch.stack([means[slot] for slot in slots])


def averaged(
    of: Probabilities, tokens: Sequence[int], heads: int, device: torch.device
) -> torch.Tensor:
    """The mean (1, Q, K) over heads of the probabilities of one image at one site."""
    if device.type != "cpu":
        return of(slice(None), tokens).mean(dim=0, keepdim=True)
    # One head after the other stays in the cache, and no (H, Q, K) tensor is made.
    p = of(slice(0, 1), tokens)
    for head in range(1, heads):
        p += of(slice(head, head + 1), tokens)
    return p.div_(heads)


def unedited(scores: Scores, row: int) -> Probabilities:
    """The probabilities of one row of a batch as they are."""
    return lambda heads, tokens: scores.of(row, heads, tokens)


def regrid(p: torch.Tensor, grid: tuple[int, int], wanted: tuple[int, int]) -> torch.Tensor:
    """(H, Q, K) from the layer's grid to another, so that layers can be averaged."""
    if grid == wanted:
        return p
    heads, _, k = p.shape
    planes = p.permute(0, 2, 1).reshape(heads, k, *grid)
    planes = interpolate(planes, size=wanted, mode="bilinear", antialias=True)
    return planes.reshape(heads, k, -1).permute(0, 2, 1)


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
