"""Concepts: words and phrases whose maps are recorded although the prompt need not contain them.

The model reads them in one text with the prompt, so that they compete for each place as the words
of a prompt do. Their recording has its own table, in which each concept is one word.
"""

from collections.abc import Sequence
from itertools import accumulate

from heedmap import checks
from heedmap.errors import ArgumentError, quoted
from heedmap.io.schemas import MAX_CONCEPTS, MAX_PROMPT
from heedmap.text.prompts import word_keys
from heedmap.text.weights import parse_weights
from heedmap.text.words import TokenTable

JOINT = " and "
"""The text between two concepts, and before the prompt; gives truer maps than a comma."""
BETWEEN = ", "
"""The text between two concepts in their own table."""


def checked_concepts(concepts: object) -> tuple[str, ...]:
    """Return the concepts of a list, without spaces around them.

    Raises:
        ArgumentError: if it is no list of different words or phrases, or holds too many.
    """
    texts = checks.in_order(concepts)
    if texts is None or len(texts) > MAX_CONCEPTS or not all(map(checks.is_text, texts)):
        raise ArgumentError(
            f"concepts is {quoted(concepts)}: expected a list of at most {MAX_CONCEPTS} words or "
            "phrases, such as ['sky', 'green grass']"
        )
    different: dict[tuple[str, ...], str] = {}
    for one in texts:
        concept = checks.text("a concept", one, most=MAX_PROMPT // MAX_CONCEPTS).strip()
        keys = word_keys(concept)
        if not keys or keys in different or parse_weights(concept).spans:
            raise ArgumentError(
                f"the concept {quoted(concept)} is given twice, or has no word, or a weight: "
                "expected different words or phrases, such as 'sky'"
            )
        different[keys] = concept
    return tuple(different.values())


def asked_text(concepts: Sequence[str], prompt: str = "") -> str:
    """Return the text in which the model reads concepts: they come first, then the prompt."""
    text = JOINT.join(concepts)
    return JOINT.join(filter(None, (text, prompt[: MAX_PROMPT - len(text) - len(JOINT)])))


def concept_table(concepts: Sequence[str]) -> TokenTable:
    """Return the table of a recording of concepts: each is one word and one token."""
    return TokenTable.of_texts(concepts, BETWEEN)


def concept_places(concepts: Sequence[str], table: TokenTable) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the tokens of each concept, in the concepts and in the prompt.

    Args:
        concepts: the result of `checked_concepts`.
        table: the table of their `asked_text`.

    Raises:
        ArgumentError: if a concept is past the encoder's length.
    """
    starts = list(accumulate((len(one) + len(JOINT) for one in concepts), initial=0))
    places: list[tuple[int, ...]] = []
    for concept, start in zip(concepts, starts, strict=False):
        end = start + len(concept)
        positions = {
            t.position for t in table.tokens if t.kind == "text" and start <= t.start < end
        }
        if not positions or any(word.missing for word in table.words if start <= word.start < end):
            raise ArgumentError(
                f"the concept {quoted(concept)} is past the {table.room} tokens that the model "
                "reads of all concepts together: expected fewer or shorter ones"
            )
        for place in table.matches(concept):
            if place[0].start >= starts[-1]:  # in the prompt
                positions.update(position for word in place for position in word.tokens)
        places.append(tuple(sorted(positions)))
    return tuple(places)
