"""The alignment of the words of two prompts; phrases are those of English."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from heedmap.checks import check_text
from heedmap.errors import ArgumentError, join_words, quoted
from heedmap.text.prompts import CONNECTIVES, fold, plurals, word_keys
from heedmap.text.sequences import best_matches, segments
from heedmap.text.words import TokenTable, Word

EditKind = Literal["replace", "refine"]
"""How the words of an edit correspond: one to one, or with words that are new."""
_Pair = tuple[Word | None, Word | None]


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """The word of the target for each word of the source.

    Attributes:
        pairs: (source word or None, target word or None), in reading order; every word of both
            prompts is in one pair, with those past the limit. None on the left: the word was added;
            None on the right: it was dropped.
        changes: those of the pairs that are not the same word, apart from case, Unicode form and
            punctuation.
        kind: "replace" if every word has its partner, "refine" if words were added or dropped.
        why: a clause about the change and its consequence for the attention.
    """

    pairs: tuple[_Pair, ...]
    changes: tuple[_Pair, ...]
    kind: EditKind
    why: str

    @property
    def unread(self) -> tuple[Word, ...]:
        """The changed words without a token that the model reads: their edit would be lost."""
        return tuple(
            word for pair in self.changes for word in pair if word and not word.tokens
        )


# --- words --------------------------------------------------------------------------------------

# Stands for another determiner: in "an orange cat" -> "a cat" the "an" became "a", not "orange".
_DETERMINER = re.compile(
    "a|an|the|this|that|these|those|some|my|your|his|her|its|our|their|"
    "one|two|three|four|five|six|seven|eight|nine|ten|[0-9]+"
)


def pair_words(source: TokenTable, target: TokenTable) -> WordAlignment:
    """Align the words of two prompts, and choose between Replace and Refine.

    Words are compared without regard to case, Unicode form and punctuation. The alignment has the
    fewest changes (Levenshtein: a swap, an addition and a drop cost one each), and then keeps the
    most words; here an article or number equals any other, and a noun its plural. Between two words
    that stayed, equally many words are paired in order. Otherwise they are paired phrase by phrase,
    from the last words backwards: "a cat" -> "a big dog on the grass" makes a dog of the cat and
    adds the other words. A comma, a preposition or "and" begins a phrase.

    "replace" is chosen if every word has its partner; with "refine" tokens without a partner keep
    their own attention. ArgumentError if the prompts are too long to be aligned.
    """
    pairs = _paired(source, target)
    changes = [(a, b) for a, b in pairs if _key(a) != _key(b)]
    # New punctuation keeps its own attention.
    source_ids = [token.id for token in source.tokens]
    punctuation = not changes and source_ids != [token.id for token in target.tokens]
    is_partial = punctuation or any(None in pair for pair in pairs)
    kind = "refine" if is_partial else "replace"
    why = _why(changes, kind)
    return WordAlignment(tuple(pairs), tuple(changes), kind, why)


def _paired(source: TokenTable, target: TokenTable) -> list[_Pair]:
    words = [*source.words, *target.words]
    keys = [_key(word) for word in words]
    nouns: dict[str, str] = {}
    for noun in keys:
        nouns |= dict.fromkeys(plurals(noun), noun)
    items = ["a" if _DETERMINER.fullmatch(key) else nouns.get(key, key) for key in keys]
    count = len(source.words)
    matches = best_matches(items[:count], items[count:], match=0, swap=-1, gap=-1)
    pairs: list[_Pair] = []
    for a, b, match in segments(matches, source.words, target.words):
        if len(a) == len(b):
            pairs += zip(a, b, strict=True)
        else:
            pairs += _changed(_phrases(a, source.prompt), _phrases(b, target.prompt))
        pairs += match
    return pairs


_Phrase = tuple[str, list[Word]]


def _changed(source: Sequence[_Phrase], target: Sequence[_Phrase]) -> list[_Pair]:
    """Pair the words of phrases that begin alike; all others were dropped or added."""
    source_kinds = [kind for kind, _ in source]
    target_kinds = [kind for kind, _ in target]
    matches = best_matches(source_kinds, target_kinds, match=1, swap=-1, gap=0)
    pairs: list[_Pair] = []
    for dropped, added, match in segments(matches, source, target):
        for _, words in dropped:
            pairs += [(word, None) for word in words]
        for _, words in added:
            pairs += [(None, word) for word in words]
        for (kind, a), (_, b) in match:
            count = 0 if kind in ("", ",") else 1
            heads = [*a[count : count + 1], *b[count : count + 1]]
            texts = [fold(word.text) for word in heads]
            if len(texts) == 2 and all(map(_DETERMINER.fullmatch, texts)):
                count += 1
            pairs += zip(a[:count], b[:count], strict=True)
            rest = zip_longest(reversed(a[count:]), reversed(b[count:]))
            pairs += reversed(list(rest))
    return pairs


def _phrases(words: Sequence[Word], prompt: str) -> list[_Phrase]:
    """Cut words into phrases, each with the kind of its first word; the first may be empty."""
    phrases: list[_Phrase] = [("", [])]
    for word in words:
        text = fold(word.text)
        gap = prompt[max(0, word.start - 2) : word.start]
        if not set(",;.|").isdisjoint(gap):
            phrases.append((",", []))
        elif text in CONNECTIVES:
            phrases.append((text if text in ("and", "with") else "in", []))
        phrases[-1][1].append(word)
    return phrases


def _key(word: Word | None) -> str:
    return "" if word is None else fold(word.text)


def _why(changes: list[_Pair], kind: EditKind) -> str:
    swaps = [f"{quoted(a.text)} became {quoted(b.text)}" for a, b in changes if a and b]
    added = [quoted(b.text) for a, b in changes if b and not a]
    dropped = [quoted(a.text) for a, b in changes if a and not b]
    clauses: list[str] = []
    for change, texts in (("", swaps), ("added ", added), ("dropped ", dropped)):
        if texts:
            clauses.append(f"{change}{join_words(texts)}")
    effect = "unchanged words take the source's attention and new words keep their own"
    if kind == "replace":
        effect = "attention is replaced word by word"
    return f"{'; '.join(clauses) or 'no word changed'}, so {effect}"


# --- the swaps that a user writes ---------------------------------------------------------------

_ARROW = re.compile("->|→")
_COMMA = re.compile(r",(?!\d)|(?<!\d),")  # not that of a number


def swap_of(text: str) -> tuple[tuple[str, str], ...]:
    """Read "cat->dog, red→blue" as (source word, target word) pairs; a word may be a phrase."""
    swaps: list[tuple[str, str]] = []
    for part in _COMMA.split(check_text("the swap", text, "cat->dog")):
        sides = [side.strip() for side in _ARROW.split(part)]
        if len(sides) != 2 or not all(map(word_keys, sides)):
            raise ArgumentError(
                f"only is {quoted(part.strip())}: expected pairs such as 'cat->dog', separated by "
                "commas"
            )
        swaps.append((sides[0], sides[1]))
    return tuple(swaps)
