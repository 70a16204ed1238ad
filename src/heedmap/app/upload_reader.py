"""A zip that a visitor sent, from its arrival to its page: whatever it holds costs little.

What is in it is weighed before it is read: the header of a picture tells its size, and the shapes
of the maps tell what a page costs.
"""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL.PngImagePlugin import PngImageFile

from heedmap.app import archives
from heedmap.app.options import Limits
from heedmap.app.quotas import network
from heedmap.app.result_store import Result, made_with, read_result
from heedmap.app.upload_pages import UploadPages
from heedmap.app.uploads import Uploads
from heedmap.errors import HeedmapError, RunError, plural, sizes
from heedmap.maps.layer_names import stage_of
from heedmap.results.explanations import Explanation
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

_READERS = 2  # zips that are read at a time, one for each visitor, whoever asks in whatever way
_SETTINGS = 256 * 2**10  # bytes of run.json and pair.json; a long prompt's settings have a tenth
_LARGER = {"grid.json": 2**20, "explain.json": 2**24}  # of 48 edits; of SDXL some 9 MiB
_BROUGHT = 2**24  # numbers that an explanation is made of: heads × tokens × channels; of SDXL 2**21
_STEPS = 2**11  # pixels on a side of the pictures of all steps; those of 100 have 640
_HEADER = 2**20  # bytes in which a file of maps says what it holds
_TOLD = 2**22  # numbers on a page, at least; 75 words of SDXL at 1024 pixels have a fifth
_ADDED = 2**27  # numbers that they are made of; those have an eighth
_SUMS = 600_000  # of a word in a layer at a step; those have as many with 100 steps


@dataclass(frozen=True)
class OpenedUpload:
    """What a visitor sent: the name of its page, and a line of what it was made with."""

    token: str
    made_with: str


class UploadReader:
    """Where zips are opened.

    Args:
        uploads: what visitors have sent.
        pages: where the pages go.
        folder: where zips are unpacked; nothing of them stays there.
        limits: of the operator.
    """

    def __init__(self, uploads: Uploads, pages: UploadPages, folder: Path, limits: Limits) -> None:
        self._uploads, self._pages, self._folder, self._limits = uploads, pages, folder, limits
        self._lock = threading.Lock()
        self._reading: list[str] = []  # networks

    def open(self, token: str, client: str) -> OpenedUpload:
        """The page of an uploaded zip.

        Args:
            token: the name that the upload was given.
            client: who asks.

        Raises:
            HeedmapError: if it is not there, is no result that heedmap saved, or would cost
                more than the limits allow; or while others are read.
        """
        with self._place(network(client)):
            path = self._uploads.open(token)
            try:
                result = self._read(path)
                page = result.page() if isinstance(result, Explanation) else result.explorer()
                return OpenedUpload(self._pages.keep(client, page), made_with(result))
            finally:
                path.unlink(missing_ok=True)

    @contextmanager
    def _place(self, who: str) -> Iterator[None]:
        with self._lock:
            if who in self._reading:
                raise HeedmapError("your last file is still being opened: wait for its page")
            if len(self._reading) >= _READERS:
                raise HeedmapError("others are opening files: try again in a moment")
            self._reading.append(who)
        try:
            yield
        finally:
            with self._lock:
                self._reading.remove(who)

    def _read(self, path: Path) -> Result:
        with tempfile.TemporaryDirectory(
            prefix="unpacked-", dir=self._folder, ignore_cleanup_errors=True
        ) as scratch:
            folder = Path(scratch)
            with path.open("rb") as file:
                archives.unpack(file, folder, most=self._limits.unpacked)
            check_files(folder, self._limits)
            result = read_result(folder)
            check_cost(result)
            return result


def check_files(folder: Path, limits: Limits) -> None:
    """Raise a RunError if a file of an unpacked result is larger than any that is taken.

    Args:
        folder: the result's; nothing in it was read yet.
        limits: of the operator; the pictures have the bound of those that are drawn here.
    """
    for path in sorted(folder.rglob("*.png")):
        size = _size(path)
        most = max(limits.size, _STEPS) if path.name == "steps.png" else limits.size
        if max(size) > most:
            raise RunError(
                f"a picture in this zip has {size[0]}×{size[1]} pixels: expected at most {most} on "
                "a side"
            )
    for path in folder.rglob("*.json"):
        most = _LARGER.get(path.name, _SETTINGS)
        if path.stat().st_size > most:
            size, limit = sizes(path.stat().st_size, most)
            raise RunError(f"in this zip {path.name} has {size}: expected at most {limit}")
    limits.check_cells(len(list(folder.glob("cells/*"))))
    for path in folder.rglob("*.safetensors"):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
        if length > _HEADER:
            size, limit = sizes(length, _HEADER)
            raise RunError(
                f"in this zip {path.name} begins with a table of {size}: expected at most {limit}"
            )


def check_cost(result: Result) -> None:
    """Raise a RunError if the page of a result would be made of more numbers than are taken.

    A page has at least the map of each word in each group of layers of one grid
    (`explorer.packing`); to make it, each word's tokens are added up in each layer, and at each
    step that is told apart. The runs of a grid may have as many in all as the two of an edit.
    """
    if isinstance(result, Explanation):
        heads, tokens = result.about.heads, len(result.tokens)
        channels = result.given.output.shape[0]
        if heads * tokens * channels > _BROUGHT:
            raise RunError(
                f"this explanation has {heads} heads, {tokens} tokens and {channels} channels: "
                "more than this server shows"
            )
        return
    share = max(1.0, len(runs := _runs_of(result)) / 2)
    for run in runs:
        for maps in filter(None, (run.maps, run.negative_maps, run.concepts)):
            recording = maps.recording
            words = recording.table.words
            parts = {(stage_of(layer.name), layer.grid) for layer in recording.layers}
            told = sum(h * w for _, (h, w) in parts) * (len(words) + 3)  # start, end, padding
            places = sum(layer.grid[0] * layer.grid[1] for layer in recording.layers)
            added = places * (len(recording.positions) + sum(len(word.tokens) for word in words))
            steps = len(recording.timesteps) if "step" in recording.keep else 1
            sums = len(recording.layers) * (len(words) + 3) * steps
            if max(told / _TOLD, added / _ADDED, sums / _SUMS) * share > 1:
                raise RunError(
                    f"this result has {plural(len(runs), 'picture')}, "
                    f"{plural(len(words), 'word')} and {plural(len(recording.layers), 'layer')} of "
                    f"{places} places in all, and {plural(steps, 'step')}: more than this server "
                    "shows"
                )


def _runs_of(result: Run | Pair | Grid) -> list[Run]:
    if isinstance(result, Grid):
        return [*result.sources.values(), *(cell.pair.edited for cell in result.cells)]
    return [result.source, result.edited] if isinstance(result, Pair) else [result]


def _size(path: Path) -> tuple[int, int]:
    """The number of a picture's pixels as its reader will see it; nothing is decoded."""
    try:
        with path.open("rb") as file:
            return PngImageFile(file).size
    except Exception as error:  # whatever it stumbles over in an untrusted file
        raise RunError("a picture in this zip is broken: make it again") from error
