"""Arguments of a pipeline as JSON, and back.

Numbers, texts, lists and dictionaries are stored as they are. Everything else is a dictionary with
the key "object": a tuple with its items, an image, tensor or array with its size and the SHA-256 of
its bytes, and any other object with its type and name.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image

from heedmap.errors import quoted

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
