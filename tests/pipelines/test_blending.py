"""Blends of an edit: outside of the mask the source stays, to the bit of its latents."""

import pytest
import torch
from diffusers import DDIMScheduler, HeunDiscreteScheduler
from torch.nn.functional import interpolate

from heedmap.pipelines.editing import edit


@pytest.mark.parametrize("scheduler", [DDIMScheduler, HeunDiscreteScheduler])
def test_latents_outside_the_mask_equal_the_sources(pipe, scheduler):
    """Also where a step calls the model twice, at the same fraction of the run."""
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
    size = (160, 128)
    after = []
    pair = edit(
        pipe,
        "a red house",
        "a red sea",
        seed=7,
        steps=3,
        only="house->sea",
        size=size,
        blend_from=0.5,
        threshold=0.6,
        preview=after.append,
    )
    assert pair.report.masked_by == "red house→red sea"
    assert pair.blend.shape == size[::-1] and 0 < pair.blend.mean() < 1
    assert pair.report.change.inside.share == pytest.approx(pair.blend.mean(), abs=1e-6)
    assert pair.report.change.outside.mse < pair.report.change.inside.mse
    # Of the steps 0, 1 and 2 only 2 is at 0.5 · 3 or later.
    assert len(after) == 3
    different = [(one[0] != one[1]).any(dim=0) for one in after]
    assert different[0].all() and different[1].all() and not different[2].all()
    large = interpolate(different[2][None, None].float(), size[::-1], mode="nearest")[0, 0] > 0
    assert (large.numpy() == pair.blend).mean() > 0.9
    assert torch.isfinite(after[2]).all()
