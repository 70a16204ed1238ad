"""What a visitor fills in: the fields of the tabs, and what is read from them.

A field holds whatever a browser sends; what it cannot hold ends in one sentence.
"""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from heedmap import checks
from heedmap.app.numbers import real_number, whole_number
from heedmap.app.options import MOST_LETTERS
from heedmap.errors import ArgumentError, quoted
from heedmap.options import AXES, DrawOptions, EditOptions
from heedmap.tiny.card import EMBEDDED

_KEEP = list(DrawOptions.keep)
_AXES = [("layers", "layer"), ("steps", "step"), ("heads", "head")]
EMPTY: tuple[Any, ...] = ("", "", "", "", "", "", _KEEP)
"""The shared fields as they are in the beginning."""


def edit_fields() -> list[Any]:
    """Both windows, the words that are blended, and from which threshold on."""
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
    with gr.Row():
        only = text_field(
            "Only where",
            "cat->dog",
            info="Change the picture only where these words and their phrases act; in "
            "“quotation marks”: the words alone.",
        )
        threshold = _number_field(
            "Threshold",
            str(EditOptions.threshold),
            info="With “only where”: how much a word must act at a place, 0 to 1.",
        )
    return [cross, own, only, threshold]


def edit_examples(only: str) -> list[Any]:
    """What an example fills into the fields of `edit_fields`."""
    return ["", "", only, ""]


def shared_fields() -> list[Any]:
    """Seed, steps, guidance, width, height, negative prompt, kept axes; as `EMPTY` has them."""
    with gr.Row():
        numbers = [
            _number_field("Seed", "by chance"),
            *(
                _number_field(label, "the model’s")
                for label in ("Steps", "Guidance", "Width, in pixels", "Height, in pixels")
            ),
        ]
    with gr.Row():
        negative = text_field(
            "Negative prompt", "what the picture should not show", max_lines=4, scale=2
        )
        keep = gr.CheckboxGroup(
            _AXES, value=list(DrawOptions.keep), label="Tell apart on the page", scale=1
        )
    return [*numbers, negative, keep]


def _number_field(label: str, empty: str, **options: Any) -> gr.Textbox:
    """A field for a number that may be left empty: Gradio's own would hold 0 then."""
    return text_field(label, empty, max_lines=1, min_width=120, **options)


def text_field(label: str, empty: str, **options: Any) -> gr.Textbox:
    """A field for a text, which cannot be much longer than what is allowed."""
    return gr.Textbox(
        label=label, placeholder=empty, lines=1, max_length=2 * MOST_LETTERS, **options
    )


def edit_values(cross: Any, own: Any, only: Any, threshold: Any) -> EditOptions:
    """What the fields of `edit_fields` hold."""
    return EditOptions(
        cross=_part(cross, "the strength", EditOptions.cross),
        self_attention=_part(own, "self-attention", EditOptions.self_attention),
        only=text_of(only).strip() or None,
        threshold=_part(threshold, "the threshold", EditOptions.threshold),
    )


def shared_values(model: Any, values: Sequence[Any]) -> dict[str, Any]:
    """What the shared fields hold, as `JobRequest` has it."""
    seed, steps, guidance, width, height, negative, keep = values
    sides = whole_number(width, "the width"), whole_number(height, "the height")
    if (sides[0] is None) != (sides[1] is None):
        raise ArgumentError("one side of the picture was given: expected width and height, or none")
    return {
        "model": text_of(model) or EMBEDDED,
        "seed": whole_number(seed, "the seed"),
        "options": DrawOptions(
            steps=whole_number(steps, "the number of steps"),
            guidance=real_number(guidance, "guidance"),
            size=None if sides[0] is None or sides[1] is None else (sides[0], sides[1]),
            negative=text_of(negative) or None,
            keep=checks.any_of("keep", [] if keep is None else keep, AXES),
        ),
    }


def _part(value: Any, name: str, usual: Any) -> Any:
    """A part of the run, or what is usual where none is given."""
    number = real_number(value, name)
    return usual if number is None else float(number)


def text_of(value: Any) -> str:
    """What a field for a text holds; ArgumentError if that is not a text."""
    if value is not None and not isinstance(value, str):
        raise ArgumentError(f"{quoted(value)} was given: expected a text")
    return value or ""
