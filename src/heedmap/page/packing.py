"""The maps of runs as tables of whole numbers, small enough for a page.

Axes as in `heedmap.maps`, and C: the words of a run's prompts (the sum of their tokens each), and
after those of each prompt its start token, end token and padding if they were recorded.

A table has a plane of h·w numbers for each layer, window of steps, head and entry. The first table
is the mean over steps and heads; finer ones follow as far as the budget goes. A plane is stored as
`low + k · unit` with whole `k` up to 65535, so its error is at most 1/131070 of its range. The page
offers only the windows and heads that a table has.
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
    "image": "reference images",
    "end": "end token",
    "pad": "padding",
}
_SHARE_LEFT = 0.4  # of the bytes of maps: deflate saves 60 % at most
_TOP = 65535  # the largest number
_WINDOWS = (1, 2, 3, 4, 5, 10, 20, 50, 100)
_Runs = Sequence[Sequence[Recording]]


def pack(runs: Sequence[Mapping[str, Recording]], budget: int) -> dict[str, Any]:
    """Return the data from which a page computes the maps of runs, as plain JSON types.

    Args:
        runs: the recordings of each run by the name of their prompt, such as "negative"; all of one
            model, of one number of steps and of the same kept axes.
        budget: the most characters. The mean and the refined maps are always there.
    """
    recordings = [[*run.values()] for run in runs]
    first = recordings[0][0]
    steps = len(first.timesteps)
    content: dict[str, Any] = {
        "layers": _layers(first),
        "keep": sorted(first.keep),
        "steps": steps,
        "cells": cells(first.latent),
        "runs": [*map(_words, runs)],
        "refined": None,
    }
    budget -= len(as_script(content))
    if all(one.refined is not None for run in recordings for one in run):
        refined = [[one.refined_alone() for one in run] for run in recordings]
        tables = [_table(refined, steps, False)]
        content["refined"] = {"layers": _layers(refined[0][0]), "tables": tables}
        budget -= _size(tables)
    return {**content, "tables": _tables(recordings, budget)}


def as_script(data: Mapping[str, Any]) -> str:
    """Encode data as JSON that cannot end an HTML element."""
    # ASCII: U+2028 is escaped too.
    text = json.dumps(
        data,
        separators=(",", ":"),
        allow_nan=False,
    )
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _words(run: Mapping[str, Recording]) -> dict[str, Any]:
    prompts: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    for number, (name, recording) in enumerate(run.items()):
        table = recording.table
        unread = table.unread and as_sentence(table.unread)
        prompts.append(
            {
                "name": name,
                "pieces": _pieces(table),
                "unread": unread,
            }
        )
        entries += [{**entry, "prompt": number} for entry, _ in _entries(recording)]
    return {"prompts": prompts, "entries": entries}


def _entries(recording: Recording) -> list[tuple[dict[str, Any], list[int]]]:
    """Return each entry, and the columns of the K axis that it sums."""
    at = recording.columns
    table = recording.table
    entries = [
        (
            {
                "text": word.text,
                "kind": "word",
                "number": word.number,
            },
            word.tokens,
        )
        for word in table.read_words
    ]
    for kind, text in _SPECIALS.items():
        tokens = tuple(p for p in table.positions(kind) if p in at)
        if tokens:
            entries.append(
                (
                    {
                        "text": text,
                        "kind": kind,
                        "number": -1,
                    },
                    tokens,
                )
            )
    return [(entry, [at[p] for p in tokens]) for entry, tokens in entries]


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
        {
            **asdict(layer),
            "short": shorts[layer.name],
            "group": layer.group,
        }
        for layer in recording.layers
    ]


def _tables(runs: _Runs, budget: int) -> list[dict[str, Any]]:
    """Return the mean over steps and heads, and finer tables as far as the budget goes."""
    keep = runs[0][0].keep
    steps = len(runs[0][0].timesteps)
    tables = [_table(runs, steps, False)]
    if {"step", "head"} <= keep:
        whole = _finest(runs, [1], True, budget - _size(tables))
        if whole:
            return tables + whole
    if "head" in keep:
        tables += _finest(runs, [steps], True, budget - _size(tables))
    if "step" in keep:
        windows = [window for window in _WINDOWS if window < steps]
        tables += _finest(runs, windows, False, budget - _size(tables))
    return tables


def _finest(
    runs: _Runs,
    windows: Sequence[int],
    heads: bool,
    budget: int,
) -> list[dict[str, Any]]:
    """Return the first table that fits, with the smallest windows of steps."""
    first = runs[0][0]
    entries = sum(len(_entries(one)) for run in runs for one in run)
    places = sum(
        math.prod(layer.grid) * (layer.heads if heads else 1) for layer in first.layers
    )
    for window in windows:
        numbers = places * entries * math.ceil(len(first.timesteps) / window)
        if 2 * numbers * _SHARE_LEFT <= budget:
            tables = [_table(runs, window, heads)]
            if _size(tables) <= budget:
                return tables
    return []


def _size(tables: list[dict[str, Any]]) -> int:
    return sum(len(data) for table in tables for data in table["data"])


def _table(runs: _Runs, window: int, heads: bool) -> dict[str, Any]:
    """Return a table, with the `data` of each run: ranges, then numbers, compressed as base64.

    Args:
        runs: the recordings of each run.
        window: steps of a window.
        heads: True for each head, False for their mean.
    """
    steps = len(runs[0][0].timesteps)
    windows = [[a, min(a + window, steps)] for a in range(0, steps, window)]
    texts: list[str] = []
    for run in runs:
        ranges = b""
        numbers = b""
        for layer in range(len(run[0].arrays)):
            parts = [_planes(one, layer, window, heads) for one in run]
            planes = np.concatenate(parts, axis=2)
            lows, whole = _whole_numbers(planes.reshape(-1, planes.shape[-1]))
            ranges += lows
            numbers += whole
        data = zlib.compress(ranges + numbers)
        texts.append(base64.b64encode(data).decode("ascii"))
    return {
        "windows": windows,
        "heads": heads,
        "data": texts,
    }


def _planes(recording: Recording, layer: int, window: int, heads: bool) -> np.ndarray:
    """Average a layer (S, H, Q, K) to float32 (windows, H or 1, C, Q)."""
    values = recording.arrays[layer]
    if not heads:
        values = values.mean(
            axis=1,
            keepdims=True,
            dtype=np.float32,
        )
    # All windows at once: there may be thousands of small ones.
    starts = np.arange(0, len(values), window)
    lengths = np.diff(starts, append=len(values)).astype(np.float32)
    means = np.add.reduceat(values, starts, axis=0) / lengths[:, None, None, None]
    columns = [tokens for _, tokens in _entries(recording)]
    return np.stack([means[..., tokens].sum(axis=-1) for tokens in columns], axis=2)


def _whole_numbers(planes: np.ndarray) -> tuple[bytes, bytes]:
    """Quantize planes (N, Q) to the bytes of float32 (N, 2), lowest value and unit, and of numbers.

    A number is stored as the difference from the previous one, modulo 65536, and all high bytes
    before all low bytes: both compress better.
    """
    low = planes.min(axis=1, keepdims=True)
    high = planes.max(axis=1, keepdims=True).astype(np.float64)
    unit = ((high - low) / _TOP).astype(np.float32)
    unit[[is_even(plane) for plane in planes]] = 0  # else rounding would show as heat
    scaled = (planes - low.astype(np.float64)) / np.where(unit > 0, unit, 1)
    whole = np.clip(np.rint(scaled), 0, _TOP).astype(np.int64)
    steps = np.diff(whole, axis=1, prepend=0).astype(">u2")
    parts = steps.view(np.uint8).reshape(-1, 2).T
    return np.hstack([low, unit]).astype("<f4").tobytes(), parts.tobytes()
