"""`heedmap grid`: what it saves and prints, and one sentence for whatever goes wrong."""

import json

import numpy as np
import pytest

from cli.calling import bad, call, files, good, raising
from heedmap.drawing import editing
from heedmap.models import pipelines
from heedmap.results.grids import Grid

GRID = ("grid", "a red house", "--seed", 7, "--steps", 1)


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
    assert "is not an edit of heedmap" in bad(
        "edit", "a red house", "a red sea", "--steps", 1, "--out", "x", "--force"
    )


def test_what_was_done_once_is_told_so(model, desk):
    said = good(*GRID, "--weight", "red=0,2", "--cross", "0", "--self", "0")
    assert said.endswith("its picture was computed once.\n")


def test_a_cell_of_a_grid_can_be_inspected(model, desk):
    good(*GRID, "--weight", "red=0,2", "--out", "x")
    assert "red" in good("inspect", "x/cells/002", "--out", "seen")
    assert np.isfinite(Grid.load("x").cells[1].pair.edited.maps["red"].values).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*GRID], "--weight red="),
        ([*GRID, "--weight", "red=2"], "nothing varies in this grid"),
        ([*GRID, "--cross", "0,1"], "the edit would change nothing"),
        ([*GRID, "--weight", "dog=0,1"], "'dog'"),
        ([*GRID, "--weight", "red=0,0"], "twice"),
        ([*GRID, "--weight", "red=0,1", "--weight", "red=2"], "--weight has 'red' twice"),
        (["grid", "a (red:2) house", "--weight", "red=0,1"], "has a weight already, in"),
        ([*GRID, "--weight", "red=0,1", "--out", "thesis"], "is not a grid of heedmap: nothing"),
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

    from heedmap.cli import grids as verb

    said = []

    @contextmanager
    def bar(label, *, hidden):
        yield lambda done, total: said.append((done, total))

    monkeypatch.setattr(verb, "progress_bar", bar)
    good(*GRID, "--weight", "red=0:2:3", "--count", 2, "--batch", 3, "--steps", 2, "--out", "x")
    assert said == [(n, 8) for n in range(1, 9)]


def test_more_cells_than_are_read_back_are_told_before_anything_is_loaded(desk, monkeypatch):
    monkeypatch.setattr(pipelines, "load", raising(AssertionError("it loads")))
    said = bad(*GRID, "--count", 5001, "--weight", "red=0,1")
    assert "this grid would have 10,002 cells: expected at most 10,000; give fewer" in said
    assert list(desk.iterdir()) == []


def test_more_pixels_than_are_read_back_are_told_before_anything_is_drawn(model, monkeypatch):
    monkeypatch.setattr(editing, "draw_edits", raising(AssertionError("it draws")))
    said = bad(*GRID, "a red car", "--count", 1025, "--size", "512x512")
    assert "would have 1,025 cells of 512×512 pixels: expected at most 1,024 of those" in said
    said = bad(*GRID, "a red car", "--count", 9000, "--cross", "0", "--size", "256x256")
    assert "9,000 cells of 256×256 pixels: expected at most 4,096" in said
    said = call(*GRID, "a red car", "--count", 1024, "--size", "512x512").output
    assert "expected at most" not in said
