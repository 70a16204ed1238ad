"""The source's tokens whose attention the tokens of an edited prompt take."""

from collections.abc import Sequence

from heedmap.io.schemas import TokenKind
from heedmap.text.alignment import WordAlignment
from heedmap.text.axis import separate
from heedmap.text.sequences import best_matches
from heedmap.text.words import TokenTable

_SPECIALS: tuple[TokenKind, ...] = ("start", "image", "end", "pad")


def token_shares(
    source: TokenTable,
    target: TokenTable,
    alignment: WordAlignment,
) -> list[tuple[int, int, float]]:
    """Return the matrix M `[K source, K target]` of an edit, as its entries that are not 0.

    The target's token n takes the share of the attention to the source's token w, for each entry
    `(w, n, share)`. Encoders that stand one after another on the K axis are aligned each by itself.
    """
    entries: list[tuple[int, int, float]] = []
    first_w = first_n = 0
    for before, after in zip(separate(source), separate(target), strict=True):
        if alignment.kind == "replace":
            part = replacement(before, after, alignment)
        else:
            partners = enumerate(refinement(before, after))
            part = [(w, n, 1.0) for n, w in partners if w is not None]
        entries += [(first_w + w, first_n + n, share) for w, n, share in part]
        first_w += len(before.tokens)
        first_n += len(after.tokens)
    return entries


def replacement(
    source: TokenTable,
    target: TokenTable,
    alignment: WordAlignment,
) -> list[tuple[int, int, float]]:
    """Return the matrix M `[K source, K target]` of Replace, as its entries that are not 0.

    `R[p, n] = Σ_w P_source[p, w] · M[w, n]` gives the target's tokens the source's attention
    (Hertz et al. 2022). Every row of M sums to 1, so R holds as much attention as P. An entry is
    `(w, n, share)`, in ascending order.

    - A word maps token to token to a partner of as many tokens, as in the published code; to
      another one of b tokens, each of its tokens has `M[w, n] = 1/b`. A word that stayed maps token
      to token (if the limit cut it, its surplus maps to the last one read).
    - Punctuation maps to that between the same two words in order, the surplus to the last.
    - The start maps to the start, the end to the end, the j-th padding token to the j-th, and
      surplus padding to the target's last padding token, or else to its end. Tokens of images map
      in order.
    - Any other token maps where the next token maps that has a place. New punctuation gets nothing.

    The words after a swap keep their own source word, also if the swap changes the number of
    tokens; the published code gives them the attention of their neighbours.
    """
    last = target.positions("end")[-1:]
    targets: dict[int, tuple[int, ...]] = {}  # by position of the source
    for kind in _SPECIALS:
        after = target.positions(kind)
        if kind == "pad":
            after = after or last
        targets |= _in_order(source.positions(kind), after)
    for pair in alignment.pairs:
        a, b = pair
        if a is None or b is None:
            continue
        before = source.words[a.number].tokens
        after = target.words[b.number].tokens
        pieces = list(zip(_ids(source, before), _ids(target, after), strict=False))
        stayed = pair not in alignment.changes and all(x == y for x, y in pieces)
        if stayed or len(before) == len(after):
            targets |= _in_order(before, after)
        elif after:
            targets |= dict.fromkeys(before, after)
    for before, after in zip(_punctuation(source), _punctuation(target), strict=True):
        targets |= _in_order(before, after)
    last = last or (len(target.tokens) - 1,)
    entries: list[tuple[int, int, float]] = []
    for w in reversed(range(len(source.tokens))):
        last = targets.get(w, last)
        entries += [(w, n, 1 / len(last)) for n in reversed(last)]
    return entries[::-1]


def refinement(source: TokenTable, target: TokenTable) -> list[int | None]:
    """Return for each target position the source position whose column it takes, None for its own.

    Words and punctuation are aligned by the ids of their tokens (Needleman and Wunsch, with gap 0,
    match 1 and mismatch -1), as tokens are in prompt-to-prompt (Hertz et al. 2022). The start takes
    the start's column, the end the end's, the j-th padding token the j-th's; additional padding
    keeps its own. The positions ascend.
    """
    columns: list[int | None] = [None] * len(target.tokens)
    for kind in _SPECIALS:
        for w, n in zip(source.positions(kind), target.positions(kind), strict=False):
            columns[n] = w
    before = _units(source)
    after = _units(target)
    matches = best_matches(
        [_ids(source, unit) for unit in before],
        [_ids(target, unit) for unit in after],
        match=1,
        swap=-1,
        gap=0,
    )
    for i, j in matches:
        for w, n in zip(before[i], after[j], strict=True):
            columns[n] = w
    return columns


def _in_order(
    before: Sequence[int], after: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Map the k-th to the k-th, and the surplus to the last; nothing if there is nothing."""
    return {w: (after[min(k, len(after) - 1)],) for k, w in enumerate(before) if after}


def _ids(table: TokenTable, positions: Sequence[int]) -> tuple[int, ...]:
    return tuple(table.tokens[position].id for position in positions)


def _owners(table: TokenTable) -> dict[int, int]:
    return {p: number for number, word in enumerate(table.words) for p in word.tokens}


def _units(table: TokenTable) -> list[tuple[int, ...]]:
    """Return the text tokens of each word; punctuation stands alone."""
    owners = _owners(table)
    others = [(position,) for position in table.positions() if position not in owners]
    return sorted([*others, *(word.tokens for word in table.read_words)])


def _punctuation(table: TokenTable) -> list[list[int]]:
    """Return the text tokens of no word: those before the first word, those after it, and so on."""
    owners = _owners(table)
    place = 0
    groups: list[list[int]] = [[] for _ in range(len(table.words) + 1)]
    for position in table.positions():
        if position in owners:
            place = max(place, owners[position] + 1)
        else:
            groups[place].append(position)
    return groups
