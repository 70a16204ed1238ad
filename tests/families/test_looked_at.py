"""A picture looked at by every family: what its model was given, beside diffusers' own noise."""

import numpy as np
import pytest
import torch
from diffusers import ControlNetModel, DDPMScheduler, StableDiffusionControlNetPipeline
from PIL import Image

from families.checking import denoiser
from heedmap import locate, repeat

PROMPT = "a red house"


def painted(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(3).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def given_to(pipe, run) -> tuple[list[torch.Tensor], list[int]]:
    """The latents and timesteps that the model is given while something runs."""
    samples, timesteps = [], []

    def watch(_, args, kwargs):
        names = ("sample", "timestep") if hasattr(pipe, "unet") else ("hidden_states", "timestep")
        held = {**dict(zip(names, args, strict=False)), **kwargs}
        samples.append(held[names[0]].clone())
        timesteps.append(int(torch.as_tensor(held["timestep"]).flatten()[0]))

    hook = denoiser(pipe).register_forward_pre_hook(watch, with_kwargs=True)
    try:
        run()
    finally:
        hook.remove()
    return samples, timesteps


@torch.no_grad()
def noised(pipe, picture: Image.Image, seed: int, timesteps: list[int]) -> list[torch.Tensor]:
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float() / 127.5 - 1
    clean = pipe.vae.encode(pixels).latent_dist.mode() * pipe.vae.config.scaling_factor
    scheduler, noise = DDPMScheduler.from_config(pipe.scheduler.config), torch.Generator()
    noise.manual_seed(seed)
    return [
        scheduler.add_noise(clean, torch.randn(clean.shape, generator=noise), torch.tensor([t]))
        for t in timesteps
    ]


@pytest.mark.parametrize("family", ["sd1", "sd2", "turbo", "lcm", "sdxl", "sigma", "hunyuan"])
@pytest.mark.parametrize("size", [(128, 128), (96, 160)])
def test_locate_gives_the_model_the_noised_image(load, tmp_path, family, size):
    pipe, picture, runs = load(family), painted(*size), []
    samples, timesteps = given_to(
        pipe, lambda: runs.append(locate(pipe, picture, PROMPT, seed=2, steps=3, size=size))
    )
    assert timesteps == [833, 500, 166]
    for sample, expected in zip(samples, noised(pipe, picture, 2, timesteps), strict=True):
        assert sample.shape == expected.shape  # without guidance: one row
        assert torch.allclose(sample, expected, atol=1e-4)
    (run,) = runs
    assert run.maps.recording.timesteps == (833.0, 500.0, 166.0)
    assert all(np.isfinite(array).all() for array in run.maps.recording.arrays)
    assert run.image.size == size and np.array_equal(np.asarray(run.image), np.asarray(picture))
    again = repeat(pipe, run.save(tmp_path / "run"))
    assert again.same and again.changed == {}, str(again)


def test_locate_passes_a_control_image_on(load, folder):
    control = ControlNetModel.from_unet(load("sd1").unet)
    pipe = load("sd1", StableDiffusionControlNetPipeline, controlnet=control)
    picture, edges = painted(128, 128), painted(128, 128)
    run = locate(pipe, picture, PROMPT, seed=2, steps=2, image=edges)
    assert run.settings.arguments["image"]["size"] == [128, 128]
    assert repeat(pipe, run, image=edges).same
