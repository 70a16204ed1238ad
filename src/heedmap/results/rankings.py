"""A ranking of layers or heads by the change of the image where a word is, without each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from heedmap.figures import plots
from heedmap.results.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    """The layers or heads of a model, ranked by what the image loses where a word is.

        ranking = hm.rank(pipe, run, "house")
        ranking.removals[0].layer, pandas.DataFrame(ranking.removals), ranking.figure()

    Attributes:
        word: the word.
        run: the run with the word in all layers.
        removals: the layers or heads, first the one of the largest change inside.
    """

    word: str
    run: Run
    removals: tuple[Removal, ...]

    def figure(self) -> "Figure":
        """Draw the change inside of the word's mask as bars, and that outside as points."""
        from matplotlib.figure import Figure

        _, _, names, inside, outside = zip(*self.removals, strict=True)
        figure = Figure((6, 1.4 + 0.2 * len(names)), layout="constrained")
        ax: Any = figure.subplots()
        ax.barh(names, inside, label=f"inside of the mask of “{self.word}”")
        ax.plot(outside, names, "k.", label="outside")
        ax.invert_yaxis()
        ax.set_xlabel("mean change of the image, of full range")
        ax.legend(loc="lower right")
        return plots.with_bars(figure, ())
