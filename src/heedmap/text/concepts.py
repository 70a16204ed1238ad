"""Concepts: words and phrases that are looked for in a picture, whether or not its prompt has them.

They are read in one text, so that they compete for each place as the words of a prompt do, and with
these; what was recorded of them is told by a table of their own, in which each concept is one word.
"""

from collections.abc import Sequence
from itertools import accumulate

from heedmap import checks
from heedmap.errors import ArgumentError, plural, quoted
from heedmap.io.values import MAX_CONCEPTS, MAX_PROMPT
from heedmap.text.prompts import word_keys
from heedmap.text.weights import parse_weights
from heedmap.text.words import Token, TokenTable, Word

JOINT = " and "
"""What stands between two concepts where they are read, and between the last and the prompt: truer
than a comma, beside exact masks."""
BETWEEN = ", "
"""What stands between them where they are told."""


def checked_concepts(given: object) -> tuple[str, ...]:
    """The concepts of a list, without spaces around them.

    Raises:
        ArgumentError: if it is no list of different words or phrases, or holds too many.
    """
    found = checks.in_order(given)
    if found is None or not all(map(checks.is_text, found)):
        raise ArgumentError(
            f"concepts is {quoted(given if found is None else found)}: expected a list of words "
            "or phrases, such as ['sky', 'green grass']"
        )
    if len(found) > MAX_CONCEPTS:
        raise ArgumentError(f"concepts has {len(found)} words: expected at most {MAX_CONCEPTS}")
    concepts: dict[tuple[str, ...], str] = {}
    for one in found:
        concept = checks.text("a concept", one, most=MAX_PROMPT // MAX_CONCEPTS).strip()
        keys = word_keys(concept)
        if not keys:
            raise ArgumentError(
                f"the concept {quoted(one)} has no word: expected one to look for, such as 'sky'"
            )
        if _is_weighted(concept):
            raise ArgumentError(
                f"the concept {quoted(concept)} has a weight: expected plain words, since a "
                "concept draws nothing that could be weighted; leave the bracket out"
            )
        if keys in concepts:
            raise ArgumentError(
                f"the concept {quoted(concept)} is asked for twice: expected each once"
            )
        concepts[keys] = concept
    return tuple(concepts.values())


def _is_weighted(concept: str) -> bool:
    """Whether it is written as a weight, well or badly."""
    try:
        return bool(parse_weights(concept).spans)
    except ArgumentError:
        return True


def asked_text(concepts: Sequence[str], prompt: str = "") -> str:
    """The text in which the concepts of a picture are read: they, and then its prompt.

    The prompt's own words compete with them so, and whatever is too long for the encoder is cut
    off behind the concepts.
    """
    text = JOINT.join(concepts)
    return JOINT.join(filter(None, (text, prompt[: MAX_PROMPT - len(text) - len(JOINT)])))


def concept_table(concepts: Sequence[str]) -> TokenTable:
    """The table of what is recorded of concepts: each is one word and one token."""
    tokens: list[Token] = []
    words: list[Word] = []
    spans = _spans(concepts, BETWEEN)
    for number, (concept, (start, end)) in enumerate(zip(concepts, spans, strict=True)):
        tokens.append(Token(number, 0, concept, start, end, "text"))
        words.append(Word(number, concept, start, end, (number,), 0))
    return TokenTable(BETWEEN.join(concepts), len(tokens), 0, tuple(tokens), tuple(words))


def concept_places(concepts: Sequence[str], read: TokenTable) -> tuple[tuple[int, ...], ...]:
    """The positions of the tokens of each concept, wherever it stands in the text that was read.

    Args:
        concepts: as `checked_concepts` gives them.
        read: the table of their `asked_text`.

    Raises:
        ArgumentError: if some of a concept is past the encoder's length.
    """
    spans = _spans(concepts, JOINT)
    found: list[tuple[int, ...]] = []
    for concept, (start, end) in zip(concepts, spans, strict=True):
        own = {t.position for t in read.tokens if t.kind == "text" and start <= t.start < end}
        if not own or any(word.missing for word in read.words if start <= word.start < end):
            raise ArgumentError(
                f"the concept {quoted(concept)} is past the {plural(read.room, 'token')} that the "
                "model reads of all concepts together: expected fewer or shorter ones"
            )
        for place in read.matches(concept):
            if place[0].start >= spans[-1][1]:  # in the prompt behind them
                own.update(position for word in place for position in word.tokens)
        found.append(tuple(sorted(own)))
    return tuple(found)


def _spans(concepts: Sequence[str], between: str) -> list[tuple[int, int]]:
    """The first character of each concept in a text of all, and one past its last."""
    starts = accumulate((len(one) + len(between) for one in concepts), initial=0)
    return [(start, start + len(one)) for start, one in zip(starts, concepts, strict=False)]
