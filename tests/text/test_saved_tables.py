"""Token tables read back from what a file says."""

import json
from dataclasses import asdict
from typing import Any

import msgspec
import pytest
from making import shared_tokenizer

from heedmap.errors import RunError
from heedmap.text.saved_tables import check_table
from heedmap.text.tokens import tokenize
from heedmap.text.words import TokenTable


def read(data: object) -> TokenTable:
    table = msgspec.convert(data, TokenTable)
    check_table(table)
    return table


def plain(prompt: str, limit: int) -> Any:
    return json.loads(json.dumps(asdict(tokenize(prompt, shared_tokenizer(limit)))))


def change(path, value):
    def apply(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return apply


def overlapping(data):
    """The second word begins within the first, and is what stands there."""
    first, second = data["words"][:2]
    first["end"], first["text"] = second["end"], data["prompt"][first["start"] : second["end"]]


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (change(["prompt"], 3), "writes: expected text, got a whole number at prompt"),
        (change(["prompt"], "a red\ud800cat, 😂😂 b"), "its prompt is not text"),
        (change(["prompt"], "b" * 200_000), "of length at most 100000 at prompt"),
        (change(["limit"], True), "expected a whole number, got true or false at limit"),
        (change(["limit"], 10**12), "expected a whole number of at most 2147483647 at limit"),
        (change(["limit"], 9), "8 tokens do not make its limit 9"),
        (change(["missing"], -1), "expected a whole number of at least 0 at missing"),
        (change(["missing"], 10**12), "expected a whole number of at most 2147483647 at missing"),
        (change(["tokens"], None), "expected a list, got null at tokens"),
        (change(["tokens", 1], []), r"expected an object, got a list at tokens\[1\]"),
        (change(["tokens", 1, "position"], 2), "token 1 contradicts"),
        (change(["tokens", 1, "id"], -1), r"at tokens\[1\]\.id"),
        (change(["tokens", 1, "id"], 1.0), r"a whole number, got a number at tokens\[1\]\.id"),
        (change(["tokens", 1, "end"], 99), "token 1 contradicts"),
        (change(["tokens", 1, "start"], -1), r"at tokens\[1\]\.start"),
        (change(["tokens", 1, "text"], "<script>"), "token 1 contradicts"),
        (change(["tokens", 1, "kind"], "evil"), "expected another value than 'evil' at"),
        (change(["tokens", 0, "end"], 1), "token 0 contradicts"),
        (change(["tokens", 0, "text"], "hi"), "token 0 contradicts"),
        (change(["words"], [{}]), r"expected the field number at words\[0\]"),
        (change(["words", 1, "number"], 0), "word 1 contradicts"),
        (change(["words", 1, "start"], 0), "word 1 contradicts"),
        (change(["words", 1, "text"], "blue"), "word 1 contradicts"),
        (overlapping, "word 1 contradicts"),
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
    data = plain("a red cat, b", 8)
    assert read(data) == tokenize("a red cat, b", shared_tokenizer(8))
    apply(data)
    with pytest.raises(RunError, match=message):
        read(data)


@pytest.mark.parametrize("data", [None, [], "", {}, {"prompt": "a"}])
def test_what_is_no_table(data):
    with pytest.raises(RunError, match="the token table is not what heedmap writes: "):
        read(data)


def test_word_tokens_in_order():
    data = plain("zygo", 8)
    data["words"][0]["tokens"].reverse()
    with pytest.raises(RunError, match="tokens out of order"):
        read(data)


def test_a_word_that_was_not_read_has_letters():
    told = plain("sea " * 90, 77)
    assert read(told).words[-1].missing
    told["words"][-1] |= {"start": told["words"][-1]["end"], "text": ""}
    with pytest.raises(RunError, match="word 89 contradicts its place"):
        read(told)
