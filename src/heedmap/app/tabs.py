"""The page of the app: a tab to generate, one to edit, one to look at what was made."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from heedmap.app import fields, fragments, vocabulary
from heedmap.app.forms import UNSEEN, JobForm, VisitorJobs, sentence
from heedmap.app.upload_reader import UploadReader
from heedmap.app.worker import EditRequest, GenerateRequest, ResultSummary, Worker
from heedmap.errors import ArgumentError
from heedmap.tiny.card import EMBEDDED

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


def build(worker: Worker, jobs: VisitorJobs, reader: UploadReader) -> gr.Blocks:
    """The page.

    Args:
        worker: what draws.
        jobs: the visitors' jobs.
        reader: where what they have sent is opened.
    """
    with gr.Blocks(title="heedmap", analytics_enabled=False, fill_width=True) as page:
        made = gr.State([])
        with gr.Row(elem_id="top"):
            gr.HTML(fragments.of_head(), elem_id="name")
            model = gr.Dropdown(
                list(worker.models),
                value=EMBEDDED,
                label="Model: choose, or type a folder or a hub id" if worker.free else "Model",
                allow_custom_value=worker.free,
                elem_id="model",
            )
        with gr.Tabs():
            with gr.Tab("Generate", id="generate", elem_id="generate"):
                _generate_tab(jobs, worker, model, made)
            with gr.Tab("Edit", id="edit", elem_id="edit"):
                _edit_tab(jobs, worker, model, made)
            with gr.Tab("Inspect", id="inspect", elem_id="inspect"):
                _inspect_tab(worker, reader, made)
    # Each waiting job is followed, so that its page can show its place; the line is the limit.
    page.queue(api_open=False, max_size=256, default_concurrency_limit=worker.limits.waiting + 2)
    return page


# --- the tabs ---------------------------------------------------------------------------------


def _generate_tab(jobs: VisitorJobs, worker: Worker, model: Any, made: gr.State) -> None:
    prompt = fields.text_field("Prompt", PICTURES[0], max_lines=4, autofocus=True)
    run, cancel = _buttons("Generate")
    with gr.Accordion("More", open=False):
        shared = fields.shared_fields()
    examples = _examples(PICTURES)
    vocabulary.shelf()
    form = JobForm("generate", made, run, cancel, *_results())

    def ask(text: Any, name: Any, *values: Any) -> GenerateRequest:
        asked = GenerateRequest(**fields.shared_values(name, values), prompt=fields.text_of(text))
        worker.check(asked)
        return asked

    fills = [[text, EMBEDDED, *fields.EMPTY] for text in PICTURES]
    form.connect(
        jobs,
        [prompt, model, *shared],
        [run.click, prompt.submit],
        dict(zip(examples, fills, strict=True)),
        ask,
        worker.generate,
    )


def _edit_tab(jobs: VisitorJobs, worker: Worker, model: Any, made: gr.State) -> None:
    with gr.Row():
        source = fields.text_field(
            "Prompt", "a red house, or with a weight: a (red:3) house", max_lines=4
        )
        target = fields.text_field(
            "What it shall become", "a blue house; empty: weights alone", max_lines=4
        )
    run, cancel = _buttons("Edit")
    with gr.Accordion("More", open=False):
        own = fields.edit_fields()
        shared = fields.shared_fields()
    examples = _examples([_said(*edit) for edit in EDITS])
    vocabulary.shelf(boxes=2)
    form = JobForm("edit", made, run, cancel, *_results())

    def ask(before: Any, after: Any, name: Any, *values: Any) -> EditRequest:
        asked = EditRequest(
            **fields.shared_values(name, values[len(own) :]),
            source=fields.text_of(before),
            target=fields.text_of(after) if fields.text_of(after).strip() else None,
            edit=fields.edit_values(*values[: len(own)]),
        )
        worker.check(asked)
        return asked

    fills = [
        [before, after, EMBEDDED, *fields.edit_examples(where), *fields.EMPTY]
        for before, after, where in EDITS
    ]
    form.connect(
        jobs,
        [source, target, model, *own, *shared],
        [run.click, source.submit, target.submit],
        dict(zip(examples, fills, strict=True)),
        ask,
        worker.edit,
    )


def _inspect_tab(worker: Worker, reader: UploadReader, made: gr.State) -> None:
    with gr.Row(elem_classes="look"):
        chosen = gr.Dropdown([], value=None, label="Made in this session")
        most = worker.limits.upload
        upload = gr.HTML(
            '<label class="choose">Open a run’s zip<input type="file" accept=".zip" '
            f'data-most="{most}"></label><output></output>',
            js_on_load=_CHOOSE,
            elem_classes="upload",
        )
    status, page = _results()

    def show(name: Any, history: list[ResultSummary]) -> tuple[str, str]:
        try:
            made = next((made for made in history if made.name == name), None)
            if name and made is None:
                raise ArgumentError("this result is not one of this session: choose another")
            if made is None:
                return "", ""
            worker.store.folder(made.name)
            return fragments.of_shown(made), fragments.of_result(made.name)
        except Exception as error:
            return fragments.of_trouble(sentence(error)), ""

    def opened(event: gr.EventData, request: gr.Request) -> tuple[Any, str, str]:
        try:
            sent = event._data if isinstance(event._data, dict) else {}
            client = request.client.host if request.client else ""
            found = reader.open(str(sent.get("token")), client)
            return None, fragments.of_opened(found), fragments.of_page(found.token)
        except Exception as error:
            return None, fragments.of_trouble(sentence(error)), ""

    reading: dict[str, Any] = {"concurrency_id": "reading", "concurrency_limit": 2, **UNSEEN}
    chosen.input(show, [chosen, made], [status, page], **reading)
    upload.upload(opened, None, [chosen, status, page], **reading)
    made.change(
        lambda history: gr.update(choices=[(made.title, made.name) for made in history[::-1]]),
        made,
        chosen,
        queue=False,
        **UNSEEN,
    )


# --- parts of them ----------------------------------------------------------------------------


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


def _said(source: str, target: str, only: str) -> str:
    """An edit on a button."""
    said = f"{source} → {target}" if target else source
    return f"{said} (only there)" if only else said
