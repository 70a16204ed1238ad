"""The words of a prompt and their tokens.

Positions count on the `K` axis: the tokens of the encoded text, specials included. The types of a
table are also its schema in files.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import Annotated

from heedmap.checks import check_int, check_text
from heedmap.errors import (
    TruncatedWordError,
    UnknownWordError,
    join_words,
    plural,
    quoted,
)
from heedmap.io.schemas import TOKENS_AT_MOST, WORDS_AT_MOST, Small, Text, TokenKind
from heedmap.text.prompts import describes, is_unspaced
from heedmap.text.search import find_places, phrase_around

MOVE_IT = "shorten the prompt, or move the word towards its start"  # advice of errors
_QUOTED = re.compile("""".+"|'.+'|\u201c.+\u201d|\u2018.+\u2019""")


@dataclass(frozen=True, slots=True)
class Token:
    """One position of the encoded text.

    Attributes:
        position: index on the `K` axis.
        id: the tokenizer's number for it.
        text: the characters of the prompt it covers; "<start>", "<end>", "<pad>" or "<image>" for
            the specials.
            Several tokens may cover the same characters: an emoji is often three.
        start: first character in the prompt (0 for the specials).
        end: one past the last character (0 for the specials).
        kind: "text", or the kind of special token; "image" for one of a reference image that the
            text encoder reads. In an explanation the last one stands for the image's keys.
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
    """The words and tokens of one prompt: `run.maps.tokens`.

        table.find("red house"), table.at(2).tokens, [token.text for token in table.tokens]

    Attributes:
        prompt: the text as given.
        limit: number of tokens that the model reads, specials included (77 for CLIP). It may be
            more than there are, where a prompt is padded to the longest of its batch alone.
        missing: number of tokens of the prompt past the limit.
        tokens: all positions of the encoded text, specials included; each token has a `position`
            on the `K` axis, `id`, `text`, `start`, `end` (characters of the prompt) and `kind`.
        words: all words of the prompt, with those past the limit; each word has a `number`, `text`,
            `start`, `end`, `tokens` (positions) and `missing` (tokens past the limit).
        parts: the number of positions of each text encoder, where several stand one after another
            on the `K` axis; empty for one.
    """

    prompt: Text
    limit: Small
    missing: Small
    tokens: Annotated[tuple[Token, ...], TOKENS_AT_MOST]
    words: Annotated[tuple[Word, ...], WORDS_AT_MOST]
    parts: Annotated[tuple[Small, ...], TOKENS_AT_MOST] = ()

    @classmethod
    def of_texts(cls, texts: Iterable[str], separator: str = ", ") -> "TokenTable":
        """Return a table whose words are texts, such as concepts, of one token each."""
        tokens: list[Token] = []
        words: list[Word] = []
        start = 0
        for number, text in enumerate(texts):
            end = start + len(text)
            token = Token(
                number,
                0,
                text,
                start,
                end,
                "text",
            )
            word = Word(
                number,
                text,
                start,
                end,
                (number,),
                0,
            )
            tokens.append(token)
            words.append(word)
            start = end + len(separator)
        prompt = separator.join(word.text for word in words)
        return cls(
            prompt,
            len(tokens),
            0,
            tuple(tokens),
            tuple(words),
        )

    def __repr__(self) -> str:
        return f"<TokenTable of {quoted(self.prompt)}>"

    @property
    def read_words(self) -> tuple[Word, ...]:
        """The words with at least one token that the model read."""
        return tuple(word for word in self.words if word.tokens)

    @property
    def room(self) -> int:
        """The number of tokens of a prompt that the model reads, without specials (75 for CLIP).

        Of several encoders it is that of the longest.
        """
        return max((most for _, most in self.loads), default=0)

    @property
    def loads(self) -> tuple[tuple[int, int], ...]:
        """The number of the prompt's tokens and the room for tokens, of each text encoder."""
        loads: list[tuple[int, int]] = []
        for places in self.encoder_positions:
            kinds = [self.tokens[place].kind for place in places]
            limit = (
                len(places) if self.parts else self.limit
            )  # padding need not fill it
            most = limit - kinds.count("start") - kinds.count("end")
            if kinds.count("pad") < len(kinds):  # an encoder that is loaded
                loads.append((kinds.count("text"), most))
        return tuple(loads)

    @property
    def encoder_positions(self) -> list[range]:
        """The positions of each text encoder on the K axis."""
        sizes = self.parts or (len(self.tokens),)
        return [
            range(end - size, end)
            for end, size in zip(accumulate(sizes), sizes, strict=True)
        ]

    def of_encoder(self, number: int) -> "TokenTable":
        """Return the table whose words have their tokens in one of several encoders alone.

        Raises:
            UnknownWordError: if there is no such encoder, or it read no word; they are counted
                from 0.
        """
        encoders = dict(enumerate(self.encoder_positions))
        places = encoders.get(check_int("the encoder", number), range(0))
        words: list[Word] = []
        for word in self.words:
            tokens = tuple(place for place in word.tokens if place in places)
            words.append(replace(word, tokens=tokens))
        table = replace(self, words=tuple(words))
        if not table.read_words:
            raise UnknownWordError(
                f"encoder {number} read no word of the prompt: expected one of {len(encoders)}, "
                "counted from 0, that the pipeline runs with (Stable Diffusion 3 may lack T5)"
            )
        return table

    @property
    def unread(self) -> str:
        """A sentence that names the words the model did not read; empty if it read all."""
        if not self.words and any(map(str.isalpha, self.prompt)):
            return f"the tokenizer knows no word of {quoted(self.prompt)}, so no word has a map"
        lost = [word for word in self.words if word.missing]
        if not lost:
            return ""
        names = [quoted(word.text) + " (in part)" * bool(word.tokens) for word in lost]
        return (
            f"the model reads {self.room} tokens of a prompt and does not read {join_words(names)} "
            f"of {quoted(self.prompt)}, from word {lost[0].number} on; {MOVE_IT}"
        )

    @property
    def of_concepts(self) -> bool:
        """True for a table of concepts: the encoder adds tokens to any other text."""
        single = all(word.tokens == (word.number,) for word in self.words)
        return single and 0 < len(self.words) == len(self.tokens)

    @property
    def phrases(self) -> tuple[tuple[Word, ...], ...]:
        """The phrases of the prompt (see `phrase`) in order, as the words that the model read.

        Words that name neither a thing nor a property are in none of them.
        """
        phrases: list[tuple[Word, ...]] = []
        for word in self.read_words:
            if describes(word.text) or is_unspaced(word.text):
                words = phrase_around(self.prompt, self.words, (word,))
                phrases.append(tuple(one for one in words if one.tokens))
        return tuple(dict.fromkeys(phrases))

    def positions(self, *kinds: TokenKind) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of these kinds (default: "text")."""
        return tuple(t.position for t in self.tokens if t.kind in (kinds or ("text",)))

    def at(self, number: int) -> Word:
        """Return the word with this number, from 0; negative numbers count from the end.

        Raises:
            UnknownWordError: if there is no such word.
        """
        number = check_int("the word number", number)
        count = len(self.words)
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
        is found as a whole. "cat#2" is the second place of "cat", unless the prompt has that text.

        In a text without spaces (Chinese, Japanese, Thai) a word is found by its characters. Where
        nothing else fits, it may be a part of what one token covers, and a Korean word the
        beginning of one with a particle, if there is only one such.

        Raises:
            UnknownWordError: if there is no such place, or it is a part of different words.
        """
        query = check_text("the word", query, "house")
        return tuple(find_places(self.prompt, self.words, query))

    def find(self, query: str) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of a word or phrase, ascending.

        Of several places all that were read count. A word that the limit cut gives the tokens that
        were read.

        Raises:
            UnknownWordError: if it is not in the prompt.
            TruncatedWordError: if the model read none of its places.
        """
        return _tokens_of(self._read_places(query))

    def name_of(self, query: str) -> str:
        """Return a word as it was asked for, or all characters of the tokens that hold it."""
        place = self.matches(query)[0]
        if not is_unspaced(query.strip()):
            return query.strip()
        return self.prompt[place[0].start : place[-1].end]

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
        places = self._read_places(query)
        if not _QUOTED.fullmatch(query.strip()):
            places = [phrase_around(self.prompt, self.words, place) for place in places]
        return _tokens_of(places)

    def text_of(self, tokens: Collection[int]) -> str:
        """Return the words that have some of these tokens, as in the prompt: "blue tree"."""
        texts: list[str] = []
        for has_tokens, group in groupby(
            self.words, lambda word: not set(word.tokens).isdisjoint(tokens)
        ):
            words = [*group]
            if has_tokens:
                texts.append(self.prompt[words[0].start : words[-1].end])
        return " and ".join(texts)

    def _read_places(self, query: str) -> list[tuple[Word, ...]]:
        places = [
            place for place in self.matches(query) if all(word.tokens for word in place)
        ]
        if not places:
            raise self._not_read(quoted(query))
        return places

    def _not_read(self, word: str) -> TruncatedWordError:
        return TruncatedWordError(
            f"{word} was not read by the model: it reads {self.room} tokens of a prompt; {MOVE_IT}"
        )


def _tokens_of(places: Sequence[tuple[Word, ...]]) -> tuple[int, ...]:
    return tuple(sorted({t for place in places for word in place for t in word.tokens}))
