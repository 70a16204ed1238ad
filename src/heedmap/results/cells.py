"""One edit of a grid, and where in the grid it stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedmap.errors import quoted, signed
from heedmap.results.pairs import Pair


@dataclass(frozen=True, eq=False)
class Cell:
    """One edit of a grid, and where in the grid it stands.

    Attributes:
        number: counts the cells from 1, in the order in which the last axis runs fastest.
        seed: of its noise.
        target: the prompt that was asked for, without the weights that the grid tries out.
        weights: these, by word.
        cross: while the source's cross-attention was taken (from, up to), of the run.
        self_attention: while its self-attention was.
        pair: the source and the edit, with the evidence.
    """

    number: int
    seed: int
    target: str
    weights: Mapping[str, float]
    cross: tuple[float, float]
    self_attention: tuple[float, float]
    pair: Pair

    def __repr__(self) -> str:
        place = [quoted(label(*one))[1:-1] for one in self.place().items() if one[0] != "target"]
        return f"<Cell {self.number} {quoted(self.target)}: {', '.join(place)}>"

    @property
    def folder(self) -> str:
        """Where its run is within the grid's folder."""
        return f"cells/{self.number:03d}"

    def row(self) -> dict[str, Any]:
        """Its line in grid.csv: where it stands, what it did, how much it changed."""
        about = self.pair.about
        figures = {
            f"{name}_{side}": getattr(change, name)
            for side, change in about.change.sides().items()
            for name in ("share", "mse", "psnr_db", "ssim")
        }
        return {
            "cell": self.number,
            "seed": self.seed,
            "source": self.pair.source.settings.prompt,
            "target": self.target,
            "prompt": self.pair.edited.settings.prompt,
            **{f"weight of {word}": weight for word, weight in self.weights.items()},
            **dict(zip(("cross_from", "cross_to"), self.cross, strict=True)),
            **dict(zip(("self_from", "self_to"), self.self_attention, strict=True)),
            **{name: getattr(about, name) for name in ("kind", "sites", "self_sites", "moved")},
            **figures,
            "file": f"{self.folder}/image.png",
        }

    def place(self) -> dict[str, Any]:
        """What may vary, by axis."""
        weights = {f"weight of {word}": weight for word, weight in self.weights.items()}
        return {
            "seed": self.seed,
            "target": self.target,
            **weights,
            "self_attention": self.self_attention,
            "cross": self.cross,
        }


def label(name: str, value: Any) -> str:
    """What a row or a column of a contact sheet is."""
    if name == "target":
        return value
    if name == "seed":
        return f"seed {value}"
    if name.startswith("weight of "):
        return f"{name.removeprefix('weight of ')} ×{signed(value)}"
    low, high = value
    span = f"{high:g}" if low == 0 else f"{low:g}–{high:g}"
    return f"{'cross' if name == 'cross' else 'self'} {span}"


def weights_said(axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Which weights of which words vary: "red ×−1, 0, 2"."""
    found = ((name.partition("weight of ")[2], values) for name, values in axes.items())
    return [f"{word} ×{', '.join(map(signed, values))}" for word, values in found if word]
