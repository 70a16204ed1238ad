"""Results as zip files: packed for whoever takes one along, and unpacked without any trust.

Of an archive that comes in, only files that a run or an edit needs are taken, under names that are
listed here. Pages and pictures made of them are not taken, but made anew.
"""

import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from heedmap.errors import RunError, listed
from heedmap.files import kinds

_RUN = r"(?:run\.json|(?:image|given|steps)\.png|(?:maps|negative|concepts)\.safetensors)"
_CELL = r"cells/\d{3,5}"
_TAKEN = {
    "grid.json": rf"grid\.json|(?:sources/-?\d{{1,19}}|{_CELL})/{_RUN}|{_CELL}/blend\.png",
    "pair.json": rf"pair\.json|blend\.png|(?:source|edited)/{_RUN}",
    "run.json": _RUN,
    "explain.json": r"explain\.json|image\.png",
}
"""By the file that tells what a zip holds: the names of what is taken of it."""
_MEMBERS = 5000  # more than a grid of long prompts has
_BLOCK = 2**19  # bytes that are read at a time, a zip's list of its files among them


def zip_result(folder: Path, file: IO[bytes]) -> None:
    """Write what heedmap wrote into a folder into a zip, in a folder of its name.

    What else lies there is somebody's own. The same folder gives the same bytes.

    Args:
        folder: a run's, an edit's, a grid's or an explanation's.
        file: where to; it must be seekable.

    Raises:
        RunError: if the folder is none of them.
    """
    try:
        names = kinds.written_in(folder, kinds.PAIR, kinds.RUN, kinds.GRID, kinds.EXPLANATION)
    except OSError:  # as of folders within one another, too deep to be named
        names = []
    if not names:
        raise RunError("this result is not there any more as it was saved: make it again")
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            path = folder / name
            # The time is 1980, whenever it is packed.
            entry = zipfile.ZipInfo(f"heedmap-{folder.name}/{name}")
            entry.external_attr = 0o644 << 16
            # Pictures are packed already; trying again would only take time.
            packed = path.suffix == ".png"
            entry.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, _BLOCK)


def unpack(file: IO[bytes], folder: Path, *, most: int) -> None:
    """Take a result out of a zip into an empty folder.

    Args:
        file: the zip.
        folder: where to; what is there after an error is for the caller to delete.
        most: bytes that all that is taken may have.

    Raises:
        RunError: if it is not a zip, holds no result, or is hostile.
    """
    try:
        with zipfile.ZipFile(_Sparing(file)) as archive:
            entries = _checked(archive.infolist())
            top, wanted = _found(entries)
            taken = {
                name.removeprefix(top): entry
                for name, entry in entries.items()
                if name.startswith(top) and re.fullmatch(wanted, name.removeprefix(top))
            }
            # What it says itself costs nothing to know; what it does not is counted below.
            if sum(entry.file_size for entry in taken.values()) > most:
                raise _too_much()
            left = most
            for name, entry in taken.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                left -= _copy(archive, entry, folder / name, left)
    # A broken archive raises whatever the reader stumbles over first.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        KeyError,
        OverflowError,
    ) as error:
        raise RunError(
            "this file is not a zip that can be read: expected that of a result, as the app "
            "gives it, or of a folder that heedmap saved"
        ) from error


class _Sparing:
    """A zip as its reader sees it; the list of its files is read in one piece.

    The cost of the list depends on its bytes, whatever the zip says about the number of its files:
    each has some fields that are looked at one by one, and a few megabytes of them take seconds.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """The next bytes; those that the reader asks for without a number are the last few."""
        if size > _BLOCK:
            raise RunError("this zip lists more files than a result has: it was not read")
        return self._file.read(size)


def _checked(entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The files by name; RunError if one has a name or a kind that no result has."""
    if len(entries) > _MEMBERS:
        raise RunError(f"this zip has {len(entries)} files: a result has fewer")
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        parts = PurePosixPath(entry.orig_filename).parts
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if (
            entry.orig_filename.startswith("/")
            or ".." in parts
            or any(sign in entry.orig_filename for sign in "\\:\0")
        ):
            raise RunError("this zip names files outside of its folder: it was not read")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise RunError("this zip holds links or devices: it was not read")
        if entry.flag_bits & 1:
            raise RunError("this zip is encrypted: pack it without a password")
        # What is packed in another way is unpacked in one piece, or ends in an error of its own.
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RunError("this zip is packed in an unusual way: pack it by “deflate”, as most do")
        if entry.filename in found:
            raise RunError("this zip has a file twice: it was not read")
        found[entry.filename] = entry
    return found


def _found(entries: dict[str, zipfile.ZipInfo]) -> tuple[str, str]:
    """The folder within the zip, as "name/" or "", and the pattern of what is taken from it."""
    tops = {""} | {f"{name.partition('/')[0]}/" for name in entries if "/" in name}
    if any(f"{top}ablate.json" in entries for top in tops):
        raise RunError("this zip is of an ablation: expected that of one of its three runs")
    held = {
        top: wanted
        for mark, wanted in reversed(_TAKEN.items())  # of several the first counts
        for top in sorted(tops)
        if f"{top}{mark}" in entries
    }
    if "" in held:
        return "", held[""]
    if len(held) == 1:
        return held.popitem()
    if held:
        names = listed([top.rstrip("/") for top in sorted(held)], "and")
        raise RunError(f"this zip holds several results, {names}: expected one; pack its folder")
    raise RunError(
        f"this zip holds no result: expected {listed([*_TAKEN])} in it, as in the folders that "
        "heedmap saves"
    )


def _copy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, most: int) -> int:
    """Unpack one file; its size is counted while it is unpacked, whatever the zip says of it."""
    size = 0
    with archive.open(entry) as source, path.open("xb") as target:
        for block in _blocks(source):
            size += len(block)
            if size > most:
                raise _too_much()
            target.write(block)
    return size


def _too_much() -> RunError:
    return RunError("this zip unpacks to more than this server takes: it was not read")


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: source.read(_BLOCK), b"")
