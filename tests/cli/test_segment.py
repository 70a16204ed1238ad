"""`heedmap segment`: what it saves and prints, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.calling import error_of, files, run_command, run_json, usage_error_of
from heedmap.results.runs import Run

ALL = {"segment.json", "labels.png", "labels.npy", "sheet.png"}


def test_segment_saves_the_librarys_masks(saved: Path, run: Run):
    printed = run_command("segment", saved)
    folder = saved / "segment" / "all"
    assert printed.splitlines()[0] == str(folder)
    assert files(folder) == ALL | {"masks/1-red-house.png"}
    expected = run.maps.segment()
    assert np.array_equal(np.load(folder / "labels.npy"), expected.labels)
    with Image.open(folder / "masks" / "1-red-house.png") as mask:
        assert np.array_equal(np.asarray(mask), np.where(expected.labels == 1, 255, 0))


def test_options_are_passed_on_and_json_is_the_file(
    saved: Path, run: Run, desk: Path, opened: list[str]
):
    found = run_json("segment", saved, "-w", "#2", "-w", "a", "--threshold", 0.3)
    folder = saved / "segment" / "2-a"
    assert (found["run"], found["folder"], found["threshold"]) == (str(saved), str(folder), 0.3)
    labels = run.maps.segment(["house", "a"], threshold=0.3).labels
    assert [one["name"] for one in found["phrases"]] == ["red house", "a"]
    assert [one["pixels"] for one in found["phrases"]] == [np.sum(labels == n) for n in (1, 2)]
    run_command("segment", saved, "--format", "svg", "--out", "mine", "--open")
    assert opened == [(desk / "mine" / "sheet.svg").as_uri()]


@pytest.mark.parametrize("words", [["hose"], ["red", "house"]])
def test_refused_phrases_write_nothing(saved: Path, words):
    before = files(saved)
    error_of("segment", saved, *(part for word in words for part in ("-w", word)))
    usage_error_of("segment", saved, "--threshold", "2")
    usage_error_of("segment", saved, "-w", "#one")
    assert files(saved) == before
