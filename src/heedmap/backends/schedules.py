"""At which step a pipeline is, counted in calls of its scheduler.

A timestep is no name for a step: rounded ones repeat where a schedule is dense (Karras and
exponential sigmas, many steps), second-order schedulers see a step's middle, and other pipelines on
the same model have their own. So the calls of `scheduler.step` are counted, and of the timesteps it
is only checked that they are those that the schedule announced.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import diffusers
import torch

from heedmap.backends.active_calls import put
from heedmap.errors import ModelError, TraceError

SCHEDULERS = ("scheduler", "low_res_scheduler")
"""What they are called in a pipeline."""
PRK = 4
"""Calls of the scheduler that a Runge-Kutta step of PNDM takes (Liu et al., 2022)."""


def scheduler_class(own: type, name: str) -> Any:
    """Return the scheduler class of a name: a pipeline's own, or one of diffusers; None if none."""
    return own if own.__name__ == name else getattr(diffusers, name, None)


@dataclass(frozen=True)
class Moment:
    """A call of the scheduler: its step, from 0, of how many, and whether it is the step's last."""

    step: int
    steps: int
    last: bool


@dataclass(frozen=True)
class Schedule:
    """The calls of the scheduler that a run is going to make.

    Attributes:
        timesteps: of each call.
        steps: the number of the step that each call belongs to, from 0, none left out.
    """

    timesteps: tuple[float, ...]
    steps: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many steps the run has."""
        return self.steps[-1] + 1

    def moment(self, call: int) -> Moment:
        """What a call of the scheduler is, by its number from 0."""
        step = self.steps[call]
        return Moment(step, self.count, call + 1 == len(self.steps) or self.steps[call + 1] > step)


def announced(pipe: Any, first: float) -> Schedule:
    """The schedule of the run that a pipeline is about to begin.

    Image to image begins in the middle of the scheduler's timesteps, `denoising_end` stops before
    their end; what is counted is what this run does.

    Args:
        pipe: the pipeline, its scheduler set up.
        first: the timestep of its first pass.

    Raises:
        TraceError: if the scheduler has no such timestep.
    """
    scheduler = pipe.scheduler
    every = [float(t) for t in scheduler.timesteps]
    order = int(getattr(scheduler, "order", 1))
    # Most pipelines say how many calls they make, anew before each first pass; some say it before
    # they leave out those past `denoising_end`.
    own = getattr(pipe, "num_timesteps", None) if hasattr(type(pipe), "num_timesteps") else None
    end = getattr(pipe, "denoising_end", None)
    if isinstance(end, float) and 0 < end < 1:
        cutoff = round(scheduler.config.num_train_timesteps * (1 - end))
        kept = [t for t in every if t >= cutoff]
        own = len(kept) if own is None else min(own, len(kept))
    begin = getattr(scheduler, "begin_index", None)
    starts = [i for i, t in enumerate(every) if _same(t, first)]
    if begin in starts:
        start = begin
    else:
        # A run begins with a whole step; of repeated timesteps at the one that leaves the rest.
        whole = [i for i in starts if i % order == 0] or starts
        start = next(
            (i for i in whole if i + (own or 0) == len(every)), whole[0] if whole else None
        )
    if start is None:
        raise TraceError(
            f"the model was given the timestep {first:g}, which {type(scheduler).__name__} has not "
            f"among its {len(every)}: expected the pipeline of this trace to run with its own "
            "scheduler"
        )
    timesteps = every[start : None if own is None else start + own]
    return Schedule(tuple(timesteps), tuple(_steps(scheduler, start, timesteps)))


def first_calls(scheduler: Any) -> list[int]:
    """The numbers of the calls with which the steps of a scheduler begin, which is set up."""
    steps = _steps(scheduler, 0, [float(t) for t in scheduler.timesteps])
    return [call for call, step in enumerate(steps) if step not in steps[:call]]


def _steps(scheduler: Any, start: int, timesteps: Sequence[float]) -> list[int]:
    """The step that each call belongs to."""
    order = int(getattr(scheduler, "order", 1))
    if order > 1:  # Heun, KDPM2, DPM++ SDE: the last step has one call alone
        return [number // order for number in range(len(timesteps))]
    if not hasattr(scheduler, "prk_timesteps"):
        return list(range(len(timesteps)))
    # PNDM: four calls a Runge-Kutta step; where these are left out, its second timestep comes twice
    # and the first two calls make the first step.
    prk = max(len(scheduler.prk_timesteps) - start, 0) if len(scheduler.prk_timesteps) else 0
    steps, step = [number // PRK for number in range(min(prk, len(timesteps)))], -(-prk // PRK)
    for number in range(prk, len(timesteps)):
        steps.append(step)
        ahead = timesteps[number + 1 : number + 3]
        step += not (len(ahead) == 2 and ahead[0] == ahead[1] != timesteps[number])
    return steps


def _same(a: float, b: float) -> bool:
    """Whether two numbers are one timestep, to the digits of float32."""
    return abs(a - b) <= 1e-6 * max(abs(a), 1.0)


def matches(schedule: Schedule, call: int, timestep: float) -> bool:
    """Whether a pass at this timestep can belong to this call of the scheduler."""
    return call < len(schedule.timesteps) and _same(schedule.timesteps[call], timestep)


def listen(
    scheduler: Any,
    after: Callable[[torch.Tensor], torch.Tensor],
    before: Callable[..., None] | None = None,
) -> Callable[[], None]:
    """Call `after` with the latents that come out of every call of a scheduler.

    Args:
        scheduler: its method `step` is replaced on the instance.
        after: from the latents (B, C, h, w) to those to go on with.
        before: called before, with the scheduler and what its method is about to be given.

    Returns:
        A function that puts the method back.
    """
    step, inside = scheduler.step, False

    @wraps(step)  # pipelines ask the method for its signature
    def stepped(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:  # a scheduler that calls itself makes one step
            return step(*args, **kwargs)
        if before is not None:
            before(scheduler, *args, **kwargs)
        inside = True
        try:
            result = step(*args, **kwargs)
        finally:
            inside = False
        latents = after(result[0])
        if latents is result[0]:
            return result
        if isinstance(result, tuple):
            return (latents, *result[1:])
        result.prev_sample = latents
        return result

    return put(scheduler, "step", stepped)


UNRELATED = ("group_offloading", "layer_execution", "lazy_prefetch", "layerwise_", "peft_autocast")
"""How the names of those of diffusers' hooks begin that skip nothing."""


def skipping_tools(model: torch.nn.Module, layers: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the tools that may skip layers of a model at some steps.

    Args:
        model: the denoiser.
        layers: the dotted paths of its text cross-attention layers.

    Raises:
        ModelError: if FasterCache is among them, which computes attention for a part of a batch.
    """
    parents = {path for name in layers for path in _parents(name)}
    found: dict[str, None] = {}
    for path, module in model.named_modules():
        for hook in getattr(getattr(module, "_diffusers_hook", None), "hooks", ()):
            if hook.startswith("faster_cache"):
                raise ModelError(
                    "FasterCache computes attention for only a part of the batch at some steps and "
                    "estimates the rest, so there is nothing to record for these images: call "
                    "disable_cache() on the model first"
                )
            if not hook.startswith(UNRELATED):
                found[hook] = None
        if path in parents and (replaced := replaced_forward(module)) is not None:
            found[getattr(replaced, "__module__", type(replaced).__name__).split(".")[0]] = None
    return tuple(found)


def check_forwards(layers: Mapping[str, Any]) -> None:
    """Raise a TraceError if some layers' own `forward` was replaced, as T-GATE does."""
    replaced = [name for name, layer in layers.items() if replaced_forward(layer) is not None]
    if replaced:
        raise TraceError(
            f"the forward method of {len(replaced)} of {len(layers)} cross-attention layers was "
            f"replaced (such as {replaced[0]}), so heedmap cannot see their attention: undo what "
            "replaced it (T-GATE and register_attention_control of prompt-to-prompt do)"
        )


def replaced_forward(module: torch.nn.Module) -> Any:
    """Return what somebody put in the place of a module's `forward`; None if nobody did.

    Hooks of accelerate and of diffusers, and compiled modules, call the method itself.
    """
    forward = vars(module).get("forward")
    if forward is None or getattr(forward, "__func__", None) is type(module).forward:
        return None
    known = ("_hf_hook", "_diffusers_hook", "_orig_mod")
    return None if any(hasattr(module, name) for name in known) else forward


def _parents(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts))]
