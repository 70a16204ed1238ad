"""Scratch folders, beside what is to be replaced: whatever kills a process, nothing is lost.

A scratch folder, ".heedmap." and eight signs, holds

    lock      locked for as long as the process lives that made it
    journal   the name of what it stands beside, and the names of all files that may be deleted
    new/      what takes the place, when it is whole
    old/      what was there, while and after it is replaced

At any time the user's files are where they were, or in `old`. Hard links to them in `new` take the
place with it. What a killed process has left is put right by the next one that writes there: an
`old` beside a `new` was not replaced yet, and goes back; alone, it was.

An empty folder that cannot be renamed (somebody is in it, a disk is mounted there) holds the
scratch folder itself, and what is in `new` is moved up, the mark last: without it nothing is a
result. From then on the journal names the mark, and the next that writes there moves up the rest.
"""

import errno
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedmap.errors import RunError
from heedmap.files.destinations import PREFIX, shown, why
from heedmap.files.marks import read_object

try:
    import fcntl
except ImportError:  # Windows: what was left behind stays there
    fcntl = None

_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")
_PARTS = {"lock", "journal", "journal.new", "new", "old"}
_PATIENCE = 2.0  # seconds; others hold a place for moments
_JOURNAL = 2**24  # bytes


@contextmanager
def alone(parent: Path) -> Iterator[bool]:
    """Keep other processes that write to a folder waiting for a moment.

    Yields:
        Whether that was possible: some systems have no locks.
    """
    try:
        handle = None if fcntl is None else os.open(parent, os.O_RDONLY)
    except OSError:
        handle = None
    try:
        yield handle is not None and _locked(handle, _PATIENCE)
    finally:
        if handle is not None:
            os.close(handle)


def _locked(handle: int, patience: float) -> bool:
    """Lock an open file; False if another process has it for longer than so many seconds."""
    until = time.monotonic() + patience
    while fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            busy = error.errno in (errno.EWOULDBLOCK, errno.EACCES)
            if not busy or time.monotonic() >= until:
                return False
        time.sleep(0.005)
    return False


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A scratch folder in another one; it is gone afterwards, and those of killed processes before.

    Args:
        parent: that other folder.
        name: of what is to be written there; empty if it is the folder itself that is filled.

    Raises:
        OSError: if it cannot be made.
    """
    handle = made = None
    try:
        with alone(parent) as possible:
            if possible:
                sweep(parent)
            made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            os.chmod(made, 0o700)  # a umask may keep even its owner out
            if fcntl is not None:
                handle = os.open(made / "lock", os.O_RDWR | os.O_CREAT, 0o600)
                os.fchmod(handle, 0o600)
                _locked(handle, 0)
        write_journal(made, name, ())
        yield made
    finally:
        try:
            if made is not None:
                with suppress(OSError):  # the next that writes there tries again
                    clear(made)
        finally:
            if handle is not None:
                os.close(handle)


def write_journal(made: Path, name: str, known: Collection[str], mark: str = "") -> None:
    """Write the journal of a scratch folder.

    Args:
        made: that folder.
        name: of what it stands beside; empty if it is within it.
        known: the names of the files that may be deleted.
        mark: while what is new is moved up, the file that comes last.
    """
    about = {"heedmap": "scratch", "name": name, "known": sorted(known), "mark": mark}
    (made / "journal.new").write_text(json.dumps(about), encoding="utf-8")
    os.chmod(made / "journal.new", 0o600)
    os.replace(made / "journal.new", made / "journal")


def tidy(parent: Path) -> None:
    """Put right what processes that were killed while they wrote to a folder left behind there."""
    if fcntl is None or not os.path.isdir(parent) or os.path.islink(parent):
        return
    with alone(parent) as possible, suppress(OSError):
        if possible:
            sweep(parent)


def sweep(parent: Path) -> None:
    """`tidy`, for a folder that others are kept from."""
    with os.scandir(parent) as entries:
        found = [e.path for e in entries if _NAME.fullmatch(e.name) and _is_own(e)]
    for path in map(Path, found):
        try:
            handle = os.open(path / "lock", os.O_RDWR | os.O_NONBLOCK)
        except FileNotFoundError:
            with suppress(OSError):  # killed as soon as it was made, or not ours
                path.rmdir()
        except OSError:
            continue
        else:
            with suppress(OSError, RunError):  # whatever cannot be put right stays
                if _locked(handle, 0):
                    _move_rest(path)
                    clear(path)
            os.close(handle)


def clear(made: Path) -> None:
    """Take a scratch folder away; what was not replaced goes back to its place."""
    if not set(os.listdir(made)) <= _PARTS:
        return  # somebody uses it for something else
    about = read_object(made / "journal", most=_JOURNAL)
    if about is not None and about.get("heedmap") == "scratch":
        old, new = made / "old", made / "new"
        if is_real_folder(old):
            if is_real_folder(new):
                _put_back(old, made.parent, str(about.get("name")))
            else:
                known = about.get("known")
                _discard(old, set(map(str, known)) if isinstance(known, list) else ())
        if is_real_folder(new):
            _discard(new)
    if is_real_folder(made / "old") or is_real_folder(made / "new"):
        return
    for name in ("journal.new", "journal", "lock"):
        with suppress(OSError):
            (made / name).unlink()
    with suppress(OSError):
        made.rmdir()


def _move_rest(made: Path) -> None:
    """Go on with `fill` where a process was killed; where that cannot be, all stays as it is."""
    about, new = read_object(made / "journal", most=_JOURNAL) or {}, made / "new"
    mark = about.get("mark")
    if (
        about.get("name") != ""
        or not mark
        or not is_real_folder(new)
        or is_real_folder(made / "old")
    ):
        return
    names = sorted(os.listdir(new), key=lambda name: (name == mark, name))
    if any(name.startswith(".") or os.path.lexists(made.parent / name) for name in names):
        raise RunError(f"{shown(new)} was to be in the folder above: look what it holds")
    for name in names:
        move_up(new / name, made.parent / name)
    new.rmdir()


def move_up(path: Path, there: Path) -> None:
    """Rename a file or folder to a name that is free.

    Raises:
        FileExistsError: if it is taken.
    """
    if os.path.lexists(there):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(there))
    os.rename(path, there)


def _discard(folder: Path, known: Container[str] | None = None) -> None:
    """Delete what is in a folder, all or what is known by name, and the folder if it is empty.

    What the system does not let go stays.
    """
    waiting, folders = [(os.fspath(folder), "")], list[str]()
    while waiting:  # no recursion: a stranger's folders may lie in one another as deep as paths
        path, within = waiting.pop()
        folders.append(path)
        with suppress(OSError):
            os.chmod(path, 0o700)
        with suppress(OSError), os.scandir(path) as entries:
            for entry in [*entries]:
                name = f"{within}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{name}/"))
                elif known is None or name in known:
                    with suppress(OSError):
                        os.unlink(entry.path)
    for path in reversed(folders):  # what a folder holds comes after it
        with suppress(OSError):
            os.rmdir(path)


def _put_back(old: Path, parent: Path, name: str) -> None:
    """Put a folder back to its place, or beside it where the place is taken."""
    # What lies in a folder that came from elsewhere may pretend to be left over: no hidden folder,
    # such as that of a repository, is ever put anywhere.
    if name.startswith(".") or not name or {"/", "\\", "\0"} & set(name):
        raise RunError(f"{shown(old)} names no place to go back to: look what it holds")
    for number in range(1, 1000):
        place = parent / (name if number == 1 else f"{name}-{number}")
        if not os.path.lexists(place):
            try:
                os.rename(old, place)
            except OSError as error:
                raise RunError(
                    f"{shown(place)} could not be put back ({why(error)}): what was there is whole "
                    f"in {shown(old)}, move it yourself"
                ) from error
            return
    raise RunError(f"{shown(old)} has no place to go back to: look what it holds")


def _is_own(entry: os.DirEntry[str]) -> bool:
    """Whether this is a folder, not a link, and belongs to the user who runs this."""
    about = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(about.st_mode) and (fcntl is None or about.st_uid == os.geteuid())


def is_real_folder(path: Path) -> bool:
    """Whether there is a folder, not a link to one."""
    return path.is_dir() and not path.is_symlink()
