"""Settings as Python and bash spell them: read back by Python and bash, they are the same."""

import ast
import math
import subprocess
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import settings_of
from msgspec import structs

import heedmap as hm
from heedmap.cli.options import parse_box
from heedmap.explorer import spelling
from heedmap.files.settings import Confined, Mask, Reweighted, Ruled

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
ODD = ["", "it's", "a\\b", "$(id)", "`id`", "a\nb", "\x15rm -rf /\r", "\x1b[2J", "\u202egnp", "é😂"]


def heard(words: list[str]) -> list[str]:
    """What bash makes of these words of a command."""
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {' '.join(words)}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    return done.stdout.decode().split("\0")[:-1]


def test_bash_reads_texts_back_as_they_were():
    said = [spelling.shell_quoted(text) for text in ODD]
    assert heard(said) == ODD
    assert all(text.isprintable() for text in said)  # no sign that a terminal acts upon


@settings(max_examples=25)
@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_bash_reads_any_texts_back(texts):
    assert heard([spelling.shell_quoted(text) for text in texts]) == texts


@given(TEXTS | st.lists(TEXTS, max_size=3))
def test_python_reads_texts_back(value):
    said = spelling.literal(value)
    assert ast.literal_eval(said) == value and said.isprintable()


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**80), 2**80))
@example(5e-324)
def test_numbers_are_read_back_to_their_last_digit(value):
    said = spelling.number(value)
    assert float(said) == value if isinstance(value, float) else int(said) == value
    assert len(said) <= len(repr(value))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_cannot_be_written(value):
    with pytest.raises(ValueError, match="cannot be written"):
        spelling.number(value)


PLAIN = st.none() | st.booleans() | st.integers() | TEXTS.filter(lambda t: not t.startswith("<"))
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)


@given(VALUES.filter(lambda value: "object" not in repr(value)))
def test_arguments_are_read_back_by_python(value):
    (said,) = spelling.arguments({"eta": value})
    assert ast.literal_eval(said.removeprefix("eta=")) == value


def test_arguments_that_are_no_json_themselves():
    noted: dict[str, Any] = {
        "one": {"object": "tuple", "items": [1]},
        "two": {"object": "tuple", "items": [1, {"object": "tuple", "items": []}]},
        "far": {"object": "float", "value": "-inf"},
        "image": {"object": "PIL.Image", "size": [8, 8], "sha256": "0" * 64},
        "images": [{"object": "PIL.Image", "size": [8, 8], "sha256": "0" * 64}],
        "older": "<an object>",
    }
    found = dict(said.split("=", 1) for said in spelling.arguments(noted))
    assert found.keys() == {"one", "two", "far"}  # of the others only a note is left
    assert ast.literal_eval(found["one"]) == (1,)
    assert ast.literal_eval(found["two"]) == (1, ())
    assert eval(found["far"]) == -math.inf


@pytest.mark.parametrize(
    "name", ["a b", "a=1, b", "class", "\uff45ta", "seed", "prompt", "__debug__", "", "1a", "a)#"]
)
def test_names_that_are_not_a_pipelines_are_left_out(name):
    assert spelling.arguments({name: 1, "eta": 0.5}) == ["eta=0.5"]


def made(said: str) -> Any:
    """A rule, made by the Python that was written for it."""
    return eval(said, {"hm": hm})


BOX = [8, 16, 64.5, 128]


@pytest.mark.parametrize(
    ("noted", "rule"),
    [
        ({"kind": "reweight", "word": 'a "b"', "weight": 1 / 3}, hm.Reweight('a "b"', 1 / 3)),
        (
            {"kind": "reweight", "word": "a", "weight": -2, "renormalize": True},
            hm.Reweight("a", -2, renormalize=True),
        ),
        ({"kind": "confine", "word": "a", "where": BOX}, hm.Confine("a", tuple(BOX))),
        (
            {"kind": "confine", "word": "a", "where": BOX, "end": 0.5, "along": ["b"]},
            hm.Confine("a", tuple(BOX), end=0.5, along=["b"]),
        ),
    ],
)
def test_rules_are_made_again_by_what_is_written(noted, rule):
    (edit,) = settings_of(edits=[noted]).edits
    assert asdict(made(spelling.rule(edit))) == asdict(rule)


@pytest.mark.parametrize(
    "edit",
    [
        Confined(word="a", where=Mask(mask=(8, 8), packed="…")),  # a mask is no box
        Ruled(name="3); import os; ("),
        Ruled(),
    ],
)
def test_rules_that_cannot_be_written_are_nothing(edit):
    assert spelling.rule(edit) == "" and spelling.confine_flag(edit) == ""


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (Confined(word="a b", where=(0, 0.5, 8, 8)), "a b=0,0.5,8,8"),
        (Confined(word="a ", where=(0, 0, 8, 8)), ""),  # --confine would strip it
        (Confined(word="a", where=(0, 0, 8, 8), end=0.5), ""),  # this is left to Python
        (Reweighted(word="a", weight=2), ""),
    ],
)
def test_a_box_is_written_where_it_says_it_all(edit, said):
    assert spelling.confine_flag(edit) == said


def test_a_box_is_what_the_option_reads():
    word, box = parse_box(spelling.confine_flag(Confined(word="red house", where=tuple(BOX))))
    assert (word, list(box)) == ("red house", BOX)


def test_what_is_not_usual_of_a_confine_is_spelled():
    usual = Confined(word="cat", where=(0, 0, 8, 8))
    assert spelling.rule(usual) == 'hm.Confine("cat", (0, 0, 8, 8))'
    assert spelling.confine_flag(usual) == "cat=0,0,8,8"
    assert usual == hm.Confine("cat", (0, 0, 8, 8)).noted()
    for name, value in (("strength", 2.0), ("start", 0.1), ("end", 0.7), ("tail", False)):
        other = structs.replace(usual, **{name: value})
        assert spelling.rule(other) == f'hm.Confine("cat", (0, 0, 8, 8), {name}={value})'
        assert spelling.confine_flag(other) == ""
