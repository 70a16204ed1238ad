"""A mask as JSON, and back: its size, what tells it from others, and its bits, packed."""

import base64
import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from heedmap.errors import ArgumentError
from heedmap.files.reading import MAX_PIXELS

_MOST_PACKED = 512 * 1024  # characters of a mask in a file of settings


def packed(mask: np.ndarray) -> dict[str, Any]:
    """A mask, bool (H, W), as JSON: its size, what tells it from others, and, packed, its bits."""
    bits = np.packbits(mask).tobytes()
    held = base64.b64encode(zlib.compress(bits, 9)).decode("ascii")
    return {
        "mask": list(mask.shape[::-1]),
        "share": float(mask.mean()),
        "sha256": hashlib.sha256(bits).hexdigest(),
        **({"packed": held} if len(held) <= _MOST_PACKED else {}),
    }


def unpacked(about: Mapping[str, Any], name: str) -> np.ndarray | None:
    """The mask, bool (H, W), that `packed` packed; None where its bits are not there.

    Args:
        about: what a file has of it, never trusted.
        name: of the word that it confines, for the error.

    Raises:
        ArgumentError: if it is not a mask.
    """
    held = about.get("packed")
    if held is None:
        return None
    try:
        width, height = about["mask"]
        whole = type(width) is type(height) is int and min(width, height) > 0
        if not (whole and width * height <= MAX_PIXELS):
            raise ValueError("its size")
        most = -(-width * height // 8)
        # No more is unpacked than the size asks for, whatever the file holds.
        unpacker = zlib.decompressobj()
        bits = unpacker.decompress(base64.b64decode(held, validate=True), most + 1)
        if len(bits) != most or hashlib.sha256(bits).hexdigest() != about.get("sha256"):
            raise ValueError("its bits")
    except (ValueError, TypeError, KeyError, zlib.error) as error:
        raise ArgumentError(f"the mask of {name} is not one that heedmap wrote") from error
    flat = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=width * height)
    return flat.reshape(height, width).astype(bool)
