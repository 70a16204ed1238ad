"""Places in a picture, boxes and masks: read from what a user has, as pixels, and as JSON."""

import base64
import hashlib
import zlib
from typing import Any, cast

import numpy as np
from PIL import Image

from heedmap.errors import ArgumentError, quoted
from heedmap.io.settings import Mask

_MOST_PACKED = 512 * 1024  # characters of a mask in a file of settings


def packed(mask: np.ndarray) -> Mask:
    """Return a mask, bool (H, W), as a file stores it: size, SHA-256 and compressed bits."""
    height, width = mask.shape
    bits = np.packbits(mask).tobytes()
    held = base64.b64encode(zlib.compress(bits, 9)).decode("ascii")
    return Mask(
        mask=(width, height),
        share=float(mask.mean()),
        sha256=hashlib.sha256(bits).hexdigest(),
        packed=held if len(held) <= _MOST_PACKED else None,
    )


def unpacked(saved: Mask, name: str) -> np.ndarray | None:
    """Return the mask, bool (H, W), that `packed` packed; None if its bits were too many to store.

    Args:
        saved: a mask of a file.
        name: the word that the mask confines, for the error.

    Raises:
        ArgumentError: if the bits are broken.
    """
    if saved.packed is None:
        return None
    width, height = saved.mask
    try:
        bits = np.frombuffer(zlib.decompress(base64.b64decode(saved.packed)), dtype=np.uint8)
        return np.unpackbits(bits)[: width * height].reshape(height, width).astype(bool)
    except (ValueError, zlib.error) as error:
        raise ArgumentError(f"the saved mask of {name} is broken: make the run again") from error


def place(where: object, name: str) -> tuple[float, ...] | np.ndarray:
    """A box as four numbers, or a mask as bool (H, W).

    Args:
        where: a box or a mask of Python, numpy, torch or Pillow, as `Confine` takes it.
        name: of what is placed, for the error.

    Raises:
        ArgumentError: if it is neither.
    """
    if isinstance(where, Image.Image):
        if where.mode not in ("1", "L"):
            raise ArgumentError(
                f"the mask of {name} is a picture of mode {where.mode}: expected '1' or 'L', as "
                "convert('L') gives it"
            )
        found = np.asarray(where)
        found = found if found.dtype == bool else found >= 128
    else:
        if hasattr(where, "detach"):  # a tensor, of torch, which is not imported here
            where = cast(Any, where).detach().cpu()
        try:
            found = np.asarray(where)
        except (TypeError, ValueError):  # rows of different length
            found = np.empty(0, object)
    if found.ndim == 2 and found.dtype == bool:
        if not found.any():
            raise ArgumentError(
                f"the mask of {name} has nothing inside: expected True, or white, where the word "
                "shall act"
            )
        return found.copy()
    if found.shape == (4,) and found.dtype.kind in "iuf" and np.isfinite(found).all():
        return tuple(found.tolist())
    array = hasattr(where, "dtype")
    given = f"an array of {found.dtype} with shape {found.shape}" if array else quoted(where)
    raise ArgumentError(
        f"the region of {name} is {given}: expected a box (left, top, right, bottom) of four "
        "numbers, or a mask of bool (H, W); numbers become one by a threshold, as in mask > 0.5"
    )


def region(place: tuple[float, ...] | np.ndarray, width: int, height: int, name: str) -> np.ndarray:
    """How much of each pixel of a picture is inside: float32 (H, W), 0 to 1.

    Raises:
        ArgumentError: if the box does not lie in the picture, or the mask is not of its size.
    """
    if isinstance(place, tuple):
        left, top, right, bottom = place
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            sides = [f"{side:g}" for side in place]
            raise ArgumentError(
                f"the box ({', '.join(sides)}) of {name} does not lie in the picture of {width}×"
                f"{height} pixels, or is empty: expected (left, top, right, bottom) with 0 ≤ "
                f"left < right ≤ {width} and 0 ≤ top < bottom ≤ {height}"
            )
        return np.outer(_covered(top, bottom, height), _covered(left, right, width))
    if place.shape != (height, width):
        raise ArgumentError(
            f"the mask of {name} is {place.shape[1]}×{place.shape[0]} pixels, the picture "
            f"{width}×{height}: expected a mask of the picture's size; resize it"
        )
    return place.astype(np.float32)


def _covered(start: float, end: float, pixels: int) -> np.ndarray:
    """float32 (pixels,): which share of each pixel of a side lies between two places on it."""
    edges = np.clip(np.arange(pixels + 1), start, end)
    return np.diff(edges).astype(np.float32)
