"""`heedmap grid`: what it saves and prints, and what it refuses."""

import pytest

from cli.calling import as_json, bad, files, good, misused
from heedmap.pipelines import editing
from heedmap.results.grids import Grid

GRID = ("grid", "a red house", "--seed", 7, "--steps", 1)


def test_a_grid_is_the_librarys(model, desk):
    printed = good(*GRID, "--weight", "red=0:2:3", "--cross", "0,0.5,1", "--count", 2)
    folder = desk / "outputs" / "grid-a-red-house-7"
    assert list((desk / "outputs").iterdir()) == [folder]
    lines = printed.splitlines()
    assert lines[0] == "outputs/grid-a-red-house-7" and len(lines) == 2 + 18 + 1
    expected = editing.grid(
        model, "a red house", weights={"red": [0.0, 1.0, 2.0]}, cross=[(0, 0), (0, 0.5), (0, 1)],
        seeds=[7, 8], steps=1,
    ).save(desk / "mine")  # fmt: skip
    assert files(expected) == files(folder)
    for file in files(folder):
        assert (expected / file).read_bytes() == (folder / file).read_bytes(), file


def test_json(model, desk, opened):
    targets = ("a red sea", "a blue house")
    asked = (*GRID[:2], *targets, *GRID[2:], "--self", "0,0.5", "--out", "x", "--open")
    found = as_json(*asked)["grid"]
    made = Grid.load("x")
    assert (found["folder"], found["source"], found["sources_drawn"]) == ("x", "a red house", 1)
    assert found["varies"] == {"target": list(targets), "self_attention": [[0, 0], [0, 0.5]]}
    assert [{**cell, "file": ""} for cell in found["cells"]] == [
        {**row, "file": ""} for row in made.rows()
    ]
    for file in [*found["files"].values(), *(cell["file"] for cell in found["cells"])]:
        assert (desk / file).is_file()
    assert opened == [(desk / "x" / "index.html").as_uri()]
    assert "red" in good("inspect", "x/cells/002", "--out", "seen")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--weight", "red=2"],
        ["--batch", "1"],
        ["--weight", "dog=0,1"],
        ["--weight", "red=0,1", "--weight", "red=2"],
        ["--weight", "red=0,1", "--out", "thesis"],
    ],
)
def test_refused_grids_leave_nothing(model, desk, arguments):
    (desk / "thesis").mkdir()
    (desk / "thesis" / "one.txt").write_text("Since …")
    bad(*GRID, *arguments)
    assert [path.name for path in desk.iterdir()] == ["thesis"]


@pytest.mark.parametrize("option", [["--weight", "red"], ["--cross", "0,2"]])
def test_usage_errors(option):
    misused(*GRID, *option)
