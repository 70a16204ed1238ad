"""From two prompts to the columns of P that an edit takes: which token stands for which.

The two forms that prompt-to-prompt needs (Hertz et al. 2022, arXiv 2208.01626): a matrix for
Replace and a list of columns for Refine. Pure text, standard library only.
"""

from collections.abc import Sequence
from itertools import groupby, pairwise

from heedmap.errors import TruncatedWordError, quoted
from heedmap.text.alignment import WordAlignment, not_one_to_one
from heedmap.text.sequences import best_matches
from heedmap.text.words import MOVE_IT, TokenTable


def replacement(
    source: TokenTable, target: TokenTable, alignment: WordAlignment
) -> list[tuple[int, int, float]]:
    """Return the matrix M `[K source, K target]` of Replace, as its entries that are not 0.

    `R[p, n] = Σ_w P_source[p, w] · M[w, n]` gives the target's tokens the source's attention
    (Hertz et al. 2022). M is built as follows:

    - A word of a tokens that became one of as many maps token to token, the k-th to the k-th, as in
      the published code; one that became a word of b: `M[w, n] = 1/b` for each w of the one and
      each n of the other. The tokens are those that were read. A word that stayed maps token to
      token (where the limit cut it, its surplus maps to the last token read).
    - Punctuation, that is text tokens of no word: equal ones between the same two words map to each
      other in order, then the unequal ones among them in order, the surplus to the last. Where
      the target has none there, they go to what the next token that has a place goes to.
    - The start maps to the start, the end to the end, the j-th padding token to the j-th, and what
      the source has more of to the target's last padding token, or else to its end.
    - Tokens of a word that the target's limit cut off go where lone punctuation goes.

    So every row of M sums to 1, and R holds as much attention as P. A target position that no entry
    names (new punctuation; padding that the source has less of; a word that the source's limit cut
    off) gets none.

    The words after a swap keep *their own* source word, also where the swap changes the number of
    tokens. The published code takes the columns of the target's positions there, and so gives
    the words that follow the attention of their neighbours.

    Args:
        source: what the model reads of the prompt that is edited.
        target: what it reads of the edited prompt.
        alignment: what `pair_words` made of these two.

    Returns:
        `(w, n, share)` in ascending order; w and n count on the `K` axes, 0 < share ≤ 1.

    Raises:
        ArgumentError: if words were added or dropped.
        TruncatedWordError: if the model reads no token of a swapped word.
    """
    _check_fits(source, target, alignment)
    goes = _specials(source, target)
    same = set(alignment.same)
    for pair in alignment.pairs:
        here, there = (word.tokens if word else () for word in pair)
        short = min(len(here), len(there))
        stayed = pair in same and _ids(source, here[:short]) == _ids(target, there[:short])
        if short and (stayed or len(here) == len(there)):
            goes |= _in_order(here, there)
        elif short:
            goes |= dict.fromkeys(here, there)
    for here, there in zip(_loose(source), _loose(target), strict=True):
        goes |= _punctuation(source, here, target, there)

    last = target.positions("end")[-1:] or (len(target.tokens) - 1,)
    entries: list[tuple[int, int, float]] = []
    for w in reversed(range(len(source.tokens))):
        last = goes.get(w, last)
        entries += [(w, n, 1 / len(last)) for n in reversed(last)]
    return entries[::-1]


def refinement(source: TokenTable, target: TokenTable) -> list[int | None]:
    """Return for each target position the source position whose column it takes, None for its own.

    The text tokens are aligned by their ids (Needleman and Wunsch, with gap 0, match 1 and mismatch
    -1), as prompt-to-prompt does (Hertz et al. 2022). Among alignments of the same score the one
    with the most tokens in words that were kept whole is taken, then the one with the fewest
    breaks. The start takes the start's column, the end the end's, the j-th padding token the
    j-th's; padding that the source has less of keeps its own. All taken positions ascend.

    Args:
        source: what the model reads of the prompt that is edited.
        target: what it reads of the edited prompt.

    Returns:
        `[K target]`, with positions on the `K` axis of the source.

    Raises:
        ArgumentError: if the prompts are too long to be aligned.
    """
    columns: list[int | None] = [None] * len(target.tokens)
    for kind in ("start", "end", "pad"):
        for w, n in zip(source.positions(kind), target.positions(kind), strict=False):
            columns[n] = w
    here, there = source.positions(), target.positions()
    pairs = best_matches(
        *(_ids(source, here), _ids(target, there), _sizes(source), _sizes(target)),
        match=1,
        swap=-1,
        gap=0,
        what="tokens",
    )
    for i, j in pairs:
        columns[there[j]] = here[i]
    return columns


def _check_fits(source: TokenTable, target: TokenTable, alignment: WordAlignment) -> None:
    """Raise unless an alignment is one to one, and its swaps were read."""
    if not alignment.one_to_one:
        raise not_one_to_one(alignment)
    for pair in alignment.swapped:
        for word, table in zip(pair, (source, target), strict=True):
            if not word.tokens:
                raise TruncatedWordError(
                    f"{quoted(pair[0].text)} became {quoted(pair[1].text)} past the end of what "
                    f"the model reads: {table.room} tokens of a prompt, and {quoted(word.text)} is "
                    f"not among them; {MOVE_IT}"
                )


def _specials(source: TokenTable, target: TokenTable) -> dict[int, tuple[int, ...]]:
    """Where the start, the end and the padding go."""
    goes: dict[int, tuple[int, ...]] = {}
    for kind in ("start", "end", "pad"):
        there = target.positions(kind)
        if kind == "pad":
            there = there or target.positions("end")[-1:]
        goes |= _in_order(source.positions(kind), there)
    return goes


def _in_order(here: Sequence[int], there: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """The k-th goes to the k-th, the surplus to the last; nothing goes where there is nothing."""
    last = len(there) - 1
    return {w: (there[min(k, last)],) for k, w in enumerate(here) if there}


def _ids(table: TokenTable, positions: Sequence[int]) -> list[int]:
    return [table.tokens[position].id for position in positions]


def _owners(table: TokenTable) -> dict[int, int]:
    """By position, the number of the word whose token it is."""
    return {p: number for number, word in enumerate(table.words) for p in word.tokens}


def _sizes(table: TokenTable) -> list[int]:
    """How many text tokens in a row belong to one word; those of no word stand alone."""
    owners = _owners(table)
    units = groupby(table.positions(), key=lambda p: owners.get(p, -1 - p))
    return [len(list(unit)) for _, unit in units]


def _loose(table: TokenTable) -> list[list[int]]:
    """The text tokens of no word: those before the first word, those after it, and so on."""
    owners = _owners(table)
    loose: list[list[int]] = [[] for _ in range(len(table.words) + 1)]
    place = 0
    for position in table.positions():
        if position in owners:
            place = max(place, owners[position] + 1)
        else:
            loose[place].append(position)
    return loose


def _punctuation(
    source: TokenTable, here: Sequence[int], target: TokenTable, there: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Where punctuation between two words goes; what has no counterpart there is left out."""
    ids = _ids(source, here), _ids(target, there)
    anchors = best_matches(*ids, match=1, swap=-1, gap=0, what="tokens")
    goes = {here[i]: (there[j],) for i, j in anchors}
    for (i, j), (next_i, next_j) in pairwise([(-1, -1), *anchors, (len(here), len(there))]):
        goes |= _in_order(here[i + 1 : next_i], there[j + 1 : next_j])
    return goes
