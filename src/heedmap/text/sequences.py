"""Two sequences to the pairs that their best alignment matches, by a dynamic program."""

from collections.abc import Hashable, Sequence
from itertools import accumulate

from heedmap.errors import ArgumentError

__all__ = ["matches"]

MAX_CELLS = 500_000  # of the table of the dynamic program: about a second


def matches(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    a_sizes: Sequence[int],
    b_sizes: Sequence[int],
    *,
    match: int,
    swap: int,
    gap: int,
    what: str,
) -> list[tuple[int, int]]:
    """Return the pairs (i, j) of equal items of the best alignment of two sequences, ascending.

    Global alignment after Needleman and Wunsch (1970). Among alignments of the same score the best
    has the most items in units that were matched whole, then the fewest seams (places where a match
    follows what is no match; so surplus goes to the end where it can), then its surplus as early
    as possible: the words before a noun stay with the noun.

    Args:
        a: the one sequence.
        b: the other one.
        a_sizes: the lengths of the units (words, say) that make up `a`; their sum is its length.
        b_sizes: the same of `b`.
        match: score of a pair of equal items.
        swap: score of a pair of unequal ones.
        gap: score of an item without a partner.
        what: what the items are, for the message.

    Raises:
        ArgumentError: if the sequences are too long and differ too much.
    """
    if len(a) * len(b) > MAX_CELLS:
        return _inner_matches(a, b, match=match, swap=swap, gap=gap, what=what)
    # One integer orders the alignments: score, then items in whole units, then seams.
    unit = len(a) + len(b) + 2
    match, swap, gap = (score * unit * unit for score in (match, swap, gap))
    never = -(unit**4)
    a_ends, b_ends = _ends(a_sizes), _ends(b_sizes)
    # Best value of the first i items with the first j, by the last move: a match, or another one.
    kept = [[never] * (len(b) + 1) for _ in range(len(a) + 1)]
    changed = [[never] * (len(b) + 1) for _ in range(len(a) + 1)]
    kept[0][0] = 0

    def matched(i: int, j: int) -> tuple[int, int]:
        """The value of the best match that ends at (i, j), and how many items it takes."""
        if a[i - 1] != b[j - 1]:
            return never, 0
        value, size = max(kept[i - 1][j - 1], changed[i - 1][j - 1] - 1) + match, 1
        whole = a_ends[i]
        if whole and whole == b_ends[j] and a[i - whole : i] == b[j - whole : j]:
            before = max(kept[i - whole][j - whole], changed[i - whole][j - whole] - 1)
            if before + whole * (match + unit) >= value:
                value, size = before + whole * (match + unit), whole
        return value, size

    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            options: list[int] = []
            if i:
                options.append(max(kept[i - 1][j], changed[i - 1][j]) + gap)
            if j:
                options.append(max(kept[i][j - 1], changed[i][j - 1]) + gap)
            if i and j:
                options.append(max(kept[i - 1][j - 1], changed[i - 1][j - 1]) + swap)
                kept[i][j] = matched(i, j)[0]
            if options:
                changed[i][j] = max(options)

    pairs: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    is_match = kept[i][j] >= changed[i][j]
    while i or j:
        if is_match:
            size = matched(i, j)[1]
            pairs += [(i - k, j - k) for k in range(1, size + 1)]
            i, j = i - size, j - size
            is_match = kept[i][j] >= changed[i][j] - 1
            continue
        for down, right, score in ((1, 1, swap), (0, 1, gap), (1, 0, gap)):
            if down <= i and right <= j:
                best = max(kept[i - down][j - right], changed[i - down][j - right])
                if best + score == changed[i][j]:
                    i, j = i - down, j - right
                    break
        is_match = kept[i][j] >= changed[i][j]
    return pairs[::-1]


def _inner_matches(
    a: Sequence[Hashable], b: Sequence[Hashable], *, match: int, swap: int, gap: int, what: str
) -> list[tuple[int, int]]:
    """The matches of long sequences: what they begin and end with alike is matched beforehand."""
    shorter = min(len(a), len(b))
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    rest = shorter - head
    tail = next((i for i in range(rest) if a[-1 - i] != b[-1 - i]), rest)
    inner_a, inner_b = a[head : len(a) - tail], b[head : len(b) - tail]
    if len(inner_a) * len(inner_b) > MAX_CELLS:
        raise ArgumentError(
            f"The prompts are too long to be aligned: {len(inner_a)} {what} of the one differ from "
            f"{len(inner_b)} of the other; make both shorter."
        )
    ones = [1] * max(len(inner_a), len(inner_b))
    inner = matches(
        *(inner_a, inner_b, ones[: len(inner_a)], ones[: len(inner_b)]),
        match=match,
        swap=swap,
        gap=gap,
        what=what,
    )
    return [
        *((i, i) for i in range(head)),
        *((i + head, j + head) for i, j in inner),
        *((len(a) - k, len(b) - k) for k in range(tail, 0, -1)),
    ]


def _ends(sizes: Sequence[int]) -> list[int]:
    """For each index the length of the unit that ends just before it, else 0."""
    ends = [0] * (sum(sizes) + 1)
    for end, size in zip(accumulate(sizes), sizes, strict=True):
        ends[end] = size
    return ends
