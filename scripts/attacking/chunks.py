"""Pictures as nobody paints them: a PNG's header, and its chunks: put in, left out, doubled."""

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attacking.plain import content, written

_SIGN = b"\x89PNG\r\n\x1a\n"

# Names, and what they may hold beside what the standard says: nothing, too little, odd values.
ODD: dict[str, tuple[str, ...]] = {
    "gAMA": ("", "00", "00000000", "ffffffff"),
    "tRNS": ("", "00", "000000", "ff" * 300),
    "iCCP": ("", "00", "6100", "610001", "610000789c", "61" * 90, "610000" + "00" * 20),
    "cHRM": ("", "00" * 31, "ff" * 32),
    "sRGB": ("", "09", "0000"),
    "pHYs": ("", "00", "00" * 9, "ff" * 9),
    "PLTE": ("", "00", "000000", "00" * 900),
    "tEXt": ("", "00", "6100", "61" * 2000),
    "zTXt": ("", "00", "6100", "610000", "610001789c"),
    "iTXt": ("", "00", "6100", "61000000", "610001000000", "6100010000" + "00" * 9),
    "eXIf": ("", "00", "4d4d002a00000008ffff"),
    "acTL": ("", "00" * 8, "0000000200000000", "ffffffffffffffff"),
    "fcTL": ("", "00" * 26, "00000000" + "ffffffff" * 4 + "0000000000000000"[:12]),
    "fdAT": ("", "00000001", "00000001789c"),
    "IDAT": ("", "00", "789c", "789c0300"),
    "IHDR": ("", "00" * 13),
    "IEND": ("", "00"),
    "bKGD": ("", "00"),
    "hIST": ("", "00"),
    "tIME": ("", "00" * 7),
    "aaaa": ("", "00" * 9),
    "AAAA": ("00",),
    "\x00\x00\x00\x00": ("",),
}
# A text that unpacks to sixteen megabytes, and a profile that does.
_PACKED = zlib.compress(b"a" * 2**24, 9).hex()
BOMBS = {"zTXt": f"610000{_PACKED}", "iTXt": f"6100010000000000{_PACKED}"[:10] + "0000" + _PACKED,
         "iCCP": f"610000{_PACKED}"}  # fmt: skip
HEADERS = {
    "width": (0, 1, 31, 33, 64, 11_500, 2**20, 2**31 - 1, 2**32 - 1),
    "height": (0, 1, 31, 33, 64, 11_500, 2**20, 2**31 - 1, 2**32 - 1),
    "depth": (0, 1, 2, 4, 8, 16, 32, 255),
    "colour": (0, 1, 2, 3, 4, 6, 7, 255),
    "packing": (0, 1, 255),
    "filter": (0, 1, 255),
    "interlace": (0, 1, 2, 255),
}


def split(data: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG, as (name, content)."""
    found, at = [], len(_SIGN)
    while at + 8 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def join(chunks: list[tuple[bytes, bytes]], *, wrong: int = -1) -> bytes:
    """A PNG of these chunks; the one with the number `wrong` has another check sum."""
    parts = [_SIGN]
    for number, (name, held) in enumerate(chunks):
        check = zlib.crc32(name + held) ^ (number == wrong)
        parts += [struct.pack(">I", len(held)), name, held, struct.pack(">I", check)]
    return b"".join(parts)


def change_chunks(path: Path, change: Mapping[str, Any]) -> None:
    """Put a chunk in, leave one out, double it, move it, or spoil its check sum."""
    chunks = _chunks_of(path)
    if not chunks:
        return
    at, how = min(int(change["at"] * len(chunks)), len(chunks) - 1), change["how"]
    if how == "put":
        held = change["content"]
        held = BOMBS[change["name"]] if held == "bomb" else held
        chunks.insert(at, (change["name"].encode("latin-1"), bytes.fromhex(held)))
    elif how == "gone":
        del chunks[at]
    elif how == "twice":
        chunks.insert(at, chunks[at])
    elif how == "last":
        chunks.append(chunks.pop(at))
    written(path, join(chunks, wrong=at if how == "wrong" else -1))


def change_header(path: Path, change: Mapping[str, Any]) -> None:
    """Say something else of a picture than it is: sides, depth, colours, interlace."""
    chunks = _chunks_of(path)
    if not chunks or len(chunks[0][1]) != 13:
        return
    names = list(HEADERS)
    held = list(struct.unpack(">IIBBBBB", chunks[0][1]))
    for name, value in change["values"].items():
        held[names.index(name)] = value
    chunks[0] = (chunks[0][0], struct.pack(">IIBBBBB", *held))
    written(path, join(chunks))


def _chunks_of(path: Path) -> list[tuple[bytes, bytes]]:
    try:
        return split(content(path) or b"")
    except struct.error:
        return []
