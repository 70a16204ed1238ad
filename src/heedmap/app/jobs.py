"""Pipelines by name, calls of heedmap that run in a thread, and the results that they save."""

import html
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from heedmap.backends import loading
from heedmap.checks import check_one_of
from heedmap.errors import RunError, record_warnings
from heedmap.page import pages
from heedmap.tiny import FOLDERS

_POLL = 0.2  # seconds between two updates of the page
_WORKER = ThreadPoolExecutor(1, "heedmap-job")
"""Runs one job at a time."""


class Models:
    """The pipelines on offer; one at a time is in memory.

    Args:
        model: a pipeline; or the name of a model, or several, besides the embedded ones.
        options: `device` and `dtype`, as in `heedmap.load`.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        self._options = options
        self._pipes: dict[str, Any] = {}
        if isinstance(model, str):
            model = [model]
        if model is None or isinstance(model, list | tuple):
            self.names = [*dict.fromkeys([*(model or ()), *FOLDERS])]
        else:
            self.names = [loading.name_of(model)]
            self._pipes[self.names[0]] = model

    def load(self, name: str) -> Any:
        """Load a pipeline in place of the other; ArgumentError if the name is not on offer."""
        check_one_of("the model", name, self.names)
        if name not in self._pipes:
            self._pipes.clear()
            torch.cuda.empty_cache()
            self._pipes[name] = loading.load(name, **self._options)
        return self._pipes[name]


class Job:
    """A call of heedmap in a thread. Iterating over it runs it and yields its state as HTML.

    When the iteration stops, the job ends at its next step. One job works at a time.

    Attributes:
        future: the result or the error of the call.
        text: the state of the job.
        warnings: heedmap's warnings.
    """

    def __init__(self, work: Callable[["Job"], Any]) -> None:
        self.text = "Starting"
        self.warnings = list[str]()
        self._work = work
        self._cancelled = threading.Event()
        self._bar = ""

    def __iter__(self) -> Iterator[str]:
        self.future = _WORKER.submit(self._run)
        try:
            while not wait([self.future], _POLL).done:
                yield self.html()
        finally:
            self._cancelled.set()

    def _run(self) -> Any:
        self.check()
        with record_warnings() as self.warnings:
            return self._work(self)

    def check(self) -> None:
        """Raise `CancelledError` if nobody follows the job any more."""
        if self._cancelled.is_set():
            raise CancelledError

    def progress(self, step: int, steps: int) -> None:
        """Note a step; a cancelled job ends here."""
        self.text = f"Step {step} of {steps}"
        self._bar = f"value='{step}' max='{steps}'"
        self.check()

    def html(self) -> str:
        """Write the state of the job: its step and a bar; at the end the warnings."""
        if self.future.done():
            lines = map(html.escape, (self.text, *self.warnings))
            return "".join(f"<p>{line}</p>" for line in lines)
        bar = f"<progress {self._bar} aria-label='Progress'></progress>"
        return f"<p>{self.text}</p>{bar}"


# --- saved results ----------------------------------------------------------------------------

_IMAGES = ("image.png", "edited/image.png", "grid.png")


def names(folder: str) -> list[str]:
    """List the 100 newest results of a folder, the newest first."""
    pages = Path(folder).glob("[!.]*/index.html")
    results = sorted(
        (page.parent for page in pages), key=os.path.getmtime, reverse=True
    )
    return [result.name for result in results[:100]]


def run_names(folder: str) -> list[str]:
    """List the runs of a folder, by their paths in it: of an edit, a grid and an ablation all."""
    files = (sorted(Path(folder, name).rglob("run.json")) for name in names(folder))
    runs = (file.parent.relative_to(folder) for file in chain.from_iterable(files))
    return [run.as_posix() for run in runs]


def path_of(folder: str, name: str, known: Sequence[str]) -> Path:
    """Return the path of a result or a run; RunError unless its name is known."""
    if name not in known:
        raise RunError("no result is chosen: choose one from the list")
    return Path(folder, name)


def thumbnails(folder: str) -> list[tuple[Image.Image, str]]:
    """Read a small image of each result, with its name."""
    images: list[tuple[Image.Image, str]] = []
    for name in names(folder):
        for path in (Path(folder, name, image) for image in _IMAGES):
            if path.exists():
                image = Image.open(path)
                image.thumbnail((320, 320))
                images.append((image.convert("RGB"), name))
    return images


def page(path: Path) -> str:
    """Read a result's page, in a sandboxed frame that names its folder."""
    frame = pages.frame((path / "index.html").read_text("utf-8"))
    name = path.name
    if (path / "edited").is_dir():  # the run of an edit that is explained
        name += "/edited"
    data = f'data-result="{html.escape(name)}" data-folder="{html.escape(str(path))}"'
    return f'<div class="page" {data}>{frame}</div>'
