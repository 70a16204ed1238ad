"""The schemas of `run.json`, `pair.json` and `grid.json`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from heedmap.io.reading import FORMAT
from heedmap.io.reports import EditReport, GridReport
from heedmap.io.settings import Settings
from heedmap.io.values import (
    MAX_CELLS,
    MAX_STEPS,
    Correlation,
    Files,
    Name,
    Note,
    Number,
    Small,
    SmallSide,
    StepSource,
    Text,
    Whole,
    Window,
    encoded,
)


class WordFile(Struct, frozen=True):
    """A word of a run: the file of its overlay within the folder, the stability of its map."""

    number: Small
    text: Text
    tokens: tuple[Small, ...]
    file: Name | None = None
    stability: Correlation | UnsetType = UNSET


class StepsFile(Struct, frozen=True):
    """The content of `steps.png`: how many pictures, the size of each, and what they show."""

    count: Annotated[int, Meta(ge=1, le=MAX_STEPS)]
    size: tuple[SmallSide, SmallSide]
    shows: StepSource


class RunFile(Note, frozen=True, kw_only=True):
    """`run.json`.

    Attributes:
        files: those beside it, without the overlays of words.
        words: of the prompt.
        concepts: of what was searched beside the prompt.
    """

    format: int = FORMAT
    files: Files
    settings: Settings
    steps: StepsFile | None = None
    words: tuple[WordFile, ...] = ()
    concepts: tuple[WordFile, ...] = ()


class PairFile(Note, frozen=True, kw_only=True):
    """`pair.json`."""

    format: int = FORMAT
    files: Files
    about: EditReport


class CellRow(Note, frozen=True, kw_only=True):
    """A cell of a grid."""

    number: Whole
    seed: Whole
    target: Text
    weights: Mapping[Text, Number]
    cross: Window
    self_attention: Window
    file: Name
    blended: bool
    about: EditReport


class GridFile(Note, frozen=True, kw_only=True):
    """`grid.json`."""

    format: int = FORMAT
    files: Files
    about: GridReport
    cells: Annotated[tuple[CellRow, ...], Meta(min_length=1, max_length=MAX_CELLS)]


def write_file(path: Path, content: Struct) -> None:
    """Write a JSON file.

    Raises:
        RunError: if something in it cannot be written, or could not be read back.
    """
    path.write_bytes(encoded(content, path.name))
