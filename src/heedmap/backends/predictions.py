"""What a denoiser takes the picture to be at a step: its prediction of the clean latents.

A scheduler is given latents `x = a·z + s·n` with clean `z` and noise `n` of variance 1, and the
model's output, which is a prediction of `n`, of `z`, or of the velocity between the two. `a` and
`s` are asked of the scheduler's own arithmetic, so that nothing here counts as it does.

Axes: B image · C channel · h, w rows and columns of the latent.
"""

from copy import copy
from typing import Any

import torch

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
