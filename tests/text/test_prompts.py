"""The words of a text, which words name things, and which a model was not taught."""

import unicodedata

import pytest
from hypothesis import given
from making import PROMPTS

from heedmap.backends import loading
from heedmap.text.prompts import (
    describes,
    fold,
    is_content,
    split_words,
    untaught,
)


def texts(prompt: str) -> list[str]:
    return [prompt[start:end] for start, end in split_words(prompt)]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a red house, next to (a) tree.", ["a", "red", "house", "next", "to", "a", "tree"]),
        ("don't dog’s snow-covered", ["don't", "dog’s", "snow-covered"]),
        ("f/1.8, 10,000 1.5. v1.5 2,3, cat.dog 8k", "f 1.8 10,000 1.5 v1.5 2,3 cat dog 8k"),
        ("<my-cat> <cat_toy>, <x>_1 a<b a < b", "<my-cat> <cat_toy> <x>_1 a b a b"),
        ("<*> of <*>_1, <**>", ["<*>", "of", "<*>_1", "<**>"]),
        ("👩‍👩‍👧👍🏽🇩🇪🇫🇷", ["👩‍👩‍👧", "👍🏽", "🇩🇪", "🇫🇷"]),
        ("❤️❤ 🏴‍☠️ 1️⃣ ©️ © → ★", ["❤️", "❤", "🏴‍☠️", "1️⃣", "©️", "★"]),
        ("한국 고양이, हिन्दी में แมว", ["한국", "고양이", "हिन्दी", "में", "แมว"]),
        (
            "re\u00adsume \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            ["re\u00adsume", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"],
        ),
        ("<x>_12 <x>__1 <a\u200bb> <a<b>", ["<x>_12", "<x>", "1", "a", "b", "a", "<b>"]),
        # Marks and joiners go on with a word, and begin none.
        ("\u0301cat a \u0301b cat\ufe0fs", ["cat", "a", "b", "cat\ufe0fs"]),
        # With all that belongs to it: a tone alone, keycaps with their selector and without.
        ("👍🏽🏽 🏽 ❤️‍🔥 🐱‍ 🇩🇪🇫", ["👍🏽", "🏽", "🏽", "❤️‍🔥", "🐱", "🇩🇪", "🇫"]),
        (" \n\t ", []),
    ],
)
def test_a_prompt_is_split_into_words(prompt, expected):
    assert texts(prompt) == (expected.split() if isinstance(expected, str) else expected)


@given(PROMPTS)
def test_spans_of_words_are_in_order_within_the_text(prompt):
    spans = split_words(prompt)
    flat = [0, *(edge for span in spans for edge in span), len(prompt)]
    assert flat == sorted(flat)
    covered = {index for start, end in spans for index in range(start, end)}
    for start, end in spans:
        word = prompt[start:end]
        assert word and not word[0].isspace() and not word[-1].isspace()
    for index, char in enumerate(prompt):
        if unicodedata.category(char) in ("Lu", "Ll", "Nd"):
            assert index in covered


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("House", "house"),
        ("ﬁsh", "fish"),  # a ligature
        ("\uff48\uff4f\uff55\uff53\uff45", "house"),  # wide letters
        ("don’t", "don't"),
    ],
)
def test_spellings_of_one_word_are_folded_to_one(one, other):
    assert fold(one) == fold(other)


@pytest.mark.parametrize("others", [("cat", "cats"), ("a", "á"), ("1.5", "15"), ("猫", "犬")])
def test_different_words_stay_different(others):
    assert fold(others[0]) != fold(others[1])


def test_articles_prepositions_and_the_like_are_no_content():
    sentence = "the cat and a dog of an old man are in the house with its door at night"
    content = [word for word in sentence.split() if is_content(word)]
    assert content == ["cat", "dog", "old", "man", "house", "door", "night"]
    assert is_content("Häuser") and is_content("猫") and not is_content("THE")


def test_verbs_and_places_end_a_phrase_where_content_may_go_on():
    # A word may have content without standing in a phrase: "chasing" acts, and names nothing.
    assert is_content("chasing") and not describes("chasing")
    assert describes("red") and describes("house") and not describes("the")
    assert not is_content("next") and not describes("next")  # of "next to"
    for known in ("left", "two", "Front", "holds"):
        assert is_content(known) and not describes(known)


# --- words that a model was not taught --------------------------------------------------------

KNOWN = {"a", "red", "house", "next", "to", "Café", "snow", "covered"}


@pytest.mark.parametrize(
    ("text", "strange"),
    [
        ("a cafe\u0301", ()),  # another Unicode form
        ("a cafe", ("cafe",)),
        ("a \uff52\uff45\uff44 hou\u017fe", ("\uff52\uff45\uff44", "hou\u017fe")),  # wide, long s
        ("<my-cat> house", ()),
    ],
)
def test_words_outside_the_vocabulary_are_found(text: str, strange: tuple[str, ...]):
    assert untaught([text], KNOWN) == strange


def test_the_vocabulary_agrees_with_the_tokenizer():
    """A word is taught exactly where it has the tokens of one that is."""
    tokenizer = loading.tokenizer()
    spelled = ("RED", "\uff52\uff45\uff44", "re\u00add", "balloon\u017f", "balloons")

    def token_ids(word: str) -> list[int]:
        return tokenizer(word)["input_ids"]

    taught = ("red", "balloons")
    for word in spelled:
        assert (untaught([word], taught) == ()) == (token_ids(word) in [*map(token_ids, taught)]), (
            ascii(word)
        )
