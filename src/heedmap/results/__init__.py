"""Results of calls: runs, edits, grids, ablations and explanations, in memory and in folders.

Nothing here imports torch: saved results open without a model.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from PIL import Image

from heedmap.figures import plots
from heedmap.io.reading import path_of
from heedmap.io.schemas import ResultFile, encode
from heedmap.io.writing import save_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Saved(ABC):
    """A result that is saved as a folder."""

    def save(self, folder: str | Path, *, overlays: bool = True) -> Path:
        """Write the result to a folder, whole or not at all, and return the folder.

        Args:
            folder: new or empty; the class lists the files in it.
            overlays: if True, write the page, the sheets, and of a run the overlays of the first 75
                words; `heedmap inspect` draws the overlays from the other files, too.

        Raises:
            ArgumentError: if `folder` is not a path.
            RunError: if the folder is not empty, or cannot be written.
        """
        return save_parts(folder, self.parts(overlays))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a result that `save` wrote; no model and no torch is loaded.

        Raises:
            ArgumentError: if `folder` is not a path.
            RunError: if the folder has no such result, or something in it is broken.
        """
        return cls.read_files(path_of(folder))

    @abstractmethod
    def parts(self, overlays: bool) -> Mapping[str, Any]:
        """Return the content of each file by its path in the folder; None is left out."""

    @classmethod
    @abstractmethod
    def read_files(cls, folder: Path) -> Self:
        """Read the files of a folder that `save` wrote."""


class Result(Saved):
    """A saved result that is also drawn as a figure."""

    @abstractmethod
    def figure(self) -> "Figure":
        """Draw the result."""

    def sheet(self) -> Image.Image:
        """Return `figure` as an image."""
        return plots.render(self.figure())

    def _repr_png_(self) -> bytes:
        return plots.encode(self.figure())


def within(folder: str, result: Saved, overlays: bool) -> dict[str, Any]:
    """Return the parts of a result in an inner folder."""
    parts = result.parts(overlays)
    return {f"{folder}/{name}": part for name, part in parts.items()}


def json_part(
    name: str,
    schema: type[ResultFile],
    parts: Mapping[str, Any],
    **fields: Any,
) -> dict[str, Any]:
    """Return the JSON file of a result as a part, which lists the files beside it, too."""
    paths = sorted(path for path in parts if "/" not in path)
    files = [path for path in paths if parts[path] is not None]
    file = schema(files=(*files, name), **fields)
    return {name: encode(file, name)}
