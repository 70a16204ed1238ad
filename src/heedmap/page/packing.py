"""The maps of a recording as tables of whole numbers, small enough for a page.

Axes as in `heedmap.maps`, and C: the words (the sum of their tokens each), then the start token,
the end token and the padding if they were recorded.

A table has planes of h·w numbers for groups of layers, windows of steps, and heads. The first table
is the mean over steps and heads; finer ones follow as far as the budget goes. A plane is stored as
`low + k · unit` with whole `k` up to 65535 or 255, so its error is at most 1/131070 or 1/510 of its
range. A table lists its windows and groups of layers, and the page offers only those.

Refined maps have a table of their own, of one layer, at 16 bits if that fits. So have soft masks of
the prompt's phrases and of words outside phrases, at 8 bits, scaled to at most `MASK_SIDE` pixels
on the short side.
"""

import base64
import hashlib
import html
import io
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import numpy as np
from PIL import Image

from heedmap.errors import NothingRecordedError, as_sentence
from heedmap.figures.overlays import resize_map
from heedmap.io.values import TokenKind
from heedmap.maps.masks import phrase_tokens, phrases_of, soft_masks
from heedmap.maps.recordings import REFINED, Layer, Recording, cells, short_names, stage_of
from heedmap.mathematics.agreement import is_even
from heedmap.text.prompts import is_content
from heedmap.text.words import TokenTable


def document(template: str, title: str, style: str, script: str, **parts: str) -> str:
    """Fill a template.

    Args:
        template: HTML with `{{title}}`, `{{policy}}`, `{{style}}`, `{{script}}` and the names of
            `parts`.
        title: the title as plain text.
        style: CSS.
        script: JavaScript.
        parts: other HTML, or JSON from `as_script`.
    """
    policy = (
        f"default-src 'none'; img-src data: blob:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    every = {
        "title": html.escape(title.encode("utf-8", "replace").decode("utf-8")),
        "policy": html.escape(policy, quote=False),
        "style": style,
        "script": script,
        **parts,
    }
    # In one pass: a part may contain braces.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: every[place[1]], template)


def as_script(data: Mapping[str, Any]) -> str:
    """Encode data as JSON that cannot end an HTML element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 is escaped too
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def page_part(name: str) -> str:
    """Read a file of a page by its path within this folder."""
    return resources.files("heedmap.page").joinpath(name).read_text(encoding="utf-8")


def link(image: Image.Image, kind: str, **options: Any) -> str:
    """Return an image as a data URL."""
    file = io.BytesIO()
    image.save(file, kind.upper(), **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


_SPECIALS: tuple[tuple[TokenKind, str], ...] = (
    ("start", "start token"),
    ("end", "end token"),
    ("pad", "padding"),
)
MASK_SIDE = 256
"""The most pixels on the short side of a mask."""
_MASKS = 16  # masks get one part of so many of the budget
_LEAST = 0.4  # deflate hardly ever makes maps smaller than this share


@dataclass(frozen=True)
class _Shape:
    """The resolution of a table: single layers or groups, heads, steps of a window, bits."""

    layers: bool
    heads: bool
    window: int
    bits: int


def pack(recording: Recording, budget: int, picture: Image.Image | None = None) -> dict[str, Any]:
    """Return the data from which a page computes the maps of a recording, as plain JSON types.

    Args:
        recording: a recording. With refined maps, soft masks are computed, which needs torch.
        budget: the most characters of the tables. The first table is always there, at least at 8
            bits and with layers averaged by group and grid.
        picture: the image to whose edges masks are fitted.

    Returns:
        `pieces` (the prompt cut at words), `unread` (a sentence about words that the model did not
        read), `entries` (the C axis), `layers`, `keep`, `steps`, `cells` (w, h) and `tables`;
        `refined` with its `layers` and `tables`, or None; `masks` with `cells`, `tables`, the
        number of `planes`, how many of these are of `phrases` (the first), and `of`, the planes of
        each entry, or None if there are no masks or they do not fit.

    Raises:
        NothingRecordedError: if the recording is empty.
    """
    if not recording.arrays:
        raise NothingRecordedError("nothing was recorded: a page needs the maps of a run")
    entries, columns = _entries(recording)
    names = short_names([layer.name for layer in recording.layers])
    w, h = cells(recording.latent)
    refined = _refined(recording, columns, budget)
    budget -= len(refined["tables"][0]["data"]) if refined else 0
    kept = budget // _MASKS if refined else 0
    tables = list(_tables(recording, columns, budget - kept))
    budget -= sum(len(table["data"]) for table in tables)
    return {
        "pieces": _pieces(recording.table),
        "unread": as_sentence(recording.table.unread) if recording.table.unread else "",
        "entries": entries,
        "layers": [*map(_layer_entry, recording.layers, names)],
        "keep": sorted(recording.keep),
        "steps": len(recording.timesteps),
        "cells": [w, h],
        "tables": tables,
        "refined": refined,
        "masks": _masks(recording, entries, columns, picture, budget),
    }


# --- the C axis -------------------------------------------------------------------------------


def _entries(recording: Recording) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Return the entries of the C axis, and the columns of the K axis that each sums."""
    at = recording.columns
    entries: list[dict[str, Any]] = []
    columns: list[list[int]] = []
    for word in recording.table.read_words:
        if all(position in at for position in word.tokens):
            content = is_content(word.text)
            entries.append(
                {"text": word.text, "kind": "word", "content": content, "number": word.number}
            )
            columns.append([at[position] for position in word.tokens])
    for kind, text in _SPECIALS:
        there = [at[p] for p in recording.table.positions(kind) if p in at]
        if there:
            entries.append({"text": text, "kind": kind, "content": False, "number": -1})
            columns.append(there)
    return entries, columns


def _pieces(table: TokenTable) -> list[list[Any]]:
    """Return the prompt as [text, word number, was it read]; between words the number is -1."""
    pieces: list[list[Any]] = []
    done = 0
    for word in table.words:
        if word.start > done:
            pieces.append([table.prompt[done : word.start], -1, True])
        pieces.append([word.text, word.number, bool(word.tokens)])
        done = word.end
    if done < len(table.prompt):
        pieces.append([table.prompt[done:], -1, True])
    return pieces


# --- layers -----------------------------------------------------------------------------------


def _layer_entry(layer: Layer, short: str) -> dict[str, Any]:
    return {
        "name": layer.name,
        "short": short,
        "group": stage_of(layer.name),
        "grid": list(layer.grid),
        "heads": layer.heads,
    }


def _parts(recording: Recording, shape: _Shape) -> list[list[int]]:
    """Return the layers one by one, or grouped by stage, grid and heads."""
    if shape.layers:
        return [[i] for i in range(len(recording.layers))]
    parts: dict[Any, list[int]] = {}
    for i, layer in enumerate(recording.layers):
        heads = layer.heads if shape.heads else 0
        parts.setdefault((stage_of(layer.name), layer.grid, heads), []).append(i)
    return list(parts.values())


# --- tables -----------------------------------------------------------------------------------


def _tables(
    recording: Recording, columns: Sequence[Sequence[int]], budget: int
) -> Iterator[dict[str, Any]]:
    """Yield the table of the mean over steps and heads, then finer ones that still fit."""
    steps, keep = len(recording.timesteps), recording.keep
    rest = budget
    everything = [_Shape(True, False, steps, 16), _Shape(True, False, steps, 8)]
    first = _finest(recording, columns, everything, rest) or _table(
        recording, columns, _Shape(False, False, steps, 8)
    )
    yield first
    rest -= len(first["data"])
    by_step, by_head = "step" in keep and steps > 1, "head" in keep
    if not (by_step or by_head):
        return
    whole = [_Shape(True, by_head, 1 if by_step else steps, bits) for bits in (16, 8)]
    full = _finest(recording, columns, whole, rest)
    if full is not None:
        yield full
        return
    if by_head and by_step:  # one table of heads and one of steps, each a mean over the other
        shapes = [_Shape(layers, True, steps, 8) for layers in (True, False)]
        heads = _finest(recording, columns, shapes, rest * 2 // 5)
        if heads is not None:
            yield heads
            rest -= len(heads["data"])
    if by_step:
        windows = [n for n in (1, 2, 3, 4, 5, 10, 20, 50, 100) if n < steps]
        shapes = [_Shape(True, False, 1, 16), _Shape(True, False, 1, 8)]
        shapes += [_Shape(False, False, window, 8) for window in windows]
    else:
        shapes = [_Shape(False, True, steps, 8)]
    found = _finest(recording, columns, shapes, rest)
    if found is not None:
        yield found


def _refined(
    recording: Recording, columns: Sequence[Sequence[int]], budget: int
) -> dict[str, Any] | None:
    """Return the refined maps as those of one layer; None if there are none."""
    if recording.refined is None:
        return None
    alone, steps = recording.refined_alone(), len(recording.timesteps)
    shapes = [_Shape(True, False, steps, 16), _Shape(True, False, steps, 8)]
    table = _finest(alone, columns, shapes[:1], budget // 2) or _table(alone, columns, shapes[1])
    return {"layers": [_layer_entry(alone.layers[0], REFINED)], "tables": [table]}


def _masks(
    recording: Recording,
    entries: Sequence[dict[str, Any]],
    columns: Sequence[Sequence[int]],
    picture: Image.Image | None,
    budget: int,
) -> dict[str, Any] | None:
    """Return the soft masks of the words' phrases; None if there are none or no room."""
    if recording.refined is None:
        return None
    of = [
        phrases_of(recording.table, [recording.positions[column] for column in own])
        if entry["kind"] == "word"
        else ()
        for entry, own in zip(entries, columns, strict=True)
    ]
    whole = phrase_tokens(recording.table)
    every = [*dict.fromkeys([*whole, *(part for own in of for part in own)])]
    if not every or not recording.columns.keys() >= {place for part in every for place in part}:
        return None
    size, part = recording.size, min(1.0, MASK_SIDE / min(recording.size))
    w, h = (part * length for length in size)
    sizes = [(max(1, round(w / n)), max(1, round(h / n))) for n in (1, 2, 4)]
    made = ([resize_map(one, to) for to in sizes] for one in soft_masks(recording, every, picture))
    for (w, h), small in zip(sizes, zip(*made, strict=True), strict=True):
        array = np.stack(small, axis=-1).reshape(1, 1, h * w, len(every))
        alone = replace(
            recording,
            layers=(Layer("masks", 1, (h, w)),),
            arrays=(array,),
            keep=frozenset(),
            timesteps=recording.timesteps[:1],
            refined=None,
        )
        table = _table(alone, [[i] for i in range(len(every))], _Shape(True, False, 1, 8))
        if len(table["data"]) <= budget:
            return {
                "cells": [w, h],
                "layers": [_layer_entry(alone.layers[0], "masks")],
                "tables": [table],
                "planes": len(every),
                "phrases": len(whole),
                "of": [[every.index(one) for one in own] for own in of],
            }
    return None


def _finest(
    recording: Recording, columns: Sequence[Sequence[int]], shapes: Iterable[_Shape], budget: int
) -> dict[str, Any] | None:
    """Return the first table that fits into the budget; None if none does."""
    for shape in shapes:
        if _numbers(recording, columns, shape) * shape.bits / 8 * _LEAST * 4 / 3 > budget:
            continue
        table = _table(recording, columns, shape)
        if len(table["data"]) <= budget:
            return table
    return None


def _numbers(recording: Recording, columns: Sequence[Sequence[int]], shape: _Shape) -> int:
    """Return the number of values in a table."""
    count = 0
    for part in _parts(recording, shape):
        layer = recording.layers[part[0]]
        count += layer.grid[0] * layer.grid[1] * (layer.heads if shape.heads else 1)
    return count * len(columns) * math.ceil(len(recording.timesteps) / shape.window)


def _table(recording: Recording, columns: Sequence[Sequence[int]], shape: _Shape) -> dict[str, Any]:
    steps = len(recording.timesteps)
    windows = [[a, min(a + shape.window, steps)] for a in range(0, steps, shape.window)]
    parts, ranges, numbers = [], [], []
    for layers in _parts(recording, shape):
        planes = np.mean(
            [_planes(recording.arrays[i], columns, windows, shape.heads) for i in layers], axis=0
        )
        lows, whole = _whole_numbers(planes.reshape(-1, planes.shape[-1]), shape.bits)
        ranges.append(lows.tobytes())
        numbers.append(whole)
        layer = recording.layers[layers[0]]
        parts.append({"layers": layers, "grid": list(layer.grid), "heads": planes.shape[1]})
    blob = zlib.compress(b"".join([*ranges, *numbers]), 6)
    return {
        "windows": windows,
        "heads": shape.heads,
        "bits": shape.bits,
        "parts": parts,
        "data": base64.b64encode(blob).decode("ascii"),
    }


def _planes(
    array: np.ndarray,
    columns: Sequence[Sequence[int]],
    windows: Sequence[Sequence[int]],
    heads: bool,
) -> np.ndarray:
    """Average (S, H, Q, K) to float32 (windows, H or 1, C, Q)."""
    if len(array) == 1:  # steps were averaged while recording
        windows = [[0, 1]]
    # All windows at once: there may be thousands of small ones.
    taken = array if heads else array.mean(axis=1, keepdims=True, dtype=np.float32)
    starts, counts = [a for a, _ in windows], [b - a for a, b in windows]
    means = np.add.reduceat(taken, starts, axis=0) / np.array(counts, dtype=np.float32).reshape(
        -1, 1, 1, 1
    )
    return np.stack([means[..., list(group)].sum(axis=-1) for group in columns], axis=2)


def _whole_numbers(planes: np.ndarray, bits: int) -> tuple[np.ndarray, bytes]:
    """Quantize planes (N, Q) to float32 (N, 2), lowest value and unit, and bytes.

    A number is stored as the difference from the previous one, modulo 2**bits, and 16 bits as all
    high bytes before all low bytes: both compress better.
    """
    low = planes.min(axis=1).astype(np.float32)
    top = 2**bits - 1
    unit = ((planes.max(axis=1).astype(np.float64) - low) / top).astype(np.float32)
    unit[[is_even(plane) for plane in planes]] = 0  # else rounding would show as heat
    scaled = (planes - low[:, None].astype(np.float64)) / np.where(unit > 0, unit, 1)[:, None]
    whole = np.clip(np.rint(scaled), 0, top).astype(np.int64)
    steps = np.diff(whole, axis=1, prepend=0) % (top + 1)
    if bits == 8:
        data = steps.astype(np.uint8).tobytes()
    else:
        data = (steps >> 8).astype(np.uint8).tobytes() + (steps & 255).astype(np.uint8).tobytes()
    return np.stack([low, unit], axis=1).astype("<f4"), data
