"""Where an edit is let in: the source stays elsewhere, to the bit of its latents."""

import numpy as np
import pytest
import torch
from diffusers import HeunDiscreteScheduler
from making import pixels, random_pipeline

from heedmap.pipelines import blending
from heedmap.pipelines.editing import edit

STEPS = 3


@pytest.fixture(scope="module")
def pipe():
    """One for all: an edit leaves it as it was."""
    return random_pipeline()


def test_what_is_blended_stays_outside_of_the_mask(pipe, monkeypatch):
    def corner(maps, size, threshold):
        mask = torch.zeros(size, dtype=torch.bool)
        mask[: size[0] // 2, : size[1] // 2] = True
        return mask

    seen = []

    def watch(pipe, step, timestep, tensors):
        seen.append(tensors["latents"].clone())
        return tensors

    monkeypatch.setattr(blending, "blend_mask", corner)
    pair = edit(
        pipe, "a red house", "a red sea", seed=7, steps=STEPS, only="house->sea", blend_from=0,
        size=(160, 128), callback_on_step_end=watch,
    )  # fmt: skip
    assert pair.blend.shape == (128, 160)
    assert pair.about.masked_by == "red house→red sea"
    assert pair.blend[:60, :76].all()
    assert not pair.blend[68:].any()
    assert not pair.blend[:, 84:].any()
    assert pair.about.change.inside.share == pytest.approx(pair.blend.mean(), abs=1e-6)
    assert pair.about.change.outside.mse < pair.about.change.inside.mse
    # The far corner is nothing but what the decoder carries over from the rest of the picture.
    free = edit(pipe, "a red house", "a red sea", seed=7, steps=STEPS, size=(160, 128))

    def far(p):
        return np.abs(pixels(p.edited.image) - pixels(p.source.image))[96:, 120:].mean()

    assert far(pair) < far(free) / 2
    assert len(seen) == STEPS


def test_the_blend_of_latents_is_exact(pipe, monkeypatch):
    """Callback's latents are those before the blend; the next step starts from the blended ones."""
    given = []
    blend = blending.blend

    def noted(source, target, mask):
        blended = blend(source, target, mask)
        given.append((source.clone(), target.clone(), mask, blended))
        return blended

    monkeypatch.setattr(blending, "blend", noted)
    pair = edit(
        pipe, "a red house", "a red sea", seed=7, steps=STEPS, only="house->sea", blend_from=0.5
    )
    assert len(given) == 1  # of the steps 0, 1 and 2 only 2 lies at 0.5 · 3 or later
    source, target, mask, blended = given[0]
    assert torch.equal(blended[:, ~mask], source[:, ~mask])
    assert torch.equal(blended[:, mask], target[:, mask])
    assert pair.blend.any()


def test_protected_words_take_from_the_mask(pipe):
    base = {"seed": 7, "steps": STEPS, "only": "house->sea"}
    open_ = edit(pipe, "a red house", "a red sea", **base)
    less = edit(pipe, "a red house", "a red sea", protect="red", threshold=0.6, **base)
    more = edit(pipe, "a red house", "a red sea", threshold=0.6, **base)
    assert less.about.protect == ("red",)
    assert less.blend.sum() < more.blend.sum() < open_.blend.sum()


def test_second_order_schedulers_blend_at_the_same_fraction(pipe, monkeypatch):
    steps = []
    call = blending.Blending.__call__

    def noted(self, state):
        steps.append((state.moment.step, state.moment.steps))
        return call(self, state)

    monkeypatch.setattr(blending.Blending, "__call__", noted)
    heun = random_pipeline()
    heun.scheduler = HeunDiscreteScheduler.from_config(heun.scheduler.config)
    edit(heun, "a house", "a sea", seed=1, steps=STEPS, only="house->sea")
    assert {total for _, total in steps} == {STEPS}
    assert sorted({step for step, _ in steps}) == [0, 1, 2]
