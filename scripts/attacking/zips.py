"""Archives as nobody packs them: names, links, bombs, a directory that lies, broken bytes."""

import io
import struct
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attacking.changes import altered
from attacking.plain import content

NAMES = (
    "../run.json", "/run.json", "a/../../run.json", "\\run.json", "C:run.json", "a\x00b", "",
    "run.json", ".", "..", "a" * 300, "a/" * 500 + "b", "é", "run.json/x", "image.png/x",
    "./run.json", "a//b", "\x1b[31m", "~/.bashrc", "source/run.json", "pair.json", "grid.json",
)  # fmt: skip
# Where a field of a record stands in it, and how long it is.
FIELDS = {
    "local": {"version": (4, 2), "flags": (6, 2), "method": (8, 2), "check": (14, 4),
              "packed": (18, 4), "size": (22, 4), "name": (26, 2), "extra": (28, 2)},
    "central": {"made by": (4, 2), "version": (6, 2), "flags": (8, 2), "method": (10, 2),
                "check": (16, 4), "packed": (20, 4), "size": (24, 4), "name": (28, 2),
                "extra": (30, 2), "comment": (32, 2), "disk": (34, 2), "attributes": (38, 4),
                "offset": (42, 4)},
    "end": {"disk": (4, 2), "disk of directory": (6, 2), "entries here": (8, 2), "entries": (10, 2),
            "directory": (12, 4), "offset": (16, 4), "comment": (20, 2)},
}  # fmt: skip
_SIGNS = {"local": b"PK\x03\x04", "central": b"PK\x01\x02", "end": b"PK\x05\x06"}
VALUES = (0, 1, 2, 8, 9, 12, 14, 20, 63, 93, 95, 98, 99, 0x7FFF, 0xFFFF, 0xFFFFFFFF, 0xA1FF0000,
          0x21B60000, 0x11A40000, 0x41ED0000)  # fmt: skip
BOMB = 300 * 2**20
"""Bytes that a bomb unpacks to; it is packed into a thousandth of that."""


def pack(folder: Path, changes: Sequence[Mapping[str, Any]]) -> bytes:
    """A folder as an archive, with these changes; links and pipes are left out.

    Args:
        folder: of a result.
        changes: each with its `how`: "name", "twice", "bomb", "many", "store", "field", or one of
            `changes.altered`; bombs and what is stored are packed by a `method` of `zipfile`.
    """
    by_how = {change["how"]: change for change in changes}
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # names come twice on purpose
        held = [(path, content(path)) for path in sorted(folder.rglob("*"))]
        for number, (path, data) in enumerate(pair for pair in held if pair[1] is not None):
            name = f"result/{path.relative_to(folder).as_posix()}"
            _put(archive, number, name, data or b"", by_how)
        for number in range(by_how.get("many", {}).get("count", 0)):
            archive.writestr(f"result/{number}", b"")
    data = file.getvalue()
    for change in changes:
        if change["how"] == "field":
            data = _patched(data, change)
        elif change["how"] in ("cut", "flip", "between", "put"):
            data = altered(data, change)
    return data


def _put(
    archive: zipfile.ZipFile, number: int, name: str, data: bytes, by_how: Mapping[str, Any]
) -> None:
    def here(how: str) -> Any:
        change = by_how.get(how)
        return change if change is not None and number == change["entry"] else None

    renamed = here("name")
    entry = zipfile.ZipInfo(f"result/{number}" if renamed else name)
    if renamed:  # after it was made, since that cleans names
        entry.filename = entry.orig_filename = renamed["name"]
    stored, bomb = here("store"), here("bomb")
    usual = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    entry.compress_type = (stored or bomb or {}).get("method", usual)
    if bomb:
        with archive.open(entry, "w", force_zip64=True) as target:
            block = b" " * 2**20
            slow = entry.compress_type != zipfile.ZIP_DEFLATED  # to pack, if not to unpack
            for _ in range(BOMB // len(block) // (8 if slow else 1)):
                target.write(block)
        return
    archive.writestr(entry, data)
    if here("twice"):
        again = zipfile.ZipInfo(name)
        archive.filelist[-1].filename = "x"  # so that it does not warn
        archive.NameToInfo.pop(name, None)
        archive.writestr(again, b"{}")
        archive.filelist[-2].filename = name


def _patched(data: bytes, change: Mapping[str, Any]) -> bytes:
    """An archive in which a field of a record says something else."""
    sign = _SIGNS[change["record"]]
    places = [at for at in range(len(data)) if data.startswith(sign, at)]
    if not places:
        return data
    at, length = FIELDS[change["record"]][change["field"]]
    at += places[change["entry"] % len(places)]
    value = struct.pack("<I", change["value"] & 0xFFFFFFFF)[:length]
    return data[:at] + value + data[at + length :]
