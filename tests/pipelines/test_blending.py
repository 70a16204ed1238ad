"""Blends of an edit: outside of the mask the source stays, to the bit of its latents."""

from typing import Any

import pytest
import torch
from diffusers import HeunDiscreteScheduler
from making import random_pipeline
from torch.nn.functional import interpolate

from heedmap.pipelines.editing import edit

PROMPTS = ("a red house", "a red sea")
OPTIONS: dict[str, Any] = {"seed": 7, "steps": 3, "only": "house->sea"}


@pytest.fixture(scope="module")
def pipe():
    """One for all: an edit leaves it as it was."""
    return random_pipeline()


@pytest.mark.parametrize("size", [(128, 128), (160, 128)])
def test_latents_outside_the_mask_equal_the_sources(pipe, size):
    before, after = [], []

    def callback(pipe, step, timestep, tensors):
        before.append(tensors["latents"].clone())
        return tensors

    pair = edit(
        pipe, *PROMPTS, **OPTIONS, size=size, blend_from=0.5, threshold=0.6,
        callback_on_step_end=callback, preview=after.append,
    )  # fmt: skip
    assert pair.report.masked_by == "red house→red sea"
    assert pair.blend.shape == size[::-1] and 0 < pair.blend.mean() < 1
    assert pair.report.change.inside.share == pytest.approx(pair.blend.mean(), abs=1e-6)
    assert pair.report.change.outside.mse < pair.report.change.inside.mse
    # Of the steps 0, 1 and 2 only 2 is at 0.5 · 3 or later.
    different = [(one[0] != one[1]).any(dim=0) for one in after]
    assert different[0].all() and different[1].all() and not different[2].all()
    large = interpolate(different[2][None, None].float(), size[::-1], mode="nearest")[0, 0] > 0
    assert (large.numpy() == pair.blend).mean() > 0.9
    assert torch.equal(before[2][0], after[2][0])


def test_second_order_schedulers_blend_at_the_same_fraction():
    heun, after = random_pipeline(), []
    heun.scheduler = HeunDiscreteScheduler.from_config(heun.scheduler.config)
    pair = edit(heun, *PROMPTS, **OPTIONS, blend_from=0.5, threshold=0.6, preview=after.append)
    assert pair.report.steps == len(after) == 3
    whole = [bool((one[0] != one[1]).any(dim=0).all()) for one in after]
    assert whole == [True, True, False]
