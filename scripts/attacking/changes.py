"""What is done to a saved result before it is opened: each change is plain JSON, with its `do`.

`json`      a value of a JSON file: put, gone, twice
`about`     the same in what a file of maps says of itself
`header`    the same in the header of its arrays: shapes, offsets, types
`bytes`     a file's bytes: cut, flipped, put in between
`kind`      a pipe, a folder, a link, a socket or nothing in place of a file
`array`     numbers of an explanation: the first, some or all of an array
`shape`     maps, settings and picture made anew, alike and of odd sizes (`shapes`)
`chunk`, `ihdr`   a picture's parts (`chunks`)
"""

import base64
import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attacking import chunks, shapes
from attacking.plain import content, gone, written
from attacking.spelling import Sheet

KINDS = (
    "gone", "empty", "fifo", "folder", "full folder", "loop", "dangling", "self", "zero", "null",
    "proc", "socket", "unreadable", "tail", "huge",
)  # fmt: skip


def lay(seed: Mapping[str, bytes], target: Path, changes: list[Mapping[str, Any]]) -> None:
    """Lay out a result with these changes.

    Args:
        seed: the files of a sound one.
        target: the folder to be.
        changes: one after the other; what a later one finds nothing to change in is left out.
    """
    for name, data in seed.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for change in changes:
        _DO[change["do"]](target / change.get("file", ""), change)


def _json(path: Path, change: Mapping[str, Any]) -> None:
    data = content(path)
    if data is None:
        return
    try:
        sheet = Sheet(data.decode())
    except (ValueError, RecursionError):  # broken by an earlier change
        return
    sheet.change(change["place"], change["how"], change.get("value"))
    written(path, sheet.text().encode())


# --- files of maps ----------------------------------------------------------------------------


def parts(data: bytes) -> tuple[str, bytes]:
    """The header and the rest of a file of arrays."""
    (length,) = struct.unpack("<Q", data[:8])
    return data[8 : 8 + length].decode(), data[8 + length :]


def joined(header: str, rest: bytes) -> bytes:
    """A file of arrays."""
    said = header.encode()
    said += b" " * (-len(said) % 8)
    return struct.pack("<Q", len(said)) + said + rest


def _header(path: Path, change: Mapping[str, Any]) -> None:
    data = content(path)
    if data is None:
        return
    try:
        header, rest = parts(data)
        sheet = Sheet(header)
    except (ValueError, RecursionError, struct.error):
        return
    sheet.change(change["place"], change["how"], change.get("value"))
    written(path, joined(sheet.text(), rest))


def _about(path: Path, change: Mapping[str, Any]) -> None:
    data = content(path)
    if data is None:
        return
    try:
        header, rest = parts(data)
        tree = json.loads(header)
        sheet = Sheet(tree["__metadata__"]["heedmap"])
    except (ValueError, RecursionError, struct.error, LookupError, TypeError):
        return
    sheet.change(change["place"], change["how"], change.get("value"))
    tree["__metadata__"]["heedmap"] = sheet.text()
    written(path, joined(json.dumps(tree), rest))


def _array(path: Path, change: Mapping[str, Any]) -> None:
    data = content(path)
    if data is None:
        return
    try:
        tree = json.loads(data)
        held = tree["given"][change["name"]]
        array = np.frombuffer(base64.b64decode(held["float32"]), "<f4").copy()
    except (ValueError, RecursionError, LookupError, TypeError):  # broken by an earlier change
        return
    array[: max(1, int(len(array) * change["share"]))] = float(change["value"])
    held["float32"] = base64.b64encode(array.tobytes()).decode()
    written(path, json.dumps(tree).encode())


# --- any file ---------------------------------------------------------------------------------


def _bytes(path: Path, change: Mapping[str, Any]) -> None:
    data = content(path)
    if data is not None:
        written(path, altered(data, change))


def altered(data: bytes, change: Mapping[str, Any]) -> bytes:
    """Bytes that are cut, flipped, put in between or put in their place, at a share of them."""
    at, how = int(len(data) * change["at"]), change["how"]
    put = bytes.fromhex(change.get("put", ""))
    if how == "cut":
        return data[:at]
    if how == "flip":
        return data[:at] + bytes(b ^ 0xFF for b in data[at : at + 1]) + data[at + 1 :]
    if how == "between":
        return data[:at] + put + data[at:]
    return data[:at] + put + data[at + len(put) :]


def _kind(path: Path, change: Mapping[str, Any]) -> None:
    kind = change["kind"]
    if kind == "tail" or kind == "unreadable":
        data = content(path)
        if data is not None:
            written(path, data + (b"\0" * 100_000 if kind == "tail" else b""))
            path.chmod(0 if kind == "unreadable" else 0o644)
        return
    gone(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    links = {
        "loop": path.name, "dangling": "nothing-here", "self": ".", "zero": "/dev/zero",
        "null": "/dev/null", "proc": "/proc/self/mem",
    }  # fmt: skip
    if kind in links:
        path.symlink_to(links[kind])
    elif kind == "empty":
        path.touch()
    elif kind == "huge":
        path.touch()
        os.truncate(path, 5 * 2**30)  # of nothing: it takes no room
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        # Bound by a short name from within: the whole one may be too long for a socket.
        at = os.open(path.parent, os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{at}/{path.name}")
        finally:
            os.close(at)
    elif kind != "gone":
        path.mkdir()
        if kind == "full folder":
            (path / path.name).touch()


_DO = {
    "json": _json, "about": _about, "header": _header, "bytes": _bytes, "kind": _kind,
    "array": _array, "shape": shapes.reshape, "chunk": chunks.change_chunks,
    "ihdr": chunks.change_header,
}  # fmt: skip
