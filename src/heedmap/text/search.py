"""Words and phrases found among the words of a prompt. A place is its words, in order."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedmap.errors import UnknownWordError, join_words, nearest, plural, quoted
from heedmap.text.prompts import (
    describes,
    fold,
    is_content,
    is_unspaced,
    split_words,
    word_keys,
)

if TYPE_CHECKING:
    from heedmap.text.words import Word

Place = tuple["Word", ...]
LONGEST_PHRASE = 3  # words; a longer run without a joint is a list, or another language
NUMBERED = re.compile(r"(.+)#([0-9]{1,9})\W*")
"""A word and the number of its place: "cat#2"."""


def find_places(prompt: str, words: Sequence["Word"], query: str) -> list[Place]:
    """Return the places of a word or phrase, in order, as `TokenTable.matches` defines them.

    Raises:
        UnknownWordError: if there is no such place, or it is a part of different words.
    """
    match = NUMBERED.fullmatch(query)
    if match is None or query.strip().casefold() in prompt.casefold():
        return _find(prompt, words, query)
    name = match[1]
    number = int(match[2])
    places = _find(prompt, words, name)
    if not 0 < number <= len(places):
        raise UnknownWordError(
            f"{quoted(query)} is not in {quoted(prompt)}, which has {quoted(name)} "
            f"{plural(len(places), 'time')}: expected a number from 1 to {len(places)}"
        )
    return places[number - 1 : number]


def _find(prompt: str, words: Sequence["Word"], query: str) -> list[Place]:
    wanted = word_keys(query)
    text, owners = _search_text(prompt, words)
    whole: list[Place] = []
    parts: list[Place] = []
    for match in _pattern(wanted).finditer(text) if wanted else ():
        start, end = match.span()
        numbers = [number for number in owners[start:end] if number is not None]
        place = tuple(words[numbers[0] : numbers[-1] + 1])
        # A word begins where the character before it is of no word or of another one.
        begins = owners[start - 1] != owners[start]
        ends = owners[end - 1] != owners[end]
        if begins and ends:
            whole.append(place)
        else:
            parts.append(place)
    names = [prompt[place[0].start : place[-1].end] for place in parts]
    if whole or len({*map(fold, names)}) == 1:
        return list(dict.fromkeys(whole or parts))
    names = list(dict.fromkeys(names))
    names = names or nearest(query, [word.text for word in words])
    advice = ""
    if names:
        choice = join_words([quoted(name) for name in names], "or")
        advice = f": expected a word such as {choice}"
    raise UnknownWordError(f"{quoted(query)} is not in {quoted(prompt)}{advice}")


def _search_text(prompt: str, words: Sequence["Word"]) -> tuple[str, list[int | None]]:
    """Return the folded words, with a space around each, and the word of each character.

    Words of a text without spaces adjoin there as in the prompt. The words of a concept are joined
    by line breaks, which are its own.
    """
    starts = {start for start, _ in split_words(prompt)}
    text = ""
    owners: list[int | None] = []
    last = -1
    for number, word in enumerate(words):
        keys = word_keys(word.text)
        if " " in word.text:
            keys = ("\n".join(keys),)
        for part, key in enumerate(keys):
            if part or word.start != last or word.start in starts:
                text += " "
                owners.append(None)
            text += key
            owners += [number] * len(key)
        last = word.end
    return f"{text} ", [*owners, None]


def _pattern(wanted: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of some folded words in a search text."""
    pattern = "[ \n]".join(map(re.escape, wanted))
    if not is_unspaced(wanted[0]):
        pattern = f"(?<= ){pattern}"
    is_korean = "\uac00" <= wanted[-1][-1] <= "\ud7a3"  # Hangul, as `fold` composes it
    if not is_korean and not is_unspaced(wanted[-1]):
        pattern = f"{pattern}(?= )"
    return re.compile(pattern)


def phrase_around(prompt: str, words: Sequence["Word"], place: Place) -> Place:
    """Return the phrase around a place, as `TokenTable.phrase` defines it."""
    first = place[0].number
    last = place[-1].number
    text = place[0].text
    if is_content(text) and not is_unspaced(text):
        while _describes(prompt, words, first - 1, first):
            first -= 1
    if describes(place[-1].text):
        while _describes(prompt, words, last + 1, last):
            last += 1
    return tuple(words[first : last + 1]) if last - first < LONGEST_PHRASE else place


def _describes(
    prompt: str,
    words: Sequence["Word"],
    number: int,
    neighbour: int,
) -> bool:
    """Return whether a word may stand in a phrase with the word before or behind it.

    Only spaces or a hyphen may stand between the two.
    """
    if not 0 <= number < len(words):
        return False
    first = words[min(number, neighbour)]
    second = words[max(number, neighbour)]
    gap = prompt[first.end : second.start].strip(" \t")
    return gap in ("", "-") and describes(words[number].text)
