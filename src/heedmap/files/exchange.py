"""How what is new takes its place: swapped with what is there, or moved into an empty folder."""

import errno
import os
import shutil
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from heedmap.errors import RunError
from heedmap.files.destinations import shown
from heedmap.files.marks import walk
from heedmap.files.scratch import is_real_folder, move_up, write_journal


def swap(made: Path, target: Path, own: Collection[str]) -> None:
    """Put `new` in the place of a folder; all that heedmap did not write there comes along.

    For a moment, between two renames, there is no folder of that name.

    Args:
        made: the scratch folder.
        target: beside it.
        own: the names of the target's files that heedmap wrote.

    Raises:
        OSError: if it could not be done; then nothing was replaced.
        RunError: if `new` has a file with the name of one that heedmap did not write.
    """
    old, new, carried = made / "old", made / "new", set[str]()
    _carry(target, new, own, carried)
    write_journal(made, target.name, {*own, *carried})
    os.rename(target, old)
    # Nobody finds it any more: what came or went until now is all there is to note.
    made_anew = {there for _, there in _carry(old, new, own, carried)}
    for name, entry in [*walk(old)][::-1]:
        if entry.is_dir(follow_symlinks=False) and is_real_folder(new / name):
            be_like(entry.path, new / name, times=new / name in made_anew)
    be_like(old, new)
    write_journal(made, target.name, {*own, *carried})
    os.rename(new, target)


def fill(made: Path, mark: str) -> None:
    """Move all of `new` to the folder that the scratch folder is in, whole or not at all.

    Args:
        made: the scratch folder.
        mark: the file that comes last.

    Raises:
        OSError: if it could not be done, for example where one of the names is taken.
    """
    new = made / "new"
    names = sorted(os.listdir(new), key=lambda name: (name == mark, name))
    write_journal(made, "", (), mark)
    try:
        for name in names:
            move_up(new / name, made.parent / name)
        new.rmdir()
    except BaseException:
        for name in names:
            with suppress(OSError):
                if not os.path.lexists(new / name):
                    os.rename(made.parent / name, new / name)
        raise


def be_like(source: str | Path, there: Path, *, times: bool = False) -> None:
    """Give a file or folder the owner and the mode of another one, and its times if asked to."""
    about, made = os.stat(source), os.stat(there)
    if (about.st_uid, about.st_gid) != (made.st_uid, made.st_gid) and hasattr(os, "chown"):
        for owner in (-1, about.st_uid):  # only root gives a folder to another user
            with suppress(OSError):
                os.chown(there, owner, about.st_gid)
    (shutil.copystat if times else shutil.copymode)(source, there)


def _carry(old: Path, new: Path, own: Collection[str], carried: set[str]) -> list[tuple[str, Path]]:
    """Link everything in a folder that is not heedmap's own into another one.

    Args:
        old: from where.
        new: to where.
        own: the names of heedmap's files in `old`.
        carried: the names of what was carried before; afterwards, of everything.

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
                f"heedmap writes another {name} than the one in {shown(old)}, which is not its "
                "own: nothing was replaced; move it, or choose another folder"
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
    """Give a file a second name; where a disk has no such thing, copy it.

    Raises:
        FileExistsError: if that name is taken.
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
