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


def test_options_are_passed_on_and_json_names_the_folder(saved: Path, other: Path, opened):
    asked = ("-w", "red", "-w", "house", "--scale", "word", "--out", "deep/sheet", "--open")
    found = run_json("compare", saved, other, *asked)
    assert (found["folder"], found["runs"]) == ("deep/sheet", [str(saved), str(other)])
    expected = heedmap.compare([Run.load(saved), Run.load(other)], ["red", "house"], scale="word")
    with Image.open("deep/sheet/sheet.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(render(expected)))
    assert opened == [Path("deep/sheet/sheet.png").resolve().as_uri()]


def test_the_sheet_is_written_as_pdf_or_svg(saved: Path, other: Path, desk: Path):
    run_command("compare", saved, other, "--out", "two", "--format", "pdf")
    assert Path("two/sheet.pdf").read_bytes().startswith(b"%PDF")
    printed = run_command("compare", saved, other, "-q")
    assert printed == "outputs/compare-saved-other\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["saved"],
        ["saved", "nowhere"],
        ["saved", "other", "-w", "dog"],
        ["saved", "other", "--out", "saved"],
        ["saved", "other", "--out", "saved/run.json/x"],
    ],
)
def test_refused_comparisons_write_nothing(saved, other, desk: Path, arguments):
    before = files(desk)
    assert "<" not in error_of("compare", *arguments)  # no object of Python
    assert files(desk) == before
