"""How noisy the latents are at each step of a scheduler.

Latents that a scheduler holds are `a·z + s·n`, of clean latents `z` and noise `n` of variance 1.
`a` and `s` are asked of its own arithmetic, so that nothing here counts as it does.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch

from heedmap.backends.predictions import level_of
from heedmap.backends.schedules import first_calls
from heedmap.errors import ModelError


@dataclass(frozen=True)
class NoiseLevels:
    """The levels of a run.

    Attributes:
        mixed: (a, s) where each step begins, and (1, 0) where the last one ends.
        scale: by which the pipeline multiplies the first latents that it is given.
    """

    mixed: tuple[tuple[float, float], ...]
    scale: float

    def at(self, step: int, clean: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Clean latents with noise as the scheduler holds them where a step begins."""
        a, s = self.mixed[step]
        return a * clean + s * noise


def noise_levels(pipe: Any, steps: int) -> NoiseLevels:
    """The levels of a run of so many steps; the pipeline's scheduler is left as it is.

    Raises:
        ModelError: if its scheduler does not tell them.
    """
    scheduler = deepcopy(pipe.scheduler)
    scheduler.set_timesteps(steps)
    found: list[tuple[float, float]] = []
    for call in first_calls(scheduler):
        try:
            mixed = level_of(scheduler, scheduler.timesteps[call], call)
        except (NotImplementedError, IndexError):  # some have the method, and no use for it
            mixed = None
        if mixed is None:
            raise ModelError(
                f"{type(scheduler).__name__} does not say how much noise there is at a step, so no "
                "picture can be given to it in the place of noise: expected one of the schedulers "
                "of Stable Diffusion"
            )
        found.append(mixed)
    scale = float(getattr(scheduler, "init_noise_sigma", 1.0))
    return NoiseLevels((*found, (1.0, 0.0)), scale)
