"""`heedmap edit`: what it saves and prints, and one sentence for whatever goes wrong."""

import json

import pytest
import typer
from test_cli import bad, call, desk, files, good, model, random_model  # noqa: F401

from heedmap.cli import options
from heedmap.pairs import Pair

SWAP = ("edit", "a red house", "a red sea", "--seed", 7, "--steps", 2)


@pytest.mark.parametrize(
    ("text", "window"), [("0.8", (0, 0.8)), ("0", (0, 0)), ("0.2:0.6", (0.2, 0.6)), ("0:1", (0, 1))]
)
def test_windows(text, window):
    assert options.parse_window(text) == window


@pytest.mark.parametrize("text", ["", "x", "0.2:", ":", "nan", "0.8:0.2", "1.1", "-0.1", "0:1:2"])
def test_what_is_no_window(text):
    with pytest.raises(typer.BadParameter, match="is no part of a run"):
        options.parse_window(text)


def test_saves_a_pair_and_says_what(model, desk):  # noqa: F811
    said = good(*SWAP)
    folder = desk / "outputs" / "a-red-sea-7"
    assert list((desk / "outputs").iterdir()) == [folder]
    pair = Pair.load(folder)
    assert pair.about["cross"] == [0.0, 0.8]
    assert {"sheet.png", "difference.png", "pair.json", "source/image.png"} <= files(folder)
    for line in (
        "outputs/a-red-sea-7",
        "“a red house”: 128×128, seed 7, 2 steps",
        "inside of the changed words",
        "Replace: 'house' became 'sea'",
        "The rules acted at 14 sites",
    ):
        assert line in said


def test_one_object_of_json_and_several_targets(model, desk):  # noqa: F811
    targets = ("a blue house", "a (red:2) house")
    said = json.loads(
        good(
            *("edit", "a red house", *targets, "--seed", 3, "--steps", 2, "--size", "128x96"),
            *("--cross", "0:0.5", "--self", "0", "--out", "mine", "--json"),
        )
    )
    assert [one["edited"] for one in said["edits"]] == list(targets)
    for one in said["edits"]:
        assert one["about"]["cross"] == [0, 0.5]
        assert one["about"]["self_sites"] == 0
        assert one["size"] == [128, 96]
        assert Pair.load(desk / one["folder"]).about == one["about"]
        assert (desk / one["files"]["sheet"]).is_file()
    assert len(list((desk / "mine").iterdir())) == 2


def test_blend_and_weights(model, desk):  # noqa: F811
    assert good(*SWAP, "--only", "house->sea", "--out", "x", "--quiet") == "x\n"
    assert Pair.load("x").blend is not None
    good(*SWAP, "--kind", "refine", "--only", "house->sea", "--protect", "red", "--out", "x")
    assert Pair.load("x").about["protect"] == ["red"]
    good("edit", "a (red:3) house", "--seed", 1, "--steps", 2, "--out", "y")
    assert Pair.load("y").about["kind"] == "reweight"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["edit", "a red house"], "the same words and the same weights"),
        ([*SWAP, "--only", "dog->sea"], "'dog'"),
        ([*SWAP, "--only", "house"], "is no swap"),
        ([*SWAP, "--protect", "red"], "pass only as well"),
        (["edit", "a house", "a red sea", "--kind", "replace"], "use refine"),
        (["edit", "a (house:2", "a sea"], "is not closed"),
        (["edit", "", "a sea"], "has no words"),
        ([*SWAP, "--out", "thesis"], "is not an edit of heedmap; choose another --out"),
    ],
)
def test_one_sentence_and_nothing_written(model, desk, arguments, sentence):  # noqa: F811
    (desk / "thesis").mkdir()
    assert sentence in bad(*arguments)
    assert [p.name for p in desk.iterdir()] == ["thesis"]


def test_usage_errors():
    result = call("edit", "a house", "a sea", "--cross", "2")
    assert result.exit_code == 2
    assert "'2' is no part of a run" in " ".join(result.stderr.split())


def test_a_warning_is_told(model, desk):  # noqa: F811
    result = call(
        "edit", "a (red:1.000001) house", "--seed", "1", "--steps", "1", "--out", "z", "-q"
    )
    assert (result.exit_code, result.stdout) == (0, "z\n")
    assert result.stderr.startswith("Warning: the edit")
    assert "changed nothing" in result.stderr
