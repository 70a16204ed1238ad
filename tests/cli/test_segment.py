"""`heedmap segment`: what it saves and prints, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.calling import PROMPT, as_json, bad, files, good, misused
from heedmap import generate
from heedmap.results.runs import Run

ALL = {"segment.json", "labels.png", "labels.npy", "coco.json", "sheet.png"}


def test_segment_saves_the_librarys_masks(saved: Path, run: Run):
    printed = good("segment", saved)
    folder = saved / "segment" / "all"
    assert printed.splitlines()[0] == str(folder)
    assert str(folder / "masks" / "1-red-house.png") in printed
    assert files(folder) == ALL | {"masks/1-red-house.png"}
    expected = run.maps.segment()
    assert np.array_equal(np.load(folder / "labels.npy"), expected.labels)
    with Image.open(folder / "labels.png") as picture:
        assert np.array_equal(np.asarray(picture), expected.labels)
    with Image.open(folder / "masks" / "1-red-house.png") as mask:
        assert np.array_equal(np.asarray(mask), np.where(expected.labels == 1, 255, 0))
    assert json.loads((folder / "coco.json").read_text()) == expected.coco()
    assert f"{100 * (expected.labels == 1).mean():.1f} %" in printed


def test_options_are_passed_on_and_json_is_the_file(
    saved: Path, run: Run, desk: Path, opened: list[str]
):
    found = as_json("segment", saved, "-w", "#2", "-w", "a", "--threshold", 0.3)
    folder = saved / "segment" / "2-a-threshold-0-3"
    assert found.pop("warnings") == []
    assert json.loads((folder / "segment.json").read_text()) == found
    assert (found["run"], found["folder"], found["threshold"]) == (str(saved), str(folder), 0.3)
    labels = run.maps.segment(["house", "a"], threshold=0.3).labels
    assert [one["name"] for one in found["phrases"]] == ["red house", "a"]
    assert [one["pixels"] for one in found["phrases"]] == [np.sum(labels == n) for n in (1, 2)]
    asked = ("--threshold", 0, "--format", "svg", "--out", "mine", "--open", "-q")
    assert good("segment", saved, *asked) == "mine\n"
    assert (desk / "mine" / "sheet.svg").is_file()
    assert opened == [(desk / "mine" / "sheet.svg").as_uri()]


def test_concepts_are_segmented(model, saved: Path):
    generate(model, PROMPT, seed=3, steps=1, concepts=["sky", "cat"]).save("sought")
    found = as_json("segment", "sought", "-w", "sky", "--concepts")
    assert found["folder"] == "sought/segment/sky-concepts"
    assert [one["name"] for one in found["phrases"]] == ["sky"]
    bad("segment", saved, "--concepts")


@pytest.mark.parametrize("words", [["hose"], ["#9"], ["red", "house"]])
def test_refused_phrases_write_nothing(saved: Path, words):
    before = files(saved)
    bad("segment", saved, *(part for word in words for part in ("-w", word)))
    misused("segment", saved, "--threshold", "2")
    misused("segment", saved, "-w", "#one")
    assert files(saved) == before
