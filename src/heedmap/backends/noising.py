"""Noisy latents of a given image, noise levels, and the model's predictions.

Axes: C channel · h, w rows and columns of the latent.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from diffusers import DDPMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMSchedulerOutput

from heedmap.backends.schedules import first_calls
from heedmap.errors import ModelError, TraceError


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


_ARGUMENTS = ("model_output", "timestep", "sample")
"""What every scheduler's step is given first."""


def predicted(scheduler: Any, *args: Any, **kwargs: Any) -> torch.Tensor | None:
    """The clean latents (B, C, h, w), float32, that a model's output foretells.

    The scheduler and what it holds are as they were, to the bit.

    Args:
        scheduler: about to take a step.
        args: of its method `step`, that are about to be given to it.
        kwargs: the same, by name.

    Returns:
        None where the output is not one of those above: schedulers that prepare what a model is
        given and gives (EDM), flows, and others that say no kind of prediction.
    """
    given = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
    kind = getattr(scheduler.config, "prediction_type", None)
    known = kind in ("epsilon", "sample", "v_prediction")
    if not known or hasattr(scheduler, "precondition_outputs") or {*_ARGUMENTS} - {*given}:
        return None
    mixed = level_of(scheduler, given["timestep"])
    if mixed is None:
        return None
    x = given["sample"].float()
    output = given["model_output"].float()[:, : x.shape[1]]  # a variance may be learned beside it
    if kind == "sample":
        return output
    a, s = mixed
    if kind == "epsilon":
        return None if a == 0 else (x - s * output) / a
    whole = (
        a * a + s * s
    ) ** 0.5  # 1, or larger where the scheduler scales what the model is given
    return (a / whole) * (x / whole) - (s / whole) * output


def level_of(scheduler: Any, timestep: Any, call: int = 0) -> tuple[float, float] | None:
    """How much of clean latents and of noise is in what a scheduler is given.

    Args:
        scheduler: at a step, or set up and at none yet.
        timestep: that it is given.
        call: the number of that call; where the scheduler is at a step, its own count says.

    Returns:
        None where it cannot be asked.
    """
    if not hasattr(scheduler, "add_noise"):
        return None
    other = copy(scheduler)  # some move a table of theirs to the device of what they are given
    if hasattr(other, "set_begin_index") and hasattr(other, "step_index"):
        other.set_begin_index(call)  # then a count says where it is: rounded timesteps repeat
    if hasattr(other, "_sigma_to_alpha_sigma_t"):  # SASolver steps by it, and adds noise otherwise
        at = call if other.step_index is None else other.step_index
        a, s = other._sigma_to_alpha_sigma_t(other.sigmas[at])
        return float(a), float(s)
    clean = torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)
    now = torch.as_tensor(timestep).detach().cpu().reshape(1).expand(2)
    a, s = other.add_noise(clean, clean.flip(0), now).flatten().tolist()
    return a, s


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
