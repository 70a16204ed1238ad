"""Schedulers of a saved run."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from heedmap.backends.schedules import scheduler_class
from heedmap.errors import RunError, quoted, reason
from heedmap.io.settings import Scheduler, Settings
from heedmap.pipelines.pipeline_arguments import argument, is_restorable
from heedmap.pipelines.settings import scheduler_note


@contextmanager
def saved_schedulers(pipe: Any, settings: Settings) -> Iterator[None]:
    """Give a pipeline the schedulers of saved settings within the block, and then its own back.

    Raises:
        RunError: if the pipeline or diffusers has no such scheduler, or it cannot be made.
    """
    before: dict[str, Any] = {}
    try:
        for name, saved in settings.schedulers.items():
            own = getattr(pipe, name, None)
            if own is None:
                raise RunError(
                    f"the run has a {name} and {type(pipe).__name__} has none: pass a pipeline of "
                    f"the class {quoted(settings.pipeline)}"
                )
            if saved != scheduler_note(own):
                before[name] = own
                setattr(pipe, name, _scheduler(type(own), saved))
        yield
    finally:
        for name, scheduler in before.items():
            setattr(pipe, name, scheduler)


def _scheduler(own: type, saved: Scheduler) -> Any:
    name, config = saved.kind, dict(saved.config)
    kind = scheduler_class(own, name)
    if kind is None:
        raise RunError(
            f"diffusers {version('diffusers')} has no scheduler {quoted(name)}: pass a pipeline "
            "that has it, or install another version of diffusers"
        )
    if not is_restorable(config):
        raise RunError(
            f"the configuration of the scheduler {name} holds objects that are not saved: pass a "
            "pipeline that has this scheduler"
        )
    try:
        return kind.from_config(argument(config))
    except Exception as error:  # constructors raise errors of any type
        raise RunError(
            f"the scheduler {name} cannot be made from the saved configuration ({reason(error)}): "
            "pass a pipeline that has it"
        ) from error
