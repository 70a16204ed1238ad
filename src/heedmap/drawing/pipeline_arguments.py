"""The arguments of a pipeline as plain JSON, and back: what has no JSON is known by its bytes.

Numbers, texts, lists and dictionaries stand as they are. All else is a dictionary with the key
"object", which says what it was: a tuple with its items, a picture, tensor or array with its size
and a SHA-256 of its bytes, and any other thing by its type alone.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image

from heedmap.checks import is_unicode
from heedmap.errors import quoted

OBJECT = "object"
"""The key that tells what stands for an object from a dictionary that was an argument itself."""
_FLOATS = ("nan", "inf", "-inf")
_DEPTH = 14  # a tuple takes two levels of a file, which may have 32


def without_numpy(value: Any) -> Any:
    """An argument with Python's own numbers in the place of numpy's, as `restored` gives it.

    What a run's settings hold is copied: pipelines write into what they are given.
    """
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is list:
        return [without_numpy(one) for one in value]
    if type(value) is tuple:
        return tuple(map(without_numpy, value))
    if type(value) is dict:
        return {key: without_numpy(one) for key, one in value.items()}
    return value


def noted_argument(value: Any, depth: int = _DEPTH) -> Any:
    """An argument as plain JSON types that `json.dumps` writes and `restored` reads back.

    What a file of settings cannot hold (numbers of hundreds of digits, texts that are none, lists
    within lists within lists) is known by its type alone.

    Args:
        value: the argument.
        depth: how many lists and dictionaries there may be within one another.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value) if is_unicode(value) else _digest(value)
    if isinstance(value, int):
        return int(value) if abs(value) <= 2**64 else _digest(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {OBJECT: "float", "value": repr(value)}
    if not depth:
        return _digest(value)
    if isinstance(value, list):
        return [noted_argument(one, depth - 1) for one in value]
    if isinstance(value, tuple):
        return {OBJECT: "tuple", "items": [noted_argument(one, depth - 1) for one in value]}
    if isinstance(value, Mapping) and OBJECT not in value and all(map(_is_name, value)):
        return {key: noted_argument(one, depth - 1) for key, one in value.items()}
    return _digest(value)


def _is_name(key: Any) -> bool:
    return type(key) is str and is_unicode(key) and len(key) <= 1000


def restorable(noted: Any) -> bool:
    """Whether the file has the argument itself, and not only what tells it from others."""
    if isinstance(noted, list):
        return all(map(restorable, noted))
    if not isinstance(noted, dict):
        return True
    if OBJECT not in noted:
        return all(map(restorable, noted.values()))
    if noted[OBJECT] == "tuple":
        return isinstance(noted.get("items"), list) and all(map(restorable, noted["items"]))
    return noted[OBJECT] == "float" and noted.get("value") in _FLOATS


def restored(noted: Any) -> Any:
    """The argument that `note` noted, where it is `restorable`."""
    if isinstance(noted, list):
        return [restored(one) for one in noted]
    if not isinstance(noted, dict):
        return noted
    if OBJECT not in noted:
        return {key: restored(one) for key, one in noted.items()}
    if noted[OBJECT] == "tuple":
        return tuple(restored(one) for one in noted["items"])
    return float(noted["value"])


def is_argument(value: Any, noted: Any) -> bool:
    """Whether an argument is the one that was noted, as far as the note can tell."""
    return _alike(noted_argument(value), noted)


def in_words(noted: Any) -> str:
    """What an argument was, in a few words: "a picture of 64×48 pixels"."""
    if not isinstance(noted, dict) or OBJECT not in noted:
        return "a list" if isinstance(noted, list) else "an object"
    kind, size = _short(noted[OBJECT]), noted.get("size", noted.get("shape"))
    if isinstance(size, list):
        return f"{kind} of {_short('×'.join(map(str, size[:9])))}"
    return f"{kind} {_short(noted['name'])}" if "name" in noted else kind


def _short(value: Any) -> str:
    """A name from a file as it is, where it is one; else quoted."""
    said = str(value)
    return said if said.isprintable() and len(said) <= 60 else quoted(said)


def _alike(given: Any, noted: Any) -> bool:
    if isinstance(noted, dict) and OBJECT in noted and not noted.keys() & {"sha256", "items"}:
        # Known by its type alone, and a subclass of it, or a copy by another name, will do.
        return noted[OBJECT] != "float" or given == noted
    if isinstance(noted, dict):
        same = isinstance(given, dict) and given.keys() == noted.keys()
        return same and all(_alike(given[key], noted[key]) for key in noted)
    if isinstance(noted, list):
        same = isinstance(given, list) and len(given) == len(noted)
        return same and all(map(_alike, given, noted))
    return type(given) is type(noted) and given == noted


def _digest(value: Any) -> dict[str, Any]:
    """What tells an object from others of its kind."""
    if isinstance(value, Image.Image):
        palette = value.getpalette() if value.mode == "P" else None
        data = value.tobytes() + bytes(palette or ())
        return {OBJECT: "picture", "mode": value.mode, "size": list(value.size), **_sha(data)}
    if isinstance(value, torch.Tensor):
        if value.is_meta or value.layout != torch.strided or value.is_complex():
            return {OBJECT: "tensor", "shape": list(value.shape)}  # its bytes are not at hand
        whole = value.detach().cpu().contiguous().reshape(-1)
        kind = str(value.dtype).removeprefix("torch.")
        data = whole.view(torch.uint8).numpy().tobytes()
        return {OBJECT: "tensor", "dtype": kind, "shape": list(value.shape), **_sha(data)}
    if isinstance(value, np.ndarray):
        about: dict[str, Any] = {
            OBJECT: "array",
            "dtype": str(value.dtype),
            "shape": list(value.shape),
        }
        return about if value.dtype.hasobject else about | _sha(value.tobytes())
    name = getattr(value, "__name__", None)
    about = {OBJECT: type(value).__name__}
    return about | ({"name": name} if isinstance(name, str) else {})


def _sha(data: bytes) -> dict[str, str]:
    return {"sha256": hashlib.sha256(data).hexdigest()}
