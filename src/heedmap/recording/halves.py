"""What a picture's words draw in the even steps and in the odd ones, whatever is kept of them.

Where every step has noise of its own, how far the two agree says how stable a map is over noises.
What is kept is two sums a grid of layers, whatever the number of steps.
"""

import numpy as np
import torch

from heedmap.backends.family import GridShape
from heedmap.mathematics.rules import Site


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
