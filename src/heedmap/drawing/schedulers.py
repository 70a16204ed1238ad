"""Schedulers as a run's settings note them, set up again for as long as it is drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from heedmap.drawing import settings
from heedmap.drawing.pipeline_arguments import restorable, restored
from heedmap.errors import RunError, quoted, reason
from heedmap.files.settings import Scheduler, Settings
from heedmap.wiring.lacking import lacking
from heedmap.wiring.schedules import scheduler_kind, scheduler_lacks

_MOST = 100_000
"""Of any number in a configuration, and of what a list there holds: noise has 1000 steps as a rule,
and no strength or size comes near. What is larger makes tables as long."""
_MOST_ORDER = 100
"""Of a solver: 1 to 3 as a rule; it looks back at so many steps in each."""


@contextmanager
def set_up(pipe: Any, about: Settings) -> Iterator[None]:
    """Set the schedulers up as they were noted; the pipeline's own come back afterwards.

    Args:
        pipe: a pipeline.
        about: the settings of a run, from a file.

    Raises:
        RunError: if there is no such scheduler, or it cannot be set up so.
    """
    before: dict[str, Any] = {}
    try:
        for name, wanted in about.schedulers.items():
            if getattr(pipe, name, None) is None:
                raise RunError(
                    f"the run was drawn with a {name}, and {type(pipe).__name__} has none: pass a "
                    "pipeline like the one that the settings name"
                )
            if wanted != settings.scheduler_of(pipe, name):
                before[name] = getattr(pipe, name)
                made = _scheduler(type(before[name]), wanted)
                setattr(pipe, name, made)
        yield
    finally:
        for name, scheduler in before.items():
            setattr(pipe, name, scheduler)


def _scheduler(own: type, wanted: Scheduler) -> Any:
    """A scheduler as it was noted: of the pipeline's own class, or one of diffusers."""
    name, config = wanted.kind, wanted.config
    kind = scheduler_kind(own, name)
    if kind is None:
        if lacks := scheduler_lacks(name):
            raise RunError(f"the scheduler {name} of this run needs {lacks}; repeat the run then")
        raise RunError(
            f"the scheduler {quoted(name)} of this run is none that diffusers "
            f"{version('diffusers')} has: pass a pipeline with it, or another version of diffusers"
        )
    unknown = next((name for name, value in config.items() if not restorable(value)), None)
    if unknown is not None:
        raise RunError(
            f"the scheduler of this run has a setting {quoted(unknown)} that is not in the file: "
            "pass a pipeline whose scheduler is set up in the same way"
        )
    for key, value in config.items():
        _check_setting(key, value)
    try:
        return kind.from_config(restored(dict(config)))
    except Exception as error:  # whatever a constructor finds wrong in a file's values
        if lacks := lacking(error):
            raise RunError(
                f"the scheduler {name}, as this run notes it, needs {lacks}; repeat the run then"
            ) from error
        raise RunError(
            f"the scheduler {name} cannot be set up as this run notes it ({reason(error)}): pass a "
            "pipeline with it"
        ) from error


def _check_setting(name: str, value: Any) -> None:
    """Raise a RunError if a setting asks for more than any scheduler has use for."""
    most = _MOST_ORDER if name.endswith("order") else _MOST
    count = type(value) is int and 0 < value <= most
    if not (count if name == "num_train_timesteps" else _is_small(value, most)):
        raise RunError(
            f"the scheduler of this run has {quoted(name)[1:-1]}={quoted(value)}: expected "
            f"{'a whole number' if name == 'num_train_timesteps' else 'numbers'} up to {most:,}, "
            "and lists no longer; make the run again"
        )


def _is_small(value: Any, most: int) -> bool:
    """Whether numbers, and what holds them, are small; infinite ones are noted as objects."""
    if isinstance(value, int | float):
        return abs(value) <= most
    if isinstance(value, list | dict):
        held = value.values() if isinstance(value, dict) else value
        return len(value) <= most and all(_is_small(one, most) for one in held)
    return True
