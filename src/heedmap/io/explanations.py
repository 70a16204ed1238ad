"""The content of `explain.json`: one attention probability of a run, and its inputs.

An array is an object with its `shape` and its numbers in `float32`, little-endian, the last axis
first, as base64.
"""

import base64
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from heedmap.io.reading import FORMAT, read_json
from heedmap.io.values import Note, TokenKind
from heedmap.options import Axis, BranchName

MAX_EXPLANATION = 2**26
"""Bytes of `explain.json`."""


class ExplainedToken(Note, frozen=True):
    """One token of the text, which is one column of P. Special tokens have a label."""

    position: int
    text: str
    kind: TokenKind


class About(Note, frozen=True, kw_only=True):
    """The probability that is explained, and the run that it is from.

    Attributes:
        tokens: the positions of the word's tokens on the K axis.
        spans: (start, end) in the characters of `prompt` of each word that is meant.
        at: (x, y), the pixel, from the upper left, from 0.
        size: (width, height) of the image.
        layer: the dotted path of the layer; `short` is its name in figures.
        grid: (h, w) of the layer.
        place: (row, column) of the position of the grid that holds the pixel.
        passes: the model's pass within the step, from 0, and the number of passes.
        chosen: the axes that were chosen because the user gave none: the middle step, and the layer
            and head with the highest `selection_score` there.
        kept: the largest difference from the saved maps; None if these lack the layer or step.
        changed: the settings of the pipeline that differ from those of the run.
    """

    word: str
    tokens: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    prompt: str
    branch: BranchName
    at: tuple[int, int]
    size: tuple[int, int]
    layer: str
    short: str
    grid: tuple[int, int]
    place: tuple[int, int]
    head: int
    step: int
    steps: int
    passes: tuple[int, int]
    timestep: float
    chosen: tuple[Axis, ...]
    kept: float | None
    changed: tuple[str, ...]
    seed: int
    model: str
    pipeline: str
    scheduler: str
    dtype: str


class LayerInputs(Note, frozen=True, kw_only=True):
    """The tensors of a layer at one position, float64. Axes: H head · K token · d · C channel.

    Attributes:
        query: (H, d).
        key: (H, K, d).
        value: (H, K, d_v).
        mask: (H, K), added to the scaled scores, -inf for hidden tokens; None without a mask.
        scale: the factor of QKᵀ, 1/√d.
        edited: (H, K), P after the edits; None if no edit changed it.
        added: (H·d_v), the attention to an image prompt, added to the heads; None without one.
        weight: (C, H·d_v), W_O transposed, as torch stores it: each head has d_v of its columns.
        bias: (C); None without a bias.
        residual: (C), the input of the layer, if the layer adds it; None if it does not.
        factor: the divisor of the sum.
        output: (C), the output of the layer in the model.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    mask: np.ndarray | None
    scale: float
    edited: np.ndarray | None
    added: np.ndarray | None
    weight: np.ndarray
    bias: np.ndarray | None
    residual: np.ndarray | None
    factor: float
    output: np.ndarray


class ExplanationFile(Note, frozen=True, kw_only=True):
    """The part of `explain.json` that is read again; `shown` is computed from it."""

    format: int = FORMAT
    about: About
    tokens: tuple[ExplainedToken, ...]
    given: LayerInputs


def as_json(content: object) -> Any:
    """Convert a note with arrays to plain JSON types."""
    return msgspec.to_builtins(content, enc_hook=_pack)


def read_explanation(path: Path) -> ExplanationFile:
    """Read an `explain.json`; RunError if it is missing, broken or too large."""
    return read_json(path, ExplanationFile, most=MAX_EXPLANATION, dec_hook=_unpack)


def _pack(array: Any) -> dict[str, Any]:
    data = np.ascontiguousarray(array, dtype="<f4").tobytes()
    return {"shape": array.shape, "float32": base64.b64encode(data).decode("ascii")}


class _Packed(msgspec.Struct):
    shape: tuple[int, ...]
    float32: bytes  # msgspec decodes base64


def _unpack(kind: type, packed: object) -> np.ndarray:
    held = msgspec.convert(packed, _Packed)
    array = np.frombuffer(held.float32, dtype="<f4").reshape(held.shape)
    return array.astype(np.float64)
