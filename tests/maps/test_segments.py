"""Labels of every pixel, held against the soft masks and a reader of PNG."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from making import recording
from PIL import Image

from heedmap.errors import ArgumentError, RunError, SelectionError, UnknownWordError
from heedmap.figures import overlays
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.masks import Segments
from heedmap.text.words import TokenTable

PROMPT = "red house next to blue tree at sea"


def maps_of_phrases(prompt=PROMPT, seed=0) -> HeatMaps:
    """Maps of numbers by chance, refined ones among them, and a picture."""
    found = recording(prompt, keep=())
    rng = np.random.default_rng(seed)
    refined = rng.random((8, 8, len(found.positions))).astype(np.float32)
    width, height = found.size
    picture = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    return HeatMaps(replace(found, refined=refined), picture)


def test_every_concept_is_labelled_also_one_that_names_no_object():
    table = TokenTable.of_texts(["house", "with", "red"])
    rng = np.random.default_rng(0)
    found = recording("a red house", keep=())
    kept = found.positions[: len(table.words)]
    arrays = tuple(rng.random((*a.shape[:3], len(kept))).astype(np.float32) for a in found.arrays)
    refined = rng.random((8, 8, len(kept))).astype(np.float32)
    whole = replace(found, table=table, positions=kept, arrays=arrays, refined=refined)
    maps = HeatMaps(whole, Image.new("RGB", found.size))
    assert [phrase[0].text for phrase in table.phrases] == ["house", "red"]
    assert maps.segment().names == ("house", "with", "red")


@pytest.mark.parametrize("threshold", [0.2, 0.5, 1])
def test_a_pixel_has_the_phrase_with_the_greatest_soft_mask(threshold):
    maps = maps_of_phrases()
    found = maps.segment(threshold=threshold)
    assert found.names == ("red house", "blue tree", "sea")
    soft = np.stack([maps[name].soft_mask() for name in found.names])
    for y, x in np.ndindex(found.labels.shape):
        greatest = soft[:, y, x].max()
        first = next(n for n, value in enumerate(soft[:, y, x], 1) if value == greatest)
        assert found.labels[y, x] == (first if greatest >= threshold else 0)
    assert (found.prompt, found.threshold) == (PROMPT, threshold)


def test_threshold_0_labels_every_pixel_with_a_soft_mask():
    maps = maps_of_phrases()
    seen = np.stack([maps[name].soft_mask() for name in ("red house", "sea")]).any(axis=0)
    labels = maps.segment(["red house", "sea"], threshold=0).labels
    np.testing.assert_array_equal(labels > 0, seen)


def test_phrases_are_chosen_by_words_and_numbers():
    maps = maps_of_phrases()
    whole = maps.segment(["tree", "red house"])
    assert whole.names == ("tree", "red house")
    np.testing.assert_array_equal(maps.segment([5, 0]).labels, whole.labels)
    assert maps.segment([5, 0]).names == ("blue tree", "red house")
    one = maps.segment("house")
    np.testing.assert_array_equal(one.mask("house"), maps["house"].mask())
    np.testing.assert_array_equal(maps.refined.segment("house").labels, one.labels)


@pytest.mark.parametrize("query", ["chasing", "dog", 0])
def test_one_segment_equals_the_mask_of_its_map(query):
    """Also of a verb, which is in no phrase."""
    maps = maps_of_phrases("a dog chasing cats")
    heat = maps[query] if isinstance(query, str) else maps.at(query)
    np.testing.assert_array_equal(maps.segment([query]).labels > 0, heat.mask())


def test_saved_files_are_read_back(tmp_path: Path):
    """Also of names that are no file names, and of a phrase without a pixel."""
    labels = np.array([[1, 1, 0], [1, 2, 0]], np.uint8)
    segments = Segments(("a/b", "..", "🏠"), labels)
    folder = segments.save(tmp_path / "x", run="y")
    assert np.array_equal(np.load(folder / "labels.npy"), labels)
    with Image.open(folder / "labels.png") as picture:
        assert np.array_equal(np.asarray(picture), labels)
        colours = np.asarray(picture.convert("RGB"))
    assert not colours[0, 2].any()
    assert np.array_equal(colours[[0, 1], [0, 1]], overlays.hue_colours()[:2])
    content = json.loads((folder / "segment.json").read_text())
    phrases = content["phrases"]
    assert content["run"] == "y" and [one["name"] for one in phrases] == ["a/b", "..", "🏠"]
    assert [one["box"] for one in phrases] == [[0, 0, 2, 2], [1, 1, 1, 1], None]
    assert [one["pixels"] for one in phrases] == [3, 1, 0]
    for number, phrase in enumerate(phrases, 1):
        with Image.open(phrase["file"]) as mask:
            assert np.array_equal(np.asarray(mask), np.where(labels == number, 255, 0))
    with pytest.raises(RunError):
        segments.save(tmp_path / "x")
    with pytest.raises(ArgumentError, match="kind"):
        segments.save(tmp_path / "y", kind="gif")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("phrases", "error"),
    [
        ([], ArgumentError),
        (["red", "house"], ArgumentError),  # of one phrase
        (["cat"], UnknownWordError),
    ],
)
def test_other_phrases_are_refused(phrases, error):
    with pytest.raises(error, match=r"phrases|house|cat"):
        maps_of_phrases().segment(phrases)


def test_segments_need_a_phrase_and_refined_maps():
    maps = maps_of_phrases()
    with pytest.raises(ArgumentError, match="threshold"):
        maps.segment(threshold=1.5)
    with pytest.raises(SelectionError):
        HeatMaps(recording(PROMPT)).segment()
    with pytest.raises(UnknownWordError):
        maps.segment().mask("cat")


def test_maps_of_a_trace_are_segmented_with_their_image():
    maps = maps_of_phrases()
    bare = HeatMaps(maps.recording)
    found = bare.with_image(maps.image).segment().labels
    np.testing.assert_array_equal(found, maps.segment().labels)
    with pytest.raises(ArgumentError):
        bare.with_image(Image.new("RGB", (127, 128)))
