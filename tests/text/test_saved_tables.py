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
    "apply",
    [
        change(["prompt"], 3),
        change(["prompt"], "a red\ud800cat, 😂😂 b"),
        change(["prompt"], "b" * 200_000),
        change(["limit"], True),
        change(["limit"], 10**12),
        change(["limit"], 9),
        change(["missing"], -1),
        change(["missing"], 10**12),
        change(["tokens"], None),
        change(["tokens", 1], []),
        change(["tokens", 1, "position"], 2),
        change(["tokens", 1, "id"], -1),
        change(["tokens", 1, "id"], 1.0),
        change(["tokens", 1, "end"], 99),
        change(["tokens", 1, "start"], -1),
        change(["tokens", 1, "text"], "<script>"),
        change(["tokens", 1, "kind"], "evil"),
        change(["tokens", 0, "end"], 1),
        change(["tokens", 0, "text"], "hi"),
        change(["words"], [{}]),
        change(["words", 1, "number"], 0),
        change(["words", 1, "start"], 0),
        change(["words", 1, "text"], "blue"),
        overlapping,
        change(["words", 1, "missing"], -1),
        change(["words", 1, "missing"], 5),
        change(["words", 1, "tokens"], []),
        change(["words", 1, "tokens"], [3, 2]),
        change(["words", 1, "tokens"], [1]),
        change(["words", 1, "tokens"], [0]),
        change(["words", 1, "tokens"], [-6]),
        change(["words", 1, "tokens"], [10**9]),
        change(["words", 1, "tokens"], [True]),
        change(["words", 1, "tokens"], [[]]),
        change(["words", 3, "tokens"], [3, 3]),
    ],
)
def test_broken_tables_are_refused(apply):
    data = plain("a red cat, b", 8)
    assert read(data) == tokenize("a red cat, b", shared_tokenizer(8))
    apply(data)
    with pytest.raises((RunError, msgspec.ValidationError)):
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
