"""`explain.json`: one number of a run taken apart, and all that it can be computed of again.

`given` is what the model had, `shown` what was made of it, by no more than the arithmetic of the
page. An array is packed: its shape, and its numbers in float32, little-endian, the last axis
running fastest, as base64.
"""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from heedmap.io.reading import FORMAT
from heedmap.io.values import (
    MAX_TOKENS,
    WORDS_AT_MOST,
    Files,
    Name,
    Note,
    Number,
    SideLength,
    Small,
    Text,
    TokenKind,
    Whole,
)
from heedmap.options import Axis, BranchName

MAX_EXPLANATION = 2**26
"""Bytes of `explain.json`."""
_HEADS, _CHANNELS = 1024, 2**16


class Packed(Note, frozen=True):
    """An array: `numpy.frombuffer(base64.b64decode(float32), "<f4").reshape(shape)`."""

    shape: Annotated[tuple[Annotated[int, Meta(ge=1, le=2**20)], ...], Meta(max_length=3)]
    float32: Annotated[str, Meta(max_length=MAX_EXPLANATION)]


class TokenTold(Note, frozen=True):
    """One token of the text: one column of P. Special ones have a label for a text."""

    position: Small
    text: Text
    kind: TokenKind


class About(Note, frozen=True, kw_only=True):
    """Which number it is, and where it comes from.

    Attributes:
        tokens: the word's positions on the axis K.
        spans: (from, up to) in the characters of `prompt`, of each word that is meant.
        at: (x, y), the pixel, from the upper left, from 0.
        size: (width, height) of the picture.
        short: the layer's name in figures; `layer` is its path in the model.
        grid: (h, w) of the layer.
        place: (row, column) of the grid that holds the pixel.
        passes: the pass of the model within the step, from 0, and how many there are.
        chosen: who chose layer, step and head: "asked"; "kept", where the word draws most at this
            place, but no more than half, among what the run kept (`maps.aims.worth`); "drawn", the
            same when the step was drawn again; "middle", the middle step.
        kept: the largest difference from the run's own record; null where it kept none.
        changed: the settings that differ from the run's.
        rule: whether an edit acted on P here.
        image_prompt: whether another attention is added to the heads.
    """

    word: Text
    tokens: Annotated[tuple[Small, ...], Meta(min_length=1, max_length=MAX_TOKENS)]
    prompt: Text
    branch: BranchName
    at: tuple[Small, Small]
    size: tuple[SideLength, SideLength]
    layer: Name
    short: Name
    grid: tuple[SideLength, SideLength]
    place: tuple[Small, Small]
    head: Small
    heads: Annotated[int, Meta(ge=1, le=_HEADS)]
    step: Small
    steps: Annotated[int, Meta(ge=1)]
    passes: tuple[Small, Annotated[int, Meta(ge=1)]]
    timestep: Number
    chosen: Mapping[Axis, Literal["asked", "kept", "middle", "drawn"]]
    kept: Number | None
    changed: tuple[Name, ...]
    rule: bool
    seed: Whole
    model: Name
    pipeline: Name
    scheduler: Name
    dtype: Name
    image_prompt: bool
    spans: Annotated[tuple[tuple[Small, Small], ...], WORDS_AT_MOST] = ()


class Had(Note, frozen=True, kw_only=True):
    """What the model had at the place. Axes: H head · K token · d · C channels.

    Attributes:
        query: (H, d).
        key: (H, K, d).
        value: (H, K, d_v).
        mask: (H, K), added to the scaled scores; null without.
        scale: what QKᵀ is multiplied by, 1/√d.
        edited: (H, K), P as an edit made it; null where none acted.
        added: (H·d_v), what an image prompt added to the heads; null without.
        weight: (C, H·d_v), W_O transposed, as torch keeps it: a head has d_v of its columns.
        bias: (C); null without.
        residual: (C), what went into the layer, where that is added; null where it is not.
        factor: what the sum is divided by.
        output: (C), what the layer really put out.
    """

    query: Packed
    key: Packed
    value: Packed
    mask: Packed | None
    scale: Annotated[float, Meta(gt=0)]
    edited: Packed | None
    added: Packed | None
    weight: Packed
    bias: Packed | None
    residual: Packed | None
    factor: float
    output: Packed


class HeadShown(Note, frozen=True, kw_only=True):
    """What a head made of the place.

    Attributes:
        word: P of the word, its tokens added up.
        start: P of the start token; null without one.
        length: ‖P V W_O‖, the length of what the head brought to the layer's output.
        word_length: the same of the word alone.
    """

    word: float
    start: float | None
    length: float
    word_length: float


class Shown(Note, frozen=True, kw_only=True):
    """What was computed of it in float64: lists over the K tokens, of the head, unless said.

    Attributes:
        scores: Q·K.
        scaled: Q·K times the scale.
        masked: with the mask; null for -inf.
        probabilities: P, the softmax.
        unscaled: the softmax without the scale.
        acted: P as it acted: as an edit made it, or P itself.
        brought: ‖P·V W_O‖ of each token.
        all_brought: the same of all heads together.
        output: P V (d_v).
        heads: of each head.
        joined: (H·d_v), the heads side by side, and what an image prompt added.
        together: (C), joined W_O + b, and the residual, over the factor.
        difference: the largest of |together − what the layer really put out|.
    """

    scores: list[float]
    scaled: list[float]
    masked: list[float | None]
    probabilities: list[float]
    unscaled: list[float]
    acted: list[float]
    brought: list[float]
    all_brought: list[float]
    output: list[float]
    heads: list[HeadShown]
    joined: list[float]
    together: list[float]
    difference: float


class ExplanationFile(Note, frozen=True, kw_only=True):
    """`explain.json`."""

    format: int = FORMAT
    files: Files
    about: About
    tokens: Annotated[tuple[TokenTold, ...], Meta(min_length=1, max_length=MAX_TOKENS)]
    given: Had
    shown: Shown


# --- arrays ---


def as_packed(array: Any) -> Packed:
    """An array of float32 as a file has it."""
    array = np.ascontiguousarray(array, dtype="<f4")
    return Packed(array.shape, base64.b64encode(array.tobytes()).decode("ascii"))


def as_array(held: Packed) -> np.ndarray:
    """The same as an array, float64."""
    data = base64.b64decode(held.float32)
    return np.frombuffer(data, dtype="<f4").reshape(held.shape).astype(np.float64)
