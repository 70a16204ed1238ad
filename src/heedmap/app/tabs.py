"""The app's page: a tab for each function of heedmap, and one for the results."""

import html
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
from heedmap.app.jobs import Job, Models
from heedmap.errors import ArgumentError, HeedmapError, quoted
from heedmap.models import cards
from heedmap.options import AXES, EditOptions, LocateOptions
from heedmap.text import option_texts
from heedmap.tiny.card import EMBEDDED
from heedmap.wiring.registry import usual_size

PROMPTS = [
    ["a red house next to a blue tree", "7"],
    ["a small orange cat in the snow", "7"],
    ["a pink balloon above a green car, at sunset", "6"],
    ["a (yellow:2) boat on the beach", "1"],
]
"""Examples of the embedded model: a prompt and a seed."""
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
PLACES = {
    "the left half": (0.0, 0.0, 0.5, 1.0),
    "the right half": (0.5, 0.0, 1.0, 1.0),
    "the upper half": (0.0, 0.0, 1.0, 0.5),
    "the lower half": (0.0, 0.5, 1.0, 1.0),
}
"""Left, top, right and bottom, as fractions of the image."""
_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
_NO_RESULTS = "*Nothing here yet: generate an image first.*"

Work = Callable[..., Any]
"""Called with a job, the folder of the results, the model's name, and the values of the fields."""


class App:
    """The app's page, and what its tabs share.

    Args:
        models: the pipelines.
        out: the folder of the results; None where each session has its own.

    Attributes:
        temporary: a folder for zips and for the results of sessions.
    """

    def __init__(self, models: Models, out: Path | None) -> None:
        self.models, self.out = models, out
        self._held = tempfile.TemporaryDirectory(prefix="heedmap-", ignore_cleanup_errors=True)
        self.temporary = Path(self._held.name)

    def close(self) -> None:
        """Delete the temporary folder."""
        self._held.cleanup()

    def build(self) -> gr.Blocks:
        """Build the page."""
        with gr.Blocks(
            title="heedmap", analytics_enabled=False, fill_width=True, delete_cache=(3600, 86400)
        ) as page:
            self.folder = gr.State(
                None if self.out is None else str(self.out), delete_callback=self._forget
            )
            with gr.Row(elem_id="top"):
                script = resources.files(__package__ or "").joinpath("app.js").read_text("utf-8")
                heading = gr.HTML("<h1>heedmap</h1>", js_on_load=script)
                self.model = gr.Dropdown(
                    self.models.names,
                    label="Model",
                    interactive=len(self.models.names) > 1 or self.models.others,
                    allow_custom_value=self.models.others,
                    info="Choose one, or type a folder or a hub id."
                    if self.models.others
                    else None,
                )
            with gr.Tabs() as tabs:
                for name in ("Generate", "Edit", "Grid", "Locate", "Explain", "Compare", "Results"):
                    with gr.Tab(name, id=name.lower(), elem_id=name.lower()) as tab:
                        getattr(self, f"_{name.lower()}")(tab)

            def explain(event: gr.EventData) -> list[Any]:
                fields = ("name", "word", "at", "layer", "head", "step", "cell")
                return [gr.Tabs(selected="explain"), *(getattr(event, name) for name in fields)]

            heading.explain(explain, None, [tabs, *self.explained], **_QUIET)
        page.queue(max_size=20, default_concurrency_limit=4)
        return page

    # --- the tabs -----------------------------------------------------------------------------

    def _generate(self, _: Any) -> None:
        with _columns() as (left, right), left:
            prompt = _text("Prompt", lines=2, autofocus=True)
            button, cancel = _buttons("Generate")
            seed, steps = _seed_and_steps()
            with gr.Accordion("More", open=False):
                shared = self._draw_fields()
                places = [one for name in ("Keep a word", "Another word") for one in _place(name)]
            gr.Examples(PROMPTS, [prompt, seed], label="Examples of the embedded model")
            _vocabulary(prompt)

        def work(
            job: Job, _: Any, model: str, text: str, seed: str, steps: str, *rest: Any
        ) -> hm.Run:
            pipe, watch = self._load(job, model)
            options = _draw_options(steps, *rest[: len(shared)])
            size = options["size"] or usual_size(pipe)
            named = zip(rest[len(shared) :: 2], rest[len(shared) + 1 :: 2], strict=True)
            edits = [hm.Confine(word, _box(where, size)) for word, where in named if word]
            return hm.generate(pipe, text, seed=_read(_int, seed), edits=edits, **options, **watch)

        fields = [prompt, seed, steps, *shared, *places]
        self._job("generate", work, fields, [button.click, prompt.submit], cancel, right)

    def _edit(self, _: Any) -> None:
        with _columns() as (left, right), left:
            source = _text("Prompt", lines=2)
            target = _text(
                label="What it becomes", lines=2, info="Empty: only weights, as in (red:3)."
            )
            button, cancel = _buttons("Edit")
            seed, steps = _seed_and_steps()
            only = _text(
                label="Only where", placeholder="cat->dog", info="Only these places change."
            )
            with gr.Accordion("An image of your own", open=False):
                image = gr.Image(type="pil", sources=["upload", "clipboard"], height=240)
            with gr.Accordion("More", open=False):
                with gr.Row():
                    cross, own = _window("Cross-attention"), _window("Self-attention")
                blend = _blend_fields()
                shared = self._draw_fields()
            gr.Examples(EDITS, [source, target, only, seed], label="Examples")
            _vocabulary(target)

        def work(
            job: Job,
            _: Any,
            model: str,
            text: str,
            becomes: str,
            seed: str,
            steps: str,
            image: Any,
            only: str,
            cross: str,
            own: str,
            *rest: Any,
        ) -> hm.Pair:
            pipe, watch = self._load(job, model)
            options = {
                "cross": _read(option_texts.window_in, cross),
                "self_attention": _read(option_texts.window_in, own),
                **_blend_options(only, *rest[: len(blend)]),
                **_draw_options(steps, *rest[len(blend) :]),
            }
            return hm.edit(
                pipe, text, becomes or None, seed=_read(_int, seed), image=image, **options, **watch
            )

        fields = [source, target, seed, steps, image, only, cross, own, *blend, *shared]
        triggers = [button.click, source.submit, target.submit]
        self._job("edit", work, fields, triggers, cancel, right)

    def _grid(self, _: Any) -> None:
        with _columns() as (left, right), left:
            source = _text("Prompt", lines=2)
            targets = _text("What it becomes", lines=2, info="One on each line.")
            weights = _text(
                label="Weights of words",
                lines=2,
                placeholder="red=-2:3:6",
                info="From, to and how many; or a list, as red=0,1,3. One word on each line.",
            )
            button, cancel = _buttons("Draw the grid")
            with gr.Row():
                seeds = _text("Seeds", placeholder="7, 8", min_width=120)
                steps = _text("Steps", placeholder="model default", min_width=100)
            with gr.Accordion("More", open=False):
                with gr.Row():
                    cross, own = _window("Cross-attention"), _window("Self-attention")
                only = _text("Only where", placeholder="cat->dog")
                blend = _blend_fields()
                shared = self._draw_fields()
            gr.Examples(GRIDS, [source, targets, weights, seeds], label="Examples")

        def work(
            job: Job,
            _: Any,
            model: str,
            text: str,
            becomes: str,
            weights: str,
            seeds: str,
            steps: str,
            cross: str,
            own: str,
            *rest: Any,
        ) -> hm.Grid:
            pipe, watch = self._load(job, model)
            return hm.grid(
                pipe,
                text,
                _lines(becomes) or None,
                weights=dict(_read(option_texts.strip_in, line) for line in _lines(weights)),
                seeds=_read(lambda text: [_int(one) for one in text.split(",")], seeds),
                cross=_read(option_texts.windows_in, cross),
                self_attention=_read(option_texts.windows_in, own),
                **_blend_options(*rest[: len(blend) + 1]),
                **_draw_options(steps, *rest[len(blend) + 1 :]),
                **watch,
            )

        fields = [source, targets, weights, seeds, steps, cross, own, only, *blend, *shared]
        self._job("grid", work, fields, [button.click], cancel, right)

    def _locate(self, _: Any) -> None:
        with _columns() as (left, right), left:
            image = gr.Image(label="Image", type="pil", sources=["upload", "clipboard"], height=280)
            prompt = _text("Prompt", info="What to find in it.", lines=2)
            button, cancel = _buttons("Locate")
            with gr.Row():
                seed = _text("Seed", placeholder="random", min_width=100)
                looks = gr.Number(
                    LocateOptions.steps,
                    label="Looks",
                    precision=0,
                    min_width=120,
                    info="Each with other noise.",
                )

        def work(
            job: Job, _: Any, model: str, image: Any, text: str, seed: str, steps: int
        ) -> hm.Run:
            pipe, _ = self._load(job, model)
            return hm.locate(
                pipe, image, text, seed=_read(_int, seed), steps=steps, progress=job.progress
            )

        triggers = [button.click, prompt.submit]
        self._job("locate", work, [image, prompt, seed, looks], triggers, cancel, right)

    def _explain(self, tab: Any) -> None:
        with _columns() as (left, right), left:
            gr.Markdown("How does one number of a map come about? Choose a word and a place.")
            empty = gr.Markdown(_NO_RESULTS)
            with gr.Column(visible=False) as form:
                name = gr.Dropdown([], label="Result", allow_custom_value=True)
                picture = gr.Image(label="Click a place", interactive=False, height=260, buttons=[])
                with gr.Row():
                    word = gr.Dropdown([], label="Word", allow_custom_value=True, min_width=160)
                    at = _text("Pixel", placeholder="40,72", min_width=120)
                button, cancel = _buttons("Take it apart")
                with gr.Accordion("Layer, head and step", open=False):
                    gr.Markdown("Empty: where the word acts most.")
                    layer = _text("Layer", placeholder="up 1.0")
                    with gr.Row():
                        head, step = _text("Head", min_width=100), _text("Step", min_width=100)
                        cell = _text("Cell of a grid", placeholder="1", min_width=100)
        self.explained = [name, word, at, layer, head, step, cell]

        def work(
            job: Job,
            folder: Path,
            model: str,
            name: str,
            word: str,
            at: str,
            layer: str,
            head: str,
            step: str,
            cell: str,
        ) -> hm.Explanation:
            run = hm.Run.load(results.run_path(results.path_of(folder, name), _read(_int, cell)))
            if run.settings.model not in (*self.models.names, model):
                raise ArgumentError(
                    f"this result was drawn with {quoted(run.settings.model)}: choose that model"
                )
            pipe, _ = self._load(job, run.settings.model)
            place = _read(option_texts.pixel_in, at) or ()
            given: Any = {
                "layer": layer or None,
                "head": _read(_int, head),
                "step": _read(_int, step),
            }
            return hm.explain(pipe, run, word, place, progress=job.progress, **given)

        def choose(folder: str | None, name: str | None, cell: str) -> tuple[Any, Any]:
            if not name:
                return gr.skip(), gr.skip()
            run = _sentence(
                lambda: hm.Run.load(
                    results.run_path(results.path_of(_path(folder), name), _read(_int, cell))
                )
            )
            words = [one.text for one in run.maps.words]
            return run.image, gr.Dropdown(choices=words)

        def look(folder: str | None, name: str | None) -> tuple[Any, ...]:
            found = results.names(_path(folder))
            chosen = name if name in found else next(iter(found), None)
            shown = gr.Dropdown(choices=found, value=chosen)
            return gr.Markdown(visible=not found), gr.Column(visible=bool(found)), shown

        tab.select(look, [self.folder, name], [empty, form, name], **_QUIET)
        for field in (name, cell):
            field.change(choose, [self.folder, name, cell], [picture, word], **_QUIET)
        picture.select(_clicked, None, at, **_QUIET)
        self._job("explain", work, self.explained, [button.click], cancel, right)

    def _compare(self, tab: Any) -> None:
        with _columns() as (left, right):
            with left:
                names = gr.Dropdown([], label="Results", multiselect=True, info="Two or more.")
                words = _text(
                    label="Words", placeholder="house, tree", info="Empty: all in common."
                )
                scale = gr.Radio(
                    [("shared", "shared"), ("by word", "word"), ("0 to 1", "raw")],
                    value="shared",
                    label="Colour scale",
                )
                button = gr.Button("Compare", variant="primary")
            with right:
                sheet = gr.Image(label="Comparison", interactive=False, visible=False)
                files = gr.File(label="Download", visible=False)

        def compare(folder: str | None, names: Sequence[str], words: str, scale: Any) -> Any:
            paths = [
                run
                for name in names
                for run in results.run_paths(results.path_of(_path(folder), name))
            ]
            wanted = [one.strip() for one in words.split(",") if one.strip()] or None
            figure = hm.compare([hm.Run.load(path) for path in paths], wanted, scale=scale)
            made = Path(tempfile.mkdtemp(dir=self.temporary))
            saved = [figure.save(made / f"comparison.{kind}") for kind in ("png", "svg", "pdf")]
            return gr.Image(str(saved[0]), visible=True), gr.File([*map(str, saved)], visible=True)

        tab.select(
            lambda folder: gr.Dropdown(choices=results.names(_path(folder))),
            *(self.folder, names),
            **_QUIET,
        )
        button.click(
            lambda *given: _sentence(lambda: compare(*given)),
            *([self.folder, names, words, scale], [sheet, files]),
            show_progress_on=sheet,
            api_name="compare",
        )

    def _results(self, tab: Any) -> None:
        with _columns() as (left, right):
            with left:
                empty = gr.Markdown(_NO_RESULTS)
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
                page, chosen, row = self._output()
                with row:
                    delete = gr.Button("Delete", size="sm", scale=0, min_width=150)
                sure = gr.Checkbox(visible="hidden")

        def look(folder: str | None) -> tuple[Any, Any]:
            found = results.thumbnails(_path(folder))
            gallery = gr.Gallery(found, visible=bool(found), selected_index=None)
            return gr.Markdown(visible=not found), gallery

        def opened(folder: str | None, event: gr.SelectData) -> tuple[Any, ...]:
            name = event.value["caption"]
            text = _sentence(lambda: results.page(results.path_of(_path(folder), name)))
            return text, name, gr.Row(visible=True)

        def remove(folder: str | None, name: str, sure: bool) -> tuple[Any, ...]:
            if not sure:
                return (gr.skip(),) * 3
            shutil.rmtree(_sentence(lambda: results.path_of(_path(folder), name)))
            return "", None, gr.Row(visible=False)

        ask = "(folder, name, sure) => [folder, name, confirm('Delete this result?')]"
        tab.select(look, self.folder, [empty, gallery], **_QUIET)
        gallery.select(opened, self.folder, [page, chosen, row], **_QUIET)
        delete.click(
            remove, [self.folder, chosen, sure], [page, chosen, row], js=ask, **_QUIET
        ).then(look, self.folder, [empty, gallery], **_QUIET)

    # --- jobs ---------------------------------------------------------------------------------

    def _job(
        self,
        name: str,
        work: Work,
        fields: Sequence[Any],
        triggers: Sequence[Any],
        cancel: Any,
        right: Any,
    ) -> None:
        """Connect the fields of a tab with a job, whose result appears at the right."""
        with right:
            status = gr.HTML("", elem_classes="status")
            page, chosen, zip_row = self._output()

        def run(folder: str | None, model: str, *values: Any) -> Iterator[Any]:
            place = Path(folder or tempfile.mkdtemp(dir=self.temporary, prefix="session-"))

            def call(job: Job) -> tuple[Path, str]:
                result = work(job, place, model, *values)
                job.check()
                job.text = "Saving"
                prompt, seed, line = results.summary(result)
                return result.save(results.new_path(place, prompt, seed)), line

            job = Job(call)
            same = (gr.skip(),) * 3
            yield str(place), _status(job), "", None, gr.Row(visible=False)
            try:
                for _ in job:
                    yield gr.skip(), _status(job), *same
            except (HeedmapError, option_texts.Unreadable) as error:
                yield gr.skip(), "", *same
                raise gr.Error(str(error), duration=None, print_exception=False) from error
            path, line = job.result
            done = _done(path, line, job.notes)
            yield gr.skip(), done, results.page(path), path.name, gr.Row(visible=True)

        event = gr.on(
            triggers,
            run,
            [self.folder, self.model, *fields],
            [self.folder, status, page, chosen, zip_row],
            concurrency_limit=1,
            concurrency_id="model",
            show_progress="minimal",
            show_progress_on=status,
            api_name=name,
        )
        cancel.click(lambda: "Cancelled: nothing was saved.", None, status, cancels=event, **_QUIET)

    def _load(self, job: Job, model: str) -> tuple[Any, dict[str, Any]]:
        """Load a pipeline, and make the callbacks of a job that draws with it."""
        job.text = "Loading the model"
        pipe = self.models.load(model)
        return pipe, {"progress": job.progress, "preview": job.preview_of(pipe)}

    def _output(self) -> tuple[gr.HTML, gr.State, gr.Row]:
        """Add the page of a result, its name and the row of its button."""
        chosen = gr.State(None)
        with gr.Row(visible=False) as row:
            take = gr.Button("Download as zip", size="sm", scale=0, min_width=150)
        page = gr.HTML("")
        file = gr.DownloadButton(visible="hidden", elem_id=f"zip-{page._id}")

        def pack(folder: str | None, name: str) -> str:
            path = _sentence(lambda: results.path_of(_path(folder), name))
            base = self.temporary / "zips" / path.parent.name / name
            return shutil.make_archive(str(base), "zip", path.parent, name)

        press = f"() => document.getElementById('zip-{page._id}').click()"
        take.click(pack, [self.folder, chosen], file, **_QUIET).then(None, js=press)
        return page, chosen, row

    def _forget(self, folder: str | None) -> None:
        """Delete the results of a session that is over."""
        if folder is not None and self.out is None:
            shutil.rmtree(folder, ignore_errors=True)

    # --- fields -------------------------------------------------------------------------------

    def _draw_fields(self) -> list[Any]:
        """Add guidance, width, height, negative prompt and the axes to keep."""
        with gr.Row():
            numbers = [
                _text(name, placeholder="model default", min_width=100)
                for name in ("Guidance", "Width", "Height")
            ]
        negative = _text("Negative prompt")
        axes = [("layers", "layer"), ("steps", "step"), ("heads", "head")]
        small = self.models.names == [EMBEDDED]  # its maps take little memory
        keep = gr.CheckboxGroup(
            axes, value=[*AXES] if small else ["layer"], label="Tell apart on the page"
        )
        return [*numbers, negative, keep]


@contextmanager
def _columns() -> Iterator[tuple[gr.Column, gr.Column]]:
    """Add a column for the inputs, and one for the result beside it."""
    with gr.Row(equal_height=False):
        yield gr.Column(scale=2, min_width=340), gr.Column(scale=5, min_width=340)


def _buttons(name: str) -> tuple[gr.Button, gr.Button]:
    with gr.Row():
        return gr.Button(name, variant="primary"), gr.Button("Cancel", min_width=100)


def _text(label: str, **options: Any) -> gr.Textbox:
    """Add a field for a text, empty at first."""
    return gr.Textbox("", label=label, **options)


def _seed_and_steps() -> list[gr.Textbox]:
    with gr.Row():
        return [
            _text("Seed", placeholder="random", min_width=100),
            _text("Steps", placeholder="model default", min_width=100),
        ]


def _window(label: str) -> gr.Textbox:
    return _text(label, placeholder="by the edit", min_width=140, info="From the source up to: 0.8")


def _place(label: str) -> list[Any]:
    """Add a word and the place in which it is kept."""
    with gr.Row():
        word = _text(label, placeholder="cat", min_width=120)
        where = gr.Dropdown(
            [*PLACES],
            label="in",
            allow_custom_value=True,
            min_width=160,
            info="Or: left, top, right, bottom, in pixels.",
        )
    return [word, where]


def _blend_fields() -> list[Any]:
    """Add what is protected, the mask's threshold, and whether weights sum to 1 again."""
    with gr.Row():
        protect = _text("Protect", placeholder="snow, tree", min_width=140)
        threshold = _text("Threshold", placeholder=str(EditOptions.threshold), min_width=100)
    again = gr.Checkbox(EditOptions.renormalize, label="Let weighted attention sum to 1 again")
    return [protect, threshold, again]


def _vocabulary(prompt: gr.Textbox) -> None:
    """Add the words that the embedded model was taught; a click appends one to the prompt."""

    def add(row: list[str], text: str) -> str:
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
            rows.click(add, [rows, prompt], prompt, **_QUIET)


# --- values -----------------------------------------------------------------------------------


def _draw_options(
    steps: str, guidance: str, width: str, height: str, negative: str, keep: Any
) -> dict[str, Any]:
    sides = _read(_int, width), _read(_int, height)
    return {
        "steps": _read(_int, steps),
        "guidance": _read(_float, guidance),
        "size": sides if any(sides) else None,
        "negative": negative or None,
        "keep": keep,
    }


def _blend_options(only: str, protect: str, threshold: str, again: bool) -> dict[str, Any]:
    words = [word.strip() for word in protect.split(",") if word.strip()]
    options = {"only": only or None, "protect": words, "renormalize": again}
    return {**options, "threshold": _read(_float, threshold)} if threshold else options


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"{quoted(text)} is not a whole number") from None


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(f"{quoted(text)} is not a number") from None


def _box(where: str, size: tuple[int, int]) -> tuple[float, ...]:
    """Read a place: a half of the image by its name, or a box in pixels."""
    if where not in PLACES:
        return option_texts.sides_in(where)
    sides = zip(size * 2, PLACES[where], strict=True)
    return tuple(float(round(side * part)) for side, part in sides)


def _read(reader: Callable[[str], Any], text: str) -> Any:
    """Read a field's text; None where it is empty."""
    return reader(text) if text.strip() else None


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _path(folder: str | None) -> Path | None:
    return None if folder is None else Path(folder)


def _clicked(event: gr.SelectData) -> str:
    return "{},{}".format(*event.index)


def _sentence(work: Callable[[], Any]) -> Any:
    """Do some work; heedmap's errors become the page's."""
    try:
        return work()
    except HeedmapError as error:
        raise gr.Error(str(error), duration=None, print_exception=False) from error


def _status(job: Job) -> str:
    """Write where a job stands: its step, a bar, a preview."""
    steps = f": step {job.step} of {job.steps}" if job.steps else ""
    bar = f' value="{job.step}" max="{job.steps}"' if job.steps else ""
    image = f'<img src="{job.image}" alt="Preview">' if job.image else ""
    return f"<p>{job.text}{steps}</p><progress{bar} aria-label='Progress'></progress>{image}"


def _done(path: Path, line: str, notes: Sequence[str]) -> str:
    """Write what was saved, and what heedmap warned of."""
    said = [f"Saved as {path.name} · {line}", *notes]
    return "".join(f"<p>{html.escape(one)}</p>" for one in said)
