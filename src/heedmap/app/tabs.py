"""The app's page: a tab for each function of heedmap, and one for the results."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import gradio as gr

import heedmap as hm
from heedmap.app import results
from heedmap.app.fields import Form, box_of, names_in, size_of
from heedmap.app.jobs import Job, Models, paragraphs
from heedmap.errors import HeedmapError, as_sentence
from heedmap.files.writing import put_counting, slug
from heedmap.models import cards
from heedmap.options import AXES, DrawOptions
from heedmap.text import option_texts
from heedmap.tiny.card import EMBEDDED
from heedmap.wiring.registry import usual_size

PROMPTS = [
    ["a red house next to a blue tree", "7"],
    ["a small orange cat in the snow", "7"],
    ["a pink balloon above a green car, at sunset", "6"],
    ["a (yellow:2) boat on the beach", "1"],
]
"""Examples for the embedded model: a prompt and a seed."""
EDITS = [
    ["a red house in a meadow", "a blue house in a meadow", "", "7"],
    ["an orange cat in the snow", "an orange dog in the snow", "cat->dog", "4"],
    ["a (red:3) house", "", "", "7"],
]
"""Source, target, the words whose places may change, seed."""
GRIDS = [
    ["a red house", "", "red=-2:3:6", "7"],
    ["a red house in a meadow", "a blue house in a meadow\na green house in a meadow", "", "7, 8"],
]
"""Source, targets, weights, seeds."""
_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}

Call = Callable[[Job, Path, str, dict[str, Any]], tuple[Any, str, int]]
"""A call of heedmap, from a job, the folder of the results, the model's name and the arguments of
the form, to a result, and the text and the seed after which it is named."""


class App:
    """The app's page, and what its tabs share.

    Args:
        models: the pipelines.
        out: the folder of the results; None if each session has its own.

    Attributes:
        temporary: a folder for zips and for the results of sessions.
    """

    def __init__(self, models: Models, out: Path | None) -> None:
        self.models, self.out = models, out
        self._directory = tempfile.TemporaryDirectory(prefix="heedmap-", ignore_cleanup_errors=True)
        self.temporary = Path(self._directory.name)

    def close(self) -> None:
        """Delete the temporary folder."""
        self._directory.cleanup()

    def build(self) -> gr.Blocks:
        """Build the page."""
        with gr.Blocks(
            title="heedmap", analytics_enabled=False, fill_width=True, delete_cache=(3600, 86400)
        ) as page:
            self.folder = gr.State(
                None if self.out is None else str(self.out), delete_callback=self._delete_session
            )
            others = self.models.others
            with gr.Row(elem_id="top"):
                script = resources.files(__package__ or "").joinpath("app.js").read_text("utf-8")
                heading = gr.HTML("<h1>heedmap</h1>", js_on_load=script)
                self.model = gr.Dropdown(
                    self.models.names,
                    label="Model",
                    interactive=len(self.models.names) > 1 or others,
                    allow_custom_value=others,
                    info="Choose one, or type a folder or a hub id." if others else None,
                )
            with gr.Tabs() as tabs:
                for name in ("Generate", "Edit", "Grid", "Locate", "Explain", "Compare", "Results"):
                    with gr.Tab(name, id=name.lower(), elem_id=name.lower()) as tab:
                        getattr(self, f"_{name.lower()}")(tab)

            def explain(event: gr.EventData) -> list[Any]:
                return [gr.Tabs(selected="explain"), *(getattr(event, one) for one in self.place)]

            heading.explain(explain, None, [tabs, *self.place.values()], **_QUIET)
        page.queue(max_size=20, default_concurrency_limit=4)
        return page

    # --- the tabs -----------------------------------------------------------------------------

    def _generate(self, _: Any) -> None:
        form = Form()
        with _columns() as (left, right), left:
            prompt = form.text("prompt", "Prompt", lines=2, autofocus=True)
            buttons = _buttons("Generate")
            with gr.Row():
                seed, _ = form.seed(), form.steps()
            with gr.Accordion("More", open=False):
                form.drawing(self._axes())
                form.place(1, "Keep a word")
                form.place(2, "Another word")
            gr.Examples(PROMPTS, [prompt, seed], label="Examples for the embedded model")
            _vocabulary(prompt)

        def call(job: Job, _: Path, model: str, given: dict[str, Any]) -> tuple[hm.Run, str, int]:
            pipe, given = self._load(job, model), size_of(given)
            places = [(given.pop(f"word_{n}", ""), given.pop(f"place_{n}", "")) for n in (1, 2)]
            size = given.get("size") or usual_size(pipe)
            edits = [hm.Confine(word, box_of(place, size)) for word, place in places if word]
            prompt = given.pop("prompt", "")
            run = hm.generate(pipe, prompt, edits=edits, **given, **job.callbacks(pipe))
            return run, run.settings.prompt, run.settings.seed

        self._connect("generate", call, form, [prompt], buttons, right)

    def _edit(self, _: Any) -> None:
        form = Form()
        with _columns() as (left, right), left:
            source = form.text("source", "Prompt", lines=2)
            info = "Empty: only weights, as in (red:3)."
            target = form.text("target", "What it becomes", lines=2, info=info)
            buttons = _buttons("Edit")
            with gr.Row():
                seed, _ = form.seed(), form.steps()
            only = form.only("Only these places change.")
            with gr.Accordion("An image of your own", open=False):
                form.add("image", _upload(240))
            with gr.Accordion("More", open=False):
                form.edit(option_texts.window_in)
                form.drawing(self._axes())
            gr.Examples(EDITS, [source, target, only, seed], label="Examples")
            _vocabulary(target)

        def call(job: Job, _: Path, model: str, given: dict[str, Any]) -> tuple[hm.Pair, str, int]:
            pipe, source = self._load(job, model), given.pop("source", "")
            pair = hm.edit(pipe, source, **size_of(given), **job.callbacks(pipe))
            return pair, pair.edited.settings.prompt, pair.edited.settings.seed

        self._connect("edit", call, form, [source, target], buttons, right)

    def _grid(self, _: Any) -> None:
        form = Form()
        with _columns() as (left, right), left:
            source = form.text("source", "Prompt", lines=2)
            info = "One on each line."
            targets = form.text("target", "What it becomes", _lines, lines=2, info=info)
            weights = form.text(
                *("weights", "Weights of words", _weights),
                lines=2,
                placeholder="red=-2:3:6",
                info="From, to and how many; or a list, as red=0,1,3. One word on each line.",
            )
            buttons = _buttons("Draw the grid")
            with gr.Row():
                seeds, _ = form.seeds(), form.steps()
            with gr.Accordion("More", open=False):
                form.only()
                form.edit(option_texts.windows_in)
                form.drawing(self._axes())
            gr.Examples(GRIDS, [source, targets, weights, seeds], label="Examples")

        def call(job: Job, _: Path, model: str, given: dict[str, Any]) -> tuple[hm.Grid, str, int]:
            pipe, source = self._load(job, model), given.pop("source", "")
            grid = hm.grid(pipe, source, **size_of(given), **job.callbacks(pipe))
            return grid, f"grid {source}", grid.about.seeds[0]

        self._connect("grid", call, form, [], buttons, right)

    def _locate(self, _: Any) -> None:
        form = Form()
        with _columns() as (left, right), left:
            form.add("picture", _upload(280, label="Image"))
            prompt = form.text("prompt", "Prompt", info="What to find in it.", lines=2)
            buttons = _buttons("Locate")
            with gr.Row():
                form.seed()
                form.looks()

        def call(job: Job, _: Path, model: str, given: dict[str, Any]) -> tuple[hm.Run, str, int]:
            pipe = self._load(job, model)
            image, prompt = given.pop("picture", None), given.pop("prompt", "")
            run = hm.locate(pipe, image, prompt, progress=job.progress, **given)
            return run, run.settings.prompt, run.settings.seed

        self._connect("locate", call, form, [prompt], buttons, right)

    def _explain(self, tab: Any) -> None:
        form = Form()
        with _columns() as (left, right), left:
            gr.Markdown("How does one number of a map come about? Choose a word and a place.")
            name = form.add("name", gr.Dropdown([], label="Result", allow_custom_value=True))
            image = gr.Image(label="Click a place", interactive=False, height=260, buttons=[])
            with gr.Row():
                word = gr.Dropdown([], label="Word", allow_custom_value=True, min_width=160)
                form.add("word", word)
                at = form.text(
                    "at", "Pixel", option_texts.pixel_in, placeholder="40,72", min_width=120
                )
            buttons = _buttons("Take it apart")
            with gr.Accordion("Layer, head and step", open=False):
                gr.Markdown("Empty: where the word acts most.")
                form.text("layer", "Layer", placeholder="up 1.0")
                with gr.Row():
                    form.text("head", "Head", int, min_width=100)
                    form.text("step", "Step", int, min_width=100)
                    cell = form.text("cell", "Cell of a grid", placeholder="1", min_width=100)
        self.place = form.fields

        def load(folder: Any, name: str, cell: str) -> hm.Run:
            return hm.Run.load(results.run_path(results.path_of(folder, name), cell))

        def call(job: Job, folder: Path, _: str, given: dict[str, Any]) -> tuple[Any, str, int]:
            run = load(folder, given.pop("name", ""), given.pop("cell", ""))
            word, at = option_texts.word_in(given.pop("word", "")), given.pop("at", ())
            pipe = self._load(job, run.settings.model)
            found = hm.explain(pipe, run, word, at, progress=job.progress, **given)
            return found, f"why {found.about.word}", run.settings.seed

        @_page_errors()
        def show(folder: str | None, name: str | None, cell: str) -> tuple[Any, Any]:
            if not name:
                return gr.skip(), gr.skip()
            run = load(folder, name, cell)
            return run.image, gr.Dropdown(choices=[one.text for one in run.maps.words])

        def refresh(folder: str | None, name: str | None) -> gr.Dropdown:
            found = results.names(folder)
            return gr.Dropdown(
                choices=found, value=name if name in found else next(iter(found), None)
            )

        def pixel(event: gr.SelectData) -> str:
            return "{},{}".format(*event.index)

        tab.select(refresh, [self.folder, name], name, **_QUIET)
        gr.on([name.change, cell.change], show, [self.folder, name, cell], [image, word], **_QUIET)
        image.select(pixel, None, at, **_QUIET)
        self._connect("explain", call, form, [], buttons, right)

    def _compare(self, tab: Any) -> None:
        form = Form()
        with _columns() as (left, right):
            with left:
                info = "Two or more."
                names = gr.Dropdown([], label="Results", multiselect=True, info=info)
                form.add("names", names)
                info, placeholder = "Empty: all in common.", "house, tree"
                form.text("words", "Words", names_in, placeholder=placeholder, info=info)
                scales = [("shared", "shared"), ("by word", "word"), ("0 to 1", "raw")]
                form.add("scale", gr.Radio(scales, value="shared", label="Colour scale"))
                button = gr.Button("Compare", variant="primary")
            with right:
                sheet = gr.Image(label="Comparison", interactive=False, visible=False)
                files = gr.File(label="Download", visible=False)

        @_page_errors()
        def compare(folder: str | None, *values: Any) -> tuple[Any, Any]:
            given = form.arguments(values)
            found = [results.path_of(folder, name) for name in given.pop("names", [])]
            runs = [hm.Run.load(run) for path in found for run in results.run_paths(path)]
            figure = hm.compare(runs, **given)
            place = Path(tempfile.mkdtemp(dir=self.temporary))
            saved = [
                str(figure.save(place / f"comparison.{kind}")) for kind in ("png", "svg", "pdf")
            ]
            return gr.Image(saved[0], visible=True), gr.File(saved, visible=True)

        def refresh(folder: str | None) -> gr.Dropdown:
            return gr.Dropdown(choices=results.names(folder))

        tab.select(refresh, self.folder, names, **_QUIET)
        inputs = [self.folder, *form.fields.values()]
        button.click(compare, inputs, [sheet, files], show_progress_on=sheet, api_name="compare")

    def _results(self, tab: Any) -> None:
        with _columns() as (left, right):
            with left:
                empty = gr.Markdown("*Nothing here yet: generate an image first.*")
                gallery = gr.Gallery(
                    columns=3,
                    height=680,
                    allow_preview=False,
                    show_label=False,
                    object_fit="contain",
                    interactive=False,
                    buttons=[],
                )
            with right:
                page, name, row = output = self._output()
                with row:
                    delete = gr.Button("Delete", size="sm", scale=0, min_width=150)
                confirmed = gr.Button(visible="hidden", elem_id="delete-confirmed")

        def refresh(folder: str | None) -> tuple[Any, Any]:
            found = results.thumbnails(folder)
            gallery = gr.Gallery(found, visible=bool(found), selected_index=None)
            return gr.Markdown(visible=not found), gallery

        @_page_errors()
        def open_result(folder: str | None, event: gr.SelectData) -> tuple[Any, ...]:
            name = event.value["caption"]
            return results.page(results.path_of(folder, name)), name, gr.Row(visible=True)

        @_page_errors()
        def remove(folder: str | None, name: str) -> tuple[Any, ...]:
            shutil.rmtree(results.path_of(folder, name))
            return "", "", gr.Row(visible=False), *refresh(folder)

        ask = f"name => {{ if (confirm(`Delete ${{name}}?`)) {_click(confirmed)} }}"
        tab.select(refresh, self.folder, [empty, gallery], **_QUIET)
        gallery.select(open_result, self.folder, [page, name, row], **_QUIET)
        delete.click(None, name, js=ask)
        confirmed.click(remove, [self.folder, name], [*output, empty, gallery], **_QUIET)

    # --- what the tabs share ------------------------------------------------------------------

    def _connect(
        self,
        name: str,
        call: Call,
        form: Form,
        fields: Sequence[gr.Textbox],
        buttons: tuple[gr.Button, gr.Button],
        right: gr.Column,
    ) -> None:
        """Connect a form with a call, whose progress and result appear at the right.

        The call starts with the first button, and with Enter in one of `fields`; the second button
        cancels it.
        """
        with right:
            status = gr.HTML("", elem_classes="status")
            output = self._output()

        def run(folder: str | None, model: str, *values: Any) -> Iterator[Any]:
            place = Path(folder or tempfile.mkdtemp(dir=self.temporary, prefix="session-"))

            def work(job: Job) -> Path:
                result, text, seed = call(job, place, model, form.arguments(values))
                job.check()
                job.text = "Saving"
                return put_counting(place / f"{slug(text, 48)}-{seed}", result.save)

            job = Job(work)
            yield str(place), job.html(), *([gr.skip()] * 3)
            with _page_errors():
                for _ in job:
                    yield gr.skip(), job.html(), *([gr.skip()] * 3)
            path = job.result
            text = paragraphs([f"Saved as {path.name}", *job.warnings])
            yield gr.skip(), text, results.page(path), path.name, gr.Row(visible=True)

        start, cancel = buttons
        event = gr.on(
            [start.click, *(field.submit for field in fields)],
            run,
            [self.folder, self.model, *form.fields.values()],
            [self.folder, status, *output],
            concurrency_limit=1,
            concurrency_id="model",
            show_progress="minimal",
            show_progress_on=status,
            api_name=name,
        )
        event.failure(lambda: "", None, status, **_QUIET)
        cancel.click(lambda: "Cancelled: nothing was saved.", None, status, cancels=event, **_QUIET)

    def _load(self, job: Job, model: str) -> Any:
        job.text = "Loading the model"
        return self.models.load(model)

    def _output(self) -> tuple[gr.HTML, gr.Textbox, gr.Row]:
        """Add the page of a result, its name, and a row with the button that downloads it."""
        name = gr.Textbox(visible="hidden")
        with gr.Row(visible=False) as row:
            download = gr.Button("Download as zip", size="sm", scale=0, min_width=150)
        page = gr.HTML("")
        file = gr.DownloadButton(visible="hidden", elem_id=f"zip-{page._id}")

        @_page_errors()
        def pack(folder: str | None, name: str) -> str:
            path = results.path_of(folder, name)
            base = self.temporary / "zips" / path.parent.name / name
            return shutil.make_archive(str(base), "zip", path.parent, name)

        event = download.click(pack, [self.folder, name], file, **_QUIET)
        event.success(None, js=f"() => {_click(file)}")
        return page, name, row

    def _axes(self) -> Sequence[str]:
        """Choose the axes to keep: all of the embedded model, whose maps take little memory."""
        return AXES if self.models.names == [EMBEDDED] else [*DrawOptions.keep]

    def _delete_session(self, folder: str | None) -> None:
        """Delete the results of a session that is over."""
        if folder is not None and self.out is None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _page_errors() -> Iterator[None]:
    """Show heedmap's errors on the page."""
    try:
        yield
    except HeedmapError as error:
        raise gr.Error(as_sentence(str(error)), print_exception=False) from error


@contextmanager
def _columns() -> Iterator[tuple[gr.Column, gr.Column]]:
    """Add a column for the inputs, and one for the result beside it."""
    with gr.Row(equal_height=False):
        yield gr.Column(scale=2, min_width=340), gr.Column(scale=5, min_width=340)


def _buttons(name: str) -> tuple[gr.Button, gr.Button]:
    with gr.Row():
        return gr.Button(name, variant="primary"), gr.Button("Cancel", min_width=100)


def _upload(height: int, label: str | None = None) -> gr.Image:
    return gr.Image(label=label, type="pil", sources=["upload", "clipboard"], height=height)


def _click(button: Any) -> str:
    """Write the JavaScript that presses a hidden button."""
    return f"document.getElementById('{button.elem_id}').click()"


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _weights(text: str) -> dict[str, list[float]]:
    return dict(option_texts.strip_in(line) for line in _lines(text))


def _vocabulary(prompt: gr.Textbox) -> None:
    """Add the words that the embedded model was taught; a click appends one to the prompt."""

    def append(row: list[str], text: str) -> str:
        return f"{text} {row[0]}".strip()

    with gr.Accordion("Words that the embedded model was taught", open=False):
        gr.Markdown(cards.limits())
        for name, words in cards.phrases().items():
            rows = gr.Dataset(
                label=name.capitalize(),
                components=["textbox"],
                samples_per_page=100,
                samples=[[word] for word in words],
                type="values",
            )
            rows.click(append, [rows, prompt], prompt, **_QUIET)
