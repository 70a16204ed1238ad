"""Words of a prompt and their tokens, tied by the characters of the prompt.

A tokenizer gives the characters of each token, `split_units` those of each word. A token belongs to
the word whose characters it overlaps. In a text without spaces (Chinese, Japanese, Thai) the words
are the tokenizer's own units: the shortest whole characters that share no token with others.

Positions count on the `K` axis: the tokens of the encoded text, specials included. The types of a
table are also its schema in files.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Annotated, Any

from heedmap.checks import as_ordered_list, check_int, check_text
from heedmap.errors import (
    ArgumentError,
    ModelError,
    TruncatedWordError,
    UnknownWordError,
    join_words,
    nearest,
    plural,
    quoted,
)
from heedmap.io.schemas import (
    MAX_CONCEPTS,
    MAX_PROMPT,
    MAX_TOKENS,
    TOKENS_AT_MOST,
    WORDS_AT_MOST,
    Small,
    Text,
    TokenKind,
)
from heedmap.text.prompts import (
    describes,
    fold,
    is_content,
    is_unspaced,
    split_units,
    split_words,
    word_keys,
)

LABELS: dict[str, str] = {
    "start": "<start>",
    "end": "<end>",
    "pad": "<pad>",
    "image": "<image>",
}
LONGEST_PHRASE = 3  # words; a longer run without a joint is a list, or another language
MOVE_IT = "shorten the prompt, or move the word towards its start"  # advice of errors
_NOT_SET = 2**16  # transformers writes 1e30 where a tokenizer has no limit
_CLIP_LIMIT = 77
_JOINT = " and "  # between two concepts, and before the prompt; gives truer maps than a comma


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
        kind: "text", or the kind of special token; "image" stands for the image's keys.
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
            tokens.append(Token(number, 0, text, start, end, "text"))
            words.append(Word(number, text, start, end, (number,), 0))
            start = end + len(separator)
        prompt = separator.join(word.text for word in words)
        return cls(prompt, len(tokens), 0, tuple(tokens), tuple(words))

    def __repr__(self) -> str:
        words, tokens = (
            plural(len(self.words), "word"),
            plural(len(self.tokens), "token"),
        )
        return f"<TokenTable of {quoted(self.prompt)}: {words}, {tokens}>"

    @property
    def read_words(self) -> tuple[Word, ...]:
        """The words with at least one token that the model read."""
        return tuple(word for word in self.words if word.tokens)

    @property
    def room(self) -> int:
        """The number of tokens of a prompt that the model reads, without specials (75 for CLIP).

        Of several encoders it is that of the longest.
        """
        return max(most for _, most in self.loads)

    @property
    def loads(self) -> tuple[tuple[int, int], ...]:
        """The number of the prompt's tokens and the room for tokens, of each text encoder."""
        if not self.parts:  # padding need not fill the room
            kinds = [token.kind for token in self.tokens]
            around = kinds.count("start") + kinds.count("end")
            return ((kinds.count("text"), self.limit - around),)
        ends = [*accumulate(self.parts)]
        parts = [
            self.tokens[end - size : end]
            for end, size in zip(ends, self.parts, strict=True)
        ]
        # An encoder that is not loaded reads nothing, and no end.
        kinds = [
            each for part in parts if "end" in (each := [token.kind for token in part])
        ]
        texts = [each.count("text") for each in kinds]
        return tuple(
            (n, n + each.count("pad")) for n, each in zip(texts, kinds, strict=True)
        )

    def of_encoder(self, number: int) -> "TokenTable":
        """Return the table whose words have their tokens in one of several encoders alone.

        Raises:
            UnknownWordError: if there is no such encoder, or it read no word; they are counted
                from 0.
        """
        number = check_int("the encoder", number)
        if not 0 <= number < len(self.parts):
            raise UnknownWordError(
                f"there is no encoder {quoted(number)} to select: the words of this prompt have "
                f"tokens in {plural(max(len(self.parts), 1), 'encoder')}, counted from 0"
            )
        end = sum(self.parts[: number + 1])
        places = range(end - self.parts[number], end)
        words = tuple(
            replace(
                word, tokens=tuple(place for place in word.tokens if place in places)
            )
            for word in self.words
        )
        if any(one.tokens for one in self.words) and not any(
            one.tokens for one in words
        ):
            raise UnknownWordError(
                f"no word of the prompt has tokens in encoder {number}: the pipeline runs without "
                "that encoder, such as Stable Diffusion 3 without T5"
            )
        return replace(self, words=words)

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
        around = [
            self._phrase_around((word,))
            for word in self.read_words
            if describes(word.text) or is_unspaced(word.text)
        ]
        phrases = [tuple(word for word in phrase if word.tokens) for phrase in around]
        return tuple(dict.fromkeys(phrases))

    def positions(self, *kinds: TokenKind) -> tuple[int, ...]:
        """Return the positions on the `K` axis of the tokens of these kinds (default: "text")."""
        return tuple(t.position for t in self.tokens if t.kind in (kinds or ("text",)))

    def at(self, number: int) -> Word:
        """Return the word with this number, from 0; negative numbers count from the end.

        Raises:
            UnknownWordError: if there is no such word.
        """
        number, count = check_int("the word number", number), len(self.words)
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

        In a text without spaces (Chinese, Japanese, Thai) a word is found by its characters. Where
        nothing else fits, it may be a part of what one token covers, and a Korean word the
        beginning of one with a particle, if there is only one such.

        Raises:
            UnknownWordError: if there is no such place, or it is a part of different words.
        """
        wanted = word_keys(check_text("the word", query, "house"))
        text, owners = self._search_text()
        whole: dict[tuple[Word, ...], None] = {}
        parts: dict[tuple[Word, ...], None] = {}
        for found in _pattern(wanted).finditer(text) if wanted else ():
            start, end = found.span()
            place = tuple(dict.fromkeys(filter(None, owners[start:end])))
            concept = any(" " in word.text for word in place)
            count = sum(len(word_keys(word.text)) for word in place)
            if concept and count != len(wanted):
                continue
            # A word begins where the character before it is of no word or of another one.
            is_whole = (
                owners[start - 1] is not owners[start]
                and owners[end - 1] is not owners[end]
            )
            (whole if is_whole else parts)[place] = None
        names = list(dict.fromkeys(self.prompt[p[0].start : p[-1].end] for p in parts))
        if whole or len({*map(fold, names)}) == 1:
            return tuple(whole or parts)
        where = (
            "among the concepts" if self.of_concepts else f"in {quoted(self.prompt)}"
        )
        names = names or nearest(query, [word.text for word in self.words])
        near = [quoted(name) for name in names]
        expected = "the tokenizer knows no word of it"
        if near:
            expected = f"expected a word such as {join_words(near, 'or')}"
        raise UnknownWordError(f"{quoted(query)} is not {where}: {expected}")

    def _search_text(self) -> tuple[str, list[Word | None]]:
        """Return the folded words, with a space around each, and the word of each character.

        Words of a text without spaces adjoin there as in the prompt.
        """
        starts = {start for start, _ in split_words(self.prompt)}
        text = ""
        owners: list[Word | None] = []
        end = -1
        for word in self.words:
            for number, key in enumerate(word_keys(word.text)):
                if number or word.start != end or word.start in starts:
                    text += " "
                    owners.append(None)
                text += key
                owners += [word] * len(key)
            end = word.end
        return f"{text} ", [*owners, None]

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
        text = self.prompt[place[0].start : place[-1].end]
        return text if is_unspaced(query.strip()) else query.strip()

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
        if len(bare) > 2 and bare[0] + bare[-1] in (
            '""',
            "''",
            "\u201c\u201d",
            "\u2018\u2019",
        ):
            return _tokens_of(places)
        return _tokens_of([self._phrase_around(place) for place in places])

    def text_of(self, tokens: Collection[int]) -> str:
        """Return the words that have some of these tokens, as in the prompt: "blue tree"."""
        words = [word for word in self.words if not set(word.tokens).isdisjoint(tokens)]
        text = words[0].text if words else ""
        for last, word in pairwise(words):
            adjoin = word.number == last.number + 1
            text += (
                self.prompt[last.end : word.start] if adjoin else " and "
            ) + word.text
        return text

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

    def _phrase_around(self, place: tuple[Word, ...]) -> tuple[Word, ...]:
        words, first, last = self.words, place[0].number, place[-1].number
        if is_content(place[0].text) and not is_unspaced(place[0].text):
            while self._joined(first - 1) and describes(words[first - 1].text):
                first -= 1
        if describes(place[-1].text):
            while self._joined(last) and describes(words[last + 1].text):
                last += 1
        return words[first : last + 1] if last - first < LONGEST_PHRASE else place

    def _joined(self, number: int) -> bool:
        """Return whether only spaces or a hyphen stand between a word and the next one."""
        if not 0 <= number < len(self.words) - 1:
            return False
        gap = self.prompt[self.words[number].end : self.words[number + 1].start]
        return gap.strip(" \t") in ("", "-")


def _pattern(wanted: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of some folded words in a table's search text."""
    before = "" if is_unspaced(wanted[0]) else "(?<= )"
    is_korean = "\uac00" <= wanted[-1][-1] <= "\ud7a3"  # Hangul, as `fold` composes it
    after = "" if is_korean or is_unspaced(wanted[-1]) else "(?= )"
    return re.compile(before + re.escape(" ".join(wanted)) + after)


def _tokens_of(places: Sequence[tuple[Word, ...]]) -> tuple[int, ...]:
    return tuple(sorted({t for place in places for word in place for t in word.tokens}))


# --- tokenizing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text that a pipeline makes of a prompt, and the `(start, end)` of each character."""

    text: str
    origin: Sequence[tuple[int, int]]


def tokenize(
    prompt: str,
    tokenizer: Any,
    *,
    rewrite: Callable[[str], Rewritten | None] | None = None,
    limit: int | None = None,
    before: str = "",
) -> TokenTable:
    """Tokenize a prompt as the pipelines of diffusers do, and build its table.

    The place of a token decides its kind, not its id: Stable Diffusion 1 pads with the end token,
    Stable Diffusion 2 and SDXL's second encoder pad with "!", which a prompt may also contain.

    Args:
        prompt: one text; the empty text gives a table without words.
        tokenizer: a fast tokenizer of transformers; another one is a ModelError.
        rewrite: makes the text that is tokenized of the prompt; None for no change.
        limit: number of tokens that are read, specials included. Default: the tokenizer's own.
        before: an instruction that the pipeline puts before the prompt; its tokens are of the kind
            "start".
    """
    check_text("the prompt", prompt, most=MAX_PROMPT)
    _check_offsets(tokenizer)
    limit = int(tokenizer.model_max_length) if limit is None else limit
    if limit > _NOT_SET:
        limit = _CLIP_LIMIT
    if limit > MAX_TOKENS:
        raise ModelError(
            f"the tokenizer reads {limit} tokens of a prompt: expected at most {MAX_TOKENS}; load "
            "it with a smaller model_max_length"
        )
    rewritten = None if rewrite is None else rewrite(prompt)
    text = prompt if rewritten is None else rewritten.text
    (encoding,) = tokenizer(
        before + text, padding="max_length", max_length=limit, truncation=True
    ).encodings
    # The tokens past the limit stand in further parts.
    rows: list[tuple[tuple[int, int], int]] = [
        (offset, token)
        for part in (encoding, *encoding.overflowing)
        for offset, token, special in zip(
            part.offsets, part.ids, part.special_tokens_mask, strict=True
        )
        if not special
    ]
    rows.sort(key=itemgetter(0))
    cut = len(before)
    instruction = [token for (_, end), token in rows if end <= cut] if before else []
    rows = rows[len(instruction) :]
    offsets = [(max(start - cut, 0), end - cut) for (start, end), _ in rows]
    if rewritten is not None:
        offsets = [
            (rewritten.origin[a][0], rewritten.origin[max(a, b - 1)][1])
            for a, b in offsets
        ]
    spans = _whole_spans(prompt, offsets)

    starts, ends = _added(tokenizer)
    starts += instruction
    lead = len(starts)
    count = min(len(rows), max(0, limit - lead - len(ends)))
    expected = [*starts, *(token for _, token in rows[:count]), *ends]
    if encoding.ids[: len(expected)] != expected:
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} does not put {quoted(prompt)} first and the "
            "padding last: load it with padding_side='right' and truncation_side='right'"
        )
    tokens: list[Token] = []
    for position, token in enumerate(encoding.ids):
        if lead <= position < lead + count:
            start, end = spans[position - lead]
            tokens.append(Token(position, token, prompt[start:end], start, end, "text"))
        else:
            kind = (
                "start"
                if position < lead
                else "end"
                if position < len(expected)
                else "pad"
            )
            tokens.append(Token(position, token, LABELS[kind], 0, 0, kind))
    unknown = [
        span
        for span, (_, token) in zip(spans, rows, strict=True)
        if token == tokenizer.unk_token_id
    ]
    words = _words(prompt, spans, range(lead, lead + count), unknown)
    return TokenTable(prompt, len(tokens), len(rows) - count, tuple(tokens), words)


def tokenize_between(
    before: str,
    prompt: str,
    after: str,
    tokenizer: Any,
    *,
    limit: int,
    drop: int = 0,
    **options: Any,
) -> TokenTable:
    """Tokenize a prompt inside of a template for chats, and build its table.

    The template's tokens before the prompt are of the kind "start", those after it of "end".

    Args:
        before: the template's text before the prompt.
        prompt: one text.
        after: the template's text after the prompt.
        tokenizer: a fast tokenizer of transformers; another one is a ModelError.
        limit: number of tokens that are read, the template's included.
        drop: number of the first tokens that the model does not see, beyond the limit.
        options: of the tokenizer's call; "max_length" pads to the limit.
    """
    check_text("the prompt", prompt, most=MAX_PROMPT)
    _check_offsets(tokenizer)
    text, size = before + prompt + after, limit + drop
    (encoding,) = tokenizer(text, max_length=size, truncation=True, **options).encodings
    tokens: list[Token] = []
    offsets: list[tuple[int, int]] = []
    places: list[int] = []
    first, last = len(before), len(before) + len(prompt)
    for part in (encoding, *encoding.overflowing):  # the tokens past the limit
        for token, (start, end), visible in zip(
            part.ids, part.offsets, part.attention_mask, strict=True
        ):
            kind: TokenKind = (
                "start" if end <= first else "end" if start >= last else "text"
            )
            if start == end == 0 and tokens and tokens[-1].kind in ("text", "end"):
                kind = "end"  # which the tokenizer adds
            kind = kind if visible else "pad"
            if kind == "text":
                offsets.append((max(start, first) - first, min(end, last) - first))
            if part is encoding:
                places += [len(tokens)] * (kind == "text")
                tokens.append(
                    Token(len(tokens), token, LABELS.get(kind, ""), 0, 0, kind)
                )
    spans = _whole_spans(prompt, offsets)
    for place, (start, end) in zip(places, spans, strict=False):
        tokens[place] = replace(
            tokens[place], text=prompt[start:end], start=start, end=end
        )
    axis = tuple(replace(one, position=one.position - drop) for one in tokens[drop:])
    words = _words(prompt, spans, [place - drop for place in places])
    return TokenTable(prompt, limit, len(spans) - len(places), axis, words)


def padded(table: TokenTable, count: int, *, in_front: bool = False) -> TokenTable:
    """Return the table of a prompt, padded behind it or in front to `count` tokens."""
    more = count - len(table.tokens)
    padding = [Token(0, 0, LABELS["pad"], 0, 0, "pad")] * more
    every = [*padding, *table.tokens] if in_front else [*table.tokens, *padding]
    tokens = tuple(replace(token, position=place) for place, token in enumerate(every))
    if not in_front:
        return replace(table, tokens=tokens)
    words = (
        replace(one, tokens=tuple(t + more for t in one.tokens)) for one in table.words
    )
    return replace(table, tokens=tokens, words=tuple(words))


def _check_offsets(tokenizer: Any) -> None:
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} gives no character offsets, so words cannot "
            "be tied to tokens: load the model with its fast tokenizer"
        )


def _words(
    prompt: str,
    spans: Sequence[tuple[int, int]],
    places: Sequence[int],
    unknown: Sequence[tuple[int, int]] = (),
) -> tuple[Word, ...]:
    """Return the words of a prompt; its first tokens are at these places, others past the limit.

    `unknown` has the spans of the tokens that stand for what the tokenizer does not know.
    """
    count = len(places)
    return tuple(
        Word(
            number,
            prompt[start:end],
            start,
            end,
            tuple(places[index] for index in members if index < count),
            sum(index >= count for index in members),
        )
        for number, (start, end, members) in enumerate(_assign(prompt, spans, unknown))
    )


def _added(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer puts before each text and after it."""
    (encoding,) = tokenizer("a").encodings
    is_added = encoding.special_tokens_mask
    first, last = is_added.index(0), is_added[::-1].index(0)
    return encoding.ids[:first], encoding.ids[len(is_added) - last :]


def part_of(table: TokenTable, places: Sequence[int]) -> TokenTable:
    """Return the table of some positions of the K axis, ascending, which become the whole axis."""
    numbers = {place: number for number, place in enumerate(places)}
    words: list[Word] = []
    for word in table.words:
        tokens = tuple(numbers[place] for place in word.tokens if place in numbers)
        missing = word.missing + len(word.tokens) - len(tokens)
        words.append(replace(word, tokens=tokens, missing=missing))
    return replace(
        table,
        limit=len(places),
        missing=table.missing + len({*table.positions("text")} - {*places}),
        tokens=tuple(
            replace(table.tokens[place], position=n) for place, n in numbers.items()
        ),
        words=tuple(words),
    )


def concatenate(tables: Sequence[TokenTable]) -> TokenTable:
    """Return the table of a prompt that several encoders read, one after another on the K axis.

    A word has its tokens in all of them. It is past the limit if it is past each encoder's. Words
    that one encoder reads as one (emoji) are one word.
    """
    if len(tables) == 1:
        return tables[0]
    sizes = [len(table.tokens) for table in tables]
    starts = [*accumulate(sizes, initial=0)]
    tokens: list[Token] = []
    # By encoder the words, with their tokens on the whole axis.
    every: list[tuple[int, Word]] = []
    for number, (table, first) in enumerate(zip(tables, starts, strict=False)):
        tokens += [
            replace(token, position=token.position + first) for token in table.tokens
        ]
        for word in table.words:
            places = tuple(place + first for place in word.tokens)
            every.append((number, replace(word, tokens=places)))
    groups: list[list[tuple[int, Word]]] = []
    end = 0
    for number, word in sorted(every, key=lambda one: (one[1].start, one[1].end)):
        if not groups or word.start >= end:
            groups.append([])
        groups[-1].append((number, word))
        end = max(end, word.end)
    words: list[Word] = []
    for number, group in enumerate(groups):
        start, end = group[0][1].start, max(word.end for _, word in group)
        places = sorted(place for _, word in group for place in word.tokens)
        missing = min(
            sum(word.missing for of, word in group if of == encoder)
            for encoder in {of for of, _ in group}
        )
        prompt = tables[0].prompt
        words.append(
            Word(number, prompt[start:end], start, end, tuple(places), missing)
        )
    return TokenTable(
        prompt=tables[0].prompt,
        limit=sum(table.limit for table in tables),
        missing=min(table.missing for table in tables),
        tokens=tuple(tokens),
        words=tuple(words),
        parts=tuple(sizes),
    )


def separate(table: TokenTable) -> list[TokenTable]:
    """Return the table of each encoder of a prompt, on a K axis of its own, with all the words."""
    if not table.parts:
        return [table]
    tables: list[TokenTable] = []
    for end, size in zip(accumulate(table.parts), table.parts, strict=True):
        first, places = end - size, range(end - size, end)
        tokens = [
            replace(t, position=t.position - first) for t in table.tokens[first:end]
        ]
        words = [
            replace(
                word,
                tokens=tuple(place - first for place in word.tokens if place in places),
            )
            for word in table.words
        ]
        tables.append(
            TokenTable(table.prompt, size, table.missing, tuple(tokens), tuple(words))
        )
    return tables


def _whole_spans(
    prompt: str, offsets: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Trim spaces off the spans, and extend them over accents that normalization merged.

    A tokenizer composes "e" + U+0301 first, and its offsets then cover the "e" alone. The
    characters after a span up to the next token or space belong to it.
    """
    spans: list[tuple[int, int]] = []
    following = group = len(prompt)
    for start, end in reversed(list(offsets)):
        if start != group:
            following, group = group, start
        while end < following and not prompt[end].isspace():
            end += 1
        while start < end and prompt[start].isspace():
            start += 1
        while start < end and prompt[end - 1].isspace():
            end -= 1
        spans.append((start, end))
    return spans[::-1]


def _assign(
    prompt: str, spans: Sequence[tuple[int, int]], unknown: Sequence[tuple[int, int]]
) -> list[tuple[int, int, list[int]]]:
    """Give each token to the first word it overlaps: `(start, end, tokens)` of each word.

    CLIP has tokens for several emoji: a word without a token of its own joins the word that has
    its token. Characters of a text without spaces join where they share a token; those that share
    an unknown one are left out, since it tells nothing of them: T5 has one for a whole clause of
    Chinese. So is a word that no token overlaps, since the tokenizer dropped it.
    """
    lost = {at for start, end in unknown if end - start > 1 for at in range(start, end)}
    words = [
        (start, end)
        for start, end in split_units(prompt)
        if start not in lost or not is_unspaced(prompt[start:end])
    ]
    owners = {at: n for n, (start, end) in enumerate(words) for at in range(start, end)}
    members: list[list[int]] = [[] for _ in words]
    shared: dict[int, int] = {}  # by word, the first of the words that share its token
    for index, (start, end) in enumerate(spans):
        overlapped = [
            *dict.fromkeys(owners[at] for at in range(start, end) if at in owners)
        ]
        if overlapped:
            members[overlapped[0]].append(index)
        for number in overlapped[1:]:
            shared.setdefault(number, overlapped[0])
    joined: list[tuple[int, int, list[int]]] = []
    places: dict[int, int] = {}  # in `joined`, by word
    for number, (start, end) in enumerate(words):
        place = places.get(shared.get(number, -1))
        if place is not None and (
            not members[number] or is_unspaced(prompt[start:end])
        ):
            start, _, tokens = joined[place]
            joined[place] = (start, end, tokens + members[number])
            places[number] = place
        elif members[number]:
            places[number] = len(joined)
            joined.append((start, end, members[number]))
    return joined


def expanded(
    prompt: str, tokenizer: Any, expand: Callable[[str], str]
) -> Rewritten | None:
    """Expand the placeholders of textual inversion; return None if the prompt has none.

    `expand` makes several placeholders of one that has several vectors; all belong to one word.
    """
    whole = expand(prompt)
    if whole == prompt:
        return None
    placeholders = sorted(tokenizer.added_tokens_encoder, key=len, reverse=True)
    origin: list[tuple[int, int]] = []
    text, at = "", 0
    while at < len(prompt):
        piece = next((p for p in placeholders if prompt.startswith(p, at)), prompt[at])
        vectors = expand(piece)
        text += vectors
        origin += [(at, at + len(piece))] * len(vectors)
        at += len(piece)
    if text != whole:
        raise ModelError(
            f"the placeholders in {quoted(prompt)} cannot be tied to their vectors: expected names "
            "that do not contain each other; rename the embedding"
        )
    return Rewritten(text, origin)


# --- concepts: words to find in an image although the prompt need not hold them -------------------


def checked_concepts(concepts: object) -> tuple[str, ...]:
    """Return the concepts of a list, without spaces around them.

    ArgumentError if it is no list of different words or phrases, or holds too many.
    """
    texts = as_ordered_list(concepts)
    if texts is None or len(texts) > MAX_CONCEPTS:
        raise ArgumentError(
            f"concepts is {quoted(concepts)}: expected a list of at most {MAX_CONCEPTS} words or "
            "phrases, such as ['sky', 'green grass']"
        )
    different: dict[tuple[str, ...], str] = {}
    for text in texts:
        concept = check_text(
            "a concept", text, "sky", most=MAX_PROMPT // MAX_CONCEPTS
        ).strip()
        keys = word_keys(concept)
        wrong = "contains no word" if not keys else ""
        if keys in different:
            wrong = "is given twice"
        elif set("(:)") <= set(concept):
            wrong = "has a weight, which concepts cannot have"
        if wrong:
            raise ArgumentError(f"the concept {quoted(concept)} {wrong}")
        different[keys] = concept
    return tuple(different.values())


def asked_text(concepts: Sequence[str], prompt: str = "") -> str:
    """Join the concepts and the prompt to the text that the model reads.

    In one text they compete for each position as the words of a prompt do.
    """
    text = _JOINT.join(concepts)
    return _JOINT.join(
        filter(None, (text, prompt[: MAX_PROMPT - len(text) - len(_JOINT)]))
    )


def concept_places(
    concepts: Sequence[str], table: TokenTable
) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the tokens of each concept, in the concepts and in the prompt.

    `table` is that of their `asked_text`. ArgumentError if a concept is past the encoder's length.
    """
    starts = list(
        accumulate((len(concept) + len(_JOINT) for concept in concepts), initial=0)
    )
    places: list[tuple[int, ...]] = []
    for concept, start in zip(concepts, starts, strict=False):
        end = start + len(concept)
        positions = {
            t.position
            for t in table.tokens
            if t.kind == "text" and start <= t.start < end
        }
        if not positions or any(
            word.missing for word in table.words if start <= word.start < end
        ):
            raise ArgumentError(
                f"the concept {quoted(concept)} is past the {table.room} tokens that the model "
                "reads of all concepts together: expected fewer or shorter ones"
            )
        for words in table.matches(concept):
            if words[0].start >= starts[-1]:  # in the prompt
                positions.update(position for word in words for position in word.tokens)
        places.append(tuple(sorted(positions)))
    return tuple(places)
