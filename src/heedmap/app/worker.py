"""What the jobs of the app do: load the model, draw or edit, save.

The same functions as the command line's, with the same arguments: the same bytes.
"""

import gc
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from heedmap import checks
from heedmap.app.jobs import Job
from heedmap.app.options import MOST_LETTERS, Options
from heedmap.app.result_store import ResultStore, made_with, title
from heedmap.errors import ArgumentError, plural, quoted, warnings_heard
from heedmap.models import pipelines
from heedmap.options import DrawOptions, EditOptions
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run
from heedmap.tiny.card import EMBEDDED


@dataclass(frozen=True)
class JobRequest:
    """What a visitor asks for, of both kinds of jobs."""

    model: str = EMBEDDED
    seed: int | None = None
    options: DrawOptions = field(default_factory=DrawOptions)


@dataclass(frozen=True)
class GenerateRequest(JobRequest):
    """A picture of a prompt."""

    prompt: str = ""


@dataclass(frozen=True)
class EditRequest(JobRequest):
    """An edit of a prompt; `target` is None where weights are all that changes."""

    source: str = ""
    target: str | None = None
    edit: EditOptions = field(default_factory=EditOptions)


Asked = TypeVar("Asked", bound=JobRequest)


@dataclass(frozen=True)
class ResultSummary:
    """A result, as texts alone: what is kept of it for each visitor is small.

    Attributes:
        name: in the store.
        title: what a person calls it.
        made_with: seed, steps, size and model, in a line.
        notes: what was warned of, and what this server's limits changed.
    """

    name: str
    title: str
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
                f"the model {quoted(asked.model)} is not offered here: expected one of "
                f"{', '.join(self.models)}"
            )
        steps, size = asked.options.steps, asked.options.size
        texts = {"negative prompt": asked.options.negative, "name of the model": asked.model}
        if isinstance(asked, GenerateRequest):
            texts["prompt"] = asked.prompt
        if isinstance(asked, EditRequest):
            texts |= {"prompt": asked.source, "new prompt": asked.target, "only": asked.edit.only}
        for name, text in texts.items():
            checks.text(f"the {name}", text or "", most=MOST_LETTERS)
        if steps is not None:
            self.limits.check_steps(steps)
        if size is not None:
            self.limits.check_size(size)

    def generate(self, asked: GenerateRequest, job: Job) -> ResultSummary:
        """Draw a prompt, and save the run."""
        pipe, asked, notes = self._ready(asked, job)
        from heedmap.drawing import generation

        def draw(**watched: Any) -> Run:
            options = asked.options.named()
            return generation.generate(pipe, asked.prompt, seed=asked.seed, **options, **watched)

        return self._made(draw, pipe, job, notes)

    def edit(self, asked: EditRequest, job: Job) -> ResultSummary:
        """Draw a prompt and its edit, and save the pair."""
        pipe, asked, notes = self._ready(asked, job)
        from heedmap.drawing import editing

        options = asked.edit.named() | asked.options.named()

        def draw(**watched: Any) -> Pair:
            return editing.edit(
                pipe, asked.source, asked.target, seed=asked.seed, **options, **watched
            )

        return self._made(draw, pipe, job, notes)

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
        if self._held is None or self._held[0] != asked.model:
            job.tell(f"Loading the model {asked.model}")
        pipe = self.pipeline(asked.model)
        job.check()
        return pipe, *self._fitted(asked, pipe)

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
        return replace(asked, options=options), notes

    def _made(
        self, draw: Callable[..., Run | Pair], pipe: Any, job: Job, notes: list[str]
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
        with warnings_heard() as warned:
            result = draw(progress=progress, preview=preview)
        job.tell("Saving the result and its page")
        name = self.store.put(result)
        return ResultSummary(name, title(result), made_with(result), (*notes, *warned))


def _shrunk(pipe: Any, size: tuple[int, int], most: int) -> tuple[int, int]:
    """The largest size of about that shape that a pipeline draws with no side above `most`."""
    from heedmap.wiring.registry import unit

    factor = unit(pipe)
    width, height = (max(factor, side * most // max(size) // factor * factor) for side in size)
    return width, height


def _free_memory() -> None:
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
