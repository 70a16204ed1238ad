"""Words and phrases found in a prompt."""

import pytest
from making import shared_tokenizer

from heedmap.errors import ArgumentError, TruncatedWordError, UnknownWordError
from heedmap.text.tokenization import tokenize

PROMPT = "A red house, a RED  tree; the cathedral 'house' and red\nhouse"


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("house", ["house", "house", "house"]),
        ("  'HOUSE'! ", ["house", "house", "house"]),
        ("red house", ["red house", "red house"]),
        ("house a red tree", ["house a RED tree"]),
    ],
)
def test_words_and_phrases_are_found_in_a_prompt(clip, query, places):
    table = tokenize(PROMPT, clip)
    found = table.matches(query)
    assert [" ".join(word.text for word in place) for place in found] == places
    assert table.find(query) == tuple(sorted(t for p in found for w in p for t in w.tokens))


@pytest.mark.parametrize(
    ("prompt", "query", "expected"),
    [
        ("a red house next to a blue tree", "tree", "blue tree"),
        ("a red house next to a blue tree", "house next", "red house next"),
        ("a red house, snow at night", "house", "red house"),  # a comma ends it
        ("a red\nhouse", "house", "house"),  # and so does a line
        ("a red house at a red tree", "red", "red house | red tree"),
        ("a man holding flowers", "holding", "man holding"),
        ("the red house holds snow", "house", "red house"),
        ("a red house", '"house"', "house"),
        ("a red house", '"house', "red house"),
    ],
)
def test_a_word_has_its_phrase(clip, prompt, query, expected):
    table = tokenize(prompt, clip)
    wanted = [t for part in expected.split(" | ") for t in table.find(part)]
    assert table.phrase(query) == tuple(sorted(wanted))


def test_tokens_have_their_text(clip):
    table = tokenize("a snow-covered Red  house at a red tree", clip)
    for query, said in (
        ("house", "snow-covered Red  house"),
        ("red", "snow-covered Red  house and red tree"),
        ("at", "at"),
    ):
        assert table.text_of(table.phrase(query)) == said
    assert table.text_of(()) == ""


def test_a_phrase_past_the_limit_has_only_its_read_words(clip):
    table = tokenize("a red house at a blue tree", shared_tokenizer(4))
    assert table.phrase("red") == table.find("red")  # its noun was not read
    with pytest.raises(TruncatedWordError):
        table.phrase("tree")


@pytest.mark.parametrize(
    ("query", "named"),
    [("cat", "cathedral"), ("house red", "house red"), ("!,", "'!,'")],
)
def test_an_unknown_word_is_named_with_one_like_it(clip, query, named):
    with pytest.raises(UnknownWordError, match=named):
        tokenize(PROMPT, clip).find(query)


def test_words_are_found_by_number(clip):
    table = tokenize(PROMPT, clip)
    assert table.at(2).text == table.at(-1).text == "house"
    with pytest.raises(UnknownWordError):
        table.at(12)
    with pytest.raises(ArgumentError, match="word"):
        table.find(2)  # pyright: ignore[reportArgumentType]


def test_words_past_the_limit_are_refused():
    table = tokenize("a red house and a blue tree, a red zebra", shared_tokenizer(8))
    assert table.find("red") == (2,)  # the second one was not read; the first was
    with pytest.raises(TruncatedWordError):
        table.find("zebra")
    with pytest.raises(TruncatedWordError):
        table.tokens_at(-1)
    assert table.at(-1).tokens == () and "'zebra'" in table.unread


def test_a_word_cut_by_the_limit_has_its_read_tokens():
    table = tokenize("a zygomorphic", shared_tokenizer(8))
    word = table.at(1)
    assert word.tokens == (2, 3, 4, 5, 6) == table.find("zygomorphic")
    assert word.missing == table.missing == 6
