"""The best alignment of two sequences, against all alignments there are."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedmap.text.sequences import best_matches

TOKENS = {"match": 1, "swap": -1, "gap": 0}
WORDS = {"match": 0, "swap": -1, "gap": -1}
DEAR = {"match": 2, "swap": -1, "gap": -2}


LETTERS = st.text("ab", max_size=5)


def rank(pairs, a, b, *, match, swap, gap):
    """What orders alignments: the score, the matches, how few seams, how late."""
    score = match * len(pairs)
    for (i, j), (k, m) in zip([(-1, -1), *pairs], [*pairs, (len(a), len(b))], strict=True):
        here = k - i - 1
        there = m - j - 1
        score += max(
            swaps * swap + (here + there - 2 * swaps) * gap for swaps in range(min(here, there) + 1)
        )
    seams = sum((i, j) != (0, 0) and (i - 1, j - 1) not in pairs for i, j in pairs)
    return score, len(pairs), -seams, pairs[::-1]


def alignments(a, b):
    """All ascending lists of pairs of equal items."""
    equal = [(i, j) for i, x in enumerate(a) for j, y in enumerate(b) if x == y]
    for count in range(min(len(a), len(b)) + 1):
        for pairs in combinations(equal, count):
            if all(i < k and j < m for (i, j), (k, m) in pairwise(pairs)):
                yield list(pairs)


@given(LETTERS, LETTERS, st.sampled_from([TOKENS, WORDS, DEAR]))
def test_the_alignment_is_the_best_of_all(a, b, scores):
    found = best_matches(a, b, **scores)
    best = max(rank(pairs, a, b, **scores) for pairs in alignments(a, b))
    assert rank(found, a, b, **scores)[:3] == best[:3]
    assert found == sorted(found) and all(a[i] == b[j] for i, j in found)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("xa", "axa", [(0, 1), (1, 2)]),
        ("a", "aa", [(0, 0)]),  # no seam
        ("a", "xaxa", [(0, 3)]),  # the surplus is early
        ("ab", "abb", [(0, 0), (1, 1)]),  # but a seam costs more
    ],
)
def test_surplus_units_are_joined_or_dropped(a, b, expected):
    assert best_matches(a, b, **TOKENS) == expected
