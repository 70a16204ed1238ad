"""How a folder of heedmap's is known: by its mark, a file of JSON, and by the names within it."""

import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from re import Pattern
from typing import Any

import msgspec
from msgspec import Struct

_MOST = 16 * 2**20  # bytes of the largest mark, a grid's: `grids.MAX_GRID_FILE`


@dataclass(frozen=True)
class Kind:
    """A kind of folder that heedmap writes, and how its own files are told from a user's.

    Attributes:
        what: what it is called, with its article: "a run of heedmap".
        mark: the file by which a folder of this kind is known; a JSON object.
        schema: what this object must be; of whatever does not fit nothing is known to be ours.
        names: every name, within the folder, that a file of heedmap's may have.
        written: given a folder of this kind, those of them that were written there, as far as the
            folder says so; anything else of such a name is a user's. Left out: all.
        folders: every name, within the folder, that a folder of heedmap's may have.
    """

    what: str
    mark: str
    schema: type[Struct]
    names: Pattern[str]
    written: Callable[[Path], Collection[str]] | None = None
    folders: Pattern[str] = re.compile("(?!)")

    def holds(self, folder: Path) -> bool:
        """Whether a folder is of this kind."""
        return self.told(folder) is not None

    def told(self, folder: Path) -> dict[str, Any] | None:
        """What the mark of a folder of this kind holds; None of any other folder."""
        about = read_object(folder / self.mark)
        try:
            msgspec.convert(about, self.schema, str_keys=True)
        except (msgspec.ValidationError, RecursionError, UnicodeError):
            return None
        return about


def read_object(path: Path, most: int = _MOST) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is none, or the file is not plain or too large."""
    try:
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > most:
            return None
        # Not by msgspec: names that are not UTF-8 are noted with lone surrogates, which it refuses.
        read = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def walk(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything in a folder, by its name within; folders before what they hold, no link followed.

    Raises:
        OSError: if a folder cannot be read.
    """
    waiting = [(os.fspath(folder), "")]  # no recursion: folders lie in one another as deep as paths
    while waiting:
        path, within = waiting.pop()
        with os.scandir(path) as entries:
            found = list(entries)
        for entry in found:
            name = f"{within}{entry.name}"
            yield name, entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, f"{name}/"))
