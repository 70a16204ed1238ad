"""Schedulers that show the model an image of the user's with the noise of each step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch
from diffusers import DDPMScheduler, FlowMatchEulerDiscreteScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMSchedulerOutput
from torch import Tensor

from heedmap.backends.noise_levels import PREDICTIONS
from heedmap.backends.registry import family_of
from heedmap.errors import ModelError


class ImageScheduler:
    """A part of schedulers that give the model one image with fresh noise at each timestep."""

    config: Any
    image: Tensor
    """(1, …), as the pipeline has latents, in float32: half types would round the noise."""
    noise: torch.Generator

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: Any = None,
        sigmas: Any = None,
        timesteps: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        """Divide the timesteps into equal parts, one a step or a sigma, and set their middles."""
        count = int(num_inference_steps or len(sigmas))
        total = int(self.config["num_train_timesteps"])
        self.num_inference_steps = count
        self._levels = [
            self.level(total * (number - 0.5) / count) for number in range(count, 0, -1)
        ]
        self.timesteps = torch.tensor([t for t, _, _ in self._levels], device=device)
        self._call = 0
        self.noised = self._add_noise(self._first)

    def level(
        self,
        timestep: float,
    ) -> tuple[float, float, float]:
        """Return a timestep, and the shares of clean latents and of noise there."""
        raise NotImplementedError

    def start(
        self,
        image: Tensor,
        noise: torch.Generator,
        steps: int,
    ) -> Tensor:
        """Set the image (1, …) and its noise; return the first latents."""
        self.image = image.float()
        self.noise = noise
        self._first = self._draw()  # pipelines call set_timesteps again
        self.set_timesteps(steps)
        return self.noised

    def step(
        self,
        model_output: Tensor,
        timestep: Any,
        sample: Tensor,
        generator: Any = None,
        return_dict: bool = True,
    ) -> DDPMSchedulerOutput | tuple[Tensor, ...]:
        """Return the image with the noise of the next timestep; after the last, without noise."""
        self._call += 1
        if self._call < len(self.timesteps):
            self.noised = self._add_noise(self._draw())
        else:
            self.noised = self.image
        latents = self.noised.to(sample).expand_as(sample)
        if not return_dict:
            return latents, latents
        return DDPMSchedulerOutput(prev_sample=latents)

    def _draw(self) -> Tensor:
        return torch.randn(self.image.shape, generator=self.noise).to(self.image.device)

    def _add_noise(self, noise: Tensor) -> Tensor:
        _, a, s = self._levels[self._call]
        return a * self.image + s * noise


class DiffusedImage(ImageScheduler, DDPMScheduler):  # pyright: ignore[reportIncompatibleMethodOverride]
    """An image with the noise of diffusion, by the betas of a scheduler."""

    def level(
        self,
        timestep: float,
    ) -> tuple[float, float, float]:
        """Return a whole timestep, √ᾱ and √(1 - ᾱ)."""
        whole = int(timestep)
        share = float(self.alphas_cumprod[whole])
        return whole, share**0.5, (1 - share) ** 0.5


class FlowingImage(ImageScheduler, FlowMatchEulerDiscreteScheduler):  # pyright: ignore[reportIncompatibleMethodOverride]
    """An image on its way to noise, as flow matching trains: (1 - σ) · clean + σ · noise."""

    shift_noise: Callable[[Any], Any] = float
    """The function that makes σ of a timestep's share of the schedule."""

    def scale_model_input(self, sample: Tensor, *_: Any) -> Tensor:
        """Return a sample, which Bria's pipeline asks schedulers of other classes to scale."""
        return sample

    def level(
        self,
        timestep: float,
    ) -> tuple[float, float, float]:
        """Return a timestep, 1 - σ and σ, which is that of the timestep unless it is shifted."""
        sigma = self.shift_noise(timestep / self.config["num_train_timesteps"])
        return timestep, 1 - sigma, sigma


@contextmanager
def showing(
    pipe: Any,
    latents: Tensor,
    noise: torch.Generator,
    steps: int,
) -> Iterator[Tensor]:
    """Give a pipeline's model these latents (1, C, h, w) at each step, with fresh noise.

    The noise is that of the training: for flow matching at evenly spaced σ, which no shift of the
    pipeline's scheduler changes, unless a timestep has another σ for each size of the image
    (`Family.noise_shift`); else by the betas of that scheduler. It comes back after the block. The
    first latents for the pipeline's call are yielded, as the pipeline takes them.
    """
    family = family_of(pipe)
    before = pipe.scheduler
    grid = (latents.shape[-2], latents.shape[-1])
    if family.matches_flow:
        count = before.config.get("num_train_timesteps", 1000)
        scheduler = FlowingImage(num_train_timesteps=count)
        shift = family.noise_shift(grid)
        if shift is not None:
            scheduler.shift_noise = partial(before.time_shift, shift, 1.0)
    else:
        scheduler = _diffused_image(before)
    pipe.scheduler = scheduler
    try:
        first = scheduler.start(family.pack(latents), noise, steps)
        yield family.initial(family.unpack(first, grid))
    finally:
        pipe.scheduler = before


def _diffused_image(scheduler: Any) -> DiffusedImage:
    config = scheduler.config
    names = signature(DDPMScheduler.__init__).parameters.keys() & config.keys()
    is_trained_so = "beta_schedule" in names and not config.get("use_flow_sigmas")
    try:
        if not is_trained_so or config.get("prediction_type") not in PREDICTIONS:
            raise NotImplementedError
        # `from_config` would ignore the defaults of the pipeline's own scheduler.
        return DiffusedImage(**{name: config[name] for name in names})
    except NotImplementedError:  # also of an unknown schedule of betas
        raise ModelError(
            f"{type(scheduler).__name__} defines no schedule of betas, as of the noise of the "
            "training: expected a model that is trained with such noise or by flow matching, and "
            "one of its usual schedulers"
        ) from None
