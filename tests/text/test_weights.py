import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import letter_tokenizer, table, weigh

from heedmap.errors import ArgumentError, TruncatedWordError
from heedmap.text.prompts import split_words
from heedmap.text.tokenization import tokenize
from heedmap.text.weights import (
    bracket_warning,
    escape,
    parse_weights,
    token_weights,
)


def parse(prompt: str) -> tuple[str, list[tuple[str, float]]]:
    found = parse_weights(prompt)
    return found.text, [(found.text[start:end], weight) for start, end, weight in found.spans]


# --- reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "text", "weights"),
    [
        ("a (fluffy:2.5) cat", "a fluffy cat", [("fluffy", 2.5)]),
        ("(two words:0.3), x", "two words, x", [("two words", 0.3)]),
        ("(a:1e-1) (b:0) (c:−2)", "a b c", [("a", 0.1), ("b", 0), ("c", -2)]),
        # nested: each bracket with its own weight, from the outside in
        ("((red:2) house:1.5)", "red house", [("red house", 1.5), ("red", 2)]),
        ("(a:+30) (b:-30) (c:4.0)", "a b c", [("a", 30), ("b", -30), ("c", 4)]),
        # the last colon counts
        ("(a: b:2)", "a: b", [("a: b", 2)]),
        # text in brackets within a weight, and a weight within text in brackets
        ("(a (cat:1.5) sits)", "(a cat sits)", [("cat", 1.5)]),
        ("(a:2 (b))", "(a:2 (b))", []),
        # escapes
        (r"\(a:1.5\)", "(a:1.5)", []),
        (r"(\(a\):2)", "(a)", [("(a)", 2)]),
        (r"a\\\(b", r"a\(b", []),
    ],
)
def test_weights_in_brackets_are_parsed(prompt, text, weights):
    assert parse(prompt) == (text, weights)


@pytest.mark.parametrize(
    "prompt",
    [
        "((cat)) [dog] {x}",
        "(at 10:30 am)",
        "a:1.5",
        "(:5(a))",
        "<lora:x:0.8>",
        "\uff08cat\uff1a1.5\uff09",  # full-width
        "a poster (16:9)",
        "at 12:30) a cat",
    ],
)
def test_other_brackets_are_text(prompt):
    assert parse(prompt) == (prompt, [])


@pytest.mark.parametrize(
    ("prompt", "bracket"),
    [
        ("a ((red)) [house]", "((red))"),
        ("a clock at (12:30)", "(12:30)"),
        ("a (cat:1,5)", "(cat:1,5)"),
        ("a (cat: )", "(cat: )"),
        ("a (cat:2x)", "(cat:2x)"),
        ("(red:1.3) house], [", ""),
    ],
)
def test_brackets_that_other_programs_read_as_weights(prompt, bracket):
    found = parse_weights(prompt)
    assert found.bracket == bracket and bool(bracket_warning(found)) == bool(bracket)
    assert not parse_weights(escape(found.text)).bracket


WRONG = ("(cat:+1e7)", "(cat:-1e999)")
UNBALANCED = ("a cat :3)", "a (cat:1.5, scene: night", "a ((cat:1.5)", ":3.5)", r"\(cat:1.5)")


@pytest.mark.parametrize(("prompts", "named"), [(WRONG, "weight"), (UNBALANCED, "bracket")])
def test_wrong_weights_and_unbalanced_brackets_are_refused(prompts, named):
    for prompt in prompts:
        with pytest.raises(ArgumentError, match=named):
            parse_weights(prompt)


# --- properties -------------------------------------------------------------------------------

TEXTS = st.text(max_size=40) | st.text(r"()\:1.5a ", max_size=40)


@given(TEXTS)
def test_escaped_text_is_read_back(text):
    found = parse_weights(escape(text))
    assert found.text == text and found.spans == ()
    if not set(text) & set("()[]\\"):
        assert escape(text) == text


PLAIN = st.text("ab :().5", min_size=1, max_size=6)
NUMBERS = st.integers(-8, 8).map(lambda n: n / 4)
TREES = st.recursive(
    PLAIN, lambda children: st.tuples(st.lists(children, max_size=4), NUMBERS), max_leaves=12
)


def write_tree(tree, at: int) -> tuple[str, str, list[tuple[int, int, float]]]:
    """The prompt, the text and the spans of a tree of weights."""
    if isinstance(tree, str):
        # every colon escaped, since the bracket's own may follow
        return escape(tree).replace(":", "\\:"), tree, []
    children, weight = tree
    prompt = ""
    text = ""
    spans = []
    for child in children:
        more = write_tree(child, at + len(text))
        prompt = prompt + more[0]
        text = text + more[1]
        spans = spans + more[2]
    return f"({prompt}:{weight:+})", text, [(at, at + len(text), weight), *spans]


@given(st.lists(TREES, max_size=4))
def test_nested_weights_are_read_back(trees):
    prompt = ""
    text = ""
    spans = []
    for tree in trees:
        more = write_tree(tree, len(text))
        prompt = prompt + more[0]
        text = text + more[1]
        spans = spans + more[2]
    found = parse_weights(prompt)
    assert found.text == text
    assert list(found.spans) == spans


@pytest.mark.parametrize(
    ("read", "unit"),
    [(parse_weights, "("), (parse_weights, "(:"), (split_words, "_"), (split_words, "a-")],
)
def test_hostile_prompts_take_linear_time(read, unit):
    def seconds(length: int) -> float:
        prompt = (unit * length)[:length]
        began = time.process_time()
        with suppress(ArgumentError):
            read(prompt)
        return time.process_time() - began

    # 16 times the text: what is quadratic would take 256 times as long.
    small = max(min(seconds(2_500) for _ in range(3)), 2e-4)
    assert min(seconds(40_000) for _ in range(3)) < 80 * small


# --- on tokens --------------------------------------------------------------------------------


def weights(prompt: str, limit: int = 77) -> dict[str, float]:
    """Letters by their weights; a letter stands for the token at its place."""
    found = parse_weights(prompt)
    own = letter_tokenizer()
    own.model_max_length = limit
    table = tokenize(found.text, own)
    factors = token_weights(found.spans, table)
    assert list(factors) == sorted(factors)
    return {f"{n}{table.tokens[n].text}": factor for n, factor in factors.items()}


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a cat", {}),
        ("a (house:2)", {"2house": 2}),
        ("a (cat:-1) at", {"2c": -1, "3at": -1}),
        ("(a, house!:0.5) at", {"1a": 0.5, "3house": 0.5}),  # punctuation keeps its attention
        ("((at:2) house:1.5)", {"1at": 3, "2house": 1.5}),
        # whole words, however much of them the bracket covers
        ("(a:2)-(b house:3)", {"1a": 6, "2-": 6, "3b": 6, "4house": 3}),
    ],
)
def test_each_token_has_the_weight_of_its_word(prompt, expected):
    assert weights(prompt) == expected


def test_weighted_words_past_the_limit_are_refused():
    assert weights("a (b c d:2) e", 5) == {"2b": 2, "3c": 2}
    assert weights("(house dog:2)", 4) == {"1house": 2, "2d": 2}
    with pytest.raises(TruncatedWordError):
        weights("a b c (d e:2)", 5)


@pytest.mark.parametrize("prompt", ["a(:2)b", "a (, !:2) b"])
def test_a_weight_without_a_word_is_refused(prompt):
    with pytest.raises(ArgumentError, match="weight"):
        weights(prompt)


# --- writing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "weights", "expected"),
    [
        ("a red house", {"red": 2, "house": -0.5}, "a (red:2) (house:-0.5)"),
        ("a red house", {"red house": 1.25}, "a (red house:1.25)"),
        ("a (red:3) house", {"house": 2}, "a (red:3) (house:2)"),
        ("red", {"red": 30}, "(red:+30)"),
        ("(((red:2):4):3)", {}, "(((red:2):4):3)"),
        ("a\\ cat", {"cat": 2}, "a\\ (cat:2)"),
    ],
)
def test_weights_are_written_into_a_prompt(written, weights, expected):
    said = weigh(written, table(parse_weights(written).text), weights)
    assert said == expected
    assert parse_weights(said).text == parse_weights(written).text
    if not weights:
        assert parse_weights(said) == parse_weights(written)


@pytest.mark.parametrize(
    ("prompt", "weights"),
    [
        ("a (red:2) house", {"red": 3}),
        ("a red house", {"red": 3, "red house": 2}),
        ("a red house", {"red": float("nan")}),
    ],
)
def test_wrong_weights_of_words_are_refused(prompt, weights):
    with pytest.raises(ArgumentError, match="red"):
        weigh(prompt, table("a red house"), weights)


def test_an_occurrence_past_the_limit_is_not_weighted():
    """Of a phrase that is cut in two, too."""
    read = table("at b at b", 5)
    assert [word.tokens for word in read.words] == [(1,), (2,), (3,), ()]
    assert weigh("at b at b", read, {"at b": 2}) == "(at b:2) at b"
