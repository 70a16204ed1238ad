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
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from PIL import Image

from heedmap import tiny
from heedmap.backends.base import Pipeline, parameters
from heedmap.backends.loading import default_arguments, is_embedded, name_of
from heedmap.backends.registry import (
    check_names,
    check_served,
    check_size,
    default_size,
    family_of,
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
        return [argument_note(one) for one in value]
    if isinstance(value, tuple):
        return {OBJECT: "tuple", "items": [argument_note(one) for one in value]}
    if isinstance(value, Mapping) and all(
        isinstance(key, str) and key != OBJECT for key in value
    ):
        return {key: argument_note(one) for key, one in value.items()}
    return _object_note(value)


def _object_note(value: Any) -> dict[str, Any]:
    if isinstance(value, Image.Image):
        note = {OBJECT: "picture", "mode": value.mode, "size": list(value.size)}
        data = value.tobytes() + bytes(value.getpalette() or ())
    elif isinstance(value, torch.Tensor | np.ndarray):
        kind = "tensor" if isinstance(value, torch.Tensor) else "array"
        dtype = str(value.dtype).removeprefix("torch.")
        note = {OBJECT: kind, "dtype": dtype, "shape": list(value.shape)}
        if isinstance(value, torch.Tensor):
            flat = value.detach().cpu().contiguous().reshape(-1)
            value = flat.view(torch.uint8).numpy()
        data = value.tobytes()
    else:
        name = getattr(value, "__name__", None)
        return {OBJECT: type(value).__name__} | (
            {"name": name} if isinstance(name, str) else {}
        )
    return note | {"sha256": hashlib.sha256(data).hexdigest()}


def argument(note: Any) -> Any:
    """Restore the argument of a note; ValueError if the note only describes an object."""
    if isinstance(note, list):
        return [argument(one) for one in note]
    if not isinstance(note, dict):
        return note
    kind = note.get(OBJECT)
    if kind is None:
        return {key: argument(one) for key, one in note.items()}
    if kind == "tuple":
        return tuple(map(argument, note["items"]))
    if kind == "float":
        return float(note["value"])
    raise ValueError(f"the {description(note)} is not saved")


def description(note: Any) -> str:
    """Describe the argument of a note, as in "picture 64×48"."""
    if not isinstance(note, dict) or OBJECT not in note:
        return quoted(note)
    sides = note.get("size", note.get("shape", ()))
    return f"{note[OBJECT]} {'×'.join(map(str, sides)) or note.get('name', '')}".strip()


# --- options ---

_DIFFUSERS_NAMES = {
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "negative_prompt": "negative",
}
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
        for one in (one for kind in kinds for one in fields(kind)):
            if one.name in types:
                parameters.append(
                    inspect.Parameter(
                        one.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=one.default,
                        annotation=types[one.name],
                    )
                )
        parameters.append(rest.replace(name="arguments", annotation=Any))
        vars(function)["__signature__"] = signature.replace(parameters=parameters)
        return function

    return add_options


def take_options(
    kind: type[Options], function: Callable[..., Any], given: dict[str, Any]
) -> Options:
    """Return the options of one kind that a function takes, and remove them from those given."""
    known = argument_names(function)
    names = [one.name for one in fields(kind) if one.name in known]  # pyright: ignore
    return kind(**{name: given.pop(name) for name in names if name in given})


def argument_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments of a function, without its `**arguments`."""
    return list(inspect.signature(function).parameters)[:-1]


def resolve_options(
    function: Callable[..., Any],
    pipe: Pipeline,
    seed: Any,
    given: Mapping[str, Any],
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
    rest = dict(given)
    options = take_options(GenerateOptions, function, rest)
    check_served(pipe)
    arguments = default_arguments(pipe) | rest
    arguments = {name: _own(value) for name, value in arguments.items()}
    width = arguments.pop("width", None)
    height = arguments.pop("height", None)
    generator: Any = arguments.pop("generator", None)
    values = {
        option: arguments.pop(name, None) for name, option in _DIFFUSERS_NAMES.items()
    }
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
    if options.size is None:
        return options, seed
    size = check_size(pipe, options.size)
    latents = arguments.get("latents")
    side = family_of(pipe).cell_side
    grid = (size[1] // side, size[0] // side)
    # Those of Flux are packed, and tell no grid.
    unpacked = isinstance(latents, torch.Tensor) and latents.ndim == 4
    if isinstance(latents, torch.Tensor) and unpacked and latents.shape[-2:] != grid:
        raise ArgumentError(
            f"the latents have the shape {tuple(latents.shape)}, and the size {size[0]}×{size[1]} "
            f"needs {grid[0]} rows and {grid[1]} columns: pass one of the two, or make them agree"
        )
    return replace(options, size=size), seed


def _own(value: Any) -> Any:
    """Return a copy of a dictionary, which a pipeline may change, and a number as Python's."""
    if isinstance(value, dict):
        return {**value}
    return value.item() if isinstance(value, np.generic) else value


def apply_model_defaults(pipe: Pipeline, options: GenerateOptions) -> GenerateOptions:
    """Fill in the steps and guidance of an embedded model's card where none are given."""
    if not is_embedded(pipe):
        return options
    missing = [name for name in ("steps", "guidance") if getattr(options, name) is None]
    defaults = tiny.defaults(name_of(pipe))
    return replace(options, **{name: getattr(defaults, name) for name in missing})


def has_usual_area(pipe: Pipeline, size: tuple[int, int]) -> bool:
    """Return True if a (width, height) has half to twice as many pixels as the model's own."""
    return 0.5 <= math.prod(size) / math.prod(default_size(pipe)) <= 2


def check_seed(seed: object) -> int:
    """Return a seed as a Python int, and a random one for None; ArgumentError if it is none."""
    if seed is None:
        return secrets.randbelow(2**31)
    return check_int("the seed", seed, least=0, most=MAX_WHOLE)
