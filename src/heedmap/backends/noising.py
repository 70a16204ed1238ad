"""A picture that is given to a model with noise, in the place of what the model draws.

Axes: C channel · h, w rows and columns of the latent.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from diffusers import DDPMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMSchedulerOutput

from heedmap.errors import ModelError, TraceError

_KINDS = ("epsilon", "sample", "v_prediction")
_BETAS = ("num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "prediction_type")


class PictureScheduler(DDPMScheduler):
    """Goes through the timesteps of training, and shows the same picture at each with fresh noise.

    What the model makes of it changes nothing. It is made by `showing`, which gives it the picture.
    """

    picture: torch.Tensor
    """(1, C, h, w), as the pipeline has latents, in float32: half types would round the noise."""
    noise: torch.Generator
    first: torch.Tensor
    """The noise of the first step, as the picture."""

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        timesteps: list[int] | None = None,
        **more: Any,  # what pipelines of latent consistency models say
    ) -> None:
        """Take the middles of so many equal parts of the timesteps, from noise to picture."""
        count, every = int(num_inference_steps or 1), int(self.config["num_train_timesteps"])
        self.num_inference_steps, self.custom_timesteps = count, False
        parts = [every * (2 * (count - n) - 1) // (2 * count) for n in range(count)]
        self.timesteps = torch.tensor(parts, device=device)
        self.shown, self._call = self._noised(0), 0

    def scale_model_input(self, sample: torch.Tensor, timestep: int | None = None) -> torch.Tensor:
        """The same: what the model was trained on is not scaled."""
        return sample

    def step(
        self,
        model_output: torch.Tensor,
        timestep: int,
        sample: torch.Tensor,
        generator: Any = None,
        return_dict: bool = True,
    ) -> DDPMSchedulerOutput | tuple[torch.Tensor, ...]:
        """The picture at the next timestep; after the last the picture itself.

        Raises:
            TraceError: if the pipeline had something else than the picture.
        """
        if not torch.equal(sample, self.shown.to(sample).expand_as(sample)):
            raise TraceError(
                "the model was not given the picture: expected a pipeline that hands its latents "
                "from step to step as they are"
            )
        self._call += 1
        over = self._call == len(self.timesteps)
        self.shown = self.picture if over else self._noised(self._call)
        latents = self.shown.to(sample).expand_as(sample)
        return DDPMSchedulerOutput(prev_sample=latents) if return_dict else (latents, latents)

    def fresh(self) -> torch.Tensor:
        """Noise as the picture is, from the CPU."""
        noise = torch.randn(self.picture.shape, generator=self.noise)
        return noise.to(self.picture.device)

    def _noised(self, call: int) -> torch.Tensor:
        fresh = self.first if call == 0 else self.fresh()
        kept = float(self.alphas_cumprod[int(self.timesteps[call])])
        return kept**0.5 * self.picture + (1 - kept) ** 0.5 * fresh


@contextmanager
def showing(
    pipe: Any, latents: torch.Tensor, noise: torch.Generator, steps: int
) -> Iterator[torch.Tensor]:
    """While this is open a pipeline's model sees these latents, noised step after step.

    The noise is that of the training: the schedule of betas of the pipeline's own scheduler, which
    comes back afterwards.

    Args:
        pipe: a pipeline.
        latents: (1, C, h, w), as the pipeline has them.
        noise: on the CPU.
        steps: how often.

    Yields:
        What the pipeline is to be given as its first latents, (1, C, h, w).

    Raises:
        ModelError: if the model was not trained on such noise.
    """
    own = pipe.scheduler
    scheduler = _scheduler(own)
    scheduler.picture, scheduler.noise = latents.float(), noise
    scheduler.first = scheduler.fresh()
    scheduler.set_timesteps(steps)
    pipe.scheduler = scheduler
    try:
        yield scheduler.shown
    finally:
        pipe.scheduler = own


def _scheduler(own: Any) -> PictureScheduler:
    """A scheduler with the schedule of betas of another."""
    config = own.config
    known = all(name in config for name in _BETAS) and config.prediction_type in _KINDS
    if known and not config.get("use_flow_sigmas"):
        # `from_config` leaves out what a scheduler had by default, and takes the other's defaults.
        taken = signature(DDPMScheduler.__init__).parameters
        try:
            return PictureScheduler(**{name: config[name] for name in taken if name in config})
        except NotImplementedError:  # a schedule of betas by a name that it does not know
            pass
    raise ModelError(
        f"{type(own).__name__} says no schedule of betas, so what noise the model was trained on "
        "is not known: expected a model of Stable Diffusion's kind, with one of its schedulers"
    )
