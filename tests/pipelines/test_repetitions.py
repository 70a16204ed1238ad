"""A repetition compared with the saved result."""

import json
from dataclasses import replace

import numpy as np
import pytest
from making import made_pair, made_run
from PIL import Image

from heedmap.pipelines.repeating import compared


def changed(run, pixels: int, by: int):
    """The run with so many pixels of its first row changed by so much in one channel."""
    values = np.asarray(run.image, dtype=int).copy()
    channel = values[0, :pixels, 1]
    channel += np.where(channel >= by, -by, by)
    return replace(run, image=Image.fromarray(values.astype(np.uint8)))


def figures(found):
    return found.same, found.largest, found.differing, found.pixels


def test_the_same():
    assert figures(compared(made_run(), made_run(), {})) == (True, 0, 0, 128 * 128)


@pytest.mark.parametrize(("pixels", "by"), [(1, 1), (5, 40), (128, 3)])
def test_changed_pixels_are_counted(pixels, by):
    run = made_run()
    found = compared(run, changed(run, pixels, by), {"threads": (2, 1)})
    assert figures(found) == (False, by, pixels, 128 * 128)
    assert json.loads(json.dumps(found.to_dict())) == {
        "same": False,
        "largest": by,
        "differing": pixels,
        "pixels": 128 * 128,
        "changed": {"threads": {"noted": 2, "now": 1}},
    }


def test_all_images_count():
    pair = made_pair()
    found = compared(pair, replace(pair, edited=changed(pair.edited, 3, 9)), {})
    assert figures(found) == (False, 9, 3, 2 * 128 * 128)


def test_a_scheduler_does_not_explain_a_difference():
    """The repetition used the saved one."""
    run = made_run()
    other = changed(run, 3, 9)
    plain, scheduler, threads = (
        str(compared(run, other, {name: (1, 2)} if name else {}))
        for name in ("", "schedulers.scheduler.class", "threads")
    )
    assert plain == scheduler != threads


def test_another_size_differs_everywhere():
    run = made_run()
    small = replace(run, image=run.image.resize((64, 64)))
    assert figures(compared(small, run, {})) == (False, 255, 64 * 64, 64 * 64)
