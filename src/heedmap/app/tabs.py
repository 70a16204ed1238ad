"""The app's page: a tab for each function of heedmap, and one for the results."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import gradio as gr

import heedmap as hm
from heedmap import options, parsing
from heedmap.app import jobs
from heedmap.app.jobs import Job, Models
from heedmap.errors import ArgumentError, HeedmapError, as_sentence
from heedmap.io.writing import put_counting, slug
from heedmap.results.grids import result_name
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
    [
        "a red house in a meadow",
        "a blue house in a meadow",
        "",
        "7",
    ],
    [
        "an orange cat in the snow",
        "an orange dog in the snow",
        "cat->dog",
        "4",
    ],
    ["a (red:3) house", "", "", "7"],
]
_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}


def each_line(
    parse: Callable[[str], Any], collect: Callable[[list[Any]], Any] = list
) -> Callable[[str], Any]:
    """Make a function that reads each line of a text."""
    return lambda text: collect(
        [parse(line) for line in text.splitlines() if line.strip()]
    )


OPTIONS = {
    one.name: one
    for one in (
        *fields(options.GenerateOptions),
        *fields(options.EditOptions),
        *fields(options.ExplainOptions),
    )
    if one.metadata
}
READERS: dict[str, Callable[[str], Any]] = {
    **{
        name: parsing.READERS[one.type]
        for name, one in OPTIONS.items()
        if one.type in parsing.READERS
    },
    "seed": parsing.parse_integer,
    "seeds": parsing.parse_integers,
    "word": parsing.parse_word,
    "at": parsing.parse_pixel,
    "places": each_line(parsing.parse_place),
    "edits": each_line(lambda line: hm.Confine(*parsing.parse_box(line))),
    "weights": each_line(parsing.parse_word_weights, parsing.by_word),
}
"""Make an argument of the text in the field of this name."""
GRID_READERS = {
    "target": each_line(str),
    **dict.fromkeys(("cross_replace", "self_replace"), parsing.parse_windows),
}
REQUIRED = {"prompt", "source", "picture", "name", "word", "at"}
HELP = {
    **{name: one.metadata["help"] for name, one in OPTIONS.items()},
    "seed": "Seed of the noise. Default: random.",
    "seeds": "As 7, 8. Default: one at random.",
    "places": "What they read of the image. One on each line: 40,72, a box, or a word.",
    "edits": "One on each line, as cat=LEFT,TOP,RIGHT,BOTTOM.",
    "weights": "One word on each line, as red=0,1,3.",
    "at": "As 40,72.",
}
"""The text beneath the label of a field; of an option that of the command line."""
EDITING = ("cross_replace", "self_replace", "protect", "threshold", "renormalize")
"""The options of an edit beside its target."""
LABELS = {
    "source": "Prompt",
    "target": "Edited prompt",
    "negative": "Negative prompt",
    "edits": "Confine words to boxes",
    "weights": "Word weights",
    "at": "Pixel",
}
"""The labels of fields that are not called as their arguments."""


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

    def field(self, name: str, **look: Any) -> Any:
        """Add the field of an argument: a text, or by the type of its option another one."""
        look.setdefault("label", LABELS.get(name, name.replace("_", " ").capitalize()))
        look.setdefault("info", HELP.get(name))
        option: Any = OPTIONS.get(name)
        kind = option and option.type
        if kind is bool:
            return self.add(name, gr.Checkbox(option.default, **look))
        if get_origin(kind) is Literal:
            choices = gr.Radio(get_args(kind), value=option.default, **look)
            return self.add(name, choices)
        return self.add(name, gr.Textbox("", min_width=100, **look))

    def row(self, *names: str) -> list[Any]:
        """Add fields in a row."""
        with gr.Row():
            return [self.field(name) for name in names]

    def buttons(self, name: str) -> None:
        """Add the buttons that start and cancel the call."""
        with gr.Row():
            self.start = gr.Button(name, variant="primary")
            self.cancel = gr.Button("Cancel", min_width=100)

    def more(self, axes: Iterable[str], *names: str) -> None:
        """Add options: some of the call, and those of sampling, with the axes to keep."""
        for name in (*names, "guidance", "size", "negative", "share_of"):
            self.field(name)
        label = "Show separately on the page"
        self.add("keep", gr.CheckboxGroup(options.AXES, value=[*axes], label=label))

    def arguments(self, values: Sequence[Any]) -> dict[str, Any]:
        """Read the fields that are not empty, or required; ArgumentError if a text is wrong."""
        arguments: dict[str, Any] = {}
        for (name, field), value in zip(
            self.fields.items(),
            values,
            strict=True,
        ):
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
        self._axes: Iterable[str] = options.GenerateOptions.keep
        if models.names == [*FOLDERS]:  # their maps take little memory
            self._axes = options.AXES
        self._directory = tempfile.TemporaryDirectory(
            prefix="heedmap-", ignore_cleanup_errors=True
        )
        self.temporary = Path(self._directory.name)  # deleted when Python ends
        self._empty = str(self.temporary / "empty")  # the folder of a new session

    def build(self) -> gr.Blocks:
        """Build the page."""
        with gr.Blocks(
            title="heedmap",
            analytics_enabled=False,
            fill_width=True,
            delete_cache=(3600, 86400),
        ) as page:
            self.folder = gr.State(
                str(self.out or self._empty), delete_callback=self._end_session
            )
            with gr.Row(elem_id="top"):
                script = Path(__file__).with_name("app.js").read_text("utf-8")
                heading = gr.HTML("<h1>heedmap</h1>", js_on_load=script)
                names = self.models.names
                self.model = gr.Dropdown(
                    names, label="Model", visible=len(names) > 1, scale=0, min_width=300
                )
            with gr.Tabs() as tabs:
                for build in (
                    self._generate,
                    self._edit,
                    self._grid,
                    self._locate,
                    self._explain,
                    self._results,
                ):
                    name = build.__name__.strip("_")
                    with gr.Tab(name.capitalize(), id=name, elem_id=name) as tab:
                        build(tab)

            def explain(event: gr.EventData) -> list[Any]:
                return [
                    gr.Tabs(selected="explain"),
                    *(getattr(event, one) for one in self.place),
                ]

            heading.explain(
                explain,
                None,
                [tabs, *self.place.values()],
                **_QUIET,
            )
        page.queue(max_size=20, default_concurrency_limit=4)
        # As Gradio does on Windows: each millisecond takes 7 % of a core while the app is idle.
        page._queue.sleep_when_free = 0.05
        return page

    # --- the tabs -----------------------------------------------------------------------------

    def _generate(self, _: Any) -> None:
        with self._form("generate", self._draw(hm.generate)) as form:
            prompt = form.field("prompt")
            form.buttons("Generate")
            seed, _ = form.row("seed", "steps")
            with gr.Accordion("More", open=False):
                form.more(self._axes, "edits", "places")
            labels = [text for text, _ in PROMPTS]
            gr.Examples(PROMPTS, [prompt, seed], example_labels=labels)

    def _edit(self, _: Any) -> None:
        with self._form("edit", self._draw(hm.edit)) as form:
            source = form.field("source")
            target = form.field(
                "target", info="Leave empty to change only weights, as in (red:3)."
            )
            form.buttons("Edit")
            seed, _ = form.row("seed", "steps")
            only = form.field("only")
            with gr.Accordion("Your own image", open=False):
                form.add("image", _upload())
            with gr.Accordion("More", open=False):
                form.more(self._axes, *EDITING)
            gr.Examples(EDITS, [source, target, only, seed])

    def _grid(self, _: Any) -> None:
        with self._form(
            "grid",
            self._draw(hm.grid),
            **GRID_READERS,
        ) as form:
            form.field("source")
            form.field("target", info="One on each line.")
            form.field("weights")
            form.buttons("Generate")
            form.row("seeds", "steps")
            with gr.Accordion("More", open=False):
                form.more(self._axes, "only", *EDITING)

    def _locate(self, _: Any) -> None:
        with self._form("locate", self._draw(hm.locate)) as form:
            form.add("picture", _upload())
            form.field("prompt", info="The words to find.")
            form.buttons("Locate")
            with gr.Row():
                form.field("seed")
                levels = f"Default: {options.LOCATE_STEPS}."
                form.field("steps", label="Noise levels", info=levels)
            form.field("concepts", info="Other words to find, as in: sky, dog")

    def _explain(self, tab: Any) -> None:
        def call(
            job: Job,
            folder: Path,
            _: str,
            arguments: dict[str, Any],
        ) -> hm.Explanation:
            known = jobs.run_names(str(folder))
            run = hm.Run.load(jobs.path_of(str(folder), arguments.pop("name"), known))
            pipe = self.models.load(run.settings.model)
            return hm.explain(
                pipe,
                run,
                progress=job.progress,
                **arguments,
            )

        with self._form("explain", call) as form:
            gr.Markdown(
                "See how one number of a map is computed. Fill in this form, or choose a point on "
                "a result's page and press Explain."
            )
            runs = gr.Dropdown([], label="Result", allow_custom_value=True)
            form.add("name", runs)
            form.row("word", "at")
            form.buttons("Explain")
            with gr.Accordion("Layer, head and step", open=False):
                form.field("layer")
                form.row("head", "step")
        self.place = form.fields
        tab.select(
            lambda folder: gr.Dropdown(choices=jobs.run_names(folder)),
            self.folder,
            runs,
            **_QUIET,
        )

    def _results(self, tab: Any) -> None:
        inputs, _, *output = _columns()
        with inputs:
            gr.Markdown("Results of the other tabs are listed here, the newest first.")
            gallery = gr.Gallery(
                show_label=False,
                columns=2,
                object_fit="contain",
                allow_preview=False,
                interactive=False,
                buttons=[],
            )

        def refresh(folder: str) -> gr.Gallery:
            return gr.Gallery(jobs.thumbnails(folder), selected_index=None)

        def open_result(folder: str, event: gr.SelectData) -> tuple[Any, ...]:
            name = event.value["caption"]
            return self._show(jobs.path_of(folder, name, jobs.names(folder)))

        tab.select(refresh, self.folder, gallery, **_QUIET)
        gallery.select(open_result, self.folder, output, **_QUIET)

    # --- what the tabs share ------------------------------------------------------------------

    @contextmanager
    def _form(
        self,
        name: str,
        call: Callable[..., Any],
        **readers: Any,
    ) -> Iterator[Form]:
        """Add a form and a call, whose progress and result appear beside the form."""
        form = Form(**readers)
        inputs, status, page, download = _columns()
        with inputs:
            yield form

        def run(folder: str, model: str, *values: Any) -> Iterator[Any]:
            if folder == self._empty:
                folder = tempfile.mkdtemp(dir=self.temporary)
            place = Path(folder)

            def work(job: Job) -> Path:
                result = call(job, place, model, form.arguments(values))
                job.check()
                job.text = "Saving"
                path = put_counting(place / _title(result), result.save)
                job.text = f"Saved as {path.name}"
                return path

            job = Job(work)
            yield {self.folder: folder, status: "", page: "", download: None}
            for state in job:
                yield {status: state}
            try:
                path = job.future.result()
            except HeedmapError as error:
                text = as_sentence(str(error))
                raise gr.Error(text, print_exception=False) from error
            text, file = self._show(path)
            yield {status: job.html(), page: text, download: file}

        texts = [one for one in form.fields.values() if isinstance(one, gr.Textbox)]
        event = gr.on(
            [form.start.click, *(text.submit for text in texts)],
            run,
            [self.folder, self.model, *form.fields.values()],
            [self.folder, status, page, download],
            concurrency_limit=1,
            concurrency_id="model",
            show_progress="minimal",
            show_progress_on=status,
            api_name=name,
        )
        event.failure(
            lambda: "Nothing was saved.",
            None,
            status,
            **_QUIET,
        )
        form.cancel.click(
            lambda: "Nothing was saved.", None, status, cancels=event, **_QUIET
        )

    def _draw(self, function: Callable[..., Any]) -> Any:
        """Make a call of a function of heedmap that draws with the page's model."""

        def call(job: Job, _: Path, model: str, arguments: dict[str, Any]) -> Any:
            pipe = self.models.load(model)
            return function(pipe, **arguments, progress=job.progress)

        return call

    def _show(self, path: Path) -> tuple[Any, ...]:
        """Return the page of a result, and its archive."""
        base = self.temporary / "zips" / path.parent.name / path.name
        file = shutil.make_archive(
            str(base),
            "zip",
            path.parent,
            path.name,
        )
        return jobs.page(path), file

    def _end_session(self, folder: str) -> None:
        if self.out is None:
            shutil.rmtree(folder, ignore_errors=True)


def _title(result: Any) -> str:
    if isinstance(result, hm.Explanation):
        return slug(f"why {result.report.word}", 48)
    return result_name(result)


def _columns() -> tuple[Any, ...]:
    """Add the columns of a tab; return the first, and the parts of the second: of a result.

    These are the state of its job, its page, and the button that downloads it.
    """
    with gr.Row(equal_height=False):
        inputs = gr.Column(scale=2, min_width=340)
        with gr.Column(scale=5, min_width=340, elem_classes="result"):
            status = gr.HTML("", elem_classes="status", padding=False)
            with gr.Row(elem_classes="actions"):
                download = gr.DownloadButton("Download as zip", size="sm")
            page = gr.HTML("", padding=False)
    return inputs, status, page, download


def _upload() -> gr.Image:
    return gr.Image(
        label="Image", type="pil", sources=["upload", "clipboard"], height=280
    )
