"""A prompt without a word: what goes, what stays, and that it is read as what is left."""

import pytest
from making import letter_tokenizer, table_of

from heedmap.errors import UnknownWordError
from heedmap.text.tokenization import tokenize
from heedmap.text.weights import leave_out, parse_weights


def prompt_without(written: str, word: str) -> str:
    parsed = parse_weights(written)
    return leave_out(parsed, table_of(parsed.text), word)


@pytest.mark.parametrize(
    ("written", "word", "left"),
    [
        ("a red house next to a blue tree", "red house", "a next to a blue tree"),
        ("a red house next to a blue tree", "next to", "a red house a blue tree"),
        ("a cat, a cat, a Cat", "cat", "a , a , a"),
        ("a cat  and\na dog", "and", "a cat\na dog"),  # the spaces before it go, those after stay
        (" house ", "house", ""),
        # weights
        ("a (house,:2)cat", "house", "a ,cat"),  # the bracket ends where the next word begins
        ("a (red house:1.5) on grass", "house", "a (red:1.5) on grass"),
        ("a ((red house:2) car:-1) here", "red", "a ((house:2) car:-1) here"),
        ("a ((red:2) house:3) here", "red", "a (house:3) here"),
        (r"a cat \(cute\) here", "cute", r"a cat \(\) here"),
    ],
)
def test_a_word_is_removed_from_a_prompt(written, word, left):
    assert prompt_without(written, word) == left
    with pytest.raises(UnknownWordError):
        prompt_without("one (two:2) three", "one three")  # not side by side


def test_occurrences_past_the_limit_are_removed_too():
    prompt = "sea " * 80 + "and house, at sea and house"
    table = tokenize(prompt, letter_tokenizer())
    assert not table.words[-1].tokens
    left = leave_out(parse_weights(prompt), table, "house")
    assert left == "sea " * 80 + "and , at sea and"
