"""The app's page: a tab for each function of heedmap, and one for the results."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr

import heedmap as hm
from heedmap.app import results
from heedmap.app.fields import MODEL_DEFAULT, Form, boxes_in, lines_in, weights_in
from heedmap.app.jobs import Job, Models
from heedmap.backends.loading import model_card
from heedmap.errors import HeedmapError, as_sentence
from heedmap.io.writing import put_counting, slug
from heedmap.options import AXES, LOCATE_STEPS, GenerateOptions
from heedmap.text import option_texts
from heedmap.tiny.card import EMBEDDED

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

Call = Callable[[Job, Path, str, dict[str, Any]], Any]
"""Makes a result from a job, the folder of the results, the model's name and the arguments of the
form."""


class App:
    """The app's page, and what its tabs share.

    Args:
        models: the pipelines.
        out: the folder of the results; None if each session has its own.
    """

    def __init__(self, models: Models, out: Path | None) -> None:
        self.models, self.out = models, out
        self._directory = tempfile.TemporaryDirectory(prefix="heedmap-", ignore_cleanup_errors=True)
        self.temporary = Path(self._directory.name)  # deleted when Python ends

    def build(self) -> gr.Blocks:
        """Build the page."""
        with gr.Blocks(
            title="heedmap", analytics_enabled=False, fill_width=True, delete_cache=(3600, 86400)
        ) as page:
            out = None if self.out is None else str(self.out)
            self.folder = gr.State(out, delete_callback=self._delete_session)
            with gr.Row(elem_id="top"):
                script = Path(__file__).with_name("app.js").read_text("utf-8")
                heading = gr.HTML("<h1>heedmap</h1>", js_on_load=script)
                names = self.models.names
                self.model = gr.Dropdown(names, label="Model", interactive=len(names) > 1)
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
        with self._form("generate", self._draw(hm.generate), prompt="") as form:
            prompt = form.text("prompt", "Prompt", lines=2, autofocus=True)
            form.buttons("Generate")
            seed = form.seed_and_steps()
            with gr.Accordion("More", open=False):
                form.drawing(self._axes())
                info = "Left, top, right, bottom, in pixels. One word on each line."
                boxes = form.text("edits", "Keep words in boxes", boxes_in, lines=2, info=info)
                boxes.placeholder = "cat=0,0,64,128"
            gr.Examples(PROMPTS, [prompt, seed], label="Examples for the embedded model")
            with gr.Accordion("Words that the embedded model was taught", open=False):
                lists = [
                    f"**{name}**: {', '.join(words)}"
                    for name, words in model_card().phrases.items()
                ]
                gr.Markdown("\n\n".join([model_card().limits, *lists]))

    def _edit(self, _: Any) -> None:
        with self._form("edit", self._draw(hm.edit), source="") as form:
            source = form.text("source", "Prompt", lines=2)
            info = "Empty: only weights, as in (red:3)."
            target = form.text("target", "What it becomes", lines=2, info=info)
            form.buttons("Edit")
            seed = form.seed_and_steps()
            only = form.only("Only these places change.")
            with gr.Accordion("An image of your own", open=False):
                form.add("image", _upload())
            with gr.Accordion("More", open=False):
                form.edit(option_texts.window_in)
                form.drawing(self._axes())
            gr.Examples(EDITS, [source, target, only, seed], label="Examples")

    def _grid(self, _: Any) -> None:
        with self._form("grid", self._draw(hm.grid), source="") as form:
            source = form.text("source", "Prompt", lines=2)
            info = "One on each line."
            targets = form.text("target", "What it becomes", lines_in, lines=2, info=info)
            info = "red=-2:3:6 (from, to, how many) or red=0,1,3. One word on each line."
            weights = form.text("weights", "Weights of words", weights_in, lines=2, info=info)
            form.buttons("Draw the grid")
            with gr.Row():
                seeds = form.text("seeds", "Seeds", option_texts.numbers_in, placeholder="7, 8")
                form.number("steps", "Steps", placeholder=MODEL_DEFAULT)
            with gr.Accordion("More", open=False):
                form.only()
                form.edit(option_texts.windows_in)
                form.drawing(self._axes())
            gr.Examples(GRIDS, [source, targets, weights, seeds], label="Examples")

    def _locate(self, _: Any) -> None:
        def locate(*given: Any, preview: Any, **options: Any) -> hm.Run:
            return hm.locate(*given, **options)

        with self._form("locate", self._draw(locate), picture=None, prompt="") as form:
            form.add("picture", _upload())
            form.text("prompt", "Prompt", info="What to find in it.", lines=2)
            form.buttons("Locate")
            with gr.Row():
                form.number("seed", "Seed", placeholder="random")
                form.number("steps", "Looks", placeholder=str(LOCATE_STEPS))

    def _explain(self, tab: Any) -> None:
        def call(job: Job, folder: Path, _: str, given: dict[str, Any]) -> hm.Explanation:
            path = results.path_of(folder, given.pop("name"))
            run = hm.Run.load(results.run_path(path, given.pop("cell", None)))
            pipe = self.models.load(run.settings.model)
            return hm.explain(pipe, run, progress=job.progress, **given)

        with self._form("explain", call, name="", word="", at=()) as form:
            gr.Markdown("How does a number of a map come about? Choose a place on a result's page.")
            name = form.add("name", gr.Dropdown([], label="Result", allow_custom_value=True))
            with gr.Row():
                form.text("word", "Word", option_texts.word_in, min_width=160)
                form.text("at", "Pixel", option_texts.pixel_in, placeholder="40,72", min_width=120)
            form.buttons("Take it apart")
            with gr.Accordion("Layer, head and step", open=False):
                gr.Markdown("Empty: where the word acts most at the middle step.")
                form.text("layer", "Layer", placeholder="up 1.0")
                with gr.Row():
                    form.number("head", "Head")
                    form.number("step", "Step")
                    form.number("cell", "Cell of a grid", placeholder="1")
        self.place = form.fields
        tab.select(
            lambda folder: gr.Dropdown(choices=results.names(folder)), self.folder, name, **_QUIET
        )

    def _compare(self, tab: Any) -> None:
        form = Form()
        with _columns() as (left, right):
            with left:
                names = gr.Dropdown([], label="Results", multiselect=True, info="Two or more.")
                form.add("names", names)
                info = "Such as: house, tree. Empty: all in common."
                form.text("words", "Words", option_texts.names_in, info=info)
                scales = [("shared", "shared"), ("by word", "word"), ("0 to 1", "raw")]
                form.add("scale", gr.Radio(scales, value="shared", label="Colour scale"))
                button = gr.Button("Compare", variant="primary")
            with right:
                sheet = gr.Image(label="Comparison", format="png", interactive=False, visible=False)

        @_page_errors()
        def compare(folder: str | None, *values: Any) -> gr.Image:
            given = form.arguments(values)
            found = [results.path_of(folder, name) for name in given.pop("names", [])]
            runs = [hm.Run.load(run) for path in found for run in results.run_paths(path)]
            place = Path(tempfile.mkdtemp(dir=self.temporary), "comparison.png")
            hm.compare(runs, **given).savefig(place)
            return gr.Image(str(place), visible=True)

        tab.select(
            lambda folder: gr.Dropdown(choices=results.names(folder)), self.folder, names, **_QUIET
        )
        inputs = [self.folder, *form.fields.values()]
        button.click(compare, inputs, sheet, show_progress_on=sheet, api_name="compare")

    def _results(self, tab: Any) -> None:
        with _columns() as (left, right):
            with left:
                gallery = gr.Gallery(
                    columns=3, height=680, allow_preview=False, interactive=False, buttons=[]
                )
            with right:
                page, name, row = output = self._output()
                with row:
                    delete = gr.Button("Delete", size="sm", scale=0, min_width=150)
                confirmed = gr.Button(visible="hidden", elem_id="delete-confirmed")

        def refresh(folder: str | None) -> gr.Gallery:
            return gr.Gallery(results.thumbnails(folder), selected_index=None)

        def open_result(folder: str | None, event: gr.SelectData) -> tuple[Any, ...]:
            name = event.value["caption"]
            return results.page(results.path_of(folder, name)), name, gr.Row(visible=True)

        def remove(folder: str | None, name: str) -> tuple[Any, ...]:
            shutil.rmtree(results.path_of(folder, name))
            return "", "", gr.Row(visible=False), refresh(folder)

        ask = f"name => {{ if (confirm(`Delete ${{name}}?`)) {_press(confirmed)} }}"
        tab.select(refresh, self.folder, gallery, **_QUIET)
        gallery.select(open_result, self.folder, [page, name, row], **_QUIET)
        delete.click(None, name, js=ask)
        confirmed.click(remove, [self.folder, name], [*output, gallery], **_QUIET)

    # --- what the tabs share ------------------------------------------------------------------

    @contextmanager
    def _form(self, name: str, call: Call, /, **defaults: Any) -> Iterator[Form]:
        """Add a form and a call, whose progress and result appear beside the form."""
        form = Form(**defaults)
        with _columns() as (left, right):
            with left:
                yield form
            with right:
                status = gr.HTML("", elem_classes="status")
                output = self._output()

        def run(folder: str | None, model: str, *values: Any) -> Iterator[Any]:
            place = Path(folder or tempfile.mkdtemp(dir=self.temporary, prefix="session-"))

            def work(job: Job) -> Path:
                result = call(job, place, model, form.arguments(values))
                job.check()
                job.text = "Saving"
                path = put_counting(place / _title(result), result.save)
                job.text = f"Saved as {path.name}"
                return path

            job = Job(work)
            yield str(place), *[gr.skip()] * 4
            with _page_errors():
                for state in job:
                    yield gr.skip(), state, *[gr.skip()] * 3
                path = job.future.result()
            yield gr.skip(), job.html(), results.page(path), path.name, gr.Row(visible=True)

        texts = [one for one in form.fields.values() if isinstance(one, gr.Textbox)]
        event = gr.on(
            [form.start.click, *(text.submit for text in texts)],
            run,
            [self.folder, self.model, *form.fields.values()],
            [self.folder, status, *output],
            concurrency_limit=1,
            concurrency_id="model",
            show_progress="minimal",
            show_progress_on=status,
            api_name=name,
        )
        event.failure(lambda: "Nothing was saved.", None, status, **_QUIET)
        form.cancel.click(lambda: "Nothing was saved.", None, status, cancels=event, **_QUIET)

    def _draw(self, function: Callable[..., Any]) -> Call:
        """Make a call of a function of heedmap that draws with the page's model."""

        def call(job: Job, _: Path, model: str, given: dict[str, Any]) -> Any:
            pipe = self.models.load(model)
            return function(pipe, **given, **job.callbacks(pipe))

        return call

    def _output(self) -> tuple[gr.HTML, gr.Textbox, gr.Row]:
        """Add the page of a result, its name, and a row with the button that downloads it."""
        name = gr.Textbox(visible="hidden")
        with gr.Row(visible=False) as row:
            download = gr.Button("Download as zip", size="sm", scale=0, min_width=150)
        page = gr.HTML("")
        file = gr.DownloadButton(visible="hidden", elem_id=f"zip-{page._id}")

        def pack(folder: str | None, name: str) -> str:
            path = results.path_of(folder, name)
            base = self.temporary / "zips" / path.parent.name / name
            return shutil.make_archive(str(base), "zip", path.parent, name)

        event = download.click(pack, [self.folder, name], file, **_QUIET)
        event.success(None, js=f"() => {_press(file)}")
        return page, name, row

    def _axes(self) -> Sequence[str]:
        """Choose the axes to keep: all of the embedded model, whose maps take little memory."""
        return AXES if self.models.names == [EMBEDDED] else [*GenerateOptions.keep]

    def _delete_session(self, folder: str | None) -> None:
        """Delete the results of a session that is over."""
        if folder is not None and self.out is None:
            shutil.rmtree(folder, ignore_errors=True)


def _title(result: Any) -> str:
    """Name a result after its prompt and its seed."""
    if isinstance(result, hm.Grid):
        return f"{slug(f'grid {result.about.source}', 48)}-{result.about.seeds[0]}"
    if isinstance(result, hm.Explanation):
        return slug(f"why {result.about.word}", 48)
    settings = getattr(result, "edited", result).settings
    return f"{slug(settings.prompt, 48)}-{settings.seed}"


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


def _upload() -> gr.Image:
    return gr.Image(label="Image", type="pil", sources=["upload", "clipboard"], height=280)


def _press(button: Any) -> str:
    """Write the JavaScript that presses a hidden button."""
    return f"document.getElementById('{button.elem_id}').click()"
