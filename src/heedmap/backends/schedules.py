"""The steps of a running pipeline: its schedule, and the timestep of each pass."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import diffusers
import torch
from torch import Tensor

from heedmap.backends.base import replace_method
from heedmap.errors import TraceError

SCHEDULERS = ("scheduler", "low_res_scheduler")
"""The names of schedulers in a pipeline."""


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
        return SchedulerCall(
            step, self.count, call + 1 == len(self.steps) or self.steps[call + 1] > step
        )


def schedule_of(pipe: Any, first: float, error: float = SAME) -> Schedule:
    """Return the schedule of the run that begins with a pass at the timestep `first`.

    The timestep has a relative `error`, by its rounding.
    Image to image begins in the middle of the scheduler's timesteps, and `denoising_end` stops
    before their end.

    Raises:
        TraceError: if the scheduler has no such timestep.
    """
    scheduler = pipe.scheduler
    every = list(map(float, scheduler.timesteps.tolist()))
    order = int(getattr(scheduler, "order", 1))
    # Most pipelines count their calls before each first pass, some before they apply
    # `denoising_end`.
    count = (
        getattr(pipe, "num_timesteps", None)
        if hasattr(type(pipe), "num_timesteps")
        else None
    )
    end = getattr(pipe, "denoising_end", None)
    if isinstance(end, float) and 0 < end < 1:
        cutoff = round(scheduler.config.num_train_timesteps * (1 - end))
        before_end = sum(t >= cutoff for t in every)
        count = before_end if count is None else min(count, before_end)
    starts = [i for i, t in enumerate(every) if _is_same(t, first, error)]
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


def _steps(scheduler: Any, start: int, timesteps: Sequence[float]) -> list[int]:
    order = int(getattr(scheduler, "order", 1))
    if order > 1:  # Heun, KDPM2, DPM++ SDE: the last step has one call
        return [number // order for number in range(len(timesteps))]
    if not hasattr(scheduler, "prk_timesteps"):
        return list(range(len(timesteps)))
    # PNDM: four calls in a Runge-Kutta step; without such steps its second timestep comes twice,
    # and the first two calls make the first step.
    prk = (
        max(len(scheduler.prk_timesteps) - start, 0)
        if len(scheduler.prk_timesteps)
        else 0
    )
    steps = [number // _RUNGE_KUTTA for number in range(min(prk, len(timesteps)))]
    step = -(-prk // _RUNGE_KUTTA)
    for number in range(prk, len(timesteps)):
        steps.append(step)
        ahead = timesteps[number + 1 : number + 3]
        step += not (len(ahead) == 2 and ahead[0] == ahead[1] != timesteps[number])
    return steps


def _is_same(a: float, b: float, error: float) -> bool:
    return abs(a - b) <= error * max(abs(a), 1.0)


def rounding_of(timesteps: Tensor) -> float:
    """Return the relative error of timesteps, which some pipelines convert to half types."""
    return (
        max(SAME, 2 * torch.finfo(timesteps.dtype).eps)
        if timesteps.is_floating_point()
        else SAME
    )


class TimestepReader:
    """A reader of the timesteps of passes, which waits for the device as seldom as it can.

    A timestep that is an element of the scheduler's is known by its place there.
    """

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._scheduled: Tensor | None = None
        self._values: list[float] = []

    def read(self, timesteps: Tensor) -> float:
        """Return the timestep of the rows of a pass (B).

        Raises:
            TraceError: if the rows have several.
        """
        scheduled = self._pipe.scheduler.timesteps
        place = _place_in(timesteps, scheduled)
        if place is not None:
            if scheduled is not self._scheduled:
                self._scheduled = scheduled
                self._values = scheduled.tolist()
            return float(self._values[place])
        values = {*map(float, timesteps.tolist())}
        if len(values) > 1:
            raise TraceError(
                f"{type(self._pipe).__name__} runs several timesteps in one batch, so the rows of "
                "its model are not the images: expected a pipeline that draws step by step"
            )
        return values.pop()


def _place_in(view: Tensor, whole: Any) -> int | None:
    """Return the index of the only element of a tensor (N) that a view shows; None if none."""
    if not isinstance(whole, Tensor) or view.dtype != whole.dtype:
        return None
    same = view.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    if not same or (len(view) > 1 and view.stride(0)):
        return None
    return (view.storage_offset() - whole.storage_offset()) // max(1, whole.stride(0))


def matches(
    schedule: Schedule, call: int, timestep: float, error: float = SAME
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


@contextmanager
def noise_of_steps(
    scheduler: Any, generators: Sequence[torch.Generator]
) -> Iterator[None]:
    """Let a scheduler take its noise from a call's generators.

    Some pipelines, such as Stable Diffusion 3's, do not pass them on; the scheduler then uses
    torch's global generator, and a seed does not fix the image.
    """
    step = scheduler.step
    if "generator" not in signature(step).parameters:
        yield
        return

    def step_with_noise(*args: Any, **kwargs: Any) -> Any:
        return step(*args, **{"generator": generators, **kwargs})

    undo = replace_method(scheduler, "step", step_with_noise)
    try:
        yield
    finally:
        undo()
