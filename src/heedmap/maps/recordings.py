"""What one image's run left behind: attention probabilities at the axes that were kept.

Axes, by the letters used all through heedmap: S step · H head · Q latent position (Q = h·w,
row-major) · K text token · h, w a layer's own grid. Everything is numpy: reading a saved run costs
no torch.
"""

import json
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct
from safetensors import SafetensorError
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

from heedmap.errors import RunError, SelectionError, fields_shown, plural, quoted, sizes
from heedmap.files import reading, schemas
from heedmap.files.arrays import Arrays
from heedmap.files.values import (
    MAX_LAYER_NAME,
    MAX_LAYERS,
    MAX_STEPS,
    MAX_TOKENS,
    Number,
    SideLength,
    Small,
)
from heedmap.files.writing import WriteError
from heedmap.maps.layer_names import short_name
from heedmap.options import Axis
from heedmap.text.saved_tables import check_table
from heedmap.text.words import TokenTable

FORMAT = 1
MAX_FILE = 4 * 2**30
AVERAGED = "mean"
"""The name of the one layer of a recording that kept none: of all, brought to the maps' grid."""
REFINED = "refined"
"""The name of the one layer of maps that are refined."""
CELLS = 64
"""Cells on the short side of a heat map."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One cross-attention layer: its dotted path in the model, its heads, its grid (h, w)."""

    name: Annotated[str, Meta(max_length=MAX_LAYER_NAME)]
    heads: Annotated[int, Meta(ge=1, le=1024)]
    grid: tuple[SideLength, SideLength]

    def __repr__(self) -> str:
        return fields_shown(self)

    @property
    def short(self) -> str:
        """The name that figures have: "up 1.0", "mid 0", "down 2.1.7"."""
        return short_name(self.name)


class RecordingFile(Struct, frozen=True):
    """What `maps.safetensors` says of its arrays."""

    format: int
    layers: Annotated[tuple[Layer, ...], Meta(min_length=1, max_length=MAX_LAYERS)]
    keep: tuple[Axis, ...]
    timesteps: Annotated[tuple[Number, ...], Meta(min_length=1, max_length=MAX_STEPS)]
    positions: Annotated[tuple[Small, ...], Meta(min_length=1, max_length=MAX_TOKENS)]
    table: TokenTable
    latent: tuple[SideLength, SideLength]
    size: tuple[SideLength, SideLength]
    refined: tuple[SideLength, SideLength] | None = None


@dataclass(frozen=True, eq=False)
class Recording:
    """What one image's run left behind: attention probabilities at the axes that were kept.

    Attributes:
        layers: the layers, in the order of the model; one named `AVERAGED` where they were
            averaged.
        arrays: one float32 array (S, H, Q, K) a layer, which is read-only; S or H is 1 where it was
            averaged.
        keep: the axes that were kept, of "layer", "step", "head".
        timesteps: the scheduler's timestep of every step that was run.
        positions: which positions of the encoded text the K axis holds.
        table: the words and tokens of the prompt.
        latent: (h, w) of the latent.
        size: (W, H) of the picture in pixels.
        refined: the maps of the same tokens refined by self-attention, float32 (h, w, K), which is
            read-only; None where there are none.
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
        object.__setattr__(self, "arrays", tuple(map(_held, self.arrays)))
        if self.refined is not None:
            object.__setattr__(self, "refined", _held(self.refined))

    def __repr__(self) -> str:
        kept = " and ".join(sorted(self.keep)) or "none"
        return (
            f"<Recording of {quoted(self.table.prompt)}: {plural(len(self.positions), 'token')}, "
            f"axes kept: {kept}, {sizes(self.nbytes)[0]}>"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(a.nbytes for a in self.arrays)

    @cached_property
    def columns(self) -> dict[int, int]:
        """By position, its place on the K axis."""
        return {position: column for column, position in enumerate(self.positions)}

    def refined_alone(self) -> "Recording":
        """The refined maps as those of a recording of one layer, named `REFINED`.

        Raises:
            SelectionError: if there are none.
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
        """Write the recording to a safetensors file; `load` reads it back equal.

        A file of that name is replaced: `Run.save` looks after what a user has.

        Raises:
            RunError: if the file cannot be written; an older one stays.
        """
        path = Path(path)
        about = RecordingFile(
            FORMAT,
            self.layers,
            (*sorted(self.keep),),
            self.timesteps,
            self.positions,
            self.table,
            self.latent,
            self.size,
            None if self.refined is None else self.refined.shape[:2],
        )
        arrays = {f"layer.{i}": np.ascontiguousarray(a) for i, a in enumerate(self.arrays)}
        if self.refined is not None:
            arrays["refined"] = np.ascontiguousarray(self.refined)
        new = not os.path.lexists(path)
        try:
            with path.open("xb" if new else "rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            save_file(arrays, path, metadata={"heedmap": json.dumps(msgspec.to_builtins(about))})
            os.chmod(path, mode)  # otherwise it would be its owner's alone, whatever the umask
        except (SafetensorError, OSError) as error:
            if new:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            refused = error if isinstance(error, OSError) else _refused(error)
            raise WriteError(f"{path} could not be written", refused) from error

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read a recording that `save` wrote; the file is checked, never trusted.

        Raises:
            RunError: if the file is missing, too large, or not what `save` writes.
        """
        path = Path(path)
        missing = f"no maps at {path}: expected the maps.safetensors of a saved run"
        try:
            with reading.opened(path, most=MAX_FILE, otherwise=missing) as file:
                held = Arrays(file)
                told = schemas.read(held.about, RecordingFile, str(path), version=FORMAT)
                return _read_recording(told, held)
        except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
            why = f" ({error})" if type(error) is ValueError else ""
            raise RunError(
                f"{path} is not a recording that heedmap wrote{why}; make the run again"
            ) from error


def _held(array: np.ndarray) -> np.ndarray:
    """A view of an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _refused(error: SafetensorError) -> OSError:
    """What the system said; safetensors has it as text only."""
    found = re.search(r"os error (\d+)", str(error))
    return (
        OSError(str(error)) if found is None else OSError(int(found[1]), os.strerror(int(found[1])))
    )


def cells(latent: tuple[int, int]) -> tuple[int, int]:
    """The (w, h) of a heat map for a latent of (h, w): 64 on the short side, in proportion."""
    h, w = latent
    short = min(h, w)
    return round(CELLS * w / short), round(CELLS * h / short)


def check_fit(
    grids: Iterable[tuple[int, int]], latent: tuple[int, int], size: tuple[int, int]
) -> None:
    """Raise a ValueError unless grids and latent (h, w) and picture (W, H) can belong to one run.

    A UNet halves its latent from stage to stage, rounding up, the patches of a transformer are 2, 4
    or more cells wide, and a decoder makes of each cell a square of pixels. Layers that were
    averaged have the grid of the maps.
    """
    (h, w), (width, height) = latent, size
    if width % w or height % h or width // w != height // h:
        raise ValueError(f"a latent of {h}×{w} makes no picture of {width}×{height}")
    if max(h, w) > reading.MAX_ASPECT * min(h, w) or width * height > reading.MAX_PIXELS:
        raise ValueError(f"{width}×{height} is no size of a picture")
    wide, high = cells(latent)
    stages = {latent, (high, wide)}
    while (h, w) != (1, 1):
        h, w = (h + 1) // 2, (w + 1) // 2
        stages.add((h, w))
    if strange := [grid for grid in grids if grid not in stages]:
        raise ValueError(f"a layer has a grid of {strange[0]} under a latent of {latent}")


def _read_recording(about: RecordingFile, file: Arrays) -> Recording:
    def need(holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(what)

    layers, keep, positions = about.layers, frozenset(about.keep), about.positions
    more = [] if about.refined is None else [about.refined]
    check_fit([*(layer.grid for layer in layers), *more], about.latent, about.size)
    check_table(about.table)
    need(len({*positions}) == len(positions), "it has a token twice")
    need(max(positions) < len(about.table.tokens), "it has a token that its prompt has not")
    names = {f"layer.{i}" for i in range(len(layers))} | {"refined" for _ in more}
    need(file.names == names, "it has not one array a layer")
    arrays: list[np.ndarray] = []
    for i, layer in enumerate(layers):
        shape = (
            len(about.timesteps) if "step" in keep else 1,
            layer.heads if "head" in keep else 1,
            layer.grid[0] * layer.grid[1],
            len(positions),
        )
        arrays.append(file.sound(f"layer.{i}", shape))
    shape = None if about.refined is None else (*about.refined, len(positions))
    refined = None if shape is None else file.sound("refined", shape)
    return Recording(
        layers,
        tuple(arrays),
        keep,
        about.timesteps,
        positions,
        about.table,
        about.latent,
        about.size,
        refined,
    )
