"""`heedmap segment`: what it saves and prints, and one sentence for whatever goes wrong."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.calling import PROMPT, bad, files, good, raising
from heedmap import generate
from heedmap.cli import segmenting
from heedmap.files import kinds
from heedmap.files.destinations import check_folder
from heedmap.maps.segments import Segments
from heedmap.results.runs import Run

ALL = {"segment.json", "labels.png", "labels.npy", "coco.json", "sheet.png"}


def test_segment_saves_all_that_it_says(saved: Path, run: Run):
    said = good("segment", saved)
    folder = saved / "segment" / "all"
    assert said.splitlines()[0] == str(folder)
    assert files(folder) == ALL | {"masks/1-red-house.png"}
    assert check_folder(folder, kinds.SEGMENTS, force=True) == files(folder)
    expected = run.maps.segment()
    assert np.array_equal(np.load(folder / "labels.npy"), expected.labels)
    with Image.open(folder / "labels.png") as picture:
        assert np.array_equal(np.asarray(picture), expected.labels)
    with Image.open(folder / "masks" / "1-red-house.png") as mask:
        assert np.array_equal(np.asarray(mask), np.where(expected.labels == 1, 255, 0))
    assert json.loads((folder / "coco.json").read_text()) == expected.coco()
    with Image.open(folder / "sheet.png") as sheet:
        assert np.array_equal(np.asarray(sheet), np.asarray(expected.sheet()))
    assert f"{100 * (expected.labels == 1).mean():.1f} %" in said and "background" in said


def test_segment_tells_its_phrases_as_json(saved: Path, run: Run):
    told = json.loads(good("segment", saved, "-w", "#2", "-w", "a", "--threshold", 0.3, "--json"))
    folder = saved / "segment" / "2-a-from-0-3"
    assert json.loads((folder / "segment.json").read_text()) == told
    assert (told["run"], told["folder"], told["threshold"]) == (str(saved), str(folder), 0.3)
    assert [(one["name"], one["label"]) for one in told["phrases"]] == [("red house", 1), ("a", 2)]
    labels = run.maps.segment(["house", "a"], threshold=0.3).labels
    for one in told["phrases"]:
        rows, columns = np.nonzero(labels == one["label"])
        assert one["pixels"] == len(rows) > 0
        left, top, width, height = one["box"]
        assert (left, top) == (columns.min(), rows.min())
        assert (left + width - 1, top + height - 1) == (columns.max(), rows.max())
        assert Path(one["file"]).is_file()


def test_a_threshold_of_0_is_one(saved: Path, run: Run):
    told = json.loads(good("segment", saved, "--threshold", "0", "--json"))
    assert told["threshold"] == 0
    assert np.array_equal(
        np.load(Path(told["folder"]) / "labels.npy"), run.maps.segment(threshold=0).labels
    )


def test_an_empty_phrase_is_told(saved: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    empty = replace(run.maps.segment(), names=("red house", "snow"))
    monkeypatch.setattr("heedmap.maps.heatmaps.segmented", lambda *_: empty)
    said = good("segment", saved)
    assert "no pixel" in said and "Nothing of the picture is of snow." in said
    with Image.open(saved / "segment" / "all" / "masks" / "2-snow.png") as mask:
        assert not np.asarray(mask).any()


def test_segment_writes_where_its_user_says(saved: Path, desk: Path, monkeypatch):
    (desk / "home").mkdir()
    (saved / "segment").symlink_to(desk / "home")
    assert "segment is a link: name a folder with --out" in bad("segment", saved)
    assert os.listdir(desk / "home") == []
    opened: list[str] = []
    monkeypatch.setattr(segmenting, "open_in_browser", lambda address, _: opened.append(address))
    said = good("segment", saved, "--out", "mine", "--format", "svg", "--open", "-q")
    assert said == "mine\n" and opened == [(desk / "mine" / "sheet.svg").as_uri()]
    assert check_folder(desk / "mine", kinds.SEGMENTS, force=True) == files(desk / "mine")
    assert "mine exists and holds masks of a run" in bad("segment", saved, "--out", "mine")
    (desk / "mine" / "notes.txt").write_text("mine")
    good("segment", saved, "--out", "mine", "--force")
    assert files(desk / "mine") == ALL | {"notes.txt", "masks/1-red-house.png"}


def test_segment_writes_whole_or_not_at_all(saved: Path, desk: Path, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(Segments, "coco", raising(full))
    said = bad("segment", saved, "--out", "new")
    assert "new could not be written (no space left on device): nothing was saved" in said
    assert {path.name for path in desk.iterdir()} == {"saved"}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["-w", "hose"], "'hose' is not in the prompt: "),
        (["-w", "#9"], "there is no word number 9"),
        (["-w", "#one"], "'#one' names no word: expected '#' and its number"),
        (["-w", "red", "-w", "house"], "'red' and 'house' are of one phrase: expected phrases"),
        (["--threshold", "2"], "--threshold is 2: expected a finite number from 0 to 1"),
    ],
)
def test_segment_says_what_is_wrong_and_writes_nothing(saved: Path, arguments, part):
    before = files(saved)
    assert part in bad("segment", saved, *arguments)
    assert files(saved) == before and not (saved / "segment").exists()


def test_segment_of_a_run_without_refined_maps(run: Run, desk: Path):
    older = replace(run.maps.recording, refined=None)
    replace(run, maps=replace(run.maps, recording=older)).save(desk / "older")
    assert "there are no refined maps" in bad("segment", "older")
    assert not (desk / "older" / "segment").exists()


def test_masks_of_concepts_go_beside_those_of_the_prompt(model, desk: Path):
    run = generate(model, PROMPT, seed=3, steps=1, concepts=["sky", "cat"])
    assert run.concepts is not None
    run.save(desk / "sought")
    for asked, name in (
        ((), "all-concepts"),
        (("-w", "sky"), "sky-concepts"),
        (("-w", "sky", "--threshold", 0.3, "--format", "svg"), "sky-concepts-from-0-3-svg"),
    ):
        folder = Path("sought", "segment", name)
        assert good("segment", "sought", "--concepts", *asked, "-q") == f"{folder}\n"
    found = np.load(desk / "sought" / "segment" / "all-concepts" / "labels.npy")
    assert np.array_equal(found, run.concepts.segment().labels)
    good("segment", "sought")
    assert {path.name for path in (desk / "sought" / "segment").iterdir()} == {
        "all", "all-concepts", "sky-concepts", "sky-concepts-from-0-3-svg",
    }  # fmt: skip
