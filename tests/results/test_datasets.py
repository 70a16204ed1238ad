"""Data sets of saved runs, held against the segments of each run, by readers of each format."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import noisy_run, with_refined
from PIL import Image
from pycocotools.coco import COCO

import heedmap as hm
from heedmap.errors import ArgumentError, RunError, UnknownWordError
from heedmap.results import datasets

PROMPTS = {"a/one": "red house, sea, background", "b": "Sea and a blue  house"}
CLASSES = ["background", "blue house", "red house", "sea"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two runs, and what is left out: without a phrase, within another run, half written."""
    root = tmp_path_factory.mktemp("data") / "runs"
    others = {"c": "at", "b/ablate/run": "a cat", ".one.tmp-12345678": "a dog"}
    for seed, (name, prompt) in enumerate({**PROMPTS, **others}.items()):
        with_refined(noisy_run(prompt, seed)).save(root / name, overlays=False)
    return root


def labels_of(run: hm.Run) -> np.ndarray:
    """The number of the class that each pixel of a run shows."""
    segments = run.maps.segment()
    numbers = [CLASSES.index(" ".join(name.lower().split())) for name in segments.names]
    return np.array([0, *numbers])[segments.labels]


def test_coco_numbers_the_classes_of_all_runs_alike(runs: Path, tmp_path: Path):
    folder = hm.dataset(runs, tmp_path / "x")
    with redirect_stdout(StringIO()):  # it prints what it does
        found = COCO(folder / "annotations.json")
    categories = {number: one["name"] for number, one in found.cats.items()}
    assert categories == dict(enumerate(CLASSES[1:], 1))
    assert [*found.anns] == [1, 2, 3, 4]
    images: list[Any] = [*found.imgs.values()]
    assert {image["run"]: image["prompt"] for image in images} == PROMPTS
    for image in images:
        run = hm.Run.load(runs / image["run"])
        with Image.open(folder / "images" / image["file_name"]) as picture:
            assert picture.tobytes() == run.image.tobytes()
        labels = np.zeros((image["height"], image["width"]), int)
        for one in found.imgToAnns[image["id"]]:
            mask = found.annToMask(one) > 0
            labels[mask] = one["category_id"]
            rows, columns = np.nonzero(mask)
            left, top = int(columns.min()), int(rows.min())
            box = [left, top, int(columns.max()) - left + 1, int(rows.max()) - top + 1]
            assert (one["area"], one["bbox"]) == (len(rows), box)
        assert np.array_equal(labels, labels_of(run))


@pytest.mark.parametrize("format", ["voc", "png"])
def test_label_images_have_the_numbers_of_classes(runs: Path, tmp_path: Path, format):
    folder = hm.dataset(runs, tmp_path / "x", format=format)
    if format == "voc":
        images, masks = folder / "JPEGImages", folder / "SegmentationClass"
        names = (folder / "ImageSets/Segmentation/train.txt").read_text().split()
    else:
        images, masks = folder / "images", folder / "masks"
        names = sorted(path.stem for path in masks.iterdir())
    assert (folder / "classes.txt").read_text().splitlines() == CLASSES
    assert sorted(path.stem for path in images.iterdir()) == names
    for name, run_name in zip(names, PROMPTS, strict=True):
        with Image.open(masks / f"{name}.png") as picture:
            assert np.array_equal(np.asarray(picture), labels_of(hm.Run.load(runs / run_name)))


def test_nouns_merge_phrases_and_words_choose_them(runs: Path, tmp_path: Path):
    hm.dataset(runs, tmp_path / "x", format="png", classes="noun")
    assert (tmp_path / "x" / "classes.txt").read_text() == "background\nhouse\nsea\n"
    hm.dataset(runs, tmp_path / "y", format="png", words=["House"])
    assert (tmp_path / "y" / "classes.txt").read_text() == "background\nhouse\n"
    for path, name in zip(sorted((tmp_path / "y/masks").iterdir()), PROMPTS, strict=True):
        mask = hm.Run.load(runs / name).maps["house"].mask()
        with Image.open(path) as picture:
            assert np.array_equal(np.asarray(picture), mask)


def test_what_gives_no_data_set_writes_nothing(runs: Path, tmp_path: Path, monkeypatch):
    out = tmp_path / "x"
    noisy_run("a house", 5).save(tmp_path / "plain" / "one", overlays=False)
    for folder in ("plain", "missing"):
        with pytest.raises(RunError, match=folder):
            hm.dataset(tmp_path / folder, out)
    with pytest.raises(ArgumentError):
        hm.dataset(runs, out, classes="verb")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnknownWordError, match="tree"):
        hm.dataset(runs, out, words=["house", "tree"])
    monkeypatch.setattr(datasets, "_MOST_CLASSES", 2)
    with pytest.raises(RunError, match="3 classes"):
        hm.dataset(runs, out, format="png")
    assert not out.exists()
