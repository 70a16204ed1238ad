"""Reading: JSON by its schema, and images, whose sizes are checked before they are decoded.

The error of a missing, broken or large file is a `RunError` that names the file.
"""

import io
import math
import os
from pathlib import Path
from typing import TypeVar

import msgspec
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


def path_of(path: object) -> Path:
    """Return a user's path; ArgumentError if it is none."""
    if isinstance(path, str | os.PathLike) and str(path) and "\0" not in str(path):
        return Path(path)
    raise ArgumentError(
        f"{quoted(path)} is not a path: expected a text or a pathlib.Path that names a file or "
        "folder"
    )


def read_bytes(path: Path, *, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; RunError if there is no such file."""
    if not os.path.isfile(path):  # nor a pipe, which might never end
        raise RunError(f"{path} is missing, or is not a file")
    try:
        if path.stat().st_size <= most:
            return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    raise RunError(
        f"{path} is larger than {format_bytes(most)}, the limit for such a file"
    )


def read_json(path: Path, schema: type[_File]) -> _File:
    """Read a JSON file by its schema; RunError if it does not fit."""
    return decode(read_bytes(path, most=MAX_JSON), schema, path)


def decode(data: bytes | str, schema: type[_File], path: str | Path) -> _File:
    """Decode the JSON of a file by its schema; RunError if it does not fit."""
    try:
        return msgspec.json.decode(data, type=schema, dec_hook=decode_array)
    except UNREADABLE as error:
        raise RunError(
            f"{path} is not a file of format {FORMAT}, which this version of heedmap reads: "
            f"{error}"
        ) from error


def read_image(path: Path, mode: str = "RGB", *, size: tuple[int, int]) -> Image.Image:
    """Read a PNG of heedmap's as an image of a mode; RunError if it has another size (W, H).

    One in colours keeps its transparency.
    """
    image = _open(path, ("PNG",))
    if image.size != size:
        raise RunError(
            f"{path} has the size {image.size}: expected {size}, as in the settings"
        )
    if image.mode.startswith(mode):  # RGBA, too
        return image
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
        with Image.open(io.BytesIO(data), formats=formats) as image:
            if max(image.size) > MAX_SIDE or math.prod(image.size) > MAX_PIXELS:
                raise ValueError(
                    f"its size is {image.size}, and the limits are {MAX_PIXELS} pixels, and "
                    f"{MAX_SIDE} on a side"
                )
            return image.copy()
    except Exception as error:  # Pillow's plugins raise errors of any type
        raise RunError(f"{path} is not an image that can be read: {error}") from error
