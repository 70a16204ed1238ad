"""From two prompts to a correspondence: which word stands for which, and so what an edit is.

Pure text, standard library only; what the correspondence is used for is not known here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import get_args

from heedmap import checks
from heedmap.errors import ArgumentError, TruncatedWordError, quoted
from heedmap.options import EditKind
from heedmap.text.prompts import fold, plurals, word_keys
from heedmap.text.tokens import best_matches
from heedmap.text.words import MOVE_IT, TokenTable, Word

_LISTED = 4

# What begins a new phrase of an English prompt: in "a cat" -> "a big dog on the grass" it is the
# dog that the cat became, the last word before "on".
_CONNECTIVE = re.compile(
    "about|above|across|after|against|along|amid|among|and|around|as|at|atop|before|behind|"
    "below|beneath|beside|besides|between|beyond|but|by|down|during|for|from|in|inside|into|"
    "like|near|next|of|off|on|onto|or|out|outside|over|past|through|to|toward|towards|under|"
    "underneath|up|upon|via|while|with|within|without"
)
# Stands for another one first of all: in "an orange cat" -> "a cat" it is not the orange that
# became "a", though both are the last of what changed.
_DETERMINER = re.compile(
    "a|an|the|this|that|these|those|some|my|your|his|her|its|our|their|"
    "one|two|three|four|five|six|seven|eight|nine|ten|[0-9]+"
)
# Ends a noun phrase, after its noun: "a giraffe playing chess", "a castle covered in snow".
_PARTICIPLE = re.compile(
    "(?!(?:building|ceiling|clothing|drawing|evening|king|lighting|lightning|morning|painting|"
    "ring|spring|string|thing|viking|wedding|wing)$)(?:.{2,}ing|.{2,}[^e]ed|made)"
)
_BEFORE_NOUN = re.compile(
    f"{_CONNECTIVE.pattern}|{_DETERMINER.pattern}|big|black|blue|cute|dark|green|grey|happy|large|"
    "little|old|pink|pretty|purple|red|small|tall|tiny|white|yellow|young|.*(?:ful|ish|less|ous)"
)
# "a lake" -> "a painting of a mountain": it is the mountain that the lake became.
_MEDIUM = re.compile(
    "close-up|drawing|engraving|illustration|image|painting|photo|photograph|picture|portrait|"
    "poster|render|rendering|sculpture|sketch|statue|watercolou?r"
)


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """Which word of the target stands for which word of the source.

    Attributes:
        pairs: (source word or None, target word or None), in reading order; every word of both
            prompts, those past the limit too, is in one pair. None on the left: the word was added;
            None on the right: it was dropped.
        kind: "replace" if every word has its partner, "refine" if words were added or dropped (or
            the kind that was asked for).
        why: one sentence, without full stop, that says what changed and what was therefore chosen.
        guesses: the pairs of different words for which other words could have been chosen.
    """

    pairs: tuple[tuple[Word | None, Word | None], ...]
    kind: EditKind
    why: str
    guesses: tuple[tuple[Word, Word], ...] = ()

    @property
    def same(self) -> tuple[tuple[Word, Word], ...]:
        """The words that stayed, apart from case, Unicode form and punctuation."""
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
    one each), and among these the one that keeps the most words; here an article or number equals
    any other, and a noun its plural. Between two words that stayed, as many words for as many stand
    for each other in order. If their numbers differ, the words are paired phrase by phrase. A
    comma, a preposition, "and" or a participle after a noun begins a phrase, and only phrases that
    begin alike are paired. In a phrase the last words are paired with the last: "a cat" ->
    "a big dog on the grass" makes a dog of the cat and adds the other words.

    Args:
        source: what the model reads of the prompt that is edited.
        target: what it reads of the prompt that it is to become.
        kind: "replace" pairs the words in order, whatever they are; "refine" says that tokens
            without a counterpart keep their own attention, even where no word was added. None
            chooses: "replace" if every word has its partner, else "refine"; and "refine" too where
            all words are the same and only punctuation differs.

    Raises:
        ArgumentError: if `kind` is unknown or is "replace" and the numbers of words differ, or if
            the prompts are too long to be aligned.
    """
    if kind is not None:
        checks.one_of("kind", kind, get_args(EditKind))
    if kind == "replace":
        if len(source.words) != len(target.words):
            raise not_one_to_one(pair_words(source, target))
        pairs = list(zip(source.words, target.words, strict=True))
        guesses: list[tuple[Word, Word]] = []
    else:
        pairs, guesses = _paired(source, target)
    found = WordAlignment(tuple(pairs), "replace", "", tuple(guesses))
    # Where no word differs, only new punctuation could show: it keeps its own attention.
    ids = [[token.id for token in table.tokens] for table in (source, target)]
    signs = found.one_to_one and not found.swapped and ids[0] != ids[1]
    chosen: EditKind = kind or ("replace" if found.one_to_one and not signs else "refine")
    why = _why(found, chosen, signs, asked=kind is not None)
    return WordAlignment(found.pairs, chosen, why, found.guesses)


def _paired(
    source: TokenTable, target: TokenTable
) -> tuple[list[tuple[Word | None, Word | None]], list[tuple[Word, Word]]]:
    """Pair the words of two prompts; return the pairs, and those among them that are a guess."""
    words = (*source.words, *target.words)
    nouns = {many: fold(word.text) for word in words for many in plurals(fold(word.text))}

    def key(word: Word) -> str:
        text = " ".join(_key(word))
        return "a" if _DETERMINER.fullmatch(text) else nouns.get(text, text)

    keys = [key(word) for word in source.words], [key(word) for word in target.words]
    anchors = best_matches(*keys, match=0, swap=-1, gap=-1, what="words")
    pairs: list[tuple[Word | None, Word | None]] = []
    guesses: list[tuple[Word, Word]] = []
    ends = (len(source.words), len(target.words))
    for (i, j), (next_i, next_j) in pairwise([(-1, -1), *anchors, ends]):
        a, b = source.words[i + 1 : next_i], target.words[j + 1 : next_j]
        if len(a) == len(b):
            pairs += zip(a, b, strict=True)
        else:
            changed = _changed(_phrases(a, source.prompt), _phrases(b, target.prompt))
            guesses += [(x, y) for x, y in changed if x and y and min(len(a), len(b)) > 1]
            pairs += changed
        if next_i < len(source.words):
            pairs.append((source.words[next_i], target.words[next_j]))
    return pairs, guesses


_Phrase = tuple[str, list[Word]]


def _changed(
    source: Sequence[_Phrase], target: Sequence[_Phrase]
) -> list[tuple[Word | None, Word | None]]:
    """Pair the words of phrases that begin alike; all others were dropped or added."""
    kinds = [kind for kind, _ in source], [kind for kind, _ in target]
    matches = best_matches(*kinds, match=1, swap=-1, gap=0, what="phrases")
    pairs: list[tuple[Word | None, Word | None]] = []
    edges = [(-1, -1), *matches, (len(source), len(target))]
    for (i, j), (next_i, next_j) in pairwise(edges):
        pairs += [(word, None) for _, words in source[i + 1 : next_i] for word in words]
        pairs += [(None, word) for _, words in target[j + 1 : next_j] for word in words]
        if next_i == len(source):
            break
        (kind, a), (_, b) = source[next_i], target[next_j]
        first = [(a.pop(0), b.pop(0))] if kind not in ("", ",") else []
        if a and b and all(_DETERMINER.fullmatch(fold(words[0].text)) for words in (a, b)):
            first.append((a.pop(0), b.pop(0)))
        more = len(a) - len(b)
        pairs += [*first, *((word, None) for word in a[: max(0, more)])]
        pairs += [(None, word) for word in b[: max(0, -more)]]
        pairs += zip(a[max(0, more) :], b[max(0, -more) :], strict=True)
    return pairs


def _phrases(words: Sequence[Word], prompt: str) -> list[_Phrase]:
    """Cut words into phrases, each with the kind of its first word; the first may be empty."""
    phrases: list[_Phrase] = [("", [])]
    for word in words:
        text, (kind, before) = fold(word.text), phrases[-1]
        last = fold(before[-1].text) if before else ""
        if text == "of" and kind in ("", ",") and _MEDIUM.fullmatch(last):
            before.append(word)
            phrases[-1:] = [("of", before), (kind, [])]
            continue
        if not set(",;.|").isdisjoint(prompt[max(0, word.start - 2) : word.start]):
            phrases.append((",", []))
        elif connects(text):
            phrases.append((text if text in ("and", "with") else "in", []))
        elif last and _PARTICIPLE.fullmatch(text) and not _BEFORE_NOUN.fullmatch(last):
            phrases.append(("ing", []))
        phrases[-1][1].append(word)
    return phrases


def connects(word: str) -> bool:
    """Whether a word, folded, begins a new phrase: a preposition, "and", "or"."""
    return _CONNECTIVE.fullmatch(word) is not None


def _key(word: Word) -> tuple[str, ...]:
    return word_keys(word.text) or (fold(word.text),)


def _why(found: WordAlignment, kind: EditKind, signs: bool, *, asked: bool) -> str:
    changes = [f"{quoted(a.text)} became {quoted(b.text)}" for a, b in found.swapped]
    changes = [first_of(changes)] if changes else []
    for words, happened in ((found.added, "added"), (found.dropped, "dropped")):
        if words:
            texts = [quoted(word.text) for word in words]
            changes.append(f"{first_of(texts)} {'was' if len(words) == 1 else 'were'} {happened}")
    said = "; ".join(changes)
    if not found.pairs:
        said = "neither prompt has a word"
    elif not changes:
        said = "all words are the same"
    if signs:
        said += ", but not the signs around them" if found.pairs else ", but signs differ"
    so = "; as asked, " if asked else ", so "
    if kind == "refine":
        said += f"{so}attention is refined"
        return f"{said}: what stayed takes the source's, what is new keeps its own"
    if found.swapped and found.same:
        said += "; all other words are the same"
        return f"{said}{so}their attention is replaced word by word"
    return f"{said}{so}attention is replaced word by word"


def first_of(texts: Sequence[str]) -> str:
    """Texts as a sentence has them: "a, b and c"; of many the first, and how many more."""
    if len(texts) <= _LISTED:
        return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
    return f"{', '.join(texts[: _LISTED - 1])} and {len(texts) - _LISTED + 1} more"


def not_one_to_one(alignment: WordAlignment) -> ArgumentError:
    """The error that says which words keep Replace from being possible."""
    counts = [sum(bool(pair[side]) for pair in alignment.pairs) for side in (0, 1)]
    changes = [
        f"{first_of([quoted(word.text) for word in words])} {happened}"
        for words, happened in ((alignment.added, "added"), (alignment.dropped, "dropped"))
        if words
    ]
    return ArgumentError(
        f"the source has {counts[0]} words and the target {counts[1]} ({', '.join(changes)}): "
        "expected one for each where words are replaced; use kind='refine'"
    )


# --- what a user writes -----------------------------------------------------------------------

_ARROW = re.compile("->|→")
_COMMA = re.compile(r",(?!\d)|(?<!\d),")  # not that of a number


def swap_of(text: str) -> tuple[tuple[str, str], ...]:
    """Read "cat->dog" as (source word, target word) pairs.

    An arrow is "->" or "→"; spaces around words do not matter; a word may be a phrase. Several
    swaps are set apart by commas: "cat->dog, red->blue". Whether the words are in the prompts is
    not asked here: `TokenTable.find` does that.

    Raises:
        ArgumentError: if it is not a text of this form.
    """
    checks.text("the swap", text, "cat->dog")
    swaps: list[tuple[str, str]] = []
    for part in _COMMA.split(text):
        sides = [side.strip() for side in _ARROW.split(part)]
        if any(side.count('"') % 2 for side in sides):
            raise ArgumentError(
                f"{quoted(part.strip())} opens a quotation mark in one word and closes it in "
                'another: expected each word in its own, as in \'"cat"->"dog"\''
            )
        if len(sides) != 2 or not all(map(word_keys, sides)):
            raise ArgumentError(
                f"only is {quoted(part.strip())}: expected a word, an arrow and a word as in "
                "'cat->dog', and commas between several"
            )
        swaps.append((sides[0], sides[1]))
    return tuple(swaps)


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
