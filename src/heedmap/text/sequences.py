"""The best alignment of two sequences."""

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate, pairwise, product
from operator import itemgetter
from typing import Any, TypeVar

from heedmap.errors import ArgumentError

MAX_TABLE = 500_000  # cells of the dynamic program: about a second

_Item = TypeVar("_Item")
_Paths = dict[tuple[int, int], tuple[float, Any]]


def best_matches(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    a_sizes: Sequence[int] = (),
    b_sizes: Sequence[int] = (),
    *,
    match: int,
    swap: int,
    gap: int,
) -> list[tuple[int, int]]:
    """Return the pairs (i, j) of equal items of the best alignment of two sequences, ascending.

    Global alignment after Needleman and Wunsch (1970), with scores of equal pairs, unequal pairs
    and items without a partner. Among alignments of the same score the best has the most items in
    units (such as words, of `a_sizes` and `b_sizes` items) that were matched whole, then the fewest
    seams (a match after an item without one; so surplus goes to the end), then its surplus as early
    as possible: the words before a noun stay with the noun.
    """
    if len(a) * len(b) > MAX_TABLE:
        raise ArgumentError(
            f"the prompts are too long to be aligned: {len(a)} and {len(b)} words or tokens; make "
            "both shorter"
        )
    # One integer orders the alignments: score, then items in whole units, then seams.
    whole = len(a) + len(b) + 2
    score = whole**2
    a_sizes = a_sizes or [1] * len(a)
    b_sizes = b_sizes or [1] * len(b)
    a_units = dict(zip(accumulate(a_sizes), a_sizes, strict=True))
    b_units = dict(zip(accumulate(b_sizes), b_sizes, strict=True))
    # The best alignment of the first i items with the first j, as (value, matches): of all, and
    # where a match follows. Matches are linked lists (earlier, i, j, length).
    best: _Paths = {(0, 0): (0, None)}
    joined: _Paths = {(0, 0): (0, None)}

    def extend(paths: _Paths, i: int, j: int, gain: int) -> tuple[float, Any]:
        value, matches = paths.get((i, j), (-math.inf, None))
        return value + gain, matches

    cells = product(range(len(a) + 1), range(len(b) + 1))
    next(cells)
    for i, j in cells:
        paths: list[tuple[float, Any]] = []
        if i and j and a[i - 1] == b[j - 1]:
            size = a_units.get(i, 0)
            if size == b_units.get(j) and a[i - size : i] == b[j - size : j]:
                gain = size * (match * score + whole)
                value, earlier = extend(joined, i - size, j - size, gain)
                paths.append((value, (earlier, i, j, size)))
            value, earlier = extend(joined, i - 1, j - 1, match * score)
            paths.append((value, (earlier, i, j, 1)))
        other = max(
            extend(best, i - 1, j - 1, swap * score),
            extend(best, i, j - 1, gap * score),
            extend(best, i - 1, j, gap * score),
            key=itemgetter(0),
        )
        seam = (other[0] - 1, other[1])
        best[i, j] = max([*paths, other], key=itemgetter(0))
        joined[i, j] = max([*paths, seam], key=itemgetter(0))
    pairs: list[tuple[int, int]] = []
    matches = best[len(a), len(b)][1]
    while matches is not None:
        matches, i, j, size = matches
        pairs += [(i - k, j - k) for k in range(1, size + 1)]
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
