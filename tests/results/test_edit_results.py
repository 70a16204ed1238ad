"""A pair: its figures against numbers by hand, its pictures, and its folder."""

from dataclasses import replace

import numpy as np
import pytest
from making import random_edit
from PIL import Image

from heedmap.results.edits import EditResult


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
