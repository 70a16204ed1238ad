"""The options and arguments of a call: checked against the pipeline, and as JSON in the settings.

Numbers, texts, lists and dictionaries are stored as they are. Everything else is a dictionary with
the key "object": a tuple with its items, an image, tensor or array with its size and the SHA-256 of
its bytes, and any other object with its type and name.
"""

import hashlib
import inspect
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from itertools import chain
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from PIL import Image

from heedmap.backends.base import Pipeline, parameters
from heedmap.backends.loading import default_arguments
from heedmap.backends.registry import (
    DIFFUSERS_NAMES,
    check_names,
    check_served,
    check_size,
    default_size,
    seed_of,
)
from heedmap.checks import check_int
from heedmap.errors import ArgumentError, quoted
from heedmap.io.schemas import MAX_WHOLE
from heedmap.options import RESERVED_ARGUMENTS, GenerateOptions

# --- arguments as JSON ---

OBJECT = "object"
"""The key of a dictionary that stands for an object."""


def argument_note(value: Any) -> Any:
    """Convert an argument to plain JSON types, from which `argument` restores it."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else {OBJECT: "float", "value": repr(value)}
        )
    if isinstance(value, list):
        return [argument_note(item) for item in value]
    if isinstance(value, tuple):
        return {OBJECT: "tuple", "items": argument_note([*value])}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: argument_note(item) for key, item in value.items()}
    if isinstance(value, Image.Image):
        data = value.tobytes() + bytes(value.getpalette() or ())
        size = {"mode": value.mode, "size": list(value.size)}
        return {OBJECT: "picture", **size, "sha256": hashlib.sha256(data).hexdigest()}
    if isinstance(value, torch.Tensor | np.ndarray):
        flat = torch.as_tensor(value).detach().cpu().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy().tobytes()
        return {
            OBJECT: "tensor" if isinstance(value, torch.Tensor) else "array",
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    note = {OBJECT: type(value).__name__}
    name = getattr(value, "__name__", None)
    if name is not None:
        note["name"] = name
    return note


def argument(note: Any) -> Any:
    """Restore the argument of a note; ValueError if the note only describes an object."""
    if isinstance(note, list):
        return [argument(item) for item in note]
    if not isinstance(note, dict):
        return note
    kind = note.get(OBJECT)
    if kind is None:
        return {key: argument(item) for key, item in note.items()}
    if kind == "tuple":
        return tuple(map(argument, note["items"]))
    if kind == "float":
        return float(note["value"])
    raise ValueError(f"{description(note)} is not saved")


def description(note: Any) -> str:
    """Describe the argument of a note, as in "a tensor"."""
    if isinstance(note, dict) and OBJECT in note:
        return f"a {note[OBJECT]}"
    return quoted(note)


# --- options ---

Function = TypeVar("Function", bound=Callable[..., Any])
Options = TypeVar("Options")


def takes_options(*kinds: type) -> Callable[[Function], Function]:
    """Write the options of a function into its signature, for help and completion.

    The type of its `**options` names them; the defaults are those of the dataclasses `kinds`.
    """

    def add_options(function: Function) -> Function:
        signature = inspect.signature(function)
        *parameters, rest = signature.parameters.values()
        types = get_type_hints(get_args(rest.annotation)[0])
        for option in chain.from_iterable(map(fields, kinds)):
            if option.name in types:
                parameters.append(
                    inspect.Parameter(
                        option.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=option.default,
                        annotation=types[option.name],
                    )
                )
        parameters.append(rest.replace(name="arguments", annotation=Any))
        vars(function)["__signature__"] = signature.replace(parameters=parameters)
        return function

    return add_options


def take_options(
    kind: type[Options],
    function: Callable[..., Any],
    rest: dict[str, Any],
) -> Options:
    """Return the options of one kind that a function takes, and remove them from the rest."""
    names = {option.name for option in fields(kind)}  # pyright: ignore
    names &= {*argument_names(function)} & rest.keys()
    return kind(**{name: rest.pop(name) for name in names})


def argument_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments of a function, without its `**arguments`."""
    return list(inspect.signature(function).parameters)[:-1]


def resolve_options(
    function: Callable[..., Any],
    pipe: Pipeline,
    seed: Any,
    keywords: Mapping[str, Any],
    *,
    has_image: bool = False,
) -> tuple[GenerateOptions, Any]:
    """Return the checked options of sampling and the seed or seeds of a call of a public function.

    The options are given together with the pipeline's arguments. Diffusers' names of options are
    translated. If the call `has_image`, the image's size holds unless both sides are given.

    Raises:
        ArgumentError: if the pipeline does not take an option or argument, an option is given
            twice, or the size does not fit the model.
        ModelError: if the attention of the pipeline cannot be recorded.
    """
    rest = dict(keywords)
    options = take_options(GenerateOptions, function, rest)
    check_served(pipe)
    arguments = default_arguments(pipe) | rest
    values = {
        name: arguments.pop(DIFFUSERS_NAMES[name], None)
        for name in ("steps", "guidance", "negative")
    }
    width = arguments.pop("width", None)
    height = arguments.pop("height", None)
    generator: Any = arguments.pop("generator", None)
    if width is not None or height is not None:
        if has_image and None in (width, height):
            raise ArgumentError("width or height is given alone: pass both, or neither")
        usual = default_size(pipe)
        values["size"] = (width or usual[0], height or usual[1])
    values = {name: value for name, value in values.items() if value is not None}
    for name in values:
        if getattr(options, name) is not None:
            raise ArgumentError(
                f"{name} is given twice, also by its name in diffusers: pass one"
            )
    if generator is not None:
        if seed is not None:
            raise ArgumentError("seed and generator are both given: pass one")
        seed = seed_of(generator)
    for name in arguments.keys() & RESERVED_ARGUMENTS.keys():
        raise ArgumentError(
            f"heedmap sets the argument {name} itself: use {RESERVED_ARGUMENTS[name]}"
        )
    check_names(pipe, arguments, argument_names(function))
    options = replace(options, **values, arguments=arguments)
    accepted = parameters(pipe)
    for name, option in RESERVED_ARGUMENTS.items():
        value = getattr(options, option, None)
        if name not in accepted and value is not None:
            raise ArgumentError(
                f"{option} is {quoted(value)}, and {type(pipe).__name__} takes no {name}: leave "
                f"{option} out"
            )
    if options.size is not None:
        options = replace(options, size=check_size(pipe, options.size))
    return options, seed


def has_usual_area(pipe: Pipeline, size: tuple[int, int]) -> bool:
    """Return True if a (width, height) has half to twice as many pixels as the model's own."""
    return 0.5 <= math.prod(size) / math.prod(default_size(pipe)) <= 2


def check_seed(seed: object) -> int:
    """Return a seed as a Python int, and a random one for None; ArgumentError if it is none."""
    if seed is None:
        return secrets.randbelow(2**31)
    return check_int("the seed", seed, least=0, most=MAX_WHOLE)
