"""Results of calls: runs, edits, grids, ablations and explanations, in memory and in folders.

Nothing here imports torch: saved results open without a model.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct
from PIL import Image

from heedmap.figures import plots
from heedmap.io.reading import path_of
from heedmap.io.schemas import Name, encode
from heedmap.io.writing import whole_folder
from heedmap.page import pages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Files = tuple[Name, ...]
"""The names of the files in a folder, without those in inner folders."""


class Saved(ABC):
    """A result that is saved as a folder."""

    def save(self, folder: str | Path) -> Path:
        """Write the result to a folder, whole or not at all, and return the folder.

        Args:
            folder: new or empty; the class lists the files in it.

        Raises:
            ArgumentError: if `folder` is not a path.
            RunError: if the folder is not empty, or cannot be written.
        """
        with whole_folder(folder) as partial:
            self.write_files(partial)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a result that `save` wrote; no model and no torch is loaded.

        Raises:
            ArgumentError: if `folder` is not a path.
            RunError: if the folder has no such result, or something in it is broken.
        """
        return cls.read_files(path_of(folder))

    @abstractmethod
    def write_files(self, folder: Path) -> None:
        """Write the files of the result to a folder."""

    @classmethod
    @abstractmethod
    def read_files(cls, folder: Path) -> Self:
        """Read the files that `write_files` wrote to a folder."""


class Result(Saved):
    """A saved result that is also drawn as a figure."""

    @abstractmethod
    def figure(self) -> "Figure":
        """Draw the result."""

    def sheet(self) -> Image.Image:
        """Return `figure` as an image."""
        return plots.render(self.figure())

    def _repr_html_(self) -> str:
        return pages.preview(self, self.sheet())


def write_json(path: Path, schema: type[Struct], **fields: Any) -> None:
    """Write a JSON file that also lists the other files of its folder."""
    names = sorted(one.name for one in path.parent.iterdir() if one.is_file())
    path.write_bytes(encode(schema(files=(*names, path.name), **fields), path.name))
