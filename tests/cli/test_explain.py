"""`heedmap explain`: what it saves and prints, and what it refuses."""

import pytest

from cli.calling import error_of, files, run_command, run_json, usage_error_of
from heedmap import Explanation


def test_an_explanation_is_saved_in_the_runs_folder(model, saved):
    before = files(saved)
    printed = run_command("explain", saved, "--word", "house", "--at", "40,72")
    (folder,) = (saved / "explain").iterdir()
    assert files(folder) == {"explain.json", "image.png", "index.html"}
    assert files(saved) - before == {f"explain/{folder.name}/{name}" for name in files(folder)}
    found = Explanation.load(folder)
    assert folder.name.startswith("house-at-40-72-") and found.report.at == (40, 72)
    p = found.attention.probabilities[found.report.tokens[0]]
    assert f"{p:.6g}" in printed


def test_options_are_passed_on_and_json_is_the_summary(model, saved, desk, opened):
    asked = ("--layer", "mid", "--head", 1, "--step", -1, "-o", "why", "--open")
    about = run_json("explain", saved, "-w", "#2", "--at", "0,127", *asked)
    assert about["folder"] == "why" and about["word"] == "house" and about["warnings"] == []
    assert (about["short"], about["head"], about["step"]) == ("mid 0", 1, 2)
    assert about["probability"] == Explanation.load("why").numbers["word_probabilities"][1]
    assert opened == [(desk / "why" / "index.html").as_uri()]


@pytest.mark.parametrize(
    "asked",
    [
        ("-w", "cat", "--at", "1,2"),
        ("-w", "house", "--at", "1,2", "--head", 9, "-o", "saved/x"),
    ],
)
def test_a_request_that_fits_no_run_writes_nothing(model, saved, asked):
    before = files(saved)
    error_of("explain", saved, *asked)
    assert files(saved) == before


def test_wrong_usage_is_refused(saved):
    usage_error_of("explain", saved, "-w", "house", "--at", "1,2.5")
    usage_error_of("explain", saved, "-w", "house")
