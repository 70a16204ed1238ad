"""The options of each call: defaults, help, the check of each value, and the reading of texts.

The public functions take their defaults from these classes; the command line makes a flag and the
app a field of each option that `option` declares.
"""

import ast
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from heedmap.checks import (
    as_list,
    check_bool,
    check_float,
    check_fraction,
    check_int,
    check_one_of,
    check_subset,
    check_text,
)
from heedmap.errors import ArgumentError, quoted

Axis = Literal["layer", "step", "head"]
"""An axis that a recording may keep."""
AXES: tuple[Axis, ...] = get_args(Axis)
Keep = Iterable[Axis] | Literal["all"]
"""Axes that a recording keeps."""
BranchName = Literal["conditional", "negative"]
"""The prompt or the negative prompt, whose attention is recorded."""
Tokens = Literal["prompt", "all"]
"""The tokens that are recorded: the prompt's own, or the padding too."""
ShareOf = Literal["all", "text"]
"""Recorded probabilities are shares of this attention where text and image share one softmax."""
Share = Literal["all", "text", "outputs"]
"""The shares that a map holds; those of "outputs" are no attention (`HeatMaps.outputs`)."""
SHARES: Mapping[Share | None, str] = {
    None: "",
    "all": "share of all attention",
    "text": "share of the attention to the text",
    "outputs": "similarity of outputs, as a share among the concepts",
}
"""The name of each in figures; None stands for models whose text has a softmax of its own."""
EditKind = Literal["replace", "refine"]
"""How the words of an edit correspond: one to one, or with words that are new."""
EditPurpose = Literal[
    "relation", "addition", "removal", "setting", "swap", "size", "colour"
]
"""The purpose of an edit (`heedmap.text.alignment`), the one that needs the most freedom first."""
Device = Literal["auto", "cpu", "cuda", "mps"]
"""Where a model runs; "auto" is the best that there is."""
Dtype = Literal["auto", "float32", "float16", "bfloat16"]
"""The precision of a model; "auto" is float32 on the CPU, else float16."""
Window = float | tuple[float, float]
"""A part of the run, in fractions: its end, or its start and end."""
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
"""The default ends of the windows of cross-attention and self-attention, by the edit's purpose.

None: weights, signs or articles and the like alone. Measured on the embedded model
(`scripts/evaluate.py windows`): a thing that comes or goes, or moves, finds no place in a layout
that is kept for long.
"""
USUAL_JOINT: Mapping[EditPurpose | None, tuple[float, float]] = {
    None: (0.8, 0.4),
    "swap": (0.5, 0.2),
    "colour": (0.8, 0.4),
    "size": (0.3, 0.0),
    "setting": (0.5, 0.4),
    "addition": (0.2, 0.0),
    "removal": (0.2, 0.2),
    "relation": (0.08, 0.0),
}
"""The same where text and image share one softmax, measured on the embedded transformer."""
MAX_STEPS = 999
"""The most denoising steps: a model is trained with 1000 timesteps."""
LOCATE_STEPS = 10
"""The noise levels at which `locate` asks the model: 5, 10, 20 and 40 are equal on scenes with
known masks."""
MASK_THRESHOLD = 0.5
"""The least value of a soft mask inside of the mask: measured to be right on scenes with known
masks."""
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


# --- values as texts --------------------------------------------------------------------------


def _numbers(
    text: str,
    kind: Callable[[str], Any],
    expected: str,
    count: int = 0,
    parts: Sequence[str] | None = None,
) -> list[Any]:
    """Read the finite numbers in the parts of a text, by default those between its commas.

    Args:
        text: the text, which the error quotes.
        kind: `int` or `float`.
        expected: the end of the error's sentence.
        count: the number of parts; 0 for any.
        parts: the parts.
    """
    try:
        numbers = [kind(part) for part in parts or text.split(",")]
    except ValueError:
        numbers = []
    if (
        not numbers
        or len(numbers) != (count or len(numbers))
        or not all(map(isfinite, numbers))
    ):
        raise ArgumentError(f"{text!r}: expected {expected}")
    return numbers


def parse_integer(text: str) -> int:
    """Read a whole number."""
    return _numbers(text, int, "a whole number", 1)[0]


def parse_integers(text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    return _numbers(text, int, "whole numbers, such as 7, 8")


def parse_number(text: str) -> float:
    """Read a number."""
    return _numbers(text, float, "a number", 1)[0]


def parse_names(text: str) -> list[str]:
    """Read names with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_keep(text: str) -> Keep:
    """Read the axes that a recording keeps, or `all`."""
    return check_subset("keep", text if text == "all" else parse_names(text), AXES)


def parse_kind(text: str) -> EditKind | None:
    """Read the kind of an edit; `auto` leaves the choice to the edit."""
    check_one_of("kind", text, kinds := ("auto", *get_args(EditKind)))
    return next((kind for kind in kinds[1:] if kind == text), None)


def parse_pixel(text: str) -> tuple[int, int]:
    """Read `X,Y`, a pixel."""
    x, y = _numbers(text, int, "X,Y in whole pixels, such as 40,72", 2)
    return x, y


def parse_size(text: str) -> tuple[int, int]:
    """Read `WxH`, in pixels, or one number for a square."""
    sides = text.lower().replace("×", "x").split("x")
    expected = "WxH, such as 512x768, or 512 for a square"
    width, height = _numbers(text, int, expected, 2, sides * (3 - len(sides)))
    return width, height


def parse_word(text: str) -> str | int:
    """Read the number of a word from `#N`; any other text is a word or phrase."""
    return (
        _numbers(text[1:], int, "a number after '#'", 1)[0]
        if text.startswith("#")
        else text
    )


def parse_shard(text: str) -> tuple[int, int]:
    """Read `I/N`: part I of N, from 1."""
    number, count = _numbers(text.replace("/", ","), int, "I/N, such as 3/16", 2)
    return number, count


def parse_range(text: str) -> slice:
    """Read `A:B` (from A up to, not including, B), `A:`, `:B`, or one number."""
    first, colon, last = (part.strip() for part in text.partition(":"))
    try:
        start, stop = (int(part) if part else None for part in (first, last))
    except ValueError:
        start = stop = None
    if start is None and stop is None:
        raise ArgumentError(f"{text!r}: expected a range A:B, as 0:10, or one number")
    return (
        slice(start, stop)
        if colon or start is None
        else slice(start, start + 1 or None)
    )


def parse_window(text: str) -> tuple[float, float]:
    """Read `A:B`, fractions of a run, or its end `B`."""
    first, colon, last = text.partition(":")
    expected = "B or A:B, fractions of the run with 0 ≤ A ≤ B ≤ 1"
    bounds = _numbers(text, float, expected, 2, [first, last] if colon else ["0", text])
    return check_window("the window", bounds)


def parse_windows(text: str) -> list[tuple[float, float]]:
    """Read windows as `parse_window` does, with commas between them."""
    return [parse_window(part) for part in text.split(",")]


def parse_word_window(text: str) -> tuple[str, tuple[float, float]]:
    """Read `WORD=WINDOW`."""
    word, window = _assigned(text, "a word and its window", "cat=0.3")
    return word, parse_window(window)


def parse_box(text: str) -> tuple[str, tuple[float, ...]]:
    """Read `WORD=LEFT,TOP,RIGHT,BOTTOM`, in pixels."""
    word, box = _assigned(text, "a word and its box", "cat=0,0,64,128")
    sides = _numbers(
        box, float, "LEFT,TOP,RIGHT,BOTTOM in pixels, such as 0,0,64,128", 4
    )
    return word, tuple(sides)


def parse_word_weights(text: str) -> tuple[str, list[float]]:
    """Read `WORD=WEIGHTS`: `A:B:N` (N from A to B, evenly), or numbers with commas between."""
    word, weights = _assigned(text, "a word and its weights", "red=-2:3:6")
    expected = "A:B:N, such as -2:3:6 for six from -2 to 3, or a list such as 0,1,3"
    if ":" not in weights:
        return word, _numbers(weights, float, expected)
    start, end, count = _numbers(weights, float, expected, 3, weights.split(":"))
    if count not in range(2, 1001) or start == end:
        raise ArgumentError(f"{weights!r}: expected {expected}")
    step = (end - start) / (count - 1)
    return word, [round(start + step * k, 6) for k in range(int(count))]


def parse_value(text: str) -> Any:
    """Read a value of JSON or Python, such as 0.5, true, None or [1, 2]; return another text."""
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return read(text)
    return text


def parse_argument(text: str) -> tuple[str, Any]:
    """Read `NAME=VALUE`, an argument of the pipeline."""
    name, sign, value = text.partition("=")
    if not (sign and name.isidentifier()):
        raise ArgumentError(
            f"{text!r}: expected an argument and its value, as in eta=0.5"
        )
    return name, parse_value(value)


def by_word(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values of words by word; ArgumentError if a word has two."""
    values = dict(pairs)
    if len(values) < len(pairs):
        words = [word for word, _ in pairs]
        twice = max(words, key=words.count)
        raise ArgumentError(f"{quoted(twice)} is given twice: name it once")
    return values


def words_of(texts: Iterable[str]) -> list[str]:
    """Return the words or phrases between the commas of texts; the checks refuse an empty one."""
    return [part.strip() for part in ",".join(texts).split(",")]


def _assigned(text: str, expected: str, example: str) -> tuple[str, str]:
    word, sign, value = text.rpartition("=")
    if not (sign and word.strip() and value.strip()):
        raise ArgumentError(f"{text!r}: expected {expected}, as in {example}")
    return word.strip(), value.strip()


# --- the options of each call -----------------------------------------------------------------


def option(default: Any, help: str, parse: Any = str, **flag: Any) -> Any:
    """Declare an option for the command line and the app.

    Args:
        default: its default.
        help: a sentence or two; the command line adds a default that is not None.
        parse: its type (bool, str, Path or a Literal), or a function that reads it from a text.
        flag: the `metavar` of its flag, which ends with ",…" for a list with commas; `names` if
            they differ from the option's; `collect`, which makes the value of the list that a
            repeated flag gives.
    """
    return field(default=default, metadata={"help": help, "parse": parse, **flag})


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The keyword arguments of `load`."""

    device: Device = option(
        "auto",
        "Where to run. For a saved run, auto is its own device, if present.",
        Device,
    )
    dtype: Dtype = option("auto", "Precision. For a saved run, auto is its own.", Dtype)


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """The keyword arguments of `generate`, described there.

    The constructor checks each value and converts it to Python's own types; ArgumentError for a
    value that is out of range. Whether the model can draw a size is checked with the pipeline.
    """

    steps: int | None = option(
        None, "Denoising steps. Default: the model's.", parse_integer, metavar="N"
    )
    guidance: float | None = option(
        None,
        "Classifier-free guidance scale. Default: the model's.",
        parse_number,
        metavar="X",
    )
    size: tuple[int, int] | None = option(
        None,
        "In pixels, as 512x768, or 512 for a square. Default: the model's; with an input "
        "image, in its proportions.",
        parse_size,
        metavar="WxH",
    )
    negative: str | None = option(None, "Negative prompt.")
    keep: Keep = option(
        ("layer",),
        "Axes whose parts `inspect` can select: layer, step, head, with commas between; or all. "
        "The others are averaged.",
        parse_keep,
        metavar="AXIS,…",
    )
    tokens: Tokens = "prompt"
    branches: Iterable[BranchName] = ("conditional",)
    concepts: Sequence[str] = option(
        (),
        "Also map words or phrases that are not in PROMPT, with commas between. May be repeated.",
        metavar="WORD,…",
        collect=words_of,
    )
    share_of: ShareOf = option(
        "all",
        "Of models whose text and image share one softmax: what the values of maps are shares of. "
        "text: of the attention to the text alone.",
        ShareOf,
    )
    limit: int = 2 * 2**30
    arguments: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "An argument of the pipeline itself, as true_cfg_scale=4. The value is JSON, "
            "or else a text. May be repeated.",
            "parse": parse_argument,
            "names": ["--set"],
            "metavar": "NAME=VALUE",
            "collect": by_word,
        },
    )

    def __post_init__(self) -> None:
        values: dict[str, Any] = {
            "keep": check_subset("keep", self.keep, AXES),
            "branches": check_subset("branches", self.branches, get_args(BranchName)),
            "limit": check_int("limit", self.limit, least=1, most=2**63 - 1),
        }
        check_one_of("tokens", self.tokens, get_args(Tokens))
        check_one_of("share_of", self.share_of, get_args(ShareOf))
        if self.steps is not None:
            values["steps"] = check_int("steps", self.steps, least=1, most=MAX_STEPS)
        if self.guidance is not None:
            values["guidance"] = check_float(
                "guidance", self.guidance, least=0, most=100
            )
        if self.negative is not None:
            check_text("negative", self.negative, "blurry", most=100_000)
        self.__dict__.update(values)


@dataclass(frozen=True, kw_only=True)
class EditOptions:
    """The keyword arguments of an edit, described in `edit`.

    The constructor checks each value; ArgumentError for a value that is out of range, or that has
    no effect without `only`. Windows become (start, end). `max_self_cells` is 32 × 32 as published.
    With its threshold of 0.25, the embedded model's blend has nearly all of the thing and two
    fifths of the image.
    """

    cross_replace: Window | None = option(
        None,
        "Part of the run in which the source's cross-attention is used: A:B, from 0 to 1, or B. "
        "Default: depends on what changes (a colour, an object, the setting …).",
        parse_window,
        metavar="A:B",
    )
    self_replace: Window | None = option(
        None,
        "As --cross-replace, for the source's self-attention.",
        parse_window,
        metavar="A:B",
    )
    word_windows: Mapping[str, Window] | None = option(
        None,
        "Another --cross-replace window for one word of TARGET: cat=0.3. May be repeated.",
        parse_word_window,
        metavar="WORD=A:B",
        collect=by_word,
    )
    max_self_cells: int = 32 * 32
    renormalize: bool = option(
        False, "Rescale attention to sum to 1 after weighting.", bool
    )
    kind: EditKind | None = option(
        None,
        "replace: words correspond one to one. refine: words were added or removed. auto: decided "
        "from the prompts.",
        parse_kind,
        metavar="auto|replace|refine",
    )
    only: str | None = option(
        None,
        "Change only the region of these words, as 'cat->dog', and of their phrases ('red cat'). "
        'Quote the words (\'"cat"->"dog"\') to leave out their adjectives.',
        metavar="A->B",
    )
    protect: Iterable[str] = option(
        (),
        "Also protect the regions of these words, with commas between. Requires --only. May be "
        "repeated.",
        metavar="WORD,…",
        collect=words_of,
    )
    threshold: float = option(
        0.25,
        "How strong a word's map must be (0 to 1 between its minimum and maximum) to count as the "
        "region of --only.",
        parse_number,
        metavar="X",
    )
    blend_from: float = option(
        0.2, "Where --only starts, as a fraction of the run.", parse_number, metavar="X"
    )
    image: Any = option(
        None, "Edit this image (PNG, JPEG, WebP, BMP), which SOURCE describes.", Path
    )
    batch: int | None = option(
        None,
        "Images per batch, the source included; at least 2. Default: as many as fit into memory.",
        parse_integer,
        metavar="N",
    )

    def __post_init__(self) -> None:
        if self.kind is not None:
            check_one_of("kind", self.kind, get_args(EditKind))
        if self.word_windows is not None and not isinstance(self.word_windows, Mapping):
            raise ArgumentError(
                f"word_windows is {quoted(self.word_windows)}: expected windows by word, as in "
                "{'cat': 0.3}"
            )
        protect = (
            [self.protect] if isinstance(self.protect, str) else as_list(self.protect)
        )
        if protect is None:
            raise ArgumentError(
                f"protect is {quoted(self.protect)}: expected a word, or a list of words"
            )
        values: dict[str, Any] = {
            "word_windows": {
                word: check_window(f"the window of {quoted(word)}", window)
                for word, window in (self.word_windows or {}).items()
            },
            "max_self_cells": check_int(
                "max_self_cells", self.max_self_cells, least=0, most=2**31
            ),
            "renormalize": check_bool("renormalize", self.renormalize),
            "protect": tuple(protect),
            "blend_from": check_fraction("blend_from", self.blend_from),
            "threshold": check_fraction("threshold", self.threshold),
        }
        for name in ("cross_replace", "self_replace"):
            window = getattr(self, name)
            values[name] = None if window is None else check_window(name, window)
        if self.batch is not None:
            values["batch"] = check_int("batch", self.batch, least=2, most=2**31 - 1)
        self.__dict__.update(values)
        if self.blend_from == 1:
            raise ArgumentError(
                "blend_from is 1: expected a fraction of the run below 1"
            )
        blend = ("blend_from", "threshold", "protect")
        given = [
            name for name in blend if getattr(self, name) != getattr(EditOptions, name)
        ]
        if given and self.only is None:
            raise ArgumentError(
                f"{given[0]!r} needs 'only' (--only), such as only='cat->dog'"
            )


def check_window(name: str, window: Any) -> tuple[float, float]:
    """Return a window as (start, end), fractions of the run; ArgumentError if it is none."""
    bounds = tuple(window) if isinstance(window, tuple | list) else (0.0, window)
    if len(bounds) == 2:
        start, end = (check_fraction(name, bound) for bound in bounds)
        if start <= end:
            return start, end
    raise ArgumentError(
        f"{name} is {quoted(window)}: expected B, or A and B, parts of the run (0 ≤ A ≤ B ≤ 1)"
    )


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """The keyword arguments of `explain`, described there."""

    layer: str | None = option(
        None,
        "A layer, as 'up 1.0', or a pattern with * for several. If several layers or heads "
        "fit: the one with the word's largest probability, of those that do not exceed 0.5.",
        names=["--layer", "-l"],
    )
    head: int | None = option(
        None, "The attention head, from 0.", parse_integer, metavar="N"
    )
    step: int | None = option(
        None, "Step from 0. Default: the middle.", parse_integer, metavar="N"
    )
    pass_: int = option(
        0,
        "The pass of the model, from 0, if a step has several.",
        parse_integer,
        metavar="N",
        names=["--pass"],
    )
    branch: BranchName = option(
        "conditional", "negative: a word of the negative prompt.", BranchName
    )
