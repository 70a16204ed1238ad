"""A picture looked at by every family: what its model was given, beside diffusers' own noise."""

import warnings
from copy import deepcopy

import numpy as np
import pytest
import torch
from diffusers import (
    ControlNetModel,
    DDPMScheduler,
    FlowMatchEulerDiscreteScheduler,
    StableDiffusionControlNetPipeline,
)
from PIL import Image

from families.checking import denoiser, state_of
from heedmap import locate, repeat
from heedmap.errors import ModelError

PROMPT = "a red house"


def painted(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(3).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def given_to(pipe, run) -> tuple[list[torch.Tensor], list[float]]:
    """The latents and timesteps that the model is given while something runs."""
    samples, timesteps = [], []
    scale = 1000 if hasattr(pipe, "_pack_latents") else 1  # Flux is given a thousandth

    def watch(_, args, kwargs):
        names = ("sample", "timestep") if hasattr(pipe, "unet") else ("hidden_states", "timestep")
        held = {**dict(zip(names, args, strict=False)), **kwargs}
        samples.append(held[names[0]].clone())
        timesteps.append(scale * float(torch.as_tensor(held["timestep"]).flatten()[0]))

    hook = denoiser(pipe).register_forward_pre_hook(watch, with_kwargs=True)
    try:
        run()
    finally:
        hook.remove()
    return samples, timesteps


@torch.no_grad()
def noised(pipe, picture: Image.Image, seed: int, timesteps: list[float]) -> list[torch.Tensor]:
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float() / 127.5 - 1
    clean, config = pipe.vae.encode(pixels).latent_dist.mode(), pipe.vae.config
    clean = (clean - (config.shift_factor or 0)) * config.scaling_factor
    if hasattr(pipe, "_pack_latents"):  # whose noise is that of packed latents
        clean = pipe._pack_latents(clean, *clean.shape)
    generator = torch.Generator().manual_seed(seed)
    each = [(t, torch.randn(clean.shape, generator=generator)) for t in timesteps]
    if type(pipe).__name__ == "CogView4Pipeline":
        # The scheduler shifts the noise of a timestep by the number of positions.
        scheduler, (h, w) = deepcopy(pipe.scheduler), clean.shape[-2:]
        shift = 0.5 + 1.15 * (h * w / 4 / 256) ** 0.5  # of the scheduler's configuration
        levels = [t / 1000 for t in timesteps]
        scheduler.set_timesteps(sigmas=levels, timesteps=timesteps, mu=shift)
        shifted = zip(scheduler.sigmas.tolist(), each, strict=False)
        return [(1 - sigma) * clean + sigma * noise for sigma, (_, noise) in shifted]
    if isinstance(pipe.scheduler, FlowMatchEulerDiscreteScheduler):
        return [(1 - t / 1000) * clean + t / 1000 * noise for t, noise in each]
    scheduler = DDPMScheduler.from_config(pipe.scheduler.config)
    return [scheduler.add_noise(clean, noise, torch.tensor([int(t)])) for t, noise in each]


FLOW = ["sd3", "sd35", "flux", "cogview4"]
OTHERS = ["sd1", "sd2", "lcm", "sdxl", "sigma", "hunyuan"]


@pytest.mark.parametrize("family", [*OTHERS, *FLOW])
def test_locate_gives_the_model_the_noised_image(load, tmp_path, family):
    size = (96, 160)
    pipe, picture, runs = load(family), painted(*size), []
    own, before = pipe.scheduler, state_of(pipe)["processors"]
    levels = [2500 / 3, 500, 500 / 3] if family in FLOW else [833, 500, 166]
    samples, timesteps = given_to(
        pipe,
        lambda: runs.append(locate(pipe, picture, PROMPT, seed=2, steps=3, size=size, keep="all")),
    )
    assert pipe.scheduler is own and state_of(pipe)["processors"] == before
    assert timesteps == pytest.approx(levels)
    for sample, expected in zip(samples, noised(pipe, picture, 2, timesteps), strict=True):
        assert sample.shape == expected.shape  # without guidance: one row
        assert torch.allclose(sample, expected, atol=1e-4)
    (run,) = runs
    assert run.maps.recording.timesteps == pytest.approx(levels)
    assert all(np.isfinite(array).all() for array in run.maps.recording.arrays)
    assert max(np.ptp(array, axis=0).max() for array in run.maps.recording.arrays) > 1e-3
    assert run.image.size == size and np.array_equal(np.asarray(run.image), np.asarray(picture))
    again = repeat(pipe, run.save(tmp_path / "run"))
    assert again.same and again.changed == {}, str(again)


def test_a_model_whose_noise_no_scheduler_adds_is_refused(load):
    pipe, ran = load("sprint"), []
    pipe.transformer.register_forward_pre_hook(lambda *_: ran.append(1))
    with pytest.raises(ModelError), warnings.catch_warnings(action="ignore"):
        locate(pipe, painted(64, 64), PROMPT, seed=2, size=(64, 64))
    assert not ran


def test_locate_passes_a_control_image_on(load, folder):
    control = ControlNetModel.from_unet(load("sd1").unet)
    pipe = load("sd1", StableDiffusionControlNetPipeline, controlnet=control)
    picture, edges = painted(128, 128), painted(128, 128)
    run = locate(pipe, picture, PROMPT, seed=2, steps=2, image=edges)
    assert run.settings.arguments["image"]["size"] == [128, 128]
    assert repeat(pipe, run, image=edges).same
