"""The settings of a run that its pipeline decides.

They are read before sampling starts: a callback or an interrupt may change the number of steps.
"""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from heedmap.backends import base, loading
from heedmap.backends.arguments import STEP_LISTS, THEIR_NAMES
from heedmap.backends.base import default_of
from heedmap.backends.registry import cross_attention_layers, family_of
from heedmap.backends.schedules import SCHEDULERS, scheduler_class, skipping_tools
from heedmap.errors import RunError, quoted, reason
from heedmap.io.schemas import Scheduler, Settings, Versions, to_json
from heedmap.pipelines.arguments import argument, argument_note, is_restorable
from heedmap.tiny import card


def effective_value(
    pipe: Any, name: str, given: Any, arguments: Mapping[str, Any] | None = None
) -> tuple[Any, str | None]:
    """Return the steps or the guidance that a pipeline will use, and where the value comes from.

    Args:
        pipe: a pipeline.
        name: "steps" or "guidance".
        given: the user's value, or None.
        arguments: the other arguments of the call; `timesteps` or `sigmas` set the steps.

    Returns:
        The value, None if it is not known, and its source: "card" (of the embedded model),
        "pipeline", the name of an argument, or None for the user's value.
    """
    for list_name in STEP_LISTS if name == "steps" else ():
        listed = (arguments or {}).get(list_name)
        if listed is not None and hasattr(listed, "__len__"):
            return len(listed), list_name
    if given is not None:
        return argument_note(given), None
    if loading.is_embedded(pipe):
        return getattr(card.defaults(), name), "card"
    found = default_of(pipe, THEIR_NAMES[name])
    return (found, "pipeline") if isinstance(found, int | float) else (None, "pipeline")


def describe(pipe: Any) -> dict[str, Any]:
    """Return the settings that a pipeline has before it is called."""
    device = base.device_of(pipe)
    schedulers = {name: getattr(pipe, name, None) for name in SCHEDULERS}
    model, layers = family_of(pipe).denoiser(pipe), cross_attention_layers(pipe)
    hardware = platform.machine()
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    elif device.type == "cpu":
        hardware = f"{hardware} {torch.backends.cpu.get_cpu_capability()}"
    return {
        "model": loading.name_of(pipe),
        "revision": base.commit_of(pipe),
        "pipeline": type(pipe).__name__,
        "scheduler": type(getattr(pipe, "scheduler", None)).__name__,
        "schedulers": {n: _scheduler_note(one) for n, one in schedulers.items() if one is not None},
        "loras": tuple(base.loras(pipe)),
        "skipping": skipping_tools(model, layers),
        "device": device.type,
        "hardware": hardware,
        "dtype": str(pipe.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "versions": _versions(),
    }


@cache
def _versions() -> Versions:
    names = ("heedmap", "torch", "diffusers", "transformers")
    return Versions(python=platform.python_version(), **{name: version(name) for name in names})


def _scheduler_note(scheduler: Any) -> Scheduler:
    config = {key: value for key, value in scheduler.config.items() if not key.startswith("_")}
    return Scheduler(kind=type(scheduler).__name__, config=argument_note(config))


def settings_diff(saved: Settings, pipe: Any) -> dict[str, tuple[Any, Any]]:
    """Compare saved settings with those of a pipeline.

    Returns:
        (saved, now) by the dotted name of each setting that differs; None if it is missing. Of a
        scheduler of another class only the class is listed.
    """
    now, before = to_json(describe(pipe)), to_json(saved)
    found = _differences({name: before[name] for name in now}, now)
    found.pop("scheduler", None)  # `schedulers` has its class
    other = [name.removesuffix("class") for name in found if name.endswith(".class")]
    return {
        name: values
        for name, values in found.items()
        if name.endswith(".class") or not name.startswith(tuple(other))
    }


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*now, *saved]):
        before, after = saved.get(key), now.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            inner = _differences(before, after)
            found |= {f"{key}.{name}": values for name, values in inner.items()}
        elif before != after:
            found[key] = before, after
    return found


@contextmanager
def saved_schedulers(pipe: Any, settings: Settings) -> Iterator[None]:
    """Give a pipeline the schedulers of saved settings within the block.

    Raises:
        RunError: if a scheduler cannot be made.
    """
    before: dict[str, Any] = {}
    try:
        for name, saved in settings.schedulers.items():
            own = getattr(pipe, name, None)
            if own is None or saved != _scheduler_note(own):
                scheduler = _scheduler(type(own), saved)
                before[name] = own
                setattr(pipe, name, scheduler)
        yield
    finally:
        for name, scheduler in before.items():
            setattr(pipe, name, scheduler)


def _scheduler(own: type, saved: Scheduler) -> Any:
    kind, config = scheduler_class(own, saved.kind), dict(saved.config)
    try:
        if kind is None or not is_restorable(config):
            raise ValueError("the class is missing, or an object in its configuration is not saved")
        return kind.from_config(argument(config))
    except Exception as error:  # constructors raise errors of any type
        raise RunError(
            f"the scheduler {quoted(saved.kind)} of this run cannot be made in diffusers "
            f"{version('diffusers')} ({reason(error)}): pass a pipeline that has it"
        ) from error
