"""The seal of a figure: a remark in its file, by which heedmap knows it for its own, unchanged.

It stands where the format has room for it, says "heedmap", and has a digest of all else in the
file: what was written, drawn over or noted down by anybody else since has none that fits.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from heedmap.errors import RunError
from heedmap.files.reading import read_bytes

_MOST = 2**28  # bytes of a figure
_LETTERS = 72  # of a remark


def _chunk(remark: bytes) -> bytes:
    kind = b"tEXtSoftware\0" + remark
    return struct.pack(">I", len(kind) - 4) + kind + struct.pack(">I", zlib.crc32(kind))


# How each format begins, how many bytes of its end follow the seal, and what that looks like.
_FORMATS: tuple[tuple[bytes, int, Callable[[bytes], bytes]], ...] = (
    (b"\x89PNG", 12, _chunk),
    (b"GIF8", 1, lambda remark: b"!\xfe" + bytes([_LETTERS]) + remark + b"\0"),
    (b"%PDF", 0, lambda remark: b"%" + remark + b"\n"),
    (b"<?xml", 0, lambda remark: b"<!-- " + remark + b" -->\n"),
)


def sealed(data: bytes) -> bytes:
    """A figure's file with its seal; what is none stays as it is."""
    for start, tail, form in _FORMATS:
        if data.startswith(start):
            at = len(data) - tail
            remark = f"heedmap {hashlib.sha256(data).hexdigest()}".encode()
            return data[:at] + form(remark) + data[at:]
    return data


def is_sealed(path: Path) -> bool:
    """Whether a file is a figure that heedmap wrote, and nobody has changed it."""
    try:
        data = read_bytes(path, most=_MOST, otherwise="there is none")
    except RunError:
        return False
    for start, tail, form in _FORMATS:
        if data.startswith(start):
            at = len(data) - tail
            return sealed(data[: at - len(form(bytes(_LETTERS)))] + data[at:]) == data
    return False
