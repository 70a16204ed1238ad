"""Two sequences to the pairs that their best alignment matches, by a dynamic program."""

from collections.abc import Hashable, Sequence
from itertools import accumulate

from heedmap.errors import ArgumentError

MAX_TABLE = 500_000  # of the table of the dynamic program: about a second


def best_matches(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    a_sizes: Sequence[int] = (),
    b_sizes: Sequence[int] = (),
    *,
    match: int,
    swap: int,
    gap: int,
    what: str,
) -> list[tuple[int, int]]:
    """Return the pairs (i, j) of equal items of the best alignment of two sequences, ascending.

    Global alignment after Needleman and Wunsch (1970). Among alignments of the same score the best
    has the most items in units that were matched whole, then the fewest seams (places where a match
    follows what is not a match; so surplus goes to the end where it can), then its surplus as early
    as possible: the words before a noun stay with the noun.

    Args:
        a: the one sequence.
        b: the other one.
        a_sizes: the lengths of the units (words, say) that make up `a`; by default all are 1.
        b_sizes: the same of `b`.
        match: score of a pair of equal items.
        swap: score of a pair of unequal ones.
        gap: score of an item without a partner.
        what: what the items are, for the message.

    Raises:
        ArgumentError: if the sequences are too long and differ too much.
    """
    if len(a) * len(b) > MAX_TABLE:
        return _inner_matches(a, b, match=match, swap=swap, gap=gap, what=what)
    return _Table(a, b, a_sizes, b_sizes, match, swap, gap).pairs()


class _Table:
    """The dynamic program: the best value of the first i items with the first j.

    Kept twice, by the last move: `kept` for a match, `changed` for another one. One integer orders
    the alignments: score, then items in whole units, then seams.
    """

    def __init__(
        self,
        a: Sequence[Hashable],
        b: Sequence[Hashable],
        a_sizes: Sequence[int],
        b_sizes: Sequence[int],
        match: int,
        swap: int,
        gap: int,
    ) -> None:
        self.a, self.b = a, b
        self.unit = len(a) + len(b) + 2
        self.match, self.swap, self.gap = (
            score * self.unit * self.unit for score in (match, swap, gap)
        )
        self.never = -(self.unit**4)
        self.a_ends, self.b_ends = _ends(a_sizes or [1] * len(a)), _ends(b_sizes or [1] * len(b))
        self.kept = [[self.never] * (len(b) + 1) for _ in range(len(a) + 1)]
        self.changed = [[self.never] * (len(b) + 1) for _ in range(len(a) + 1)]
        self.kept[0][0] = 0
        self._fill()

    def best(self, i: int, j: int, seam: int = 0) -> int:
        """Of the first i items with the first j; `seam` is taken off where no match is last."""
        return max(self.kept[i][j], self.changed[i][j] - seam)

    def matched(self, i: int, j: int) -> tuple[int, int]:
        """The value of the best match that ends at (i, j), and how many items it takes."""
        a, b = self.a, self.b
        if a[i - 1] != b[j - 1]:
            return self.never, 0
        value, size = self.best(i - 1, j - 1, seam=1) + self.match, 1
        whole = self.a_ends[i]
        if whole and whole == self.b_ends[j] and a[i - whole : i] == b[j - whole : j]:
            of_whole = self.best(i - whole, j - whole, seam=1) + whole * (self.match + self.unit)
            if of_whole >= value:
                value, size = of_whole, whole
        return value, size

    def _fill(self) -> None:
        for i in range(len(self.a) + 1):
            for j in range(len(self.b) + 1):
                options: list[int] = []
                if i:
                    options.append(self.best(i - 1, j) + self.gap)
                if j:
                    options.append(self.best(i, j - 1) + self.gap)
                if i and j:
                    options.append(self.best(i - 1, j - 1) + self.swap)
                    self.kept[i][j] = self.matched(i, j)[0]
                if options:
                    self.changed[i][j] = max(options)

    def pairs(self) -> list[tuple[int, int]]:
        """The matches of the best alignment, ascending."""
        pairs: list[tuple[int, int]] = []
        i, j = len(self.a), len(self.b)
        is_match = self.kept[i][j] >= self.changed[i][j]
        while i or j:
            if is_match:
                size = self.matched(i, j)[1]
                pairs += [(i - k, j - k) for k in range(1, size + 1)]
                i, j = i - size, j - size
                is_match = self.kept[i][j] >= self.changed[i][j] - 1
                continue
            for down, right, score in ((1, 1, self.swap), (0, 1, self.gap), (1, 0, self.gap)):
                if not (down <= i and right <= j):
                    continue
                if self.best(i - down, j - right) + score == self.changed[i][j]:
                    i, j = i - down, j - right
                    break
            is_match = self.kept[i][j] >= self.changed[i][j]
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
    if len(inner_a) * len(inner_b) > MAX_TABLE:
        raise ArgumentError(
            f"the prompts are too long to be aligned: {len(inner_a)} {what} of the one differ from "
            f"{len(inner_b)} of the other; make both shorter"
        )
    inner = best_matches(inner_a, inner_b, match=match, swap=swap, gap=gap, what=what)
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
