"""Odd numbers and other values in the fields: one sentence each, and nothing in the log."""

import json
from typing import Any

import pytest

from app.serving import EDIT_FIELDS, FIELDS, PROMPT, Served, drawn

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

HUGE = 10**400
ODD: list[Any] = ["1e39", "1e308", "1" + "0" * 400, HUGE, 1e308, -1, "-1", True, "nan", [], "x"]


def check(server: Served, tab: str, fields: list[Any], capfd: Any, *sentences: str) -> str:
    """What is said of these values: a sentence, unless they can be drawn."""
    said = drawn(server, tab, f"odd{abs(hash(json.dumps(fields)))}", fields)
    err = capfd.readouterr().err
    assert "Traceback" not in err and "Error" not in err, err
    assert "Something went wrong" not in said
    assert 'role=\\"alert\\"' in said
    assert any(sentence in said for sentence in sentences), said[-900:]
    return said


@pytest.mark.parametrize("value", ODD, ids=lambda value: str(value)[:9])
@pytest.mark.parametrize(
    ("place", "name"),
    [(2, "seed"), (3, "steps"), (4, "guidance"), (5, "width"), (6, "height"), (8, "keep")],
)
def test_fields_of_generate(server: Served, capfd, place: int, name: str, value: Any):
    fields: list[Any] = [PROMPT, *FIELDS]
    if name in ("width", "height"):
        fields[5] = fields[6] = "64"
    fields[place] = value
    if name == "keep" and value == []:
        return
    if (name == "guidance" and value in ("-1", -1)) or (name == "steps" and value is True):
        return
    check(server, "Generate", fields, capfd, "expected", "was given", "Expected")


@pytest.mark.parametrize("value", ODD[::2], ids=lambda value: str(value)[:9])
@pytest.mark.parametrize("place", [3, 4, 5, 6, 7, 8])
def test_fields_of_an_edit(server: Served, capfd, place: int, value: Any):
    fields: list[Any] = [PROMPT, "a blue house", *EDIT_FIELDS]
    fields[place] = value
    check(server, "Edit", fields, capfd, "expected", "was given", "nothing is blended")


@pytest.mark.parametrize("tab", ["Generate", "Edit"])
@pytest.mark.parametrize(
    "prompt", ["a (red:1e39) house", "a (red:1e999) house", "a (red:1" + "0" * 400 + ") house"]
)
def test_weights(server: Served, capfd, tab: str, prompt: str):
    fields = [prompt, *FIELDS] if tab == "Generate" else [prompt, "", *EDIT_FIELDS]
    check(server, tab, fields, capfd, "expected", "weight")


def test_a_million_by_a_million(server: Served, capfd):
    fields: list[Any] = [PROMPT, *FIELDS]
    fields[5] = fields[6] = "1000000"
    check(server, "Generate", fields, capfd, "1000000×1000000, more pixels than this server draws")


@pytest.mark.parametrize("value", [5, None, True, ["a"], 1.5], ids=str)
@pytest.mark.parametrize("place", [0, 1, 7])
def test_texts_that_are_none(server: Served, capfd, place: int, value: Any):
    fields: list[Any] = [PROMPT, *FIELDS]
    fields[place] = value
    if value is None and place:
        return  # empty
    check(server, "Generate", fields, capfd, "expected a text", "“Prompt” is empty")


def test_half_a_character_does_not_lose_the_event(server: Served, capfd):
    """As a browser sends it: an escape of one of a pair."""
    said = drawn(server, "Generate", "half", [f"{PROMPT} \ud83d", *FIELDS])
    assert "Saved as" in said and "Traceback" not in capfd.readouterr().err
