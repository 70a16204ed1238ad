"""The options of each call, with their defaults, and the check of each value.

The public functions, the command line and the app take their defaults from these classes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from heedmap import checks
from heedmap.errors import ArgumentError, quoted

Axis = Literal["layer", "step", "head"]
"""An axis that a recording may keep."""
AXES: tuple[Axis, ...] = get_args(Axis)
Keep = Iterable[Axis] | Literal["all"]
"""Axes that a recording keeps."""
BranchName = Literal["conditional", "negative"]
"""Whose attention is recorded: the prompt's, or the negative prompt's."""
Tokens = Literal["prompt", "all"]
"""Which tokens are recorded: the prompt's own, or the padding too."""
EditKind = Literal["replace", "refine"]
"""How the words of an edit correspond: one to one, or with words that are new."""
EditPurpose = Literal["swap", "colour", "addition", "removal", "size", "relation", "setting"]
"""What an edit is for, read off its words (`heedmap.text.alignment`)."""
Device = Literal["auto", "cpu", "cuda", "mps"]
"""Where a model runs; "auto" is the best that there is."""
Dtype = Literal["auto", "float32", "float16", "bfloat16"]
"""How precisely; "auto" is float32 on the CPU, else float16."""
Window = float | tuple[float, float]
"""A fraction of the run up to which, or two from and up to which, something is done."""
USUAL: Mapping[EditPurpose | None, tuple[float, float]] = {
    None: (0.8, 0.4),
    "swap": (0.8, 0.4),
    "colour": (0.8, 0.4),
    "size": (0.5, 0.4),
    "setting": (0.5, 0.4),
    "addition": (0.2, 0.0),
    "removal": (0.3, 0.4),
    "relation": (0.1, 0.4),
}
"""Up to when an edit takes its source's cross-attention and self-attention where nobody says.

By what it is for; None: weights, signs or articles and the like alone. Measured on the embedded
model (`scripts/evaluate.py windows`): a thing that comes or goes, or lies elsewhere, finds no room
in a layout that is held for long.
"""
MAX_STEPS = 999
"""The most denoising steps: a model is trained with 1000 timesteps."""
OWN_NAMES = {
    "prompt": "the prompt",
    "generator": "seed",
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "width": "size",
    "height": "size",
    "negative_prompt": "negative",
    "num_images_per_prompt": "a call for each seed",
    "prompt_embeds": "the prompt as text, or trace() around a call of your own",
    "output_type": "run.image",
    "return_dict": "run.image",
}
"""Arguments of pipelines that heedmap passes itself, and what takes their place."""


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Where a model runs, and how precisely."""

    device: Device = "auto"
    dtype: Dtype = "auto"


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """The keyword arguments of `generate`, described there.

    The constructor checks each value and converts it to Python's own types; ArgumentError for a
    value that is out of range. Whether the model can draw a size is checked with the pipeline.
    """

    steps: int | None = None
    guidance: float | None = None
    size: tuple[int, int] | None = None
    negative: str | None = None
    keep: Keep = ("layer",)
    tokens: Tokens = "prompt"
    branches: Iterable[BranchName] = ("conditional",)
    concepts: Sequence[str] = ()
    limit: int = 2 * 2**30
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values: dict[str, Any] = {
            "keep": checks.any_of("keep", self.keep, AXES),
            "branches": checks.any_of("branches", self.branches, get_args(BranchName)),
            "limit": checks.whole("limit", self.limit, least=1, most=2**63 - 1),
        }
        checks.one_of("tokens", self.tokens, get_args(Tokens))
        if self.steps is not None:
            values["steps"] = checks.whole("steps", self.steps, least=1, most=MAX_STEPS)
        if self.guidance is not None:
            values["guidance"] = checks.finite("guidance", self.guidance, least=0, most=100)
        if self.negative is not None:
            checks.text("negative", self.negative, "blurry", most=100_000)
        for name, value in values.items():
            object.__setattr__(self, name, value)


LOCATE_STEPS = 10
"""The noise levels at which `locate` asks the model: 5, 10, 20 and 40 are equal on scenes with
known masks."""


@dataclass(frozen=True, kw_only=True)
class EditOptions:
    """The keyword arguments of an edit, described in `edit`.

    The constructor checks each value; ArgumentError for a value that is out of range, or that has
    no effect without `only`. Windows become (start, end). `self_cells` is 32 × 32 as published.
    With its threshold of 0.25, the embedded model's blend holds nearly all of the thing and two
    fifths of the image.
    """

    kind: EditKind | None = None
    cross: Window | None = None
    words: Mapping[str, Window] | None = None
    self_attention: Window | None = None
    self_cells: int = 32 * 32
    renormalize: bool = False
    only: str | None = None
    protect: Iterable[str] = ()
    blend_from: float = 0.2
    threshold: float = 0.25
    image: Any = None
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.kind is not None:
            checks.one_of("kind", self.kind, get_args(EditKind))
        if self.words is not None and not isinstance(self.words, Mapping):
            raise ArgumentError(
                f"words is {quoted(self.words)}: expected windows by word, as in {{'cat': 0.3}}"
            )
        protect = [self.protect] if isinstance(self.protect, str) else checks.several(self.protect)
        if protect is None:
            raise ArgumentError(
                f"protect is {quoted(self.protect)}: expected a word, or a list of words"
            )
        values: dict[str, Any] = {
            "words": {
                word: check_window(f"the window of {quoted(word)}", window)
                for word, window in (self.words or {}).items()
            },
            "self_cells": checks.whole("self_cells", self.self_cells, least=0, most=2**31),
            "renormalize": checks.flag("renormalize", self.renormalize),
            "protect": tuple(protect),
            "blend_from": checks.fraction("blend_from", self.blend_from),
            "threshold": checks.fraction("threshold", self.threshold),
        }
        for name in ("cross", "self_attention"):
            window = getattr(self, name)
            values[name] = None if window is None else check_window(name, window)
        if self.batch is not None:
            values["batch"] = checks.whole("batch", self.batch, least=2, most=2**31 - 1)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.blend_from == 1:
            raise ArgumentError("blend_from is 1: expected a fraction of the run below 1")
        blend = {"blend_from": self.blend_from, "threshold": self.threshold}
        unused = [name for name, value in blend.items() if value != getattr(EditOptions, name)]
        unused += ["protect"] if protect else []
        if unused and self.only is None:
            raise ArgumentError(
                f"{' and '.join(unused)} had no effect: pass only as well, as in only='cat->dog'"
            )


def check_window(name: str, window: Any) -> tuple[float, float]:
    """Return a window as (start, end), fractions of the run; ArgumentError if it is none."""
    bounds = tuple(window) if isinstance(window, tuple | list) else (0.0, window)
    if len(bounds) == 2:
        start, end = (checks.fraction(name, bound) for bound in bounds)
        if start <= end:
            return start, end
    raise ArgumentError(
        f"{name} is {quoted(window)}: expected a fraction of the run from 0 to 1, or two, the "
        "first not above the second"
    )


MASK_THRESHOLD = 0.5
"""What a soft mask must have at least for a pixel to be in its mask: measured to be right on scenes
whose masks are known."""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Which of a step's numbers are taken apart.

    Attributes:
        branch: whose attention.
        pass_: which of the model's passes within the step, from 0.
    """

    branch: BranchName = "conditional"
    pass_: int = 0


@dataclass(frozen=True, kw_only=True)
class ConfineOptions:
    """How a word is kept inside of a place, as `heedmap.Confine` tells it."""

    strength: float = 3.0
    start: float = 0.0
    end: float = 0.6
    along: Sequence[str] | None = None
    tail: bool = True
