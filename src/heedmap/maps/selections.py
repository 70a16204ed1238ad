"""Which part of a recording is meant: layers by name, steps, heads and timesteps by number.

A `Selection` is that part; each function takes what a user may have written and returns it in one
form, or says in one sentence what was expected.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, TypeGuard, cast

import numpy as np
from PIL import Image

from heedmap import checks
from heedmap.errors import (
    ArgumentError,
    NothingRecordedError,
    SelectionError,
    listed,
    plural,
    quoted,
)
from heedmap.io.values import MAX_LAYER_NAME
from heedmap.maps.recordings import Layer, Recording, cells, layers_there, name_fits
from heedmap.options import Axis
from heedmap.text.words import Word

LayerFilter = str | Sequence[str] | Callable[[Layer], bool]
"""A name or a pattern, several, or a function that says whether to take a layer."""


@dataclass(frozen=True)
class Selection:
    """A part of a recording, by the numbers of its layers, steps and heads; all where None."""

    layers: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None

    def layers_of(self, recording: Recording) -> tuple[int, ...]:
        """The numbers of its layers."""
        return (*range(len(recording.layers)),) if self.layers is None else self.layers

    def steps_of(self, recording: Recording) -> tuple[int, ...]:
        """The numbers of its steps; SelectionError where they were averaged."""
        _check_kept(recording, "step")
        return (*range(len(recording.timesteps)),) if self.steps is None else self.steps

    def heads_of(self, recording: Recording) -> tuple[int, ...]:
        """The numbers of its heads; SelectionError where they were averaged."""
        _check_kept(recording, "head")
        most = max(recording.layers[i].heads for i in self.layers_of(recording))
        return (*range(most),) if self.heads is None else self.heads

    def with_layers(self, recording: Recording, layers: object, grid: object) -> "Selection":
        """Only those of its layers that fit a name or pattern, and a grid or its short side."""
        side = None if grid is None else resolution(grid)
        wanted = layer_filter(layers)
        _check_kept(recording, "layer")
        mine = {i: recording.layers[i] for i in self.layers_of(recording)}
        found = [
            i
            for i, layer in mine.items()
            if (side is None or side in (layer.grid, min(layer.grid)))
            and (wanted is None or layer_fits(layer, wanted))
        ]
        if not found:
            raise _no_layer(wanted, side, [*mine.values()])
        return replace(self, layers=tuple(found))

    def with_steps(self, recording: Recording, steps: object, timesteps: object) -> "Selection":
        """Only those of its steps that have these numbers, and timesteps in this range."""
        _check_kept(recording, "step")
        total = len(recording.timesteps)
        found = numbers(steps, total, "step")
        if timesteps is not None:
            low, high = timestep_range(timesteps)
            found = [i for i in found if low <= recording.timesteps[i] <= high]
        found = [i for i in found if self.steps is None or i in self.steps]
        if not found:
            asked = {"steps": steps, "timesteps": timesteps}
            raise SelectionError(
                f"no step fits {_asked(asked)}: the run has {plural(total, 'step')}, "
                f"0 to {total - 1}"
            )
        return replace(self, steps=tuple(found))

    def with_heads(self, recording: Recording, heads: object) -> "Selection":
        """Only those of its heads that have these numbers, and only layers that have them all."""
        _check_kept(recording, "head")
        mine = self.layers_of(recording)
        most = max(recording.layers[i].heads for i in mine)
        found = numbers(heads, most, "head")
        found = [head for head in found if self.heads is None or head in self.heads]
        fitting = [i for i in mine if found and max(found) < recording.layers[i].heads]
        if not fitting:
            raise SelectionError(
                f"no layer has all of the heads {quoted(heads)}: expected 0 to {most - 1}"
            )
        return replace(self, layers=tuple(fitting), heads=tuple(found))


def _check_kept(recording: Recording, axis: Axis) -> None:
    if axis not in recording.keep:
        kept = ", ".join(sorted(recording.keep)) or "none"
        raise SelectionError(
            f"{axis}s cannot be selected, since they were averaged while recording (kept: {kept}): "
            f"record again with '{axis}' in keep"
        )


def _asked(given: Mapping[str, object]) -> str:
    """Write the arguments that were given, for a sentence."""
    return ", ".join(
        f"{name}={quoted(value)}" for name, value in given.items() if value is not None
    )


def _no_layer(wanted: object, side: object, layers: Sequence[Layer]) -> SelectionError:
    """The error of a selection that no layer fits; of many layers it names those most like it."""
    sides = sorted({min(layer.grid) for layer in layers})
    asked_for = cast(list[object], wanted if isinstance(wanted, list) else [wanted])
    like = next((one for one in asked_for if isinstance(one, str)), "")
    there = layers_there([layer.name for layer in layers], like)
    short = "" if side is None else f", with {listed([*map(str, sides)])} cells on the short side"
    asked = _asked({"layers": cast(object, wanted), "resolution": side})
    return SelectionError(f"no layer fits {asked}: expected {there}{short}")


def layer_filter(layers: object) -> LayerFilter | None:
    """What picks layers, checked; None where nothing was asked for."""
    if layers is None or _picks(layers):
        return cast(LayerFilter | None, layers)
    several = checks.several(layers)
    if several is not None and all(map(_picks, several)):
        return several
    raise ArgumentError(
        f"layers is {quoted(layers)}: expected 'down', 'mid' or 'up', a name, a pattern, a list "
        "of these, or a function of a layer"
    )


def _picks(one: object) -> bool:
    return callable(one) or (isinstance(one, str) and len(one) <= MAX_LAYER_NAME)


def layer_fits(layer: Layer, wanted: LayerFilter) -> bool:
    """Whether a layer is one of those wanted."""
    if isinstance(wanted, str):
        return name_fits(layer.name, wanted)
    if callable(wanted):
        return bool(wanted(layer))
    return any(layer_fits(layer, one) for one in wanted)


def resolution(wanted: object) -> int | tuple[int, int]:
    """A grid (h, w), or how many cells its short side has."""
    what = "resolution (cells on the short side, or (h, w))"
    several = checks.in_order(wanted) or []
    if len(several) == 2:
        h, w = (checks.whole(what, side, least=1) for side in several)
        return h, w
    return checks.whole(what, wanted, least=1)


def numbers(wanted: object, total: int, what: str) -> list[int]:
    """The numbers of steps or heads, of `total`: ascending, each once; all for None.

    Args:
        wanted: a whole number, a slice or several numbers; negative ones count from the end.
        total: how many there are.
        what: "step" or "head".

    Raises:
        SelectionError: if it is none of these, or there is no such number.
    """
    if wanted is None:
        return list(range(total))
    try:
        if _is_slice(wanted):
            return sorted(list(range(total))[wanted])
        several: list[object] = (
            [wanted] if isinstance(wanted, Integral | str) else list(cast(Any, wanted))
        )
    except (TypeError, ValueError):  # a slice of fractions, or with a step of 0; not a list at all
        raise SelectionError(
            f"{what}s={quoted(wanted)} selects nothing: expected a whole number, a slice or a list"
        ) from None
    found: set[int] = set()
    for one in several:
        number = None if isinstance(one, bool) or not isinstance(one, Integral) else int(one)
        if number is None or not -total <= number < total:
            raise SelectionError(
                f"{what} {quoted(one)} is not there: expected whole numbers from 0 to {total - 1}"
            )
        found.add(number % total)
    return sorted(found)


def timestep_range(wanted: object) -> tuple[float, float]:
    """Two timesteps as (lowest, highest); they may be infinite."""
    ends = checks.several(wanted) or []
    if len(ends) != 2 or not all(checks.is_number(end) and end == end for end in ends):  # NaN
        raise ArgumentError(
            f"timesteps={quoted(wanted)} is not a range: expected two numbers, the highest and "
            "the lowest"
        )
    return min(ends), max(ends)


def _is_slice(value: object) -> TypeGuard["slice[Any, Any, Any]"]:
    return isinstance(value, slice)


@dataclass(frozen=True, eq=False)
class Averages:
    """What tokens draw in a part of what was kept."""

    recording: Recording
    selection: Selection

    def of(self, positions: Iterable[int]) -> np.ndarray:
        """The mean over the selection of the summed probabilities of these tokens: (h, w).

        Raises:
            NothingRecordedError: if the recording is empty.
            SelectionError: if one of them was not recorded.
        """
        recording = self.recording
        if not recording.arrays:
            raise NothingRecordedError("nothing was recorded: run the pipeline inside of the trace")
        at = recording.columns
        positions = list(positions)
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
        """How much words draw, each by itself and whatever its sign, added up: (h, w)."""
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

        To resize is linear: layers of one grid are added up first, and resized once.
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
    picture = Image.fromarray(np.ascontiguousarray(grid, dtype=np.float32))
    return np.asarray(picture.resize(size, Image.Resampling.BILINEAR))
