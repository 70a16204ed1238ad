"""Scratch folders, beside what is to be replaced: whatever kills a process, nothing is lost.

A scratch folder, ".heedmap." and eight signs, holds

    lock      locked for as long as the process lives that made it
    journal   the name of what it stands beside, and the names of all files that may be deleted
    new/      what takes the place, when it is whole
    old/      what was there, while and after it is replaced

At any time the user's files are where they were, or in `old`. Hard links of them in `new` come to
the place with it. What a process that was killed has left is put right by the next that writes
there: an `old` beside a `new` was not replaced yet, and goes back; alone, it was.
"""

import errno
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedmap.errors import RunError
from heedmap.saving.targets import PREFIX, read_object, shown, walk

try:
    import fcntl
except ImportError:  # Windows: there, what was left behind stays
    fcntl = None

_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")
_PARTS = {"lock", "journal", "journal.new", "new", "old"}
_PATIENCE = 2.0  # seconds; others hold a place for moments
_JOURNAL = 2**24  # bytes


@contextmanager
def alone(parent: Path) -> Iterator[bool]:
    """Keep other processes that write to a folder waiting for a moment.

    Yields:
        Whether that was possible: some systems know no locks.
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
def scratch_folder(target: Path) -> Iterator[Path]:
    """A scratch folder beside a target, gone afterwards, as those of killed processes before.

    Raises:
        OSError: if none can be made.
    """
    handle = None
    with alone(target.parent) as possible:
        if possible:
            sweep(target.parent)
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=target.parent))
        if fcntl is not None:
            handle = os.open(made / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            _locked(handle, 0)
    try:
        note(made, target.name, ())
        yield made
    finally:
        try:
            clear(made)
        finally:
            if handle is not None:
                os.close(handle)


def note(made: Path, name: str, known: Collection[str]) -> None:
    """Write the journal: what a scratch folder stands beside, and which files may be deleted."""
    about = {"heedmap": "scratch", "name": name, "known": sorted(known)}
    (made / "journal.new").write_text(json.dumps(about), encoding="utf-8")
    os.replace(made / "journal.new", made / "journal")


def tidy(parent: Path) -> None:
    """Put right what processes left behind in a folder that were killed while they wrote there."""
    if fcntl is None or not parent.is_dir():
        return
    with alone(parent) as possible:
        if possible:
            sweep(parent)


def sweep(parent: Path) -> None:
    """`tidy`, of a folder that others are kept from."""
    with os.scandir(parent) as entries:
        found = [e.path for e in entries if _NAME.fullmatch(e.name) and _is_own(e)]
    for path in map(Path, found):
        try:
            handle = os.open(path / "lock", os.O_RDWR | os.O_NONBLOCK)
        except FileNotFoundError:
            with suppress(OSError):  # killed as soon as it was made, or none of ours
                path.rmdir()
        except OSError:
            continue
        else:
            with suppress(OSError, RunError):  # whatever cannot be put right stays
                if _locked(handle, 0):
                    clear(path)
            os.close(handle)


def clear(made: Path) -> None:
    """Take a scratch folder away; what was not replaced goes back to its place."""
    if not set(os.listdir(made)) <= _PARTS:
        return  # somebody uses it for something else
    about = read_object(made / "journal", most=_JOURNAL)
    if about is not None and about.get("heedmap") == "scratch":
        old, new = made / "old", made / "new"
        if _is_folder(old):
            if _is_folder(new):
                _put_back(old, made.parent, str(about.get("name")))
            else:
                known = about.get("known")
                _discard(old, set(map(str, known)) if isinstance(known, list) else ())
        if _is_folder(new):
            _discard(new)
    if _is_folder(made / "old") or _is_folder(made / "new"):
        return
    for name in ("journal.new", "journal", "lock"):
        with suppress(OSError):
            (made / name).unlink()
    with suppress(OSError):
        made.rmdir()


def swap(made: Path, target: Path, own: Collection[str]) -> None:
    """Put `new` in the place of a folder; all that heedmap did not write there comes along.

    For a moment, between two renames, there is no folder of that name.

    Args:
        made: the scratch folder.
        target: beside it.
        own: the names of the target's files that heedmap wrote.

    Raises:
        OSError: if it could not be done; then nothing was replaced.
        RunError: if `new` has a file of the name of one that heedmap did not write.
    """
    old, new, carried = made / "old", made / "new", set[str]()
    _carry(target, new, own, carried)
    note(made, target.name, {*own, *carried})
    os.rename(target, old)
    # Nobody finds it there: what came or went until now is all.
    for source, there in reversed(_carry(old, new, own, carried)):
        shutil.copystat(source, there)
    shutil.copymode(old, new)
    note(made, target.name, {*own, *carried})
    os.rename(new, target)


def _carry(old: Path, new: Path, own: Collection[str], carried: set[str]) -> list[tuple[str, Path]]:
    """Link all of a folder that is not heedmap's own into another.

    Args:
        old: from where.
        new: to where.
        own: the names of heedmap's files in `old`.
        carried: the names of what was carried before, and afterwards of all.

    Returns:
        The folders that were made, and what after.
    """
    holding = {str(parent) for name in own for parent in Path(name).parents}
    seen: set[str] = set()
    made: list[tuple[str, Path]] = []
    for name, entry in walk(old):
        there = new / name
        try:
            if entry.is_dir(follow_symlinks=False):
                if str(Path(name)) not in holding:
                    there.mkdir(parents=True, exist_ok=True)
                    made.append((entry.path, there))
            elif name not in own:
                there.parent.mkdir(parents=True, exist_ok=True)
                if name not in carried:
                    _link(entry.path, there)
                elif not _same(entry.path, there):  # written anew meanwhile
                    there.unlink()
                    _link(entry.path, there)
                seen.add(name)
        except (FileExistsError, NotADirectoryError) as error:
            raise RunError(
                f"heedmap writes another {name} than the one in the folder, which is not its own: "
                "nothing was replaced; move it, or choose another folder"
            ) from error
    for name in carried - seen:  # deleted meanwhile
        (new / name).unlink(missing_ok=True)
    carried.clear()
    carried.update(seen)
    return made


def _same(one: str, other: Path) -> bool:
    """Whether two names are of one file, or of a copy that is as old."""
    a, b = os.lstat(one), os.lstat(other)
    if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino):
        return True
    alike = (a.st_mode, a.st_size, a.st_mtime_ns) == (b.st_mode, b.st_size, b.st_mtime_ns)
    if stat.S_ISLNK(a.st_mode) and stat.S_ISLNK(b.st_mode):
        return os.readlink(one) == os.readlink(other)
    return alike and stat.S_ISREG(a.st_mode)


def _link(source: str, there: Path) -> None:
    """Give a file a second name; where a disk knows no such thing, copy it.

    Raises:
        FileExistsError: if something has that name.
    """
    if os.path.lexists(there):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(there))
    if os.path.islink(source):
        os.symlink(os.readlink(source), there)
        return
    try:
        os.link(source, there)
    except OSError:
        if not stat.S_ISREG(os.lstat(source).st_mode):
            raise
        shutil.copy2(source, there)


def _discard(folder: Path, known: Container[str] | None = None, within: str = "") -> None:
    """Delete what is in a folder, all or what is known by name, and the folder if it is empty."""
    os.chmod(folder, 0o700)
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        name = f"{within}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            _discard(Path(entry.path), known, f"{name}/")
        elif known is None or name in known:
            os.unlink(entry.path)
    with suppress(OSError):
        os.rmdir(folder)


def _put_back(old: Path, parent: Path, name: str) -> None:
    """Put a folder back to its place, or beside it where the place is taken."""
    # What lies in a folder that came from elsewhere may pretend to be left over: no hidden folder,
    # such as that of a repository, is ever put anywhere.
    if name.startswith(".") or not name or {"/", "\\", "\0"} & set(name):
        raise RunError(f"{shown(old)} names no place to go back to: look what it holds")
    for number in range(1, 1000):
        place = parent / (name if number == 1 else f"{name}-{number}")
        if not os.path.lexists(place):
            os.rename(old, place)
            return
    raise RunError(f"{shown(old)} has no place to go back to: look what it holds")


def _is_own(entry: os.DirEntry[str]) -> bool:
    """Whether this is a folder, no link, of the user who runs this."""
    about = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(about.st_mode) and (fcntl is None or about.st_uid == os.geteuid())


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
