"""Guides in each family: the loss falls, or the call is refused before its first step."""

import numpy as np
import pytest

import heedmap as hm
from families.checking import assert_restored, state_of
from families.models import TABLE
from heedmap.errors import HeedmapError

REFUSED = {
    "pix2pix": "its model is given the latents of an image, too",
    "inpainting": "its model is given those of an image and a mask, too",
    "upscaler": "its model is given those of an image, too",
    "kontext": "positions of a reference image stand beside those of the image",
    "klein_images": "the same",
    "dev2_image": "the same",
    "qwen_edit": "the same",
    "qwen21_images": "the same",
}
"""The families whose latents cannot be changed, with the reasons."""


def generate(pipe, row, guide=()):
    return hm.generate(pipe, "a red dog", guide=guide, **row.options())


@pytest.mark.parametrize("family", TABLE)
def test_a_guide_lowers_the_loss_or_is_refused(family, load):
    pipe = load(family)
    row = TABLE[family]
    guide = hm.Separate("red", "dog", target=0.0, step_size=0.1, iterations=2, end=0.5)
    plain = generate(pipe, row)
    before = state_of(pipe)
    if family in REFUSED:
        with pytest.raises(HeedmapError, match="guide"):
            generate(pipe, row, [guide])
        assert_restored(pipe, before)
        return
    content = hm.Separate("red", "dog", target=1.0, end=0.5)
    measured = generate(pipe, row, [content])
    run = generate(pipe, row, [guide])
    assert_restored(pipe, before)
    assert np.array_equal(np.asarray(plain.image), np.asarray(measured.image))
    for one, other in zip(plain.maps.recording.arrays, measured.maps.recording.arrays, strict=True):
        assert np.array_equal(one, other)
    (first, *_), (last, *_) = run.guide_report.before[0], run.guide_report.after[0]
    assert first == pytest.approx(measured.guide_report.after[0][0], rel=1e-3)
    assert last < first
    assert run.guide_report.passes == 2
    assert len(run.guide_report.after[0]) == len(run.maps.recording.timesteps)
    assert not np.array_equal(np.asarray(plain.image), np.asarray(run.image))
