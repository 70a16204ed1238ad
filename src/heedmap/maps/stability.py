"""How stable the map of a word is over the noises in which a model was shown a picture.

The steps are parted in two halves, each with noises of its own, and a word's map of the one is held
against that of the other. A map may be stable and false: it says what the model sees each time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from heedmap.errors import signed
from heedmap.maps.recordings import Layer, Recording
from heedmap.maps.selections import Averages, Selection
from heedmap.mathematics.agreement import rank_correlation
from heedmap.text.words import Word

UNSTEADY = 0.8
"""Below it a map is called unsteady: the halves' maps of two nouns agree as far, of a picture with
both (by 0.64 in the mean and 0.83 at most on the embedded model), while no noun's own do, in ten
looks (0.91 at least)."""


def stability_of(
    recording: Recording, halves: Sequence[Mapping[tuple[int, int], np.ndarray]]
) -> Mapping[int, float] | None:
    """How far the maps of two halves of a run agree, word by word.

    Args:
        recording: of the run.
        halves: of each, by the grid of its layers, the sum (Q, K) of what its tokens drew there.

    Returns:
        By the number of a word the rank correlation of its two maps, -1 to 1, to four digits. A
        word is left out whose map is the same everywhere. None where there are no two halves, or
        nothing is left.
    """
    if len(halves) < 2:
        return None
    one, other = (_averages(recording, half) for half in halves)
    found = {
        word.number: rank_correlation(one.of(word.tokens), other.of(word.tokens))
        for word in recording.table.read_words
    }
    return {n: round(r, 4) for n, r in found.items() if r is not None} or None


def _averages(recording: Recording, half: Mapping[tuple[int, int], np.ndarray]) -> Averages:
    """The maps of a half as those of a run; all are of one factor, which no order knows."""
    arrays = tuple(total[None, None] for total in half.values())
    layers = tuple(Layer("", 1, grid) for grid in half)
    return Averages(replace(recording, layers=layers, arrays=arrays), Selection())


def stability_at(
    stability: Mapping[int, float] | None, words: Iterable[Word], positions: Sequence[int]
) -> float | None:
    """The stability of the word that has these tokens and no others; None where none has."""
    if not stability:
        return None
    own = tuple(positions)
    return next((stability.get(word.number) for word in words if word.tokens == own), None)


def least_stability(
    stability: Mapping[int, float] | None, words: Iterable[Word], positions: Iterable[int]
) -> float | None:
    """That of the least stable word with tokens among these: a phrase is no steadier than it.

    None where none of them has one.
    """
    own, known = set(positions), stability or {}
    held = (known.get(word.number) for word in words if not own.isdisjoint(word.tokens))
    return min((one for one in held if one is not None), default=None)


def stability_said(stability: float) -> str:
    """How stable a map is, as it is told beside it; and whether that is little."""
    little = ", unsteady" if stability < UNSTEADY else ""
    return f"stability {signed(stability, '.2f')}{little}"
