"""Public benchmarks: files of their layouts are read, and metrics are those worked out by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTConfig, ViTModel

from evaluate import parse
from evaluation import public_edits, public_masks
from evaluation.public_masks import VOID, Scores
from heedmap.errors import HeedmapWarning

# --- segmentation -----------------------------------------------------------------------------


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """A file of two images of 3×2 pixels, as MATLAB writes it: axes in reverse, references."""
    h5py = pytest.importorskip("h5py", reason="pip install -c constraints.txt -e '.[dev]'")
    path = tmp_path / "gtsegs_ijcv.mat"
    with h5py.File(path, "w") as file:
        tables: dict[str, list] = {"img": [], "gt": [], "id": []}
        for number, synset in enumerate(("n02084071_12", "n02121620_7")):
            image = np.zeros((2, 3, 3), np.uint8)  # 2 rows, 3 columns
            image[0, 2] = (10 * number, 20, 30)
            mask = np.array([[0, 0, 1], [0, 1, 1]], np.uint8)
            letters = np.array([[ord(letter)] for letter in synset], np.uint16)
            layer = file.create_dataset(f"a/{number}", data=mask.T)
            cell = np.array([[layer.ref]], h5py.ref_dtype)
            parts = {"img": image.transpose(2, 1, 0), "gt": cell, "id": letters}
            for name, data in parts.items():
                stored = file.create_dataset(f"b/{name}{number}", data=data)
                tables[name].append([stored.ref])
        for name, references in tables.items():
            file.create_dataset(f"value/{name}", data=np.array(references, h5py.ref_dtype))
    return path


def test_imagenet_segmentation_is_read(imagenet: Path, tmp_path: Path):
    listed = tmp_path / "LOC_synset_mapping.txt"
    listed.write_text("n02084071 dog, domestic dog\nn02121620 cat, true cat\n")
    names = public_masks.read_names(listed)
    first, second = public_masks.read_imagenet(imagenet, names)
    assert (first.name, second.name) == ("dog", "cat")
    assert second.image.size == (3, 2) and second.image.getpixel((2, 0)) == (10, 20, 30)
    assert second.mask.tolist() == [[0, 0, 1], [0, 1, 1]]
    with pytest.raises(SystemExit):
        list(public_masks.read_imagenet(imagenet, {"n02084071": "dog"}))


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """A folder of three images: a cat, a cat with a dog, and a potted plant."""
    folder = tmp_path / "VOC2012"
    for name in ("ImageSets/Segmentation", "JPEGImages", "SegmentationClass"):
        (folder / name).mkdir(parents=True)
    classes = {"cat": [[0, 8], [VOID, 8]], "both": [[0, 8], [12, 8]], "plant": [[16, 0], [0, 0]]}
    for stem, values in classes.items():
        picture = Image.fromarray(np.array(values, np.uint8), mode="P")
        picture.putpalette([value for n in range(256) for value in (n, 0, 0)])
        picture.save(folder / "SegmentationClass" / f"{stem}.png")
        Image.new("RGB", (2, 2), (9, 9, 9)).save(folder / "JPEGImages" / f"{stem}.jpg")
    (folder / "ImageSets" / "Segmentation" / "val.txt").write_text("\n".join(classes))
    return folder


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated:DeprecationWarning")
def test_voc_is_read_where_an_image_shows_one_class(voc: Path, imagenet: Path, tmp_path: Path):
    cat, plant = public_masks.read_voc(voc)
    assert (cat.name, plant.name) == ("cat", "potted plant")
    assert cat.mask.tolist() == [[0, 1], [VOID, 1]]
    assert public_masks.kind_of(voc) == "voc" and public_masks.kind_of(imagenet) == "imagenet"
    with pytest.raises(SystemExit):
        public_masks.kind_of(tmp_path)


def test_accuracy_overlap_and_precision_are_those_by_hand():
    """Object: 2 of 4 pixels, of which one is found beside a wrong one; a fifth pixel is void."""
    scores = Scores()
    mask = np.array([1, 1, 0, 0, VOID])
    values = np.array([0.9, 0.2, 0.6, 0.1, 0.8])
    scores.add(mask, values > 0.5, values)
    figures = scores.figures()
    assert figures["accuracy"] == 2 / 4
    assert figures["miou"] == pytest.approx((1 / 3 + 1 / 3) / 2)
    # Both classes, sorted: 0.9 true (object and background), 0.8 false, 0.6 false, 0.4 true,
    # 0.2 true, then 0.1 false twice: 2/2 for the first two, 3/5 and 4/6.
    ranked = [(0.9, 1), (0.9, 1), (0.8, 0), (0.6, 0), (0.4, 1), (0.2, 1), (0.1, 0), (0.1, 0)]
    found = np.cumsum([true for _, true in ranked])
    expected = np.mean([2 / 2, 2 / 2, found[4] / 5, found[5] / 6])
    assert figures["map"] == pytest.approx(expected)


def test_figures_are_of_all_images_together():
    scores = Scores()
    scores.add(np.array([1, 0]), np.array([True, False]), np.array([1.0, 0.0]))
    scores.add(np.array([1, 0, 0, 0]), np.array([False] * 4), np.array([0.5] * 4))
    figures = scores.figures()
    assert figures["accuracy"] == 5 / 6
    assert figures["miou"] == pytest.approx((4 / 5 + 1 / 2) / 2)
    assert figures["map"] == pytest.approx((1 + 0.5) / 2)


def test_segmentation_of_a_model_is_printed_beside_the_published_rows(embedded: Any, voc: Path):
    image = Image.new("RGB", (128, 128), (200, 200, 200))
    mask = np.zeros((128, 128), np.uint8)
    mask[40:90, 40:90] = 1
    samples = [public_masks.Sample(image, "cat", mask)]
    figures = public_masks.measure(embedded, samples, 0, 2, lambda *_: None)
    assert 0 < figures["plain map"]["accuracy"] < 1 and figures["images"] == 1
    lines = public_masks.table(figures, "voc").splitlines()
    assert len(lines) == 4 + len(public_masks.PUBLISHED["voc"])
    assert any("DAAM" in line and "72.76" in line for line in lines)


# --- edits ------------------------------------------------------------------------------------


@pytest.fixture
def pie(tmp_path: Path) -> Path:
    """A folder of one edit, of an image of 8×6 pixels."""
    folder = tmp_path / "PIE-Bench_v1"
    (folder / "annotation_images" / "1_change").mkdir(parents=True)
    picture = np.full((6, 8, 3), 100, np.uint8)
    Image.fromarray(picture).save(folder / "annotation_images" / "1_change" / "0.png")
    entry = {
        "image_path": "1_change/0.png",
        "original_prompt": "a [cat] in the snow",
        "editing_prompt": "a [dog] in the snow",
        "editing_type_id": "1",
        "blended_word": "cat dog",
        "mask": [10, 3, 18, 2],
    }
    (folder / "mapping_file.json").write_text(json.dumps({"000000000000": entry}))
    return folder


def test_pie_bench_is_read(pie: Path, tmp_path: Path):
    (case,) = public_edits.read(pie)
    assert (case.source, case.target) == ("a cat in the snow", "a dog in the snow")
    inner = np.zeros((4, 6), int)
    inner[0, 1:4] = inner[1, 1:3] = 1  # pixels 10 to 12 and 18, 19, behind the border
    assert case.mask[1:-1, 1:-1].astype(int).tolist() == inner.tolist()
    assert case.mask[0].all() and case.mask[:, 0].all() and case.mask[-1].all()
    with pytest.raises(SystemExit):
        list(public_edits.read(tmp_path))


def test_only_what_is_outside_of_the_mask_counts():
    """Off by 51 of 255 in half of the pixels, of which half are masked: (0.2²) / 4."""
    source = np.full((32, 32, 3), 100, np.uint8)
    edited = source.copy()
    edited[:16] += 51
    mask = np.zeros((32, 32), bool)
    mask[:8] = True
    figures = public_edits.compare(Image.fromarray(source), Image.fromarray(edited), mask)
    assert figures["mse"] == pytest.approx(0.01)
    assert figures["psnr_db"] == pytest.approx(20)
    assert 0 < figures["ssim"] < 1
    same = public_edits.compare(Image.fromarray(source), Image.fromarray(source), mask)
    assert (same["psnr_db"], same["mse"]) == (None, 0) and same["ssim"] == pytest.approx(1)
    whole = np.ones((32, 32), bool)
    assert set(
        public_edits.compare(Image.fromarray(source), Image.fromarray(edited), whole).values()
    ) == {None}


def test_the_structure_distance_is_that_by_hand():
    """Two tokens at a right angle against two alike: similarities 0 and 1, twice of four."""
    a = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    b = torch.tensor([[1.0, 1.0], [3.0, 3.0]])
    assert public_edits.structure_distance(a, b) == pytest.approx(0.5)
    assert public_edits.structure_distance(a, 5 * a) == pytest.approx(0)


def test_keys_are_those_of_the_last_layer():
    config = ViTConfig(
        hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=8,
        patch_size=56, image_size=224,
    )  # fmt: skip
    model = ViTModel(config, add_pooling_layer=False).eval()
    pixels = np.random.default_rng(0).integers(0, 255, (224, 224, 3)).astype(np.uint8)
    keys = public_edits.last_keys(model, Image.fromarray(pixels))
    values = (torch.tensor(pixels).permute(2, 0, 1) / 255).float()
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
    values = (values - mean[:, None, None]) / deviation[:, None, None]
    with torch.no_grad():
        states = model(values[None], output_hidden_states=True).hidden_states
    names = {name: module for name, module in model.named_modules()}
    (norm,) = [m for n, m in names.items() if n.endswith("1.layernorm_before")]
    (key,) = [m for n, m in names.items() if ".1." in f".{n}" and n.endswith((".key", ".k_proj"))]
    expected = key(norm(states[1]))[0]
    torch.testing.assert_close(keys, expected)
    assert keys.shape == (17, 12)


def test_edits_of_a_model_are_measured(embedded: Any, tmp_path: Path):
    """An image of the model's size; the metrics that need models are given."""
    path = tmp_path / "source.png"
    Image.new("RGB", (128, 128), (200, 220, 200)).save(path)
    mask = public_edits.decode_mask([128 * 64, 128 * 32], (128, 128))
    case = public_edits.Case(path, "a red house", "a blue house", mask, "1")
    metrics: Any = {"lpips": lambda a, b: 0.05, "structure": lambda a, b: float(a.size == b.size)}
    with pytest.warns(HeedmapWarning):
        figures = public_edits.measure(embedded, [case], 1, lambda *_: None, metrics, steps=2)
    assert figures["edits"] == 1 and figures["lpips"] == 0.05 and figures["structure"] == 1
    assert figures["psnr_db"] == pytest.approx(-10 * np.log10(figures["mse"]), abs=1e-3)


def test_edits_are_printed_beside_the_published_rows_in_their_units():
    figures = {"structure": 0.01, "psnr_db": 20.0, "lpips": None, "mse": 0.01, "ssim": 0.9}
    lines = public_edits.table({**figures, "edits": 1}).splitlines()
    assert lines[2] == "| heedmap, 1 edits | 10.00 | 20.00 | – | 100.00 | 90.00 |"
    assert "| 11.65 | 27.22 | 54.55 | 32.86 | 84.76 |" in lines[-1]


@pytest.mark.parametrize("line", ["edits --data x --n 3", "segmentation --data x --names y"])
def test_the_commands_take_data(line: str):
    assert parse(line.split()).data == Path("x")
