"""A recording made small enough for a page: words' maps as whole numbers, in tables.

Axes as in `heedmap.maps`, and C · what the page tells apart: every word (its tokens added up), then
the start token, the end token and the padding, where they were recorded.

A table holds planes (h·w numbers each) for parts of the layers, windows of the steps, and heads
where these are told apart. A recording is given as one table that averages steps and heads, and, as
far as the page's budget goes, by finer ones. What a table holds is exact but for rounding: a plane
is written as `low + k · unit` with whole `k` up to 65535 or 255, so that the error of a plane is at
most 1/131070 or 1/510 of its own range, and that of a mean of planes at most the mean of these.
Nothing coarse is ever passed off as finer than it is: a table says which windows and parts it has,
and the page offers only those.

Refined maps are a table of their own, of one layer, at 16 bits where that fits. So are the soft
masks of the prompt's phrases and of the words that stand in none, at 8 bits, with at most
`MASK_SIDE` pixels on the short side; they are what `HeatMap.soft_mask` has, brought to that size.
"""

import base64
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from heedmap.errors import NothingRecordedError, as_sentence
from heedmap.figures.overlays import resize_map
from heedmap.files.values import TokenKind
from heedmap.maps.layer_names import short_names, stage_of
from heedmap.maps.recordings import REFINED, Layer, Recording, cells
from heedmap.maps.soft_masks import meant, phrase_tokens, soft_masks
from heedmap.mathematics.agreement import is_even
from heedmap.text.prompts import is_content
from heedmap.text.words import TokenTable

__all__ = ["pack"]

_SPECIALS: tuple[tuple[TokenKind, str], ...] = (
    ("start", "start token"),
    ("end", "end token"),
    ("pad", "padding"),
)
MASK_SIDE = 256
"""Pixels on the short side of the masks of a page, at most."""
_MASKS = 16  # so small a part of the budget is left to masks: steps and heads go before
_LEAST = 0.4  # of its size: deflate hardly ever makes maps smaller, so larger ones are not tried


@dataclass(frozen=True)
class _Shape:
    """What a table tells apart: single layers, heads, windows of so many steps; its bits."""

    layers: bool
    heads: bool
    window: int
    bits: int


def pack(recording: Recording, budget: int, picture: Image.Image | None = None) -> dict[str, Any]:
    """What the page needs to make any map of a recording, as plain JSON types.

    Where there are refined maps, soft masks are made, which takes torch.

    Args:
        recording: what a run's attention left behind.
        budget: characters that the tables may take. The first is there in any case, at 8 bits and
            with layers averaged by group and grid where that is needed; a long prompt at large
            grids may still go past a budget that is too small for it.
        picture: to whose edges masks are brought.

    Returns:
        `pieces` (the prompt cut into words and what is between them), `unread` (in a sentence, what
        of it the model did not read), `entries` (the C axis), `layers`, `keep`, `steps`, `cells`
        (w, h) and `tables`; `refined`, None where there is none, with its `layers` and `tables`;
        `masks`, None where there are none or they do not fit, with `cells`, `tables`, how many
        `planes` and how many of these are of `phrases` (the first), and `of`, those of each entry.

    Raises:
        NothingRecordedError: if the recording is empty.
    """
    if not recording.arrays:
        raise NothingRecordedError("nothing was recorded: a page needs the maps of a run")
    entries, columns = _entries(recording)
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
        "layers": [*map(_told, recording.layers, short_names([n.name for n in recording.layers]))],
        "keep": sorted(recording.keep),
        "steps": len(recording.timesteps),
        "cells": [w, h],
        "tables": tables,
        "refined": refined,
        "masks": _masks(recording, entries, columns, picture, budget),
    }


# --- the C axis -------------------------------------------------------------------------------


def _entries(recording: Recording) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """What is told apart, and for each the columns of the recording's K axis that are added up."""
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
    """The prompt as [text, word number, whether it was read]; between words the number is -1."""
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


def _told(layer: Layer, short: str) -> dict[str, Any]:
    return {
        "name": layer.name,
        "short": short,
        "group": stage_of(layer.name),
        "grid": list(layer.grid),
        "heads": layer.heads,
    }


def _parts(recording: Recording, shape: _Shape) -> list[list[int]]:
    """The layers, each by itself or those of a group and a grid together."""
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
    """The table of all steps and heads together, then what is finer and still fits."""
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
    if by_head and by_step:  # the one or the other, each averaged over the other
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
    """The refined maps as those of a recording of one layer; None where there are none."""
    if recording.refined is None:
        return None
    alone, steps = recording.refined_alone(), len(recording.timesteps)
    shapes = [_Shape(True, False, steps, 16), _Shape(True, False, steps, 8)]
    table = _finest(alone, columns, shapes[:1], budget // 2) or _table(alone, columns, shapes[1])
    return {"layers": [_told(alone.layers[0], REFINED)], "tables": [table]}


def _masks(
    recording: Recording,
    entries: Sequence[dict[str, Any]],
    columns: Sequence[Sequence[int]],
    picture: Image.Image | None,
    budget: int,
) -> dict[str, Any] | None:
    """The soft masks of the words' phrases, each once; None where there are none, or no room."""
    if recording.refined is None:
        return None
    of = [
        meant(recording.table, [recording.positions[column] for column in own])
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
                "layers": [_told(alone.layers[0], "masks")],
                "tables": [table],
                "planes": len(every),
                "phrases": len(whole),
                "of": [[every.index(one) for one in own] for own in of],
            }
    return None


def _finest(
    recording: Recording, columns: Sequence[Sequence[int]], shapes: Iterable[_Shape], budget: int
) -> dict[str, Any] | None:
    """The first of these tables that fits in the budget; None if none does."""
    for shape in shapes:
        if _numbers(recording, columns, shape) * shape.bits / 8 * _LEAST * 4 / 3 > budget:
            continue
        table = _table(recording, columns, shape)
        if len(table["data"]) <= budget:
            return table
    return None


def _numbers(recording: Recording, columns: Sequence[Sequence[int]], shape: _Shape) -> int:
    """How many numbers a table holds."""
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
    """(S, H, Q, K) -> float32 (windows, H or 1, C, Q)."""
    if len(array) == 1:  # steps were averaged while recording
        windows = [[0, 1]]
    # Of all windows at once: there may be thousands, of few numbers each.
    taken = array if heads else array.mean(axis=1, keepdims=True, dtype=np.float32)
    starts, counts = [a for a, _ in windows], [b - a for a, b in windows]
    means = np.add.reduceat(taken, starts, axis=0) / np.array(counts, dtype=np.float32).reshape(
        -1, 1, 1, 1
    )
    return np.stack([means[..., list(group)].sum(axis=-1) for group in columns], axis=2)


def _whole_numbers(planes: np.ndarray, bits: int) -> tuple[np.ndarray, bytes]:
    """Planes (N, Q) as float32 (N, 2), lowest value and unit, and bytes of whole numbers.

    Each number is written as its difference from the one before, modulo 2**bits, and of 16 bits all
    high bytes before all low ones: so deflate finds more to save.
    """
    low = planes.min(axis=1).astype(np.float32)
    top = 2**bits - 1
    unit = ((planes.max(axis=1).astype(np.float64) - low) / top).astype(np.float32)
    unit[[is_even(plane) for plane in planes]] = 0  # or its rounding would be seen as heat
    scaled = (planes - low[:, None].astype(np.float64)) / np.where(unit > 0, unit, 1)[:, None]
    whole = np.clip(np.rint(scaled), 0, top).astype(np.int64)
    steps = np.diff(whole, axis=1, prepend=0) % (top + 1)
    if bits == 8:
        data = steps.astype(np.uint8).tobytes()
    else:
        data = (steps >> 8).astype(np.uint8).tobytes() + (steps & 255).astype(np.uint8).tobytes()
    return np.stack([low, unit], axis=1).astype("<f4"), data
