"""A picture taken back to noise, so that a pipeline's scheduler can come from there again.

DDIM inversion (Song et al., 2021, arXiv 2010.02502, section 4.3): at each step what the model takes
for the picture and for its noise is mixed again, with more of the noise. The model is asked where
a step begins, not where it ends, so that the way back from the noise leads somewhere else, unless
the latents are set back at each step (Ju et al., 2023, arXiv 2310.01506).

What a model is given is `a·z + s·n`, of clean latents `z` and noise `n` of variance 1, with
`a² + s² = 1`; a scheduler may hold it larger by a factor. Axes: C channel · h, w rows and columns
of the latent.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import DDPMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMSchedulerOutput

from heedmap.errors import ModelError
from heedmap.wiring.advice import hushed
from heedmap.wiring.predictions import is_known, level_of
from heedmap.wiring.schedules import first_calls


@dataclass
class NoiseWay:
    """The way of a picture to noise, as far as it was gone.

    Attributes:
        latents: (1, C, h, w), float32, as the pipeline's own scheduler would hold them: of the
            picture, and then with ever more noise.
        scale: by which the pipeline will multiply the latents that it is given.
    """

    latents: list[torch.Tensor]
    scale: float = 1.0

    @property
    def first(self) -> torch.Tensor:
        """What the pipeline is to be given as its first latents, to come from there."""
        return self.latents[-1] / self.scale

    def after(self, steps: int) -> torch.Tensor:
        """The latents after so many steps from the noise."""
        return self.latents[-1 - steps]


@dataclass(frozen=True)
class Level:
    """How much of a picture, and how much noise, is in latents.

    Attributes:
        a: of the picture, where the model is given it.
        s: of the noise; a² + s² = 1.
        factor: how many times as large as for the model a scheduler holds the latents.
        timestep: the model is told.
    """

    a: float
    s: float
    factor: float
    timestep: torch.Tensor


def levels(scheduler: Any) -> list[Level]:
    """The levels at which the steps of a scheduler begin, which is set up and at no step yet.

    Raises:
        ModelError: if the scheduler does not say them.
    """
    found: list[Level] = []
    for call in first_calls(scheduler):
        timestep = scheduler.timesteps[call]
        mixed = level_of(scheduler, timestep, call)
        if mixed is None:
            raise _unknown(scheduler)
        factor = (mixed[0] ** 2 + mixed[1] ** 2) ** 0.5
        found.append(Level(mixed[0] / factor, mixed[1] / factor, factor, timestep))
    return found


class InvertingScheduler(DDPMScheduler):
    """Goes from a picture to noise through the levels of another scheduler; `inverting` makes it.

    A step of another that asks the model more than once is one here.
    """

    own: Any
    """The scheduler whose levels these are."""
    way: NoiseWay
    told: Callable[[int, int], None] | None = None
    """Called after every step with the number of steps done and the number of all."""

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        **more: Any,  # what pipelines of latent consistency models say
    ) -> None:
        """Take the levels of so many steps, from picture to noise."""
        other = deepcopy(self.own)
        other.set_timesteps(num_inference_steps, device=device, **more)
        self.way.scale = float(getattr(other, "init_noise_sigma", 1.0))
        self._levels = levels(other)[::-1]
        # From the picture the first step is taken by what the last one begins with.
        self.timesteps = torch.stack(
            [one.timestep for one in [self._levels[0], *self._levels][:-1]]
        )
        self.num_inference_steps, self._x, self._done = len(self._levels), self.way.latents[0], 0

    def scale_model_input(self, sample: torch.Tensor, timestep: Any = None) -> torch.Tensor:
        """The same: these latents are as the model is given them."""
        return sample

    def step(
        self,
        model_output: torch.Tensor,
        timestep: Any,
        sample: torch.Tensor,
        generator: Any = None,
        return_dict: bool = True,
    ) -> DDPMSchedulerOutput | tuple[torch.Tensor, ...]:
        """The latents with more noise."""
        there = self._levels[self._done]
        here = self._levels[self._done - 1] if self._done else None
        output = model_output.float()[:, : self._x.shape[1]]  # a variance may be learned beside it
        clean, noise = _parted(self.own.config.prediction_type, self._x, output, here, there)
        self._x = there.a * clean + there.s * noise
        self.way.latents.append(self._x * there.factor)
        self._done += 1
        if self.told is not None:
            self.told(self._done, len(self._levels))
        latents = self._x.to(sample.dtype)
        return DDPMSchedulerOutput(prev_sample=latents) if return_dict else (latents, latents)


def _parted(
    kind: str, x: torch.Tensor, output: torch.Tensor, here: Level | None, there: Level
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a model takes for the picture, and for the noise, in latents of a level.

    Without a level they are the picture itself; a model that tells the picture alone is taken to
    mean the noise that it would have where the step leads to.
    """
    a, s = (1.0, 0.0) if here is None else (here.a, here.s)
    if kind == "epsilon":
        return (x - s * output) / a, output
    if kind == "v_prediction":
        return a * x - s * output, s * x + a * output
    a, s = (there.a, there.s) if here is None else (a, s)
    return output, (x - a * output) / s


@contextmanager
def inverting(
    pipe: Any, latents: torch.Tensor, told: Callable[[int, int], None] | None = None
) -> Iterator[NoiseWay]:
    """While this is open a call of a pipeline takes latents back to noise.

    It is called with `latents` as its first latents, without guidance; its own scheduler comes back
    afterwards.

    Args:
        pipe: a pipeline.
        latents: (1, C, h, w) of a picture, as the pipeline has them.
        told: called after every step with the number of steps done and the number of all.

    Yields:
        The way, which is gone when the call is over.

    Raises:
        ModelError: if it is not known what the model's output is.
    """
    own = pipe.scheduler
    if not is_known(own) or own.config.get("use_flow_sigmas"):
        raise _unknown(own)
    with hushed():
        scheduler: Any = InvertingScheduler(
            num_train_timesteps=own.config.get("num_train_timesteps", 1000)
        )
    scheduler.own, scheduler.way, scheduler.told = own, NoiseWay([latents.float()]), told
    pipe.scheduler = scheduler
    try:
        yield scheduler.way
    finally:
        pipe.scheduler = own


def _unknown(scheduler: Any) -> ModelError:
    return ModelError(
        f"{type(scheduler).__name__} does not say how much noise there is at a step, or what its "
        "model tells of it, so no picture can be taken back to noise: expected a model of Stable "
        "Diffusion's kind, with one of its schedulers"
    )
