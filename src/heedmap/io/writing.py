"""Saving: a result is written to a temporary folder beside its place, which is then renamed.

The target of a process that is killed is missing or whole. A temporary folder or file
`.<name>.tmp-<random>` may remain; it blocks no other save and can be deleted.

    with whole_folder("outputs/x") as partial:
        ...                                 # write to partial
"""

import hashlib
import io
import itertools
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap.errors import RunError
from heedmap.io.reading import path_of

_NAME = 50  # characters of the target's name in that of the temporary folder
_SLUG = 200  # bytes


class TakenError(RunError):
    """A target that exists and is not an empty folder."""


class WriteError(RunError):
    """A place where the system refuses to write: a full disk, a quota, no permission."""


def digest_of(image: Image.Image) -> str:
    """Return the SHA-256 of an image's pixels, 8-bit RGB, row by row."""
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()


def check_new(folder: str | Path) -> Path:
    """Check that a folder is new or empty and can be written, and return its real path."""
    target = Path(os.path.realpath(path_of(folder)))
    with _write_errors(folder):
        empty = target.is_dir() and not any(target.iterdir()) and target != Path.cwd()
        if os.path.lexists(target) and not empty:
            raise _not_empty(folder)
        parent = next(one for one in target.parents if one.exists())
        tempfile.TemporaryFile(dir=parent).close()  # only an attempt shows it
    return target


def png(image: Image.Image, text: PngInfo | None = None) -> bytes:
    """Return an image as the bytes of a PNG file, with text chunks if given."""
    file = io.BytesIO()
    # At 6, Pillow's own, twice as slow.
    image.save(
        file,
        "PNG",
        compress_level=4,
        pnginfo=text,
    )
    return file.getvalue()


def save_parts(folder: str | Path, parts: Mapping[str, Any]) -> Path:
    """Write files to a folder that is new or empty, whole or not at all, and return the folder.

    A part is the content of the file at its path in the folder: bytes, an image, an array, or an
    object that saves itself to a path; None is left out. Errors are those of `whole_folder`.
    """
    with whole_folder(folder) as partial:
        for name, part in parts.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            match part:
                case None:
                    pass
                case bytes():
                    path.write_bytes(part)
                case Image.Image():
                    path.write_bytes(png(part))
                case np.ndarray():
                    np.save(path, part, allow_pickle=False)
                case _:
                    part.save(path)
    return Path(folder)


@contextmanager
def whole_folder(folder: str | Path) -> Iterator[Path]:
    """Let the block fill a temporary folder, then rename it to `folder`, which is new or empty.

    Raises:
        ArgumentError: if `folder` is not a path.
        TakenError: if something is at the target.
        WriteError: if the system refuses to write.
    """
    target = check_new(folder)
    partial = _partial(target)
    try:
        with _write_errors(folder):
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
            yield partial
            try:
                with suppress(FileNotFoundError):
                    target.rmdir()
                partial.rename(target)
            except OSError as error:
                raise (
                    _not_empty(folder) if os.path.lexists(target) else error
                ) from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def put_file(path: str | Path, data: bytes) -> Path:
    """Write a file, whole or not at all, in the place of an older one, and return its path."""
    target = path_of(path)
    with _write_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial(target)
        partial.write_bytes(data)
        partial.replace(target)
    return target


def put_counting(first: Path, save: Callable[[Path], Any]) -> Path:
    """Save to the first free path of x, x-2, x-3 and so on, and return it.

    Args:
        first: the path x.
        save: writes to a path, or raises a TakenError.
    """
    path = first
    numbers = itertools.count(2)
    while True:
        if not os.path.lexists(path):
            with suppress(TakenError):  # another process has just taken it
                save(path)
                return path
        path = first.with_name(f"{first.stem}-{next(numbers)}{first.suffix}")


class Destination:
    """The place of a command's results: the named folder, or new folders within a root.

    It is checked before anything is generated.

    Args:
        out: the named folder, if any.
        many: True if there may be several results; `out` is the root then.
        root: the root if no folder is named.
    """

    def __init__(
        self,
        out: str | Path | None,
        *,
        many: bool = False,
        root: str | Path = "outputs",
    ) -> None:
        self.fixed = out is not None and not many
        self.root = path_of(root if out is None else out)
        check_new(self.root if self.fixed else self.root / secrets.token_hex(4))

    def put(self, save: Callable[[Path], Any], name: str) -> Path:
        """Save a result, and return its folder: `name` within the root if none was named."""
        if not self.fixed:
            return put_counting(self.root / name, save)
        save(self.root)
        return self.root


def slug(text: str, length: int) -> str:
    """Return a part of a file name: letters, digits, hyphens; "word" if the text has none."""
    name = re.sub(r"[^\w]+", "-", text).strip("-_").lower()
    short = name[:length].encode("utf-8", "ignore")[:_SLUG].decode("utf-8", "ignore")
    return short.strip("-_") or "word"


def _partial(target: Path) -> Path:
    """Return the temporary path of a file or folder, which is not complete."""
    return target.with_name(f".{target.name[:_NAME]}.tmp-{secrets.token_hex(4)}")


def _not_empty(folder: str | Path) -> TakenError:
    return TakenError(f"{folder} is not an empty folder: name a new or an empty one")


@contextmanager
def _write_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{path} cannot be written ({error}): choose another place"
        ) from error
