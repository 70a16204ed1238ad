"""`ablate.json`: a word that was left out both ways, and how far attention and cause agree."""

from typing import Annotated, Literal

from msgspec import Meta

from heedmap.errors import signed
from heedmap.io.notes import Note
from heedmap.io.reading import FORMAT
from heedmap.io.values import MAX_TOKENS, Correlation, Files, Fraction, Small, Text

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
