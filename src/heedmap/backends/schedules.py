"""The step of a running pipeline, counted in calls of its scheduler.

A timestep does not identify a step: rounded timesteps repeat where a schedule is dense (Karras and
exponential sigmas, many steps), second-order schedulers have timesteps within a step, and other
pipelines on the same model have their own. So the calls of `scheduler.step` are counted, and their
timesteps are compared with those of the schedule.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import diffusers
import torch

from heedmap.backends.base import replace_method
from heedmap.errors import ModelError, TraceError

SCHEDULERS = ("scheduler", "low_res_scheduler")
"""The names of schedulers in a pipeline."""
_RUNGE_KUTTA = 4  # calls of the scheduler in such a step of PNDM (Liu et al., 2022)


def scheduler_class(kind: type, name: str) -> Any:
    """Return the scheduler class of a name: a pipeline's own, or one of diffusers; None if none."""
    return kind if kind.__name__ == name else getattr(diffusers, name, None)


@dataclass(frozen=True)
class Moment:
    """A call of the scheduler: its step, from 0, of how many, and whether it is the step's last."""

    step: int
    steps: int
    last: bool


@dataclass(frozen=True)
class Schedule:
    """The calls of the scheduler in a run.

    Attributes:
        timesteps: the timestep of each call.
        steps: the step of each call, from 0, without gaps.
    """

    timesteps: tuple[float, ...]
    steps: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return the number of steps."""
        return self.steps[-1] + 1

    def moment(self, call: int) -> Moment:
        """Return the step of a call, by the call's number from 0."""
        step = self.steps[call]
        return Moment(step, self.count, call + 1 == len(self.steps) or self.steps[call + 1] > step)


def announced(pipe: Any, first: float) -> Schedule:
    """Return the schedule of the run that begins with a pass at the timestep `first`.

    Image to image begins in the middle of the scheduler's timesteps, and `denoising_end` stops
    before their end.

    Raises:
        TraceError: if the scheduler has no such timestep.
    """
    scheduler = pipe.scheduler
    every = [float(t) for t in scheduler.timesteps]
    order = int(getattr(scheduler, "order", 1))
    # Most pipelines count their calls before each first pass, some before they apply
    # `denoising_end`.
    count = getattr(pipe, "num_timesteps", None) if hasattr(type(pipe), "num_timesteps") else None
    end = getattr(pipe, "denoising_end", None)
    if isinstance(end, float) and 0 < end < 1:
        cutoff = round(scheduler.config.num_train_timesteps * (1 - end))
        before_end = sum(t >= cutoff for t in every)
        count = before_end if count is None else min(count, before_end)
    starts = [i for i, t in enumerate(every) if _is_same(t, first)]
    begin = getattr(scheduler, "begin_index", None)
    # A run begins with a whole step; if timesteps repeat, with the one that leaves `count` calls.
    whole = [i for i in starts if i % order == 0] or starts
    fitting = [i for i in whole if i + (count or 0) == len(every)]
    start = begin if begin in starts else next(iter(fitting + whole), None)
    if start is None:
        raise TraceError(
            f"the model ran at timestep {first:g}, which is not among the {len(every)} of its "
            f"{type(scheduler).__name__}: expected a pipeline that runs with its own scheduler"
        )
    timesteps = every[start : None if count is None else start + count]
    return Schedule(tuple(timesteps), tuple(_steps(scheduler, start, timesteps)))


def first_calls(scheduler: Any) -> list[int]:
    """Return the numbers of the calls with which the steps of a scheduler begin."""
    steps = _steps(scheduler, 0, [float(t) for t in scheduler.timesteps])
    return [call for call, step in enumerate(steps) if step not in steps[:call]]


def _steps(scheduler: Any, start: int, timesteps: Sequence[float]) -> list[int]:
    """Return the step of each call."""
    order = int(getattr(scheduler, "order", 1))
    if order > 1:  # Heun, KDPM2, DPM++ SDE: the last step has one call
        return [number // order for number in range(len(timesteps))]
    if not hasattr(scheduler, "prk_timesteps"):
        return list(range(len(timesteps)))
    # PNDM: four calls in a Runge-Kutta step; without such steps its second timestep comes twice,
    # and the first two calls make the first step.
    prk = max(len(scheduler.prk_timesteps) - start, 0) if len(scheduler.prk_timesteps) else 0
    steps = [number // _RUNGE_KUTTA for number in range(min(prk, len(timesteps)))]
    step = -(-prk // _RUNGE_KUTTA)
    for number in range(prk, len(timesteps)):
        steps.append(step)
        ahead = timesteps[number + 1 : number + 3]
        step += not (len(ahead) == 2 and ahead[0] == ahead[1] != timesteps[number])
    return steps


def _is_same(a: float, b: float) -> bool:
    """Compare two timesteps to the digits of float32."""
    return abs(a - b) <= 1e-6 * max(abs(a), 1.0)


def matches(schedule: Schedule, call: int, timestep: float) -> bool:
    """Return whether a pass at this timestep can belong to this call of the scheduler."""
    return call < len(schedule.timesteps) and _is_same(schedule.timesteps[call], timestep)


def listen(
    scheduler: Any,
    after: Callable[[torch.Tensor], torch.Tensor],
    before: Callable[..., None] | None = None,
) -> Callable[[], None]:
    """Intercept the calls of a scheduler; return a function that ends it.

    Args:
        scheduler: its method `step` is replaced on the instance.
        after: a function of the latents (B, C, h, w) of each call that returns others or the same.
        before: a function of the scheduler and the arguments of each call.
    """
    step, inside = scheduler.step, False

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
        if isinstance(result, tuple):
            return (latents, *result[1:])
        result.prev_sample = latents
        return result

    return replace_method(scheduler, "step", stepped)


# --- tools that skip layers ---

# How the names of diffusers' hooks begin that skip nothing.
_NOT_SKIPPING = ("group_offloading", "layer_execution", "lazy_prefetch", "layerwise_", "peft_")


def skipping_tools(model: torch.nn.Module, layers: Collection[str]) -> tuple[str, ...]:
    """Return the names of the tools that may skip some layers of a model at some steps.

    Raises:
        ModelError: if FasterCache is among them, which computes attention for a part of a batch.
    """
    tools: dict[str, None] = {}
    for path, module in model.named_modules():
        for hook in getattr(getattr(module, "_diffusers_hook", None), "hooks", ()):
            if hook.startswith("faster_cache"):
                raise ModelError(
                    "FasterCache computes attention for only a part of the batch at some steps: "
                    "call disable_cache() on the model first"
                )
            if not hook.startswith(_NOT_SKIPPING):
                tools[hook] = None
        replaced = _replaced_forward(module)
        if replaced is not None and any(name.startswith(f"{path}.".lstrip(".")) for name in layers):
            tools[getattr(replaced, "__module__", type(replaced).__name__).split(".")[0]] = None
    return tuple(tools)


def check_forwards(layers: Mapping[str, Any]) -> None:
    """Raise a TraceError if the `forward` method of a layer was replaced, as T-GATE does."""
    replaced = [name for name, layer in layers.items() if _replaced_forward(layer) is not None]
    if replaced:
        raise TraceError(
            f"the forward method of {replaced[0]} was replaced, so heedmap cannot see its "
            "attention: undo that (T-GATE and register_attention_control of prompt-to-prompt do it)"
        )


def _replaced_forward(module: torch.nn.Module) -> Any:
    """Return what replaced a module's `forward`; None if nothing did.

    Hooks of accelerate and of diffusers, and compiled modules, call the method itself.
    """
    forward = vars(module).get("forward")
    if forward is None or getattr(forward, "__func__", None) is type(module).forward:
        return None
    known = ("_hf_hook", "_diffusers_hook", "_orig_mod")
    return None if any(hasattr(module, name) for name in known) else forward
