"""Guides in each family: the loss falls, or the call is refused."""

import numpy as np
import pytest
from diffusers import FirstBlockCacheConfig

import heedmap as hm
from families.checking import assert_restored, state_of
from families.models import TABLE
from heedmap.errors import HeedmapError

# A guide without effect measures the losses of a plain run.
pytestmark = pytest.mark.filterwarnings("ignore:a guide changed nothing")

REFUSED = (
    "pix2pix", "inpainting", "upscaler", "kontext", "klein_images", "dev2_image", "qwen_edit",
    "qwen21_images", "sprint",
)  # fmt: skip
"""The families whose model is given more than the latents: those of other images, or a mask."""


def generate(pipe, family, *targets):
    guide = [hm.Separate("red", "dog", target=target, step_size=0.1) for target in targets]
    edits = [hm.Reweight("red", 2)]
    return hm.generate(pipe, "a red dog", guide=guide, edits=edits, **TABLE[family].options())


@pytest.mark.parametrize("family", [name for name in TABLE if name not in REFUSED])
def test_a_guide_lowers_the_loss_and_its_passes_are_not_recorded(family, load):
    """Edits act in its passes, as in those of the pipeline."""
    pipe = load(family)
    plain = generate(pipe, family)
    before = state_of(pipe)
    with pytest.warns(hm.HeedmapWarning, match="guide"):
        content = generate(pipe, family, 1.0)
    run = generate(pipe, family, 0.0)
    assert_restored(pipe, before)
    assert np.array_equal(np.asarray(plain.image), np.asarray(content.image))
    for one, other in zip(plain.maps.recording.arrays, content.maps.recording.arrays, strict=True):
        assert np.array_equal(one, other)
    (first, *_), (last, *_) = run.guide_report.before[0], run.guide_report.after[0]
    assert first == pytest.approx(content.guide_report.after[0][0], rel=1e-3)
    assert last < first
    assert run.guide_report.passes == 2
    assert not np.array_equal(np.asarray(plain.image), np.asarray(run.image))


@pytest.mark.parametrize("family", REFUSED)
def test_a_model_that_is_given_more_than_the_latents_is_refused(family, load):
    pipe = load(family)
    generate(pipe, family)
    before = state_of(pipe)
    with pytest.raises(HeedmapError, match="guide"):
        generate(pipe, family, 0.0)
    assert_restored(pipe, before)


def test_a_model_with_a_cache_is_refused(load):
    """The passes of a guide would fill it."""
    pipe = load("schnell")
    pipe.transformer.enable_cache(FirstBlockCacheConfig(threshold=0.1))
    with pytest.raises(HeedmapError, match="cache"):
        generate(pipe, "schnell", 0.0)
