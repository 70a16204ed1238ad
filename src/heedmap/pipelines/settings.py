"""The settings of a run that its pipeline decides.

They are read before sampling starts: a callback or an interrupt may change the number of steps.
"""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
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


def effective_options(
    pipe: Any,
    options: GenerateOptions,
) -> tuple[GenerateOptions, dict[str, str]]:
    """Return the options with the steps and the guidance that a pipeline will use, and sources.

    A value is None if it is not known. A source is that of an option that the user did not set:
    "card" (of an embedded model), "pipeline", or the name of the argument (`timesteps` or `sigmas`)
    that sets the steps.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if options.size is None:
        sources["size"] = "pipeline"
    for name in ("steps", "guidance"):
        if getattr(options, name) is not None:
            continue
        if loading.is_embedded(pipe):
            values[name] = getattr(tiny.defaults(loading.name_of(pipe)), name)
            sources[name] = "card"
        else:
            values[name] = parameters(pipe).get(DIFFUSERS_NAMES[name])
            sources[name] = "pipeline"
    arguments = {**family_of(pipe).defaults, **options.arguments}
    for name in STEP_LISTS:
        if hasattr(arguments.get(name), "__len__"):
            values["steps"] = len(arguments[name])
            sources["steps"] = name
    return replace(options, **values), sources


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
        "skipping": skipping_tools(family.modules, family.text_layers()),
        "device": device.type,
        "hardware": hardware,
        "dtype": str(pipe.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "versions": Versions(
            *map(version, ("heedmap", "torch", "diffusers", "transformers")),
            python=platform.python_version(),
        ),
    }


def _scheduler_note(scheduler: Any) -> Scheduler:
    config = {
        key: value for key, value in scheduler.config.items() if not key.startswith("_")
    }
    return Scheduler(kind=type(scheduler).__name__, config=argument_note(config))


def settings_diff(saved: Settings, pipe: Any) -> dict[str, tuple[Any, Any]]:
    """Compare saved settings with those of a pipeline.

    Returns:
        (saved, now) by the dotted name of each setting that differs; None if it is missing.
    """
    settings = describe(pipe)
    del settings["scheduler"]  # `schedulers` has the class
    now = _flat(to_json(settings))
    before = _flat(to_json({name: getattr(saved, name) for name in settings}))
    return {
        name: (before.get(name), now.get(name))
        for name in now | before
        if before.get(name) != now.get(name)
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
