"""What is looked for beside a prompt: which words do, the text that is read, their table."""

import pytest
from making import letter_tokenizer

from heedmap.errors import ArgumentError, UnknownWordError
from heedmap.io.schemas import MAX_PROMPT
from heedmap.text.concepts import asked_text, checked_concepts, concept_places
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable


def test_concepts_are_different_words_or_phrases():
    assert checked_concepts([" sky ", "red house", "house"]) == ("sky", "red house", "house")
    assert checked_concepts(()) == () == checked_concepts(iter([]))
    assert checked_concepts(["a (big) cat"]) == ("a (big) cat",)  # a bracket without a weight


@pytest.mark.parametrize(
    "given",
    [
        "sky",
        ["sky", " !"],
        ["sky", "Sky "],
        ["(sky:1.5)"],
        [f"sky{n}" for n in range(101)],
    ],
)
def test_texts_that_are_no_concepts_are_refused(given):
    with pytest.raises(ArgumentError, match="concept"):
        checked_concepts(given)


def test_the_text_that_is_read_holds_all_concepts_and_then_the_prompt():
    assert asked_text(["sky", "red house"], "a cat") == "sky and red house and a cat"
    assert asked_text(["sky"]) == "sky"
    assert asked_text(["sky", "sea"], "x" * MAX_PROMPT) == "sky and sea and " + "x" * (
        MAX_PROMPT - 16
    )


def test_each_concept_is_one_word_of_the_table():
    table = TokenTable.of_texts(("sky", "red house", "house"))
    assert table.prompt == "sky, red house, house" and table.limit == 3 and not table.unread
    assert [(w.text, w.tokens) for w in table.words] == [
        ("sky", (0,)),
        ("red house", (1,)),
        ("house", (2,)),
    ]


def test_a_concept_is_found_as_a_whole():
    table = TokenTable.of_texts(("sky", "red house", "house"))
    assert table.find("house") == (2,) and table.find("Red House") == (1,)
    assert table.find("sky, red house") == (0, 1)
    for part in ("red", "sky red"):
        with pytest.raises(UnknownWordError):
            table.find(part)


def read_concepts(concepts, prompt, **more):
    return tokenize(asked_text(concepts, prompt), letter_tokenizer(), **more)


def test_a_concept_has_its_own_tokens_and_those_of_the_prompts_words():
    """Letters that are words of the tokenizer: the figures are counted by hand."""
    concepts = ("sea", "red house", "tree")
    table = read_concepts(concepts, "a red house at the sea, a house")
    texts = [token.text for token in table.tokens]
    places = concept_places(concepts, table)
    own_texts = ["".join(texts[position] for position in own) for own in places]
    assert own_texts == ["seasea", "redhouseredhouse", "tree"]
    starts = [{table.tokens[position].start for position in own} for own in places]
    words = [{word.start for word in table.words} & own for own in starts]
    # "sea and red house and tree and a red house at the sea, a house"
    assert words == [{0, 50}, {8, 12, 33, 37}, {22}]  # not the house that is not red


def test_a_concept_past_the_encoders_length_is_refused():
    concepts = ("house", "tree", "sea")
    whole = read_concepts(concepts, "")
    short = whole.positions("text")[-1] + 1  # the end token takes its place
    with pytest.raises(ArgumentError, match="sea"):
        concept_places(concepts, read_concepts(concepts, "", limit=short))
    # What is behind them may be cut.
    assert concept_places(concepts, read_concepts(concepts, "a cat", limit=short + 1))[2]
