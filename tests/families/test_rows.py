"""One picture, or one noise, for a source and its edits: all of them start from the same latents.

Pipelines differ in what they make of one picture for several prompts; what the model is given first
is held against what it is given when it draws the source alone.
"""

import numpy as np
import pytest
import torch
from diffusers import (
    StableDiffusionAdapterPipeline,
    StableDiffusionControlNetInpaintPipeline,
    StableDiffusionControlNetPipeline,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionXLInpaintPipeline,
)

import heedmap
from families import models
from families.checking import denoiser
from families.models import mask, picture

SOURCE = "a red house"
SAME = "a red at"
INPAINTED = {"image": picture(128, 128), "mask_image": mask(128, 128)}
PART = {**INPAINTED, "strength": 0.6}
CONTROL = picture(128, 128).rotate(90)
STARTED = {"image": picture(128, 128), "strength": 0.6}
NOISE = {"latents": torch.randn(1, 4, 16, 16, generator=torch.manual_seed(0))}


def controlled(kind, nets):
    def make(load):
        net = models.controlnet(load("sd1").unet)
        return load("sd1", kind, controlnet=[net] * nets if nets > 1 else net)

    return make


def adapted(adapters):
    def make(load):
        one = models.t2i_adapter()
        adapter = [one] * adapters if adapters > 1 else one
        return load("sd1", StableDiffusionAdapterPipeline, adapter=adapter)

    return make


def of(family, *kind, **more):
    return lambda load: load(family, *kind, **more)


PIPELINES = {
    "img2img": (of("sd1", StableDiffusionImg2ImgPipeline), STARTED),
    "inpainting": (of("inpainting"), INPAINTED),
    "SDXL": (of("sdxl", StableDiffusionXLInpaintPipeline), PART),
    "two nets' in a list": (
        controlled(StableDiffusionControlNetInpaintPipeline, 2),
        {**PART, "image": [picture(128, 128)], "control_image": [CONTROL] * 2},
    ),
    "a net": (controlled(StableDiffusionControlNetPipeline, 1), {"image": CONTROL}),
    "pix2pix": (of("pix2pix"), {"image": picture(128, 128)}),
    "upscaler": (of("upscaler"), {"image": picture(32, 32)}),
    "an adapter": (adapted(1), {"image": picture(128, 128), "size": (128, 128)}),
    "two adapters": (
        adapted(2),
        {
            "image": [CONTROL, picture(128, 128)],
            "size": (128, 128),
            "adapter_conditioning_scale": [0.5, 0.7],
        },
    ),
    "noise": (of("sd1"), NOISE),
}


def given_first(pipe, draw):
    """What the model is given in its first pass (B, C, h, w), and what was drawn."""
    seen = []
    model = denoiser(pipe)
    handle = model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((args or [kwargs["hidden_states"]])[0].clone()),
        with_kwargs=True,
    )
    try:
        drawn = draw()
    finally:
        handle.remove()
    return seen[0], drawn


@pytest.mark.filterwarnings("ignore:The decode_latents method is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:the ControlNet reads")
@pytest.mark.parametrize("name", list(PIPELINES))
def test_edits_start_from_the_noise_of_their_source(load, name):
    make, given = PIPELINES[name]
    pipe = make(load)
    pipe.set_progress_bar_config(disable=True)
    how = {"seed": 3, "steps": 2, **given}

    first, run = given_first(pipe, lambda: heedmap.generate(pipe, SOURCE, **how))
    together, pairs = given_first(pipe, lambda: heedmap.edit(pipe, SOURCE, [SAME, "a at"], **how))
    branches = len(first)  # of one picture
    rows = together.unflatten(0, (branches, 3))
    for row in range(3):
        torch.testing.assert_close(rows[:, row], first, rtol=0, atol=1e-5)
    drawn = np.asarray(run.image, int)
    assert np.abs(np.asarray(pairs[0].source.image) - drawn).max() <= 1
    # In batches of two the same: a picture is given once, however many are drawn at a time.
    again = heedmap.edit(pipe, SOURCE, [SAME, "a at"], batch=2, **how)
    for one, other in zip(pairs, again, strict=True):
        assert np.abs(np.asarray(one.edited.image, int) - np.asarray(other.edited.image)).max() <= 1
