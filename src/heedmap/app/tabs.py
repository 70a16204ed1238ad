"""The app's page: a tab for each function of heedmap, and one for the results."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import gradio as gr

import heedmap as hm
from heedmap import options, parsing
from heedmap.app import jobs
from heedmap.app.jobs import Job, Models
from heedmap.backends.loading import model_card
from heedmap.errors import ArgumentError, HeedmapError, as_sentence
from heedmap.io.writing import put_counting, slug
from heedmap.tiny import FOLDERS

# Examples for the embedded model: a prompt and a seed;
PROMPTS = [
    ["a red house next to a blue tree", "7"],
    ["a small orange cat in the snow", "7"],
    ["a pink balloon above a green car, at sunset", "6"],
    ["a (yellow:2) boat on the beach", "1"],
]
# source, target, the words whose places may change, seed;
EDITS = [
    ["a red house in a meadow", "a blue house in a meadow", "", "7"],
    ["an orange cat in the snow", "an orange dog in the snow", "cat->dog", "4"],
    ["a (red:3) house", "", "", "7"],
]
# source, targets, weights, seeds.
GRIDS = [
    ["a red house", "", "red=-2:3:6", "7"],
    [
        "a red house in a meadow",
        "a blue house in a meadow\na green house in a meadow",
        "",
        "7, 8",
    ],
]
_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}


def each_line(
    parse: Callable[[str], Any], collect: Callable[[list[Any]], Any] = list
) -> Callable[[str], Any]:
    """Make a function that reads each line of a text."""
    return lambda text: collect(
        [parse(line) for line in text.splitlines() if line.strip()]
    )


OPTIONS = (options.GenerateOptions, options.EditOptions, options.ExplainOptions)
READERS: dict[str, Callable[[str], Any]] = {
    **{
        one.name: parsing.READERS[one.type]
        for kind in OPTIONS
        for one in fields(kind)
        if one.type in parsing.READERS
    },
    "seed": parsing.parse_integer,
    "seeds": parsing.parse_integers,
    "word": parsing.parse_word,
    "words": parsing.parse_names,
    "at": parsing.parse_pixel,
    "edits": each_line(lambda line: hm.Confine(*parsing.parse_box(line))),
    "weights": each_line(parsing.parse_word_weights, parsing.by_word),
}
"""Make an argument of the text in the field of this name."""
GRID_READERS = {
    "target": each_line(str),
    **dict.fromkeys(("cross_replace", "self_replace"), parsing.parse_windows),
}
REQUIRED = {"prompt", "source", "picture", "name", "word", "at"}
_BY_MODEL = {"placeholder": "model default"}
_WINDOW = {"placeholder": "by kind of edit"}
_WINDOW["info"] = "Fraction of the run, such as 0.8"
_LINES = {"info": "One entry per line.", "lines": 2}
LOOKS: dict[str, dict[str, Any]] = {
    "prompt": {"lines": 2},
    "source": {"label": "Prompt", "lines": 2},
    "target": {"label": "Edited prompt", "lines": 2},
    "seed": {"placeholder": "random"},
    "seeds": {"placeholder": "7, 8"},
    **dict.fromkeys(("steps", "guidance", "size"), _BY_MODEL),
    "negative": {"label": "Negative prompt"},
    "cross_replace": {"label": "Replace cross-attention until", **_WINDOW},
    "self_replace": {"label": "Replace self-attention until", **_WINDOW},
    "only": {"label": "Change only", "placeholder": "cat->dog"},
    "protect": {"placeholder": "snow, tree"},
    "threshold": {"placeholder": str(options.EditOptions.threshold)},
    "edits": {
        "label": "Confine words to boxes",
        "placeholder": "cat=LEFT,TOP,RIGHT,BOTTOM",
        **_LINES,
    },
    "weights": {
        "label": "Word weights",
        "placeholder": "red=-2:3:6 or red=0,1,3",
        **_LINES,
    },
    "words": {"info": "For example: house, tree. Default: all that the results share."},
    "at": {"label": "Pixel", "placeholder": "40,72"},
    "layer": {"placeholder": "up 1.0"},
}
"""Label and look of the fields by name."""
EMPTY = {
    "generate": "The image appears here. Hover over a word of its prompt to see where it was read.",
    "edit": "The image and its edit appear here, side by side.",
    "grid": "All edits appear here, on one sheet.",
    "locate": "Your image appears here. Hover over a word to see where the model reads it.",
    "explain": "The computation appears here, number by number.",
    "compare": "The maps appear here, a row for each result.",
    "results": "The result that you choose appears here.",
}
"""The text in place of a result, by tab."""


class Form:
    """The input fields of a tab, each named like the argument that it sets.

    Args:
        readers: functions in place of `READERS`.

    Attributes:
        fields: the Gradio components by name, in their order on the page.
    """

    def __init__(self, **readers: Callable[[str], Any]) -> None:
        self.fields: dict[str, Any] = {}
        self._readers = READERS | readers

    def add(self, name: str, field: Any) -> Any:
        """Add a component."""
        self.fields[name] = field
        return field

    def text(self, name: str, **look: Any) -> gr.Textbox:
        """Add a text field."""
        look = {
            "label": name.capitalize(),
            "min_width": 100,
            **LOOKS.get(name, {}),
            **look,
        }
        return self.add(name, gr.Textbox("", **look))

    def row(self, *names: str) -> list[gr.Textbox]:
        """Add text fields in a row."""
        with gr.Row():
            return [self.text(name) for name in names]

    def buttons(self, name: str) -> None:
        """Add the buttons that start and cancel the call."""
        with gr.Row():
            self.start = gr.Button(name, variant="primary")
            self.cancel = gr.Button("Cancel", min_width=100)

    def sampling(self, axes: Iterable[str]) -> None:
        """Add guidance, size, negative prompt, axes to keep (`axes` by default), and the share."""
        self.row("guidance", "size")
        self.text("negative")
        choices = [(f"{axis}s", axis) for axis in options.AXES]
        self.add(
            "keep",
            gr.CheckboxGroup(
                choices, value=[*axes], label="Show separately on the page"
            ),
        )
        shares = [("all attention", "all"), ("the attention to the text", "text")]
        info = "Of the text: only models in which text and image share one softmax, such as SD 3"
        label = "Values of maps are shares of"
        usual = options.GenerateOptions.share_of
        self.add("share_of", gr.Radio(shares, value=usual, label=label, info=info))

    def edit(self) -> None:
        """Add the windows of an edit, the protected words, and whether weights sum to 1 again."""
        self.row("cross_replace", "self_replace")
        self.row("protect", "threshold")
        label = "Rescale attention to sum to 1 after weighting"
        self.add(
            "renormalize", gr.Checkbox(options.EditOptions.renormalize, label=label)
        )

    def arguments(self, values: Sequence[Any]) -> dict[str, Any]:
        """Read the fields that are not empty, or required; ArgumentError if a text is wrong."""
        arguments: dict[str, Any] = {}
        for (name, field), value in zip(self.fields.items(), values, strict=True):
            if name == "picture" and value is None:
                raise ArgumentError("choose an image first")
            text = value.strip() if isinstance(value, str) else ""
            try:
                if text and name in self._readers:
                    arguments[name] = self._readers[name](text)
                elif name in REQUIRED or text or value not in ("", None):
                    arguments[name] = value
            except ArgumentError as error:
                raise ArgumentError(f"{field.label}: {error}") from error
        return arguments


class App:
    """The app's page, and what its tabs share.

    Args:
        models: the pipelines.
        out: the folder of the results; None if each session has its own.
    """

    def __init__(self, models: Models, out: Path | None) -> None:
        self.models = models
        self.out = out
        # The maps of the embedded models take little memory.
        embedded = models.names == [*FOLDERS]
        self._axes = options.AXES if embedded else options.GenerateOptions.keep
        self._directory = tempfile.TemporaryDirectory(
            prefix="heedmap-", ignore_cleanup_errors=True
        )
        self.temporary = Path(self._directory.name)  # deleted when Python ends

    def build(self) -> gr.Blocks:
        """Build the page."""
        with gr.Blocks(
            title="heedmap",
            analytics_enabled=False,
            fill_width=True,
            delete_cache=(3600, 86400),
        ) as page:
            self.folder = gr.State(
                self.out and str(self.out), delete_callback=self._end_session
            )
            with gr.Row(elem_id="top"):
                script = Path(__file__).with_name("app.js").read_text("utf-8")
                heading = gr.HTML("<h1>heedmap</h1>", js_on_load=script)
                names = self.models.names
                self.model = gr.Dropdown(
                    names, label="Model", visible=len(names) > 1, scale=0, min_width=300
                )
            with gr.Tabs() as tabs:
                for name in (
                    "Generate",
                    "Edit",
                    "Grid",
                    "Locate",
                    "Explain",
                    "Compare",
                    "Results",
                ):
                    with gr.Tab(name, id=name.lower(), elem_id=name.lower()) as tab:
                        getattr(self, f"_{name.lower()}")(tab)

            def explain(event: gr.EventData) -> list[Any]:
                return [
                    gr.Tabs(selected="explain"),
                    *(getattr(event, one) for one in self.place),
                ]

            heading.explain(explain, None, [tabs, *self.place.values()], **_QUIET)
        page.queue(max_size=20, default_concurrency_limit=4)
        return page

    # --- the tabs -----------------------------------------------------------------------------

    def _generate(self, _: Any) -> None:
        with self._form("generate", self._draw(hm.generate)) as form:
            prompt = form.text("prompt", autofocus=True)
            form.buttons("Generate")
            seed, _ = form.row("seed", "steps")
            with gr.Accordion("More", open=False):
                form.sampling(self._axes)
                form.text("edits")
            labels = [text for text, _ in PROMPTS]
            gr.Examples(PROMPTS, [prompt, seed], example_labels=labels)
            with gr.Accordion("Vocabulary of the embedded model", open=False):
                card = model_card()
                lists = [
                    f"**{name}**: {', '.join(words)}"
                    for name, words in card.phrases.items()
                ]
                gr.Markdown("\n\n".join([card.limits, *lists]))

    def _edit(self, _: Any) -> None:
        with self._form("edit", self._draw(hm.edit)) as form:
            source = form.text("source")
            target = form.text(
                "target", info="Leave empty to change only weights, as in (red:3)."
            )
            form.buttons("Edit")
            seed, _ = form.row("seed", "steps")
            only = form.text("only", info="Only the regions of these words may change.")
            with gr.Accordion("Your own image", open=False):
                form.add("image", _upload())
            with gr.Accordion("More", open=False):
                form.edit()
                form.sampling(self._axes)
            labels = [
                f"{source} → {target}" if target else source
                for source, target, *_ in EDITS
            ]
            gr.Examples(EDITS, [source, target, only, seed], example_labels=labels)

    def _grid(self, _: Any) -> None:
        with self._form("grid", self._draw(hm.grid), **GRID_READERS) as form:
            source = form.text("source")
            target = form.text("target", info="One on each line.")
            weights = form.text("weights")
            form.buttons("Generate")
            seeds, _ = form.row("seeds", "steps")
            with gr.Accordion("More", open=False):
                form.text("only")
                form.edit()
                form.sampling(self._axes)
            labels = ["Weights of red, -2 to 3", "Two targets and two seeds"]
            gr.Examples(GRIDS, [source, target, weights, seeds], example_labels=labels)

    def _locate(self, _: Any) -> None:
        with self._form("locate", self._draw(hm.locate, preview=False)) as form:
            form.add("picture", _upload())
            form.text("prompt", info="The words to find.")
            form.buttons("Locate")
            with gr.Row():
                form.text("seed")
                form.text(
                    "steps", label="Noise levels", placeholder=str(options.LOCATE_STEPS)
                )
            form.text("concepts", info="Other words to find, as in: sky, dog")

    def _explain(self, tab: Any) -> None:
        def call(
            job: Job, folder: Path, _: str, arguments: dict[str, Any]
        ) -> hm.Explanation:
            path = jobs.path_of(folder, arguments.pop("name"))
            run = hm.Run.load(path / "edited" if (path / "edited").is_dir() else path)
            pipe = self.models.load(run.settings.model)
            return hm.explain(pipe, run, progress=job.progress, **arguments)

        with self._form("explain", call) as form:
            gr.Markdown(
                "See how one number of a map is computed. Fill in this form, or choose a point on "
                "a result's page and press Explain."
            )
            look = {"label": "Result", "allow_custom_value": True}
            form.add("name", self._choose_result(tab, jobs.run_names, **look))
            form.row("word", "at")
            form.buttons("Explain")
            with gr.Accordion("Layer, head and step", open=False):
                gr.Markdown(
                    "Default: the middle step, and there the layer and head with the word's "
                    "largest probability, of those that do not exceed 0.5."
                )
                form.text("layer")
                form.row("head", "step")
        self.place = form.fields

    def _compare(self, tab: Any) -> None:
        form = Form()
        with _columns("compare") as (left, right):
            with left:
                look = {"label": "Results", "multiselect": True, "info": "Two or more."}
                form.add("names", self._choose_result(tab, jobs.drawn_names, **look))
                form.text("words")
                scales = [("shared", "shared"), ("by word", "word"), ("0 to 1", "raw")]
                form.add(
                    "scale", gr.Radio(scales, value="shared", label="Colour scale")
                )
                button = gr.Button("Compare", variant="primary")
            with right:
                sheet = gr.Image(
                    show_label=False, format="png", interactive=False, visible=False
                )

        @_page_errors()
        def compare(folder: str | None, *values: Any) -> gr.Image:
            arguments = form.arguments(values)
            paths = [jobs.path_of(folder, name) for name in arguments.pop("names", [])]
            runs = [hm.Run.load(run) for path in paths for run in jobs.run_paths(path)]
            place = Path(tempfile.mkdtemp(dir=self.temporary), "comparison.png")
            hm.compare(runs, **arguments).savefig(place)
            return gr.Image(str(place), visible=True)

        inputs = [self.folder, *form.fields.values()]
        button.click(compare, inputs, sheet, show_progress_on=sheet, api_name="compare")

    def _results(self, tab: Any) -> None:
        with _columns("results") as (left, right):
            with left:
                gr.Markdown(
                    "Results of the other tabs are listed here, the newest first."
                )
                gallery = gr.Gallery(
                    show_label=False,
                    columns=2,
                    object_fit="contain",
                    allow_preview=False,
                    interactive=False,
                    buttons=[],
                    visible=False,
                )
            with right:
                delete = gr.Button("Delete", size="sm", render=False)
                _, name = output = self._output(delete)
                confirmed = gr.Button(visible="hidden", elem_id="delete-confirmed")

        def refresh(folder: str | None) -> gr.Gallery:
            images = jobs.thumbnails(folder)
            return gr.Gallery(images, selected_index=None, visible=bool(images))

        def open_result(folder: str | None, event: gr.SelectData) -> tuple[Any, ...]:
            name = event.value["caption"]
            return self._page(jobs.path_of(folder, name)), name

        def remove(folder: str | None, name: str) -> tuple[Any, ...]:
            shutil.rmtree(jobs.path_of(folder, name))
            return "", "", refresh(folder)

        ask = f"name => {{ if (confirm(`Delete ${{name}}?`)) {_press(confirmed)} }}"
        tab.select(refresh, self.folder, gallery, **_QUIET)
        gallery.select(open_result, self.folder, output, **_QUIET)
        delete.click(None, name, js=ask)
        confirmed.click(remove, [self.folder, name], [*output, gallery], **_QUIET)

    # --- what the tabs share ------------------------------------------------------------------

    @contextmanager
    def _form(
        self, name: str, call: Callable[..., Any], **readers: Any
    ) -> Iterator[Form]:
        """Add a form and a call, whose progress and result appear beside the form."""
        form = Form(**readers)
        with _columns(name) as (left, right):
            with left:
                yield form
            with right:
                status = gr.HTML("", elem_classes="status", padding=False)
                output = self._output()

        def run(folder: str | None, model: str, *values: Any) -> Iterator[Any]:
            place = Path(
                folder or tempfile.mkdtemp(dir=self.temporary, prefix="session-")
            )

            def work(job: Job) -> Path:
                result = call(job, place, model, form.arguments(values))
                job.check()
                job.text = "Saving"
                path = put_counting(place / _title(result), result.save)
                job.text = f"Saved as {path if self.out else path.name}"
                return path

            job = Job(work)
            yield str(place), "", "", ""
            with _page_errors():
                for state in job:
                    yield gr.skip(), state, *[gr.skip()] * 2
                path = job.future.result()
            yield gr.skip(), job.html(), self._page(path), path.name

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
        form.cancel.click(
            lambda: "Nothing was saved.", None, status, cancels=event, **_QUIET
        )

    def _draw(self, function: Callable[..., Any], *, preview: bool = True) -> Any:
        """Make a call of a function of heedmap that draws with the page's model."""

        def call(job: Job, _: Path, model: str, arguments: dict[str, Any]) -> Any:
            pipe = self.models.load(model)
            previews = {"preview": job.preview(pipe)} if preview else {}
            return function(pipe, **arguments, progress=job.progress, **previews)

        return call

    def _output(self, *buttons: gr.Button) -> list[Any]:
        """Add the page of a result, its name, and a row of buttons: download and others."""
        name = gr.Textbox(visible="hidden")
        with gr.Row(elem_classes="actions"):
            download = gr.Button("Download as zip", size="sm")
            for button in buttons:
                button.render()
        page = gr.HTML("", padding=False)
        file = gr.DownloadButton(visible="hidden", elem_id=f"zip-{page._id}")

        def pack(folder: str | None, name: str) -> str:
            path = jobs.path_of(folder, name)
            base = self.temporary / "zips" / path.parent.name / name
            return shutil.make_archive(str(base), "zip", path.parent, name)

        event = download.click(pack, [self.folder, name], file, **_QUIET)
        event.success(None, js=f"() => {_press(file)}")
        return [page, name]

    def _page(self, path: Path) -> str:
        return jobs.page(path, is_local=self.out is not None)

    def _end_session(self, folder: str | None) -> None:
        if folder is not None and self.out is None:
            shutil.rmtree(folder, ignore_errors=True)

    def _choose_result(
        self, tab: Any, names: Callable[[str | None], list[str]], **look: Any
    ) -> gr.Dropdown:
        """Add a list of results; opening the tab reads it again."""

        def refresh(folder: str | None) -> gr.Dropdown:
            return gr.Dropdown(choices=names(folder))

        field = gr.Dropdown([], **look)
        tab.select(refresh, self.folder, field, **_QUIET)
        return field


def _title(result: Any) -> str:
    if isinstance(result, hm.Grid):
        return f"{slug(f'grid {result.report.source}', 48)}-{result.report.seeds[0]}"
    if isinstance(result, hm.Explanation):
        return slug(f"why {result.report.word}", 48)
    settings = getattr(result, "edited", result).settings
    title = f"image {settings.prompt}" if settings.located else settings.prompt
    return f"{slug(title, 48)}-{settings.seed}"


@contextmanager
def _page_errors() -> Iterator[None]:
    try:
        yield
    except HeedmapError as error:
        raise gr.Error(as_sentence(str(error)), print_exception=False) from error


@contextmanager
def _columns(name: str) -> Iterator[tuple[gr.Column, gr.Column]]:
    """Add the columns of a tab: its form, and its result, which is a text at first."""
    with gr.Row(equal_height=False):
        inputs = gr.Column(scale=2, min_width=340)
        with gr.Column(scale=5, min_width=340, elem_classes="result") as result:
            gr.HTML(f"<p>{EMPTY[name]}</p>", elem_classes="empty")
        yield inputs, result


def _upload() -> gr.Image:
    return gr.Image(
        label="Image", type="pil", sources=["upload", "clipboard"], height=280
    )


def _press(button: Any) -> str:
    return f"document.getElementById('{button.elem_id}').click()"
