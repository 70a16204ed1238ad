"""A pair: its figures against numbers by hand, its pictures, and its folder."""

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from making import noise, random_edit
from PIL import Image
from skimage import metrics

from heedmap.io.schemas import to_json
from heedmap.results.edits import EditResult, change_between, similarity

# --- figures ----------------------------------------------------------------------------------


def test_measures_of_change_equal_those_worked_out_by_hand():
    before = Image.new("RGB", (16, 8), (0, 0, 0))
    pixels = np.zeros((8, 16, 3), dtype=np.uint8)
    pixels[:, :4] = (51, 0, 102)  # 0.2, 0, 0.4: the squares' mean is (0.04 + 0.16) / 3
    inside = np.zeros((8, 16), dtype=bool)
    inside[:, :8] = True  # of which half has changed
    change = change_between(before, Image.fromarray(pixels), inside)
    mse = 0.2 / 3 / 2
    assert change.inside.share == 0.5
    assert change.inside.mse == pytest.approx(mse, rel=1e-12)
    assert change.inside.psnr_db == pytest.approx(-10 * math.log10(mse), rel=1e-12)
    assert change.outside.mse == 0
    assert change.outside.psnr_db is None


def test_similarity_equals_scikit_images():
    shape = (64, 300, 3)
    random = np.random.default_rng(7)
    a = random.random(shape)
    b = np.clip(a + random.normal(0, 0.1, shape), 0, 1)
    b[: shape[0] // 2] = a[: shape[0] // 2]
    _, expected = cast(Any, metrics).structural_similarity(
        a, b, data_range=1.0, channel_axis=2, full=True, win_size=7
    )
    np.testing.assert_array_equal(similarity(a, b), expected)  # to the bit: it is noted


def test_equal_images_have_no_change():
    size = (40, 9)
    picture = noise(3, size)
    for inside in (np.ones(size[::-1], dtype=bool), np.zeros(size[::-1], dtype=bool)):
        change = change_between(picture, picture, inside)
        for name, share in (("inside", float(inside.mean())), ("outside", 1 - inside.mean())):
            there = share > 0
            assert to_json(change)[name] == {
                "share": share,
                "mse": 0.0 if there else None,
                "psnr_db": None,
                "ssim": pytest.approx(1) if there else None,
            }


def test_the_difference_is_hot_at_changed_pixels():
    pair = random_edit()
    after = np.asarray(pair.source.image).copy()
    after[100:, 100:] = 255 - after[100:, 100:]
    pair = replace(pair, edited=replace(pair.edited, image=Image.fromarray(after)))
    heat = np.asarray(pair.difference()).astype(int)
    assert len(np.unique(heat[:100].reshape(-1, 3), axis=0)) == 1
    assert heat[100:, 100:].sum(axis=-1).mean() > heat[0, 0].sum() + 200


@pytest.mark.parametrize("blended", [False, True])
def test_a_saved_edit_is_read_back_equal(tmp_path, blended):
    pair = random_edit(blended, "(at sea:2)")
    folder = pair.save(tmp_path / "outputs" / "x")
    here = {p.name for p in folder.iterdir()}
    files = {"source", "edited", "index.html", "sheet.png", "difference.png", "edit.json"}
    assert here == files | ({"blend.png"} if blended else set())
    back = EditResult.load(folder)
    assert back.report == pair.report
    assert (back.blend is None) == (not blended)
    if blended:
        np.testing.assert_array_equal(back.blend, pair.blend)
    for mine, read in ((pair.source, back.source), (pair.edited, back.edited)):
        assert read.settings == mine.settings
        assert np.array_equal(np.asarray(read.image), np.asarray(mine.image))
        for a, b in zip(mine.maps.values(), read.maps.values(), strict=True):
            np.testing.assert_array_equal(a.values, b.values)
