"""The best alignment of two sequences, against all alignments there are."""

from itertools import accumulate, combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedmap.errors import ArgumentError
from heedmap.text import tokens
from heedmap.text.tokens import best_matches

TOKENS = {"match": 1, "swap": -1, "gap": 0}
WORDS = {"match": 0, "swap": -1, "gap": -1}


@st.composite
def sized(draw, most=5):
    """A sequence of few letters, cut into units."""
    units = draw(st.lists(st.text("ab", min_size=1, max_size=2), max_size=3))
    return "".join(units)[:most], [len(u) for u in units] if len("".join(units)) <= most else None


def units(sizes):
    return [(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]


def worth(pairs, a, b, a_sizes, b_sizes, *, match, swap, gap):
    """What orders alignments: the score, the items in whole units, how few seams, how late."""
    score = match * len(pairs)
    for (i, j), (k, m) in zip([(-1, -1), *pairs], [*pairs, (len(a), len(b))], strict=True):
        here, there = k - i - 1, m - j - 1
        score += max(
            swaps * swap + (here + there - 2 * swaps) * gap for swaps in range(min(here, there) + 1)
        )
    whole = sum(
        end - start
        for start, end in units(a_sizes)
        for begin, stop in units(b_sizes)
        if a[start:end] == b[begin:stop]
        and all((start + n, begin + n) in pairs for n in range(end - start))
    )
    seams = sum((i, j) != (0, 0) and (i - 1, j - 1) not in pairs for i, j in pairs)
    return score, whole, -seams, pairs[::-1]


def alignments(a, b):
    """All ascending lists of pairs of equal items."""
    equal = [(i, j) for i, x in enumerate(a) for j, y in enumerate(b) if x == y]
    for count in range(min(len(a), len(b)) + 1):
        for pairs in combinations(equal, count):
            if all(i < k and j < m for (i, j), (k, m) in pairwise(pairs)):
                yield list(pairs)


@settings(max_examples=400)
@given(sized(), sized(), st.sampled_from([TOKENS, WORDS, {"match": 2, "swap": -1, "gap": -2}]))
def test_the_best_of_all(one, other, scores):
    (a, a_sizes), (b, b_sizes) = one, other
    a_sizes, b_sizes = a_sizes or [1] * len(a), b_sizes or [1] * len(b)
    found = best_matches(a, b, a_sizes, b_sizes, what="tokens", **scores)
    best = max(worth(pairs, a, b, a_sizes, b_sizes, **scores) for pairs in alignments(a, b))
    assert worth(found, a, b, a_sizes, b_sizes, **scores)[:3] == best[:3]
    assert found == sorted(found) and all(a[i] == b[j] for i, j in found)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("xa", "axa", [(0, 1), (1, 2)]),
        ("a", "aa", [(0, 0)]),  # no seam
        ("a", "xaxa", [(0, 3)]),  # the surplus is early
        ("xaxa", "a", [(3, 0)]),
        ("ab", "xabxab", [(0, 4), (1, 5)]),
        ("ab", "aab", [(0, 1), (1, 2)]),
        ("a", "baab", [(0, 2)]),
        ("ab", "abb", [(0, 0), (1, 1)]),  # but a seam costs more
        ("", "a", []),
        ("", "", []),
    ],
)
def test_surplus(a, b, expected):
    assert best_matches(a, b, [1] * len(a), [1] * len(b), what="tokens", **TOKENS) == expected


def test_a_seam_costs_the_same_before_a_whole_unit_and_within_one():
    found = best_matches("aa", "aaa", [1, 1], [2, 1], what="tokens", **TOKENS)
    assert found == [(0, 1), (1, 2)]


@pytest.mark.parametrize("cells", [9, 10**6])
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("12345xa67", "12345aya67", [*((n, n) for n in range(5)), (6, 7), (7, 8), (8, 9)]),
        ("123456789", "123456789", [(n, n) for n in range(9)]),
        ("12345", "1234567", [(n, n) for n in range(5)]),
        ("34567", "1234567", [(n, n + 2) for n in range(5)]),
        ("x23456", "y23456", [(n, n) for n in range(1, 6)]),
        ("12345x", "12345y", [(n, n) for n in range(5)]),
        ("aaaaaa", "aaaa", None),
        ("aaaa", "aaaaaa", None),
    ],
)
def test_what_is_alike_at_both_ends_of_long_ones(monkeypatch, cells, a, b, expected):
    monkeypatch.setattr(tokens, "MAX_TABLE", cells)
    found = best_matches(a, b, [1] * len(a), [1] * len(b), what="tokens", **TOKENS)
    if expected is None:
        assert len(found) == 4 and all(a[i] == b[j] for i, j in found)
        assert all(i < k and j < m for (i, j), (k, m) in pairwise(found))
    else:
        assert found == expected


def test_inner_scores_are_those_of_the_whole(monkeypatch):
    monkeypatch.setattr(tokens, "MAX_TABLE", 30)
    for scores in (TOKENS, WORDS):
        a, b = "12345" + "xaby" + "67", "12345" + "aybx" + "67"
        whole = best_matches("xaby", "aybx", [1] * 4, [1] * 4, what="tokens", **scores)
        found = best_matches(a, b, [1] * 11, [1] * 11, what="tokens", **scores)
        assert [(i - 5, j - 5) for i, j in found[5:-2]] == whole


def test_too_long(monkeypatch):
    monkeypatch.setattr(tokens, "MAX_TABLE", 6)
    with pytest.raises(ArgumentError, match="3 letters of the one differ from 4 of the other"):
        best_matches("1abc2", "1defg2", [1] * 5, [1] * 6, what="letters", **TOKENS)
    assert best_matches("1ab2", "1cde2", [1] * 4, [1] * 5, what="letters", **TOKENS) == [
        (0, 0),
        (3, 4),
    ]
    assert best_matches("abc", "de", [1] * 3, [1] * 2, what="letters", **TOKENS) == []
