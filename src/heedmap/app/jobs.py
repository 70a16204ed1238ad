"""Pipelines by name, calls of heedmap that run in a thread, and the results that they save."""

import html
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d

from heedmap.backends import loading
from heedmap.backends.autoencoders import pictures_of, unscaled
from heedmap.errors import (
    ArgumentError,
    HeedmapError,
    RunError,
    quoted,
    record_warnings,
)
from heedmap.page import pages
from heedmap.tiny import FOLDERS

_POLL = 0.2  # seconds between two updates of the page
_PAUSE = 0.5  # seconds between two previews, at least
_DECODED = 32  # cells on the longer side of the latent that a preview is decoded from
_PATIENCE = 5.0  # seconds that the app waits for the job at work, before it ends
ONE_AT_A_TIME = threading.Lock()
"""Held by the job at work."""
ENDING = threading.Event()
"""Set while the app ends: no job works on."""


class Models:
    """The pipelines on offer; one at a time is in memory.

    Args:
        model: a pipeline; or the name of a model, or several, besides the embedded ones.
        options: `device` and `dtype`, as in `heedmap.load`.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        self._options = options
        self._loaded = ("", None)
        if model is None or isinstance(model, str | list | tuple):
            names = [model] if isinstance(model, str) else model or []
            self.names = [*dict.fromkeys([*names, *FOLDERS])]
        else:
            self.names = [loading.name_of(model)]
            self._loaded = (self.names[0], model)

    def load(self, name: str) -> Any:
        """Load a pipeline in place of the other; ArgumentError if the name is not on offer."""
        if name not in self.names:
            offered = ", ".join(self.names)
            raise ArgumentError(
                f"the app has no model {quoted(name)}: choose from {offered}"
            )
        if self._loaded[0] != name:
            self._loaded = ("", None)
            torch.cuda.empty_cache()
            self._loaded = (name, loading.load(name, **self._options))
        return self._loaded[1]


class Job:
    """A call of heedmap in a thread. Iterating over it runs it and yields its state as HTML.

    When the iteration stops, the job ends at its next step. One job works at a time.

    Attributes:
        future: the result or the error of the call.
        text: the state of the job.
        warnings: heedmap's warnings.
    """

    def __init__(self, work: Callable[["Job"], Any]) -> None:
        self.future: Future[Any] = Future()
        self.text = "Starting"
        self.warnings = list[str]()
        self._work = work
        self._cancelled = threading.Event()
        self._bar = ""
        self._preview = ""
        self._next = 0.0

    def __iter__(self) -> Iterator[str]:
        threading.Thread(target=self._run, name="heedmap-job", daemon=True).start()
        try:
            while not wait([self.future], _POLL).done:
                yield self.html()
        finally:
            self._cancelled.set()

    def _run(self) -> None:
        try:
            with ONE_AT_A_TIME, record_warnings() as self.warnings:
                self.check()
                result = self._work(self)
            self.future.set_result(result)
        except Exception as error:
            self.future.set_exception(error)

    def check(self) -> None:
        """Raise `CancelledError` if nobody follows the job any more, or HeedmapError at the end."""
        if ENDING.is_set():
            raise HeedmapError("the app was stopped")
        if self._cancelled.is_set():
            raise CancelledError

    def progress(self, step: int, steps: int) -> None:
        """Note a step; a cancelled job ends here."""
        self.text = f"Step {step} of {steps}"
        self._bar = f"value='{step}' max='{steps}'"
        self.check()

    def preview(self, pipe: Any) -> Callable[[torch.Tensor], None]:
        """Return a function that shows the latents of a pipeline, from time to time."""
        vae = pipe.vae

        def show(latents: torch.Tensor) -> None:
            if time.monotonic() >= self._next:
                sides = latents.shape[-2:]
                part = min(1.0, _DECODED / max(sides))
                h, w = (max(1, round(side * part)) for side in sides)
                small = adaptive_avg_pool2d(latents, (h, w))
                images = pictures_of(vae, unscaled(vae, small)).nan_to_num().clamp(0, 1)
                row = torch.cat([*images], dim=-1)  # side by side
                pixels = (row * 255).round().byte().movedim(0, -1).cpu().numpy()
                self._preview = pages.link(Image.fromarray(pixels), "webp", quality=80)
                self._next = time.monotonic() + _PAUSE

        return show

    def html(self) -> str:
        """Write the state of the job: its step, a bar, a preview; at the end the warnings."""
        if self.future.done():
            return "".join(
                f"<p>{html.escape(line)}</p>" for line in (self.text, *self.warnings)
            )
        image = f"<img src='{self._preview}' alt='Preview'>" if self._preview else ""
        return f"<p>{self.text}</p><progress {self._bar} aria-label='Progress'></progress>{image}"


def end_jobs() -> None:
    """Cancel all jobs, and wait for the one at work, but not for long."""
    ENDING.set()
    if ONE_AT_A_TIME.acquire(timeout=_PATIENCE):
        ONE_AT_A_TIME.release()


# --- saved results ----------------------------------------------------------------------------

MOST = 100  # results that are listed, the newest first
_IMAGES = ("image.png", "edited/image.png", "grid.png")


def names(folder: str | Path | None) -> list[str]:
    """List the results of a folder, the newest first; none if it is None."""
    pages = [] if folder is None else Path(folder).glob("[!.]*/index.html")
    results = sorted(
        (page.parent for page in pages), key=os.path.getmtime, reverse=True
    )
    return [result.name for result in results[:MOST]]


def drawn_names(folder: str | Path | None) -> list[str]:
    """List the results of a folder that have maps."""
    return [
        one
        for one in names(folder)
        if not Path(folder or "", one, "explain.json").exists()
    ]


def run_names(folder: str | Path | None) -> list[str]:
    """List the results of a folder that have maps; of a grid, its cells by their paths."""
    found: list[str] = []
    for name in drawn_names(folder):
        cells = sorted(Path(folder or "", name, "cells").glob("*"))
        found += [f"{name}/cells/{cell.name}" for cell in cells] or [name]
    return found


def path_of(folder: str | Path | None, name: str | None) -> Path:
    """Find a result by its name, or a run in it by its path; RunError if there is none."""
    if not name:
        raise ArgumentError("choose a result first")
    parts = Path(name).parts
    if folder is None or not parts or parts[0] not in names(folder) or ".." in parts:
        raise RunError(f"there is no result {quoted(name)}: choose one from the list")
    return Path(folder, name)


def thumbnails(folder: str | Path | None) -> list[tuple[Image.Image, str]]:
    """Read a small image of each result, with its name."""
    images: list[tuple[Image.Image, str]] = []
    for name in names(folder):
        for path in (Path(folder or "", name, image) for image in _IMAGES):
            if path.exists():
                image = Image.open(path)
                image.thumbnail((320, 320))
                images.append((image.convert("RGB"), name))
    return images


def page(path: Path, *, is_local: bool) -> str:
    """Read a result's page, in a sandboxed frame; it names its folder if that is local."""
    frame = pages.frame((path / "index.html").read_text("utf-8"))
    folder = f' data-folder="{html.escape(str(path))}"' if is_local else ""
    return f'<div class="page" data-result="{html.escape(path.name)}"{folder}>{frame}</div>'


def run_paths(path: Path) -> list[Path]:
    """List the runs in a result: two of an edit, each cell's edited run of a grid."""
    if (path / "edited").is_dir():
        return [path / "source", path / "edited"]
    return sorted((path / "cells").glob("*")) or [path]
