"""The page of the app: tabs to generate, to edit, to draw a grid, and to look at the results."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from heedmap.app import fields, fragments, vocabulary
from heedmap.app.forms import UNSEEN, JobForm, VisitorJobs, sentence
from heedmap.app.labels import FIELD_LABELS
from heedmap.app.requests import EditRequest, ExplainRequest, GenerateRequest, GridRequest
from heedmap.app.theme import beside_this
from heedmap.app.upload_reader import UploadReader
from heedmap.app.worker import Worker
from heedmap.errors import sizes
from heedmap.tiny.card import EMBEDDED

PICTURES = (
    ("a red house next to a blue tree", 7),
    ("a small orange cat in the snow", 7),
    ("a pink balloon above a green car, at sunset", 6),
    ("a (yellow:2) boat on the beach", 1),
)
"""Prompts that the embedded model can draw, each with a seed of which it does."""
EDITS = (
    ("a red house in a meadow", "a blue house in a meadow", "", 7),
    ("an orange cat in the snow", "an orange dog in the snow", "cat->dog", 4),
    ("a (red:3) house", "", "", 7),
)
"""Edits that it can make: source, target, the words whose places may change, seed."""
GRIDS = (
    ("a red house", "", "red=-2:3:6", 7),
    ("a red house in a meadow", "a blue house in a meadow\na green house in a meadow", "", 7),
)
"""Grids of it: source, targets, weights, seed."""

_CHOOSE = """
const input = element.querySelector("input");
const said = element.querySelector("output");
const shown = document.getElementById("opened");
shown.style.display = "none";
window.addEventListener("heedmap-opens", ({ detail }) => {
  shown.style.display = detail === "file" ? "" : "none";
});
input.addEventListener("change", async () => {
  const file = input.files[0];
  if (!file) return;
  const most = Number(input.dataset.most);
  window.dispatchEvent(new CustomEvent("heedmap-opens", { detail: "file" }));
  const tell = (text) => { said.textContent = text; };
  input.value = "";
  if (file.size > most) {
    tell(`The file is too large: expected at most ${input.dataset.said}.`);
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


def build(worker: Worker, jobs: VisitorJobs, reader: UploadReader) -> gr.Blocks:
    """The page.

    Args:
        worker: what draws.
        jobs: the visitors' jobs.
        reader: where what they have sent is opened.
    """
    with gr.Blocks(title="heedmap", analytics_enabled=False, fill_width=True) as page:
        with gr.Row(elem_id="top"):
            gr.HTML(fragments.of_head(), elem_id="name")
            model = gr.Dropdown(
                list(worker.models),
                value=EMBEDDED,
                label=FIELD_LABELS["model"],
                info="Choose, or type a folder or a hub id." if worker.free else None,
                allow_custom_value=worker.free,
                elem_id="model",
            )
        with gr.Tabs():
            with gr.Tab("Generate", id="generate", elem_id="generate"):
                _generate_tab(jobs, worker, model)
            with gr.Tab("Edit", id="edit", elem_id="edit"):
                _edit_tab(jobs, worker, model)
            with gr.Tab("Grid", id="grid", elem_id="grid"):
                _grid_tab(jobs, worker, model)
            with gr.Tab("Explain", id="explain", elem_id="explain"):
                _explain_tab(jobs, worker, model)
            with gr.Tab("Results", id="results", elem_id="results"):
                _results_tab(worker, reader)
    # Each waiting job is followed, so that its page can show its place; the line is the limit.
    page.queue(api_open=False, max_size=256, default_concurrency_limit=worker.limits.waiting + 2)
    return page


# --- the tabs ---------------------------------------------------------------------------------


def _generate_tab(jobs: VisitorJobs, worker: Worker, model: Any) -> None:
    prompt = fields.text_field("prompt", PICTURES[0][0], max_lines=4, autofocus=True)
    run, cancel, seen = _actions("Generate")
    with gr.Accordion("More", open=False):
        placed = fields.place_fields()
        shared = [*seen, *fields.shared_fields()]
    examples = _examples([text for text, _ in PICTURES])
    form = JobForm("generate", run, cancel, *_shown())
    vocabulary.shelf()  # below the result, which would be out of sight

    def ask(visitor: str, text: Any, name: Any, *values: Any) -> GenerateRequest:
        asked = GenerateRequest(
            **fields.shared_values(name, values[: len(shared)]),
            prompt=fields.text_of(text, "prompt"),
            placed=fields.place_values(*values[len(shared) :]),
            visitor=visitor,
        )
        worker.check(asked)
        return asked

    fills = [
        [text, EMBEDDED, str(seed), *fields.EMPTY[1:], *fields.UNPLACED] for text, seed in PICTURES
    ]
    form.connect(
        jobs,
        [prompt, model, *shared, *placed],
        [run.click, prompt.submit],
        dict(zip(examples, fills, strict=True)),
        ask,
        worker.generate,
    )


def _edit_tab(jobs: VisitorJobs, worker: Worker, model: Any) -> None:
    with gr.Row():
        source = fields.text_field(
            "prompt", "a red house, or with a weight: a (red:3) house", max_lines=4
        )
        target = fields.text_field("target", "a blue house; empty: weights alone", max_lines=4)
    run, cancel, seen = _actions("Edit")
    with gr.Accordion("More", open=False):
        own = fields.edit_fields()
        shared = [*seen, *fields.shared_fields()]
    examples = _examples([_said(*edit[:3]) for edit in EDITS])
    form = JobForm("edit", run, cancel, *_shown())
    vocabulary.shelf(boxes=2)

    def ask(visitor: str, before: Any, after: Any, name: Any, *values: Any) -> EditRequest:
        told = fields.text_of(after, "target")
        asked = EditRequest(
            **fields.shared_values(name, values[len(own) :]),
            source=fields.text_of(before, "prompt"),
            target=told if told.strip() else None,
            edit=fields.edit_values(*values[: len(own)]),
            visitor=visitor,
        )
        worker.check(asked)
        return asked

    fills = [
        [before, after, EMBEDDED, *fields.edit_examples(where), str(seed), *fields.EMPTY[1:]]
        for before, after, where, seed in EDITS
    ]
    form.connect(
        jobs,
        [source, target, model, *own, *shared],
        [run.click, source.submit, target.submit],
        dict(zip(examples, fills, strict=True)),
        ask,
        worker.edit,
    )


def _grid_tab(jobs: VisitorJobs, worker: Worker, model: Any) -> None:
    with gr.Row():
        source = fields.text_field("prompt", "a red house", max_lines=4)
        targets = fields.text_field(
            "target", "a blue house; one a line; empty: weights alone", max_lines=6
        )
    varied = fields.grid_fields()
    run, cancel, seen = _actions("Draw the grid", 160)
    with gr.Accordion("More", open=False):
        own = fields.blend_fields()
        shared = [*seen, *fields.shared_fields()]
    examples = _examples(
        [" → ".join(filter(None, (a, b.replace("\n", ", "), c))) for a, b, c, _ in GRIDS]
    )
    form = JobForm("grid", run, cancel, *_shown())

    def ask(visitor: str, before: Any, after: Any, name: Any, *values: Any) -> GridRequest:
        split = len(varied) + len(own)
        lines = fields.text_of(after, "target").splitlines()
        asked = GridRequest(
            **fields.shared_values(name, values[split:]),
            **fields.grid_values(*values[: len(varied)]),
            source=fields.text_of(before, "prompt"),
            targets=tuple(line for line in lines if line.strip()),
            edit=fields.blend_values(*values[len(varied) : split]),
            visitor=visitor,
        )
        worker.check(asked)
        return asked

    rest = [*fields.blend_examples("")]
    fills = [
        [before, after, EMBEDDED, weights, "", "", "", *rest, str(seed), *fields.EMPTY[1:]]
        for before, after, weights, seed in GRIDS
    ]
    form.connect(
        jobs,
        [source, targets, model, *varied, *own, *shared],
        [run.click],
        dict(zip(examples, fills, strict=True)),
        ask,
        worker.grid,
    )


def _explain_tab(jobs: VisitorJobs, worker: Worker, model: Any) -> None:
    gr.HTML(
        "<p>How does a number come about? Choose a place in a result, and “Take it apart” below "
        "its words; or write here which is meant. An empty layer, head or step is that at which "
        "the word draws most there, but no more than half.</p>",
        elem_classes="lead",
    )
    own = fields.explain_fields()
    with gr.Row(elem_classes="act"):
        run = gr.Button("Take it apart", variant="primary", scale=0, min_width=140)
        cancel = gr.Button("Cancel", interactive=False, scale=0, min_width=110)
    form = JobForm("explain", run, cancel, *_shown())

    def ask(visitor: str, name: Any, *values: Any) -> ExplainRequest:
        asked = ExplainRequest(
            **fields.explain_values(*values),
            model=fields.text_of(name, "model") or EMBEDDED,
            visitor=visitor,
        )
        worker.check(asked)
        return asked

    form.connect(jobs, [model, *own], [run.click], {}, ask, worker.explain)


def _results_tab(worker: Worker, reader: UploadReader) -> None:
    most = worker.limits.upload
    upload = gr.HTML(
        '<label class="choose">Open the zip of a result<input type="file" accept=".zip" '
        f'data-most="{most}" data-said="{sizes(most)[0]}"></label><output></output>',
        js_on_load=_CHOOSE,
        elem_classes="upload",
    )
    with gr.Column(elem_id="opened"):
        status, page = _shown()
    gr.HTML("", js_on_load=beside_this("gallery.js"), elem_id="gallery")

    def opened(event: gr.EventData, request: gr.Request) -> tuple[str, str]:
        try:
            sent = event._data if isinstance(event._data, dict) else {}
            client = request.client.host if request.client else ""
            found = reader.open(str(sent.get("token")), client)
            return fragments.of_opened(found), fragments.of_page(found.token)
        except Exception as error:
            return fragments.of_trouble(sentence(error)), ""

    reading: dict[str, Any] = {"concurrency_id": "reading", "concurrency_limit": 2, **UNSEEN}
    upload.upload(opened, None, [status, page], **reading)


# --- parts of them ----------------------------------------------------------------------------


def _actions(name: str, width: int = 140) -> tuple[gr.Button, gr.Button, list[Any]]:
    """The buttons of a tab, and seed and steps beside them."""
    with gr.Row(elem_classes="act"):
        run = gr.Button(name, variant="primary", scale=0, min_width=width)
        cancel = gr.Button("Cancel", interactive=False, scale=0, min_width=110)
        seen = fields.seen_fields()
    return run, cancel, seen


def _shown() -> tuple[gr.HTML, gr.HTML]:
    return gr.HTML("", elem_classes="status"), gr.HTML("", elem_classes="page")


def _examples(texts: Sequence[str]) -> list[gr.Button]:
    with gr.Row(elem_classes="examples"):
        gr.HTML("<p>Examples, on the embedded model:</p>")
        return [gr.Button(text, size="sm", scale=0, min_width=40) for text in texts]


def _said(source: str, target: str, only: str) -> str:
    """An edit on a button."""
    said = f"{source} → {target}" if target else source
    return f"{said} (only there)" if only else said
