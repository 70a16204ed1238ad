"""The settings of a run that its pipeline decides.

They are read before sampling starts: a callback or an interrupt may change the number of steps.
"""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from heedmap import tiny
from heedmap.backends import base, loading
from heedmap.backends.base import parameters
from heedmap.backends.registry import (
    DIFFUSERS_NAMES,
    STEP_LISTS,
    family_of,
)
from heedmap.backends.schedules import SCHEDULERS, scheduler_class
from heedmap.backends.skipping import skipping_tools
from heedmap.errors import RunError, quoted, reason
from heedmap.io.schemas import Scheduler, Settings, Versions, to_json
from heedmap.options import GenerateOptions
from heedmap.pipelines.arguments import argument, argument_note


def effective_value(
    pipe: Any,
    name: str,
    value: Any,
    arguments: Mapping[str, Any] | None = None,
) -> tuple[Any, str | None]:
    """Return the "steps" or "guidance" that a pipeline will use, and the source of the value.

    The value is None if it is not known. The source is "card" (of an embedded model), "pipeline",
    the name of an argument (`timesteps` or `sigmas`) that sets the steps, or None for `value`, the
    user's.
    """
    arguments = {**family_of(pipe).defaults, **(arguments or {})}
    for list_name in STEP_LISTS if name == "steps" else ():
        steps = arguments.get(list_name)
        if steps is not None and hasattr(steps, "__len__"):
            return len(steps), list_name
    if value is not None:
        return argument_note(value), None
    if loading.is_embedded(pipe):
        return getattr(tiny.defaults(loading.name_of(pipe)), name), "card"
    return parameters(pipe).get(DIFFUSERS_NAMES[name]), "pipeline"


def apply_model_defaults(pipe: Any, options: GenerateOptions) -> GenerateOptions:
    """Fill in the steps and guidance of an embedded model's card where none are given."""
    values: dict[str, Any] = {}
    for name in ("steps", "guidance"):
        value, source = effective_value(pipe, name, getattr(options, name))
        if source == "card":
            values[name] = value
    return replace(options, **values)


def describe(pipe: Any) -> dict[str, Any]:
    """Return the settings that a pipeline has before it is called."""
    device = base.device_of(pipe)
    family = family_of(pipe)
    hardware = platform.machine()
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    elif device.type == "cpu":
        hardware = f"{hardware} {torch.backends.cpu.get_cpu_capability()}"
    return {
        "model": loading.name_of(pipe),
        "revision": base.commit_of(family.model),
        "pipeline": type(pipe).__name__,
        "scheduler": type(pipe.scheduler).__name__,
        "schedulers": {
            name: _scheduler_note(getattr(pipe, name))
            for name in SCHEDULERS
            if getattr(pipe, name, None) is not None
        },
        "loras": tuple(base.loras(pipe)),
        "skipping": skipping_tools(family.model, family.text_layers()),
        "device": device.type,
        "hardware": hardware,
        "dtype": str(pipe.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "versions": _versions(),
    }


@cache
def _versions() -> Versions:
    names = ("heedmap", "torch", "diffusers", "transformers")
    return Versions(
        python=platform.python_version(), **{name: version(name) for name in names}
    )


def _scheduler_note(scheduler: Any) -> Scheduler:
    config = {
        key: value for key, value in scheduler.config.items() if not key.startswith("_")
    }
    return Scheduler(kind=type(scheduler).__name__, config=argument_note(config))


def settings_diff(saved: Settings, pipe: Any) -> dict[str, tuple[Any, Any]]:
    """Compare saved settings with those of a pipeline.

    Returns:
        (saved, now) by the dotted name of each setting that differs; None if it is missing. Of a
        scheduler of another class only the class is listed.
    """
    settings = describe(pipe)
    del settings["scheduler"]  # `schedulers` has the class
    now = _flat(to_json(settings))
    before = _flat(to_json({name: getattr(saved, name) for name in settings}))
    names = [name for name in now | before if before.get(name) != now.get(name)]
    others = [name.removesuffix("class") for name in names if name.endswith(".class")]
    configs = tuple(f"{name}config" for name in others)
    return {
        name: (before.get(name), now.get(name))
        for name in names
        if not name.startswith(configs)
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


@contextmanager
def saved_schedulers(pipe: Any, settings: Settings) -> Iterator[None]:
    """Give a pipeline the saved schedulers within the block; RunError if one cannot be made."""
    before = {name: getattr(pipe, name, None) for name in settings.schedulers}
    try:
        for name, saved in settings.schedulers.items():
            if before[name] is None or saved != _scheduler_note(before[name]):
                setattr(pipe, name, _scheduler(type(before[name]), saved))
        yield
    finally:
        for name, scheduler in before.items():
            setattr(pipe, name, scheduler)


def _scheduler(kind: type, saved: Scheduler) -> Any:
    try:
        return scheduler_class(kind, saved.kind).from_config(
            argument(dict(saved.config))
        )
    except Exception as error:  # constructors raise errors of any type
        raise RunError(
            f"the scheduler {quoted(saved.kind)} of this run cannot be made in diffusers "
            f"{version('diffusers')} ({reason(error)}): pass a pipeline that has it"
        ) from error
