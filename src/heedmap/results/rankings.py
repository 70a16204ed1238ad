"""A ranking of layers or heads by the change of the image in a word's mask, without each."""

from dataclasses import dataclass
from typing import NamedTuple

from heedmap.results.runs import Run


class Removal(NamedTuple):
    """The change of an image without a word's attention in a layer or a head.

    Attributes:
        layer: the dotted path of the layer.
        head: the number of the head; None for all heads of the layer.
        name: the name in figures, as "up 1.0" or "up 1.0 head 3".
        inside: the mean change of the pixels inside of the word's mask, 0 to 1.
        outside: that of all other pixels.
    """

    layer: str
    head: int | None
    name: str
    inside: float
    outside: float


@dataclass(frozen=True, eq=False)
class Ranking:
    """The layers or heads of a model, ranked by the change of the image in a word's mask.

        ranking = hm.rank(pipe, run, "house")
        table = pandas.DataFrame(ranking.removals)
        table.plot.barh(x="name", y=["inside", "outside"])

    Attributes:
        word: the word.
        run: the run with the word in all layers.
        removals: the layers or heads, first the one of the largest change inside.
    """

    word: str
    run: Run
    removals: tuple[Removal, ...]
