"""The app's results: a folder each, by a name that a person can read, on the visitor's shelf.

Where there is one shelf for all, it is the folder of the results itself, whatever heedmap saved
there. Else each visitor has a shelf within it, named after a digest of what their browser alone
knows: no visitor names a folder, and a name is looked up on one's own shelf only.
"""

import hashlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedmap.app.labels import sentence_for
from heedmap.errors import ArgumentError, HeedmapError, RunError, plural, quoted
from heedmap.files import kinds
from heedmap.files.notes import to_json
from heedmap.files.writing import Kind, WriteError, put_counting, remove_folder, rename_folder, slug
from heedmap.results.explanations import Explanation
from heedmap.results.folders import load_result
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

_LOG = logging.getLogger(__name__)
_KINDS = {
    "run": kinds.RUN,
    "edit": kinds.PAIR,
    "grid": kinds.GRID,
    "explanation": kinds.EXPLANATION,
}
_SHELF = re.compile(r"visitor-[0-9a-f]{32}")
_NAME = 80  # characters of a name that a visitor gives
_REMEMBERED = 4096  # folders of which a line is kept
_SPARE = 256 * 2**20  # bytes that stay free on the disk
_Known = dict[Path, tuple[tuple[int, int], "Shelved | None"]]

Result = Run | Pair | Grid | Explanation


@dataclass(frozen=True)
class Shelved:
    """A result on a shelf, by what its mark says.

    Attributes:
        name: of its folder.
        kind: "run", "edit", "grid" or "explanation".
        title: the prompt, or both.
        made_with: seed, steps, size and model, in a line.
        made: when, in seconds since 1970.
        cells: how many edits a grid has; 0 of all else.
    """

    name: str
    kind: str
    title: str
    made_with: str
    made: float
    cells: int


class Shelf:
    """The results that one visitor sees, or all do.

    Args:
        folder: that holds them; made when the first is put there.
        known: what was read of them before, by path; shared by all shelves of a store.
    """

    def __init__(self, folder: Path, known: _Known) -> None:
        self.root, self._known = folder, known

    def results(self) -> list[Shelved]:
        """What is there, the latest first; folders of other programs and people do not count."""
        try:
            names = os.listdir(self.root)
        except OSError:
            return []
        found = [self._looked_at(name) for name in names if _is_plain(name)]
        there = [one for one in found if one is not None]
        return sorted(there, key=lambda one: (one.made, one.name), reverse=True)

    def folder(self, name: str) -> Path:
        """The folder of a result.

        Raises:
            RunError: if there is none of that name here.
        """
        return self._found(name)[0]

    def rename(self, name: str, wanted: str) -> str:
        """Give a result another name: the letters and digits of what was asked for.

        Returns:
            Its name now.

        Raises:
            RunError: if it is not there, or a result or anything else has that name.
            ArgumentError: if there is no letter and no digit in it.
        """
        folder, _ = self._found(name)
        if not any(sign.isalnum() for sign in wanted):
            said = f"the name {quoted(wanted)} has no letter and no digit: expected some"
            raise ArgumentError(said)
        new = slug(wanted, _NAME)
        return name if new == name else rename_folder(folder, new).name

    def delete(self, name: str) -> None:
        """Delete a result.

        Raises:
            RunError: if it is not there, or holds something that heedmap did not write.
        """
        folder, kind = self._found(name)
        if not remove_folder(folder, kind):
            raise RunError(
                f"the result {name} holds files that heedmap did not write, and stays: delete it "
                "by hand"
            )

    def result(self, name: str) -> Shelved:
        """A line of a result; errors as of `folder`."""
        found = self._looked_at(name) if _is_plain(name) else None
        if found is None:
            raise RunError("this result is not there any more: make it again")
        return found

    def _found(self, name: str) -> tuple[Path, Kind]:
        return self.root / name, _KINDS[self.result(name).kind]

    def _looked_at(self, name: str) -> Shelved | None:
        """What the mark of a folder says of it; None of any that is no result, and of a link."""
        folder = self.root / name
        if folder.is_symlink():
            return None
        for kind, one in _KINDS.items():
            try:
                about = os.lstat(folder / one.mark)
            except (OSError, ValueError):
                continue
            stamp = about.st_mtime_ns, about.st_size
            if folder not in self._known or self._known[folder][0] != stamp:
                while len(self._known) >= _REMEMBERED:
                    self._known.pop(next(iter(self._known)), None)
                self._known[folder] = stamp, _told(folder, kind, about.st_mtime)
            if found := self._known[folder][1]:
                return found
        return None


class ResultStore:
    """The folder that holds the results, and the only place that the app writes to.

    Args:
        root: the folder; made when the first result is put there.
        most: results that are kept. On the one shelf of all nothing is deleted, and nothing more
            drawn beyond it; of several shelves the oldest results go, except for those into which
            somebody has put something.
        shared: whether there is one shelf for all.
    """

    def __init__(self, root: str | Path, most: int, *, shared: bool) -> None:
        self.root = Path(root).absolute()
        self.most, self.shared = most, shared
        self._known: _Known = {}
        self._lock = threading.Lock()

    def shelf(self, visitor: str) -> Shelf:
        """The results that a visitor sees.

        Args:
            visitor: what their browser alone knows; plays no part where all see all.

        Raises:
            HeedmapError: if it knows nothing, and each sees their own.
        """
        if self.shared:
            return Shelf(self.root, self._known)
        if not visitor:
            raise HeedmapError(
                "your browser keeps no cookie of this app, by which it would know your results: "
                "allow cookies here, and load the page anew"
            )
        digest = hashlib.sha256(visitor.encode()).hexdigest()[:32]
        return Shelf(self.root / f"visitor-{digest}", self._known)

    def check(self, visitor: str) -> None:
        """Raise a HeedmapError if nothing can be put on this visitor's shelf."""
        held = self.shelf(visitor).results()
        if self.shared and len(held) >= self.most:
            raise RunError(
                f"the folder of the results holds {plural(len(held), 'result')}, as many as it may "
                "have: delete some first"
            )

    def put(self, result: Result, visitor: str) -> Shelved:
        """Save a result on the visitor's shelf.

        Raises:
            RunError: if the disk is full, or refuses otherwise. The sentence names no folder of the
                server; the log does.
        """
        shelf = self.shelf(visitor)
        try:
            shelf.root.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(shelf.root).free < _SPARE:
                raise RunError("the disk of the server is almost full: nothing was saved")
            name = put_counting(shelf.root / first_name(result), result.save, force=False).name
        except (WriteError, OSError) as error:
            _LOG.error("a result could not be saved: %s", error)
            reason = error.reason if isinstance(error, WriteError) else error.strerror
            raise RunError(f"the server could not save the result ({reason}): try later") from error
        if not self.shared:
            with self._lock:
                self._make_room()
        return shelf.result(name)

    def _make_room(self) -> None:
        """Delete the oldest results of all visitors; what somebody has put something into stays."""
        shelves = [
            Shelf(Path(entry.path), self._known)
            for entry in os.scandir(self.root)
            if _SHELF.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
        held = [(one.made, shelf, one.name) for shelf in shelves for one in shelf.results()]
        for _, shelf, name in sorted(held, key=lambda one: one[0])[: -self.most]:
            with suppress(RunError, OSError):
                shelf.delete(name)
            with suppress(OSError):  # it holds others still
                shelf.root.rmdir()


def _is_plain(name: str) -> bool:
    """Whether a name is that of something within a folder, and can be told to a browser."""
    signs = bool(name) and not {"/", "\\", "\0"} & set(name) and not name.startswith(".")
    with suppress(UnicodeEncodeError):
        return signs and len(name.encode()) < 256
    return False


def _told(folder: Path, kind: str, made: float) -> Shelved | None:
    """A line of a result, by what its mark says, or that of its edited run; None if it is none."""
    about = _KINDS[kind].told(folder)
    if about is not None and kind == "edit":
        about = kinds.RUN.told(folder / "edited")
    if about is None:
        return None
    if kind in ("grid", "explanation"):
        of = _of_grid if kind == "grid" else _of_explanation
        cells = len(about["cells"]) if kind == "grid" else 0
        return Shelved(folder.name, kind, *of(about), made, cells)
    settings = about["settings"]
    edit = settings.get("edit")
    text = f"{edit.get('source', '')} → {settings['prompt']}" if edit else settings["prompt"]
    return Shelved(folder.name, kind, _short(text), _line(settings), made, cells=0)


def _of_grid(about: dict[str, Any]) -> tuple[str, str]:
    """Title and line of a grid."""
    terms, cells = about["about"], about["cells"]
    targets = terms.get("targets") or ()
    source = terms.get("source", "")  # of an older version there is none
    text = " → ".join([source, *([", ".join(targets)] if targets else [])])
    seeds = ", ".join(dict.fromkeys(str(cell["seed"]) for cell in cells))
    return _short(text), _short(f"{plural(len(cells), 'edit')} · Seed {seeds}")


def _of_explanation(told: Mapping[str, Any]) -> tuple[str, str]:
    """Title and line of an explanation."""
    about = told["about"]
    x, y = about["at"]
    text = f"{about['word']} at {x},{y}: {about['prompt']}"
    where = f"{about['short']} · head {about['head']} · step {about['step']}"
    return _short(text), _short(f"{where} · Seed {about['seed']}")


def _line(settings: Mapping[str, Any]) -> str:
    """What a run was made with, by its settings as they are saved."""
    steps = settings.get("steps")
    told = [f"Seed {settings['seed']}", *([plural(steps, "step")] if steps is not None else [])]
    return " · ".join([*told, "{}×{} px".format(*settings["size"]), _short(settings["model"])])


def read_result(folder: Path) -> Result:
    """A result from its folder; files are never trusted.

    Raises:
        RunError: if it is none, or broken. The sentence names no folder of the server.
    """
    explained = (folder / "explain.json").exists() and not (folder / "run.json").exists()
    try:
        return Explanation.load(folder) if explained else load_result(folder)
    except RunError as error:
        said = sentence_for(error).replace(f"{folder}{os.sep}", "the result's ")
        raise RunError(said.replace(str(folder), "the result")) from error


def made_with(result: Result) -> str:
    """What a result was made with, in a line."""
    if isinstance(result, Grid):
        cells = [{"seed": cell.seed} for cell in result.cells]
        return _of_grid({"about": to_json(result.about), "cells": cells})[1]
    if isinstance(result, Explanation):
        return _of_explanation({"about": to_json(result.about)})[1]
    run = result.edited if isinstance(result, Pair) else result
    return _line(to_json(run.settings))


def first_name(result: Result) -> str:
    """What the folder of a result is called at first, as the command line calls it."""
    if isinstance(result, Grid):
        about = result.about
        asked = (about.targets or (about.source,))[0]
        return f"{slug(f'grid {asked}', 48)}-{result.cells[0].seed}"
    if isinstance(result, Explanation):
        about = result.about
        where = f"{about.word} at {about.at[0]} {about.at[1]} {about.short}"
        return slug(f"{where} head {about.head} step {about.step}", _NAME)
    run = result.edited if isinstance(result, Pair) else result
    return f"{slug(run.settings.prompt, 48)}-{run.settings.seed}"


def _short(said: str) -> str:
    return said if len(said) <= 100 else f"{said[:99]}…"
