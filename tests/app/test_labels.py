"""What the app calls what Python calls otherwise: by the labels that a visitor reads."""

import json
import re
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from app.serving import EDIT_FIELDS, FIELDS, GRID_FIELDS, PROMPT, Served, dependency, drawn
from heedmap.app.labels import FIELD_LABELS, LABELLED, sentence_for
from heedmap.errors import ArgumentError, Either, Is, Named, Value, Written, sentence_of
from heedmap.results.amounts import check_axes

SPELLINGS = re.compile(r"\*\*|--\w|\b[a-z_]+=|\b[a-z]+_[a-z]|\bTrue\b|\bNone\b|\bslice\b|\w\(\)")
"""What only a program or a terminal reads."""
# By the label of a field, what it cannot hold; of all others a number is none.
BAD = {"Seed": "x", "Steps": "x", "Guidance": "x", "Threshold": "x", "Seeds": "x", "Width": "x",
       "Height": "x", "Where": "the moon", "Tell apart on the page": ["x"],
       "Renormalize": "x"}  # fmt: skip
TABS = {
    "Generate": [PROMPT, *FIELDS[:8], "house", *FIELDS[9:11], "red", *FIELDS[12:]],
    "Edit": [PROMPT, "a red sea", *EDIT_FIELDS],
    "Draw the grid": [PROMPT, "a red sea", *GRID_FIELDS],
}


def labels_of(server: Served, button: str) -> list[str]:
    """The labels of a tab's fields, as the browser is told them."""
    config = json.loads(server.ask("/config")[1])
    shown = {one["id"]: one["props"].get("label") for one in config["components"]}
    return [shown[one] for one in dependency(server, button)["inputs"]]


@pytest.mark.parametrize("button", TABS)
def test_what_a_field_refuses_is_told_by_its_label(server: Served, button: str):
    labels = labels_of(server, button)
    assert len(labels) == len(TABS[button]) and set(labels) <= {*FIELD_LABELS.values()}
    for place, label in enumerate(labels):
        values = list(TABS[button])
        values[place] = BAD.get(label, 5)
        said = drawn(server, button, f"label{place}", values)
        (told,) = set(re.findall(r'role=\\"alert\\"><p>(.*?)</p>', said))
        assert f"“{label}”" in told and ": expected " in told, (label, told)
        assert not SPELLINGS.search(told), told


@pytest.mark.parametrize(
    ("button", "values", "said"),
    [
        ("Generate", {0: "  "}, "“Prompt” is empty: write what is to be drawn"),
        ("Generate", {0: "a" * 2001}, "“Prompt” has 2001 characters: expected at most 2000"),
        ("Generate", {2: "-1"}, "“Seed” is -1: expected a whole number from 0 to 92233720368"),
        ("Generate", {3: "0"}, "“Steps” is 0: expected a whole number from 1 to 999"),
        ("Generate", {3: "101"}, "“Steps” is 101, more than this server draws: expected 1 to 100"),
        ("Generate", {4: "nan"}, "“Guidance” is 'nan': expected a number"),
        ("Generate", {5: "63", 6: "64"}, "“Width” × “Height” 63×64 does not fit the model: "),
        ("Generate", {5: "2000", 6: "64"}, "“Width” × “Height” is 2000×64, more pixels than "),
        ("Generate", {5: "64"}, "one of “Width” and “Height” is empty: expected both, or none"),
        ("Generate", {9: "tree"}, "'tree' is not in the prompt"),
        ("Generate", {11: "9,9,9,9"}, "the box 9,9,9,9 of 'house' does not lie in the picture of "),
        ("Edit", {1: PROMPT}, "so the edit would change nothing: change a word, or weight one"),
        ("Edit", {3: "2"}, "“Strength: cross-attention” is '2': expected a part of the run"),
        ("Edit", {5: "house"}, "“Only where” is 'house': expected a word, an arrow and a word"),
        ("Edit", {6: "tree"}, "“Protect” is tree, but nothing is blended: pass “Only where” as "),
        ("Edit", {7: "0.5"}, "“Threshold” is 0.5, but nothing is blended: pass “Only where”"),
        ("Edit", {5: "house->sea", 7: "3"}, "“Threshold” is 3: expected a finite number from 0"),
        ("Draw the grid", {1: ""}, "nothing varies in this grid: give several targets, seeds, "),
        ("Draw the grid", {4: "49"}, "a grid of 49 edits is more than this server draws"),
        ("Draw the grid", {3: "red=1,1"}, "the weight of 'red' has 1 twice: expected each value"),
        ("Draw the grid", {5: "0.2,0.2"}, "“Strength: cross-attention” has 0.2 twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_told_by_labels(server: Served, button, values, said: str):
    fields = list(TABS[button] if button != "Generate" else [PROMPT, *FIELDS])
    for place, value in values.items():
        fields[place] = value
    if 11 in values:
        fields[9] = "house"
    told = " ".join(
        re.findall(r'role=\\"alert\\"><p>(.*?)</p>', drawn(server, button, "a", fields))
    )
    capital = said[0].upper() + said[1:]
    assert said in told or capital in told, told
    assert not SPELLINGS.search(told.replace("red=-2:3:6", "")), told


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Named("steps"), "“Steps”"),
        (Named("the seed"), "“Seed”"),
        (Named("the lens"), "the lens"),
        (Written("renormalize", True), "“Renormalize”"),
        (Written("keep", ["layer", "step"]), "“Tell apart on the page”: layer, step"),
        (Written("cross", (0.0, 0.8)), "“Strength: cross-attention”: 0.8"),
        (Written("only", "cat->dog"), "“Only where”: cat->dog"),
        (Is("self_attention", (0.2, 0.4)), "“Self-attention” is 0.2:0.4"),
        (Is("size", (512, 768)), "“Width” × “Height” is 512×768"),
        (Is("protect", []), "“Protect” is empty"),
        (Is("device", "\x1b[31m" * 100), "device is "),
        (Value("seeds", 3), "3"),
        (Either("hm.repeat(pipe)", ("with ", Named("seed"))), "with “Seed”"),
    ],
)
def test_a_part_of_a_sentence_by_its_label(part: Any, said: str):
    told = sentence_of([part], LABELLED)
    assert told == said if "\x1b" not in str(getattr(part, "value", "")) else told.isprintable()
    assert len(told) < 400


def test_a_grid_in_which_nothing_varies_is_told_in_three_ways():
    with pytest.raises(ArgumentError) as error:
        check_axes([range(1)])
    assert str(error.value).endswith("as in weights={'red': [0, 1, 2]}")
    assert sentence_for(error.value).endswith(
        "as in “Weights of a word”: red=-2:3:6, “Strength: cross-attention”: 0,0.5,1 or “Seeds”: 3"
    )


def test_a_label_is_one_fields():
    assert len(set(FIELD_LABELS.values())) == len(FIELD_LABELS)
