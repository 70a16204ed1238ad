"""Concepts: words to find in an image although the prompt need not hold them."""

from collections.abc import Sequence
from itertools import accumulate, chain

from heedmap.checks import as_ordered_list, check_text
from heedmap.errors import ArgumentError, quoted
from heedmap.io.schemas import MAX_CONCEPTS, MAX_PROMPT
from heedmap.text.prompts import word_keys
from heedmap.text.words import TokenTable

_JOINT = " and "  # between two concepts, and before the prompt; gives truer maps than a comma


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
        has_weight = set("(:)") <= set(concept)
        if not keys or keys in different or has_weight:
            raise ArgumentError(
                f"the concept {quoted(concept)} contains no word, is given twice, or has a weight: "
                "expected different words or phrases"
            )
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
        words = [word for word in table.words if start <= word.start < end]
        if not words or any(word.missing for word in words):
            raise ArgumentError(
                f"the concept {quoted(concept)} is past the {table.room} tokens that the model "
                "reads of all concepts together: expected fewer or shorter ones"
            )
        for match in table.matches(concept):
            if match[0].start >= starts[-1]:  # in the prompt
                words += match
        positions = chain.from_iterable(word.tokens for word in words)
        places.append(tuple(sorted(positions)))
    return tuple(places)
