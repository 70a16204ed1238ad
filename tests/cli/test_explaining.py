"""`heedmap explain`: a page and a file, beside the run; sentences for what is not there."""

import json

import pytest

from cli.calling import bad, files, good, raising
from heedmap import Explanation, edit, generate
from heedmap.drawing import repeating


def test_saved_beside_the_run(model, saved):
    before = files(saved)
    told = good("explain", saved, "--word", "house", "--at", "40,72")
    (folder,) = (saved / "explain").iterdir()
    assert files(folder) == {"explain.json", "image.png", "index.html"}
    assert files(saved) - before == {f"explain/{folder.name}/{name}" for name in files(folder)}
    found = Explanation.load(folder)
    assert folder.name.startswith("house-at-40-72-") and found.about.at == (40, 72)
    lines = told.splitlines()
    assert lines[0].startswith("house at pixel 40,72; ")
    assert lines[-1] == f"How it comes about: {folder / 'index.html'}"
    (row,) = [line for line in lines if line.startswith("house ") and "pixel" not in line]
    assert f"{found.shown.acted[found.about.tokens[0]]:.6g}"[:6] in told and row


def test_as_json_and_where_it_is_asked_for(model, saved, desk):
    asked = ("--layer", "mid", "--head", "1", "--step", "-1", "-o", "why")
    about = json.loads(good("explain", saved, "-w", "#2", "--at", "0,127", *asked, "--json"))
    assert (about["page"], about["file"]) == ("why/index.html", "why/explain.json")
    assert about["folder"] == "why" and about["word"] == "house" and about["warnings"] == []
    assert (about["short"], about["head"], about["step"]) == ("mid 0", 1, 2)
    found = Explanation.load("why")
    assert about["probability"] == found.shown.heads[1].word
    assert about["chosen"] == {"layer": "asked", "head": "asked", "step": "asked"}
    assert "why is not empty" in bad("explain", saved, "-w", "red", "--at", "1,2", "-o", "why")


def test_the_page_is_opened(model, saved, desk, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(
        "heedmap.cli.options.open_in_browser", lambda uri, page: opened.append(page)
    )
    asked = ("-w", "house", "--at", "40,72", "-o")
    good("explain", saved, *asked, "closed")
    assert opened == []
    good("explain", saved, *asked, "opened", "--open")
    assert opened == ["opened/index.html"]


def test_of_an_edit_and_of_a_negative_prompt(model, desk):
    edit(model, "a red house", "a red horse", seed=3, steps=2, negative="a tree").save("pair")
    told = json.loads(good("explain", "pair", "-w", "horse", "--at", "1,2", "--json"))
    assert told["prompt"] == "a red horse" and told["folder"].startswith(
        "pair/explain/horse-at-1-2"
    )
    asked = ("--branch", "negative", "--step", "0")
    told = json.loads(good("explain", "pair", "-w", "tree", "--at", "1,2", *asked, "--json"))
    assert told["prompt"] == "a tree" and told["branch"] == "negative"


def test_a_row_that_an_edit_changed_has_both_columns(model, desk):
    generate(model, "a red (house:3)", seed=3, steps=2).save("run")
    told = good("explain", "run", "-w", "house", "--at", "1,2", "-o", "why", "--json")
    found = Explanation.load(json.loads(told)["folder"])
    lines = good("explain", "run", "-w", "house", "--at", "1,2").splitlines()
    (head,) = [line for line in lines if line.startswith("token")]
    assert head.split() == ["token", "Q·K", "÷√d", "P", "as", "edited", "‖P·V", "W_O‖"]
    (row,) = [line for line in lines if line.startswith("house ") and "pixel" not in line]
    (token,) = found.about.tokens
    wanted = (found.shown.probabilities[token], found.shown.acted[token])
    assert row.split()[3:5] == [f"{one:.6g}" for one in wanted] and wanted[0] != wanted[1]
    (last,) = [line for line in lines if line.startswith("sum ")]
    sums = (sum(found.shown.probabilities), sum(found.shown.acted))
    assert last.split()[1:] == [f"{one:.6g}" for one in sums]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("-w", "cat", "--at", "1,2"), "'cat' is not in the prompt"),
        (("-w", "#7", "--at", "1,2"), "there is no word number 7"),
        (("-w", "#x", "--at", "1,2"), "names no word: expected '#' and its number"),
        (("-w", "house", "--at", "128,0"), "the place 128,0 is outside of the picture"),
        (("-w", "house", "--at", "1"), "--at is '1': expected X,Y in whole pixels"),
        (("-w", "house", "--at", "1,2,3"), "--at is '1,2,3': expected X,Y in whole pixels"),
        (("-w", "house", "--at", "1,2.5"), "--at is '1,2.5': expected X,Y"),
        (
            ("-w", "house", "--at", "1,2", "--layer", "up 9"),
            "--layer is 'up 9': expected the name of one",
        ),
        (
            ("-w", "house", "--at", "1,2", "--step", "3"),
            "--step is 3, and the run has 3 steps: the nea",
        ),
        (
            ("-w", "house", "--at", "1,2", "-l", "mid", "--head", "2"),
            "--head is 2, and mid 0 has 2 heads: the n",
        ),
    ],
)
def test_refused_before_a_model_is_loaded(saved, monkeypatch, asked, said):
    monkeypatch.setattr(repeating, "load_for", raising(AssertionError("loaded")))
    before = files(saved)
    assert said in bad("explain", saved, *asked)
    assert files(saved) == before


def test_what_is_missing_or_leads_elsewhere(model, saved, desk):
    assert "--word is missing" in bad("explain", saved, "--at", "1,2")
    assert "--at is missing" in bad("explain", saved, "-w", "house")
    assert "is not a run, edit or grid" in bad("explain", desk, "-w", "house", "--at", "1,2")
    (desk / "other").mkdir()
    (saved / "explain").symlink_to(desk / "other")
    assert "leads elsewhere" in bad("explain", saved, "-w", "house", "--at", "1,2")
    assert not files(desk / "other")
    assert "--pass is 1, and step 0 has 1 pass: the nearest is 0" in bad(
        "explain", saved, "-w", "house", "--at", "1,2", "--pass", 1, "-o", "x"
    )
    assert not (desk / "x").exists()  # nothing half-written
