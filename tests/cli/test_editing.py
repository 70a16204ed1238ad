"""`heedmap edit`: what it saves and prints, and one sentence for whatever goes wrong."""

import json

import numpy as np
import pytest

from cli.calling import bad, call, files, good
from heedmap.drawing import editing
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair

SWAP = ("edit", "a red house", "a red sea", "--seed", 7, "--steps", 2)


def test_saves_a_pair_and_says_what(model, desk):
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


def test_one_object_of_json_and_several_targets(model, desk):
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


def test_blend_and_weights(model, desk):
    assert good(*SWAP, "--only", "house->sea", "--out", "x", "--quiet") == "x\n"
    assert Pair.load("x").blend is not None
    asked = "--kind", "refine", "--only", "house->sea", "--protect", "red", "--out", "y"
    assert "The mask is where these act: red house→red sea.\n" in good(*SWAP, *asked)
    assert Pair.load("y").about["protect"] == ["red"]
    good("edit", "a (red:3) house", "--seed", 1, "--steps", 2, "--out", "z")
    assert Pair.load("z").about["kind"] == "reweight"


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
        ([*SWAP, "--out", "thesis"], "is not an edit of heedmap: nothing was written"),
    ],
)
def test_one_sentence_and_nothing_written(model, desk, arguments, sentence):
    (desk / "thesis").mkdir()
    (desk / "thesis" / "one.txt").write_text("Since …")
    assert sentence in bad(*arguments)
    assert [p.name for p in desk.iterdir()] == ["thesis"]


def test_usage_errors():
    result = call("edit", "a house", "a sea", "--cross", "2")
    assert result.exit_code == 2
    assert "'2' is no part of a run" in " ".join(result.stderr.split())


def test_an_only_that_never_acted_is_told(model, desk):
    result = call("edit", *SWAP[1:], "--only", "house->sea", "--blend-from", 0.9, "-o", "w", "-q")
    assert (result.exit_code, result.stdout) == (0, "w\n")
    assert result.stderr.startswith("Warning: only='house->sea' kept nothing in place")
    result = call("generate", "a house", "--steps", 1, "--negative", "sea", "--guidance", 1, "-q")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: the negative prompt 'sea' changed nothing, since gui")


def test_a_warning_is_told(model, desk):
    result = call(
        "edit", "a (red:1.000001) house", "--seed", "1", "--steps", "1", "--out", "z", "-q"
    )
    assert (result.exit_code, result.stdout) == (0, "z\n")
    assert result.stderr.startswith("Warning: the edit")
    assert "changed nothing" in result.stderr


def test_every_option_of_the_library(model, desk):
    arguments = ("--words", "sea=0.2", "--words", "a red=0:1", "--only", "house->sea")
    more = ("--threshold", 0.5, "--blend-from", 0, "--keep", "layer,step", "--batch", 2)
    good(*SWAP, *arguments, *more, "--out", "x")
    about = Pair.load("x").about
    assert about["windows"] == {"sea": [0.0, 0.2], "a red": [0.0, 1.0]}
    assert (about["threshold"], about["blend_from"]) == (0.5, 0.0)
    assert Pair.load("x").edited.settings["keep"] == ["layer", "step"]
    free = ("--cross", 0, "--self", 0, "--seed", 2, "--steps", 2)
    good("edit", "a (red:3) house", "--renormalize", *free, "--out", "y")
    assert Pair.load("y").about["renormalize"] is True


# --- grids ------------------------------------------------------------------------------------


GRID = ("edit", "a red house", "--grid", "--seed", 7, "--steps", 1)


def test_a_grid_is_the_librarys(model, desk):
    said = good(*GRID, "--weight", "red=0:2:3", "--cross", "0,0.5,…,1", "--count", 2)
    folder = desk / "outputs" / "grid-a-red-house-7"
    assert list((desk / "outputs").iterdir()) == [folder]
    for line in (
        "outputs/grid-a-red-house-7",
        "the contact sheet",
        "the 2 sources",
        "cell  seed  weight of red  cross",
        "18 edits of “a red house”, up to 9 at once; its picture was computed 2 times.",
    ):
        assert line in said
    mine = editing.grid(
        model, "a red house", weights={"red": [0.0, 1.0, 2.0]}, cross=[(0, 0), (0, 0.5), (0, 1)],
        seeds=[7, 8], steps=1,
    ).save(desk / "mine")  # fmt: skip
    assert files(mine) == files(folder)
    for file in files(folder):
        assert (mine / file).read_bytes() == (folder / file).read_bytes(), file


def test_a_grid_as_one_object_of_json(model, desk):
    targets = ("a red sea", "a blue house")
    said = json.loads(
        good(*GRID[:2], *targets, *GRID[2:], "--self", "0,0.5", "--out", "x", "--json")
    )["grid"]
    made = Grid.load(said["folder"])
    assert (said["folder"], said["source"], said["sources_drawn"]) == ("x", "a red house", 1)
    assert said["varies"] == {"target": list(targets), "self_attention": [[0, 0], [0, 0.5]]}
    assert [{**cell, "file": ""} for cell in said["cells"]] == [
        {**row, "file": ""} for row in made.rows()
    ]
    for file in [*said["files"].values(), *(cell["file"] for cell in said["cells"])]:
        assert (desk / file).is_file()
    # The folder of a grid is replaced by a grid, if that is asked for, and by nothing else.
    other = (*GRID, "--weight", "red=0,2", "--cross", "0", "--out", "x", "--quiet")
    assert "x exists and holds a grid of heedmap: nothing was written" in bad(*other)
    assert good(*other, "--force") == "x\n"
    assert len(Grid.load("x")) == 2
    assert "is not an edit of heedmap" in bad(*SWAP, "--out", "x", "--force")


def test_a_cell_of_a_grid_can_be_inspected(model, desk):
    good(*GRID, "--weight", "red=0,2", "--out", "x")
    assert "red" in good("inspect", "x/cells/002", "--out", "seen")
    assert np.isfinite(Grid.load("x").cells[1].pair.edited.maps["red"].values).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*GRID], "nothing varies in this grid: give several values, as with --weight"),
        ([*GRID, "--weight", "red=2"], "nothing varies in this grid"),
        ([*GRID, "--cross", "0,1"], "the edit would change nothing"),
        ([*GRID, "--weight", "dog=0,1"], "'dog'"),
        ([*GRID, "--weight", "red=0,0"], "twice"),
        ([*GRID, "--weight", "red=0,1", "--weight", "red=2"], "--weight has 'red' twice"),
        (["edit", "a (red:2) house", "--grid", "--weight", "red=0,1"], "has a weight already, in"),
        ([*GRID, "--weight", "red=0,1", "--out", "thesis"], "is not a grid of heedmap: nothing"),
        ([*SWAP, "--cross", "0,0.5"], "--cross has 2 values: add --grid"),
        ([*SWAP, "--self", "0,0.2,…,1"], "--self has 6 values: add --grid"),
        ([*SWAP, "--weight", "red=0,1"], "add --grid, or write the weight into the prompt"),
        ([*SWAP, "--count", "3"], "--count 3 is for a grid: add --grid"),
        ([*SWAP, "--words", "red=0.2", "--words", "red=0.3"], "--words has 'red' twice"),
        ([*SWAP, "--blend-from", "1"], "from 0 to below 1"),
        ([*SWAP, "--threshold", "0.5"], "nothing is blended: pass only"),
    ],
)
def test_grids_in_one_sentence_and_nothing_written(model, desk, arguments, sentence):
    (desk / "thesis").mkdir()
    (desk / "thesis" / "one.txt").write_text("Since …")
    assert sentence in bad(*arguments)
    assert [p.name for p in desk.iterdir()] == ["thesis"]


def test_an_interrupted_grid_leaves_nothing(model, desk, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Grid, "figure", stop)
    result = call(*GRID, "--weight", "red=0,2", "--out", "x")
    assert result.exit_code == 130
    assert list(desk.iterdir()) == []


def test_the_bar_counts_the_steps_of_all_batches(model, monkeypatch):
    from contextlib import contextmanager

    from heedmap.cli import editing as verb

    said = []

    @contextmanager
    def bar(label, *, hidden):
        yield lambda done, total: said.append((done, total))

    monkeypatch.setattr(verb, "progress_bar", bar)
    good(*GRID, "--weight", "red=0:2:3", "--count", 2, "--batch", 3, "--steps", 2, "--out", "x")
    assert said == [(n, 8) for n in range(1, 9)]
