"""Scripts without spaces, whose words are the tokenizer's own units; and Korean particles.

A character of Chinese, Japanese or Thai is three bytes of UTF-8: positions are counted by hand.
"""

from typing import Any

import pytest
from making import letter_t5, letter_tokenizer
from tokenizers import pre_tokenizers
from transformers import BertTokenizer, Qwen2Tokenizer, T5Tokenizer

from heedmap.errors import UnknownWordError
from heedmap.text.alignment import pair_words
from heedmap.text.axis import concatenate
from heedmap.text.token_mapping import token_shares
from heedmap.text.tokenization import tokenize
from heedmap.text.weights import parse_weights, token_weights
from heedmap.text.words import TokenTable

CAT = "一只小猫坐在草地上"
"""A kitten sits on the grass."""
RED_CAT = "一只红色的小猫坐在草地上"


def bytes_of(text: str) -> str:
    """The bytes of a text, as byte-level BPE writes them."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)[0][0]


def byte_pieces(*pieces: str) -> Qwen2Tokenizer:
    """A tokenizer of Qwen's class with these sequences of bytes as tokens."""
    merges = dict.fromkeys((piece[:n], piece[n]) for piece in pieces for n in range(1, len(piece)))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: n for n, piece in enumerate([*letters, *(a + b for a, b in merges)])}
    vocabulary["<|endoftext|>"] = len(vocabulary)
    pairs: Any = [*merges]
    return Qwen2Tokenizer(vocab=vocabulary, merges=pairs)


QWEN = byte_pieces(*map(bytes_of, ("一只", "小猫", "小狗", "红色", "草地")))


def clip(prompt: str) -> TokenTable:
    """Three bytes a character, behind a start token."""
    return tokenize(prompt, letter_tokenizer())


def qwen(prompt: str, tokenizer: Qwen2Tokenizer = QWEN) -> TokenTable:
    """Behind a template of 4 tokens."""
    return tokenize(prompt, tokenizer, before="say ", after="\n", limit=60, padding=False)


def t5(prompt: str) -> TokenTable:
    """Pieces of SentencePiece, as mT5's."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -9.0), ("▁一只", -2.0)]
    pieces += [(piece, -2.0) for piece in ("小猫", "草地上")]
    pieces += [(piece, -3.0) for piece in "坐在小猫红色的"]
    return tokenize(prompt, T5Tokenizer(vocab=pieces, extra_ids=0), limit=20)


def bert(prompt: str) -> TokenTable:
    """A token for each character, as in Chinese CLIP."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CAT]
    tokenizer = BertTokenizer(vocab={piece: n for n, piece in enumerate(pieces)})
    return tokenize(prompt, tokenizer, limit=20)


def both(prompt: str) -> TokenTable:
    """As HunyuanDiT reads a prompt."""
    return concatenate([bert(prompt), t5(prompt)])


def texts(table: TokenTable) -> list[str]:
    return [word.text for word in table.words]


# --- units ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "expected", "kitten"),
    [
        (clip, [*CAT], (7, 8, 9, 10, 11, 12)),
        (qwen, ["一只", "小猫", "坐", "在", "草地", "上"], (5,)),
        (t5, ["一只", "小猫", "坐", "在", "草地上"], (1,)),
        # What one encoder reads as one is one.
        (both, ["一只", "小猫", "坐", "在", "草地上"], (3, 4, 21)),
    ],
)
def test_words_are_the_tokenizers_own_units(read, expected, kitten):
    table = read(CAT)
    assert texts(table) == expected == [w.text for phrase in table.phrases for w in phrase]
    assert table.find("小猫") == kitten
    assert table.find(CAT) == table.positions()
    assert {p for word in table.words for p in word.tokens} == {*table.positions()}


def test_bytes_of_two_characters_in_one_token_are_one_unit():
    # 一只 is e4 b8 80, e5 8f aa; the token is b8 80 e5.
    table = qwen("一只猫", byte_pieces(bytes_of("一只")[1:4]))
    assert [(word.text, word.tokens) for word in table.words] == [
        ("一只", (4, 5, 6, 7)),
        ("猫", (8, 9, 10)),
    ]


def test_a_unit_has_all_marks_of_its_character():
    table = clip("ねこ、か\u3099red猫 犬😂")
    assert texts(table) == ["ね", "こ", "か\u3099", "red", "猫", "犬", "😂"]


# --- searches ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "prompt", "query", "place"),
    [
        (clip, "一只猫和狗、猫", "猫", ["猫", "猫"]),
        (clip, "ﾊﾟﾝ", "パン", ["ﾊﾟﾝ"]),
        # A part of a token, if it is nowhere whole.
        (qwen, "一只小猫", "猫", ["小猫"]),
        (qwen, "一只小猫坐", "只小", ["一只小猫"]),
        # A Korean word with its particle, if it is nowhere without.
        (clip, "잔디 위의 고양이가 앉아", "고양이", ["고양이가"]),
    ],
)
def test_words_are_found_by_their_characters(read, prompt, query, place):
    table = read(prompt)
    found = [prompt[words[0].start : words[-1].end] for words in table.matches(query)]
    assert found == place


@pytest.mark.parametrize(
    ("read", "prompt", "query", "named"),
    [
        (clip, "一大、小猫", "大小", "大"),  # not across punctuation
        (qwen, "小猫和小狗", "小", "'小猫' or '小狗'"),
        (clip, "고양이가 고양이를", "고양이", "'고양이가' or '고양이를'"),
    ],
)
def test_other_texts_are_refused_with_the_words_there_are(read, prompt, query, named):
    with pytest.raises(UnknownWordError, match=named):
        read(prompt).find(query)


def test_a_map_is_named_by_all_that_its_tokens_cover():
    table = qwen(CAT)
    assert table.name_of("猫") == "小猫"
    assert table.name_of("在草") == "在草地"
    assert clip("고양이가").name_of(" 고양이 ") == "고양이"


# --- weights ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        (clip, "一只(小(猫:2):0.5)", {7: 0.5, 8: 0.5, 9: 0.5, 10: 1, 11: 1, 12: 1}),
        (t5, "一只(小猫:1.5)坐在草地上", {1: 1.5}),
    ],
)
def test_weights_are_of_the_characters_in_the_brackets(read, written, expected):
    parsed = parse_weights(written)
    assert token_weights(parsed.spans, read(parsed.text)) == expected


# --- alignment --------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [clip, qwen, t5])
def test_words_that_were_added_leave_the_others_their_own_source(read):
    source = read(CAT)
    target = read(RED_CAT)
    alignment = pair_words(source, target)
    assert alignment.kind == "refine"
    assert "".join(b.text for a, b in alignment.changes if b and not a) == "红色的"
    new = {*target.find("红色的")}
    shares = token_shares(source, target, alignment)
    taken = {n: w for w, n, _ in shares}
    for n in target.positions():
        if n in new:
            assert n not in taken
        else:
            before = source.tokens[taken[n]]
            after = target.tokens[n]
            assert (before.id, before.text) == (after.id, after.text)
    assert {share for _, _, share in shares} == {1.0}


def test_a_word_that_was_swapped_takes_the_place_of_the_other():
    source = clip("一只猫坐")
    target = clip("一只狗坐")
    alignment = pair_words(source, target)
    assert alignment.kind == "replace"
    assert [(a.text, b.text) for a, b in alignment.changes if a and b] == [("猫", "狗")]
    assert token_shares(source, target, alignment) == [(n, n, 1.0) for n in range(77)]


def test_characters_that_share_an_unknown_token_are_no_words():
    """As T5 reads Chinese; another encoder's words stay apart."""
    known = clip("red 一只猫 한국")
    unknown = tokenize("red 一只猫 한국", letter_t5(), limit=20)
    assert texts(unknown) == ["red", "한국"]
    with pytest.raises(UnknownWordError):
        unknown.find("猫")
    table = concatenate([known, unknown])
    assert texts(table) == texts(known) == ["red", *"一只猫", "한국"]
    assert table.find("猫") == known.find("猫")
