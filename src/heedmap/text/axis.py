"""Tables of words on the K axis of a model: padding, parts of the axis, several encoders."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from heedmap.text.words import Token, TokenTable, Word

_PADDING = Token(
    0,
    0,
    "<pad>",
    0,
    0,
    "pad",
)


def arrange(table: TokenTable, places: Sequence[int | None]) -> TokenTable:
    """Return the table of an axis with these positions of the table's, ascending; None for padding.

    The tokens of other positions are missing.
    """
    tokens: list[Token] = []
    numbers: dict[int, int] = {}
    for number, place in enumerate(places):
        token = _PADDING
        if place is not None:
            token = table.tokens[place]
            numbers[place] = number
        if token.position != number:
            token = replace(token, position=number)
        tokens.append(token)
    words: list[Word] = []
    for word in table.words:
        positions = tuple(numbers[place] for place in word.tokens if place in numbers)
        missing = word.missing + len(word.tokens) - len(positions)
        words.append(replace(word, tokens=positions, missing=missing))
    return TokenTable(
        prompt=table.prompt,
        limit=table.limit + len(numbers) - len(table.tokens),
        missing=table.missing + len({*table.positions()} - {*numbers}),
        tokens=tuple(tokens),
        words=tuple(words),
    )


def padded(table: TokenTable, count: int, *, in_front: bool = False) -> TokenTable:
    """Return the table of a prompt, padded behind it or in front to `count` tokens."""
    places = list(range(len(table.tokens)))
    padding = [None] * (count - len(places))
    if in_front:
        return arrange(table, padding + places)
    return arrange(table, places + padding)


def concatenate(tables: Sequence[TokenTable]) -> TokenTable:
    """Return the table of a prompt that several encoders read, one after another on the K axis.

    A word has its tokens in all of them. It is past the limit if it is past each encoder's. Words
    that one encoder reads as one (emoji) are one word.
    """
    if len(tables) == 1:
        return tables[0]
    prompt = tables[0].prompt
    tokens: list[Token] = []
    words: list[Word] = []
    for table in tables:
        first = len(tokens)
        moved = arrange(table, [*[None] * first, *range(len(table.tokens))])
        tokens += moved.tokens[first:]
        words += moved.words
    groups: list[list[Word]] = []
    end = 0
    for word in sorted(words, key=lambda word: (word.start, word.end)):
        if word.start >= end:
            groups.append([])
        groups[-1].append(word)
        end = max(end, word.end)
    joined: list[Word] = []
    for group in groups:
        start = group[0].start
        end = max(word.end for word in group)
        positions = chain.from_iterable(word.tokens for word in group)
        joined.append(
            Word(
                number=len(joined),
                text=prompt[start:end],
                start=start,
                end=end,
                tokens=tuple(sorted(positions)),
                missing=min(word.missing for word in group),
            )
        )
    return TokenTable(
        prompt=prompt,
        limit=sum(table.limit for table in tables),
        missing=min(table.missing for table in tables),
        tokens=tuple(tokens),
        words=tuple(joined),
        parts=tuple(len(table.tokens) for table in tables),
    )


def separate(table: TokenTable) -> list[TokenTable]:
    """Return the table of each encoder of a prompt, on a K axis of its own, with all the words."""
    return [arrange(table, places) for places in table.encoder_positions]
