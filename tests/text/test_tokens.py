"""Which characters of a prompt each token covers, and whose word it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import PROMPTS, build_tokenizer, shared_tokenizer

from heedmap.errors import ArgumentError, ModelError, UnknownWordError
from heedmap.text.prompts import split_units
from heedmap.text.tokenization import tokenize


def test_a_plain_prompt_has_its_table(clip):
    table = tokenize("A red  \n house,", clip)
    assert table.limit == len(table.tokens) == 77
    assert [t.position for t in table.tokens] == list(range(77))
    assert [t.id for t in table.tokens] == clip("A red  \n house,", padding="max_length").input_ids
    assert {t.kind for t in table.tokens[6:]} == {"pad"}
    assert [(t.kind, t.text) for t in table.tokens[:7]] == [
        ("start", "<start>"),
        ("text", "A"),
        ("text", "red"),
        ("text", "house"),
        ("text", ","),
        ("end", "<end>"),
        ("pad", "<pad>"),
    ]
    assert [(w.number, w.text, w.start, w.end, w.tokens) for w in table.words] == [
        (0, "A", 0, 1, (1,)),
        (1, "red", 2, 5, (2,)),
        (2, "house", 9, 14, (3,)),
    ]
    assert table.positions() == (1, 2, 3, 4)
    assert table.missing == 0 and table.read_words == table.words


def test_padding_is_known_by_place_not_by_id():
    # SD 2 and SDXL's second tokenizer pad with "!", which is also what a user types.
    table = tokenize("a cat !", build_tokenizer(12, pad_token="!"))
    padded = tokenize("a cat!!", build_tokenizer(12, pad_token="!"))
    assert table.tokens[5].id == 0 and table.tokens[5].kind == "pad"
    assert [t.kind for t in table.tokens] == ["start"] + ["text"] * 3 + ["end"] + ["pad"] * 7
    assert padded.tokens[3].text in ("!", "!!") and padded.tokens[3].kind == "text"


@pytest.mark.parametrize(
    ("prompt", "query"),
    [
        ("a 🐱 b", "🐱"),
        ("a \u1112\u1161\u11ab b", "한"),
        ("a İstanbul b", "İSTANBUL"),
        ("a हिन्दी b", "हिन्दी"),
    ],
)
def test_a_word_has_all_its_tokens(clip, prompt, query):
    table = tokenize(prompt, clip)
    (word,) = table.matches(query)[0]
    assert prompt.split(" ")[1] == word.text
    text = table.positions()
    assert word.tokens == table.find(query) == text[1:-1]  # all but the "a" and the "b"
    covered = {i for p in word.tokens for i in range(table.tokens[p].start, table.tokens[p].end)}
    assert covered == set(range(word.start, word.end))


def test_emoji_that_share_a_token_are_one_word(clip):
    table = tokenize("a 😂😂 😂", clip)
    assert [w.text for w in table.words] == ["a", "😂😂", "😂"]
    assert table.tokens[2].text == "😂😂" and table.find("😂😂") == (2,)
    assert len(table.matches("😂")) == 2
    assert table.find("😂") == table.positions()[1:]


@given(PROMPTS, st.sampled_from([2, 3, 8, 77]))
def test_each_token_belongs_to_at_most_one_word(prompt, limit):
    table = tokenize(prompt, shared_tokenizer(limit))
    assert len(table.tokens) == table.limit == limit
    owned = [position for word in table.words for position in word.tokens]
    assert len(owned) == len(set(owned))
    assert set(owned) <= set(table.positions())
    kinds = [t.kind for t in table.tokens]
    order = ["start", "text", "end", "pad"]
    assert kinds == sorted(kinds, key=order.index)
    assert kinds.count("start") == kinds.count("end") == 1
    edge = 0
    for number, word in enumerate(table.words):
        assert edge <= word.start < word.end <= len(prompt)
        assert word.number == number and word.text == prompt[word.start : word.end]
        assert list(word.tokens) == sorted(word.tokens)
        edge = word.end
        for position in word.tokens:
            token = table.tokens[position]
            assert token.start < word.end and word.start < token.end
            assert token.text == prompt[token.start : token.end]
    for word in table.words:
        assert any(word in place for place in table.matches(word.text))
    # No word of the prompt goes missing: CLIP drops nothing but spaces.
    spans = [(w.start, w.end) for w in table.words]
    for start, end in split_units(prompt):
        assert any(a <= start and end <= b for a, b in spans)


@pytest.mark.parametrize("prompt", ["", " \n", "!?"])
def test_a_prompt_without_words_has_special_tokens_only(clip, prompt):
    table = tokenize(prompt, clip)
    assert table.words == () and table.tokens[0].kind == "start"
    with pytest.raises(UnknownWordError):
        table.find("cat")


def test_tokenizers_may_pad_on_the_left_but_not_cut():
    table = tokenize("a red", build_tokenizer(6, padding_side="left"))
    assert [token.kind for token in table.tokens] == ["pad"] * 2 + ["start", "text", "text", "end"]
    with pytest.raises(ModelError, match="tokenizer"):
        tokenize("a red", build_tokenizer(6, truncation_side="left"))


@pytest.mark.parametrize("prompt", [None, "a \ud83d b", "a" * 100_001])
def test_prompts_that_are_refused(clip, prompt):
    with pytest.raises(ArgumentError, match="prompt"):
        tokenize(prompt, clip)


def test_tokenizers_that_are_refused():
    with pytest.raises(ModelError, match="tokenizer"):
        tokenize("a", object())  # no character offsets
    with pytest.raises(ModelError, match="model_max_length"):
        tokenize("a cat", build_tokenizer(5000))  # more tokens than a file may hold
