"""The words of a prompt and their tokens, tied by the characters of the prompt.

A tokenizer says which characters each token covers, `split_words` which characters are a word, and
a token belongs to the word whose characters it overlaps.

Positions count on the `K` axis: the tokens of the encoded text, specials included. The types of a
table are also its schema in files.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from heedmap import checks
from heedmap.errors import TruncatedWordError, UnknownWordError, listed, nearest, plural, quoted
from heedmap.io.schemas import TOKENS_AT_MOST, WORDS_AT_MOST, Small, Text, TokenKind
from heedmap.text.prompts import describes, first_of, is_content, places, word_keys

LABELS: dict[str, str] = {"start": "<start>", "end": "<end>", "pad": "<pad>"}
LONGEST_PHRASE = 3  # words; a longer run without a joint is a list, or another language
MOVE_IT = "shorten the prompt, or move the word towards its start"  # advice of errors


@dataclass(frozen=True, slots=True)
class Token:
    """One position of the encoded text.

    Attributes:
        position: index on the `K` axis.
        id: the tokenizer's number for it.
        text: the characters of the prompt it covers; a label such as "<pad>" for the specials.
            Several tokens may cover the same characters: an emoji is often three.
        start: first character in the prompt (0 for the specials).
        end: one past the last character (0 for the specials).
        kind: "text", or the kind of special token.
    """

    position: Small
    id: Small
    text: Text
    start: Small
    end: Small
    kind: TokenKind


@dataclass(frozen=True, slots=True)
class Word:
    """One word of the prompt and the tokens that the model read of it.

    Attributes:
        number: counts the words from 0 in reading order.
        text: the word as it stands in the prompt.
        start: first character in the prompt.
        end: one past the last character.
        tokens: positions on the `K` axis, ascending; empty if the word is past the limit.
        missing: number of its tokens past the limit, which were not read.
    """

    number: Small
    text: Text
    start: Small
    end: Small
    tokens: Annotated[tuple[Small, ...], TOKENS_AT_MOST]
    missing: Small


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The words and tokens of one prompt.

    Attributes:
        prompt: the text as given.
        limit: number of tokens that the model reads, specials included (77 for CLIP).
        missing: number of tokens of the prompt past the limit.
        tokens: all positions of the encoded text, specials included.
        words: all words of the prompt, with those past the limit.
    """

    prompt: Text
    limit: Small
    missing: Small
    tokens: Annotated[tuple[Token, ...], TOKENS_AT_MOST]
    words: Annotated[tuple[Word, ...], WORDS_AT_MOST]

    @classmethod
    def of_texts(cls, texts: Iterable[str], between: str) -> "TokenTable":
        """Make a table in which each text is one word of one token."""
        tokens: list[Token] = []
        words: list[Word] = []
        start = 0
        for number, text in enumerate(texts):
            end = start + len(text)
            tokens.append(Token(number, 0, text, start, end, "text"))
            words.append(Word(number, text, start, end, (number,), 0))
            start = end + len(between)
        prompt = between.join(word.text for word in words)
        return cls(prompt, len(tokens), 0, tuple(tokens), tuple(words))

    def __repr__(self) -> str:
        words, tokens = plural(len(self.words), "word"), plural(len(self.tokens), "token")
        return f"<TokenTable of {quoted(self.prompt)}: {words}, {tokens}>"

    @property
    def read_words(self) -> tuple[Word, ...]:
        """The words of which the model read at least one token."""
        return tuple(word for word in self.words if word.tokens)

    @property
    def room(self) -> int:
        """The number of tokens of a prompt that the model reads, without specials (75 for CLIP)."""
        return len(self.positions("text", "pad"))

    @property
    def unread(self) -> str:
        """A sentence that names the words the model did not read; empty if it read all."""
        lost = [word for word in self.words if word.missing]
        if not lost:
            return ""
        names = [quoted(word.text) + " (in part)" * bool(word.tokens) for word in lost]
        return (
            f"the model reads {self.room} tokens of a prompt and does not read {first_of(names)} "
            f"of {quoted(self.prompt)}, from word {lost[0].number} on; {MOVE_IT}"
        )

    @property
    def of_concepts(self) -> bool:
        """True for a table of concepts: the encoder adds tokens to any other text."""
        whole = all(word.tokens == (word.number,) for word in self.words)
        return whole and 0 < len(self.words) == len(self.tokens)

    @property
    def phrases(self) -> tuple[tuple[Word, ...], ...]:
        """The phrases of the prompt (see `phrase`) in order, as the words that the model read.

        Words that name neither a thing nor a property are in none of them.
        """
        around = [self._phrase_around((w,)) for w in self.read_words if describes(w.text)]
        phrases = [tuple(word for word in phrase if word.tokens) for phrase in around]
        return tuple(dict.fromkeys(phrases))

    def positions(self, *kinds: TokenKind) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of these kinds (default: "text")."""
        return tuple(t.position for t in self.tokens if t.kind in (kinds or ("text",)))

    def at(self, number: int) -> Word:
        """Return the word with this number; negative numbers count from the end.

        Raises:
            UnknownWordError: if there is no such word.
        """
        number, count = checks.whole("the word number", number), len(self.words)
        if not -count <= number < count:
            raise UnknownWordError(
                f"there is no word number {quoted(number)}: the prompt has "
                f"{plural(count, 'word')}, counted from 0"
            )
        return self.words[number]

    def tokens_at(self, number: int) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of the word with this number.

        Raises:
            UnknownWordError: if there is no such word.
            TruncatedWordError: if the model read no token of it.
        """
        word = self.at(number)
        if not word.tokens:
            raise self._not_read(f"{quoted(word.text)} (word {word.number})")
        return word.tokens

    def matches(self, query: str) -> tuple[tuple[Word, ...], ...]:
        """Return every place of a word or phrase, each as its words, in order.

        Whole words are compared ("cat" is not in "cathedral"), without regard to case, Unicode
        form, spaces and punctuation. Places do not overlap; words past the limit are included.
        Emoji that share a token are one word, which each of them finds. A concept of several words
        is found as a whole.

        Raises:
            UnknownWordError: if there is no such place.
        """
        wanted = word_keys(checks.text("the word", query, "house"))
        keys = [(key, word) for word in self.words for key in word_keys(word.text)]
        matches: dict[tuple[Word, ...], None] = {}
        for at in places([key for key, _ in keys], wanted) if wanted else ():
            place = tuple(dict.fromkeys(word for _, word in keys[at : at + len(wanted)]))
            concept = any(" " in word.text for word in place)
            if not concept or sum(len(word_keys(word.text)) for word in place) == len(wanted):
                matches[place] = None
        if not matches:
            where = "among the concepts" if self.of_concepts else "in the prompt"
            near = [quoted(text) for text in nearest(query, [word.text for word in self.words])]
            raise UnknownWordError(
                f"{quoted(query)} is not {where}: "
                f"{f'expected a word such as {listed(near)}' if near else 'it has no words'}"
            )
        return tuple(matches)

    def find(self, query: str) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of a word or phrase, ascending.

        Of several places all that were read count. A word that the limit cut gives the tokens that
        were read.

        Raises:
            UnknownWordError: if it is not in the prompt.
            TruncatedWordError: if the model read none of its places.
        """
        return _tokens_of(self._read_places(query))

    def phrase(self, query: str) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of the phrases around a word.

        A phrase is a run of words for things and properties with only spaces or a hyphen between
        them: "blue tree" around "tree" in "next to a blue tree, at night". Words in "-ing" end it
        ("a dog chasing cats" has two phrases). A run of more than three words is a list, or another
        language than English; the word then stands alone, as it does in quotation marks: '"tree"'.

        Raises:
            UnknownWordError: if the word is not in the prompt.
            TruncatedWordError: if the model read none of its places.
        """
        places, bare = self._read_places(query), query.strip()
        if len(bare) > 2 and bare[0] + bare[-1] in ('""', "''", "\u201c\u201d", "\u2018\u2019"):
            return _tokens_of(places)
        return _tokens_of([self._phrase_around(place) for place in places])

    def text_of(self, tokens: Collection[int]) -> str:
        """Return the words that have some of these tokens, as in the prompt: "blue tree"."""
        text, last = "", None
        for word in self.words:
            if not set(word.tokens).isdisjoint(tokens):
                if last is not None:
                    adjoin = word.number == last.number + 1
                    text += self.prompt[last.end : word.start] if adjoin else " and "
                text, last = text + word.text, word
        return text

    def _read_places(self, query: str) -> list[tuple[Word, ...]]:
        places = [place for place in self.matches(query) if all(word.tokens for word in place)]
        if not places:
            raise self._not_read(quoted(query))
        return places

    def _not_read(self, what: str) -> TruncatedWordError:
        return TruncatedWordError(
            f"{what} was not read by the model: it reads {self.room} tokens of a prompt; {MOVE_IT}"
        )

    def _phrase_around(self, place: tuple[Word, ...]) -> tuple[Word, ...]:
        words, first, last = self.words, place[0].number, place[-1].number
        if is_content(place[0].text):
            while self._joined(first - 1) and describes(words[first - 1].text):
                first -= 1
        if describes(place[-1].text):
            while self._joined(last) and describes(words[last + 1].text):
                last += 1
        return words[first : last + 1] if last - first < LONGEST_PHRASE else place

    def _joined(self, number: int) -> bool:
        """Tell whether only spaces or a hyphen stand between a word and the next one."""
        if not 0 <= number < len(self.words) - 1:
            return False
        between = self.prompt[self.words[number].end : self.words[number + 1].start]
        return between.strip(" \t") in ("", "-")


def _tokens_of(places: Sequence[tuple[Word, ...]]) -> tuple[int, ...]:
    return tuple(sorted({t for place in places for word in place for t in word.tokens}))
