"""What the app calls what Python calls otherwise: by the labels that a visitor reads."""

import json
import re
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from app.serving import EDIT_FIELDS, FIELDS, GRID_FIELDS, PROMPT, Served, dependency, drawn
from heedmap.app.labels import FIELD_LABELS, LABELLED
from heedmap.errors import Either, Is, Named, Value, Written, sentence_of

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


def test_a_label_is_one_fields():
    assert len(set(FIELD_LABELS.values())) == len(FIELD_LABELS)
