"""Labels of every pixel, held against the soft masks, a decoder of COCO and a reader of PNG."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from figure_reading import read_figure
from making import recording
from PIL import Image

from heedmap.errors import ArgumentError, RunError, SelectionError, UnknownWordError
from heedmap.figures import overlays
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.masks import Segments
from heedmap.text.words import TokenTable

PROMPT = "red house next to blue tree at sea"


def made(prompt=PROMPT, seed=0) -> HeatMaps:
    """Maps of numbers by chance, refined ones among them, and a picture."""
    found = recording(prompt, keep=())
    rng = np.random.default_rng(seed)
    refined = rng.random((8, 8, len(found.positions))).astype(np.float32)
    width, height = found.size
    picture = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    return HeatMaps(replace(found, refined=refined), picture)


def drawn(names: tuple[str, ...], shape=(48, 64)) -> Segments:
    """Stripes: one a phrase, the last column of pixels is background."""
    labels = np.zeros(shape, np.uint8)
    width = (shape[1] - 1) // len(names)
    for number in range(len(names)):
        labels[:, number * width : (number + 1) * width] = number + 1
    return Segments(names, labels, Image.new("RGB", shape[::-1], "white"))


def decoded(counts: list[int], size: list[int]) -> np.ndarray:
    """Pixel by pixel, as COCO says of runs: outside first, down the columns."""
    height, width = size
    pixels = [bool(n % 2) for n, count in enumerate(counts) for _ in range(count)]
    assert len(pixels) == height * width
    columns = [pixels[at : at + height] for at in range(0, len(pixels), height)]
    return np.array(columns).T


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
    assert np.array_equal(maps.segment().labels, maps.segment(["house", "with", "red"]).labels)


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.9, 1])
def test_a_pixel_has_the_phrase_with_the_greatest_soft_mask(threshold):
    maps = made()
    found = maps.segment(threshold=threshold)
    assert found.names == ("red house", "blue tree", "sea")
    soft = np.stack([maps[name].soft_mask() for name in found.names])
    for y, x in np.ndindex(found.labels.shape):
        greatest = soft[:, y, x].max()
        first = next(n for n, value in enumerate(soft[:, y, x], 1) if value == greatest)
        assert found.labels[y, x] == (first if greatest >= threshold else 0)
    assert (found.prompt, found.threshold) == (PROMPT, threshold)
    assert not found.labels.flags.writeable and found.labels.dtype == np.uint8


def test_threshold_0_labels_every_pixel_with_a_soft_mask():
    maps = made()
    seen = np.stack([maps[name].soft_mask() for name in ("red house", "sea")]).any(axis=0)
    labels = maps.segment(["red house", "sea"], threshold=0).labels
    np.testing.assert_array_equal(labels > 0, seen)
    still = replace(maps.recording, refined=np.ones_like(maps.recording.refined))
    blank = HeatMaps(still, maps.image).segment(threshold=0)
    assert not blank.labels.any() and blank.shares == (0, 0, 0)


def test_phrases_are_chosen_by_words_and_numbers():
    maps = made()
    whole = maps.segment(["tree", "red house"])
    assert whole.names == ("tree", "red house")
    np.testing.assert_array_equal(maps.segment([5, 0]).labels, whole.labels)
    assert maps.segment([5, 0]).names == ("blue tree", "red house")
    assert maps.segment([" tree ", "red house\n"]).names == whole.names
    one = maps.segment("house")
    np.testing.assert_array_equal(one.mask("house"), maps["house"].mask())
    np.testing.assert_array_equal(maps.refined.segment("house").labels, one.labels)


def test_two_phrases_with_one_text_are_two_segments():
    maps = made("house at sea, house")
    found = maps.segment()
    assert found.names == ("house", "sea", "house")
    np.testing.assert_array_equal(found.mask("house"), np.isin(found.labels, (1, 3)))


def test_coco_annotations_equal_the_labels():
    found = made().segment(threshold=0.3)
    coco = json.loads(json.dumps(found.coco("a.png")))
    height, width = found.labels.shape
    assert coco["images"] == [{"id": 1, "file_name": "a.png", "width": width, "height": height}]
    assert [one["name"] for one in coco["categories"]] == list(found.names)
    again = np.zeros_like(found.labels)
    for one in coco["annotations"]:
        mask = decoded(one["segmentation"]["counts"], one["segmentation"]["size"])
        again[mask] = one["category_id"]
        rows, columns = np.nonzero(mask)
        left, top = int(columns.min()), int(rows.min())
        box = [left, top, int(columns.max()) - left + 1, int(rows.max()) - top + 1]
        assert (one["area"], one["bbox"]) == (len(rows), box)
    np.testing.assert_array_equal(again, found.labels)


def test_run_lengths_equal_those_worked_out_by_hand():
    labels = np.array([[1, 0, 0], [1, 1, 2]], np.uint8)
    found = Segments(("a", "b", "c"), labels).coco()["annotations"]
    assert [one["segmentation"]["counts"] for one in found] == [[0, 2, 1, 1, 2], [5, 1]]
    assert [one["bbox"] for one in found] == [[0, 0, 2, 2], [2, 1, 1, 1]]
    last = Segments(("a", "b", "c"), np.array([[1, 3]], np.uint8)).coco()["annotations"]
    assert [(one["id"], one["category_id"]) for one in last] == [(1, 1), (2, 3)]
    full = Segments(("a",), np.ones((2, 3), np.uint8))
    assert full.coco()["annotations"][0]["segmentation"]["counts"] == [0, 6]


@pytest.mark.parametrize("count", [1, 3, 9, 255])
def test_pixels_of_the_indexed_picture_are_the_labels(count):
    labels = np.arange(300, dtype=int).reshape(15, 20) % (count + 1)
    found = Segments(tuple(f"w{n}" for n in range(count)), labels.astype(np.uint8))
    held = io.BytesIO()
    found.indexed().save(held, "PNG")
    with Image.open(held) as picture:
        assert picture.mode == "P"
        np.testing.assert_array_equal(np.asarray(picture), labels)
        seen = np.asarray(picture.convert("RGB"))
    assert not seen[labels == 0].any()
    hues = overlays.hue_colours()
    for label in range(1, count + 1):
        assert (seen[labels == label] == hues[label - 1]).all()


def test_shares_are_of_the_whole_picture():
    labels = np.array([[1, 1, 0], [1, 2, 0]], np.uint8)
    found = Segments(("a", "b", "c"), labels)
    assert found.shares == (3 / 6, 1 / 6, 0)


def test_saved_files_are_read_back(tmp_path: Path):
    found = drawn(("a/b", "..", "🏠"))
    assert found.save(tmp_path / "x") == tmp_path / "x"
    names = sorted(path.name for path in (tmp_path / "x" / "masks").iterdir())
    assert [name[:2] for name in names] == ["1-", "2-", "3-"]
    np.testing.assert_array_equal(np.load(tmp_path / "x" / "labels.npy"), found.labels)
    with Image.open(tmp_path / "x" / "masks" / names[1]) as mask:
        assert mask.mode == "L"
        np.testing.assert_array_equal(np.asarray(mask), np.where(found.labels == 2, 255, 0))
    with pytest.raises(RunError):
        found.save(tmp_path / "x")
    with pytest.raises(ArgumentError):
        found.save(tmp_path / "y", kind="gif")  # pyright: ignore[reportArgumentType]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_the_json_describes_the_saved_files(tmp_path: Path):
    found = Segments(("a", "b", "a"), np.array([[1, 1, 0], [1, 2, 0]], np.uint8))
    folder = found.save(tmp_path / "x", run="y", kind="pdf")
    about = json.loads((folder / "segment.json").read_text())
    assert (about["run"], about["sheet"]) == ("y", str(folder / "sheet.pdf"))
    phrases = about["phrases"]
    assert [one["name"] for one in phrases] == ["a", "b", "a"]
    assert [one["box"] for one in phrases] == [[0, 0, 2, 2], [1, 1, 1, 1], None]
    assert [one["pixels"] for one in phrases] == [3, 1, 0]
    assert len({one["file"] for one in phrases}) == 3
    assert all(Path(one["file"]).is_file() for one in phrases)


@pytest.mark.parametrize("odd", [[], [""], [3.0], {"a": 1}, [True], [None], 0.5])
def test_odd_phrases_are_refused(odd):
    with pytest.raises((ArgumentError, UnknownWordError)):
        made().segment(odd)


def test_words_of_one_phrase_are_refused_as_segments():
    maps = made()
    with pytest.raises(ArgumentError):
        maps.segment(["red", "house"])
    with pytest.raises(ArgumentError):
        maps.segment(['"red"', '"house"'])  # quotation marks make no phrase of a mask smaller
    with pytest.raises(ArgumentError):
        made("at").segment()
    with pytest.raises(UnknownWordError):
        maps.segment(["cat"])
    with pytest.raises(ArgumentError):
        maps.segment(threshold=1.5)
    with pytest.raises(ArgumentError):
        maps.segment(image=Image.new("RGB", (3, 3)))
    with pytest.raises(SelectionError):
        HeatMaps(recording(PROMPT)).segment()
    with pytest.raises(UnknownWordError):
        drawn(("a",)).mask("cat")


def test_the_sheet_has_each_phrases_share_of_the_image():
    """Of 200 pixels: none, one, two (a hundredth of them), one more, and the rest but 94."""
    labels = np.repeat(np.arange(6, dtype=np.uint8), [94, 0, 1, 2, 1, 102]).reshape(10, 20)
    found = read_figure(Segments(("a", "b", "c", "d", "e"), labels).figure())
    assert [(panel.caption, panel.note) for panel in found.panels] == [
        ("", "47 % background"), ("a", "no pixel"), ("b", "under 1 %"), ("c", "1 %"),
        ("d", "under 1 %"), ("e", "51 %"),
    ]  # fmt: skip


def test_labels_of_a_wide_image_have_its_shape():
    wide = HeatMaps(replace(made().recording, size=(160, 96)))
    found = wide.segment(["house"])
    assert found.labels.shape == (96, 160) and 0 < found.shares[0] < 1
    np.testing.assert_array_equal(found.labels == 1, wide["house"].mask())


@pytest.mark.parametrize("query", ["chasing", "dog", "cats", "dog chasing", '"dog"', 0, 1, 2, 3])
def test_one_segment_equals_the_mask_of_its_map(query):
    """Also of a verb, which is in no phrase."""
    maps = made("a dog chasing cats")
    heat = maps[query] if isinstance(query, str) else maps.at(query)
    np.testing.assert_array_equal(maps.segment([query]).labels > 0, heat.mask())
