"""What the jobs of the app do: load the model, draw or edit, save.

The same functions as the command line's, with the same arguments: the same bytes.
"""

import gc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heedmap import models
from heedmap.app.jobs import Job
from heedmap.app.limits import Limits
from heedmap.app.shelf import Shelf, figures, title
from heedmap.errors import ArgumentError, HeedmapWarning, quoted
from heedmap.pairs import Pair
from heedmap.runs import Run


@dataclass(frozen=True)
class Drawing:
    """What was asked for, of both kinds of jobs; None stands for the model's own."""

    model: str = models.EMBEDDED
    seed: int | None = None
    steps: int | None = None
    guidance: float | None = None
    size: tuple[int, int] | None = None
    negative: str | None = None
    keep: frozenset[Any] = frozenset({"layer"})


@dataclass(frozen=True)
class Generating(Drawing):
    """A picture of a prompt."""

    prompt: str = ""


@dataclass(frozen=True)
class Editing(Drawing):
    """An edit of a prompt; `target` is None where weights are all that changes."""

    source: str = ""
    target: str | None = None
    cross: float = 0.8
    self_attention: float = 0.4
    only: str | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Made:
    """A result, as texts alone: what is kept of it for each visitor is small.

    Attributes:
        name: on the shelf.
        title: what a person calls it.
        figures: what it was made with.
        notes: what was warned of.
    """

    name: str
    title: str
    figures: str
    notes: tuple[str, ...] = ()


class Workshop:
    """Holds one pipeline at a time, and draws with it.

    Args:
        shelf: where results go.
        limits: what may be asked for.
        named: the models that the operator offers, besides the embedded one.
        free: whether others may be asked for too, folders of this machine among them.
        device: as in `heedmap.load`.
        dtype: as in `heedmap.load`.
    """

    def __init__(
        self, shelf: Shelf, limits: Limits, *, named: Sequence[str] = (), free: bool = False,
        device: str = "auto", dtype: str = "auto",
    ) -> None:  # fmt: skip
        self.shelf, self.limits, self.free = shelf, limits, free
        self.models = tuple(dict.fromkeys([models.EMBEDDED, *named]))
        self._device, self._dtype = device, dtype
        self._held: tuple[str, Any] | None = None

    def check(self, asked: Drawing) -> None:
        """Raise an ArgumentError if something is beyond the limits, before the job is in line."""
        if asked.model not in self.models and not self.free:
            raise ArgumentError(
                f"the model {quoted(asked.model)} is not offered here: expected one of "
                f"{', '.join(self.models)}"
            )
        texts = {"negative prompt": asked.negative, "name of the model": asked.model}
        if isinstance(asked, Generating):
            texts["prompt"] = asked.prompt
        if isinstance(asked, Editing):
            texts |= {"prompt": asked.source, "new prompt": asked.target, "only": asked.only}
        for name, text in texts.items():
            self.limits.check_text(name, text or "")
        if asked.steps is not None:
            self.limits.check_steps(asked.steps)
        if asked.size is not None:
            self.limits.check_size(asked.size)

    def generate(self, asked: Generating, job: Job) -> Made:
        """Draw a prompt, and save the run."""
        pipe = self._ready(asked, job)
        from heedmap import studio

        def draw(**watched: Any) -> Run:
            return studio.generate(pipe, asked.prompt, **_options(asked), **watched)

        return self._made(draw, pipe, job)

    def edit(self, asked: Editing, job: Job) -> Made:
        """Draw a prompt and its edit, and save the pair."""
        pipe = self._ready(asked, job)
        from heedmap import editing

        options = _options(asked)
        if asked.threshold is not None:
            options["threshold"] = asked.threshold

        def draw(**watched: Any) -> Pair:
            return editing.edit(
                pipe, asked.source, asked.target, cross=asked.cross,
                self_attention=asked.self_attention, only=asked.only, **options, **watched,
            )  # fmt: skip

        return self._made(draw, pipe, job)

    def pipeline(self, name: str) -> Any:
        """The pipeline of a model; the one that was held before is let go."""
        if self._held is None or self._held[0] != name:
            self._held = None
            _free_memory()
            model = None if name == models.EMBEDDED else name
            self._held = (name, models.load(model, device=self._device, dtype=self._dtype))
        return self._held[1]

    def _ready(self, asked: Drawing, job: Job) -> Any:
        """The pipeline, if what it draws by itself is within the limits."""
        self.check(asked)
        if self._held is None or self._held[0] != asked.model:
            job.tell(f"Loading the model {asked.model}")
        pipe = self.pipeline(asked.model)
        if asked.size is None:
            self.limits.check_size(models.own_size(pipe))
        if asked.steps is None:
            self.limits.check_steps(_own_steps(pipe))
        job.check()
        return pipe

    def _made(self, draw: Callable[..., Run | Pair], pipe: Any, job: Job) -> Made:
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
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", category=HeedmapWarning)
            result = draw(progress=progress, preview=preview)
        job.tell("Saving the result and its page")
        name = self.shelf.put(result)
        notes = tuple(str(warning.message) for warning in told)
        return Made(name, title(result), figures(result), notes)


def _options(asked: Drawing) -> dict[str, Any]:
    return {
        "seed": asked.seed,
        "steps": asked.steps,
        "guidance": asked.guidance,
        "size": asked.size,
        "negative": asked.negative,
        "keep": asked.keep,
    }


def _own_steps(pipe: Any) -> int:
    """The steps that a pipeline takes unless it is told otherwise."""
    from heedmap import settings

    steps, _ = settings.asked(pipe, "steps", None)
    return 50 if steps is None else steps


def _free_memory() -> None:
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
