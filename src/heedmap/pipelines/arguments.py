"""The options and arguments of a call: checked against the pipeline, and as JSON in the settings.

Numbers, texts, lists and dictionaries are stored as they are. Everything else is a dictionary with
the key "object": a tuple with its items, an image, tensor or array with its size and the SHA-256 of
its bytes, and any other object with its type and name.
"""

import hashlib
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image

from heedmap import checks
from heedmap.backends.base import Pipeline, parameters
from heedmap.backends.loading import is_embedded
from heedmap.backends.registry import check_names, check_size, seed_of, size_of_latents, usual_size
from heedmap.errors import ArgumentError, quoted
from heedmap.io.schemas import MAX_WHOLE
from heedmap.options import OWN_NAMES, GenerateOptions
from heedmap.text.concepts import checked_concepts
from heedmap.tiny import card

OBJECT = "object"
"""The key of a dictionary that stands for an object."""


def argument_note(value: Any) -> Any:
    """Convert an argument to plain JSON types, from which `argument` restores it."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {OBJECT: "float", "value": repr(value)}
    if isinstance(value, list):
        return [argument_note(one) for one in value]
    if isinstance(value, tuple):
        return {OBJECT: "tuple", "items": [argument_note(one) for one in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) and key != OBJECT for key in value):
        return {key: argument_note(one) for key, one in value.items()}
    return _object_note(value)


def is_restorable(note: Any) -> bool:
    """Return whether a note holds the argument itself."""
    if isinstance(note, list):
        return all(map(is_restorable, note))
    if not isinstance(note, dict):
        return True
    kind = note.get(OBJECT)
    if kind is None:
        return all(map(is_restorable, note.values()))
    return kind == "float" or (kind == "tuple" and is_restorable(note["items"]))


def argument(note: Any) -> Any:
    """Restore the argument of a note that `is_restorable`."""
    if isinstance(note, list):
        return [argument(one) for one in note]
    if not isinstance(note, dict):
        return note
    if note.get(OBJECT) == "tuple":
        return tuple(argument(note["items"]))
    if note.get(OBJECT) == "float":
        return float(note["value"])
    return {key: argument(one) for key, one in note.items()}


def description(note: Any) -> str:
    """Describe the object of a note, as in "picture of 64×48"."""
    if not isinstance(note, dict) or OBJECT not in note:
        return "a list" if isinstance(note, list) else "a dictionary"
    size = note.get("size", note.get("shape"))
    if size is not None:
        return f"{note[OBJECT]} of {'×'.join(map(str, size))}"
    return f"{note[OBJECT]} {quoted(note['name'])}" if "name" in note else str(note[OBJECT])


def _object_note(value: Any) -> dict[str, Any]:
    if isinstance(value, Image.Image):
        palette = value.getpalette() if value.mode == "P" else None
        data = value.tobytes() + bytes(palette or ())
        return {OBJECT: "picture", "mode": value.mode, "size": list(value.size), **_sha(data)}
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        note = {OBJECT: "tensor", "dtype": dtype, "shape": list(value.shape)}
        if value.is_meta or value.layout != torch.strided or value.is_complex():
            return note  # its bytes cannot be read
        flat = value.detach().cpu().contiguous().reshape(-1)
        return note | _sha(flat.view(torch.uint8).numpy().tobytes())
    if isinstance(value, np.ndarray):
        note = {OBJECT: "array", "dtype": str(value.dtype), "shape": list(value.shape)}
        return note if value.dtype.hasobject else note | _sha(value.tobytes())
    name = getattr(value, "__name__", None)
    return {OBJECT: type(value).__name__} | ({"name": name} if isinstance(name, str) else {})


def _sha(data: bytes) -> dict[str, str]:
    return {"sha256": hashlib.sha256(data).hexdigest()}


_DIFFUSERS_NAMES = {
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "negative_prompt": "negative",
}
S = TypeVar("S")


def resolve_options(
    pipe: Pipeline,
    options: GenerateOptions,
    function: Callable[..., Any],
    seed: S,
    *,
    has_image: bool = False,
) -> tuple[GenerateOptions, S]:
    """Translate diffusers' names of options, and check the options against the pipeline.

    Args:
        pipe: the pipeline to call.
        options: the options as given; diffusers' names are among their `arguments`.
        function: the function that was called; its parameters are suggested for misspelled names.
        seed: the seed or seeds as given; None if `generator` may set them.
        has_image: True if the size is that of a given image unless both sides are given.

    Returns:
        The options, and the seed or seeds.

    Raises:
        ArgumentError: if the pipeline does not take an option or argument, an option is given
            twice, or the size does not fit the model.
    """
    arguments = {name: _plain_copy(value) for name, value in options.arguments.items()}
    width, height = arguments.pop("width", None), arguments.pop("height", None)
    generator: Any = arguments.pop("generator", None)
    names = {name: arguments.pop(name, None) for name in _DIFFUSERS_NAMES}
    given = {_DIFFUSERS_NAMES[name]: value for name, value in names.items() if value is not None}
    if width is not None or height is not None:
        if has_image and None in (width, height):
            raise ArgumentError("width or height is given alone: pass both, or neither")
        usual = usual_size(pipe)
        given["size"] = (width or usual[0], height or usual[1])
    for name in given:
        if getattr(options, name) is not None:
            raise ArgumentError(f"{name} is given twice, also by its name in diffusers: pass one")
    if generator is not None:
        if seed is not None:
            raise ArgumentError("seed and generator are both given: pass one")
        seed = seed_of(generator)
    reserved = arguments.keys() & OWN_NAMES.keys()
    for name in reserved:
        raise ArgumentError(f"heedmap sets the argument {name} itself: use {OWN_NAMES[name]}")
    named = signature(function).parameters.values()
    check_names(pipe, arguments, [one.name for one in named if one.kind is not one.VAR_KEYWORD])
    options = replace(options, **given, arguments=arguments)
    taken = parameters(pipe)
    for name, ours in OWN_NAMES.items():
        value = getattr(options, ours, None)
        if name not in taken and value is not None:
            raise ArgumentError(
                f"{ours} is {quoted(value)}, and {type(pipe).__name__} takes no {name}: leave "
                f"{ours} out"
            )
    concepts = checked_concepts(options.concepts)
    size = None if options.size is None else check_size(pipe, options.size)
    theirs = size_of_latents(pipe, arguments)
    if size is not None and theirs not in (None, size):
        raise ArgumentError(
            f"the latents are for {theirs[0]}×{theirs[1]} pixels, and the size is "
            f"{size[0]}×{size[1]}: pass one of the two, or make them agree"
        )
    return replace(options, size=size, concepts=concepts), seed


def _plain_copy(value: Any) -> Any:
    """Copy a dictionary, which pipelines may write to, and make numpy's numbers Python's."""
    if isinstance(value, np.generic):
        return value.item()
    return {**value} if isinstance(value, dict) else value


def apply_model_defaults(pipe: Pipeline, options: GenerateOptions) -> GenerateOptions:
    """Fill in the steps and guidance of the embedded model's card where none are given."""
    if not is_embedded(pipe):
        return options
    own = card.defaults()
    steps = own.steps if options.steps is None else options.steps
    guidance = own.guidance if options.guidance is None else options.guidance
    return replace(options, steps=steps, guidance=guidance)


def random_seed() -> int:
    """Return a random seed."""
    return secrets.randbelow(2**31)


def check_seed(seed: object) -> int:
    """Return a seed as a Python int; ArgumentError if it is none."""
    return checks.whole("the seed", seed, least=0, most=MAX_WHOLE)


def check_prompts(prompts: Sequence[str], seeds: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return the prompts and seeds of a batch; ArgumentError if they are not one seed a prompt."""
    texts, numbers = checks.in_order(prompts), checks.in_order(seeds)
    if not texts or numbers is None or len(texts) != len(numbers):
        raise ArgumentError(
            f"the prompts are {quoted(prompts)} and the seeds {quoted(seeds)}: expected a list of "
            "each, with one seed a prompt"
        )
    return [*map(checks.prompt, texts)], [check_seed(seed) for seed in numbers]
