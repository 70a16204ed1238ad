"""`heedmap compare`: one sheet of several runs, and one sentence for whatever goes wrong."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import heedmap
from cli.calling import bad, files, good, quiet, raising
from heedmap.drawing import generation
from heedmap.results.runs import Run


@pytest.fixture(scope="module")
def another(random_model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    drawn = generation.generate(random_model, "a blue house", seed=4, steps=1, progress=quiet)
    return drawn.save(tmp_path_factory.mktemp("runs") / "other")


@pytest.fixture
def other(another: Path, desk: Path) -> Path:
    return shutil.copytree(another, desk / "other")


def test_compare_draws_one_sheet(saved: Path, other: Path, desk: Path):
    lines = good("compare", saved, other).splitlines()
    assert lines[0] == "outputs/compare-saved-other.png"
    assert [line.split()[0] for line in lines[2:4]] == ["a", "a"]
    assert lines[2].startswith("a red house, seed 3, 3 steps  house  ")
    assert lines[-1] == "Shares of attention, averaged over all layers, heads and steps of a run."
    expected = heedmap.compare([Run.load(saved), Run.load(other)])
    with Image.open(lines[0]) as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(expected.image()))
    assert good("compare", saved, other, "-q") == "outputs/compare-saved-other-2.png\n"
    assert {p.name for p in desk.iterdir()} == {"saved", "other", "outputs"}


def test_a_picture_of_an_edit_is_named_after_its_edit(saved: Path, desk: Path):
    for edit, side in (("a-blue-cat", "source"), ("a-blue-cat", "edited")):
        shutil.copytree(saved, desk / edit / side)
    both = ("a-blue-cat/source", "a-blue-cat/edited")
    assert good("compare", *both, "-q") == (
        "outputs/compare-a-blue-cat-source-a-blue-cat-edited.png\n"
    )


def test_compare_chosen_words(saved: Path, other: Path, run: Run):
    arguments = ("-w", "red", "-w", "house", "--scale", "word", "--out", "deep/sheet.png")
    about = json.loads(good("compare", saved, other, *arguments, "--json"))
    assert (about["file"], about["scale"]) == ("deep/sheet.png", "word")
    assert about["words"] == ["red", "house"]
    first, second = about["runs"]
    assert (first["run"], second["run"]) == (str(saved), str(other))
    assert second["label"] == "a blue house, seed 4, 1 step"
    assert second["words"]["red"] is None
    heat = run.maps["house"]
    assert first["words"]["house"]["most"] == pytest.approx(heat.values.max(), abs=1e-6)
    assert tuple(first["words"]["house"]["peak"]) == heat.peak
    expected = heedmap.compare([Run.load(saved), Run.load(other)], ["red", "house"], scale="word")
    with Image.open("deep/sheet.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(expected.image()))
    before = Path("deep/sheet.png").read_bytes()
    good("compare", other, saved, "--out", "deep/sheet.png")
    assert Path("deep/sheet.png").read_bytes() != before
    said = good("compare", saved, other, "-w", "red")
    (missing,) = (line for line in said.splitlines() if line.startswith("a blue house"))
    assert missing.split()[-4:] == ["red", "-", "-", "-"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["saved"], "1 run cannot be compared: expected two"),
        (["saved", "nowhere"], "nowhere/run.json is missing"),
        (["saved", "other", "-w", "dog"], "'dog' is not in the prompt"),
        (["saved", "other", "--out", "x.jpg"], "x.jpg is not a name for a figure: expected a file"),
        (["saved", "other", "--out", "saved"], "saved is not a name for a figure"),
        (["saved", "other", "--out", "saved/run.json/x.png"], "saved/run.json"),
    ],
)
def test_compare_says_what_is_wrong_and_writes_nothing(saved, other, desk: Path, arguments, part):
    before = files(desk)
    assert part in bad("compare", *arguments)
    assert files(desk) == before


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_that_go_round_in_circles(saved: Path, desk: Path):
    """Before Python 3.13 `Path.resolve` raises a RuntimeError for them."""
    os.symlink("two", "one")
    os.symlink("one", "two")
    for folders in (("one", saved), (saved, "one/run")):
        said = bad("compare", *folders)
        assert said.startswith("Error: ") and said.count("\n") == 1
    bad("compare", saved, saved, "--out", "one/x.png")
    assert not Path("outputs").exists()


def test_compare_saves_figures_for_papers(saved: Path, other: Path, desk: Path):
    figure = heedmap.compare([Run.load(saved), Run.load(other)])
    assert good("compare", saved, other, "--format", "svg", "-q") == (
        "outputs/compare-saved-other.svg\n"
    )
    assert Path("outputs/compare-saved-other.svg").read_bytes() == figure.data("svg")
    good("compare", saved, other, "--out", "two.pdf")
    assert Path("two.pdf").read_bytes() == figure.data("pdf")
    said = bad("compare", saved, other, "--out", "two.pdf", "--format", "svg")
    assert "two.pdf is not a name for the figure: expected a file that ends in .svg" in said


def test_compare_writes_whole_or_not_at_all(saved: Path, other: Path, desk: Path, monkeypatch):
    good("compare", saved, other, "--out", "sheet.png")
    before = Path("sheet.png").read_bytes()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(Path, "write_bytes", raising(full))
    again = ("compare", saved, other, "-w", "a", "--out")
    said = "cannot be written (no space left on device)"
    assert f"sheet.png {said}" in bad(*again, "sheet.png")
    assert f"deep/other.png {said}" in bad(*again, "deep/other.png")
    assert Path("sheet.png").read_bytes() == before
    assert files(desk / "deep") == set()


def test_compare_loads_no_model_and_no_torch(saved: Path, other: Path):
    code = f"""
import sys
from heedmap.cli import app
for arguments in (
    ["compare", {str(saved)!r}, {str(other)!r}, "-q"],
    ["inspect", {str(saved)!r}, "-w", "red", "--over", "steps", "-q"],
):
    try:
        app(arguments)
    except SystemExit as stop:
        assert not stop.code, stop.code
assert not {{"torch", "diffusers", "transformers", "matplotlib.pyplot"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
