"""Saving: a result is written to a temporary folder beside its place, which is then renamed.

A process that is killed leaves nothing at the target, or the whole result. The temporary folder
`.<name>.tmp-<random>` may stay then; it blocks no other save and can be deleted.

    with whole_folder("outputs/x") as partial:
        ...                                 # write to partial
"""

import errno
import hashlib
import itertools
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from PIL import Image

from heedmap.errors import RunError
from heedmap.io.reading import path_of, reason_of


def digest_of(image: Image.Image) -> str:
    """The SHA-256 of a picture's pixels, 8-bit RGB, row by row, as settings note it."""
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()


_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_NAME = 50  # characters of the target's name in that of the temporary folder
_SLUG = 200  # bytes


class TakenError(RunError):
    """A target that exists and is not an empty folder."""


class WriteError(RunError):
    """A place where the system refuses to write: a full disk, a quota, no permission."""


def check_place(folder: str | Path) -> None:
    """Check that files can be written to a folder, which need not exist yet; RunError if not."""
    path = _resolved(folder)
    try:
        with suppress(FileNotFoundError):
            path.lstat()  # refuses a name that is too long
        there = next(one for one in (path, *path.parents) if os.path.lexists(one))
        if not there.is_dir():
            raise RunError(f"{there} is not a folder: name a folder, or a new one")
        # Only an attempt shows whether it can be done: root may write everywhere but in /proc.
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(b"\0")
    except OSError as error:
        raise _refused(folder, error) from error


def check_new(folder: str | Path) -> None:
    """Check that a result can be saved in a folder: it is new or empty, and can be written."""
    target = _resolved(folder)
    try:
        with suppress(FileNotFoundError):
            target.lstat()
            if not target.is_dir():
                raise TakenError(f"{folder} is a file: name a new or an empty folder")
            if any(target.iterdir()):
                raise TakenError(f"{folder} is not empty: name a new or an empty folder")
            if target.is_mount() or target == Path.cwd():
                raise TakenError(
                    f"{folder} is the current folder or a mounted disk, which cannot be replaced: "
                    "name a new folder within it"
                )
    except OSError as error:
        raise _refused(folder, error) from error
    check_place(target.parent)


@contextmanager
def whole_folder(folder: str | Path) -> Iterator[Path]:
    """Let the block fill a temporary folder, then rename it to `folder`, which is new or empty.

    Raises:
        ArgumentError: if `folder` is not a path.
        TakenError: if something is at the target.
        WriteError: if the system refuses to write.
    """
    check_new(folder)
    target = _resolved(folder)
    partial = _beside(target)
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
            yield partial
            _sync(partial)
        except OSError as error:
            raise _refused(folder, error) from error
        _rename(partial, target, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def put_file(path: str | Path, data: bytes) -> Path:
    """Write a file whole, in the place of an older one; WriteError if the system refuses."""
    target = _resolved(path)
    partial = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        _sync_entry(partial)
        if target.is_file():
            shutil.copymode(target, partial)
        os.replace(partial, target)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return path_of(path)


def put_counting(first: Path, save: Callable[[Path], Any]) -> Path:
    """Save to the first free path of x, x-2, x-3 and so on, and return it.

    Args:
        first: the path x.
        save: writes to a path, or raises a TakenError.
    """
    for number in itertools.count(1):
        path = first if number == 1 else first.with_name(f"{first.stem}-{number}{first.suffix}")
        if not os.path.lexists(path):
            with suppress(TakenError):  # another process has just taken it
                save(path)
                return path
    raise AssertionError("there is no last number")


class Destination:
    """The place of a command's results: the named folder, or new folders within a root.

    It is checked at once, before anything is drawn.

    Args:
        out: the named folder, if any.
        many: whether there may be several results; `out` is the root then.
        root: the root, where no folder was named.

    Attributes:
        saved: the folders that were written.
    """

    def __init__(
        self, out: str | Path | None, *, many: bool = False, root: str | Path = "outputs"
    ) -> None:
        self.fixed = None if many or out is None else path_of(out)
        self.root = path_of(out if many and out is not None else root)
        self.saved: list[Path] = []
        if self.fixed is None:
            check_place(self.root)
        else:
            check_new(self.fixed)

    def put(self, save: Callable[[Path], Any], name: str) -> Path:
        """Save a result, and return its folder: `name` within the root, where none was named."""
        if self.fixed is None:
            self.saved.append(put_counting(self.root / name, save))
        else:
            save(self.fixed)
            self.saved.append(self.fixed)
        return self.saved[-1]


def files_in(folder: Path) -> list[str]:
    """Give the names of the files in a folder, without those in inner folders."""
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def slug(text: str, length: int) -> str:
    """Make a part of a file name: letters, digits, hyphens; never empty, never too long.

    Signs and emoji alone become their numbers in Unicode: "u1f600".
    """
    made = re.sub(r"[^\w]+", "-", text).strip("-_").lower()
    if not made:
        made = "-".join(f"u{ord(sign):04x}" for sign in text[:length] if not sign.isspace())
    fitting = made[:length].encode("utf-8", "ignore")[:_SLUG].decode("utf-8", "ignore")
    return fitting.strip("-_") or "word"


def _resolved(given: str | Path) -> Path:
    path = path_of(given)
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise RunError(f"{given} cannot be resolved: choose another place") from error


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:_NAME]}.tmp-{secrets.token_hex(4)}")


def _rename(partial: Path, target: Path, given: str | Path) -> None:
    """Give a filled folder its name; an empty folder there is replaced."""
    try:
        if target.is_dir():
            shutil.copymode(target, partial)
            if os.name == "nt":  # elsewhere the rename itself replaces an empty folder
                target.rmdir()
        os.rename(partial, target)
    except OSError as error:
        if error.errno in _TAKEN:
            raise TakenError(f"{given} was written meanwhile: name another folder") from error
        raise _refused(given, error) from error
    with suppress(OSError):  # a folder that may be written but not read
        _sync_entry(target.parent)


def _refused(path: str | Path, error: OSError) -> WriteError:
    return WriteError(f"{path} cannot be written ({reason_of(error)}): choose another place")


def _sync(folder: Path) -> None:
    """Write all of a folder to the disk."""
    for path in (*folder.rglob("*"), folder):
        _sync_entry(path)


def _sync_entry(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    if os.name == "nt":  # it cannot open a folder, nor sync what is open for reading
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
