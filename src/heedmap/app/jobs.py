"""The app's work: pipelines by name, and a call of heedmap that runs in a thread."""

import base64
import gc
import io
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from PIL import Image

from heedmap.errors import ArgumentError, HeedmapWarning, quoted
from heedmap.models import pipelines
from heedmap.options import Device, Dtype
from heedmap.tiny.card import EMBEDDED
from heedmap.wiring.colours import fit_colours
from heedmap.wiring.decoding import overflows, pictures_of, unscaled
from heedmap.wiring.registry import family_of

_LOOK = 0.2  # seconds between two looks at a job
_PAUSE = 0.5  # seconds between two previews, at least
_DECODED = 32 * 32  # cells of a latent up to which the decoder is fast enough for previews
_SIDE = 256  # pixels of a preview's height


class Models:
    """The pipelines that may be used, by name; one at a time is in memory.

    Args:
        model: a pipeline; or a name, or several, to choose from besides the embedded model.
        others: whether any other name may be loaded, too.
        device: as of `heedmap.load`.
        dtype: as of `heedmap.load`.
    """

    def __init__(
        self, model: Any, *, others: bool, device: Device = "auto", dtype: Dtype = "auto"
    ) -> None:
        given = [] if model is None else [model] if isinstance(model, str) else model
        self.others, self._held = others, ("", None)
        self._options: dict[str, Any] = {"device": device, "dtype": dtype}
        if isinstance(given, Sequence):
            self.names = [*dict.fromkeys([*map(str, given), EMBEDDED])]
        else:
            self.names, self.others = [pipelines.name_of(given)], False
            self._held = (self.names[0], given)

    def load(self, name: str) -> Any:
        """Load a pipeline, and drop the one before it.

        Raises:
            ArgumentError: if the name is not one to choose from.
        """
        if name not in self.names and not self.others:
            known = ", ".join(self.names)
            raise ArgumentError(f"the model {quoted(name)} is not offered here: choose of {known}")
        if self._held[0] != name:
            self._held = ("", None)
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            model = None if name == EMBEDDED else name
            self._held = (name, pipelines.load(model, **self._options))
        return self._held[1]


class Cancelled(Exception):
    """The end of a job that nobody follows any more."""


class Job:
    """A call of heedmap in a thread, followed by iterating over the job.

        job = Job(lambda job: heedmap.generate(pipe, prompt, progress=job.progress))
        for _ in job:
            print(job.text, job.step, job.steps)
        job.result

    Whoever stops iterating cancels the job: it ends at its next step. One job works at a time.

    Attributes:
        text: what it is doing.
        step: the steps that are done.
        steps: the number of all steps; 0 while it is unknown.
        image: a preview, as a data URL; "" without.
        notes: heedmap's warnings.
        result: what the call returned.
    """

    _AT_WORK = threading.Lock()

    def __init__(self, work: Callable[["Job"], Any]) -> None:
        self.text, self.step, self.steps, self.image = "Starting", 0, 0, ""
        self.notes: list[str] = []
        self.result: Any = None
        self._work = work
        self._error: Exception | None = None
        self._stop, self._ended = threading.Event(), threading.Event()
        self._next = 0.0  # when the next preview may be drawn

    def __iter__(self) -> Iterator[None]:
        threading.Thread(target=self._run, name="heedmap-job", daemon=True).start()
        try:
            while not self._ended.wait(_LOOK):
                yield
        finally:
            self._stop.set()
        if self._error is not None:
            raise self._error

    def progress(self, step: int, steps: int) -> None:
        """Note a step; a cancelled job ends here."""
        self.text, self.step, self.steps = "Drawing", step, steps
        self.check()

    def check(self) -> None:
        """Raise `Cancelled` if nobody follows any more."""
        if self._stop.is_set():
            raise Cancelled

    def preview_of(self, pipe: Any) -> Callable[[torch.Tensor], None]:
        """Make the callback that turns the latents of a pipeline into the job's preview."""
        draw = previewer(pipe)

        def preview(latents: torch.Tensor) -> None:
            start = time.monotonic()
            if start >= self._next:
                self.image = draw(latents)
                now = time.monotonic()
                self._next = now + max(_PAUSE, 4 * (now - start))  # a fifth of the time at most

        return preview

    def _run(self) -> None:
        try:
            with self._AT_WORK, warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", HeedmapWarning)
                self.check()
                self.result = self._work(self)
            self.notes = [*dict.fromkeys(str(one.message) for one in heard)]
        except Exception as error:
            self._error = error
        finally:
            self._ended.set()


def previewer(pipe: Any) -> Callable[[torch.Tensor], str]:
    """Make the function from latents (B, C, h, w) to a small picture, as a data URL.

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
