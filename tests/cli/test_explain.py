"""`heedmap explain`: what it saves and prints, and what it refuses."""

import pytest

from cli.calling import as_json, bad, files, good, misused
from heedmap import Explanation, edit


def test_an_explanation_is_saved_in_the_runs_folder(model, saved):
    before = files(saved)
    printed = good("explain", saved, "--word", "house", "--at", "40,72")
    (folder,) = (saved / "explain").iterdir()
    assert files(folder) == {"explain.json", "image.png", "index.html"}
    assert files(saved) - before == {f"explain/{folder.name}/{name}" for name in files(folder)}
    found = Explanation.load(folder)
    assert folder.name.startswith("house-at-40-72-") and found.report.at == (40, 72)
    (row,) = [
        line for line in printed.splitlines() if line.startswith("house ") and "at" not in line
    ]
    p = found.attention.probabilities[found.report.tokens[0]]
    assert f"{p:.6g}" in row


def test_options_are_passed_on_and_json_is_the_summary(model, saved, desk, opened):
    asked = ("--layer", "mid", "--head", 1, "--step", -1, "--pass", 0, "-o", "why", "--open")
    about = as_json("explain", saved, "-w", "#2", "--at", "0,127", *asked)
    assert (about["page"], about["file"]) == ("why/index.html", "why/explain.json")
    assert about["folder"] == "why" and about["word"] == "house" and about["warnings"] == []
    assert (about["short"], about["head"], about["step"]) == ("mid 0", 1, 2)
    assert about["probability"] == Explanation.load("why").numbers["word_probabilities"][1]
    assert opened == [(desk / "why" / "index.html").as_uri()]


def test_edits_and_negative_prompts_are_explained(model):
    edit(model, "a red house", "a red horse", seed=3, steps=2, negative="a tree").save("pair")
    found = as_json("explain", "pair", "-w", "horse", "--at", "1,2")
    assert found["prompt"] == "a red horse"
    assert found["folder"].startswith("pair/explain/horse-at-1-2")
    asked = ("--branch", "negative", "--step", "0")
    found = as_json("explain", "pair", "-w", "tree", "--at", "1,2", *asked)
    assert found["prompt"] == "a tree" and found["branch"] == "negative"


@pytest.mark.parametrize(
    "asked",
    [
        ("-w", "cat", "--at", "1,2"),
        ("-w", "house", "--at", "128,0"),
        ("-w", "house", "--at", "1,2", "--step", "3"),
        ("-w", "house", "--at", "1,2", "--pass", 1, "-o", "saved/x"),
    ],
)
def test_a_request_that_fits_no_run_writes_nothing(model, saved, asked):
    before = files(saved)
    bad("explain", saved, *asked)
    assert files(saved) == before


def test_wrong_usage_is_refused(saved):
    misused("explain", saved, "-w", "house", "--at", "1,2.5")
    misused("explain", saved, "-w", "#x", "--at", "1,2")
    misused("explain", saved, "-w", "house")
    misused("explain", saved, "--at", "1,2")
