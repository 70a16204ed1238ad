"""Recordings: the attention probabilities of one image's run, and the means over parts of them.

Axes: S step · H head · Q latent position (Q = h·w, row-major) · K text token · h, w rows and
columns of a layer's grid or of a map. All is numpy: reading a saved run needs no torch.
"""

import fnmatch
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import msgspec
import numpy as np
from msgspec import Meta, Struct
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

from heedmap.checks import as_list, is_constant
from heedmap.errors import (
    ArgumentError,
    NothingRecordedError,
    RunError,
    SelectionError,
    format_bytes,
    join_words,
    nearest,
    plural,
    quoted,
)
from heedmap.io import reading
from heedmap.io.schemas import (
    MAX_LAYER_NAME,
    MAX_LAYERS,
    MAX_STEPS,
    MAX_TOKENS,
    Format,
    Number,
    SideLength,
    Small,
)
from heedmap.io.writing import WriteError
from heedmap.options import AXES, Axis, Share
from heedmap.text.words import TokenTable, Word

MAX_FILE = 4 * 2**30
MAX_HEADER = 2**24
"""Bytes in which a file describes its arrays."""
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


def stage_of(name: str) -> str:
    """Return the stage of a UNet that a layer is in, "down", "mid" or "up"; empty if in none."""
    return next((stage for stage in _STAGES if name.startswith(f"{stage}_block")), "")


def name_fits(name: str, wanted: str, part: str = "") -> bool:
    """Return whether a stage, a part, a short name, a path or a pattern fits a layer."""
    if wanted in _STAGES:
        return stage_of(name) == wanted
    known = [name, short_name(name, part), *filter(None, [part])]
    return wanted in known or fnmatch.fnmatchcase(name, wanted)


def layers_there(parts: Mapping[str, str], like: str) -> str:
    """List the groups and layers of `parts` for an error, of many layers those most like a name."""
    groups = filter(
        None, dict.fromkeys([*sorted(map(stage_of, parts)), *parts.values()])
    )
    names = nearest_layers(like, parts)
    others = len(parts) - len(names)
    return join_words(
        [*groups, *names, *([f"{others} more"] if others else [])], most=99
    )


def nearest_layers(like: str, parts: Mapping[str, str]) -> list[str]:
    """Return the short names of the layers most like a path or a short name, the nearest first."""
    return nearest(short_name(like), [*short_names(parts).values()])


def short_name(name: str, part: str = "") -> str:
    """Return the name of a layer in figures and tables: "up 1.0", "mid 0", "single 3"."""
    short = (
        name.removesuffix(".attn2")
        .removesuffix(".attn")
        .removesuffix(".transformer_blocks.0")
    )
    for piece in ("_blocks", "_block", ".attentions", ".transformer"):
        short = short.replace(piece, "")
    kind, dot, number = short.partition(".")
    return f"{part if part in _KINDS else kind} {number}" if dot else short


def short_names(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the short name of each layer, by path, or the path where another has that name.

    `parts` has by path the part that each layer is in (`Layer.part`).
    """
    shorts = {name: short_name(name, part) for name, part in parts.items()}
    counts = Counter(shorts.values())
    return {
        name: short if counts[short] == 1 else name for name, short in shorts.items()
    }


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


class RecordingFile(Struct, frozen=True):
    """The description of the arrays in `maps.safetensors`."""

    format: Format
    layers: Annotated[tuple[Layer, ...], Meta(min_length=1, max_length=MAX_LAYERS)]
    keep: tuple[Axis, ...]
    timesteps: Annotated[tuple[Number, ...], Meta(min_length=1, max_length=MAX_STEPS)]
    positions: Annotated[tuple[Small, ...], Meta(min_length=1, max_length=MAX_TOKENS)]
    table: TokenTable
    latent: tuple[SideLength, SideLength]
    size: tuple[SideLength, SideLength]
    refined: tuple[SideLength, SideLength] | None = None
    share_of: Share | None = None
    outputs: bool = False


# As in `Recording`.
_FIELDS = ("layers", "timesteps", "positions", "table", "latent", "size", "share_of")


@dataclass(frozen=True, eq=False)
class Recording:
    """The attention probabilities of one image's run, at the axes that were kept.

    Attributes:
        layers: the layers, in the order of the model; one named `AVERAGED` where they were
            averaged.
        axes: the names of the axes of each array: "step", "head", "position" (of the latent, row
            by row), "token".
        arrays: one read-only float32 array (S, H, Q, K) a layer; S or H is 1 where it was averaged.
        keep: the axes that were kept, of "layer", "step", "head".
        timesteps: the scheduler's timestep of every step.
        positions: of the encoded text, those that the K axis holds.
        table: the words and tokens of the prompt.
        latent: (h, w) of the latent.
        size: (W, H) of the image in pixels.
        refined: the maps of the same tokens refined by self-attention, read-only float32
            (h, w, K); None where there are none.
        share_of: "all" if the values are shares of all attention, "text" if they are shares of the
            attention to the text; None where the text has a softmax of its own; "outputs" of
            `outputs_alone`.
        outputs: the similarities of the concepts' outputs (`HeatMaps.outputs`), one read-only
            float32 array (S, 1, Q, K) a layer; empty where there are none.
    """

    axes: ClassVar = ("step", "head", "position", "token")
    layers: tuple[Layer, ...]
    arrays: tuple[np.ndarray, ...]
    keep: frozenset[Axis]
    timesteps: tuple[float, ...]
    positions: tuple[int, ...]
    table: TokenTable
    latent: tuple[int, int]
    size: tuple[int, int]
    refined: np.ndarray | None = None
    share_of: Share | None = None
    outputs: tuple[np.ndarray, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", tuple(map(_read_only, self.arrays)))
        object.__setattr__(self, "outputs", tuple(map(_read_only, self.outputs)))
        if self.refined is not None:
            object.__setattr__(self, "refined", _read_only(self.refined))

    def __repr__(self) -> str:
        axes = " and ".join(sorted(self.keep)) or "none"
        return (
            f"<Recording of {quoted(self.table.prompt)}: {plural(len(self.positions), 'token')}, "
            f"axes kept: {axes}, {format_bytes(self.nbytes)}>"
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
        array = self.refined.reshape(1, 1, h * w, tokens)
        layers = (Layer(REFINED, 1, (h, w)),)
        return replace(
            self,
            layers=layers,
            arrays=(array,),
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
        keep = self.keep - {"head"}
        return replace(
            self,
            arrays=self.outputs,
            keep=keep,
            refined=None,
            outputs=(),
            share_of="outputs",
        )

    def save(self, path: str | Path) -> None:
        """Write the recording to a safetensors file, in the place of an older one.

        Raises:
            RunError: if the file cannot be written.
        """
        path = Path(path)
        arrays = {
            f"layer.{i}": np.ascontiguousarray(a) for i, a in enumerate(self.arrays)
        }
        if self.refined is not None:
            arrays["refined"] = np.ascontiguousarray(self.refined)
        arrays |= {
            f"output.{i}": np.ascontiguousarray(a) for i, a in enumerate(self.outputs)
        }
        values = {name: getattr(self, name) for name in _FIELDS}
        values["refined"] = None if self.refined is None else self.refined.shape[:2]
        values["outputs"] = bool(self.outputs)
        about = RecordingFile(
            format=reading.FORMAT, keep=(*sorted(self.keep),), **values
        )
        try:
            path.touch()
            mode = path.stat().st_mode
            save_file(
                arrays, path, metadata={"heedmap": msgspec.json.encode(about).decode()}
            )
            # Safetensors lets its owner alone read it, whatever the umask.
            path.chmod(mode)
        except (SafetensorError, OSError) as error:
            raise WriteError(
                f"{path} cannot be written ({error}): choose another place"
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read a recording that `save` wrote.

        Raises:
            RunError: if the file is missing, too large, or not what `save` writes.
        """
        path = Path(path)
        if not path.is_file():  # a pipe would never end
            raise RunError(f"{path} is missing, or is not a file")
        try:
            with path.open("rb") as start:
                header = int.from_bytes(start.read(8), "little")
            if path.stat().st_size > MAX_FILE or header > MAX_HEADER:
                raise ValueError(f"it is larger than {format_bytes(MAX_FILE)}")
            opened: Any = safe_open(path, framework="numpy")
            with opened as file:
                about: dict[str, str] = file.metadata() or {}
                description = reading.decode(
                    about.get("heedmap", ""), RecordingFile, str(path)
                )
                return _arrays_of(description, file)
        except (SafetensorError, OSError, ValueError) as error:
            raise RunError(
                f"{path} is not a recording that heedmap wrote: {error}"
            ) from error


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _arrays_of(about: RecordingFile, file: Any) -> Recording:
    """Read the arrays of a file; their shapes and types are checked before they are allocated."""
    positions = about.positions
    keep = frozenset(about.keep)
    if len({*positions}) < len(positions) or max(positions) >= len(about.table.tokens):
        raise ValueError("it has a token twice, or one that its prompt has not")
    steps = len(about.timesteps) if "step" in keep else 1
    shapes: dict[str, tuple[int, ...]] = {}
    for i, layer in enumerate(about.layers):
        heads = layer.heads if "head" in keep else 1
        size = layer.grid[0] * layer.grid[1]
        shapes[f"layer.{i}"] = (steps, heads, size, len(positions))
        if about.outputs:
            shapes[f"output.{i}"] = (steps, 1, size, len(positions))
    if about.refined is not None:
        shapes["refined"] = (*about.refined, len(positions))
    if set(file.keys()) != set(shapes):
        raise ValueError("it has not one array a layer")
    arrays: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        part = file.get_slice(name)
        if tuple(part.get_shape()) != shape or part.get_dtype() != "F32":
            raise ValueError(f"{name} has another shape or type than its description")
        arrays[name] = array = file.get_tensor(name)
        if not (array.min() >= -LARGEST and array.max() <= LARGEST):  # both refuse NaN
            raise ValueError(
                f"{name} has numbers that are NaN, infinite or far too large"
            )
    values = {name: getattr(about, name) for name in _FIELDS}
    values["refined"] = arrays.pop("refined", None)
    values["outputs"] = tuple(
        arrays.pop(name) for name in shapes if name.startswith("output.")
    )
    return Recording(arrays=tuple(arrays.values()), keep=keep, **values)


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
        return (
            (*range(len(self.recording.layers)),)
            if self.layers is None
            else self.layers
        )

    @property
    def step_numbers(self) -> tuple[int, ...]:
        """The numbers of its steps; SelectionError where they were averaged."""
        self._check_kept("step")
        return (
            (*range(len(self.recording.timesteps)),)
            if self.steps is None
            else self.steps
        )

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
            parts = {layer.name: layer.part for layer in before.values()}
            names = layers_there(parts, f"{layers or ''}")
            wanted = ", ".join(map(quoted, as_list(layers) or [layers]))
            if resolution is not None:
                sides = sorted({min(layer.grid) for layer in before.values()})
                wanted = f"resolution {quoted(resolution)}"
                names += (
                    f", with {join_words([*map(str, sides)])} cells on the short side"
                )
            raise SelectionError(f"no layer matches {wanted}: available are {names}")
        return replace(self, layers=numbers)

    def with_steps(self, steps: Any) -> "Selection":
        """Keep the steps that have these numbers."""
        before = self.step_numbers
        total = len(self.recording.timesteps)
        numbers = tuple(i for i in numbers_of(steps, total, "step") if i in before)
        if not numbers:
            wanted = quoted(steps)
            if hasattr(steps, "stop"):  # a slice
                start = steps.start or 0
                stop = steps.stop
                wanted = f"{start}" if stop == start + 1 else f"in {start}:{stop or ''}"
            there = f"steps {before[0]} to {before[-1]}"
            raise SelectionError(f"there is no step {wanted}: this run has {there}")
        return replace(self, steps=numbers)

    def with_heads(self, heads: Any) -> "Selection":
        """Keep the heads that have these numbers, and the layers that have them all."""
        before = self.head_numbers
        layers = self.recording.layers
        most = max(layers[i].heads for i in self.layer_numbers)
        numbers = tuple(
            head for head in numbers_of(heads, most, "head") if head in before
        )
        fitting = [
            i for i in self.layer_numbers if numbers and max(numbers) < layers[i].heads
        ]
        if not fitting:
            raise SelectionError(
                f"no layer has all of the heads {quoted(heads)}: expected 0 to {most - 1}"
            )
        return replace(self, layers=tuple(fitting), heads=numbers)

    def _check_kept(self, axis: Axis) -> None:
        if axis == "head" and self.recording.share_of == "outputs":
            raise SelectionError(
                "similarities of outputs have no heads, since all heads are compared together: "
                "select layers or steps"
            )
        if axis not in self.recording.keep:
            kept = [name for name in AXES if name in {axis, *self.recording.keep}]
            raise SelectionError(
                f"{axis}s cannot be selected, since they were averaged: generate the run again "
                f"with keep={kept} (--keep {','.join(kept)})"
            )

    def mean_of(self, positions: Iterable[int]) -> np.ndarray:
        """Return the mean over the selection of the summed probabilities of tokens: (h, w)."""
        recording = self.recording
        positions = list(positions)
        if not recording.arrays:
            raise NothingRecordedError(
                "nothing was recorded: run the pipeline inside of the trace"
            )
        missing = [p for p in positions if p not in recording.columns]
        if missing:
            raise SelectionError(
                f"tokens {missing} were not recorded: record with tokens='all'"
            )
        columns = [recording.columns[p] for p in positions]
        w, h = cells(recording.latent)
        total = np.zeros((h, w), dtype=np.float32)
        for grid, sums in self._sums.items():
            # Pillow's bilinear filter widens when it shrinks: no cell of a finer grid is skipped.
            plane = np.ascontiguousarray(sums[:, columns].sum(axis=-1).reshape(grid))
            total += np.asarray(
                Image.fromarray(plane).resize((w, h), Image.Resampling.BILINEAR)
            )
        return total / np.float32(len(self.layer_numbers))

    def magnitude_of(self, words: Iterable[Word]) -> np.ndarray:
        """Return the sum of the words' own maps, each by its magnitude: (h, w)."""
        w, h = cells(self.recording.latent)
        maps = (np.abs(self.mean_of(word.tokens)) for word in words)
        return sum(maps, start=np.zeros((h, w), dtype=np.float32))

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest value among the maps of all words."""
        maps = [self.mean_of(word.tokens) for word in self.recording.table.read_words]
        low = min((float(m.min()) for m in maps), default=0.0)
        return low, max((float(m.max()) for m in maps), default=1.0)

    @cached_property
    def _sums(self) -> dict[tuple[int, int], np.ndarray]:
        """The sum of the layers' means over steps and heads, (Q, K), by grid.

        Resizing is linear: layers of one grid are added up first, and resized once.
        """
        sums: dict[tuple[int, int], np.ndarray] = {}
        for i in self.layer_numbers:
            part = self.recording.arrays[i]
            grid = self.recording.layers[i].grid
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
        return name_fits(layer.name, wanted, layer.part)
    if callable(wanted):
        return bool(wanted(layer))
    if not isinstance(wanted, Sequence):
        raise ArgumentError(
            f"layers is {quoted(wanted)}: expected a group such as 'up', a name, a pattern, a list "
            "of these, or a function of a layer"
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
    one, other = (ranks(each).ravel() for each in (a, b))
    one = one - one.mean()
    other = other - other.mean()
    size = float(np.sqrt((one @ one) * (other @ other)))
    return float(np.clip(one @ other / size, -1, 1))
