"""Recordings: the attention probabilities of one image's run, and the means over parts of them.

Axes: S step · H head · Q latent position (Q = h·w, row-major) · K text token · h, w rows and
columns of a layer's grid or of a map. All is numpy: reading a saved run needs no torch.
"""

import fnmatch
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import msgspec
import numpy as np
import safetensors.numpy
from msgspec import Meta
from PIL import Image
from safetensors import SafetensorError, safe_open

from heedmap.checks import is_constant
from heedmap.errors import (
    ArgumentError,
    NothingRecordedError,
    RunError,
    SelectionError,
    format_bytes,
    join_words,
    nearest,
    quoted,
)
from heedmap.io import reading
from heedmap.io.schemas import (
    FORMAT,
    MAX_KEYS,
    MAX_LAYER_NAME,
    MAX_LAYERS,
    MAX_STEPS,
    Format,
    Number,
    SideLength,
    Small,
)
from heedmap.io.writing import put_file
from heedmap.options import AXES, Axis, Share
from heedmap.text.words import TokenTable, Word

MAX_FILE = 4 * 2**30
"""Bytes of a file."""
LARGEST = 1e20
"""The largest number in a file: a probability, or the result of weights and rules."""
AVERAGED = "mean"
"""The name of the one layer of a recording that kept none: of all, brought to the maps' grid."""
REFINED = "refined"
"""The name of the one layer of refined maps."""
CELLS = 64
"""Cells on the short side of a heat map."""
_STAGES = ("down", "mid", "up")
_KINDS = ("double", "single")
"""Kinds of blocks, each with its own numbers; parts of the other models are thirds of one list."""
_DETAILS = re.compile(
    r"(\.transformer_blocks\.0)?(\.attn[12]?)?$|_blocks?|\.attentions|\.transformer"
)
"""The pieces of a layer's path that its short name leaves out."""


def stage_of(name: str) -> str:
    """Return the stage of a UNet that a layer is in, "down", "mid" or "up"; empty if in none."""
    return next((stage for stage in _STAGES if name.startswith(f"{stage}_block")), "")


def name_fits(name: str, wanted: str, part: str = "") -> bool:
    """Return whether a stage, a part, a short name, a path or a pattern fits a layer."""
    if wanted in _STAGES:
        return stage_of(name) == wanted
    names = (name, short_name(name, part), part or name)
    return any(fnmatch.fnmatchcase(known, wanted) for known in names)


def layers_there(parts: Mapping[str, str], like: str) -> str:
    """List the groups of layers for an error, and the layers most like a name.

    `parts` has by path the part that each layer is in (`Layer.part`).
    """
    groups = [*sorted(map(stage_of, parts)), *parts.values()]
    names = nearest(short_name(like), short_names(parts).values())
    layers = "a layer such as " + join_words(names, "or")
    return join_words([*filter(None, dict.fromkeys(groups)), layers], "or", most=99)


def short_name(name: str, part: str = "") -> str:
    """Return the name of a layer in figures and tables: "up 1.0", "mid 0", "single 3"."""
    kind, _, number = _DETAILS.sub("", name).partition(".")
    if number and part in _KINDS:
        kind = part
    return f"{kind} {number}".rstrip()


def short_names(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the short name of each layer, by path, or the path where another has that name.

    `parts` has by path the part that each layer is in (`Layer.part`).
    """
    names = {path: short_name(path, part) for path, part in parts.items()}
    counts = Counter(names.values())
    return names | {path: path for path in names if counts[names[path]] > 1}


def cells(latent: tuple[int, int]) -> tuple[int, int]:
    """Return the (w, h) of a heat map for a latent of (h, w): 64 on the short side."""
    h, w = latent
    short = min(h, w)
    return round(CELLS * w / short), round(CELLS * h / short)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer that attends to the text.

    Attributes:
        name: its dotted path in the model.
        heads: the number of its heads.
        grid: (h, w).
        part: the name of the layers that it belongs to, such as "early" or "single"; empty in a
            UNet, whose stages are in the names of layers.
    """

    name: Annotated[str, Meta(max_length=MAX_LAYER_NAME)]
    heads: Annotated[int, Meta(ge=1, le=1024)]
    grid: tuple[SideLength, SideLength]
    part: Annotated[str, Meta(max_length=MAX_LAYER_NAME)] = ""

    @property
    def group(self) -> str:
        """The group of layers that it is in, as `select` takes it; empty if in none."""
        return self.part or stage_of(self.name)

    @property
    def short(self) -> str:
        """The name in figures: "up 1.0", "mid 0", "down 2.1.7", "single 3"."""
        return short_name(self.name, self.part)


@dataclass(frozen=True, eq=False)
class RecordingInfo:
    """The description of a recording: its attributes without the arrays, as its file has them."""

    layers: Annotated[tuple[Layer, ...], Meta(min_length=1, max_length=MAX_LAYERS)]
    keep: frozenset[Axis]
    timesteps: Annotated[tuple[Number, ...], Meta(min_length=1, max_length=MAX_STEPS)]
    positions: Annotated[tuple[Small, ...], Meta(min_length=1, max_length=MAX_KEYS)]
    table: TokenTable
    latent: tuple[SideLength, SideLength]
    size: tuple[SideLength, SideLength]
    share_of: Share | None = field(default=None, kw_only=True)

    def info(self) -> dict[str, Any]:
        """Return these attributes by name."""
        return {one.name: getattr(self, one.name) for one in fields(RecordingInfo)}


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordingFile(RecordingInfo):
    """The description of the arrays in `maps.safetensors`."""

    format: Format


@dataclass(frozen=True, eq=False)
class Recording(RecordingInfo):
    """The attention probabilities of one image's run, at the axes that were kept.

    Attributes:
        layers: the layers, in the order of the model; one named `AVERAGED` where they were
            averaged.
        keep: the axes that were kept, of "layer", "step", "head".
        timesteps: the scheduler's timestep of every step.
        positions: of the encoded text, those that the K axis holds.
        table: the words and tokens of the prompt.
        latent: (h, w) of the latent.
        size: (W, H) of the image in pixels.
        axes: the names of the axes of each array: "step", "head", "position" (of the latent, row
            by row), "token".
        arrays: one read-only float32 array (S, H, Q, K) a layer; S or H is 1 where it was averaged.
        refined: the maps of the same tokens refined by self-attention, read-only float32
            (h, w, K); None where there are none.
        share_of: "all" if the values are shares of all attention, "text" if they are shares of the
            attention to the text; None where the text has a softmax of its own; "outputs" of
            `outputs_alone`; "places" and "reads" of what places or words read.
        outputs: the similarities of the concepts' outputs (`HeatMaps.outputs`), one read-only
            float32 array (S, 1, Q, K) a layer; empty where there are none.
    """

    axes: ClassVar = ("step", "head", "position", "token")
    arrays: tuple[np.ndarray, ...]
    refined: np.ndarray | None = None
    outputs: tuple[np.ndarray, ...] = ()

    def __post_init__(self) -> None:
        vars(self).update(
            arrays=tuple(map(_read_only, self.arrays)),
            outputs=tuple(map(_read_only, self.outputs)),
        )
        if self.refined is not None:
            vars(self).update(refined=_read_only(self.refined))

    def __repr__(self) -> str:
        return (
            f"<Recording of {quoted(self.table.prompt)}, {format_bytes(self.nbytes)}>"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(a.nbytes for a in (*self.arrays, *self.outputs))

    @cached_property
    def columns(self) -> dict[int, int]:
        """The column on the K axis of each position."""
        return {position: column for column, position in enumerate(self.positions)}

    def refined_alone(self) -> "Recording":
        """Return the refined maps as those of a recording of one layer, named `REFINED`.

        SelectionError if there are none.
        """
        if self.refined is None:
            raise SelectionError(
                "there are no refined maps: they need self-attention layers of medium resolution, "
                "in which each position of the image attends to all of them and to nothing else"
            )
        h, w, tokens = self.refined.shape
        return replace(
            self,
            layers=(Layer(REFINED, 1, (h, w)),),
            arrays=(self.refined.reshape(1, 1, h * w, tokens),),
            keep=frozenset(),
            refined=None,
            outputs=(),
        )

    def outputs_alone(self) -> "Recording":
        """Return the similarities of outputs as those of a recording that averaged its heads.

        SelectionError if there are none.
        """
        if not self.outputs:
            raise SelectionError(
                "there are no similarities of outputs: they need two or more concepts, and a model "
                "whose text and image share one softmax (SD 3, Flux.1), with diffusers' processors"
            )
        return replace(
            self,
            arrays=self.outputs,
            keep=self.keep - {"head"},
            refined=None,
            outputs=(),
            share_of="outputs",
        )

    def save(self, path: str | Path) -> None:
        """Write the recording to a safetensors file, in the place of an older one.

        Raises:
            RunError: if the file cannot be written.
        """
        arrays = {f"layer.{i}": array for i, array in enumerate(self.arrays)}
        arrays |= {f"output.{i}": array for i, array in enumerate(self.outputs)}
        if self.refined is not None:
            arrays["refined"] = self.refined
        about = RecordingFile(**self.info(), format=FORMAT)
        text = msgspec.json.encode(about, order="deterministic").decode()
        dense = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        put_file(path, safetensors.numpy.save(dense, metadata={"heedmap": text}))

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read a recording that `save` wrote.

        Raises:
            RunError: if the file is missing, too large, or not what `save` writes.
        """
        path = Path(path)
        try:
            if path.stat().st_size > MAX_FILE:
                raise ValueError(f"it is larger than {format_bytes(MAX_FILE)}")
            opened: Any = safe_open(path, framework="numpy")
            with opened as file:
                about: dict[str, str] = file.metadata() or {}
                names: list[str] = sorted(file.keys())
                arrays = {name: file.get_tensor(name) for name in names}
            text = about.get("heedmap", "")
            return _read(reading.decode(text, RecordingFile, path), arrays)
        except (SafetensorError, OSError, ValueError) as error:
            raise RunError(
                f"{path} is not a recording that heedmap wrote: {error}"
            ) from error


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _read(about: RecordingFile, arrays: Mapping[str, np.ndarray]) -> Recording:
    tokens = len(about.positions)
    if max(about.positions) >= len(about.table.tokens):
        raise ValueError("it has a token that its prompt has not")
    steps = len(about.timesteps) if "step" in about.keep else 1
    shapes: dict[str, tuple[int, ...]] = {}
    for i, layer in enumerate(about.layers):
        heads = layer.heads if "head" in about.keep else 1
        cells = math.prod(layer.grid)
        shapes[f"layer.{i}"] = (steps, heads, cells, tokens)
        if "output.0" in arrays:
            shapes[f"output.{i}"] = (steps, 1, cells, tokens)
    if "refined" in arrays:
        shapes["refined"] = (*arrays["refined"].shape[:2], tokens)
    if {name: array.shape for name, array in arrays.items()} != shapes:
        raise ValueError("its arrays are not those of its description")
    for name, array in arrays.items():
        # Both comparisons refuse NaN.
        if array.dtype != np.float32 or not (
            array.min() >= -LARGEST and array.max() <= LARGEST
        ):
            raise ValueError(
                f"{name} is not of float32, or NaN, infinite or far too large"
            )
    return Recording(
        **about.info(),
        arrays=tuple(arrays[name] for name in shapes if name.startswith("layer")),
        refined=arrays.get("refined"),
        outputs=tuple(arrays[name] for name in shapes if name.startswith("output")),
    )


# --- parts of a recording ------------------------------------------------------------------------

_OneFilter = str | Callable[[Layer], bool]
LayerFilter = _OneFilter | Sequence[_OneFilter]
"""A name or a pattern, a function that takes a layer or leaves it, or several of these."""


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
        return self.layers or tuple(range(len(self.recording.layers)))

    @property
    def step_numbers(self) -> tuple[int, ...]:
        """The numbers of its steps; SelectionError where they were averaged."""
        self.check_kept("step")
        return self.steps or tuple(range(len(self.recording.timesteps)))

    @property
    def head_numbers(self) -> tuple[int, ...]:
        """The numbers of its heads; SelectionError where they were averaged."""
        self.check_kept("head")
        return self.heads or tuple(range(self._most_heads()))

    def _most_heads(self) -> int:
        return max(self.recording.layers[i].heads for i in self.layer_numbers)

    def with_layers(self, layers: Any, resolution: Any) -> "Selection":
        """Keep the layers that fit a filter, and a grid (h, w) or its short side."""
        self.check_kept("layer")
        grid = np.asarray(resolution).tolist()
        numbers: list[int] = []
        for i in self.layer_numbers:
            layer = self.recording.layers[i]
            is_of_grid = grid in (None, min(layer.grid), [*layer.grid])
            if is_of_grid and (layers is None or layer_fits(layer, layers)):
                numbers.append(i)
        if not numbers:
            parts = {layer.name: layer.part for layer in self.recording.layers}
            wanted = layers if resolution is None else (layers, resolution)
            expected = layers_there(parts, str(layers))
            raise SelectionError(
                f"no layer matches {quoted(wanted)}: expected {expected}"
            )
        return replace(self, layers=tuple(numbers))

    def with_steps(self, steps: Any) -> "Selection":
        """Keep the steps that have these numbers."""
        total = len(self.recording.timesteps)
        return replace(self, steps=numbers_of("step", steps, total, self.step_numbers))

    def with_heads(self, heads: Any) -> "Selection":
        """Keep the heads that have these numbers, and the layers that have them all."""
        numbers = numbers_of("head", heads, self._most_heads(), self.head_numbers)
        layers = self.recording.layers
        fitting = [i for i in self.layer_numbers if max(numbers) < layers[i].heads]
        return replace(self, layers=tuple(fitting), heads=numbers)

    def check_kept(self, axis: Axis) -> None:
        """Raise a SelectionError if an axis was averaged."""
        if axis == "head" and self.recording.share_of == "outputs":
            raise SelectionError(
                "similarities of outputs have no heads, since all heads are compared together: "
                "select layers or steps"
            )
        if axis not in self.recording.keep:
            keep = [name for name in AXES if name in {axis, *self.recording.keep}]
            raise SelectionError(
                f"{axis}s cannot be selected, since they were averaged: generate the run again "
                f"with keep={keep} (--keep {','.join(keep)})"
            )

    def mean_of(self, positions: Sequence[int]) -> np.ndarray:
        """Return the mean over the selection of the summed probabilities of tokens: (h, w).

        Of `reads` it is the mean over the tokens, which read.
        """
        if not self.recording.arrays:
            raise NothingRecordedError(
                "nothing was recorded: run the pipeline inside of the trace"
            )
        column_of = self.recording.columns
        if not column_of.keys() >= set(positions):
            raise SelectionError(
                f"not all tokens of {quoted(positions)} were recorded: record with "
                "tokens='all' for all"
            )
        columns = [column_of[position] for position in positions]
        count = len(self.layer_numbers)
        if self.recording.share_of == "reads":
            count *= len(columns)
        w, h = cells(self.recording.latent)
        total = np.zeros((h, w), dtype=np.float32)
        for grid, sums in self._sums.items():
            # Pillow's bilinear filter widens when it shrinks: no cell of a finer grid is skipped.
            plane = np.ascontiguousarray(sums[:, columns].sum(axis=-1).reshape(grid))
            large = Image.fromarray(plane).resize((w, h), Image.Resampling.BILINEAR)
            total += np.asarray(large)
        return total / np.float32(count)

    def magnitude_of(self, words: Iterable[Word]) -> np.ndarray:
        """Return the sum of the words' own maps, each by its magnitude: (h, w)."""
        return np.sum([np.abs(self.mean_of(word.tokens)) for word in words], axis=0)

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest value among the maps of all words."""
        maps = [self.mean_of(word.tokens) for word in self.recording.table.read_words]
        if not maps:
            return 0.0, 1.0
        return float(np.min(maps)), float(np.max(maps))

    @cached_property
    def _sums(self) -> dict[tuple[int, int], np.ndarray]:
        """The sum of the layers' means over steps and heads, (Q, K), by grid.

        Resizing is linear: layers of one grid are added up first, and resized once.
        """
        sums: dict[tuple[int, int], np.ndarray] = {}
        for i in self.layer_numbers:
            part = self.recording.arrays[i]
            if self.steps is not None:
                part = part[list(self.steps)]
            if self.heads is not None:
                part = part[:, list(self.heads)]
            mean = part.mean(axis=(0, 1), dtype=np.float32)
            grid = self.recording.layers[i].grid
            sums[grid] = sums.get(grid, 0) + mean
        return sums


def layer_fits(layer: Layer, wanted: object) -> bool:
    """Return whether a layer fits a `LayerFilter`; ArgumentError if it is none."""
    if isinstance(wanted, str):
        return name_fits(layer.name, wanted, layer.part)
    if callable(wanted):
        return bool(wanted(layer))
    if not isinstance(wanted, Sequence):
        raise ArgumentError(
            f"layers is {quoted(wanted)}: expected a group such as 'up', a name, a pattern, a list "
            "of these, or a function of a layer"
        )
    return any(layer_fits(layer, one) for one in cast(Sequence[object], wanted))


def numbers_of(
    noun: str,
    wanted: Any,
    total: int,
    among: Sequence[int],
) -> tuple[int, ...]:
    """Return those `among` 0 to `total` - 1 that an index, a slice or a list selects, ascending.

    SelectionError if there are none.
    """
    numbers: list[int] = []
    text = quoted(wanted)
    with suppress(IndexError, TypeError, ValueError):
        index = np.asarray(wanted)
        if hasattr(wanted, "indices"):  # a slice
            index = wanted
            text = f"{wanted.start}:{wanted.stop}".replace("None", "")
        numbers = np.unique(np.arange(total)[index]).tolist()
    selected = tuple(number for number in numbers if number in among)
    if not selected:
        raise SelectionError(
            f"there is no {noun} {text}: expected whole numbers from {among[0]} to {among[-1]}"
        )
    return selected


# --- the agreement of two maps by the order of their values ---------------------------------------


def is_even(values: np.ndarray) -> bool:
    """Return whether a map is constant but for rounding, or holds NaN."""
    return is_constant(float(values.min()), float(values.max()))


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value among all, from 1, float64; equal ones have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse].reshape(np.shape(values))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Return Spearman's rank correlation of two maps (h, w): Pearson's of their ranks.

    Returns:
        1 for the same order to -1 for the opposite one; None if a map is constant but for rounding.
    """
    if is_even(a) or is_even(b):
        return None
    exact = np.corrcoef(ranks(a).ravel(), ranks(b).ravel())[0, 1]
    return round(float(exact), 12)  # 1 for the same order
