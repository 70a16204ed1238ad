"""What the jobs of the app do: load the model, draw or edit, save.

The same functions as the command line's, with the same arguments: the same bytes.
"""

import gc
import math
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from heedmap import checks
from heedmap.app.jobs import Job
from heedmap.app.labels import LABELLED
from heedmap.app.options import MOST_LETTERS, Options
from heedmap.app.requests import (
    EditRequest,
    ExplainRequest,
    GenerateRequest,
    GridRequest,
    JobRequest,
)
from heedmap.app.result_store import Result, ResultStore, read_result
from heedmap.errors import ArgumentError, Named, Value, plural, quoted, warnings_heard
from heedmap.models import pipelines
from heedmap.options import AXES, DrawOptions, ExplainOptions
from heedmap.results import aiming
from heedmap.results.amounts import check_axes
from heedmap.results.explanations import Explanation
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights
from heedmap.tiny.card import EMBEDDED

Asked = TypeVar("Asked", bound=JobRequest)


@dataclass(frozen=True)
class ResultSummary:
    """A result that was made just now.

    Attributes:
        name: on the visitor's shelf.
        made_with: seed, steps, size and model, in a line.
        notes: what was warned of, and what this server's limits changed.
    """

    name: str
    made_with: str
    notes: tuple[str, ...] = ()


class Worker:
    """Holds one pipeline at a time, and draws with it.

    Args:
        store: where results go.
        options: what may be asked for; where only this machine is served, its folders too.
    """

    def __init__(self, store: ResultStore, options: Options) -> None:
        self.store, self.limits, self.free = store, options.limits, options.is_private
        self.models = tuple(dict.fromkeys([EMBEDDED, *options.models]))
        self._loading = options.loading
        self._held: tuple[str, Any] | None = None

    def check(self, asked: JobRequest) -> None:
        """Raise an ArgumentError if something is beyond the limits, before the job is in line."""
        if asked.model not in self.models and not self.free:
            raise ArgumentError(
                *(Named("the model"), " ", Value("model", asked.model), " is not offered here: "),
                f"expected one of {', '.join(self.models)}",
            )
        steps, size = asked.options.steps, asked.options.size
        texts = {"negative": asked.options.negative, "model": asked.model}
        if isinstance(asked, EditRequest | GridRequest):
            texts |= {"only": asked.edit.only, "protect": ", ".join(asked.edit.protect)}
        names = ["prompt", *["target"] * len(asked.prompts)]
        for name, text in [*zip(names, asked.prompts, strict=False), *texts.items()]:
            checks.text(name, text or "", most=MOST_LETTERS)
        for name, text in zip(names, asked.prompts, strict=False):
            if not text.strip():
                raise ArgumentError(Named(name), " is empty: write what is to be drawn")
        if steps is not None:
            self.limits.check_steps(steps)
        if size is not None:
            self.limits.check_size(size)
        if isinstance(asked, GridRequest):
            self.limits.check_cells(math.prod(map(len, asked.axes)))
            check_axes(asked.axes)
        if isinstance(asked, ExplainRequest):
            self.store.shelf(asked.visitor).result(asked.result)
        self.store.check(asked.visitor)

    def generate(self, asked: GenerateRequest, job: Job) -> ResultSummary:
        """Draw a prompt, and save the run."""
        pipe, asked, notes = self._ready(asked, job)
        from heedmap.drawing import generation
        from heedmap.recording.edits import Confine
        from heedmap.wiring import registry

        options = asked.options.named()
        size = asked.options.size or registry.usual_size(pipe)
        edits = [Confine(one.word, one.box(size)) for one in asked.placed]

        def draw(**watched: Any) -> Run:
            return generation.generate(
                pipe, asked.prompt, seed=asked.seed, edits=edits, **options, **watched
            )

        return self._made(draw, pipe, asked, job, notes)

    def edit(self, asked: EditRequest, job: Job) -> ResultSummary:
        """Draw a prompt and its edit, and save the pair."""
        pipe, asked, notes = self._ready(asked, job)
        from heedmap.drawing import editing

        options = asked.edit.named() | asked.options.named()

        def draw(**watched: Any) -> Pair:
            return editing.edit(
                pipe, asked.source, asked.target, seed=asked.seed, **options, **watched
            )

        return self._made(draw, pipe, asked, job, notes)

    def grid(self, asked: GridRequest, job: Job) -> ResultSummary:
        """Draw a prompt and many of its edits, and save the grid."""
        pipe, asked, notes = self._ready(asked, job)
        from heedmap.drawing import editing

        first = secrets.randbelow(2**31) if asked.seed is None else asked.seed
        options = asked.edit.named() | asked.options.named()
        if asked.strengths:
            options["cross"] = list(asked.strengths)
        if asked.own_strengths:
            options["self_attention"] = list(asked.own_strengths)

        def draw(**watched: Any) -> Grid:
            return editing.grid(
                pipe,
                asked.source,
                list(asked.targets) or None,
                weights=asked.weights,
                seeds=[first + number for number in range(asked.count)],
                **options,
                **watched,
            )

        return self._made(draw, pipe, asked, job, notes)

    def explain(self, asked: ExplainRequest, job: Job) -> ResultSummary:
        """Draw a result of the visitor's again up to a step, take a number apart, and save that."""
        self.check(asked)
        run = self._explained(asked)
        about = run.settings
        given: dict[str, Any] = {name: getattr(asked, name) for name in ("layer", "head", "step")}
        aiming.aim_at(run, asked.word, asked.at, branch=ExplainOptions.branch, **given)
        if about.model not in {*self.models, asked.model}:
            raise ArgumentError(
                f"this result was drawn with {quoted(about.model)}, which nobody chose here: take "
                "it as ",
                Named("model"),
            )
        self.limits.check_steps(aiming.steps_of(run))
        self.limits.check_size(run.image.size)
        pipe = self._loaded(about.model, job)
        from heedmap.drawing import explaining

        def draw(progress: Any, **_: Any) -> Explanation:
            return explaining.explain(pipe, run, asked.word, asked.at, progress=progress, **given)

        return self._made(draw, pipe, asked, job, [])

    def _explained(self, asked: ExplainRequest) -> Run:
        """The run that is meant, of the visitor's own results."""
        found = read_result(self.store.shelf(asked.visitor).folder(asked.result))
        if isinstance(found, Grid):
            number = checks.whole("cell", asked.cell, least=1, most=len(found.cells))
            found = found.cells[number - 1].pair
        elif asked.cell is not None:
            raise ArgumentError(
                *(Named("cell"), f" is for a grid, and {asked.result} is none: leave it empty")
            )
        return aiming.explained_run(found, asked.result)

    def pipeline(self, name: str) -> Any:
        """The pipeline of a model; the one that was held before is let go."""
        if self._held is None or self._held[0] != name:
            self._held = None
            _free_memory()
            model = None if name == EMBEDDED else name
            self._held = (name, pipelines.load(model, **asdict(self._loading)))
        return self._held[1]

    def _ready(self, asked: Asked, job: Job) -> tuple[Any, Asked, list[str]]:
        """The pipeline, what it is to draw, and what is told of that."""
        self.check(asked)
        pipe = self._loaded(asked.model, job)
        return pipe, *self._fitted(asked, pipe)

    def _loaded(self, model: str, job: Job) -> Any:
        if self._held is None or self._held[0] != model:
            job.tell(f"Loading the model {model}")
        pipe = self.pipeline(model)
        job.check()
        return pipe

    def _fitted(self, asked: Asked, pipe: Any) -> tuple[Asked, list[str]]:
        """What was asked for, and within the limits also where it was left to the model."""
        from heedmap.drawing import settings
        from heedmap.wiring import registry

        notes: list[str] = []
        most, (own, _) = self.limits.steps, settings.asked(pipe, "steps", None)
        options = asked.options
        if options.steps is None and own is not None and own > most:
            options = replace(options, steps=most)
            notes.append(
                f"drawn in {plural(most, 'step')}, the most that this server draws; the model's "
                f"own are {own}"
            )
        width, height = registry.usual_size(pipe)
        if options.size is None and max(width, height) > self.limits.size:
            size = _shrunk(pipe, (width, height), self.limits.size)
            self.limits.check_size(size)  # a model may have no size as small as that
            options = replace(options, size=size)
            notes.append(
                f"drawn at {size[0]}×{size[1]} pixels, the most of the model's own shape that this "
                f"server draws; its own are {width}×{height}"
            )
        if asked.roomy and self._is_small(asked, options, pipe):
            options = replace(options, keep=AXES)
        return replace(asked, options=options), notes

    def _is_small(self, asked: JobRequest, options: DrawOptions, pipe: Any) -> bool:
        """Whether the maps take little memory with all their axes kept."""
        from heedmap.drawing import settings
        from heedmap.models.batches import map_bytes
        from heedmap.wiring import prompt_tables, registry

        steps, _ = settings.asked(pipe, "steps", options.steps)
        if not isinstance(steps, int) or isinstance(asked, GridRequest):
            return False
        texts = [parse_weights(prompt).text for prompt in asked.prompts]
        tables = [prompt_tables.prompt_table(pipe, text) for text in texts]
        tokens = sum(len(table.tokens) - len(table.positions("pad")) for table in tables)
        size = options.size or registry.usual_size(pipe)
        return map_bytes(pipe, tokens, size, steps) <= self.limits.maps

    def _made(
        self, draw: Callable[..., Result], pipe: Any, asked: JobRequest, job: Job, notes: list[str]
    ) -> ResultSummary:
        from heedmap.app.previews import Previewer, data_url

        shown: list[str] = []

        def progress(step: int, steps: int) -> None:
            job.tell("Drawing", step, steps, shown.pop() if shown else "")

        def preview(latents: Any) -> None:
            previewer(latents)
            if shown:
                state = job.state
                job.tell(state.doing, state.step, state.steps, shown.pop())

        previewer = Previewer(pipe, lambda image: shown.append(data_url(image)))
        job.tell("Drawing")
        with warnings_heard(tongue=LABELLED) as warned:
            result = draw(progress=progress, preview=preview)
        job.tell("Saving the result and its page")
        found = self.store.put(result, asked.visitor)
        beneath = _told_by_the_page(result)
        left = (said for said in warned if said not in beneath)
        return ResultSummary(found.name, found.made_with, (*notes, *left))


def _shrunk(pipe: Any, size: tuple[int, int], most: int) -> tuple[int, int]:
    """The largest size of about that shape that a pipeline draws with no side above `most`."""
    from heedmap.wiring.registry import unit

    factor = unit(pipe)
    width, height = (max(factor, side * most // max(size) // factor * factor) for side in size)
    return width, height


def _told_by_the_page(result: Result) -> set[str]:
    """What the page of a result tells where it opens: it is not told again beside it."""
    from heedmap.explorer import told

    if isinstance(result, Explanation):
        return set()
    pair = result.cells[0].pair if isinstance(result, Grid) else result
    if isinstance(pair, Run):
        return told.beneath_prompts([pair])
    return told.beneath_prompts([pair.source, pair.edited], pair.about.notes or ())


def _free_memory() -> None:
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
