"""`heedmap edit` and `heedmap grid`: what they save and print, and what they refuse."""

import json

import numpy as np
import pytest
from PIL import Image

from cli.calling import error_of, files, run_command, run_json, usage_error_of
from heedmap.pipelines import editing
from heedmap.results.edits import EditResult
from heedmap.results.grids import Grid

SWAP = ("edit", "a red house", "a red sea", "--seed", 7, "--steps", 2)


def test_an_edit_equals_the_librarys(model, desk):
    windows = ("--cross-replace", "0.2:0.6", "--self-replace", 0.5)
    printed = run_command(*SWAP, *windows, "--renormalize")
    folder = desk / "outputs" / "a-red-sea-7"
    expected = editing.edit(
        model,
        "a red house",
        "a red sea",
        seed=7,
        steps=2,
        cross_replace=(0.2, 0.6),
        self_replace=0.5,
        renormalize=True,
    ).save(desk / "mine")
    assert files(folder) == files(expected)
    for name in files(folder):
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name
    assert printed.startswith("outputs/a-red-sea-7\n")


def test_several_targets_are_saved_each_in_its_folder(model, desk):
    found = run_json("edit", "a house", "a tree", "a sea", "--steps", 1, "--seed", 1, "-o", "x")
    assert [one["folder"] for one in found["edits"]] == ["x/a-tree-1", "x/a-sea-1"]
    assert [one["settings"]["prompt"] for one in found["edits"]] == ["a tree", "a sea"]
    assert [one["report"]["kind"] for one in found["edits"]] == ["replace"] * 2


def test_a_users_image_is_edited(model, desk):
    Image.fromarray(np.full((96, 200, 3), 90, np.uint8)).save("photo.png")
    run_json(*SWAP, "--image", "photo.png", "--out", "x")
    given = EditResult.load("x").edited.settings.input_image
    assert given is not None and given.size == (200, 96)


@pytest.mark.parametrize(
    "arguments",
    [
        [*SWAP, "--only", "cat->sea"],
    ],
)
def test_refused_edits_leave_nothing(model, desk, arguments):
    error_of(*arguments)
    assert list(desk.iterdir()) == []


def test_wrong_usage_of_edit_is_refused():
    usage_error_of(*SWAP, "--cross-replace", "0.9:0.1")
    usage_error_of(*SWAP, "--image", "none.png")


GRID = ("grid", "a red house", "--steps", 1)


def test_a_grid_equals_the_librarys(model, desk):
    windows = ("--cross-replace", "0,0.5")
    printed = run_command(*GRID, "--weights", "red=0,2", *windows, "--seeds", "7,8")
    folder = desk / "outputs" / "grid-a-red-house-7"
    assert printed.splitlines()[0] == "outputs/grid-a-red-house-7"
    expected = editing.grid(
        model,
        "a red house",
        weights={"red": [0.0, 2.0]},
        cross_replace=[(0, 0), (0, 0.5)],
        seeds=[7, 8],
        steps=1,
    ).save(desk / "mine")
    assert files(expected) == files(folder)
    for file in files(folder):
        assert (expected / file).read_bytes() == (folder / file).read_bytes(), file


def test_json_of_a_grid_names_its_cells_and_files(model, desk, opened):
    targets = ("a red sea", "a blue house")
    asked = (*GRID[:2], *targets, *GRID[2:], "--self-replace", "0,0.5", "--out", "x", "--open")
    found = run_json(*asked, "--seeds", 7)["grid"]
    made = Grid.load("x")
    assert (found["folder"], found["report"]["source"]) == ("x", "a red house")
    assert found["cells"] == json.loads(json.dumps(made.rows()))
    assert all((desk / "x" / cell["file"]).is_file() for cell in found["cells"])
    assert opened == [(desk / "x" / "index.html").as_uri()]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--weights", "dog=0,1"],
        ["--weights", "red=0,1", "--out", "thesis"],
    ],
)
def test_refused_grids_leave_nothing(model, desk, arguments):
    (desk / "thesis").mkdir()
    (desk / "thesis" / "one.txt").write_text("Since …")
    error_of(*GRID, *arguments)
    assert [path.name for path in desk.iterdir()] == ["thesis"]


def test_an_edit_acts_at_the_sites_that_the_flags_select(model):
    sites = ("--layers", "up,down*", "--heads", 0, "--at-steps", ":1")
    about = run_json(*SWAP, "--self-replace", 0, *sites)
    options = about["edits"][0]["report"]["options"]
    assert [options[name] for name in ("layers", "heads", "at_steps")] == [
        ["up", "down*"],
        [0],
        ":1",
    ]
