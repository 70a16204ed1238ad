"""The one way to write for a user: whole or not at all, and only what heedmap wrote is replaced.

A folder is filled in a scratch folder beside it (`scratch`), and takes its place by a rename. What
is there already is only replaced by force, and only if it is of the same kind (`kinds`); what else
lies in it stays, byte for byte. Whatever the system refuses, as a full disk does, is a `WriteError`
of one sentence, and leaves nothing behind.

    with whole_folder("outputs/x", kinds.RUN) as partial:
        ...                                 # write to partial
"""

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from heedmap.checks import flag
from heedmap.files import kinds
from heedmap.files.destinations import (
    TakenError,
    WriteError,
    check_file,
    check_folder,
    check_place,
    is_empty,
    shown,
    slug,
    staying,
    target_of,
    unwritable,
    writable,
)
from heedmap.files.exchange import be_like, fill, swap
from heedmap.files.marks import Kind
from heedmap.files.placing import Places
from heedmap.files.reading import path_of
from heedmap.files.scratch import alone, move_up, scratch_folder, tidy, write_journal
from heedmap.files.seals import sealed

__all__ = [
    "Destination",
    "Kind",
    "TakenError",
    "WriteError",
    "check_file",
    "check_place",
    "kinds",
    "put_counting",
    "put_file",
    "remove_folder",
    "rename_folder",
    "sealed",
    "slug",
    "whole_folder",
    "writable",
]

_MEANWHILE = "{} was written by somebody else meanwhile: choose another name"


@contextmanager
def whole_folder(folder: str | Path, kind: Kind, *, force: bool = False) -> Iterator[Path]:
    """Let the block fill a folder that takes its place when all is written, or not at all.

    A kill at any moment leaves the older folder or the new one, or, while one is replaced, none:
    then the next save in that place puts the older one back. An empty folder that cannot be
    renamed, such as the one you are in, is filled where it is: a kill in that moment leaves a part,
    without the file that makes it a result, and the next save there adds the rest.

    Args:
        folder: the folder to be. An empty one may be there.
        kind: what it is.
        force: whether an older one of that kind is replaced: the files in it that heedmap wrote,
            and nothing else; a warning names what was made of the older result (`kinds.BESIDE`)
            and is still there. For a moment then, between two renames, there is no folder of that
            name.

    Yields:
        An empty folder to write to.

    Raises:
        ArgumentError: if `folder` is not a path, or `force` is neither True nor False.
        TakenError: if something is there that may not be replaced.
        WriteError: if the system refuses, before or while the block writes.
    """
    flag("force", force)
    target = writable(folder)
    tidy(target)
    within = bool(staying(target))
    if within:
        check_folder(folder, kind, force=force)  # empty, or this raises
    with _scratch(target if within else target.parent, "" if within else target.name) as made:
        if not within:
            with alone(made.parent):  # else another process may replace what is looked at
                check_folder(folder, kind, force=force)
        new = made / "new"
        with _writing(folder):
            new.mkdir()
            yield new
        with _placing(folder, made.parent):
            if within:
                _fill(made, target, kind)
            elif (own := check_folder(folder, kind, force=force)) is None:
                _put_folder(new, target)
            else:
                swap(made, target, own)
                kinds.tell_older(folder, target)


def put_file(path: str | Path, data: bytes, *, force: bool = False) -> Path:
    """Write a figure's file, whole or not at all, with a seal by which it is known (`seals`).

    Args:
        path: of the file.
        data: what is in it.
        force: whether a figure that is there is replaced, as heedmap saved it: no other file is.

    Returns:
        The path.

    Raises:
        ArgumentError: if `path` is not a path, or `force` is neither True nor False.
        TakenError: if something is there that may not be replaced.
        WriteError: if the system refuses.
    """
    flag("force", force)
    target = writable(path)
    with _scratch(target.parent, target.name) as made:
        check_file(path, force=force)
        new = made / "new" / "file"
        with _writing(path):
            new.parent.mkdir()
            new.write_bytes(sealed(data))
        with _placing(path, target.parent):
            check_file(path, force=force)
            if force:
                with suppress(FileNotFoundError):
                    be_like(target, new)
                os.replace(new, target)
            else:
                _put_file(new, target)
    return path_of(path)


def remove_folder(folder: Path, kind: Kind) -> bool:
    """Delete a folder that heedmap wrote, unless it holds something that heedmap did not.

    Returns:
        Whether it is gone.
    """
    target = target_of(folder)
    with _scratch(target.parent, target.name) as made, alone(target.parent):
        known = kinds.all_own(target, kind)
        if known:
            write_journal(made, target.name, known)
            os.rename(target, made / "old")
            if kinds.all_own(made / "old", kind) == known:
                return True  # and with the scratch folder it goes
            os.rename(made / "old", target)  # something was put there meanwhile
    return False


def rename_folder(folder: Path, name: str) -> Path:
    """Give a folder another name; TakenError if that is taken, WriteError if the system refuses."""
    new = folder.with_name(name)
    try:
        with alone(folder.parent):
            move_up(folder, new)
    except FileExistsError as error:
        raise TakenError(f"the name {name} is taken: choose another") from error
    except OSError as error:
        raise WriteError("it could not be renamed", error, "it has its old name") from error
    return new


class Destination:
    """Where a verb's results go: to the folder that was named, or to new ones within another.

    `places` knows at any moment what was saved.

    Args:
        out: the folder that was named, if one was.
        kind: of the results.
        force: whether older ones of that kind are replaced.
        many: whether `out` is the folder in which the new ones are made.
        root: that folder, where none was named.

    Raises:
        ArgumentError: if `out` is not a path, or `force` is neither True nor False.
        TakenError: if something is there that may not be replaced.
        RunError: if nothing can be written there.
    """

    def __init__(
        self,
        out: str | Path | None,
        kind: Kind,
        *,
        force: bool = False,
        many: bool = False,
        root: str | Path = "outputs",
    ) -> None:
        self.fixed = None if many or out is None else path_of(out)
        self.root = path_of(out if many and out is not None else root)
        self.kind, self.force = kind, flag("force", force)
        self.places = Places(kind.holds)
        if self.fixed is None:
            check_place(self.root)
            return
        target = writable(self.fixed)
        tidy(target.parent)
        tidy(target)
        with alone(target.parent):
            check_folder(self.fixed, kind, force=force)

    def put(self, save: Callable[..., Any], name: str) -> Path:
        """Save a result.

        Args:
            save: writes it; called with the folder and `force`.
            name: of its folder, where none was named; `-2` and so on follow if that is taken, also
                if another process takes it in this moment.

        Returns:
            The folder.
        """

        def save_at(path: Path) -> None:
            self.places.begin(path)
            save(path, force=self.force)

        if self.fixed is not None:
            save_at(self.fixed)
            return self.fixed
        return put_counting(self.root / name, save_at, self.force)


def put_counting(first: Path, save: Callable[[Path], Any], force: bool) -> Path:
    """Save under the first name, or the next that is free: x, x-2, x-3 and so on.

    Args:
        first: the name, as a path.
        save: writes to a path, or raises a TakenError.
        force: whether names that are taken are tried too.

    Returns:
        The path that was written.
    """
    for number in itertools.count(1):
        path = first if number == 1 else first.with_name(f"{first.stem}-{number}{first.suffix}")
        if force or not os.path.lexists(path):
            try:
                save(path)
            except TakenError:
                continue
            return path
    raise AssertionError("there is no last number")


@contextmanager
def _scratch(parent: Path, name: str) -> Iterator[Path]:
    """A scratch folder in another one, which is made if need be, and removed after a failure."""
    missing = [path for path in (parent, *parent.parents) if not os.path.lexists(path)]
    try:
        with ExitStack() as stack:
            try:
                for path in (*reversed(missing), parent):  # mkdir(parents=True) calls itself
                    path.mkdir(exist_ok=True)
                made = stack.enter_context(scratch_folder(parent, name))
            except OSError as error:
                raise unwritable(parent, error) from error
            yield made
    except BaseException:
        for path in missing:
            with suppress(OSError):  # it is not empty, or was never made
                path.rmdir()
        raise


@contextmanager
def _writing(given: str | Path) -> Iterator[None]:
    """Turn what the system refuses into a sentence; not for what is saved within another result."""
    try:
        yield
    except (OSError, WriteError) as error:
        said = f"{shown(given)} could not be written"
        raise WriteError(said, error, "nothing was saved") from error


@contextmanager
def _placing(given: str | Path, parent: Path) -> Iterator[None]:
    """Keep others out while something takes its place; a refusal of the system is a sentence."""
    with alone(parent):
        try:
            yield
        except OSError as error:
            said = f"{shown(given)} could not be put in its place"
            raise WriteError(said, error, "nothing was replaced") from error


def _fill(made: Path, target: Path, kind: Kind) -> None:
    """Move what is new to an empty folder, which the scratch folder is in."""
    taken = TakenError(_MEANWHILE.format(shown(target)))
    if not is_empty(target, {made.name}):
        raise taken
    try:
        fill(made, kind.mark)
    except FileExistsError as error:
        raise taken from error


def _put_folder(new: Path, target: Path) -> None:
    """Rename a folder to a place where nothing is, or an empty folder, whose mode it takes on."""
    try:
        if os.path.lexists(target):
            shutil.copymode(target, new)
            if os.name == "nt":  # elsewhere the rename itself replaces an empty folder
                target.rmdir()
        os.rename(new, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise TakenError(_MEANWHILE.format(shown(target))) from error
        raise


def _put_file(new: Path, target: Path) -> None:
    """Give a file a name that is free."""
    try:
        os.link(new, target)
    except FileExistsError as error:
        raise TakenError(_MEANWHILE.format(shown(target))) from error
    except OSError:  # a disk that has no second names
        os.rename(new, target)
