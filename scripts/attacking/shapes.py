"""Runs of odd shapes that agree with themselves: many layers, steps, heads, words, long grids.

What a reader compares holds, so that only its bounds are left to refuse them.
"""

import io
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from attacking.plain import content, written

_MOST = 2**22  # numbers in the arrays that are really written; files that claim more have no more

ODD: dict[str, tuple[Any, ...]] = {
    "layers": (0, 2, 100, 1000, 20_000),
    "steps": (0, 1, 50, 1000, 20_000),
    "heads": (0, 1, 20, 1000, 65_536),
    "grid": ([1, 1], [1, 4096], [4096, 1], [7, 3], [64, 64], [512, 512]),
    "latent": ([1, 1], [1, 16_384], [1, 1_048_576], [1_048_576, 1], [7, 3], [128, 128], [2, 1000]),
    "size": ([1, 1], [32, 40], [20_000, 100], [1, 20_000], [1000, 1000], [4000, 3000]),
    "words": (0, 1, 60, 1000, 5000),
    "word": ("cat", "a", "\ud800", "x" * 60, "🏳", "<b>"),
    "keep": ([], ["layer"], ["step"], ["head"], ["layer", "step", "head"]),
    "positions": ("none", "few", "twice"),
    "value": (0.0, -1.0, 1e6, 1e19, 1e30, 3e38, -3e38, "nan", "inf"),
}


def reshape(folder: Path, change: Mapping[str, Any]) -> None:
    """Write a run anew, in the folder of one; `change["of"]` says what is odd."""
    odd = change["of"]
    try:
        data = content(folder / "maps.safetensors") or b""
        (length,) = struct.unpack("<Q", data[:8])
        about = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["heedmap"])
        run = json.loads(content(folder / "run.json") or b"")
        _alter(about, odd)
        run["settings"] |= {"prompt": about["table"]["prompt"], "text": about["table"]["prompt"]}
        run["settings"]["size"] = about["size"]
        words = [{**word, "file": None} for word in about["table"]["words"]]
        maps = _arrays(about, float(odd.get("value", 0.01)))
    except (
        ValueError, RecursionError, LookupError, TypeError, AttributeError, struct.error,
        OverflowError,
    ):  # fmt: skip
        return  # broken by an earlier change
    if "size" in odd and about["size"][0] * about["size"][1] <= 2**24:
        written(folder / "image.png", _picture(about["size"], noisy=odd.get("noisy", False)))
    written(folder / "maps.safetensors", maps)
    text = json.dumps({**run, "words": words})
    written(folder / "run.json", text.encode())


def _alter(about: dict[str, Any], odd: Mapping[str, Any]) -> None:
    layers = about["layers"]
    if "layers" in odd:
        first = layers[0] if layers else {"name": "mean", "heads": 1, "grid": [1, 1]}
        layers = [{**first, "name": f"up_blocks.{n}.attn2"} for n in range(odd["layers"])]
    for layer in layers:
        layer["heads"] = odd.get("heads", layer["heads"])
        layer["grid"] = odd.get("grid", layer["grid"])
    about["layers"] = layers
    if "steps" in odd:
        about["timesteps"] = [float(odd["steps"] - n) for n in range(odd["steps"])]
    for name in ("latent", "size", "keep"):
        about[name] = odd.get(name, about[name])
    if "words" in odd:
        about["table"] = _table(odd.get("word", "cat"), odd["words"])
        about["positions"] = list(range(odd["words"] + 2))
    if "positions" in odd:
        held = about["positions"]
        about["positions"] = {"none": [], "few": held[:1], "twice": [*held, *held]}[
            odd["positions"]
        ]


def _table(word: str, count: int) -> dict[str, Any]:
    """The words and tokens of a prompt of one word, many times."""
    prompt = " ".join([word] * count)
    spans = [(n * (len(word) + 1), n * (len(word) + 1) + len(word)) for n in range(count)]
    ends = [("<start>", "start"), ("<end>", "end")]
    tokens = [
        {"text": word, "start": a, "end": b, "kind": "text", "id": 5, "position": n}
        for n, (a, b) in enumerate(spans, 1)
    ]
    for place, (text, kind) in zip((0, len(tokens) + 1), ends, strict=True):
        special = {"text": text, "start": 0, "end": 0, "kind": kind, "id": 1, "position": place}
        tokens.insert(place, special)
    words = [
        {"number": n, "text": word, "start": a, "end": b, "tokens": [n + 1], "missing": 0}
        for n, (a, b) in enumerate(spans)
    ]
    return {"prompt": prompt, "limit": len(tokens), "missing": 0, "tokens": tokens, "words": words}


def _arrays(about: Mapping[str, Any], value: float) -> bytes:
    """The file of maps that fits what it says of itself, as far as it can be written."""
    header: dict[str, Any] = {"__metadata__": {"heedmap": json.dumps(about)}}
    at = 0
    for number, layer in enumerate(about["layers"]):
        shape = (
            len(about["timesteps"]) if "step" in about["keep"] else 1,
            layer["heads"] if "head" in about["keep"] else 1,
            layer["grid"][0] * layer["grid"][1],
            len(about["positions"]),
        )
        bytes_ = 4 * shape[0] * shape[1] * shape[2] * shape[3]
        header[f"layer.{number}"] = {
            "dtype": "F32", "shape": shape, "data_offsets": [at, at + bytes_],
        }  # fmt: skip
        at += bytes_
    said = json.dumps(header).encode()
    said += b" " * (-len(said) % 8)
    numbers = np.full(min(at // 4, _MOST), value, dtype="<f4").tobytes()
    return struct.pack("<Q", len(said)) + said + numbers


def _picture(size: list[int], *, noisy: bool) -> bytes:
    file = io.BytesIO()
    if noisy:
        shape = (size[1], size[0], 3)
        noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(noise).save(file, "PNG", compress_level=1)
    else:
        Image.new("RGB", (size[0], size[1]), "red").save(file, "PNG")
    return file.getvalue()
