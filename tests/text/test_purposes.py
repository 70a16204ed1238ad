"""What an edit is for: of sentences, and of every edit that the evaluation draws."""

from collections import Counter

import pytest

from evaluation import kinds
from heedmap.backends import loading
from heedmap.text.alignment import pair_words
from heedmap.text.purposes import purpose_of
from heedmap.text.tokenization import tokenize


@pytest.fixture(scope="module")
def tokenizer():
    return loading.tokenizer()


@pytest.mark.parametrize(
    ("source", "target", "purpose"),
    [
        ("a cat on grass", "a dog on grass", "swap"),
        ("a red cat", "a striped cat", "swap"),
        ("a red house", "a Blue house", "colour"),
        ("a house", "a red house", "colour"),
        ("a cat", "a big cat", "size"),
        (
            "a purple rocket in a meadow",
            "a purple rocket and a white balloon in a meadow",
            "addition",
        ),
        ("a cat and a dog", "a cat", "removal"),
        ("a cat", "cats", "addition"),
        ("butterflies", "a butterfly", "removal"),
        ("a cat in front of a house", "a cat behind a house", "relation"),
        ("a cat in front of a house", "a cat in front of a red house", "colour"),
        ("a cat in snow on a top", "a cat on snow on a top", "setting"),
        ("10 cats", "nine cats", "removal"),
        ("one cat", "a cat", None),
        ("a cat with a hat", "a cat without a hat", None),
        ("a cat left of a dog", "a cat right of a dog", "relation"),
        ("a cat and a dog", "a cat left of a dog", "relation"),
        ("a cat in the snow", "a cat under the stars", "setting"),
        ("a red house", "a light blue house", "colour"),
        ("a red house", "a reddish house", "colour"),
        ("a house", "a house with a light", "addition"),
        ("a tall tree", "the tallest tree", "size"),
        ("a cactus", "cacti", "addition"),
        ("a car of 1950", "a car of 2020", "swap"),
        ("a cat", "a cat against a wall", "addition"),
        ("a cat on a house", "a dog below a house", "setting"),
        ("a cat", "the cat", None),
    ],
)
def test_an_edit_has_its_purpose(tokenizer, source: str, target: str, purpose: str | None):
    tables = (tokenize(text, tokenizer) for text in (source, target))
    assert purpose_of(pair_words(*tables)) == purpose


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_evaluated_edits_have_their_purpose(tokenizer, kind: kinds.EditPurpose):
    found = Counter(
        purpose_of(pair_words(*(tokenize(text, tokenizer) for text in case.texts)))
        for case in kinds.cases(kind, 60)
    )
    assert found == {kind: 60}
