"""Reading: JSON by its schema, and pictures; sizes are checked before anything is decoded.

What is missing, broken or too large is a `RunError` that names the file.
"""

import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from PIL import Image

from heedmap.errors import ArgumentError, RunError, quoted, size_text

FORMAT = 2
"""The format of the files that this version writes and reads."""
_BEFORE = "heedmap 0.2"  # wrote the format before
MAX_SIDE = 2**14
"""The most pixels on a side of a picture."""
MAX_PIXELS = 2**26
"""The most pixels of a picture."""
MAX_ASPECT = 64
"""How many times longer than wide a picture may be."""
PHOTOGRAPHS = ("PNG", "JPEG", "WEBP", "BMP")
"""The formats of users' pictures."""

_File = TypeVar("_File")


class _Version(Struct):
    format: int


def path_of(given: object) -> Path:
    """Check a path that a user gave.

    Raises:
        ArgumentError: if it is not one.
    """
    try:
        if not isinstance(given, (str, os.PathLike)) or given == "" or b"\0" in os.fsencode(given):
            raise ValueError
        return Path(given)
    except (TypeError, ValueError) as error:  # bytes; what the system's encoding cannot write
        raise ArgumentError(
            f"{quoted(given)} is not a path: expected a text or a pathlib.Path that names a file "
            "or folder"
        ) from error


def reason_of(error: OSError) -> str:
    """Give the system's reason for an error."""
    return (error.strerror or str(error) or type(error).__name__).lower()


def torn(folder: Path, parts: str, made: str) -> RunError:
    """Make the error of a folder whose parts contradict each other."""
    return RunError(f"{folder}: {parts} belong to different {made}s; make the {made} again")


def read_bytes(path: Path, *, most: int) -> bytes:
    """Read a regular file of at most so many bytes.

    Raises:
        RunError: if it is missing, larger, no regular file, or cannot be read.
    """
    if not os.path.isfile(path):  # nor a pipe or device, which might never end
        raise RunError(f"{path} is missing, or is not a file")
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise RunError(f"{path} cannot be read ({reason_of(error)})") from error
    if len(data) > most:
        raise RunError(f"{path} is larger than {size_text(most)}, the limit for such a file")
    return data


def read_json(
    path: Path,
    schema: type[_File],
    *,
    most: int,
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> _File:
    """Read a JSON file by its schema; arguments and errors as of `read_bytes` and `decode`."""
    return decode(read_bytes(path, most=most), schema, str(path), dec_hook)


def decode(
    data: bytes | str,
    schema: type[_File],
    name: str,
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> _File:
    """Decode JSON that says its format, by its schema.

    Args:
        data: the JSON.
        schema: what it must be.
        name: of the file, for the error.
        dec_hook: converts values to types that msgspec does not know.

    Raises:
        RunError: if it is anything else, or of another format.
    """
    try:
        found = msgspec.json.decode(data, type=_Version).format
        if found != FORMAT:
            reader = _BEFORE if found < FORMAT else "a later version of heedmap"
            raise RunError(
                f"{name} has format {found}, and this version of heedmap reads format {FORMAT}: "
                f"open it with {reader}"
            )
        return msgspec.json.decode(data, type=schema, dec_hook=dec_hook)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RunError(f"{name} is not what heedmap writes: {error}") from error


def read_picture(path: Path, mode: str, *, size: tuple[int, int] | None = None) -> Image.Image:
    """Read a PNG; its size is checked before it is decoded.

    Args:
        path: of the file.
        mode: it is converted to, such as "RGB".
        size: (W, H) that it must have.

    Raises:
        RunError: if it is missing, broken, too large or of another size.
    """
    image = _opened(path, ("PNG",), size)
    return image if image.mode == mode else image.convert(mode)


def read_photograph(path: Path) -> Image.Image:
    """Read a user's picture, of any mode.

    Raises:
        ArgumentError: if it is no PNG, JPEG, WebP or BMP file, is broken, or too large.
    """
    try:
        return _opened(path, PHOTOGRAPHS, None)
    except RunError as error:
        raise ArgumentError(f"{error}: expected a picture (PNG, JPEG, WebP or BMP)") from error


def _opened(path: Path, formats: tuple[str, ...], size: tuple[int, int] | None) -> Image.Image:
    data = read_bytes(path, most=4 * MAX_PIXELS)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(data), formats=formats) as image,
        ):
            width, height = image.size
            if size is not None and image.size != size:
                raise RunError(
                    f"{path} has {width}×{height} pixels: expected {size[0]}×{size[1]}, as the "
                    "settings say"
                )
            if max(image.size) > MAX_SIDE or width * height > MAX_PIXELS:
                raise RunError(
                    f"{path} has {width}×{height} pixels: expected at most {MAX_PIXELS}, and "
                    f"{MAX_SIDE} on a side"
                )
            return image.copy()
    except (RunError, MemoryError):
        raise
    except Exception as error:  # a broken picture raises whatever Pillow meets first
        raise RunError(f"{path} is not a picture that can be read") from error
