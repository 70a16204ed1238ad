import json
import logging
import random
import time
import unicodedata
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import CLIPTokenizer

from heedmap.errors import ArgumentError, ModelError, RunError, TruncatedWordError, UnknownWordError
from heedmap.text.prompts import split_words
from heedmap.text.tokens import read, tokenize
from heedmap.text.words import TokenTable, Word

SENTENCES = [
    "a red house next to a blue tree",
    "a photo of a red cat at night, the dog isn't here! 😂😂 😂😂😂",
    "a snow-covered house, a cat and a dog!",
]


def build_tokenizer(limit: int | None = 77, **kwargs) -> CLIPTokenizer:
    """A CLIPTokenizer whose byte-level merges come from a handful of sentences."""
    pieces = CLIPTokenizer().backend_tokenizer
    trained = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix="</w>"))
    trained.normalizer, trained.pre_tokenizer = pieces.normalizer, pieces.pre_tokenizer
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    trained.train_from_iterator(SENTENCES * 3, trainer)
    merges: Any = [tuple(merge) for merge in json.loads(trained.to_str())["model"]["merges"]]
    # As in CLIP's own vocabulary: "!" is 0, then the bytes, the merges, and the two specials.
    pieces = ["!", *alphabet, *(a + "</w>" for a in alphabet), *("".join(m) for m in merges)]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    if limit is not None:
        kwargs["model_max_length"] = limit
    return CLIPTokenizer(vocab=vocab, merges=merges, **kwargs)


@pytest.fixture(scope="module")
def clip() -> CLIPTokenizer:
    return build_tokenizer()


def texts(prompt: str) -> list[str]:
    return [prompt[start:end] for start, end in split_words(prompt)]


def pieces(table: TokenTable, query: str, **kwargs) -> list[str]:
    return [table.tokens[position].text for position in table.find(query, **kwargs)]


# --- splitting --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a red house, next to (a) tree.", ["a", "red", "house", "next", "to", "a", "tree"]),
        ("don't dog’s snow-covered", ["don't", "dog’s", "snow-covered"]),
        ("'quoted' \"too\" rock'n'roll dogs' cat--dog", "quoted too rock'n'roll dogs cat dog"),
        ("f/1.8, 10,000 1.5. v1.5 2,3, cat.dog 8k", "f 1.8 10,000 1.5 v1.5 2,3 cat dog 8k"),
        ("<my-cat> <cat_toy>, <x>_1 a<b a < b", "<my-cat> <cat_toy> <x>_1 a b a b"),
        ("< > <-> <> ... -- __ ' _", []),
        ("long_hair _cat_ a__b", "long_hair cat a__b"),
        ("😀😀 cat🐱dog", ["😀", "😀", "cat", "🐱", "dog"]),
        ("👩‍👩‍👧👍🏽🇩🇪🇫🇷", ["👩‍👩‍👧", "👍🏽", "🇩🇪", "🇫🇷"]),
        ("❤️❤ 🏴‍☠️ 1️⃣ ©️ © → ★", ["❤️", "❤", "🏴‍☠️", "1️⃣", "©️", "★"]),
        ("🏴\U000e0067\U000e0062\U000e007f🧑🏿‍🦱", ["🏴\U000e0067\U000e0062\U000e007f", "🧑🏿‍🦱"]),
        ("赤い猫、カー・ラ red猫", ["赤い猫", "カー", "ラ", "red", "猫"]),
        ("한국 고양이, हिन्दी में แมว", ["한국", "고양이", "हिन्दी", "में", "แมว"]),
        ("e\u0301te\u0301 naïve", ["e\u0301te\u0301", "naïve"]),
        ("a\u00a0b\u3000c\u2028d\u200be\nf\tg", "a b c d e f g"),
        (
            "re\u00adsume \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            ["re\u00adsume", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"],
        ),
        ("", []),
        (" \n\t ", []),
    ],
)
def test_split(prompt, expected):
    assert texts(prompt) == (expected.split() if isinstance(expected, str) else expected)


SCRAPS = [
    *("cat", "Red", "house,", "😂", "😂😂", "🇩🇪", "👩‍👧", "한국", "猫", "e\u0301", "İ", "ﬁ"),
    *("<my-cat>", "<", ">", "!", "'s", "-", "_", "1.5", " ", "\n", "\u200d", "\ufe0f"),
    *("<|endoftext|>", "\u1112\u1161\u11ab", "ǅ", "\x00", '"', "\u0f73"),
]
PROMPTS = st.text(max_size=60) | st.lists(st.sampled_from(SCRAPS), max_size=30).map("".join)


@given(PROMPTS)
def test_spans_are_in_order_and_within(prompt):
    spans = split_words(prompt)
    flat = [0, *(edge for span in spans for edge in span), len(prompt)]
    assert flat == sorted(flat)
    for start, end in spans:
        word = prompt[start:end]
        assert word and not word[0].isspace() and not word[-1].isspace()


@given(st.text(st.characters(categories=["Lu", "Ll", "Nd", "Po", "Zs"]), max_size=60))
def test_no_letter_is_lost(prompt):
    covered = {index for start, end in split_words(prompt) for index in range(start, end)}
    for index, char in enumerate(prompt):
        if unicodedata.category(char)[0] in "LN":
            assert index in covered


@pytest.mark.parametrize(
    "unit",
    ["a ", "_", "<", "<a", "<.", "a_", "a-", "1.", "😂", "🇩", "猫", "a\u200d", "\ufe0f", "'"],
)
def test_splitting_is_linear(unit):
    def seconds(length):
        prompt = (unit * length)[:length]
        started = time.process_time()
        split_words(prompt)
        return time.process_time() - started

    # 16 times the text: a quadratic pattern would take 256 times as long.
    small = max(min(seconds(5_000) for _ in range(3)), 2e-4)
    assert min(seconds(80_000) for _ in range(3)) < 80 * small


# --- what a tokenizer read --------------------------------------------------------------------


def test_table_of_a_plain_prompt(clip):
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
    assert table.positions("start", "text", "end") == (0, 1, 2, 3, 4, 5)
    assert table.cut is None and table.missing == 0 and table.read_words == table.words


def test_padding_is_known_by_place_not_by_id():
    # SD 2 and SDXL's second tokenizer pad with "!", which is also what a user types.
    table = tokenize("a cat !", build_tokenizer(12, pad_token="!"))
    padded = tokenize("a cat!!", build_tokenizer(12, pad_token="!"))
    assert table.tokens[5].id == 0 and table.tokens[5].kind == "pad"
    assert [t.kind for t in table.tokens] == ["start"] + ["text"] * 3 + ["end"] + ["pad"] * 7
    assert padded.tokens[3].text in ("!", "!!") and padded.tokens[3].kind == "text"
    # and an end token that the user typed is text as well
    typed = tokenize("cat<|endoftext|>dog", build_tokenizer(12))
    assert [t.kind for t in typed.tokens[:6]] == ["start", "text", "text", "text", "end", "pad"]
    assert typed.find("dog") == (3,)


@pytest.mark.parametrize(
    ("prompt", "query"),
    [
        ("a 🐱 b", "🐱"),
        ("a 고양이 b", "고양이"),
        ("a \u1112\u1161\u11ab b", "한"),
        ("a e\u0301te\u0301 b", "été"),
        ("a İstanbul b", "İSTANBUL"),
        ("a q\u0307\u0323x b", "q\u0323\u0307x"),
        ("a <|startoftext|> b", "<|startoftext|>"),
        ("a ﬁne b", "fine"),
        ("a Straße b", "STRASSE"),
        ("a zygomorphic b", "zygomorphic"),
        ("a 12.5 b", "12.5"),
        ("a snow-covered b", "Snow\u2011Covered"),
        ("a हिन्दी b", "हिन्दी"),
        ("a <my-cat> b", "<my-cat>"),
        ("a ❤️ b", "❤"),
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


def test_added_tokens(clip):
    own = build_tokenizer()
    own.add_tokens(["<my-cat>", "<my-cat>_1"])
    table = tokenize("a <my-cat>, and <my-cat> <my-cat>_1!", own)
    assert [w.text for w in table.words] == ["a", "<my-cat>", "and", "<my-cat>", "<my-cat>_1"]
    assert [len(w.tokens) for w in table.words if "cat" in w.text] == [1, 1, 1]
    assert pieces(table, "<MY-CAT>") == ["<my-cat>", "<my-cat>"]


def test_emoji_that_share_a_token_are_one_word(clip):
    table = tokenize("a 😂😂 😂", clip)
    assert [w.text for w in table.words] == ["a", "😂😂", "😂"]
    assert pieces(table, "😂😂") == ["😂😂"]
    assert len(table.matches("😂")) == 2
    assert table.find("😂") == table.positions()[1:]


@settings(max_examples=150)
@given(PROMPTS, st.sampled_from([2, 3, 8, 77]))
def test_tables_hold_together(prompt, limit):
    table = tokenize(prompt, shared(limit))
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
    # Every word is found by its own text, or known to be past the limit.
    for word in table.words:
        places = table.matches(word.text)
        assert any(word in place for place in places)
        if all(word.tokens for place in places for word in place):
            assert set(word.tokens) <= set(table.find(word.text))
    # No word of the prompt goes missing: CLIP drops nothing but spaces.
    spans = [(w.start, w.end) for w in table.words]
    for start, end in split_words(prompt):
        assert any(a <= start and end <= b for a, b in spans)
    assert TokenTable.from_dict(json.loads(json.dumps(table.to_dict()))) == table


TOKENIZERS: dict[int, CLIPTokenizer] = {}


def shared(limit: int) -> CLIPTokenizer:
    if limit not in TOKENIZERS:
        TOKENIZERS[limit] = build_tokenizer(limit)
    return TOKENIZERS[limit]


@pytest.mark.parametrize("prompt", ["", "   ", "\n", "!?", "'\"'"])
def test_prompts_without_words(clip, prompt):
    table = tokenize(prompt, clip)
    assert table.words == () and table.tokens[0].kind == "start"
    with pytest.raises(UnknownWordError, match=r"'cat' is not in the prompt. The prompt has no w"):
        table.find("cat")
    with pytest.raises(UnknownWordError, match="the prompt has 0 words; there is none to pick"):
        table.at(0)


def test_a_thousand_words(clip):
    table = tokenize(" ".join(f"cat dog{n}" for n in range(500)), clip)
    assert len(table.words) == 1000
    assert table.find("cat")[0] == 1 and table.cut is not None
    assert table.missing == sum(word.missing for word in table.words) > 900
    with pytest.raises(TruncatedWordError):
        table.find("dog499")


def test_long_prompts_are_read_without_a_warning(caplog, monkeypatch):
    # A tokenizer warns once in its life that a text is longer than the model reads.
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    tokenizer = build_tokenizer()
    tokenize("a " * 300, tokenizer)
    assert not caplog.records
    tokenizer("a " * 300)
    assert "longer than the specified maximum" in caplog.text


def test_unset_limit_is_clips_own():
    tokenizer = build_tokenizer(None)
    assert tokenizer.model_max_length > 10**20
    assert tokenize("a cat", tokenizer).limit == 77


def test_ids_of_another_prompt_are_refused(clip):
    ids = clip("a red cat", padding="max_length").input_ids
    whole = clip("a red", add_special_tokens=False, return_offsets_mapping=True)
    with pytest.raises(ArgumentError, match=r"not those of the prompt 'a red': .* at position 3"):
        read(
            "a red",
            ids,
            text_ids=whole.input_ids,
            text_offsets=whole.offset_mapping,
            start_id=clip.bos_token_id,
            end_id=clip.eos_token_id,
        )


def test_read_without_specials_or_padding():
    table = read(
        "a cat",
        [5, 6],
        text_ids=[5, 6, 7],
        text_offsets=[(0, 1), (1, 4), (4, 5)],  # as tokenizers that keep the space in the span
        start_id=None,
        end_id=None,
    )
    assert [(t.kind, t.text) for t in table.tokens] == [("text", "a"), ("text", "ca")]
    assert table.words[1].tokens == (1,) and table.words[1].missing == 1 == table.missing


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (["a", "b"], "A prompt is one string, not list"),
        (None, "A prompt is one string, not NoneType"),
        ("a \ud83d b", "not valid Unicode"),
        ("a" * 100_001, "has 100001 characters; at most 100000"),
    ],
)
def test_prompts_that_are_refused(clip, prompt, message):
    with pytest.raises(ArgumentError, match=message):
        tokenize(prompt, clip)


def test_slow_tokenizers_are_refused():
    with pytest.raises(ModelError, match="object gives no character offsets"):
        tokenize("a", object())


# --- finding ----------------------------------------------------------------------------------

PROMPT = "A red house, a RED  tree; the cathedral 'house' and red\nhouse"


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("house", ["house", "house", "house"]),
        ("House,", ["house", "house", "house"]),
        ("  'HOUSE'! ", ["house", "house", "house"]),
        ("red", ["red", "RED", "red"]),
        ("red house", ["red house", "red house"]),
        ("Red  \t HOUSE.", ["red house", "red house"]),
        ("house a red tree", ["house a RED tree"]),
        ("\uff48\uff4f\uff55\uff53\uff45", ["house", "house", "house"]),
    ],
)
def test_matches(clip, query, places):
    table = tokenize(PROMPT, clip)
    found = table.matches(query)
    assert [" ".join(word.text for word in place) for place in found] == places
    assert table.find(query) == tuple(sorted(t for p in found for w in p for t in w.tokens))
    for number, place in enumerate(found):
        expected = tuple(t for word in place for t in word.tokens)
        assert table.find(query, occurrence=number) == expected
        assert table.find(query, occurrence=number - len(found)) == expected


@pytest.mark.parametrize(
    ("prompt", "query", "expected"),
    [
        ("a red house next to a blue tree", "tree", "blue tree"),
        ("a red house next to a blue tree", "red", "red house"),
        ("a red house next to a blue tree", "next", "next"),
        ("a red house next to a blue tree", "house next", "red house next"),
        ("a red house, snow at night", "house", "red house"),  # a comma ends it
        ("a red\nhouse", "house", "house"),  # and so does a line
        ("a red \t house", "house", "red \t house"),
        ("a snow-covered red house", "house", "snow-covered red house"),
        ("a red house at a red tree", "red", "red house | red tree"),
        ("house", "house", "house"),
        ("very big red house", "red", "big red house"),
        # More than three are a list.
        ("red cat blue dog", "dog", "dog"),
        ("a big red brick house", "red brick", "red brick"),
        ("a big red brick house", "big red brick house", "big red brick house"),
        # Another thing is no part of it.
        ("a dog chasing a cat", "dog", "dog"),
        ("a dog chasing cat", "cat", "cat"),
        ("a man holding flowers", "holding", "man holding"),
        ("two red houses", "houses", "red houses"),
        ("a red building", "building", "red building"),
        ("a red building", "red", "red"),
        ("the red house holds snow", "house", "red house"),
        ("a red house", '"house"', "house"),
        ("a red house", " \u201chouse\u201d ", "house"),
        ("a red house", '"house', "red house"),
        ("a red 'house'", "house", "house"),
    ],
)
def test_the_phrase_of_a_word(clip, prompt, query, expected):
    table = tokenize(prompt, clip)
    wanted = [t for part in expected.split(" | ") for t in table.find(part)]
    assert table.phrase(query) == tuple(sorted(wanted))


def test_the_text_of_tokens(clip):
    table = tokenize("a snow-covered Red  house at a red tree", clip)
    for query, said in (
        ("house", "snow-covered Red  house"),
        ("red", "snow-covered Red  house and red tree"),
        ("at", "at"),
    ):
        assert table.text_of(table.phrase(query)) == said
    assert table.text_of(()) == ""


def test_a_phrase_beyond_the_limit(clip):
    table = tokenize("a red house at a blue tree", shared(4))
    assert table.phrase("red") == table.find("red")  # its noun was not read
    with pytest.raises(TruncatedWordError, match="'tree' was not read"):
        table.phrase("tree")
    with pytest.raises(UnknownWordError, match="'cat' is not in the prompt"):
        table.phrase("cat")


def test_apostrophes_are_alike(clip):
    for prompt, query in [("it isn’t so", "isn't"), ("it isn't so", "ISN’T")]:
        assert [w.text for w in tokenize(prompt, clip).matches(query)[0]] == [prompt.split()[1]]


def test_places_do_not_overlap(clip):
    assert len(tokenize("a a a", clip).matches("a a")) == 1


@pytest.mark.parametrize(
    ("query", "kwargs", "message"),
    [
        ("cat", {}, "^'cat' is not in the prompt. Did you mean 'cathedral'"),
        ("tre", {}, "'tre' is not in the prompt. Did you mean 'tree'"),
        (
            "xyz",
            {},
            "prompt. The prompt has: 'A', 'red', 'house', 'tree', 'the', 'cathedral', 'and'.$",
        ),
        ("house red", {}, "Each of its words is, but not in this order side by side"),
        ("", {}, "^'' contains no word to look for; give a word or phrase of the prompt"),
        (" \n", {}, "contains no word to look for"),
        ("!,", {}, "contains no word to look for"),
        ("x\n\x1b[31m", {}, r"^'x\\n\\x1b\[31m' is not"),
        ("x" * 500, {}, "^'x{59}…' is not"),
        (
            "house",
            {"occurrence": 3},
            "no occurrence 3: 'house' stands in the prompt 3 times; use 0 to 2",
        ),
        ("tree", {"occurrence": 1}, "'tree' stands in the prompt 1 time; use 0."),
    ],
)
def test_what_an_unknown_word_says(clip, query, kwargs, message):
    with pytest.raises(UnknownWordError, match=message):
        tokenize(PROMPT, clip).find(query, **kwargs)


def test_long_word_lists_are_cut(clip):
    table = tokenize(" ".join(f"w{n}" for n in range(50)), clip)
    with pytest.raises(UnknownWordError, match=r"'w18', 'w19', … and 30 more\.$"):
        table.find("house")


def test_numbers(clip):
    table = tokenize(PROMPT, clip)
    assert table.at(2).text == table.at(-1).text == "house"
    with pytest.raises(
        UnknownWordError, match="no word number 12: the prompt has 12 words; use 0 to 11"
    ):
        table.at(12)
    with pytest.raises(ArgumentError, match="the word number is 'house': expected a whole number"):
        table.at("house")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match=r"not 2; for a word by its number, use at\(\)"):
        table.find(2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match=r"the occurrence is .*: expected a whole number"):
        table.find("house", occurrence="first")  # pyright: ignore[reportArgumentType]


def test_words_past_the_limit():
    table = tokenize("a red house and a blue tree, a red zebra", shared(8))
    # start, a, red, house, and?, … end: what fits is decided by the tokenizer
    assert table.cut is not None
    read_to = table.cut.number
    assert all(not word.truncated for word in table.words[:read_to])
    assert table.find("red") == (2,)  # the second one was not read; the first was
    expected = (
        rf"^'zebra' was not read by the model: it takes 8 tokens, and the prompt was cut at "
        rf"'{table.cut.text}' \(word {read_to}\). Shorten"
    )
    with pytest.raises(TruncatedWordError, match=expected):
        table.find("zebra")
    with pytest.raises(TruncatedWordError):
        table.find("red", occurrence=1)
    assert table.at(-1).tokens == () and table.at(-1).truncated


def test_a_word_cut_in_the_middle():
    table = tokenize("a zygomorphic", shared(8))
    word = table.at(1)
    assert word.tokens == (2, 3, 4, 5, 6) == table.find("zygomorphic")
    assert word.truncated and word.missing == table.missing == 6 and table.cut == word


# --- files ------------------------------------------------------------------------------------


def change(path, value):
    def apply(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (change(["prompt"], 3), "writes: expected str, got int at prompt"),
        (change(["prompt"], "a red\ud800cat, 😂😂 b"), "its prompt is not text"),
        (change(["prompt"], "b" * 200_000), "of length <= 100000 at prompt"),
        (change(["limit"], True), "expected int, got bool at limit"),
        (change(["limit"], 10**12), "expected int <= 2147483647 at limit"),
        (change(["limit"], 9), "8 tokens do not make its limit 9"),
        (change(["missing"], -1), "expected int >= 0 at missing"),
        (change(["missing"], 10**12), "expected int <= 2147483647 at missing"),
        (change(["tokens"], None), "expected array, got null at tokens"),
        (change(["tokens", 1], []), r"expected object, got array at tokens\[1\]"),
        (change(["tokens", 1, "position"], 2), "token 1 contradicts"),
        (change(["tokens", 1, "id"], -1), r"at tokens\[1\]\.id"),
        (change(["tokens", 1, "id"], 1.0), r"int, got float at tokens\[1\]\.id"),
        (change(["tokens", 1, "end"], 99), "token 1 contradicts"),
        (change(["tokens", 1, "start"], -1), r"at tokens\[1\]\.start"),
        (change(["tokens", 1, "text"], "<script>"), "token 1 contradicts"),
        (change(["tokens", 1, "kind"], "evil"), "invalid enum value 'evil' at"),
        (change(["tokens", 0, "end"], 1), "token 0 contradicts"),
        (change(["tokens", 0, "text"], "hi"), "token 0 contradicts"),
        (change(["words"], [{}]), r"missing required field number at words\[0\]"),
        (change(["words", 1, "number"], 0), "word 1 contradicts"),
        (change(["words", 1, "start"], 0), "word 1 contradicts"),
        (change(["words", 1, "text"], "blue"), "word 1 contradicts"),
        (change(["words", 1, "missing"], -1), r"at words\[1\]\.missing"),
        (change(["words", 1, "missing"], 5), "words miss 5 tokens, of 0 in all"),
        (change(["words", 1, "tokens"], []), "word 1 contradicts"),
        (change(["words", 1, "tokens"], [3, 2]), "word 1 claims"),
        (change(["words", 1, "tokens"], [1]), "word 1 claims"),
        (change(["words", 1, "tokens"], [0]), "word 1 claims"),
        (change(["words", 1, "tokens"], [-6]), r"at words\[1\]\.tokens\[0\]"),
        (change(["words", 1, "tokens"], [10**9]), "word 1 claims"),
        (change(["words", 1, "tokens"], [True]), r"at words\[1\]\.tokens\[0\]"),
        (change(["words", 1, "tokens"], [[]]), r"at words\[1\]\.tokens\[0\]"),
        (change(["words", 3, "tokens"], [3, 3]), "word 3 claims"),
    ],
)
def test_broken_tables_are_refused(apply, message):
    data = tokenize("a red cat, b", shared(8)).to_dict()
    assert TokenTable.from_dict(deepcopy(data)).to_dict() == data
    apply(data)
    with pytest.raises(RunError, match=message):
        TokenTable.from_dict(data)


@pytest.mark.parametrize("data", [None, [], "", {}, {"prompt": "a"}])
def test_what_is_no_table(data):
    with pytest.raises(RunError, match="The token table is not what heedmap writes: "):
        TokenTable.from_dict(data)


def test_word_tokens_in_order():
    data = tokenize("zygo", shared(8)).to_dict()
    data["words"][0]["tokens"].reverse()
    with pytest.raises(RunError, match="tokens out of order"):
        TokenTable.from_dict(data)


def test_tokenizers_that_read_more_than_a_file_may_hold():
    tokenizer = build_tokenizer(3000)
    with pytest.raises(ModelError, match="reads 3000 tokens of a prompt; at most 2048 are taken"):
        tokenize("a cat", tokenizer)
    tokenizer.model_max_length = int(1e30)
    assert tokenize("a cat", tokenizer).limit == 77


@pytest.mark.parametrize("query", ["cat dog", "dog cat dog", "cat cat", "dog"])
def test_places_are_those_of_a_search_word_by_word(query):
    """Against the definition, over prompts of two words in any order."""
    rng = random.Random(0)
    for _ in range(200):
        words = [rng.choice(("cat", "dog", "Cat,")) for _ in range(rng.randrange(1, 12))]
        table = tokenize(" ".join(words), shared(77))
        keys, wanted = [w.strip(",").lower() for w in words], query.split()
        expected, index = [], 0
        while index <= len(keys) - len(wanted):
            fits = keys[index : index + len(wanted)] == wanted
            expected += [tuple(range(index, index + len(wanted)))] if fits else []
            index += len(wanted) if fits else 1
        if not expected:
            with pytest.raises(UnknownWordError):
                table.matches(query)
        else:
            found = [tuple(word.number for word in place) for place in table.matches(query)]
            assert found == expected


def test_a_phrase_of_twenty_thousand_words_is_sought_in_linear_time():
    text = "a " * 20_000
    table = TokenTable(
        text, (), tuple(Word(n, "a", 2 * n, 2 * n + 1, (n,)) for n in range(20_000)), 77
    )
    began = time.process_time()
    assert len(table.matches("a " * 10_000 + "a")) == 1
    with pytest.raises(UnknownWordError):
        table.matches("a " * 10_000 + "b")
    with pytest.raises(UnknownWordError):
        table.matches("zebra")
    assert len(table.phrase("a")) == 20_000
    assert len(table.text_of(range(20_000))) == 39_999
    assert time.process_time() - began < 2
