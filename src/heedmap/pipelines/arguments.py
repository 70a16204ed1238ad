"""The arguments of a pipeline: as keywords of a call, and as JSON in the settings.

Numbers, texts, lists and dictionaries are stored as they are. Everything else is a dictionary with
the key "object": a tuple with its items, an image, tensor or array with its size and the SHA-256 of
its bytes, and any other object with its type and name.
"""

import hashlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import torch
from PIL import Image
from typing_extensions import TypedDict

from heedmap.backends.arguments import check_names, seed_of
from heedmap.backends.base import Pipeline
from heedmap.backends.registry import usual_size
from heedmap.errors import ArgumentError, quoted
from heedmap.options import OWN_NAMES, BranchName, EditKind, Keep, Tokens, Window

OBJECT = "object"
"""The key of a dictionary that stands for an object."""


def plain_copy(value: Any) -> Any:
    """Copy an argument, which pipelines may write to, with Python's numbers instead of numpy's."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is list:
        return [plain_copy(one) for one in value]
    if type(value) is tuple:
        return tuple(map(plain_copy, value))
    if type(value) is dict:
        return {key: plain_copy(one) for key, one in value.items()}
    return value


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


F = TypeVar("F", bound=Callable[..., Any])


class DiffusersKeywords(TypedDict, total=False, extra_items=Any):
    """Names of diffusers for options, which `own_names` translates."""

    num_inference_steps: int | None
    guidance_scale: float | None
    negative_prompt: str | None
    height: int | None
    width: int | None
    generator: torch.Generator | Sequence[torch.Generator] | None


class DrawKeywords(DiffusersKeywords, total=False, extra_items=Any):
    """Those of `DrawOptions`."""

    steps: int | None
    guidance: float | None
    size: tuple[int, int] | None
    negative: str | None
    keep: Keep
    limit: int


class GenerateKeywords(DrawKeywords, total=False, extra_items=Any):
    """Those of `GenerateOptions`."""

    tokens: Tokens
    branches: Iterable[BranchName]
    concepts: Sequence[str]


class LocateKeywords(DiffusersKeywords, total=False, extra_items=Any):
    """Those of `LocateOptions`."""

    steps: int
    size: tuple[int, int] | None
    keep: Keep
    limit: int
    tokens: Tokens
    concepts: Sequence[str]


class GridKeywords(DrawKeywords, total=False, extra_items=Any):
    """Those of `EditOptions` that hold for all cells of a grid, and of `DrawOptions`."""

    kind: EditKind | None
    words: Mapping[str, Window] | None
    self_cells: int
    renormalize: bool
    only: str | None
    protect: Iterable[str]
    blend_from: float
    threshold: float
    image: Any
    batch: int | None


class EditKeywords(GridKeywords, total=False, extra_items=Any):
    """Those of `EditOptions` and of `DrawOptions`."""

    cross: Window | None
    self_attention: Window | None


def own_names(pipe: Pipeline, given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Translate diffusers' names into a function's own; ArgumentError if both are given."""
    found = dict(given)
    for name in DiffusersKeywords.__annotations__:
        value, ours = found.pop(name, None), OWN_NAMES[name]
        ours = "seeds" if name == "generator" and "seeds" in names else ours
        if value is None:
            continue
        if ours not in names:
            ours = name
        elif given.get(ours) is not None:
            raise ArgumentError(f"{name} and {ours} set the same option: pass only one of them")
        elif name == "generator":
            value = seed_of(value)
        elif ours == "size":
            usual, sides = usual_size(pipe), (given.get("width"), given.get("height"))
            if None in sides and ("picture" in names or given.get("image") is not None):
                raise ArgumentError(
                    f"{name} is given alone: pass both height and width, or neither"
                )
            value = tuple(side or other for side, other in zip(sides, usual, strict=True))
        found[ours] = value
    return found


def _told(doc: str | None, options: Sequence[type], names: Sequence[str]) -> str | None:
    """A docstring with what its options mean below `options`, as the classes tell it."""
    if doc is None:  # python -OO
        return None
    doc = inspect.cleandoc(doc)
    before, sign, after = doc.partition("\n    options: ")
    if not sign:
        return doc
    own, blank, rest = after.partition("\n\n")
    known: dict[str, str] = {}
    for kind in (base for one in options for base in one.__mro__):
        _, _, fields_told = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")
        for entry in re.split(r"\n(?=    \w)", fields_told):
            known.setdefault(entry.partition(":")[0].strip(), entry)
    told = "\n".join(known[name] for name in names)
    return f"{before}{sign}{own}\n{told}{blank}{rest}"


def spelled_out(*options: type) -> Callable[[F], F]:
    """Let `help` and notebooks see the fields of options as keyword arguments, and what they mean.

    A call with a keyword that is neither one of these nor an argument of the pipeline, which comes
    first, ends in an ArgumentError that names the nearest.

    Args:
        options: dataclasses whose fields a function takes by `**options`; its other keyword
            arguments are passed on as `arguments`.
    """

    def spell(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        known = {p.name for p in own} | {"arguments"}
        made = inspect.Parameter
        taken = [
            made(one.name, made.KEYWORD_ONLY, default=one.default, annotation=one.type)
            for kind in options
            for one in fields(kind)
            if one.name not in known
        ]
        names = [p.name for p in (*own, *taken)]

        @wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            pipe = args[0] if args else given.get("pipe")
            if isinstance(pipe, Pipeline):
                given = own_names(pipe, given, names)
                check_names(pipe, given, names)
            return function(*args, **given)

        checked.__doc__ = _told(function.__doc__, options, [p.name for p in taken])
        rest = made("arguments", made.VAR_KEYWORD, annotation=Any)
        setattr(checked, "__signature__", signature.replace(parameters=[*own, *taken, rest]))  # noqa: B010
        return cast(F, checked)

    return spell
