"""The steps of a running pipeline: its schedule, and the timestep of each pass."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from math import ceil
from typing import Any

import diffusers
import torch
from torch import Tensor

from heedmap.backends.base import replace_method
from heedmap.errors import TraceError

SCHEDULERS = ("scheduler", "low_res_scheduler", "guider")
"""The names of schedulers in a pipeline, and of a modular one's guider, which has a configuration
as they have."""
SAME = 1e-6
"""The relative error of a timestep in float32."""
_RUNGE_KUTTA = 4  # calls of the scheduler in such a step of PNDM (Liu et al., 2022)


def scheduler_class(kind: type, name: str) -> Any:
    """Return the scheduler class of a name: a pipeline's own, or one of diffusers."""
    return kind if kind.__name__ == name else getattr(diffusers, name)


@dataclass(frozen=True)
class SchedulerCall:
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

    def moment(self, call: int) -> SchedulerCall:
        """Return the step of a call, by the call's number from 0."""
        step = self.steps[call]
        return SchedulerCall(step, self.count, step not in self.steps[call + 1 :])


def schedule_of(
    pipe: Any,
    first: float,
    error: float = SAME,
) -> Schedule:
    """Return the schedule of the run that begins with a pass at the timestep `first`.

    The timestep has a relative `error`, by its rounding.
    Image to image begins in the middle of the scheduler's timesteps, and `denoising_end` stops
    before their end.

    Raises:
        TraceError: if the scheduler has no such timestep.
    """
    scheduler = pipe.scheduler
    timesteps = list(map(float, scheduler.timesteps.tolist()))
    # Most pipelines count their calls before each first pass, some before they apply
    # `denoising_end`.
    count = getattr(pipe, "num_timesteps", None) or len(timesteps)
    end = getattr(pipe, "denoising_end", None)
    if isinstance(end, float) and 0 < end < 1:
        cutoff = round(scheduler.config.num_train_timesteps * (1 - end))
        count = min(count, sum(t >= cutoff for t in timesteps))
    starts = [i for i, t in enumerate(timesteps) if _is_same(t, first, error)]
    if not starts:
        raise TraceError(
            f"the model ran at timestep {first:g}, which is not among the {len(timesteps)} of its "
            f"{type(scheduler).__name__}: expected a pipeline that runs with its own scheduler"
        )
    begin = getattr(scheduler, "begin_index", None)
    order = getattr(scheduler, "order", 1)

    # A run begins with a whole step; if timesteps repeat, with the one that leaves `count` calls.
    start = max(
        starts,
        key=lambda i: (i == begin, i % order == 0, i + count == len(timesteps)),
    )
    timesteps = timesteps[start : start + count]
    return Schedule(tuple(timesteps), tuple(call_steps(scheduler, timesteps, start)))


def call_steps(
    scheduler: Any,
    timesteps: Sequence[float],
    start: int = 0,
) -> list[int]:
    """Return the step of each call of a scheduler, which begins with its timestep `start`."""
    order = getattr(scheduler, "order", 1)
    if order > 1:  # Heun, KDPM2, DPM++ SDE: the last step has one call
        return [number // order for number in range(len(timesteps))]
    if not hasattr(scheduler, "prk_timesteps"):
        return list(range(len(timesteps)))
    # PNDM: four calls in a Runge-Kutta step; without such steps its second timestep comes twice,
    # and the first two calls make the first step.
    prk = max(len(scheduler.prk_timesteps) - start, 0)
    is_paired = prk == 0 and timesteps[1:2] == timesteps[2:3]
    steps = [number // _RUNGE_KUTTA for number in range(min(prk, len(timesteps)))]
    first = ceil(prk / _RUNGE_KUTTA)
    others = range(len(timesteps) - len(steps))
    return steps + [first + max(number - is_paired, 0) for number in others]


def _is_same(a: float, b: float, error: float) -> bool:
    return abs(a - b) <= error * max(abs(a), 1.0)


def rounding_of(timesteps: Tensor) -> float:
    """Return the relative error of timesteps, which some pipelines convert to half types."""
    if not timesteps.is_floating_point():
        return SAME
    return max(SAME, 2 * torch.finfo(timesteps.dtype).eps)


class TimestepReader:
    """A reader of the timesteps of passes."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._scheduled: Tensor | None = None
        self._values: dict[int, float] = {}

    def known(self, timesteps: Tensor) -> float | None:
        """Return the timestep of the rows of a pass (B) if it is an element of the scheduler's.

        It is known by its address, without a wait for the device.
        """
        scheduled = self._pipe.scheduler.timesteps
        if scheduled is not self._scheduled:
            self._scheduled = scheduled
            addresses = [one.data_ptr() for one in scheduled]
            self._values = dict(zip(addresses, scheduled.tolist(), strict=True))
        is_one = len(timesteps) == 1 or timesteps.stride(0) == 0
        if not is_one or timesteps.dtype != scheduled.dtype:
            return None
        return self._values.get(timesteps.data_ptr())


def one_timestep(pipe: Any, timesteps: Sequence[float]) -> float:
    """Return the timestep of the rows of a pass; raise a TraceError if they have several."""
    values = {*map(float, timesteps)}
    if len(values) > 1:
        raise TraceError(
            f"{type(pipe).__name__} runs several timesteps in one batch, so the rows of "
            "its model are not the images: expected a pipeline that draws step by step"
        )
    return values.pop()


def matches(
    schedule: Schedule,
    call: int,
    timestep: float,
    error: float = SAME,
) -> bool:
    """Return whether a pass at this timestep can belong to this call of the scheduler."""
    return call < len(schedule.timesteps) and _is_same(
        schedule.timesteps[call], timestep, error
    )


def listen(
    scheduler: Any,
    after: Callable[[Tensor], Tensor],
    before: Callable[..., None] | None = None,
) -> Callable[[], None]:
    """Intercept the calls of a scheduler; return a function that ends it.

    Args:
        scheduler: its method `step` is replaced on the instance.
        after: a function of the latents (B, C, h, w) of each call that returns others or the same.
        before: a function of the scheduler and the arguments of each call.
    """
    step = scheduler.step

    def listening_step(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(scheduler, *args, **kwargs)
        result = step(*args, **kwargs)
        latents = after(result[0])
        if isinstance(result, tuple):
            return (latents, *result[1:])
        result.prev_sample = latents
        return result

    return replace_method(scheduler, "step", listening_step)


@contextmanager
def noise_of_steps(
    scheduler: Any, generators: Sequence[torch.Generator]
) -> Iterator[None]:
    """Let a scheduler take its noise from a call's generators.

    Some pipelines, such as Stable Diffusion 3's, do not pass them on; the scheduler then uses
    torch's global generator, and a seed does not fix the image.
    """
    with ExitStack() as stack:
        if "generator" in signature(scheduler.step).parameters:
            step = partial(scheduler.step, generator=generators)
            stack.callback(replace_method(scheduler, "step", step))
        yield
