"""From two prompts to a correspondence: which word stands for which, and so what an edit is.

Pure text, standard library only; what the correspondence is used for is not known here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import get_args

from heedmap import checks
from heedmap.errors import ArgumentError, Is, Written, quoted
from heedmap.options import EditKind
from heedmap.text.prompts import fold, word_keys
from heedmap.text.sequences import best_matches
from heedmap.text.words import TokenTable, Word

__all__ = ["WordAlignment", "connects", "first_of", "not_one_to_one", "pair_words", "swap_of"]

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
    """

    pairs: tuple[tuple[Word | None, Word | None], ...]
    kind: EditKind
    why: str

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
    one each), and among these the one that keeps the most words. Between two words that stayed, as
    many words for as many stand for each other in order. If their numbers differ, phrase stands for
    phrase (a preposition or "and" begins one), article or number for article or number, and of the
    rest the last words for the last: "a cat" -> "a big dog on the grass" makes a dog of the cat and
    adds the other words.

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
    else:
        pairs = _paired(source.words, target.words)
    found = WordAlignment(tuple(pairs), "replace", "")
    # Where no word differs, only new punctuation could show: it keeps its own attention.
    ids = [[token.id for token in table.tokens] for table in (source, target)]
    signs = found.one_to_one and not found.swapped and ids[0] != ids[1]
    chosen: EditKind = kind or ("replace" if found.one_to_one and not signs else "refine")
    return WordAlignment(found.pairs, chosen, _why(found, chosen, signs, asked=kind is not None))


def _paired(
    source: Sequence[Word], target: Sequence[Word]
) -> list[tuple[Word | None, Word | None]]:
    anchors = best_matches(
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
        if all(words and _DETERMINER.fullmatch(fold(words[0].text)) for words in (a, b)):
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
        if connects(fold(word.text)):
            phrases.append([])
        phrases[-1].append(word)
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
        "expected one for each where words are replaced; use ",
        Written("kind", "refine"),
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
                Is("only", part.strip()),
                ": expected a word, an arrow and a word as in "
                "'cat->dog', and commas between several",
            )
        swaps.append((sides[0], sides[1]))
    return tuple(swaps)
