"""The page of the app: a tab to generate, one to edit, one to look at what was made."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from heedmap.app import fragments
from heedmap.app.forms import Bench, Sessions, sentence
from heedmap.app.limits import MOST_LETTERS, real_number, whole_number
from heedmap.app.opening import Desk
from heedmap.app.workshop import Editing, Generating, Made, Workshop
from heedmap.errors import ArgumentError, quoted
from heedmap.models.pipelines import EMBEDDED
from heedmap.options import DrawOptions, EditOptions

_STRENGTH: Any = EditOptions.cross  # both windows from the start of the run, as sliders have them
_OWN: Any = EditOptions.self_attention
_KEEP = list(DrawOptions.keep)
_AXES = [("layers", "layer"), ("steps", "step"), ("heads", "head")]

PICTURES = (
    "a red house next to a blue tree",
    "a small orange cat in the snow",
    "a pink balloon above a green car, at sunset",
    "a (yellow:2) boat on the beach",
)
"""Prompts that the embedded model can draw."""
EDITS = (
    ("a red house in a meadow", "a blue house in a meadow", ""),
    ("a cat in the snow", "a dog in the snow", "cat->dog"),
    ("a (red:3) house", "", ""),
)
"""Edits that it can make: source, target, and the words whose places in the picture may change."""

_CHOOSE = """
const input = element.querySelector("input");
const said = element.querySelector("output");
input.addEventListener("change", async () => {
  const file = input.files[0];
  if (!file) return;
  const most = Number(input.dataset.most);
  const tell = (text) => { said.textContent = text; };
  input.value = "";
  if (file.size > most) {
    tell(`The file is too large: expected at most ${Math.floor(most / 2 ** 20)} MB.`);
    return;
  }
  tell("Uploading …");
  try {
    const answer = await fetch("./uploads", { method: "POST", body: file });
    if (!answer.ok) { tell(await answer.text()); return; }
    tell("");
    trigger("upload", await answer.json());
  } catch {
    tell("The file could not be sent: the server may be gone.");
  }
});
"""


def build(workshop: Workshop, sessions: Sessions, desk: Desk) -> gr.Blocks:
    """The page.

    Args:
        workshop: what draws.
        sessions: the visitors' jobs.
        desk: where what they have sent is opened.
    """
    with gr.Blocks(title="heedmap", analytics_enabled=False, fill_width=True) as page:
        made = gr.State([])
        with gr.Row(elem_id="top"):
            gr.HTML(fragments.of_head(), elem_id="name")
            model = gr.Dropdown(
                list(workshop.models),
                value=EMBEDDED,
                label="Model: choose, or type a folder or a hub id" if workshop.free else "Model",
                allow_custom_value=workshop.free,
                elem_id="model",
            )
        with gr.Tabs():
            with gr.Tab("Generate", id="generate", elem_id="generate"):
                _generate_tab(sessions, workshop, model, made)
            with gr.Tab("Edit", id="edit", elem_id="edit"):
                _edit_tab(sessions, workshop, model, made)
            with gr.Tab("Inspect", id="inspect", elem_id="inspect"):
                _inspect_tab(workshop, desk, made)
    # Each waiting job is followed, so that its page can show its place; the line is the limit.
    page.queue(api_open=False, max_size=256, default_concurrency_limit=workshop.limits.waiting + 2)
    return page


# --- the tabs ---------------------------------------------------------------------------------


def _generate_tab(sessions: Sessions, workshop: Workshop, model: Any, made: gr.State) -> None:
    prompt = _text_field("Prompt", PICTURES[0], max_lines=4, autofocus=True)
    run, cancel = _buttons("Generate")
    with gr.Accordion("More", open=False):
        shared = _shared_fields()
    examples = _examples(PICTURES)
    bench = Bench("generate", made, run, cancel, *_results())

    def ask(text: Any, name: Any, *values: Any) -> Generating:
        asked = Generating(**_shared_values(name, values), prompt=_text(text))
        workshop.check(asked)
        return asked

    fills = [[text, EMBEDDED, *_EMPTY] for text in PICTURES]
    bench.wire(
        sessions,
        [prompt, model, *shared],
        [run.click, prompt.submit],
        dict(zip(examples, fills, strict=True)),
        ask,
        workshop.generate,
        _room(workshop),
    )


def _edit_tab(sessions: Sessions, workshop: Workshop, model: Any, made: gr.State) -> None:
    with gr.Row():
        source = _text_field(
            "Prompt", "a red house, or with a weight: a (red:3) house", max_lines=4
        )
        target = _text_field(
            "What it shall become", "a blue house; empty: weights alone", max_lines=4
        )
    run, cancel = _buttons("Edit")
    with gr.Accordion("More", open=False):
        cross, own, only, threshold = _edit_fields()
        shared = _shared_fields()
    examples = _examples([_said(*edit) for edit in EDITS])
    bench = Bench("edit", made, run, cancel, *_results())

    def ask(
        before: Any,
        after: Any,
        name: Any,
        strength: Any,
        self_strength: Any,
        where: Any,
        level: Any,
        *values: Any,
    ) -> Editing:
        asked = Editing(
            **_shared_values(name, values),
            source=_text(before),
            target=_text(after) if _text(after).strip() else None,
            edit=EditOptions(
                cross=_part(strength, "the strength", _STRENGTH),
                self_attention=_part(self_strength, "self-attention", _OWN),
                only=_text(where).strip() or None,
                threshold=_part(level, "the threshold", EditOptions.threshold),
            ),
        )
        workshop.check(asked)
        return asked

    fields = [source, target, model, cross, own, only, threshold, *shared]
    fills = [
        [before, after, EMBEDDED, _STRENGTH, _OWN, where, "", *_EMPTY]
        for before, after, where in EDITS
    ]
    bench.wire(
        sessions,
        fields,
        [run.click, source.submit, target.submit],
        dict(zip(examples, fills, strict=True)),
        ask,
        workshop.edit,
        _room(workshop),
    )


def _inspect_tab(workshop: Workshop, desk: Desk, made: gr.State) -> None:
    with gr.Row(elem_classes="look"):
        chosen = gr.Dropdown([], value=None, label="Made in this session")
        most = workshop.limits.upload
        upload = gr.HTML(
            '<label class="choose">Open a run’s zip<input type="file" accept=".zip" '
            f'data-most="{most}"></label><output></output>',
            js_on_load=_CHOOSE,
            elem_classes="upload",
        )
    status, page = _results()

    def show(name: Any, history: list[Made]) -> tuple[str, str]:
        try:
            made = next((made for made in history if made.name == name), None)
            if name and made is None:
                raise ArgumentError("this result is not one of this session: choose another")
            if made is None:
                return "", ""
            workshop.shelf.folder(made.name)
            return fragments.of_shown(made), fragments.of_result(made.name)
        except Exception as error:
            return fragments.of_trouble(sentence(error)), ""

    def opened(event: gr.EventData, request: gr.Request) -> tuple[Any, str, str]:
        try:
            sent = event._data if isinstance(event._data, dict) else {}
            client = request.client.host if request.client else ""
            found = desk.open(str(sent.get("token")), client)
            return None, fragments.of_opened(found), fragments.of_page(found.token)
        except Exception as error:
            return None, fragments.of_trouble(sentence(error)), ""

    common: dict[str, Any] = {
        "show_progress": "hidden",
        "api_visibility": "private",
        "preprocess": False,
        "concurrency_id": "reading",
        "concurrency_limit": 2,
    }
    chosen.input(show, [chosen, made], [status, page], **common)
    upload.upload(opened, None, [chosen, status, page], **common)
    made.change(
        lambda history: gr.update(choices=[(made.title, made.name) for made in history[::-1]]),
        made,
        chosen,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )


# --- parts of them ----------------------------------------------------------------------------

_EMPTY: tuple[Any, ...] = ("", "", "", "", "", "", _KEEP)
"""The shared fields as they are in the beginning."""


def _buttons(name: str) -> tuple[gr.Button, gr.Button]:
    with gr.Row(elem_classes="act"):
        run = gr.Button(name, variant="primary", scale=0, min_width=140)
        cancel = gr.Button("Cancel", interactive=False, scale=0, min_width=110)
    return run, cancel


def _results() -> tuple[gr.HTML, gr.HTML]:
    return gr.HTML("", elem_classes="status"), gr.HTML("", elem_classes="page")


def _examples(texts: Sequence[str]) -> list[gr.Button]:
    with gr.Row(elem_classes="examples"):
        gr.HTML("<p>Examples, on the embedded model:</p>")
        return [gr.Button(text, size="sm", scale=0, min_width=40) for text in texts]


def _edit_fields() -> list[Any]:
    """Both windows, the words that are blended, and from which threshold on."""
    with gr.Row():
        cross = gr.Slider(
            0,
            1,
            _STRENGTH,
            step=0.05,
            label="Strength: cross-attention",
            info="Taken from the first prompt for this part of the run.",
        )
        own = gr.Slider(
            0, 1, _OWN, step=0.05, label="Self-attention", info="The same of it: shapes and layout."
        )
    with gr.Row():
        only = _text_field(
            "Only where",
            "cat->dog",
            info="Change the picture only where these words and their phrases act; in "
            "“quotation marks”: the words alone.",
        )
        threshold = _number(
            "Threshold",
            str(EditOptions.threshold),
            info="With “only where”: how much a word must act at a place, 0 to 1.",
        )
    return [cross, own, only, threshold]


def _shared_fields() -> list[Any]:
    """Seed, steps, guidance, width, height, negative prompt, kept axes; as `_EMPTY` has them."""
    with gr.Row():
        numbers = [
            _number("Seed", "by chance"),
            *(
                _number(label, "the model’s")
                for label in ("Steps", "Guidance", "Width, in pixels", "Height, in pixels")
            ),
        ]
    with gr.Row():
        negative = _text_field(
            "Negative prompt", "what the picture should not show", max_lines=4, scale=2
        )
        keep = gr.CheckboxGroup(
            _AXES, value=list(DrawOptions.keep), label="Tell apart on the page", scale=1
        )
    return [*numbers, negative, keep]


def _number(label: str, empty: str, **options: Any) -> gr.Textbox:
    """A field for a number that may be left empty: Gradio's own would hold 0 then."""
    return _text_field(label, empty, max_lines=1, min_width=120, **options)


def _text_field(label: str, empty: str, **options: Any) -> gr.Textbox:
    """A field for a text, which cannot be much longer than what is allowed."""
    return gr.Textbox(
        label=label, placeholder=empty, lines=1, max_length=2 * MOST_LETTERS, **options
    )


def _shared_values(model: Any, values: Sequence[Any]) -> dict[str, Any]:
    """What the shared fields hold, as `Order` has it."""
    seed, steps, guidance, width, height, negative, keep = values
    sides = whole_number(width, "the width"), whole_number(height, "the height")
    if (sides[0] is None) != (sides[1] is None):
        raise ArgumentError("one side of the picture was given: expected width and height, or none")
    return {
        "model": _text(model) or EMBEDDED,
        "seed": whole_number(seed, "the seed"),
        "options": DrawOptions(
            steps=whole_number(steps, "the number of steps"),
            guidance=real_number(guidance, "guidance"),
            size=None if sides[0] is None or sides[1] is None else (sides[0], sides[1]),
            negative=_text(negative) or None,
            keep=_axes(keep),
        ),
    }


def _axes(value: Any) -> tuple[Any, ...]:
    """What the page tells apart."""
    known = [axis for _, axis in _AXES]
    if not isinstance(value, list | None) or not all(axis in known for axis in value or ()):
        raise ArgumentError(f"{quoted(value)} cannot be told apart: expected {', '.join(known)}")
    return tuple(value or ())


def _part(value: Any, name: str, usual: float) -> float:
    """A part of the run."""
    number = real_number(value, name)
    return usual if number is None else float(number)


def _text(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise ArgumentError(f"{quoted(value)} was given: expected a text")
    return value or ""


def _said(source: str, target: str, only: str) -> str:
    """An edit on a button."""
    said = f"{source} → {target}" if target else source
    return f"{said} (only there)" if only else said


def _room(workshop: Workshop) -> int:
    """Jobs that are followed at a time: all that wait, and one at work."""
    return workshop.limits.waiting + 2
