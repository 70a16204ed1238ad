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


@dataclass(frozen=True, eq=False)
class Selection:
    """A part of a recording, by numbers of layers, steps and heads, and its mean attention.

    None stands for all.
    """

    recording: Recording
    layers: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The numbers of its layers."""
        return (*range(len(self.recording.layers)),) if self.layers is None else self.layers

    @property
    def step_numbers(self) -> tuple[int, ...]:
        """The numbers of its steps; SelectionError where they were averaged."""
        self._check_kept("step")
        return (*range(len(self.recording.timesteps)),) if self.steps is None else self.steps

    @property
    def head_numbers(self) -> tuple[int, ...]:
        """The numbers of its heads; SelectionError where they were averaged."""
        self._check_kept("head")
        most = max(self.recording.layers[i].heads for i in self.layer_numbers)
        return (*range(most),) if self.heads is None else self.heads

    def with_layers(self, layers: Any, resolution: Any) -> "Selection":
        """Keep the layers that fit a filter, and a grid (h, w) or its short side."""
        self._check_kept("layer")
        grid = np.asarray(resolution).tolist()
        before = {i: self.recording.layers[i] for i in self.layer_numbers}
        numbers = tuple(
            i
            for i, layer in before.items()
            if (layers is None or layer_fits(layer, layers))
            and (grid is None or grid in (min(layer.grid), [*layer.grid]))
        )
        if not numbers:
            names = layers_there([layer.name for layer in before.values()], f"{layers or ''}")
            sides = sorted({min(layer.grid) for layer in before.values()})
            raise SelectionError(
                f"no layer fits {quoted(layers if resolution is None else resolution)}: expected "
                f"{names}, with {sides} cells on the short side"
            )
        return replace(self, layers=numbers)

    def with_steps(self, steps: Any) -> "Selection":
        """Keep the steps that have these numbers."""
        before, total = self.step_numbers, len(self.recording.timesteps)
        numbers = tuple(i for i in numbers_of(steps, total, "step") if i in before)
        if not numbers:
            raise SelectionError(f"no step fits {quoted(steps)}: it has {plural(total, 'step')}")
        return replace(self, steps=numbers)

    def with_heads(self, heads: Any) -> "Selection":
        """Keep the heads that have these numbers, and the layers that have them all."""
        before, layers = self.head_numbers, self.recording.layers
        most = max(layers[i].heads for i in self.layer_numbers)
        numbers = tuple(head for head in numbers_of(heads, most, "head") if head in before)
        fitting = [i for i in self.layer_numbers if numbers and max(numbers) < layers[i].heads]
        if not fitting:
            raise SelectionError(
                f"no layer has all of the heads {quoted(heads)}: expected 0 to {most - 1}"
            )
        return replace(self, layers=tuple(fitting), heads=numbers)

    def _check_kept(self, axis: Axis) -> None:
        if axis not in self.recording.keep:
            axes = ", ".join(sorted(self.recording.keep)) or "none"
            raise SelectionError(
                f"{axis}s cannot be selected, since they were averaged (kept: {axes}): record "
                f"again with '{axis}' in keep, and take the plain maps"
            )

    def mean_of(self, positions: Iterable[int]) -> np.ndarray:
        """Return the mean over the selection of the summed probabilities of tokens: (h, w)."""
        recording, positions = self.recording, list(positions)
        if not recording.arrays:
            raise NothingRecordedError("nothing was recorded: run the pipeline inside of the trace")
        missing = [p for p in positions if p not in recording.columns]
        if missing:
            raise SelectionError(f"tokens {missing} were not recorded: record with tokens='all'")
        columns = [recording.columns[p] for p in positions]
        w, h = cells(recording.latent)
        total = np.zeros((h, w), dtype=np.float32)
        for grid, sums in self._sums.items():
            # Pillow's bilinear filter widens when it shrinks: no cell of a finer grid is skipped.
            plane = np.ascontiguousarray(sums[:, columns].sum(axis=-1).reshape(grid))
            total += np.asarray(Image.fromarray(plane).resize((w, h), Image.Resampling.BILINEAR))
        return total / np.float32(len(self.layer_numbers))

    def magnitude_of(self, words: Iterable[Word]) -> np.ndarray:
        """Return the sum of the words' own maps, each by its magnitude: (h, w)."""
        w, h = cells(self.recording.latent)
        total = np.zeros((h, w), dtype=np.float32)
        for word in words:
            total += np.abs(self.mean_of(word.tokens))
        return total

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest value among the maps of all words."""
        maps = [self.mean_of(word.tokens) for word in self.recording.table.read_words]
        low = min((float(m.min()) for m in maps), default=0.0)
        return low, max((float(m.max()) for m in maps), default=1.0)

    @cached_property
    def _sums(self) -> dict[tuple[int, int], np.ndarray]:
        """For each grid the sum of its layers' means over steps and heads: (Q, K).

        Resizing is linear: layers of one grid are added up first, and resized once.
        """
        sums: dict[tuple[int, int], np.ndarray] = {}
        for i in self.layer_numbers:
            part, grid = self.recording.arrays[i], self.recording.layers[i].grid
            if self.steps is not None:
                part = part[list(self.steps)]
            if self.heads is not None:
                part = part[:, list(self.heads)]
            mean = part.mean(axis=(0, 1), dtype=np.float32)
            sums[grid] = sums[grid] + mean if grid in sums else mean
        return sums


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


def numbers_of(wanted: Any, total: int, noun: str) -> list[int]:
    """Return the numbers of `total` that an index, a slice or a list selects: ascending, once."""
    try:
        index: Any = slice(None) if wanted is None else wanted
        every = np.arange(total)
        part = every[index] if isinstance(index, slice) else every[np.asarray(index)]
        return np.unique(part).tolist()
    except (IndexError, TypeError, ValueError) as error:
        raise SelectionError(
            f"{noun} {quoted(wanted)} is not there: expected whole numbers from 0 to {total - 1}, "
            "a slice or a list"
        ) from error


# --- how stable the maps of a located image are -------------------------------------------------


def stability_of(
    recording: Recording, halves: Sequence[Mapping[tuple[int, int], np.ndarray]]
) -> Mapping[int, float] | None:
    """Return the rank correlation of each word's maps of two halves of the steps, by its number.

    Each half has, by the grid of its layers, the sum (Q, K) of the attention, with noises of its
    own. Words whose map is constant are left out; None where there are no two halves, or nothing
    is left. A map may be stable and false.
    """
    if len(halves) < 2:
        return None
    # The maps of a half are those of a run but for a factor, which changes no rank.
    first, second = (
        Selection(
            replace(
                recording,
                layers=tuple(Layer("", 1, grid) for grid in half),
                arrays=tuple(total[None, None] for total in half.values()),
            )
        )
        for half in halves
    )
    ranks = {
        word.number: rank_correlation(first.mean_of(word.tokens), second.mean_of(word.tokens))
        for word in recording.table.read_words
    }
    return {number: round(rank, 4) for number, rank in ranks.items() if rank is not None} or None


def least_stability(
    stability: Mapping[int, float] | None, words: Iterable[Word], positions: Iterable[int]
) -> float | None:
    """Return the least stability of the words that have tokens among these; None if unknown."""
    tokens, known = set(positions), stability or {}
    parts = (known.get(word.number) for word in words if not tokens.isdisjoint(word.tokens))
    return min((part for part in parts if part is not None), default=None)


def stability_said(stability: float) -> str:
    """Write a stability in words."""
    return f"stability {signed(stability, '.2f')}{', unsteady' if stability < UNSTEADY else ''}"
