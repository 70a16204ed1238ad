"""What an edit is for: of sentences, and of every edit that the evaluation draws."""

from collections import Counter

import pytest

from evaluation import kinds
from heedmap.backends import loading
from heedmap.text.alignment import pair_words, purpose_of
from heedmap.text.words import tokenize


@pytest.fixture(scope="module")
def tokenizer():
    return loading.tokenizer()


@pytest.mark.parametrize(
    ("source", "target", "purpose"),
    [
        ("a cat on grass", "a dog on grass", "swap"),
        ("a red cat", "a blue dog", "swap"),
        ("a red cat", "a striped cat", "swap"),
        ("a striped cat", "a red cat", "swap"),
        ("a big cat", "a striped cat", "swap"),
        ("the cat", "striped cat", "swap"),
        ("a striped cat", "a big cat", "swap"),
        ("a red house", "a Blue house", "colour"),
        ("a house", "a red house", "colour"),
        ("a red house", "a house", "colour"),
        ("a small cat", "a big cat", "size"),
        ("a cat", "a big cat", "size"),
        ("a purple rocket in a meadow", "a purple rocket and a white balloon in a meadow",
         "addition"),
        ("a cat", "a cat with a hat", "addition"),
        ("a cat", "a cat next to a dog", "addition"),
        ("a cat", "a fluffy cat", "addition"),
        ("a cat and a dog", "a cat", "removal"),
        ("an orange cat", "a cat", "colour"),
        ("a cat", "an orange cat", "colour"),
        ("a woman in a red dress", "a woman in a blue dress", "colour"),
        ("a cat in the house", "a cat in the small house", "size"),
        ("two cats", "three cats", "addition"),
        ("a cat", "two cats in the snow", "addition"),
        ("three red balloons", "a balloon", "removal"),
        ("a cat", "cats", "addition"),
        ("a cat in the snow", "cats in the snow", "addition"),
        ("two foxes", "a fox", "removal"),
        ("butterflies", "a butterfly", "removal"),
        ("a cat in front of a house", "a cat behind a house", "relation"),
        ("a cat behind a house", "a cat in front of a house", "relation"),
        ("a cat on top of a house", "a cat under a house", "relation"),
        ("a cat in front of a house", "a cat in front of a tree", "swap"),
        ("a cat in front of a house", "a cat in front of a red house", "colour"),
        ("a cat in front of a house", "a cat", "removal"),
        ("a cat", "a cat in front of a house", "addition"),
        ("a cat in snow on a top", "a cat on snow on a top", "setting"),
        ("two red cats", "a red cat", "removal"),
        ("2 cats", "3 cats", "addition"),
        ("10 cats", "nine cats", "removal"),
        ("one cat", "a cat", None),
        ("the cat", "two cats", "addition"),
        ("an owl", "two owls", "addition"),
        ("an owl", "one owl", None),
        ("a cat with one ear", "a cat with 1 ear", None),
        ("a cat with a hat", "a cat without a hat", None),
        ("a cat in a meadow", "a cat in the meadow", None),
        ("a cat in the snow", "a cat in snow", None),
        ("a cat on my bed", "a cat on your bed", None),
        ("a cat in a meadow", "a dog in the meadow", "swap"),
        ("a cat in a meadow", "a cat on a meadow", "setting"),
        ("a cat left of a dog", "a cat right of a dog", "relation"),
        ("a cat left of a dog", "a cat to the right of a dog", "relation"),
        ("a cat above a dog", "a cat next to a dog", "relation"),
        ("a cat and a dog", "a cat left of a dog", "relation"),
        ("a cat in the snow", "a cat at night", "setting"),
        ("a cat in the snow", "a cat under the stars", "setting"),
        ("a cat", "a cat on the beach", "setting"),
        ("a cat on the beach", "a cat", "setting"),
        ("a red house", "a light blue house", "colour"),
        ("a dark red house", "a blue house", "colour"),
        ("a light house", "a dark house", "colour"),
        ("a red house", "a reddish house", "colour"),
        ("a house", "a house with a light", "addition"),
        ("a house and a tree", "a house, a light and a tree", "addition"),
        ("the biggest cat", "the smallest cat", "size"),
        ("a tall tree", "the tallest tree", "size"),
        ("a cactus", "cacti", "addition"),
        ("leaves", "a leaf", "removal"),
        ("a knife", "knives", "addition"),
        ("a snowman", "snowmen", "addition"),
        ("children", "a child", "removal"),
        ("ten cats", "eleven cats", "addition"),
        ("12 cats", "two cats", "removal"),
        ("a car of 1950", "a car of 2020", "swap"),
        ("a cat on a house", "a cat below a house", "relation"),
        ("a cat inside a house", "a cat outside a house", "relation"),
        ("a cat between trees", "a cat among trees", "relation"),
        ("a cat", "a cat against a wall", "addition"),
        ("a cat on a house", "a dog below a house", "setting"),
        ("a cat", "a cat", None),
        ("a cat", "a cat!", None),
        ("a cat", "the cat", None),
    ],
)  # fmt: skip
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
