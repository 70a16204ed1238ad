"""Files of a saved result, opened without any trust in what they are: paths, bytes, pictures.

What a folder holds may be a pipe that never ends, a device, a picture that fills the memory when it
is unpacked. Each reader here looks before it takes, and says in one sentence what is wrong.
"""

import io
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from PIL import Image

from heedmap.errors import ArgumentError, RunError, quoted, sizes

MAX_SIDE = 2**14
"""The most pixels on a side of a picture."""
MAX_PIXELS = 2**26
"""The most pixels of a picture."""
MAX_ASPECT = 64
"""How many times longer than wide a picture may be."""
PHOTOGRAPHS = ("PNG", "JPEG", "WEBP", "BMP")
"""Of pictures that users have."""
_NOT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def path_of(given: object) -> Path:
    """A path that was given.

    Raises:
        ArgumentError: if it is not one.
    """
    try:
        if not isinstance(given, (str, os.PathLike)) or given == "" or b"\0" in os.fsencode(given):
            raise ValueError
        return Path(given)
    except (TypeError, ValueError) as error:  # bytes; what the system's encoding cannot write
        raise ArgumentError(
            f"{quoted(given)} is not a path: expected a text, or a pathlib.Path, that names a file "
            "or folder of this system"
        ) from error


def is_file(path: Path) -> bool:
    """Whether there is a plain file, or a link to one; False for a name that no file can have."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def is_there(path: Path) -> bool:
    """Whether there is anything of that name, even a link to nothing."""
    try:
        return os.path.lexists(path)
    except ValueError:
        return False


def nothing_of(folder: Path, what: str, expected: str) -> str:
    """What to say of a folder that is not what was asked for, or not there at all."""
    said = f"{folder} is not {what}" if is_there(folder) else f"there is no folder {folder}"
    return f"{said}: expected {expected}, as heedmap saves one"


def check_listed(path: Path, made: str) -> None:
    """Raise a RunError if a file that its folder lists is not there."""
    if not is_there(path):
        raise RunError(f"{path.parent} lacks {path.name}, which it lists: make the {made} again")


def torn(folder: Path, parts: str, made: str) -> RunError:
    """The error of a folder whose parts contradict each other."""
    return RunError(
        f"{folder} does not hold together: {parts} are of different {made}s; make the {made} again"
    )


def is_folder(path: Path) -> bool:
    """Whether there is a folder, or a link to one; False for a name that no folder can have."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def read_bytes(path: Path, *, most: int, otherwise: str) -> bytes:
    """The bytes of a plain file.

    Args:
        path: of the file.
        most: bytes that it may have.
        otherwise: the sentence of the error where there is no such file, a path within.

    Raises:
        RunError: if it is missing, no plain file, larger, or cannot be read.
    """
    with opened(path, most=most, otherwise=otherwise) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise _too_large(path, most)
    return data


@contextmanager
def opened(path: Path, *, most: int, otherwise: str) -> Iterator[BinaryIO]:
    """A plain file, open for reading; its kind is asked of what was opened.

    Whoever sent a folder may change it meanwhile: between a look at a path and its opening, a pipe
    could take the place of the file, or the file could go.

    Args:
        path: of the file.
        most: bytes that it may have.
        otherwise: the sentence of the error where there is no such file, a path within.

    Raises:
        RunError: if it is missing, no plain file, larger, or cannot be read, also within the block.
    """
    if not is_file(path):  # a device may do something when it is opened
        raise RunError(otherwise)
    try:
        # So what is not a plain file is not waited for: neither for its other end nor for bytes.
        with open(os.open(path, os.O_RDONLY | _NOT_WAITING), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise RunError(otherwise)
            if about.st_size > most:
                raise _too_large(path, most)
            yield file
    except FileNotFoundError as error:
        raise RunError(otherwise) from error
    except PermissionError as error:
        raise RunError(f"{path} cannot be read: its rights do not allow it") from error
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or 'the disk failed'}") from error


def read_picture(path: Path, mode: str, *, size: tuple[int, int] | None = None) -> Image.Image:
    """A PNG, its size checked before it is decoded.

    Args:
        path: of the file.
        mode: it is converted to, such as "RGB".
        size: (W, H) that it must have.

    Raises:
        RunError: if it is missing, broken, too large or of another size.
    """
    broken = f"{path} is missing or broken: make it again"
    data = read_bytes(path, most=4 * MAX_PIXELS, otherwise=broken)
    try:
        with (
            # What Pillow says about a file, from its first bytes on, does not concern its user.
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(data), formats=("PNG",)) as image,
        ):
            if size is not None and image.size != size:
                raise RunError(
                    f"{path} has {image.size[0]}×{image.size[1]} pixels: expected "
                    f"{size[0]}×{size[1]}, as its folder tells; make it again"
                )
            if said := _too_many(path, image.size):
                raise RunError(said)
            return image.copy() if image.mode == mode else image.convert(mode)
    except (RunError, MemoryError):
        raise
    except Exception as error:  # a broken picture raises whatever Pillow stumbles over first
        raise RunError(broken) from error


def read_photograph(path: Path) -> Image.Image:
    """A picture that a user has, of any mode.

    Raises:
        ArgumentError: if it is no such file, is broken, or too large.
    """
    wrong = (
        f"{path} is no picture that can be read{', but a folder' if is_folder(path) else ''}: "
        "expected a PNG, JPEG, WebP or BMP file"
        if os.path.exists(path)  # a link to nothing is none
        else f"there is no file {path}: expected a picture (PNG, JPEG, WebP or BMP)"
    )
    try:
        data = read_bytes(path, most=4 * MAX_PIXELS, otherwise=wrong)
    except RunError as error:
        raise ArgumentError(*error.said) from error
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(data), formats=PHOTOGRAPHS) as image,
        ):
            if said := _too_many(path, image.size):
                raise ArgumentError(said)
            return image.copy()
    except (ArgumentError, MemoryError):
        raise
    except Image.DecompressionBombError as error:  # before its size is known here
        raise ArgumentError(f"{path} has too many pixels: {_most()}") from error
    except Exception as error:  # a broken picture raises whatever Pillow stumbles over first
        raise ArgumentError(wrong) from error


def _too_many(path: Path, size: tuple[int, int]) -> str:
    """What to say of a picture of so many pixels (W, H); nothing where they are not too many."""
    if max(size) <= MAX_SIDE and size[0] * size[1] <= MAX_PIXELS:
        return ""
    return f"{path} has {size[0]}×{size[1]} pixels: {_most()}"


def _most() -> str:
    """What is expected of the pixels of a picture."""
    return f"expected at most {MAX_PIXELS} in all, and {MAX_SIDE} on a side"


def _too_large(path: Path, most: int) -> RunError:
    return RunError(f"{path} is larger than {sizes(most)[0]}: nothing that heedmap wrote")
