"""The state of a run after each step, for functions that change its latents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from heedmap.backends.schedules import SchedulerCall


@dataclass(frozen=True, eq=False)
class StepState:
    """The state of a run after a call of its scheduler.

    Attributes:
        moment: the call.
        latents: (B, C, h, w), those to go on with.
        predicted: the latents without noise that the model predicted, as these, float32; None
            where the scheduler does not tell them, or steps are not kept.
        current_maps: returns by token the maps (2, h, w) of an image so far, refined and plain.
    """

    moment: SchedulerCall
    latents: Tensor
    predicted: Tensor | None
    current_maps: Callable[[int], Mapping[int, np.ndarray]]

    def strength(self, image: int, tokens: Sequence[int]) -> np.ndarray:
        """Return where tokens are read so far (2, h, w): the sum of refined and plain magnitudes.

        Both are plain in the first part of the run, where no maps are refined.
        """
        maps = [self.current_maps(image)[token] for token in tokens]
        return np.abs(np.stack(maps, axis=-1)).sum(axis=-1)


AfterStep = Callable[[StepState], Tensor]
"""Called after every call of the scheduler; returns the latents to go on with."""
