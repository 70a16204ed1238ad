"""The source's tokens whose attention the tokens of an edited prompt take."""

from collections.abc import Sequence

from heedmap.io.schemas import TokenKind
from heedmap.text.alignment import WordAlignment
from heedmap.text.axis import separate
from heedmap.text.words import TokenTable

_SPECIALS: tuple[TokenKind, ...] = ("start", "image", "end", "pad")


def token_shares(
    source: TokenTable,
    target: TokenTable,
    alignment: WordAlignment,
) -> list[tuple[int, int, float]]:
    """Return the matrix M `[K source, K target]` of an edit, as its entries that are not 0.

    `R[p, n] = Σ_w P_source[p, w] · M[w, n]` gives the target's tokens the source's attention
    (Hertz et al. 2022). An entry is `(w, n, share)`, in ascending order. Encoders that stand one
    after another on the K axis are aligned each by itself.

    In both kinds a word that stayed maps token to token, and so do the start, the end, padding,
    tokens of images, and punctuation behind two words that correspond.

    In Refine no other token has an entry, and keeps its own attention; the two tokens of an entry
    are the same.

    In Replace every row of M sums to 1, so R holds as much attention as P:

    - A word maps token to token to a partner of as many tokens, as in the published code; to
      another one of b tokens, each of its tokens has `M[w, n] = 1/b`.
    - A surplus of tokens maps to the last one: of a word that the limit cut, of punctuation, and of
      padding.
    - Any other token maps where the next token maps that has a place. New punctuation gets nothing.

    The words after a swap keep their own source word, also if the swap changes the number of
    tokens; the published code gives them the attention of their neighbours.
    """
    entries: list[tuple[int, int, float]] = []
    first_w = first_n = 0
    for before, after in zip(separate(source), separate(target), strict=True):
        for w, places in sorted(_targets(before, after, alignment).items()):
            share = 1 / len(places)
            entries += [(first_w + w, first_n + n, share) for n in places]
        first_w += len(before.tokens)
        first_n += len(after.tokens)
    return entries


def _targets(
    source: TokenTable,
    target: TokenTable,
    alignment: WordAlignment,
) -> dict[int, tuple[int, ...]]:
    """Return the positions of the target to which each position of the source maps."""
    is_replaced = alignment.kind == "replace"
    targets: dict[int, tuple[int, ...]] = {}
    before_words = _punctuation(source)
    after_words = _punctuation(target)
    in_order = [
        (before_words[0], after_words[0]),
        *((source.positions(kind), target.positions(kind)) for kind in _SPECIALS),
    ]
    for pair in alignment.pairs:
        a, b = pair
        if a is None or b is None:
            continue
        in_order.append((before_words[a.number + 1], after_words[b.number + 1]))
        before = source.words[a.number].tokens
        after = target.words[b.number].tokens
        pieces = zip(before, after, strict=False)
        is_same = all(_is_same(source, w, target, n) for w, n in pieces)
        stayed = pair not in alignment.changes and is_same
        if stayed or (is_replaced and len(before) == len(after)):
            in_order.append((before, after))
        elif is_replaced and after:
            targets |= dict.fromkeys(before, after)
    for before, after in in_order:
        if not after:
            continue
        for k, w in enumerate(before):
            n = after[min(k, len(after) - 1)]
            is_partner = k < len(after) and _is_same(source, w, target, n)
            if is_replaced or is_partner:
                targets[w] = (n,)
    if is_replaced:
        last = target.positions("end")[-1:] or (len(target.tokens) - 1,)
        for w in reversed(range(len(source.tokens))):
            last = targets.setdefault(w, last)
    return targets


def _is_same(source: TokenTable, w: int, target: TokenTable, n: int) -> bool:
    return source.tokens[w].id == target.tokens[n].id


def _punctuation(table: TokenTable) -> list[Sequence[int]]:
    """Return the text tokens of no word: those before the first word, those after it, and so on."""
    owners = {p: word.number for word in table.words for p in word.tokens}
    place = 0
    groups: list[list[int]] = [[] for _ in range(len(table.words) + 1)]
    for position in table.positions():
        if position in owners:
            place = max(place, owners[position] + 1)
        else:
            groups[place].append(position)
    return [*groups]
