"""Selections of layers, steps and heads, and the mean over one.

Axes: S step · H head · Q latent position (Q = h·w, row-major) · K text token · h, w a map's cells.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from PIL import Image

from heedmap.errors import (
    ArgumentError,
    NothingRecordedError,
    SelectionError,
    plural,
    quoted,
    signed,
)
from heedmap.maps.recordings import Layer, Recording, cells, layers_there, name_fits
from heedmap.mathematics.maps import rank_correlation
from heedmap.options import Axis
from heedmap.text.words import Word

_OneFilter = str | Callable[[Layer], bool]
LayerFilter = _OneFilter | Sequence[_OneFilter]
"""A name or a pattern, a function that takes a layer or leaves it, or several of these."""
UNSTEADY = 0.8
"""The stability below which a map is called unsteady: maps of two nouns agree as far, of an image
with both (by 0.64 in the mean and 0.83 at most on the embedded model), while no noun's own do, in
ten looks (0.91 at least)."""


@dataclass(frozen=True)
class Selection:
    """A part of a recording: the numbers of its layers, steps and heads; None for all."""

    layers: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None

    def layers_of(self, recording: Recording) -> tuple[int, ...]:
        """Return the numbers of its layers."""
        return (*range(len(recording.layers)),) if self.layers is None else self.layers

    def steps_of(self, recording: Recording) -> tuple[int, ...]:
        """Return the numbers of its steps; SelectionError where they were averaged."""
        _check_kept(recording, "step")
        return (*range(len(recording.timesteps)),) if self.steps is None else self.steps

    def heads_of(self, recording: Recording) -> tuple[int, ...]:
        """Return the numbers of its heads; SelectionError where they were averaged."""
        _check_kept(recording, "head")
        most = max(recording.layers[i].heads for i in self.layers_of(recording))
        return (*range(most),) if self.heads is None else self.heads

    def with_layers(self, recording: Recording, layers: Any, resolution: Any) -> "Selection":
        """Keep the layers that fit a filter, and a grid (h, w) or its short side."""
        _check_kept(recording, "layer")
        grid = np.asarray(resolution).tolist()
        mine = {i: recording.layers[i] for i in self.layers_of(recording)}
        found = tuple(
            i
            for i, layer in mine.items()
            if (layers is None or layer_fits(layer, layers))
            and (grid is None or grid in (min(layer.grid), [*layer.grid]))
        )
        if not found:
            asked = layers if resolution is None else resolution
            there = layers_there([layer.name for layer in mine.values()], f"{layers or ''}")
            sides = sorted({min(layer.grid) for layer in mine.values()})
            raise SelectionError(
                f"no layer fits {quoted(asked)}: expected {there}, with {sides} cells on the short "
                "side"
            )
        return replace(self, layers=found)

    def with_steps(self, recording: Recording, steps: Any, timesteps: Any) -> "Selection":
        """Keep the steps that have these numbers, and timesteps in a range, both ends in."""
        total, mine = len(recording.timesteps), self.steps_of(recording)
        found = [i for i in numbers(steps, total, "step") if i in mine]
        if timesteps is not None:
            try:
                low, high = sorted(float(end) for end in timesteps)
            except (TypeError, ValueError) as error:
                raise ArgumentError(
                    f"timesteps={quoted(timesteps)} is not a range: expected two numbers, the "
                    "highest and the lowest"
                ) from error
            found = [i for i in found if low <= recording.timesteps[i] <= high]
        if not found:
            asked = quoted(steps if timesteps is None else timesteps)
            raise SelectionError(f"no step fits {asked}: the run has {plural(total, 'step')}")
        return replace(self, steps=tuple(found))

    def with_heads(self, recording: Recording, heads: Any) -> "Selection":
        """Keep the heads that have these numbers, and the layers that have them all."""
        before, mine = self.heads_of(recording), self.layers_of(recording)
        most = max(recording.layers[i].heads for i in mine)
        found = [head for head in numbers(heads, most, "head") if head in before]
        fitting = tuple(i for i in mine if found and max(found) < recording.layers[i].heads)
        if not fitting:
            raise SelectionError(
                f"no layer has all of the heads {quoted(heads)}: expected 0 to {most - 1}"
            )
        return replace(self, layers=fitting, heads=tuple(found))


def _check_kept(recording: Recording, axis: Axis) -> None:
    if axis not in recording.keep:
        kept = ", ".join(sorted(recording.keep)) or "none"
        raise SelectionError(
            f"{axis}s cannot be selected, since they were averaged while recording (kept: {kept}): "
            f"record again with '{axis}' in keep"
        )


def layer_fits(layer: Layer, wanted: object) -> bool:
    """Return whether a layer fits a `LayerFilter`; ArgumentError if it is none."""
    if isinstance(wanted, str):
        return name_fits(layer.name, wanted)
    if callable(wanted):
        return bool(wanted(layer))
    if not isinstance(wanted, Sequence):
        raise ArgumentError(
            f"layers is {quoted(wanted)}: expected 'down', 'mid' or 'up', a name, a pattern, a "
            "list of these, or a function of a layer"
        )
    return any(layer_fits(layer, one) for one in cast(Sequence[object], wanted))


def numbers(wanted: Any, total: int, what: str) -> list[int]:
    """Return the numbers of steps or heads, of `total`: ascending, each once; all for None.

    Args:
        wanted: a whole number, a slice or several numbers; negative ones count from the end.
        total: the number of steps or heads.
        what: "step" or "head", for the SelectionError.
    """
    at: Any = slice(None) if wanted is None else wanted
    try:
        at = at if hasattr(at, "indices") else np.asarray(at)
        return np.unique(np.arange(total)[at]).tolist()
    except (IndexError, TypeError, ValueError) as error:
        raise SelectionError(
            f"{what} {quoted(wanted)} is not there: expected whole numbers from 0 to {total - 1}, "
            "a slice or a list"
        ) from error


@dataclass(frozen=True, eq=False)
class Averages:
    """The mean over a selection of the attention to tokens."""

    recording: Recording
    selection: Selection

    def of(self, positions: Iterable[int]) -> np.ndarray:
        """Return the mean over the selection of the summed probabilities of tokens: (h, w)."""
        recording = self.recording
        if not recording.arrays:
            raise NothingRecordedError("nothing was recorded: run the pipeline inside of the trace")
        at, positions = recording.columns, list(positions)
        missing = [p for p in positions if p not in at]
        if missing:
            raise SelectionError(f"tokens {missing} were not recorded: record with tokens='all'")
        columns = [at[p] for p in positions]
        w, h = cells(recording.latent)
        total = np.zeros((h, w), dtype=np.float32)
        for grid, sums in self._reduced.items():
            total += _resize(sums[:, columns].sum(axis=-1).reshape(grid), (w, h))
        return total / np.float32(len(self.selection.layers_of(recording)))

    def magnitude(self, words: Iterable[Word]) -> np.ndarray:
        """Return the sum of the words' own maps, each by its magnitude: (h, w)."""
        w, h = cells(self.recording.latent)
        total = np.zeros((h, w), dtype=np.float32)
        for word in words:
            total += np.abs(self.of(word.tokens))
        return total

    @cached_property
    def shared(self) -> tuple[float, float]:
        """The lowest and the highest value among the maps of all words."""
        maps = [self.of(word.tokens) for word in self.recording.table.read_words]
        low = min((float(m.min()) for m in maps), default=0.0)
        return low, max((float(m.max()) for m in maps), default=1.0)

    @cached_property
    def _reduced(self) -> dict[tuple[int, int], np.ndarray]:
        """By grid, the sum of its layers' means over steps and heads: (Q, K).

        Resizing is linear: layers of one grid are added up first, and resized once.
        """
        sums: dict[tuple[int, int], np.ndarray] = {}
        for i in self.selection.layers_of(self.recording):
            part, grid = self.recording.arrays[i], self.recording.layers[i].grid
            if self.selection.steps is not None:
                part = part[list(self.selection.steps)]
            if self.selection.heads is not None:
                part = part[:, list(self.selection.heads)]
            mean = part.mean(axis=(0, 1), dtype=np.float32)
            sums[grid] = sums[grid] + mean if grid in sums else mean
        return sums


def _resize(grid: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    # Pillow's bilinear filter widens when it shrinks, so that no cell of a finer grid is skipped.
    image = Image.fromarray(np.ascontiguousarray(grid, dtype=np.float32))
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR))


# --- how stable the maps of a located image are -------------------------------------------------


def stability_of(
    recording: Recording, halves: Sequence[Mapping[tuple[int, int], np.ndarray]]
) -> Mapping[int, float] | None:
    """Return the rank correlation of each word's maps of two halves of the steps.

    The halves have noises of their own. A map may be stable and false: it shows what the model sees
    each time.

    Args:
        recording: of the run.
        halves: of each, by the grid of its layers, the sum (Q, K) of the attention to its tokens.

    Returns:
        By the number of a word -1 to 1, to four digits, without words whose map is constant; None
        where there are no two halves, or nothing is left.
    """
    if len(halves) < 2:
        return None
    # The maps of a half are those of a run but for a factor, which changes no rank.
    one, other = (
        Averages(
            replace(
                recording,
                layers=tuple(Layer("", 1, grid) for grid in half),
                arrays=tuple(total[None, None] for total in half.values()),
            ),
            Selection(),
        )
        for half in halves
    )
    found = {
        word.number: rank_correlation(one.of(word.tokens), other.of(word.tokens))
        for word in recording.table.read_words
    }
    return {n: round(r, 4) for n, r in found.items() if r is not None} or None


def least_stability(
    stability: Mapping[int, float] | None, words: Iterable[Word], positions: Iterable[int]
) -> float | None:
    """Return the least stability of the words that have tokens among these; None if unknown."""
    own, known = set(positions), stability or {}
    held = (known.get(word.number) for word in words if not own.isdisjoint(word.tokens))
    return min((one for one in held if one is not None), default=None)


def stability_said(stability: float) -> str:
    """Write a stability in words."""
    little = ", unsteady" if stability < UNSTEADY else ""
    return f"stability {signed(stability, '.2f')}{little}"
