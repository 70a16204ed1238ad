"""The best alignment of two sequences."""

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise, product
from operator import itemgetter
from typing import Any, TypeVar

from heedmap.errors import ArgumentError

MAX_TABLE = 500_000  # cells of the dynamic program: about a second

_Item = TypeVar("_Item")
# The value of an alignment, and its matches as a linked list (earlier, i, j).
_Path = tuple[float, Any]
_NO_PATH: _Path = (-math.inf, None)


def best_matches(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    *,
    match: int,
    swap: int,
    gap: int,
) -> list[tuple[int, int]]:
    """Return the pairs (i, j) of equal items of the best alignment of two sequences, ascending.

    Global alignment after Needleman and Wunsch (1970), with scores of equal pairs, unequal pairs
    and items without a partner. Among alignments of the same score the best has the most matches,
    then the fewest seams (a match after an item without one; so surplus goes to the end), then its
    surplus as early as possible: the words before a noun stay with the noun.
    """
    if len(a) * len(b) > MAX_TABLE:
        raise ArgumentError(
            f"the prompts are too long to be aligned: {len(a)} and {len(b)} words or tokens; make "
            "both shorter"
        )
    # One integer orders the alignments: score, then matches, then seams.
    unit = len(a) + len(b) + 2
    score = unit**2
    # The best alignments of the first i items with the first j: of all, and where a match follows.
    best: dict[tuple[int, int], _Path] = {(0, 0): (0, None)}
    joined = dict(best)
    for i, j in product(range(len(a) + 1), range(len(b) + 1)):
        if i == j == 0:
            continue
        swapped = best.get((i - 1, j - 1), _NO_PATH)
        added = best.get((i, j - 1), _NO_PATH)
        dropped = best.get((i - 1, j), _NO_PATH)
        value, matches = max(
            (swapped[0] + swap * score, swapped[1]),
            (added[0] + gap * score, added[1]),
            (dropped[0] + gap * score, dropped[1]),
            key=itemgetter(0),
        )
        paths: list[_Path] = [(value, matches)]
        if i and j and a[i - 1] == b[j - 1]:
            earlier = joined[i - 1, j - 1]
            gain = match * score + unit
            paths.insert(0, (earlier[0] + gain, (earlier[1], i - 1, j - 1)))
        best[i, j] = max(paths, key=itemgetter(0))
        paths[-1] = (value - 1, matches)
        joined[i, j] = max(paths, key=itemgetter(0))
    pairs: list[tuple[int, int]] = []
    _, matches = best[len(a), len(b)]
    while matches is not None:
        matches, i, j = matches
        pairs.append((i, j))
    return pairs[::-1]


def segments(
    matches: Sequence[tuple[int, int]],
    a: Sequence[_Item],
    b: Sequence[_Item],
) -> Iterator[tuple[Sequence[_Item], Sequence[_Item], list[tuple[_Item, _Item]]]]:
    """Yield the items of two sequences before each match, with the match, and those after all."""
    for (i, j), (next_i, next_j) in pairwise([(-1, -1), *matches, (len(a), len(b))]):
        match = list(zip(a[next_i : next_i + 1], b[next_j : next_j + 1], strict=True))
        yield a[i + 1 : next_i], b[j + 1 : next_j], match
