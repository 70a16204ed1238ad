"""Prompt, words, tokens: what a person wrote and what the model read of it, tied by characters.

Pure text. Everything rests on character spans: a tokenizer says which characters of the prompt each
token covers, `split_words` which characters a person would call a word, and a token belongs to the
word whose span it overlaps. Nothing is searched by its text in the token list, so repeats, commas,
case and words of several tokens need no special care.

Positions count on the `K` axis, the text tokens of the encoded sequence, specials included. The
types of a table are its schema, too, where it is read from a file.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from heedmap import checks
from heedmap.errors import (
    ArgumentError,
    TruncatedWordError,
    UnknownWordError,
    listed,
    nearest,
    plural,
    quoted,
)
from heedmap.io.values import MAX_PROMPT, TOKENS_AT_MOST, WORDS_AT_MOST, Small, Text, TokenKind
from heedmap.text.prompts import describes, fold, is_content, places, word_keys

LABELS: dict[str, str] = {"start": "<start>", "end": "<end>", "pad": "<pad>"}
LONGEST_PHRASE = 3  # words; a longer run without a joint is a list, or another language
_QUOTES = ('""', "''", "\u201c\u201d", "\u2018\u2019")
MOVE_IT = "shorten the prompt, or move the word towards its start"  # what an error advises
_COMPARED = 1000  # words among which those like a strange one are looked for


@dataclass(frozen=True, slots=True)
class Token:
    """One position of the encoded sequence.

    Attributes:
        position: index on the `K` axis.
        id: the tokenizer's number for it.
        text: the piece of the prompt it covers; a label such as "<pad>" for the specials. Several
            tokens may cover the same piece: an emoji is often three.
        start: first character of the piece in the prompt (0 for the specials).
        end: one past its last character (0 for the specials).
        kind: "text", or which special token it is.
    """

    position: Small
    id: Small
    text: Text
    start: Small
    end: Small
    kind: TokenKind


@dataclass(frozen=True, slots=True)
class Word:
    """One word of the prompt and the tokens the model read of it.

    Attributes:
        number: counts the words from 0 in reading order.
        text: the word as it stands in the prompt.
        start: its first character in the prompt.
        end: one past its last character.
        tokens: positions on the `K` axis, ascending; empty when the word is past the limit.
        missing: how many of its tokens lie past the limit and were not read.
    """

    number: Small
    text: Text
    start: Small
    end: Small
    tokens: Annotated[tuple[Small, ...], TOKENS_AT_MOST]
    missing: Small

    @property
    def truncated(self) -> bool:
        """Whether some or all of the word lies past the limit."""
        return self.missing > 0


@dataclass(frozen=True, slots=True)
class TokenTable:
    """What the model read of one prompt.

    Attributes:
        prompt: the text as given.
        limit: how many tokens the model reads, specials included (77 for CLIP).
        missing: how many tokens of the prompt lie past the limit.
        tokens: all positions of the encoded sequence, specials included.
        words: all words of the prompt, those past the limit too.
    """

    prompt: Text
    limit: Small
    missing: Small
    tokens: Annotated[tuple[Token, ...], TOKENS_AT_MOST]
    words: Annotated[tuple[Word, ...], WORDS_AT_MOST]

    def __repr__(self) -> str:
        words, tokens = plural(len(self.words), "word"), plural(len(self.tokens), "token")
        return f"<TokenTable of {quoted(self.prompt)}: {words}, {tokens}>"

    @property
    def read_words(self) -> tuple[Word, ...]:
        """The words of which the model read at least one token."""
        return tuple(word for word in self.words if word.tokens)

    @property
    def cut(self) -> Word | None:
        """The first word that was not read whole, or None."""
        return next((word for word in self.words if word.truncated), None)

    @property
    def room(self) -> int:
        """How many tokens of a prompt the model can read, without specials (75 for CLIP)."""
        return len(self.positions("text", "pad"))

    @property
    def unread(self) -> str:
        """In a sentence what the model did not read of the prompt; empty if it read all."""
        lost = [word for word in self.words if word.missing]
        if not lost:
            return ""
        words = f"{plural(len(lost), 'word')} of {quoted(self.prompt)}"
        names = [quoted(word.text) + " (in part)" * bool(word.tokens) for word in lost[:5]]
        more = [f"{len(lost) - 5} more"] if len(lost) > 5 else []
        return (
            f"{words} {'is' if len(lost) == 1 else 'are'} not read, since the model reads "
            f"{self.room} tokens of a prompt: {listed([*names, *more], 'and')}, from word "
            f"{lost[0].number} on; {MOVE_IT}"
        )

    def positions(self, *kinds: TokenKind) -> tuple[int, ...]:
        """Positions on the `K` axis of the tokens of these kinds (default: "text")."""
        return tuple(t.position for t in self.tokens if t.kind in (kinds or ("text",)))

    def at(self, number: int) -> Word:
        """Return the word with this number; negative numbers count from the end."""
        return self.words[_pick(number, len(self.words), "word number", "the prompt has", "words")]

    def tokens_at(self, number: int) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of the word with this number.

        A word that the limit cut in the middle gives the tokens that were read.

        Raises:
            UnknownWordError: if there is no such word.
            TruncatedWordError: if the model did not read it.
        """
        word = self.at(number)
        if not word.tokens:
            raise self._unread(f"{quoted(word.text)} (word {word.number})")
        return word.tokens

    def matches(self, query: str) -> tuple[tuple[Word, ...], ...]:
        """Return every place where a word or phrase stands, each as its words.

        Whole words are compared ("cat" is not in "cathedral"), without regard to case, Unicode
        form, spaces, and punctuation around or between them. Places do not overlap and come in
        reading order; words past the limit are included. Several emoji that the tokenizer reads
        as one token are one word, and found by any of them; a phrase that is one word, as a
        concept may be, is found as a whole.

        Raises:
            ArgumentError: if the query is not a text, or longer than a prompt may be.
            UnknownWordError: if there is no such place; the message says which words there are.
        """
        if not checks.is_text(query):
            raise ArgumentError(
                f"the word is {quoted(query)}: expected a text, as in 'house'; the map of a "
                "word by its number is maps.at(number)"
            )
        checks.text("the word", query, most=MAX_PROMPT)
        wanted = word_keys(query)
        if not wanted:
            raise UnknownWordError(
                f"{quoted(query)} contains no word to look for: {self._inventory()}"
            )
        keys: list[str] = []
        owners: list[Word] = []
        for word in self.words:
            parts = word_keys(word.text)
            keys += parts
            owners += [word] * len(parts)
        found: list[tuple[Word, ...]] = []
        for index in places(keys, wanted):
            owned = owners[index : index + len(wanted)]
            place = tuple(dict.fromkeys(owned))
            whole = all(
                owned.count(one) == len(word_keys(one.text)) for one in place if " " in one.text
            )
            if whole and (not found or found[-1] != place):
                found.append(place)
        if not found:
            where = "among the concepts" if self.of_concepts else "in the prompt"
            raise UnknownWordError(
                f"{quoted(query)} is not {where}: {self._inventory(' '.join(wanted))}"
            )
        return tuple(found)

    def find(self, query: str, occurrence: int | None = None) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of a word or phrase.

        Where it stands several times, the tokens of all places that were read are returned, in
        ascending order; `occurrence` picks one place (0 is the first, -1 the last). A word that
        the limit cut in the middle gives the tokens that were read.

        Raises:
            UnknownWordError: if it is not in the prompt, or not as often as `occurrence` asks.
            TruncatedWordError: if it is only in the part that the model did not read.
        """
        places = self.matches(query)
        if occurrence is not None:
            stands = f"{quoted(query)} stands in the prompt"
            place = _pick(occurrence, len(places), "occurrence", stands, "times")
            places = (places[place],)
        return _tokens_of(self._read(places, query))

    def phrase(self, query: str | int) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of the phrases that a word stands in.

        A phrase is a run of words that stand for things and properties, with nothing but spaces or
        a hyphen between them: of "tree" in "next to a blue tree, at night" it is "blue tree". Verbs
        end it, as far as they are told by "-ing" ("a dog chasing cats" is two phrases). A run of
        more than three words is not a phrase but a list (or in another language than English), and
        the word is then taken alone; so is one that is given in quotation marks, as '"tree"'. All
        places that were read are meant; of a word by its number, that one.

        Raises:
            UnknownWordError: if the word is not in the prompt.
            TruncatedWordError: if it is only in the part that the model did not read.
        """
        if isinstance(query, int):
            self.tokens_at(query)  # or this raises
            return _tokens_of([self._phrase_around((self.at(query),))])
        read = self._read(self.matches(query), query)
        bare = query.strip()
        if len(bare) > 2 and bare[0] + bare[-1] in _QUOTES:
            return _tokens_of(read)
        return _tokens_of([self._phrase_around(place) for place in read])

    @property
    def phrases(self) -> tuple[tuple[Word, ...], ...]:
        """The phrases of the prompt, as `phrase` tells them, in order: of what the model read.

        Words that name neither a thing nor a property are in none of them.
        """
        around = [self._phrase_around((w,)) for w in self.read_words if describes(w.text)]
        whole = [tuple(word for word in phrase if word.tokens) for phrase in around]
        return tuple(dict.fromkeys(whole))

    def _read(self, places: Sequence[tuple[Word, ...]], query: str) -> list[tuple[Word, ...]]:
        """Those of the places of a query that the model read."""
        read = [place for place in places if all(word.tokens for word in place)]
        if not read:
            raise self._unread(quoted(query))
        return read

    def text_of(self, tokens: Collection[int]) -> str:
        """The words that have tokens among these, as they stand in the prompt: "blue tree"."""
        said, last = "", None
        wanted = set(tokens)
        for word in self.words:
            if wanted.isdisjoint(word.tokens):
                continue
            if last is not None:
                between = self.prompt[last.end : word.start]
                said += between if word.number == last.number + 1 else " and "
            said, last = said + word.text, word
        return said

    def _phrase_around(self, place: tuple[Word, ...]) -> tuple[Word, ...]:
        first, last = place[0].number, place[-1].number
        words = self.words
        if is_content(place[0].text):
            while first > 0 and self._joined(first - 1) and describes(words[first - 1].text):
                first -= 1
        if describes(place[-1].text):
            while self._joined(last) and describes(words[last + 1].text):
                last += 1
        return self.words[first : last + 1] if last - first < LONGEST_PHRASE else place

    def _joined(self, number: int) -> bool:
        """Whether nothing stands between a word and the next one, if there is a next."""
        if number + 1 == len(self.words):
            return False
        between = self.prompt[self.words[number].end : self.words[number + 1].start]
        return between.strip(" \t") in ("", "-")

    @property
    def of_concepts(self) -> bool:
        """Whether it tells of concepts (`concepts.concept_table`): an encoder adds tokens."""
        whole = all(word.tokens == (word.number,) for word in self.words)
        return whole and 0 < len(self.words) == len(self.tokens)

    def _unread(self, what: str) -> TruncatedWordError:
        """The error of a word that was asked for and not read."""
        cut = self.cut
        where = f" at {quoted(cut.text)} (word {cut.number})" if cut else ""
        return TruncatedWordError(
            f"{what} was not read by the model: it reads {self.room} tokens of a prompt, and this "
            f"one was cut{where}; {MOVE_IT}"
        )

    def _inventory(self, strange: str = "") -> str:
        """Which words there are; of many those most like one that is not."""
        spellings: dict[str, str] = {}
        for word in self.words:
            spellings.setdefault(fold(word.text), word.text)
        texts = list(spellings.values())
        if not texts:
            return "the prompt has no words"
        near = [spellings[key] for key in nearest(strange, list(spellings)[:_COMPARED])]
        of = f"its {len(texts)}, such as " if len(texts) > len(near) else ""
        return f"expected a word of {of}{', '.join(map(quoted, near))}"


def _tokens_of(places: Sequence[tuple[Word, ...]]) -> tuple[int, ...]:
    """The positions of the tokens of these words, ascending."""
    return tuple(sorted({t for place in places for word in place for t in word.tokens}))


def _pick(number: object, count: int, what: str, has: str, things: str) -> int:
    index = checks.whole(f"the {what}", number)
    if -count <= index < count:
        return index % count
    span = f"use 0 to {count - 1}" if count > 1 else "use 0" if count else "there is none to pick"
    things = things.removesuffix("s") if count == 1 else things
    raise UnknownWordError(f"there is no {what} {quoted(index)}: {has} {count} {things}; {span}")
