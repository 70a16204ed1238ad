"""What a visitor fills in: the fields of the tabs, and what is read from them.

A field holds whatever a browser sends; what it cannot hold ends in one sentence.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import gradio as gr

from heedmap import checks
from heedmap.app.labels import FIELD_LABELS
from heedmap.app.numbers import real_number, whole_number
from heedmap.app.options import MOST_LETTERS
from heedmap.app.requests import PLACES, Placed
from heedmap.errors import ArgumentError, Is, Named, quoted
from heedmap.options import AXES, Axis, DrawOptions, EditOptions
from heedmap.text import option_texts
from heedmap.tiny.card import EMBEDDED

_SMALL = "small"
_AXES = [("all, if that takes little room", _SMALL), ("layers", "layer"), ("steps", "step"),
         ("heads", "head")]  # fmt: skip
_PLACES = [*PLACES]
_ROOMY = 200  # pixels, below which what stands in a field is cut off
_LONGEST = 100  # signs of a part of the run
_SEEDS = 10_000  # more are refused before the edits of a grid are counted
_CONFINED = ("confine", "confine_another")  # words that can be kept in a place
EMPTY: tuple[Any, ...] = ("", "", "", "", "", "", [_SMALL])
"""The shared fields as they are in the beginning."""
UNPLACED: tuple[Any, ...] = ("", _PLACES[0], "", "", _PLACES[1], "")
"""The fields of the places as they are in the beginning."""


# --- what is filled in ------------------------------------------------------------------------


def seen_fields() -> list[Any]:
    """Seed and steps, which are always in sight."""
    return [_number_field("seed", "by chance"), _number_field("steps", "the model’s")]


def shared_fields() -> list[Any]:
    """Guidance, width, height, negative prompt, kept axes; after `seen_fields` as in `EMPTY`."""
    with gr.Row():
        numbers = [
            _number_field("guidance", "the model’s"),
            *(
                _number_field(side, "the model’s, in pixels", min_width=_ROOMY)
                for side in ("width", "height")
            ),
        ]
    with gr.Row():
        negative = text_field("negative", "what the picture should not show", max_lines=4, scale=2)
        keep = gr.CheckboxGroup(_AXES, value=list(EMPTY[-1]), label=FIELD_LABELS["keep"], scale=1)
    return [*numbers, negative, keep]


def place_fields() -> list[Any]:
    """Words that are kept in a place, each with that; as `UNPLACED` has them."""
    shown: list[Any] = []
    for number in range(len(_CONFINED)):
        with gr.Row():
            shown += [
                text_field(
                    _CONFINED[number],
                    ("cat", "house")[number],
                    max_lines=1,
                    info="One of the prompt: its thing is drawn there.",
                ),
                gr.Dropdown(
                    _PLACES,
                    value=UNPLACED[3 * number + 1],
                    label=FIELD_LABELS["where"],
                    info="Of the picture.",
                    min_width=_ROOMY,
                ),
                text_field(
                    "box",
                    "left, top, right, bottom",
                    max_lines=1,
                    info="Counts in place of “Where”.",
                ),
            ]
    return shown


def edit_fields() -> list[Any]:
    """Both windows, and those of `blend_fields`."""
    with gr.Row():
        cross = _number_field(
            "cross",
            "by the kind of edit",
            info="Taken from the first prompt up to this part of the run, 0 to 1; the less, the "
            "freer.",
            min_width=_ROOMY,
        )
        own = _number_field(
            "self_attention",
            "by the kind of edit",
            info="Shapes and layout, likewise, 0 to 1.",
            min_width=_ROOMY,
        )
    return [cross, own, *blend_fields()]


def grid_fields() -> list[Any]:
    """Weights, both windows, seeds: what a grid varies."""
    with gr.Row():
        weights = text_field(
            "weights",
            "red=-2:3:6",
            max_lines=4,
            info="From, to and how many, as red=-2:3:6; or a list, as red=0,1,3. One word a line.",
        )
        count = _number_field("seeds", "1", info="How many, counted up from the seed.")
    with gr.Row():
        cross = text_field(
            "cross",
            "by the kind of edit",
            max_lines=1,
            info="Several, as 0,0.2,…,1: taken from the first prompt up to this part of the run.",
        )
        own = text_field(
            "self_attention",
            "by the kind of edit",
            max_lines=1,
            info="Shapes and layout, likewise.",
        )
    return [weights, count, cross, own]


def blend_fields() -> list[Any]:
    """Where an edit acts, and whether its weights sum to 1 again."""
    with gr.Row():
        only = text_field(
            "only",
            "cat->dog",
            info="Change the picture only where these words and their phrases act; in "
            "“quotation marks”: the words alone.",
        )
        protect = text_field(
            "protect", "snow, tree", info="With “only where”: nor where these words act."
        )
    with gr.Row():
        threshold = _number_field(
            "threshold",
            str(EditOptions.threshold),
            info="With “only where”: how much a word must act at a place, 0 to 1.",
        )
        renormalize = gr.Checkbox(
            EditOptions.renormalize,
            label=FIELD_LABELS["renormalize"],
            info="Let weighted attention sum to 1 again.",
        )
    return [only, protect, threshold, renormalize]


def explain_fields() -> list[Any]:
    """Which number of which result: result, cell, word, pixel, layer, head, step."""
    with gr.Row():
        result = text_field("result", "its name", max_lines=1, scale=2)
        word = text_field("explained", "house", max_lines=1)
        place = text_field("at", "40,72", max_lines=1)
    with gr.Row():
        layer = text_field("layer", "by the word", max_lines=1)
        head, step = (_number_field(name, "by the word") for name in ("head", "step"))
        cell = _number_field("cell", "1")
    return [result, cell, word, place, layer, head, step]


def edit_examples(only: str) -> list[Any]:
    """What an example fills into the fields of `edit_fields`."""
    return ["", "", *blend_examples(only)]


def blend_examples(only: str) -> list[Any]:
    """What an example fills into the fields of `blend_fields`."""
    return [only, "", "", EditOptions.renormalize]


def _number_field(name: str, empty: str, **options: Any) -> gr.Textbox:
    """A field for a number that may be left empty: Gradio's own would hold 0 then."""
    return text_field(name, empty, max_lines=1, **{"min_width": 120, **options})


def text_field(name: str, empty: str, **options: Any) -> gr.Textbox:
    """A field for a text, which cannot be much longer than what is allowed.

    Args:
        name: what it holds, one of `FIELD_LABELS`.
        empty: what is shown in it where it holds nothing.
        options: of Gradio's.
    """
    return gr.Textbox(
        label=FIELD_LABELS[name], placeholder=empty, lines=1, max_length=2 * MOST_LETTERS, **options
    )


# --- what is read -----------------------------------------------------------------------------


def edit_values(cross: Any, own: Any, *blended: Any) -> EditOptions:
    """What the fields of `edit_fields` hold."""
    return replace(
        blend_values(*blended),
        cross=_window(cross, "cross", EditOptions.cross),
        self_attention=_window(own, "self_attention", EditOptions.self_attention),
    )


def blend_values(only: Any, protect: Any, threshold: Any, renormalize: Any) -> EditOptions:
    """What the fields of `blend_fields` hold."""
    number = real_number(threshold, "threshold")
    words = [word.strip() for word in text_of(protect, "protect").split(",")]
    return EditOptions(
        only=text_of(only, "only").strip() or None,
        protect=tuple(word for word in words if word),
        threshold=EditOptions.threshold if number is None else float(number),
        renormalize=checks.flag("renormalize", renormalize),
    )


def grid_values(weights: Any, count: Any, cross: Any, own: Any) -> dict[str, Any]:
    """What the fields of `grid_fields` hold, as `GridRequest` has it."""
    found: dict[str, list[float]] = {}
    for line in text_of(weights, "weights").splitlines():
        if line.strip():
            word, values = _read(option_texts.strip_in, line, "weights")
            if word in found:
                raise ArgumentError(
                    Named("weights"), f" has {quoted(word)} twice: give all of it on one line"
                )
            found[word] = values
    number = whole_number(count, "seeds")
    windows = [
        tuple(_read(option_texts.windows_in, text_of(text, name), name)) if text else ()
        for name, text in (("cross", cross), ("self_attention", own))
    ]
    return {
        "weights": found,
        "count": checks.whole("seeds", 1 if number is None else number, least=1, most=_SEEDS),
        "strengths": windows[0],
        "own_strengths": windows[1],
    }


def explain_values(
    result: Any, cell: Any, word: Any, place: Any, layer: Any, head: Any, step: Any
) -> dict[str, Any]:
    """What the fields of `explain_fields` hold, as `ExplainRequest` has it."""
    texts = {"result": result, "explained": word, "layer": layer}
    said = {name: text_of(value, name).strip() for name, value in texts.items()}
    needed = {"result": "the name of a result", "explained": "a word of its prompt"}
    for name, what in needed.items():
        if not said[name]:
            raise ArgumentError(Named(name), f" is empty: expected {what}")
    checks.text("explained", said["explained"], most=MOST_LETTERS)
    return {
        "result": said["result"],
        "cell": whole_number(cell, "cell"),
        "word": _read(option_texts.word_in, said["explained"], "explained"),
        "at": _read(option_texts.pixel_in, text_of(place, "at"), "at"),
        "layer": said["layer"] or None,
        "head": whole_number(head, "head"),
        "step": whole_number(step, "step"),
    }


def place_values(*values: Any) -> tuple[Placed, ...]:
    """What the fields of `place_fields` hold."""
    found: list[Placed] = []
    for at in range(0, len(values), 3):
        name = _CONFINED[at // 3]
        word, where = text_of(values[at], name).strip(), values[at + 1]
        box = text_of(values[at + 2], "box")
        if not word:
            continue
        checks.text(name, word, most=MOST_LETTERS)
        if box.strip():
            where = _read(option_texts.sides_in, box, "box")
        else:
            checks.one_of("where", where, PLACES)
        found.append(Placed(word, where))
    return tuple(found)


def shared_values(model: Any, values: Sequence[Any]) -> dict[str, Any]:
    """What the shared fields hold, as `JobRequest` has it."""
    seed, steps, guidance, width, height, negative, keep = values
    sides = whole_number(width, "width"), whole_number(height, "height")
    if (sides[0] is None) != (sides[1] is None):
        raise ArgumentError(
            *("one of ", Named("width"), " and ", Named("height"), " is empty: expected both, or "),
            "none",
        )
    kept = checks.several([] if keep is None else keep)
    if kept is None:
        raise ArgumentError(Is("keep", keep), ": expected a list")
    for one in kept:
        checks.one_of("keep", one, (_SMALL, *AXES))
    axes: list[Axis] = [axis for axis in AXES if axis in kept]
    roomy = _SMALL in kept
    return {
        "model": text_of(model, "model") or EMBEDDED,
        "seed": whole_number(seed, "seed"),
        "roomy": roomy,
        "options": DrawOptions(
            steps=whole_number(steps, "steps"),
            guidance=real_number(guidance, "guidance"),
            size=None if sides[0] is None or sides[1] is None else (sides[0], sides[1]),
            negative=text_of(negative, "negative") or None,
            keep=axes or (DrawOptions.keep if roomy else ()),
        ),
    }


_T = TypeVar("_T")


def _read(reader: Callable[[str], _T], text: str, name: str) -> _T:
    """What a field's text is read as."""
    try:
        return reader(text)
    except option_texts.Unreadable as error:
        raise ArgumentError(Is(name, error.text), f": expected {error.expected}") from error


def _window(value: Any, name: str, usual: Any) -> Any:
    """A part of the run, or what is usual where none is given."""
    said = "" if value is None else str(value).strip()[:_LONGEST]
    if not said:
        return usual
    low, high = _read(option_texts.window_in, said, name)
    return high if low == 0 else (low, high)


def text_of(value: Any, name: str) -> str:
    """What a field for a text holds; ArgumentError if that is not a text."""
    if value is not None and not isinstance(value, str):
        raise ArgumentError(Is(name, value), ": expected a text")
    return value or ""
