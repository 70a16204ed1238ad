"""`heedmap ablate`: what it saves and prints, and what it refuses."""

import pytest

from cli.calling import error_of, files, run_json
from heedmap import Ablation
from heedmap.io.schemas import to_json


def test_options_are_passed_on_and_json_has_the_agreement(model, saved, desk, opened):
    about = run_json("ablate", saved, "red house", "-o", "without", "--open")
    found = Ablation.load("without")
    assert about["folder"] == "without"
    assert about["word"] == "red house" and about["agreement"] == to_json(found.agreement)
    assert about["verdict"] == {way: found.verdict(way) for way in found.without}
    assert opened == [(desk / "without" / "index.html").as_uri()]
    error_of("ablate", saved, "red", "-o", "without")


@pytest.mark.parametrize("word", ["cat", "", "a red house"])
def test_words_are_refused_before_a_model_is_loaded(saved, word):
    before = files(saved)
    assert "absent" not in error_of("ablate", saved, word, "--model", "absent")
    assert files(saved) == before


def test_the_model_that_is_named_is_loaded_in_place_of_the_runs(saved):
    assert "absent" in error_of("ablate", saved, "house", "--model", "absent")


def test_attention_is_removed_at_the_sites_that_the_flags_select(model, saved):
    about = run_json("ablate", saved, "house", "--layers", "up", "--heads", "0,1", "--steps", "1:")
    edit = Ablation.load(about["folder"]).without["attention"].settings.edits[-1]
    assert (edit.layers, edit.heads, edit.steps) == (("up",), (0, 1), "1:")
