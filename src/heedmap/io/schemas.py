"""The schemas of `run.json`, `pair.json`, `grid.json` and `ablate.json`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from heedmap.errors import signed
from heedmap.io.reading import FORMAT
from heedmap.io.reports import EditReport, GridReport
from heedmap.io.settings import Settings
from heedmap.io.values import (
    MAX_CELLS,
    MAX_STEPS,
    MAX_TOKENS,
    Correlation,
    Files,
    Fraction,
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

MAX_ABLATION = 2**20
"""Bytes of `ablate.json`."""
Way = Literal["columns", "unread"]
"""How a word is left out: its columns of P taken away, or the prompt read without it."""

MARK = "attention and cause (columns): "
"""What stands before how far a word's map is to be trusted, where one way is told of two."""


class Agreement(Note, frozen=True):
    """How far a map and the cause agree, both on the grid of the map.

    Attributes:
        rank: Spearman's rank correlation, -1 to 1; None where one of them is the same everywhere.
        auc: how often a place of the changed region has more of the map than a place outside, 0 to
            1, 0.5 by chance; None where there is no such region. The region is what Otsu's
            threshold parts from the rest of the difference (`mathematics.agreement`).
    """

    rank: Correlation | None
    auc: Fraction | None

    def __str__(self) -> str:
        held = (("rank", self.rank), ("AUC", self.auc))
        figures = (f"{name} {signed(value, '.2f')}" for name, value in held if value is not None)
        return ", ".join(figures) or "nothing to compare"


class WayTold(Note, frozen=True, kw_only=True):
    """What leaving a word out in one way did, and how far its maps had foretold it.

    Attributes:
        most: the largest difference of a pixel, 0 to 1.
        mean: the mean difference of the picture.
        heat: of the plain map of the word.
        refined: of its refined map; None where the run has none.
        mask: of the soft mask of its phrase.
    """

    most: Fraction
    mean: Fraction
    heat: Agreement
    refined: Agreement | None
    mask: Agreement

    def __str__(self) -> str:
        if self.heat.auc is None:
            return "nothing" if self.most == 0 else "the same everywhere"
        even, agree = "the heat is the same everywhere", f"heat and change agree: {self.heat}"
        said = even if self.heat.rank is None else agree
        return f"up to {self.most:.0%} of full range; {said}"


class Trust(Note, frozen=True, kw_only=True):
    """How far attention and cause agree, of one word in one picture.

    Attributes:
        columns: its columns of P taken away.
        unread: the prompt read without it.
        between: the rank correlation of the two differences, on the grid of the map; None where
            one is the same everywhere.
    """

    columns: WayTold
    unread: WayTold
    between: Correlation | None

    def ways(self) -> dict[Way, WayTold]:
        """Both by name."""
        return {"columns": self.columns, "unread": self.unread}


class AblationFile(Note, frozen=True, kw_only=True):
    """`ablate.json`; a loaded ablation computes `trust` anew."""

    format: int = FORMAT
    files: Files
    word: Text
    tokens: Annotated[tuple[Small, ...], Meta(min_length=1, max_length=MAX_TOKENS)]
    trust: Trust


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
        trust: by the word that an ablation left out.
    """

    format: int = FORMAT
    files: Files
    settings: Settings
    steps: StepsFile | None = None
    words: tuple[WordFile, ...] = ()
    concepts: tuple[WordFile, ...] = ()
    trust: Annotated[Mapping[Text, Trust], Meta(max_length=MAX_TOKENS)] = {}


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
