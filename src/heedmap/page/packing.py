"""The maps of runs as tables of whole numbers, small enough for a page.

Axes as in `heedmap.maps`, and C: the words of a run's prompts (the sum of their tokens each), and
after those of each prompt its start token, end token and padding if they were recorded.

A table has a plane of h·w numbers for each layer, window of steps, head and entry. The first table
is the mean over steps and heads; finer ones follow as far as the budget goes. A plane is stored as
`low + k · unit` with whole `k` up to 65535 or 255, so its error is at most 1/131070 or 1/510 of its
range. The page offers only the windows and heads that a table has.
"""

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from heedmap.errors import as_sentence
from heedmap.io.schemas import TokenKind
from heedmap.maps.recordings import Recording, cells, is_even, short_names
from heedmap.text.words import TokenTable

_SPECIALS: dict[TokenKind, str] = {
    "start": "start token",
    "end": "end token",
    "pad": "padding",
}
_LEAST = 0.4  # deflate hardly ever makes maps smaller than this share
_Runs = Sequence[Sequence[Recording]]
_Shape = tuple[int, bool, int]
"""The resolution of a table: steps of a window, with heads or their mean, bits of a number."""


def pack(runs: Sequence[Mapping[str, Recording]], budget: int) -> dict[str, Any]:
    """Return the data from which a page computes the maps of runs, as plain JSON types.

    Args:
        runs: the recordings of each run by the name of their prompt, such as "negative"; all of one
            model, of one number of steps and of the same kept axes.
        budget: the most characters. The mean and the refined maps are always there.
    """
    recordings = [[*run.values()] for run in runs]
    every = [one for run in recordings for one in run]
    content: dict[str, Any] = {
        "layers": _layers(every[0]),
        "keep": sorted(every[0].keep),
        "steps": len(every[0].timesteps),
        "cells": cells(every[0].latent),
        "runs": [*map(_words, runs)],
        "refined": None,
    }
    budget -= len(as_script(content))
    if all(one.refined is not None for one in every):
        refined = [[one.refined_alone() for one in run] for run in recordings]
        tables = [_table(refined, (content["steps"], False, 16))]
        content["refined"] = {"layers": _layers(refined[0][0]), "tables": tables}
        budget -= _size(tables)
    return {**content, "tables": _tables(recordings, budget)}


def as_script(data: Mapping[str, Any]) -> str:
    """Encode data as JSON that cannot end an HTML element."""
    # ASCII: U+2028 is escaped too.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _words(run: Mapping[str, Recording]) -> dict[str, Any]:
    return {
        "prompts": [
            {
                "name": name,
                "pieces": _pieces(one.table),
                "unread": as_sentence(one.table.unread) if one.table.unread else "",
            }
            for name, one in run.items()
        ],
        "entries": [
            {"text": text, "kind": kind, "number": number, "prompt": prompt}
            for prompt, one in enumerate(run.values())
            for text, kind, number in _entries(one)
        ],
    }


def _entries(recording: Recording) -> dict[tuple[str, str, int], list[int]]:
    """Return the columns of the K axis that each entry (text, kind, word number) sums."""
    at = recording.columns
    table = recording.table
    entries = {
        (word.text, "word", word.number): word.tokens for word in table.read_words
    }
    for kind, text in _SPECIALS.items():
        if tokens := tuple(
            position for position in table.positions(kind) if position in at
        ):
            entries[text, kind, -1] = tokens
    return {
        entry: [at[position] for position in tokens]
        for entry, tokens in entries.items()
    }


def _pieces(table: TokenTable) -> list[list[Any]]:
    """Return a prompt as [text, word number, was it read]; between words the number is -1."""
    pieces: list[list[Any]] = []
    done = 0
    for word in table.words:
        pieces.append([table.prompt[done : word.start], -1, True])
        pieces.append([word.text, word.number, bool(word.tokens)])
        done = word.end
    pieces.append([table.prompt[done:], -1, True])
    return [piece for piece in pieces if piece[0]]


def _layers(recording: Recording) -> list[dict[str, Any]]:
    shorts = short_names({layer.name: layer.part for layer in recording.layers})
    return [
        {**asdict(layer), "short": shorts[layer.name], "group": layer.group}
        for layer in recording.layers
    ]


def _tables(runs: _Runs, budget: int) -> list[dict[str, Any]]:
    steps = len(runs[0][0].timesteps)
    keep = runs[0][0].keep
    by_step = "step" in keep and steps > 1
    by_head = "head" in keep
    tables = _finest(runs, [(steps, False, 16)], budget) or [
        _table(runs, (steps, False, 8))
    ]
    rest = budget - _size(tables)
    if (
        by_step
        and by_head
        and (whole := _finest(runs, [(1, True, 16), (1, True, 8)], rest))
    ):
        return tables + whole
    if by_head:
        shapes = [(steps, True, 16), (steps, True, 8)]
        tables += _finest(runs, shapes, rest // 2 if by_step else rest)
    if by_step:
        windows = [(n, False, 8) for n in (1, 2, 3, 4, 5, 10, 20, 50, 100) if n < steps]
        tables += _finest(runs, [(1, False, 16), *windows], budget - _size(tables))
    return tables


def _finest(runs: _Runs, shapes: Sequence[_Shape], budget: int) -> list[dict[str, Any]]:
    first = runs[0][0]
    entries = sum(len(_entries(one)) for run in runs for one in run)
    for window, heads, bits in shapes:
        places = sum(
            math.prod(one.grid) * (one.heads if heads else 1) for one in first.layers
        )
        numbers = places * entries * math.ceil(len(first.timesteps) / window)
        if numbers * bits / 8 * _LEAST * 4 / 3 <= budget:
            tables = [_table(runs, (window, heads, bits))]
            if _size(tables) <= budget:
                return tables
    return []


def _size(tables: list[dict[str, Any]]) -> int:
    return sum(len(data) for table in tables for data in table["data"])


def _table(runs: _Runs, shape: _Shape) -> dict[str, Any]:
    """Return a table, with the `data` of each run: ranges, then numbers, compressed as base64."""
    steps = len(runs[0][0].timesteps)
    window, heads, bits = shape
    windows = [[a, min(a + window, steps)] for a in range(0, steps, window)]
    texts: list[str] = []
    for run in runs:
        columns = [[*_entries(one).values()] for one in run]
        ranges = []
        numbers = []
        for arrays in zip(*(one.arrays for one in run), strict=True):
            each = zip(arrays, columns, strict=True)
            planes = np.concatenate(
                [_planes(*one, windows, heads) for one in each], axis=2
            )
            lows, whole = _whole_numbers(planes.reshape(-1, planes.shape[-1]), bits)
            ranges.append(lows.tobytes())
            numbers.append(whole)
        data = zlib.compress(b"".join([*ranges, *numbers]), 6)
        texts.append(base64.b64encode(data).decode("ascii"))
    return {"windows": windows, "heads": heads, "bits": bits, "data": texts}


def _planes(
    array: np.ndarray,
    columns: Sequence[list[int]],
    windows: Sequence[list[int]],
    heads: bool,
) -> np.ndarray:
    """Average (S, H, Q, K) to float32 (windows, H or 1, C, Q)."""
    if len(array) == 1:  # steps were averaged while recording
        windows = [[0, 1]]
    # All windows at once: there may be thousands of small ones.
    values = array if heads else array.mean(axis=1, keepdims=True, dtype=np.float32)
    sums = np.add.reduceat(values, [a for a, _ in windows], axis=0)
    means = sums / np.array([b - a for a, b in windows], np.float32).reshape(
        -1, 1, 1, 1
    )
    return np.stack([means[..., tokens].sum(axis=-1) for tokens in columns], axis=2)


def _whole_numbers(planes: np.ndarray, bits: int) -> tuple[np.ndarray, bytes]:
    """Quantize planes (N, Q) to float32 (N, 2), lowest value and unit, and bytes.

    A number is stored as the difference from the previous one, modulo 2**bits, and 16 bits as all
    high bytes before all low bytes: both compress better.
    """
    low = planes.min(axis=1).astype(np.float32)
    top = 2**bits - 1
    unit = ((planes.max(axis=1).astype(np.float64) - low) / top).astype(np.float32)
    unit[[is_even(plane) for plane in planes]] = 0  # else rounding would show as heat
    scaled = (planes - low[:, None].astype(np.float64)) / np.where(unit > 0, unit, 1)[
        :, None
    ]
    whole = np.clip(np.rint(scaled), 0, top).astype(np.int64)
    steps = np.diff(whole, axis=1, prepend=0) % (top + 1)
    parts = [steps] if bits == 8 else [steps >> 8, steps & 255]
    data = b"".join(part.astype(np.uint8).tobytes() for part in parts)
    return np.stack([low, unit], axis=1).astype("<f4"), data
