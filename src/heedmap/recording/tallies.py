"""Means of attention probabilities, taken while a run goes on; only the kept axes take memory."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch.nn.functional import interpolate

from heedmap.mathematics.probabilities import Scores
from heedmap.mathematics.rules import Site
from heedmap.options import Axis
from heedmap.recording.halves import Halves

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
