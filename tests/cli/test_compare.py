"""`heedmap compare`: one sheet of several runs, and what it refuses."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import heedmap
from cli.calling import error_of, files, quiet, run_command, run_json
from heedmap.figures.plots import render
from heedmap.pipelines import generation
from heedmap.results.runs import Run


@pytest.fixture(scope="module")
def second_run(random_model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = generation.generate(random_model, "a blue house", seed=4, steps=1, progress=quiet)
    return run.save(tmp_path_factory.mktemp("runs") / "other")


@pytest.fixture
def other(second_run: Path, desk: Path) -> Path:
    return shutil.copytree(second_run, desk / "other")


def test_options_are_passed_on_and_json_names_the_sheet(saved: Path, other: Path):
    asked = ("-w", "red", "-w", "house", "--scale", "word", "--out", "deep/sheet.png")
    found = run_json("compare", saved, other, *asked)
    assert found["file"] == "deep/sheet.png"
    assert found["words"] == ["red", "house"]
    assert [one["run"] for one in found["runs"]] == [str(saved), str(other)]
    expected = heedmap.compare([Run.load(saved), Run.load(other)], ["red", "house"], scale="word")
    with Image.open("deep/sheet.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(render(expected)))


def test_the_sheet_is_written_as_pdf_or_svg(saved: Path, other: Path, desk: Path):
    run_command("compare", saved, other, "--out", "two.pdf")
    assert Path("two.pdf").read_bytes().startswith(b"%PDF")
    printed = run_command("compare", saved, other, "-q")
    assert printed == "outputs/compare-saved-other.png\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["saved"],
        ["saved", "nowhere"],
        ["saved", "other", "-w", "dog"],
        ["saved", "other", "--out", "x.jpg"],
        ["saved", "other", "--out", "saved/run.json/x.png"],
    ],
)
def test_refused_comparisons_write_nothing(saved, other, desk: Path, arguments):
    before = files(desk)
    assert "<" not in error_of("compare", *arguments)  # no object of Python
    assert files(desk) == before
