"""Reading: JSON by its schema, and images, whose sizes are checked before they are decoded.

The error of a missing, broken or large file is a `RunError` that names the file.
"""

import io
import os
import warnings
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from PIL import Image

from heedmap.errors import ArgumentError, RunError, format_bytes, quoted
from heedmap.io.schemas import FORMAT, UNREADABLE, decode_array

MAX_JSON = 2**27
"""Bytes of a JSON file."""
MAX_SIDE = 2**14
"""Pixels on a side of an image."""
MAX_PIXELS = 2**26
"""Pixels of an image."""
MAX_ASPECT = 64
"""The largest ratio of an image's sides."""

_File = TypeVar("_File")


class _Version(Struct):
    format: int


def path_of(path: object) -> Path:
    """Return a user's path; ArgumentError if it is none."""
    try:
        if (
            isinstance(path, (str, os.PathLike))
            and path != ""
            and b"\0" not in os.fsencode(path)
        ):
            return Path(path)
    except (TypeError, ValueError):  # bytes; signs that the system cannot encode
        pass
    raise ArgumentError(
        f"{quoted(path)} is not a path: expected a text or a pathlib.Path that names a file or "
        "folder"
    )


def reason_of(error: OSError) -> str:
    """Return the system's reason for an error."""
    return (error.strerror or str(error)).lower()


def read_bytes(path: Path, *, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; RunError if there is no such file."""
    if not os.path.isfile(path):  # nor a pipe, which might never end
        raise RunError(f"{path} is missing, or is not a file")
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise RunError(f"{path} cannot be read ({reason_of(error)})") from error
    if len(data) > most:
        raise RunError(
            f"{path} is larger than {format_bytes(most)}, the limit for such a file"
        )
    return data


def read_json(path: Path, schema: type[_File]) -> _File:
    """Read a JSON file by its schema; RunError if it does not fit."""
    return decode(read_bytes(path, most=MAX_JSON), schema, path)


def decode(data: bytes | str, schema: type[_File], path: str | Path) -> _File:
    """Decode the JSON of a file by its schema; RunError if it does not fit."""
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version != FORMAT:
            raise RunError(
                f"{path} has format {version}, and this version of heedmap reads format {FORMAT}: "
                "open it with the version that wrote it"
            )
        return msgspec.json.decode(data, type=schema, dec_hook=decode_array)
    except UNREADABLE as error:
        raise RunError(f"{path} is not what heedmap writes: {error}") from error


def read_image(path: Path, mode: str = "RGB", *, size: tuple[int, int]) -> Image.Image:
    """Read a PNG of heedmap's as an image of a mode; RunError if it has another size (W, H)."""
    image = _open(path, ("PNG",))
    if image.size != size:
        text = "{} has {}×{} pixels: expected {}×{}, as in the settings"
        raise RunError(text.format(path, *image.size, *size))
    return image.convert(mode)


def read_photograph(path: Path) -> Image.Image:
    """Read a user's image, of any mode; ArgumentError if it is no PNG, JPEG, WebP or BMP file."""
    try:
        return _open(path, ("PNG", "JPEG", "WEBP", "BMP"))
    except RunError as error:
        raise ArgumentError(
            f"{error}: expected an image (PNG, JPEG, WebP or BMP)"
        ) from error


def _open(path: Path, formats: tuple[str, ...]) -> Image.Image:
    data = read_bytes(path, most=4 * MAX_PIXELS)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(data), formats=formats) as image,
        ):
            width, height = image.size
            if max(image.size) > MAX_SIDE or width * height > MAX_PIXELS:
                raise RunError(
                    f"{path} has {width}×{height} pixels: expected at most {MAX_PIXELS}, and "
                    f"{MAX_SIDE} on a side"
                )
            return image.copy()
    except (RunError, MemoryError):
        raise
    except Exception as error:  # Pillow's plugins raise errors of any type
        raise RunError(f"{path} is not an image that can be read") from error
