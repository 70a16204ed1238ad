"""`heedmap ablate`: what it saves and prints, and what it refuses."""

import json

import pytest

from cli.calling import as_json, bad, call, files, good, misused, raising
from heedmap import Ablation, edit
from heedmap.backends import loading
from heedmap.pipelines import repeating


def test_options_are_passed_on_and_json_is_the_summary(model, saved, desk, opened):
    about = as_json("ablate", saved, "red house", "-o", "without", "--open")
    found = Ablation.load("without")
    assert (about["folder"], about["sheet"]) == ("without", "without/sheet.png")
    assert about["run"] == str(saved) and about["warnings"] == []
    assert {name: about[name] for name in found.summary()} == found.summary()
    assert opened == [(desk / "without" / "sheet.png").as_uri()]
    bad("ablate", saved, "red", "-o", "without")


@pytest.mark.parametrize("word", ["cat", "", "a red house"])
def test_refused_before_a_model_is_loaded(saved, monkeypatch, word):
    monkeypatch.setattr(repeating, "load_for", raising(AssertionError("loaded")))
    before = files(saved)
    bad("ablate", saved, word)
    assert files(saved) == before


def test_folders_without_a_run_are_refused(model, saved, desk):
    misused("ablate", saved)
    bad("ablate", desk, "house")
    edit(model, "a red house", "a red horse", seed=3, steps=2).save("pair")
    bad("ablate", "pair", "red")


def test_the_model_is_the_runs_or_the_one_that_is_named(model, saved, monkeypatch):
    loads: list[tuple] = []
    monkeypatch.setattr(loading, "load", lambda name, **how: loads.append((name, how)) or model)
    noted = json.loads((saved / "run.json").read_text())["settings"]
    good("ablate", saved, "house", "--quiet")
    call("ablate", saved, "house", "--model", "other", "--device", "cuda", "--dtype", "bfloat16")
    assert loads == [
        (noted["model"], {"device": noted["device"], "dtype": noted["dtype"]}),
        ("other", {"device": "cuda", "dtype": "bfloat16"}),
    ]
