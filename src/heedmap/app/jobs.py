"""Pipelines by name, and calls of heedmap that run in a thread."""

import base64
import html
import io
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from PIL import Image

from heedmap.errors import ArgumentError, quoted, warnings_heard
from heedmap.models import pipelines
from heedmap.tiny.card import EMBEDDED
from heedmap.wiring.colours import fit_colours
from heedmap.wiring.decoding import overflows, pictures_of, unscaled
from heedmap.wiring.registry import family_of

_POLL = 0.2  # seconds between two updates of the page
_PAUSE = 0.5  # seconds between two previews, at least
_DECODED = 32 * 32  # cells of a latent up to which the decoder is fast enough for previews
_SIDE = 256  # pixels of a preview's height


class Models:
    """The pipelines on offer; one at a time is in memory.

    Args:
        model: a pipeline; or the name of a model, or several, on offer besides the embedded one.
        others: whether any other name may be loaded, too.
        options: `device` and `dtype`, as in `heedmap.load`.
    """

    def __init__(self, model: Any, *, others: bool, **options: Any) -> None:
        self.others, self._options, self._loaded = others, options, ("", None)
        if model is None or isinstance(model, str | list | tuple):
            given = [model] if isinstance(model, str) else model or []
            self.names = [*dict.fromkeys([*given, EMBEDDED])]
        else:
            self.names, self.others = [pipelines.name_of(model)], False
            self._loaded = (self.names[0], model)

    def load(self, name: str) -> Any:
        """Load a pipeline, in the place of the one before it.

        Raises:
            ArgumentError: if the name is not on offer.
        """
        if name not in self.names and not self.others:
            known = ", ".join(self.names)
            raise ArgumentError(f"the model {quoted(name)} is not offered here: choose of {known}")
        if self._loaded[0] != name:
            self._loaded = ("", None)
            torch.cuda.empty_cache()
            model = None if name == EMBEDDED else name
            self._loaded = (name, pipelines.load(model, **self._options))
        return self._loaded[1]


class Cancelled(Exception):
    """The end of a job that nobody follows any more."""


class Job:
    """A call of heedmap in a thread, followed by iterating over the job.

        job = Job(lambda job: heedmap.generate(pipe, prompt, **job.callbacks(pipe)))
        for _ in job:
            print(job.html())
        job.result

    When the iteration stops, the job ends at its next step. One job works at a time.

    Attributes:
        text: what it is doing.
        warnings: heedmap's warnings.
        result: what the call returned.
    """

    _AT_WORK = threading.Lock()

    def __init__(self, work: Callable[["Job"], Any]) -> None:
        self.text, self.warnings = "Starting", list[str]()
        self.result: Any = None
        self._work, self._error = work, None
        self._steps, self._preview = (0, 0), ""
        self._next = 0.0  # when the next preview may be drawn
        self._stop, self._ended = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[None]:
        threading.Thread(target=self._run, name="heedmap-job", daemon=True).start()
        try:
            while not self._ended.wait(_POLL):
                yield
        finally:
            self._stop.set()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with self._AT_WORK, warnings_heard() as self.warnings:
                self.check()
                self.result = self._work(self)
        except Exception as error:
            self._error = error
        finally:
            self._ended.set()

    def check(self) -> None:
        """Raise `Cancelled` if nobody follows the job any more."""
        if self._stop.is_set():
            raise Cancelled

    def progress(self, step: int, steps: int) -> None:
        """Note a step; a cancelled job ends here."""
        self.text, self._steps = "Drawing", (step, steps)
        self.check()

    def callbacks(self, pipe: Any) -> dict[str, Any]:
        """Make the callbacks `progress` and `preview` of a call that draws with a pipeline."""
        draw = previewer(pipe)

        def preview(latents: torch.Tensor) -> None:
            start = time.monotonic()
            if start >= self._next:
                self._preview = draw(latents)
                now = time.monotonic()
                self._next = now + max(_PAUSE, 4 * (now - start))  # a fifth of the time at most

        return {"progress": self.progress, "preview": preview}

    def html(self) -> str:
        """Write the state of the job: its step, a bar, a preview."""
        step, steps = self._steps
        text, bar = (f": step {step} of {steps}", f' value="{step}" max="{steps}"')
        text, bar = (text, bar) if steps else ("", "")
        image = f'<img src="{self._preview}" alt="Preview">' if self._preview else ""
        return f"<p>{self.text}{text}</p><progress{bar} aria-label='Progress'></progress>{image}"


def paragraphs(lines: list[str]) -> str:
    """Write texts as HTML."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def previewer(pipe: Any) -> Callable[[torch.Tensor], str]:
    """Make the function from latents (B, C, h, w) to a small image, as a data URL.

    The pipeline's decoder draws small latents. For larger ones each cell's colour is a linear
    function of its channels, fitted to the autoencoder.
    """
    vae = family_of(pipe).decoder(pipe)
    fitted: list[Any] = []

    @torch.no_grad()
    def draw(latents: torch.Tensor) -> str:
        latents = unscaled(vae, latents)
        if latents.shape[-2] * latents.shape[-1] <= _DECODED and not overflows(vae):
            colours = pictures_of(vae, latents)
        else:
            fitted[:] = fitted or [fit_colours(vae)]
            colours = fitted[0](latents)
        row = torch.cat([*torch.nan_to_num(colours).clamp(0, 1)], dim=-1)  # side by side
        image = Image.fromarray((row * 255).round().byte().movedim(0, -1).cpu().numpy())
        width = max(1, round(image.width * _SIDE / image.height))
        file = io.BytesIO()
        image.resize((width, _SIDE), Image.Resampling.BILINEAR).save(file, "WEBP", quality=80)
        return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"

    return draw
