"""How what was drawn again compares with what was saved: figures by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from making import made_pair, made_run
from PIL import Image

from heedmap.drawing.redrawn import compared


def changed(run, pixels: int, by: int):
    """The run with so many pixels of its first row changed by so much in one channel."""
    values = np.asarray(run.image, dtype=int).copy()
    channel = values[0, :pixels, 1]
    channel += np.where(channel >= by, -by, by)
    return replace(run, image=Image.fromarray(values.astype(np.uint8)))


def test_the_same():
    run = made_run()
    found = compared(run, made_run(), {})
    assert (found.same, found.largest, found.differing, found.pixels) == (True, 0, 0, 128 * 128)
    assert str(found) == "Drawn again, it is the same to the byte."
    assert repr(found) == f"<Repetition of {found.run!r}: the same to the byte>"


@pytest.mark.parametrize(("pixels", "by"), [(1, 1), (5, 40), (128, 3)])
def test_how_far_it_is(pixels, by):
    run = made_run()
    found = compared(run, changed(run, pixels, by), {"threads": (2, 1)})
    assert (found.same, found.largest, found.differing) == (False, by, pixels)
    noun = "pixels"
    assert str(found) == (
        f"Drawn again, it differs: {pixels} of 16384 {noun}, by up to {by} of 255."
    )
    assert json.loads(json.dumps(found.to_dict())) == {
        "same": False,
        "largest": by,
        "differing": pixels,
        "pixels": 128 * 128,
        "changed": {"threads": {"noted": 2, "now": 1}},
    }


def test_all_pictures_count():
    pair = made_pair()
    other = replace(pair, edited=changed(pair.edited, 3, 9))
    found = compared(pair, other, {})
    assert (found.differing, found.pixels, found.largest) == (3, 2 * 128 * 128, 9)
    assert "the settings do not tell why" in str(found)
    # A scheduler is set up as noted, and explains nothing.
    found = compared(pair, other, {"schedulers.scheduler.class": ("A", "B")})
    assert "the settings do not tell why" in str(found)


def test_another_size_differs_throughout():
    run = made_run()
    small = replace(run, image=run.image.resize((64, 64)))
    found = compared(small, run, {})
    assert (found.largest, found.differing, found.pixels) == (255, 64 * 64, 64 * 64)
