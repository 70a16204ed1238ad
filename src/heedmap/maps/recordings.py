"""Recordings: the attention probabilities of one image's run, at the axes that were kept.

Axes: S step · H head · Q latent position (Q = h·w, row-major) · K text token · h, w a layer's grid.
All is numpy: reading a saved run needs no torch.
"""

import fnmatch
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

from heedmap.errors import RunError, SelectionError, nearest, plural, quoted, size_text
from heedmap.io import reading
from heedmap.io.schemas import (
    MAX_LAYER_NAME,
    MAX_LAYERS,
    MAX_STEPS,
    MAX_TOKENS,
    Number,
    SideLength,
    Small,
)
from heedmap.io.writing import WriteError
from heedmap.options import Axis
from heedmap.text.words import TokenTable

MOST_NEAR = 5
"""Layers that an error names."""
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


def stage_of(name: str) -> str:
    """Return the stage of a UNet that a layer is in, "down", "mid" or "up"; empty if in none."""
    return next((stage for stage in _STAGES if name.startswith(f"{stage}_block")), "")


def name_fits(name: str, wanted: str) -> bool:
    """Return whether "down", "mid" or "up", a short name, a path or a pattern fits a layer."""
    if wanted in _STAGES:
        return stage_of(name) == wanted
    return wanted in (name, short_name(name)) or fnmatch.fnmatchcase(name, wanted)


def layers_there(names: Sequence[str], like: str) -> str:
    """List stages and layers for an error, of many layers those most like a name."""
    stages = [stage for stage in _STAGES if any(stage_of(name) == stage for name in names)]
    near = nearest_layers(like, names)
    return f"one of {', '.join([*stages, *near])}{', …' if len(near) < len(names) else ''}"


def nearest_layers(like: str, names: Sequence[str]) -> list[str]:
    """Return the short names of the layers most like a path or a short name, the nearest first."""
    return nearest(like if " " in like else short_name(like), short_names(names), MOST_NEAR)


def short_name(name: str) -> str:
    """Return the name of a layer in figures and tables: "up 1.0", "mid 0", "down 2.1.7"."""
    short = name.removesuffix(".attn2").removesuffix(".transformer_blocks.0")
    for part in ("_blocks", "_block", ".attentions", ".transformer"):
        short = short.replace(part, "")
    return short.replace(".", " ", 1)


def short_names(names: Sequence[str]) -> list[str]:
    """Return the short name of each layer, or its path where another layer has that name."""
    counts = Counter([short_name(name) for name in names])
    return [short_name(name) if counts[short_name(name)] == 1 else name for name in names]


def cells(latent: tuple[int, int]) -> tuple[int, int]:
    """Return the (w, h) of a heat map for a latent of (h, w): 64 on the short side."""
    h, w = latent
    short = min(h, w)
    return round(CELLS * w / short), round(CELLS * h / short)


@dataclass(frozen=True, slots=True)
class Layer:
    """One cross-attention layer: its dotted path in the model, its heads, its grid (h, w)."""

    name: Annotated[str, Meta(max_length=MAX_LAYER_NAME)]
    heads: Annotated[int, Meta(ge=1, le=1024)]
    grid: tuple[SideLength, SideLength]

    @property
    def short(self) -> str:
        """The name in figures: "up 1.0", "mid 0", "down 2.1.7"."""
        return short_name(self.name)


class RecordingFile(Struct, frozen=True):
    """The description of the arrays in `maps.safetensors`."""

    format: int
    layers: Annotated[tuple[Layer, ...], Meta(min_length=1, max_length=MAX_LAYERS)]
    keep: tuple[Axis, ...]
    timesteps: Annotated[tuple[Number, ...], Meta(min_length=1, max_length=MAX_STEPS)]
    positions: Annotated[tuple[Small, ...], Meta(min_length=1, max_length=MAX_TOKENS)]
    table: TokenTable
    latent: tuple[SideLength, SideLength]
    size: tuple[SideLength, SideLength]
    refined: tuple[SideLength, SideLength] | None = None


_FIELDS = ("layers", "timesteps", "positions", "table", "latent", "size")  # as in `Recording`


@dataclass(frozen=True, eq=False)
class Recording:
    """The attention probabilities of one image's run, at the axes that were kept.

    Attributes:
        layers: the layers, in the order of the model; one named `AVERAGED` where they were
            averaged.
        arrays: one read-only float32 array (S, H, Q, K) a layer; S or H is 1 where it was averaged.
        keep: the axes that were kept, of "layer", "step", "head".
        timesteps: the scheduler's timestep of every step.
        positions: of the encoded text, those that the K axis holds.
        table: the words and tokens of the prompt.
        latent: (h, w) of the latent.
        size: (W, H) of the image in pixels.
        refined: the maps of the same tokens refined by self-attention, read-only float32
            (h, w, K); None where there are none.
    """

    layers: tuple[Layer, ...]
    arrays: tuple[np.ndarray, ...]
    keep: frozenset[Axis]
    timesteps: tuple[float, ...]
    positions: tuple[int, ...]
    table: TokenTable
    latent: tuple[int, int]
    size: tuple[int, int]
    refined: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", tuple(map(_read_only, self.arrays)))
        if self.refined is not None:
            object.__setattr__(self, "refined", _read_only(self.refined))

    def __repr__(self) -> str:
        axes = " and ".join(sorted(self.keep)) or "none"
        return (
            f"<Recording of {quoted(self.table.prompt)}: {plural(len(self.positions), 'token')}, "
            f"axes kept: {axes}, {size_text(self.nbytes)}>"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(a.nbytes for a in self.arrays)

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
                "there are no refined maps: they need self-attention layers on a middle grid that "
                "attend from each place of the image to each of its places and to nothing else"
            )
        h, w, tokens = self.refined.shape
        array = self.refined.reshape(1, 1, h * w, tokens)
        layers = (Layer(REFINED, 1, (h, w)),)
        return replace(self, layers=layers, arrays=(array,), keep=frozenset(), refined=None)

    def save(self, path: str | Path) -> None:
        """Write the recording to a safetensors file, in the place of an older one.

        Raises:
            RunError: if the file cannot be written.
        """
        path = Path(path)
        arrays = {f"layer.{i}": np.ascontiguousarray(a) for i, a in enumerate(self.arrays)}
        if self.refined is not None:
            arrays["refined"] = np.ascontiguousarray(self.refined)
        values = {name: getattr(self, name) for name in _FIELDS}
        values["refined"] = None if self.refined is None else self.refined.shape[:2]
        about = RecordingFile(format=reading.FORMAT, keep=(*sorted(self.keep),), **values)
        try:
            path.touch()
            mode = path.stat().st_mode
            save_file(arrays, path, metadata={"heedmap": msgspec.json.encode(about).decode()})
            path.chmod(mode)  # safetensors lets its owner alone read it, whatever the umask
        except (SafetensorError, OSError) as error:
            raise WriteError(f"{path} cannot be written ({error}): choose another place") from error

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
                raise ValueError(f"it is larger than {size_text(MAX_FILE)}")
            opened: Any = safe_open(path, framework="numpy")
            with opened as file:
                about: dict[str, str] = file.metadata() or {}
                description = reading.decode(about.get("heedmap", ""), RecordingFile, str(path))
                return _arrays_of(description, file)
        except (SafetensorError, OSError, ValueError) as error:
            raise RunError(f"{path} is not a recording that heedmap wrote: {error}") from error


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _arrays_of(about: RecordingFile, file: Any) -> Recording:
    """Read the arrays of a file; their shapes and types are checked before they are allocated."""
    positions, keep = about.positions, frozenset(about.keep)
    if len({*positions}) < len(positions) or max(positions) >= len(about.table.tokens):
        raise ValueError("it has a token twice, or one that its prompt has not")
    steps = len(about.timesteps) if "step" in keep else 1
    shapes: dict[str, tuple[int, ...]] = {}
    for i, layer in enumerate(about.layers):
        heads = layer.heads if "head" in keep else 1
        shapes[f"layer.{i}"] = (steps, heads, layer.grid[0] * layer.grid[1], len(positions))
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
            raise ValueError(f"{name} has numbers that are NaN, infinite or far too large")
    refined = arrays.pop("refined", None)
    values = {name: getattr(about, name) for name in _FIELDS}
    return Recording(arrays=tuple(arrays.values()), keep=keep, refined=refined, **values)
