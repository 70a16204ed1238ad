"""The noise levels of latents at a timestep, and the latents without noise."""

from copy import copy, deepcopy
from typing import Any

import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
)
from torch import Tensor

from heedmap.backends.registry import family_of
from heedmap.backends.schedules import call_steps
from heedmap.errors import ModelError

PREDICTIONS = ("epsilon", "sample", "v_prediction")
"""The predictions of models of diffusion: of the noise, of the clean latents, of both."""
_FLOWS = (FlowMatchEulerDiscreteScheduler, FlowMatchHeunDiscreteScheduler)
_STEP_ARGUMENTS = ("model_output", "timestep", "sample")


def noise_levels(pipe: Any, steps: int) -> tuple[list[tuple[float, float]], float]:
    """Return the noise levels of a run.

    Returns:
        (a, s) of the latents a · clean + s · noise at the beginning of each step, and (1, 0) at the
        end of the last one; and the pipeline's factor for the first latents that it is given.

    Raises:
        ModelError: if the scheduler does not define them.
    """
    scheduler = deepcopy(pipe.scheduler)
    unknown = ModelError(
        f"{type(scheduler).__name__} does not define how much noise there is at a step: expected "
        f"one of the usual schedulers of {type(pipe).__name__}"
    )
    # The pipeline shifts them by the size.
    if scheduler.config.get("use_dynamic_shifting"):
        raise unknown
    scheduler.set_timesteps(steps)
    steps_of_calls = call_steps(scheduler, scheduler.timesteps.tolist())
    levels: list[tuple[float, float]] = []
    for step in range(steps_of_calls[-1] + 1):
        call = steps_of_calls.index(step)  # its first
        try:
            level = level_of(scheduler, scheduler.timesteps[call], call)
        except (NotImplementedError, IndexError):
            level = None  # some have the method without a use for it
        if level is None:
            raise unknown
        levels.append(level)
    return [*levels, (1.0, 0.0)], float(getattr(scheduler, "init_noise_sigma", 1.0))


def is_flow(pipe: Any) -> bool:
    """Return whether a pipeline follows a flow from noise to image, without noise on the way."""
    scheduler = pipe.scheduler
    config = scheduler.config
    is_noisy = config.get("stochastic_sampling") or config.get("invert_sigmas")
    is_flow_scheduler = isinstance(scheduler, _FLOWS) and not is_noisy
    return is_flow_scheduler and family_of(pipe).matches_flow


def flow_level(scheduler: Any) -> tuple[float, float]:
    """Return the noise level (1 − σ, σ) of the latents that a running flow has just made.

    They are (1 − σ) · clean + σ · noise. A pipeline sets σ by the size of the image when it runs,
    and begins with noise alone.
    """
    sigma = float(scheduler.sigmas[scheduler.step_index])
    return 1 - sigma, sigma


def predicted(scheduler: Any, *args: Any, **kwargs: Any) -> Tensor | None:
    """Return the clean latents (B, C, h, w), float32, that a model's output predicts.

    The arguments are those of the scheduler's next step; the scheduler stays as it is. The result
    is None for schedulers that precondition the model (EDM), flows, and other predictions.
    """
    arguments = dict(zip(_STEP_ARGUMENTS, args, strict=False)) | kwargs
    kind = getattr(scheduler.config, "prediction_type", None)
    if kind not in PREDICTIONS or hasattr(scheduler, "precondition_outputs"):
        return None
    level = level_of(scheduler, arguments["timestep"])
    if level is None:
        return None
    x = arguments["sample"].float()
    # A learned variance may follow.
    output = arguments["model_output"].float()[:, : x.shape[1]]
    if kind == "sample":
        return output
    a, s = level
    if kind == "epsilon":
        return (x - s * output) / a if a else None
    square = a * a + s * s  # above 1 if the scheduler scales the model's input
    return a / square * x - s / square**0.5 * output


def level_of(
    scheduler: Any,
    timestep: Any,
    call: int = 0,
) -> tuple[float, float] | None:
    """Return the shares (a, s) of clean latents and of noise at a timestep; None if unknown.

    A scheduler that is at no step yet needs the number of the call.
    """
    if not hasattr(scheduler, "add_noise"):
        return None
    # Some move a table of theirs to the device of what they are given.
    other = copy(scheduler)
    if hasattr(other, "set_begin_index"):
        # Rounded timesteps repeat, so it must go by this count.
        other.set_begin_index(call)
    # SASolver adds noise otherwise than it steps.
    if hasattr(other, "_sigma_to_alpha_sigma_t"):
        at = call if other.step_index is None else other.step_index
        a, s = other._sigma_to_alpha_sigma_t(other.sigmas[at])
        return float(a), float(s)
    clean = torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)
    now = torch.as_tensor(timestep).cpu().reshape(1).expand(2)
    a, s = other.add_noise(clean, clean.flip(0), now).flatten().tolist()
    return a, s
