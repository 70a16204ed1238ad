"""Where something is to be written: whether it can be, and whether a user has something there.

What cannot be written to is told before anything is drawn, and again when it is written.
"""

import errno
import os
import re
import stat
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from heedmap.errors import RunError, Written
from heedmap.files.marks import Kind, walk
from heedmap.files.reading import path_of
from heedmap.files.seals import is_sealed

PREFIX = ".heedmap."
"""How the names of scratch folders begin."""
_DEEP = 100  # folders in one another: at least as long a path as any within a scratch folder
_NAME = 255  # bytes of a name, on all disks in use
_SLUG = 200  # of one made of a text, to which more is added


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class TakenError(RunError):
    """Something is there that heedmap may not replace: another name would do."""


class WriteError(RunError):
    """The system refused to write: a full disk, a quota, a disk that is only read, no permission.

    It is not an OSError: whoever catches `HeedmapError` has all that a save can say.

    Args:
        said: the sentence, up to the reason.
        error: what the system said.
        so: what was not done, after the reason, such as "nothing was written".

    Attributes:
        number: the system's `errno`, if it gave one.
        reason: what the system says, such as "no space left on device".
    """

    def __init__(self, said: str, error: "OSError | WriteError", so: str = "") -> None:
        inner = isinstance(error, WriteError)
        self.number = error.number if inner else error.errno
        self.reason = error.reason if inner else why(error)
        room = "make room there, or " if self.number in _FULL else ""
        done = f"{so}; " if so else ""
        super().__init__(f"{said} ({self.reason}): {done}{room}choose another place")


def target_of(given: str | Path) -> Path:
    """The absolute path of a file or folder that is to be written, its parents' links followed.

    Raises:
        ArgumentError: if it is not a path.
        RunError: if its parents' links go round in circles.
    """
    path = path_of(given)
    try:
        if path.name in ("", ".."):
            return path.resolve()
        return path.parent.resolve() / path.name
    except (OSError, RuntimeError) as error:
        raise RunError(
            f"{shown(given)} leads nowhere ({_reason(error)}): choose another place"
        ) from error


def writable(given: str | Path) -> Path:
    """The absolute path of what is to be written, as of `target_of`, if it can be.

    Raises:
        ArgumentError: if it is not a path.
        RunError: if nothing can be written there; the sentence says why.
    """
    path, target = path_of(given), target_of(given)
    if staying(target):
        check_place(path)  # it is filled where it is, if it is empty
    else:  # the parents as they were given show links that end nowhere
        check_place(target.parent if path.name in ("", "..") else path.parent, target.name)
    return target


def staying(folder: Path) -> str:
    """Why a folder that is there cannot be renamed; empty if it can, or there is none."""
    try:
        if os.path.islink(folder) or not os.path.isdir(folder):  # whatever its name may be
            return ""
        if folder.is_mount():
            return "a disk is mounted there"
        with suppress(OSError):  # the folder one is in may be gone
            if Path.cwd().is_relative_to(folder.resolve()):
                return "it is the folder you are in, or holds that"
        about = folder.parent.stat()
        kept = about.st_mode & stat.S_ISVTX and is_others(about) and is_others(folder.stat())
        if kept or not os.access(folder.parent, os.W_OK | os.X_OK):
            return "permission denied in the folder that it is in"
    except FileNotFoundError:  # another process replaces it in this moment
        pass
    return ""


def is_others(about: os.stat_result) -> bool:
    """Whether a file or folder belongs to somebody else; never for root, nor on Windows."""
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    return user not in (0, about.st_uid)


def is_empty(folder: Path, besides: Collection[str] = ()) -> bool:
    """Whether nothing is in a folder apart from these names."""
    found = set(os.listdir(folder)) - set(besides)
    return not found or (found == {"lost+found"} and folder.is_mount())  # made with a disk


def unwritable(given: str | Path, error: OSError) -> WriteError:
    """The error of a place where the system lets nothing be written."""
    return WriteError(f"nothing can be written to {shown(given)}", error)


def check_place(given: str | Path, name: str = "") -> None:
    """Raise unless something can be written into a folder; it need not be there yet.

    Args:
        given: the folder.
        name: of what is to be written into it.

    Raises:
        ArgumentError: if it is not a path.
        RunError: if nothing can be written there; the sentence says why.
    """
    path = path_of(given)
    there = path.absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():  # a link that ends nowhere is not a folder either
        raise RunError(f"{shown(there)} is not a folder: name one that is, or a new one")
    try:
        parts = (*path.absolute().relative_to(there).parts, name)
        inner = path.absolute() / f"{PREFIX}{'x' * 8}" / name / ("x/" * _DEEP)
        for tried in (inner, *(there / part for part in parts)):
            with suppress(FileNotFoundError):  # only here is it known what is too long
                os.lstat(tried)
        # Only trying shows it: root may write everywhere, and still nothing can be made in /proc.
        # A full disk still takes folders, and refuses the first byte.
        probe = Path(tempfile.mkdtemp(prefix=PREFIX, dir=there))
        with suppress(FileNotFoundError):  # another process took it for one that was left behind
            os.chmod(probe, 0o700)  # a umask may keep even its owner out
            try:
                with (probe / "lock").open("wb") as file:
                    file.write(b"\0")
            finally:
                with suppress(FileNotFoundError):
                    (probe / "lock").unlink()
                probe.rmdir()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise RunError(_too_long(path / name)) from error
        raise unwritable(path, error) from error


def _too_long(path: Path) -> str:
    longest = max(len(os.fsencode(part)) for part in path.parts)
    if longest <= _NAME:
        return f"nothing can be written to {shown(path)} (file name too long): choose a shorter one"
    return (
        f"nothing can be written to {shown(path)} (file name too long: a name has {longest} bytes, "
        f"and a disk takes {_NAME}): choose a shorter one"
    )


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
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if is_empty(folder):
            return None
        own = _own(folder, kind, said, force)
        if reason := staying(folder):
            raise TakenError(
                f"{said} cannot be replaced as a whole ({reason}): nothing was written; empty it, "
                "or choose another folder, such as one within it"
            )
        return own
    except OSError as error:
        raise WriteError(f"{said} could not be replaced", error) from error


def check_file(given: str | Path, *, force: bool) -> None:
    """Raise if a file may not be written.

    Args:
        given: the file.
        force: whether a figure that heedmap saved there, and nobody changed, may be replaced.

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
        raise unwritable(given, error) from error
    if not stat.S_ISREG(there):
        what = "link" if stat.S_ISLNK(there) else "folder" if stat.S_ISDIR(there) else "device"
        raise TakenError(f"{said} is a {what}: nothing was written; choose another name")
    if not force:
        raise TakenError(
            f"{said} exists: nothing was written; choose another name, or replace a figure that "
            "heedmap saved with ",
            Written("force", True),
        )
    if not is_sealed(target_of(given)):
        raise TakenError(
            f"{said} is not a figure as heedmap saved it (older versions did not mark theirs): "
            "nothing was written; move it away, or choose another name"
        )


def _is_folder(folder: Path, said: str) -> bool:
    """Whether a folder is there; TakenError if something else is."""
    try:
        there = os.lstat(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unwritable(said, error) from error
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
            "replace it with ",
            Written("force", True),
        )
    written = None if kind.written is None else kind.written(folder)
    own: set[str] = set()
    for name, entry in walk(folder):
        _check_kept(said, name, entry)
        if kind.folders.fullmatch(name) and not entry.is_dir(follow_symlinks=False):
            what = "link" if entry.is_symlink() else "file"
            raise TakenError(
                f"{said} holds {name}, a {what} where heedmap writes a folder: nothing was "
                "written; move it, or choose another folder"
            )
        if not kind.names.fullmatch(name):
            continue
        if not entry.is_file(follow_symlinks=False) or not (written is None or name in written):
            raise TakenError(
                f"{said} holds {name}, which heedmap did not write and might write now: move it, "
                "or choose another folder"
            )
        own.add(name)
    return frozenset(own)


def _check_kept(said: str, name: str, entry: os.DirEntry[str]) -> None:
    """Raise a TakenError if something of another user's could not come along to a new folder."""
    about = entry.stat(follow_symlinks=False)
    if entry.is_symlink() or not is_others(about):
        return
    folder = entry.is_dir()
    sticky = folder and about.st_mode & stat.S_ISVTX
    if sticky or not os.access(entry.path, os.R_OK | (os.W_OK | os.X_OK if folder else 0)):
        raise TakenError(
            f"{said} holds {name}, which belongs to another user and cannot be moved (permission "
            "denied): nothing was written; choose another folder"
        )


def slug(text: str, length: int) -> str:
    """A text as part of a file's name: letters, digits, hyphens; never empty, never too long.

    Signs and emoji alone are told by their numbers in Unicode: "u1f600".
    """
    made = re.sub(r"[^\w]+", "-", text).strip("-_").lower()
    if not made:
        made = "-".join(f"u{ord(sign):04x}" for sign in text[:length] if not sign.isspace())
    fitting = made[:length].encode("utf-8", "ignore")[:_SLUG].decode("utf-8", "ignore")
    return fitting.strip("-_") or "word"


def shown(path: str | Path) -> str:
    """A path for a sentence: as it was given, and short."""
    text = str(path)
    return text if len(text) <= 200 else f"{text[:99]}…{text[-100:]}"


def _reason(error: Exception) -> str:
    return why(error) if isinstance(error, OSError) else "its links go round in circles"


def why(error: OSError) -> str:
    """What the system says of a failure, for a sentence."""
    return (error.strerror or str(error) or type(error).__name__).lower()
