"""Two prompts to one correspondence: which word, and which token, stands for which.

Pure text, standard library only; what the correspondence is good for is not known here. Words are
aligned to decide what an edit is and to say so; of tokens are made the two forms that
prompt-to-prompt needs (Hertz et al. 2022, arXiv 2208.01626): a matrix for Replace and a list of
columns for Refine.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise
from typing import Literal

from heedmap.errors import ArgumentError, TruncatedWordError, quoted
from heedmap.prompts import fold, word_keys
from heedmap.words import TokenTable, Word

__all__ = ["EditKind", "WordAlignment", "pair_words", "refinement", "replacement", "swap_of"]

EditKind = Literal["replace", "refine"]

MAX_CELLS = 500_000  # of the table of the dynamic program: about a second
_LISTED = 4

# What begins a new phrase of an English prompt: in "a cat" -> "a big dog on the grass" it is the
# dog that the cat became, the last word before "on".
_CONNECTIVE = re.compile(
    "about|above|across|after|against|along|amid|among|and|around|as|at|atop|before|behind|"
    "below|beneath|beside|besides|between|beyond|but|by|down|during|for|from|in|inside|into|"
    "like|near|next|of|off|on|onto|or|out|outside|over|past|through|to|toward|towards|under|"
    "underneath|up|upon|via|while|with|within|without"
)


# --- the dynamic program ----------------------------------------------------------------------


def _matches(
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
            options = []
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
    inner = _matches(
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


# --- words ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """Which word of the target stands for which word of the source.

    Attributes:
        pairs: (source word or None, target word or None), in reading order; every word of both
            prompts, those past the limit too, is in one pair. None on the left: the word was added;
            None on the right: it was dropped.
        kind: "replace" if every word has its partner, "refine" if words were added or dropped (or
            what was asked for).
        why: one sentence, without full stop, that says what changed and what was therefore chosen.
    """

    pairs: tuple[tuple[Word | None, Word | None], ...]
    kind: EditKind
    why: str

    @property
    def same(self) -> tuple[tuple[Word, Word], ...]:
        """The words that stayed, but for case, Unicode form and punctuation."""
        return tuple((a, b) for a, b in self.pairs if a and b and _key(a) == _key(b))

    @property
    def swapped(self) -> tuple[tuple[Word, Word], ...]:
        """The words that became others."""
        return tuple((a, b) for a, b in self.pairs if a and b and _key(a) != _key(b))

    @property
    def added(self) -> tuple[Word, ...]:
        """The words of the target that no word of the source stands for."""
        return tuple(b for a, b in self.pairs if b and not a)

    @property
    def dropped(self) -> tuple[Word, ...]:
        """The words of the source that no word of the target stands for."""
        return tuple(a for a, b in self.pairs if a and not b)

    @property
    def one_to_one(self) -> bool:
        """Whether every word has its partner."""
        return all(a and b for a, b in self.pairs)

    @property
    def unread(self) -> tuple[Word, ...]:
        """The changed words of which the model reads no token: their edit would be lost."""
        words = (*chain.from_iterable(self.swapped), *self.added, *self.dropped)
        return tuple(word for word in words if not word.tokens)


def pair_words(
    source: TokenTable, target: TokenTable, kind: EditKind | None = None
) -> WordAlignment:
    """Align the words of two prompts, and choose between Replace and Refine.

    Words are compared folded: case, Unicode form, and punctuation around them do not matter. The
    alignment is the one with the fewest changes (Levenshtein: a swap, an addition and a drop count
    one each), and among these the one that keeps the most words. Between two words that stayed, as
    many words for as many stand for each other in order. If their numbers differ, phrase stands for
    phrase (a preposition or "and" begins one), and in each the last words for the last: "a cat" ->
    "a big dog on the grass" makes a dog of the cat and adds the other words.

    Args:
        source: what the model reads of the prompt that is edited.
        target: what it reads of the prompt it shall become.
        kind: "replace" pairs the words in order, whatever they are; "refine" says that tokens
            without a counterpart keep their own attention, even where no word was added. None
            chooses: "replace" if every word has its partner, else "refine".

    Raises:
        ArgumentError: if `kind` is unknown or is "replace" and the numbers of words differ, or if
            the prompts are too long to be aligned.
    """
    if kind not in ("replace", "refine", None):
        raise ArgumentError(f"kind is 'replace', 'refine' or None, not {quoted(kind)}.")
    if kind == "replace":
        if len(source.words) != len(target.words):
            raise _not_one_to_one(pair_words(source, target))
        pairs = list(zip(source.words, target.words, strict=True))
    else:
        pairs = _paired(source.words, target.words)
    found = WordAlignment(tuple(pairs), "replace", "")
    chosen: EditKind = kind or ("replace" if found.one_to_one else "refine")
    return WordAlignment(found.pairs, chosen, _why(found, chosen, asked=kind is not None))


def _paired(
    source: Sequence[Word], target: Sequence[Word]
) -> list[tuple[Word | None, Word | None]]:
    anchors = _matches(
        *([_key(word) for word in source], [_key(word) for word in target]),
        *([1] * len(source), [1] * len(target)),
        match=0,
        swap=-1,
        gap=-1,
        what="words",
    )
    pairs: list[tuple[Word | None, Word | None]] = []
    edges = [(-1, -1), *anchors, (len(source), len(target))]
    for (i, j), (next_i, next_j) in pairwise(edges):
        pairs += _changed(source[i + 1 : next_i], target[j + 1 : next_j])
        if next_i < len(source):
            pairs.append((source[next_i], target[next_j]))
    return pairs


def _changed(
    source: Sequence[Word], target: Sequence[Word]
) -> list[tuple[Word | None, Word | None]]:
    """Pair the words between two that stayed."""
    if len(source) == len(target):
        return list(zip(source, target, strict=True))
    pairs: list[tuple[Word | None, Word | None]] = []
    ours, theirs = _phrases(source), _phrases(target)
    for index in range(max(len(ours), len(theirs))):
        a = ours[index] if index < len(ours) else []
        b = theirs[index] if index < len(theirs) else []
        if index and a and b:  # both begin with a connective
            pairs.append((a.pop(0), b.pop(0)))
        more = len(a) - len(b)
        pairs += [(word, None) for word in a[: max(0, more)]]
        pairs += [(None, word) for word in b[: max(0, -more)]]
        pairs += zip(a[max(0, more) :], b[max(0, -more) :], strict=True)
    return pairs


def _phrases(words: Sequence[Word]) -> list[list[Word]]:
    """Cut words before each connective; the first phrase has none and may be empty."""
    phrases: list[list[Word]] = [[]]
    for word in words:
        if _CONNECTIVE.fullmatch(fold(word.text)):
            phrases.append([])
        phrases[-1].append(word)
    return phrases


def _key(word: Word) -> tuple[str, ...]:
    return word_keys(word.text) or (fold(word.text),)


def _why(found: WordAlignment, kind: EditKind, *, asked: bool) -> str:
    changes = [f"{quoted(a.text)} became {quoted(b.text)}" for a, b in found.swapped]
    changes = [_listed(changes)] if changes else []
    for words, happened in ((found.added, "added"), (found.dropped, "dropped")):
        if words:
            texts = [quoted(word.text) for word in words]
            changes.append(f"{_listed(texts)} {'was' if len(words) == 1 else 'were'} {happened}")
    said = "; ".join(changes)
    if not found.pairs:
        said = "neither prompt has a word"
    elif not changes:
        said = "all words are the same"
    so = "; as asked, " if asked else ", so "
    if kind == "refine":
        said += f"{so}attention is refined"
        return f"{said}: what stayed takes the source's, what is new keeps its own"
    if found.swapped and found.same:
        said += "; all other words are the same"
        return f"{said}{so}their attention is replaced word by word"
    return f"{said}{so}attention is replaced word by word"


def _listed(texts: Sequence[str]) -> str:
    if len(texts) <= _LISTED:
        return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
    return f"{', '.join(texts[: _LISTED - 1])} and {len(texts) - _LISTED + 1} more"


def _not_one_to_one(alignment: WordAlignment) -> ArgumentError:
    counts = [sum(bool(pair[side]) for pair in alignment.pairs) for side in (0, 1)]
    changes = [
        f"{_listed([quoted(word.text) for word in words])} {happened}"
        for words, happened in ((alignment.added, "added"), (alignment.dropped, "dropped"))
        if words
    ]
    return ArgumentError(
        f"Replace needs one target word for each source word, but the source has {counts[0]} and "
        f"the target {counts[1]} ({', '.join(changes)}); use refine."
    )


# --- tokens -----------------------------------------------------------------------------------


def replacement(
    source: TokenTable, target: TokenTable, alignment: WordAlignment
) -> list[tuple[int, int, float]]:
    """Return the matrix M `[K source, K target]` of Replace, as its entries that are not 0.

    `R[p, n] = Σ_w P_source[p, w] · M[w, n]` gives the target's tokens the source's attention
    (Hertz et al. 2022). M is built thus:

    - A word of a tokens that became one of b: `M[w, n] = 1/b` for each w of the one and each n of
      the other. A word that stayed maps token to token (where the limit cut it, its surplus maps to
      the last token read).
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
        ArgumentError: if words were added or dropped, or if the alignment is of other prompts.
        TruncatedWordError: if of a swapped word the model reads no token.
    """
    sides = ([pair[0] for pair in alignment.pairs], [pair[1] for pair in alignment.pairs])
    for table, words, name in ((source, sides[0], "source"), (target, sides[1], "target")):
        if tuple(filter(None, words)) != table.words:
            raise ArgumentError(
                f"The alignment is of another {name} than {quoted(table.prompt)}; make it with "
                "pair_words() from the same two tables."
            )
    if not alignment.one_to_one:
        raise _not_one_to_one(alignment)
    for pair in alignment.swapped:
        for word, table in zip(pair, (source, target), strict=True):
            if not word.tokens:
                raise TruncatedWordError(
                    f"{quoted(pair[0].text)} became {quoted(pair[1].text)} past the end of what "
                    f"the model reads: it takes {table.limit} tokens, and {quoted(word.text)} is "
                    "not among them; shorten the prompt or move the word towards its start."
                )
    if source.tokens and not target.tokens:
        raise ArgumentError("The target has no tokens at all; give one that was encoded.")

    goes = _specials(source, target)
    same = set(alignment.same)
    for pair in alignment.pairs:
        here, there = (word.tokens if word else () for word in pair)
        short = min(len(here), len(there))
        if short and pair in same and _ids(source, here[:short]) == _ids(target, there[:short]):
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

    The text tokens are aligned by their ids after Needleman and Wunsch with gap 0, match 1 and
    mismatch -1, as prompt-to-prompt does (Hertz et al. 2022). Among alignments of the same score
    the one with the most tokens in words that were kept whole is taken, then the one with the
    fewest breaks. The start takes the start's column, the end the end's, the j-th padding token
    the j-th's; padding that the source has less of keeps its own. All taken positions ascend.

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
    pairs = _matches(
        *(_ids(source, here), _ids(target, there), _sizes(source), _sizes(target)),
        match=1,
        swap=-1,
        gap=0,
        what="tokens",
    )
    for i, j in pairs:
        columns[there[j]] = here[i]
    return columns


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
    """The k-th goes to the k-th, the surplus to the last; nothing goes where nothing is."""
    last = len(there) - 1
    return {w: (there[min(k, last)],) for k, w in enumerate(here) if there}


def _ids(table: TokenTable, positions: Sequence[int]) -> list[int]:
    return [table.tokens[position].id for position in positions]


def _owners(table: TokenTable) -> dict[int, int]:
    """Position to number of the word whose token it is."""
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
    anchors = _matches(
        *(_ids(source, here), _ids(target, there), [1] * len(here), [1] * len(there)),
        match=1,
        swap=-1,
        gap=0,
        what="tokens",
    )
    goes = {here[i]: (there[j],) for i, j in anchors}
    for (i, j), (next_i, next_j) in pairwise([(-1, -1), *anchors, (len(here), len(there))]):
        goes |= _in_order(here[i + 1 : next_i], there[j + 1 : next_j])
    return goes


# --- what a user writes -----------------------------------------------------------------------

_ARROW = re.compile("->|→")
_COMMA = re.compile(r",(?!\d)|(?<!\d),")  # not that of a number


def swap_of(text: str) -> tuple[tuple[str, str], ...]:
    """Read "cat->dog" as (source word, target word) pairs.

    An arrow is "->" or "→"; spaces around words do not matter; a word may be a phrase. Several
    swaps are set apart by commas: "cat->dog, red->blue". Whether the words are in the prompts is
    not asked here: `TokenTable.find` tells.

    Raises:
        ArgumentError: if it is no text of this form.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"A swap is a text such as 'cat->dog', not {quoted(text)}.")
    swaps: list[tuple[str, str]] = []
    for part in _COMMA.split(text):
        sides = [side.strip() for side in _ARROW.split(part)]
        if len(sides) != 2 or not all(map(word_keys, sides)):
            raise ArgumentError(
                f"{quoted(part.strip())} is no swap: expected a word, an arrow and a word as in "
                "'cat->dog', and commas between several."
            )
        swaps.append((sides[0], sides[1]))
    return tuple(swaps)
