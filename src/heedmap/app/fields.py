"""What a visitor fills in: the fields of the tabs, and what is read from them.

A field holds whatever a browser sends; what it cannot hold ends in one sentence.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import gradio as gr

from heedmap import checks
from heedmap.app.numbers import real_number, whole_number
from heedmap.app.options import MOST_LETTERS
from heedmap.app.requests import PLACES, Placed
from heedmap.errors import ArgumentError, quoted
from heedmap.options import AXES, Axis, DrawOptions, EditOptions
from heedmap.text import option_texts
from heedmap.tiny.card import EMBEDDED

_SMALL = "small"
_AXES = [("all, where they are small", _SMALL), ("layers", "layer"), ("steps", "step"),
         ("heads", "head")]  # fmt: skip
_PLACES = [*PLACES]
_SEEDS = 10_000  # more are refused before the edits of a grid are counted
_PLACED = 2  # words that can be kept in a place
EMPTY: tuple[Any, ...] = ("", "", "", "", "", "", [_SMALL])
"""The shared fields as they are in the beginning."""
UNPLACED: tuple[Any, ...] = ("", _PLACES[0], "", "", _PLACES[1], "")
"""The fields of the places as they are in the beginning."""


# --- what is filled in ------------------------------------------------------------------------


def seen_fields() -> list[Any]:
    """Seed and steps, which are always in sight."""
    return [_number_field("Seed", "by chance"), _number_field("Steps", "the model’s")]


def shared_fields() -> list[Any]:
    """Guidance, width, height, negative prompt, kept axes; after `seen_fields` as in `EMPTY`."""
    with gr.Row():
        numbers = [
            _number_field(label, "the model’s")
            for label in ("Guidance", "Width, in pixels", "Height, in pixels")
        ]
    with gr.Row():
        negative = text_field(
            "Negative prompt", "what the picture should not show", max_lines=4, scale=2
        )
        keep = gr.CheckboxGroup(
            _AXES, value=list(EMPTY[-1]), label="Tell apart on the page", scale=1
        )
    return [*numbers, negative, keep]


def place_fields() -> list[Any]:
    """Words that are kept in a place, each with that; as `UNPLACED` has them."""
    shown: list[Any] = []
    for number in range(_PLACED):
        with gr.Row():
            shown += [
                text_field(
                    "Another word" if number else "Keep a word in its place",
                    "cat",
                    max_lines=1,
                    info="Its thing is drawn there." if not number else None,
                ),
                gr.Dropdown(_PLACES, value=UNPLACED[3 * number + 1], label="Where"),
                text_field("Or a box, in pixels", "left, top, right, bottom", max_lines=1),
            ]
    return shown


def edit_fields() -> list[Any]:
    """Both windows, and those of `blend_fields`."""
    with gr.Row():
        cross = _number_field(
            "Strength: cross-attention",
            "by the kind of edit",
            info="Taken from the first prompt for this part of the run, 0 to 1.",
        )
        own = _number_field(
            "Self-attention",
            "by the kind of edit",
            info="The same of it: shapes and layout, 0 to 1.",
        )
    return [cross, own, *blend_fields()]


def grid_fields() -> list[Any]:
    """Weights, both windows, seeds: what a grid varies."""
    with gr.Row():
        weights = text_field(
            "Weights of a word",
            "red=-2:3:6",
            max_lines=4,
            info="From, to, how many; or a list, red=0,1,3. One word a line.",
        )
        count = _number_field("Seeds", "1", info="So many, from the seed on.")
    with gr.Row():
        cross = text_field(
            "Strengths: cross-attention",
            "by the kind of edit",
            max_lines=1,
            info="Several, as 0,0.2,…,1: parts of the run.",
        )
        own = text_field(
            "Self-attention",
            "by the kind of edit",
            max_lines=1,
            info="The same of it: shapes and layout.",
        )
    return [weights, count, cross, own]


def blend_fields() -> list[Any]:
    """Where an edit acts, and whether its weights sum to 1 again."""
    with gr.Row():
        only = text_field(
            "Only where",
            "cat->dog",
            info="Change the picture only where these words and their phrases act; in "
            "“quotation marks”: the words alone.",
        )
        protect = text_field(
            "Protect", "snow, tree", info="With “only where”: nor where these words act."
        )
    with gr.Row():
        threshold = _number_field(
            "Threshold",
            str(EditOptions.threshold),
            info="With “only where”: how much a word must act at a place, 0 to 1.",
        )
        renormalize = gr.Checkbox(
            EditOptions.renormalize,
            label="Renormalize",
            info="Let weighted attention sum to 1 again.",
        )
    return [only, protect, threshold, renormalize]


def edit_examples(only: str) -> list[Any]:
    """What an example fills into the fields of `edit_fields`."""
    return ["", "", *blend_examples(only)]


def blend_examples(only: str) -> list[Any]:
    """What an example fills into the fields of `blend_fields`."""
    return [only, "", "", EditOptions.renormalize]


def _number_field(label: str, empty: str, **options: Any) -> gr.Textbox:
    """A field for a number that may be left empty: Gradio's own would hold 0 then."""
    return text_field(label, empty, max_lines=1, min_width=120, **options)


def text_field(label: str, empty: str, **options: Any) -> gr.Textbox:
    """A field for a text, which cannot be much longer than what is allowed."""
    return gr.Textbox(
        label=label, placeholder=empty, lines=1, max_length=2 * MOST_LETTERS, **options
    )


# --- what is read -----------------------------------------------------------------------------


def edit_values(cross: Any, own: Any, *blended: Any) -> EditOptions:
    """What the fields of `edit_fields` hold."""
    return replace(
        blend_values(*blended),
        cross=_part(cross, "the strength", EditOptions.cross),
        self_attention=_part(own, "self-attention", EditOptions.self_attention),
    )


def blend_values(only: Any, protect: Any, threshold: Any, renormalize: Any) -> EditOptions:
    """What the fields of `blend_fields` hold."""
    words = [word.strip() for word in text_of(protect).split(",")]
    return EditOptions(
        only=text_of(only).strip() or None,
        protect=tuple(word for word in words if word),
        threshold=_part(threshold, "the threshold", EditOptions.threshold),
        renormalize=checks.flag("renormalize", renormalize),
    )


def grid_values(weights: Any, count: Any, cross: Any, own: Any) -> dict[str, Any]:
    """What the fields of `grid_fields` hold, as `GridRequest` has it."""
    found: dict[str, list[float]] = {}
    for line in text_of(weights).splitlines():
        if line.strip():
            word, values = _read(option_texts.strip_in, line, "the weights are")
            if word in found:
                raise ArgumentError(f"{quoted(word)} is weighted twice: give all of it on one line")
            found[word] = values
    number = whole_number(count, "the number of seeds")
    windows = [
        tuple(_read(option_texts.windows_in, text_of(text), f"{name} is")) if text else ()
        for name, text in (("the strength", cross), ("self-attention", own))
    ]
    return {
        "weights": found,
        "count": checks.whole(
            "the number of seeds", 1 if number is None else number, least=1, most=_SEEDS
        ),
        "strengths": windows[0],
        "own_strengths": windows[1],
    }


def place_values(*values: Any) -> tuple[Placed, ...]:
    """What the fields of `place_fields` hold."""
    found: list[Placed] = []
    for at in range(0, len(values), 3):
        word, where, box = text_of(values[at]).strip(), values[at + 1], text_of(values[at + 2])
        if not word:
            continue
        checks.text("the word to keep in its place", word, most=MOST_LETTERS)
        if box.strip():
            where = _read(option_texts.sides_in, box, "the box is")
        else:
            checks.one_of("the place", where, PLACES)
        found.append(Placed(word, where))
    return tuple(found)


def shared_values(model: Any, values: Sequence[Any]) -> dict[str, Any]:
    """What the shared fields hold, as `JobRequest` has it."""
    seed, steps, guidance, width, height, negative, keep = values
    sides = whole_number(width, "the width"), whole_number(height, "the height")
    if (sides[0] is None) != (sides[1] is None):
        raise ArgumentError("one side of the picture was given: expected width and height, or none")
    kept = checks.any_of("keep", [] if keep is None else keep, (_SMALL, *AXES))
    axes: list[Axis] = [axis for axis in AXES if axis in kept]
    roomy = _SMALL in kept
    return {
        "model": text_of(model) or EMBEDDED,
        "seed": whole_number(seed, "the seed"),
        "roomy": roomy,
        "options": DrawOptions(
            steps=whole_number(steps, "the number of steps"),
            guidance=real_number(guidance, "guidance"),
            size=None if sides[0] is None or sides[1] is None else (sides[0], sides[1]),
            negative=text_of(negative) or None,
            keep=axes or (DrawOptions.keep if roomy else ()),
        ),
    }


_T = TypeVar("_T")


def _read(reader: Callable[[str], _T], text: str, begins: str) -> _T:
    """A text as it is read; the sentence of one that cannot be begins so."""
    try:
        return reader(text)
    except option_texts.Unreadable as error:
        raise ArgumentError(f"{begins} {quoted(error.text)}: expected {error.expected}") from error


def _part(value: Any, name: str, usual: Any) -> Any:
    """A part of the run, or what is usual where none is given."""
    number = real_number(value, name)
    return usual if number is None else float(number)


def text_of(value: Any) -> str:
    """What a field for a text holds; ArgumentError if that is not a text."""
    if value is not None and not isinstance(value, str):
        raise ArgumentError(f"{quoted(value)} was given: expected a text")
    return value or ""
