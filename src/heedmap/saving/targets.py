"""Where something is to be written: whether it can be, and whether something of a user's is there.

What cannot be written to is told before anything is drawn, and again when it is written.
"""

import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from re import Pattern
from typing import Any

from heedmap.errors import ArgumentError, RunError, quoted

PREFIX = ".heedmap."
"""How the names of scratch folders begin."""
_DEEP = 100  # folders in one another: at least as long a path as any within a scratch folder
_MOST = 64 * 2**20  # bytes of the largest mark, a grid's


class TakenError(RunError):
    """Something is there that heedmap may not replace: another name would do."""


@dataclass(frozen=True)
class Kind:
    """A kind of folder that heedmap writes, and how its own files are told from a user's.

    Attributes:
        what: it is called, with its article: "a run of heedmap".
        mark: the file that tells a folder of this kind, a JSON object.
        keys: that this object has.
        names: every name, within the folder, that a file of heedmap's may have.
        written: given a folder of this kind, those of them that were written there, where the
            folder tells; what else has such a name is a user's. Left out: all.
    """

    what: str
    mark: str
    keys: frozenset[str]
    names: Pattern[str]
    written: Callable[[Path], Collection[str]] | None = None

    def holds(self, folder: Path) -> bool:
        """Whether a folder is of this kind."""
        about = read_object(folder / self.mark)
        return about is not None and self.keys <= about.keys()


def read_object(path: Path, most: int = _MOST) -> dict[str, Any] | None:
    """The JSON object in a file; None if it is none, or no plain file of so many bytes."""
    try:
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > most:
            return None
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def path_of(given: object) -> Path:
    """A path that was given.

    Raises:
        ArgumentError: if it is none.
    """
    try:
        if not isinstance(given, (str, os.PathLike)) or b"\0" in os.fsencode(given):
            raise ValueError
        return Path(given)
    except (TypeError, ValueError) as error:  # bytes; what the system's encoding cannot write
        raise ArgumentError(
            f"{quoted(given)} is no path: expected a text, or a pathlib.Path, that names a file or "
            "folder of this system"
        ) from error


def target_of(given: str | Path) -> Path:
    """The absolute path of a file or folder that is to be written, its parents' links followed.

    Raises:
        ArgumentError: if it is no path.
        RunError: if its parents' links go round in circles.
    """
    path = path_of(given)
    try:
        if path.name in ("", ".."):
            return path.resolve()
        return path.parent.resolve() / path.name
    except (OSError, RuntimeError) as error:
        raise RunError(f"{given} leads through links that end nowhere: choose another") from error


def writable(given: str | Path) -> Path:
    """The absolute path of what is to be written, as of `target_of`, if it can be.

    Raises:
        ArgumentError: if it is no path.
        RunError: if nothing can be written there; the sentence says why.
    """
    path, target = path_of(given), target_of(given)
    # The parents as they were given tell of links that end nowhere.
    check_place(target.parent if path.name in ("", "..") else path.parent, target.name)
    return target


def check_place(given: str | Path, name: str = "") -> None:
    """Raise unless something can be written into a folder; it need not be there yet.

    Args:
        given: the folder.
        name: of what is to be written into it.

    Raises:
        ArgumentError: if it is no path.
        RunError: if nothing can be written there; the sentence says why.
    """
    path = path_of(given)
    there = path.absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():  # a link that ends nowhere is none either
        raise RunError(f"{shown(there)} is no folder: nothing can be written below it")
    try:
        parts = (*path.absolute().relative_to(there).parts, name)
        inner = path.absolute() / f"{PREFIX}{'x' * 8}" / name / ("x/" * _DEEP)
        for tried in (inner, *(there / part for part in parts)):
            with suppress(FileNotFoundError):  # what is too long is told of only here
                os.lstat(tried)
        # Only trying tells: root may write everywhere, and still nothing can be made in /proc.
        probe = tempfile.mkdtemp(prefix=PREFIX, dir=there)
        with suppress(FileNotFoundError):  # another process takes empty ones away
            os.rmdir(probe)
    except OSError as error:
        raise RunError(
            f"nothing can be written to {shown(path)} ({why(error)}): choose another place"
        ) from error


def check_folder(given: str | Path, kind: Kind, *, force: bool) -> frozenset[str] | None:
    """Raise if a folder of a kind may not take the place of what is there.

    Args:
        given: the folder.
        kind: of the folder to be.
        force: whether an older one of this kind may be replaced.

    Returns:
        The names of the files there that heedmap wrote; None if no file is in the way.

    Raises:
        TakenError: if something is there that may not be replaced.
        RunError: if it could not be replaced.
    """
    folder = target_of(given)
    said = shown(given)
    if not _is_folder(folder, said):
        return None
    try:
        if folder.is_mount() or Path.cwd().is_relative_to(folder.resolve()):
            raise TakenError(
                f"{said} is in use (a disk is mounted there, or it is the folder you are in): "
                "choose another folder, such as one within it"
            )
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not os.listdir(folder):
            return None
        return _own(folder, kind, said, force)
    except OSError as error:
        raise RunError(
            f"{said} could not be replaced ({why(error)}): choose another folder"
        ) from error


def check_file(given: str | Path, *, force: bool) -> None:
    """Raise if a file may not be written.

    Args:
        given: the file.
        force: whether one that is there may be replaced.

    Raises:
        TakenError: if something is there that may not be replaced.
        RunError: if nothing can be written there.
    """
    said = shown(given)
    try:
        there = os.lstat(target_of(given)).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(
            f"nothing can be written to {said} ({why(error)}): choose another name"
        ) from error
    if not stat.S_ISREG(there):
        what = "link" if stat.S_ISLNK(there) else "folder" if stat.S_ISDIR(there) else "device"
        raise TakenError(f"{said} is a {what}: nothing was written; choose another name")
    if not force:
        raise TakenError(
            f"{said} exists: nothing was written; choose another name, or replace it with --force "
            "(in Python force=True)"
        )


def _is_folder(folder: Path, said: str) -> bool:
    """Whether a folder is there; TakenError if it is something else."""
    try:
        there = os.lstat(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RunError(
            f"nothing can be written to {said} ({why(error)}): choose another folder"
        ) from error
    if stat.S_ISLNK(there.st_mode):
        raise TakenError(
            f"{said} is a link, and stays one: name the folder that it leads to, or another"
        )
    if not stat.S_ISDIR(there.st_mode):
        raise TakenError(f"{said} is a file: nothing was written; choose another folder")
    return True


def _own(folder: Path, kind: Kind, said: str, force: bool) -> frozenset[str]:
    """The names of the files that heedmap wrote into a folder that may be replaced."""
    if not kind.holds(folder):
        raise TakenError(
            f"{said} exists and is not {kind.what}: nothing was written; choose another folder"
        )
    if not force:
        raise TakenError(
            f"{said} exists and holds {kind.what}: nothing was written; choose another folder, or "
            "replace it with --force (in Python force=True)"
        )
    written = None if kind.written is None else kind.written(folder)
    own: set[str] = set()
    for name, entry in walk(folder):
        if not kind.names.fullmatch(name):
            continue
        if not entry.is_file(follow_symlinks=False) or not (written is None or name in written):
            raise TakenError(
                f"{said} holds {name}, which heedmap did not write and might write now: move it, "
                "or choose another folder"
            )
        own.add(name)
    return frozenset(own)


def walk(folder: Path, within: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All that is in a folder, by its name within; folders before what they hold, no link followed.

    Raises:
        OSError: if a folder cannot be read.
    """
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        yield f"{within}{entry.name}", entry
        if entry.is_dir(follow_symlinks=False):
            yield from walk(Path(entry.path), f"{within}{entry.name}/")


def shown(path: str | Path) -> str:
    """A path for a sentence: as it was given, and short."""
    text = str(path)
    return text if len(text) <= 200 else f"{text[:99]}…{text[-100:]}"


def why(error: OSError) -> str:
    """What the system says of a failure, for a sentence."""
    return (error.strerror or type(error).__name__).lower()
