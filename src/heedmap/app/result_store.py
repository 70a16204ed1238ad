"""The app's results: one folder each, named by time and chance, never by what a user typed."""

import logging
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from heedmap.errors import RunError, plural
from heedmap.files import kinds
from heedmap.files.writing import WriteError, remove_folder
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{32}")
_SPARE = 256 * 2**20  # bytes that stay free on the disk


class ResultStore:
    """The folder that holds the results, and the only place that the app writes to.

    Args:
        root: the folder; made when the first result is put there.
        most: results that are kept; beyond that the oldest are deleted, except for those into which
            somebody has put something.
    """

    def __init__(self, root: str | Path, most: int) -> None:
        self.root = Path(root).absolute()
        self.most = most
        self._lock = threading.Lock()

    def put(self, result: Run | Pair) -> str:
        """Save a result, and return its name in the store, which nobody can guess.

        Raises:
            RunError: if the disk is full, or refuses otherwise. The sentence names no folder of the
                server; the log does.
        """
        name = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(16)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(self.root).free < _SPARE:
                raise RunError("the disk of the server is almost full: nothing was saved")
            result.save(self.root / name)
        except (WriteError, OSError) as error:
            _LOG.error("a result could not be saved: %s", error)
            reason = error.reason if isinstance(error, WriteError) else error.strerror
            raise RunError(f"the server could not save the result ({reason}): try later") from error
        with self._lock:
            for old in self.names()[: -self.most]:
                self._remove(old)
        return name

    def _remove(self, name: str) -> None:
        """Delete a result; what cannot be deleted, or holds something of somebody's, stays."""
        for kind in (kinds.PAIR, kinds.RUN):
            with suppress(RunError, OSError):
                if remove_folder(self.root / name, kind):
                    return

    def names(self) -> list[str]:
        """What is there, the oldest first; folders of other programs and people do not count."""
        if not self.root.is_dir():
            return []
        return sorted(
            entry.name
            for entry in self.root.iterdir()
            if _NAME.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink()
        )

    def folder(self, name: str) -> Path:
        """The folder of a result.

        Raises:
            RunError: if there is none of that name, or it is not a name that `put` gives.
        """
        folder = self.root / name if _NAME.fullmatch(name) else None
        if folder is None or folder.is_symlink() or not folder.is_dir():
            raise RunError("this result is not there any more: make it again")
        return folder


def read_result(folder: Path) -> Run | Pair:
    """A run or an edit from its folder; files are never trusted.

    Raises:
        RunError: if it is neither, or broken. The sentence names no folder of the server.
    """
    reader: Callable[[Path], Any] = Pair.load if (folder / "pair.json").exists() else Run.load
    try:
        return reader(folder)
    except RunError as error:
        said = str(error).replace(str(folder), "the result")
        raise RunError(said) from error


def made_with(result: Run | Pair) -> str:
    """What a result was made with, in a line."""
    run = result.edited if isinstance(result, Pair) else result
    seed, steps, model = run.settings.seed, run.settings.steps, _short(run.settings.model)
    size = "×".join(map(str, run.image.size))
    told = [plural(steps, "step")] if steps is not None else []
    return " · ".join([f"Seed {seed}", *told, f"{size} px", model])


def title(result: Run | Pair) -> str:
    """What a person calls a result: the prompt, or both."""
    if isinstance(result, Pair):
        return " → ".join(title(run) for run in (result.source, result.edited))
    return _short(result.settings.prompt)


def _short(said: str) -> str:
    return said if len(said) <= 100 else f"{said[:99]}…"
