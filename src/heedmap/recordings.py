"""What one image's run left behind: attention probabilities at the axes that were kept.

Axes, by the letters used all through heedmap: S step · H head · Q latent position (Q = h·w,
row-major) · K text token · h, w a layer's own grid. Everything is numpy: reading a saved run costs
no torch.
"""

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from heedmap.errors import RunError
from heedmap.words import TokenTable

Axis = Literal["layer", "step", "head"]
AXES: tuple[Axis, ...] = ("layer", "step", "head")
FORMAT = 1
MAX_FILE = 4 * 2**30


@dataclass(frozen=True, slots=True)
class Layer:
    """One cross-attention layer: its dotted path in the UNet, its heads, its grid (h, w)."""

    name: str
    heads: int
    grid: tuple[int, int]

    @property
    def short(self) -> str:
        """The name that figures have: "up 1.0", "mid 0", "down 2.1.7"."""
        short = self.name.removesuffix(".attn2").removesuffix(".transformer_blocks.0")
        for part in ("_blocks", "_block", ".attentions", ".transformer"):
            short = short.replace(part, "")
        return short.replace(".", " ", 1)


@dataclass(frozen=True, eq=False)
class Recording:
    """What one image's run left behind: attention probabilities at the axes that were kept.

    Attributes:
        layers: the layers, in the order of the UNet; one named "mean" where layers were averaged.
        arrays: one float32 array (S, H, Q, K) a layer; S or H is 1 where it was averaged.
        keep: the axes that were kept, of "layer", "step", "head".
        timesteps: the scheduler's timestep of every step that was run.
        positions: which positions of the encoded text the K axis holds.
        table: the words and tokens of the prompt.
        latent: (h, w) of the latent.
        size: (W, H) of the picture in pixels.
    """

    layers: tuple[Layer, ...]
    arrays: tuple[np.ndarray, ...]
    keep: frozenset[Axis]
    timesteps: tuple[float, ...]
    positions: tuple[int, ...]
    table: TokenTable
    latent: tuple[int, int]
    size: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(a.nbytes for a in self.arrays)

    def save(self, path: str | Path) -> None:
        """Write the recording to a safetensors file; `load` reads it back equal.

        A file of that name is replaced: `Run.save` looks after what a user has.

        Raises:
            OSError: if the file cannot be written.
        """
        layers = [asdict(layer) for layer in self.layers]
        about = {
            "format": FORMAT,
            "layers": layers,
            "keep": sorted(self.keep),
            "timesteps": self.timesteps,
            "positions": self.positions,
            "table": self.table.to_dict(),
            "latent": self.latent,
            "size": self.size,
        }
        arrays = {f"layer.{i}": np.ascontiguousarray(a) for i, a in enumerate(self.arrays)}
        with open(path, "wb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        save_file(arrays, path, metadata={"heedmap": json.dumps(about)})
        os.chmod(path, mode)  # else it is its owner's alone, whatever the umask

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read a recording that `save` wrote; the file is checked, never trusted.

        Raises:
            RunError: if the file is missing, too large, or not what `save` writes.
        """
        path = Path(path)
        if not path.is_file():
            raise RunError(f"no maps at {path}: expected the maps.safetensors of a saved run")
        if path.stat().st_size > MAX_FILE:
            raise RunError(f"{path} is larger than 4 GiB: not a recording that heedmap wrote")
        try:
            with safe_open(path, framework="numpy") as file:
                about = json.loads((file.metadata() or {})["heedmap"])
                return _read_recording(about, file)
        except (SafetensorError, KeyError, ValueError, TypeError, RecursionError, OSError) as error:
            raise RunError(
                f"{path} is not a recording that heedmap wrote ({type(error).__name__}); "
                "make the run again"
            ) from error


def _read_recording(about: dict[str, Any], file: Any) -> Recording:
    def need(holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(what)

    def pair(value: Any) -> tuple[int, int]:
        need(isinstance(value, list) and len(value) == 2, "a pair")
        need(all(type(v) is int and 0 < v <= 2**20 for v in value), "positive whole numbers")
        return value[0], value[1]

    need(isinstance(about, dict) and about.get("format") == FORMAT, "the format's version")
    layers = tuple(
        Layer(str(entry["name"]), int(entry["heads"]), pair(entry["grid"]))
        for entry in about["layers"]
    )
    keep: frozenset[Any] = frozenset(about["keep"])
    need(keep <= set(AXES), "the kept axes")
    timesteps = tuple(float(t) for t in about["timesteps"])
    table = TokenTable.from_dict(about["table"])
    positions = tuple(int(p) for p in about["positions"])
    need(all(0 <= p < len(table.tokens) for p in positions), "positions within the tokens")
    need(set(file.keys()) == {f"layer.{i}" for i in range(len(layers))}, "one array a layer")
    arrays = []
    for i, layer in enumerate(layers):
        # The shape is compared before the array is read, so nothing unexpected is allocated.
        shape = (
            len(timesteps) if "step" in keep else 1,
            layer.heads if "head" in keep else 1,
            layer.grid[0] * layer.grid[1],
            len(positions),
        )
        part = file.get_slice(f"layer.{i}")
        need(tuple(part.get_shape()) == shape and part.get_dtype() == "F32", "an array's shape")
        array = file.get_tensor(f"layer.{i}")
        need(bool(np.isfinite(array).all()), "finite numbers")
        arrays.append(array)
    return Recording(
        layers, tuple(arrays), keep, timesteps, positions, table,
        pair(about["latent"]), pair(about["size"]),
    )  # fmt: skip
