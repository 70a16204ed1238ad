"""Runs of many kinds of pipelines drawn again: the steps asked for, not those that were run."""

import numpy as np
import pytest
import torch
from diffusers import (
    DPMSolverMultistepScheduler,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionInpaintPipeline,
    StableDiffusionPipeline,
    StableDiffusionXLImg2ImgPipeline,
)
from PIL import Image

import heedmap
from heedmap import generate, repeat
from heedmap.errors import ArgumentError

PROMPT = "a red house"


def picture(width: int = 64, height: int = 48, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def check(pipe, folder, *, steps: int, ran: int | None = None, **asked):
    """A run notes the steps that were asked for, and is the same when it is drawn again."""
    run = generate(pipe, PROMPT, seed=3, steps=steps, **asked)
    assert len(run.maps.recording.timesteps) == (ran or steps)
    assert run.settings.steps == steps
    saved = run.save(folder)
    given = {
        name: value
        for name, value in asked.items()
        if isinstance(value, Image.Image | torch.Tensor)
    }
    for missing in given:
        with pytest.raises(ArgumentError):
            repeat(pipe, saved, **{name: value for name, value in given.items() if name != missing})
    found = repeat(pipe, saved, **given)
    assert found.same, str(found)
    assert found.changed == {}
    return run, saved


def test_img2img_with_a_strength_is_repeated(load, tmp_path):
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    image = picture()
    _, saved = check(pipe, tmp_path / "run", steps=4, ran=2, image=image, strength=0.5)
    with pytest.raises(ArgumentError):
        repeat(pipe, saved, image=picture(seed=1))
    assert repeat(pipe, saved, image=image.copy()).same


@pytest.mark.parametrize("strength", [np.float32(0.7), np.float64(0.7)])
def test_numbers_of_numpy_are_saved_as_pythons(load, tmp_path, strength):
    """Ten times the float32 0.7 is 7, and ten times its digits less."""
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    ran = int(10 * float(strength))
    check(pipe, tmp_path / "run", steps=10, ran=ran, image=picture(), strength=strength)


def test_the_pipeline_class_of_the_settings_is_used(load, folder, tmp_path):
    """The folder says `StableDiffusionPipeline`; the run was drawn with another on its parts."""
    image = picture()
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    run = generate(pipe, PROMPT, seed=3, steps=4, image=image, strength=0.5)
    assert run.settings.model == str(folder("sd1"))
    found = repeat(None, run.save(tmp_path / "run"), image=image)
    assert found.same and found.changed == {}


def test_img2img_of_sdxl_is_repeated(load, tmp_path):
    pipe = load("sdxl", StableDiffusionXLImg2ImgPipeline)
    check(pipe, tmp_path / "run", steps=4, ran=2, image=picture(64, 64), strength=0.5)


def test_inpainting_is_repeated(load, tmp_path):
    pipe = load("sd1", StableDiffusionInpaintPipeline)
    mask = Image.fromarray((np.arange(64 * 64).reshape(64, 64) % 64 > 32).astype(np.uint8) * 255)
    images = {"image": picture(64, 64), "mask_image": mask}
    check(pipe, tmp_path / "run", steps=4, ran=3, size=(64, 64), strength=0.75, **images)


def test_denoising_that_ends_early_is_repeated(load, tmp_path):
    pipe = load("sdxl")
    run, _ = check(
        pipe, tmp_path / "run", steps=5, ran=3, denoising_end=0.7, size=(64, 64),
        original_size=(96, 128), crops_coords_top_left=(8, 0),
    )  # fmt: skip
    assert run.settings.arguments["original_size"]["object"] == "tuple"


def test_karras_sigmas_are_repeated(load, tmp_path):
    pipe = load("least")
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(
        pipe.scheduler.config, use_karras_sigmas=True
    )
    run = generate(pipe, PROMPT, seed=3, steps=50, size=(64, 64))
    assert run.settings.steps == 50
    other = load("least")
    found = repeat(other, run)
    assert found.same and "schedulers.scheduler.class" in found.changed


@pytest.mark.parametrize("family", ["lcm", "alpha", "sana15", "sprint", "hunyuan"])
def test_defaults_of_the_model_are_repeated(load, tmp_path, family):
    pipe = load(family)
    small = {"size": (64, 96)} if family in ("alpha", "sprint") else {}
    run = generate(pipe, PROMPT, seed=3, steps=2, **small)
    found = repeat(pipe, run.save(tmp_path / "run"))
    assert found.same and found.run.settings == run.settings


def test_the_length_of_the_text_is_repeated(load, folder, tmp_path):
    """With as many tokens as were asked for, weights and edits act where they did."""
    pipe = load("sigma")
    asked = {"size": (64, 96), "max_sequence_length": 20}
    check(pipe, tmp_path / "run", steps=2, **asked, edits=[heedmap.Reweight("red", 2)])
    pair = heedmap.edit(pipe, "a (red:2) house", "a big house", seed=3, steps=2, **asked)
    found = repeat(None, pair.save(tmp_path / "pair"))
    assert found.same and found.changed == {}
    assert pair.edited.settings.model == str(folder("sigma"))
    assert heedmap.EditResult.load(tmp_path / "pair").edited.settings == pair.edited.settings
    grid = heedmap.grid(pipe, "a red house", weights={"red": [0, 3]}, seeds=3, steps=2, **asked)
    found = repeat(pipe, grid.save(tmp_path / "grid"))
    assert found.same and found.changed == {}


@pytest.fixture
def lora(load, tmp_path):
    """The folder of a LoRA for the family "short"."""
    from peft import LoraConfig
    from peft.utils import get_peft_model_state_dict

    trained = load("short")
    torch.manual_seed(8)
    config = LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
    trained.unet.add_adapter(config)
    weights = get_peft_model_state_dict(trained.unet)
    folder = tmp_path / "lora"
    StableDiffusionPipeline.save_lora_weights(folder, unet_lora_layers=weights)
    return folder


def test_loras_are_noted_with_their_scales(load, tmp_path, lora):
    pipe, bare = load("short"), load("short")
    pipe.load_lora_weights(lora, adapter_name="style")
    run, saved = check(pipe, tmp_path / "run", steps=2, size=(64, 64))
    (noted,) = run.settings.loras
    told = {"name": "style", "part": "unet", "scale": 1.0, "active": True, "fused": False}
    assert noted == told
    found = repeat(bare, saved)
    assert not found.same
    assert found.changed["loras"] == ([noted], [])
    pipe.set_adapters("style", 0.25)
    found = repeat(pipe, saved)
    assert not found.same
    assert found.changed == {"loras": ([noted], [{**noted, "scale": 0.25}])}
    pipe.disable_lora()
    (off,) = generate(pipe, PROMPT, seed=3, steps=1, size=(64, 64)).settings.loras
    assert off["active"] is False


def test_a_fused_lora_is_noted(load, tmp_path, lora):
    pipe = load("short")
    pipe.load_lora_weights(lora, adapter_name="style")
    pipe.fuse_lora()
    run, _ = check(pipe, tmp_path / "run", steps=2, size=(64, 64))
    assert run.settings.loras[0]["fused"] is True
    pipe.unload_lora_weights()
    (left,) = generate(pipe, PROMPT, seed=3, steps=1, size=(64, 64)).settings.loras
    assert left == {"name": "style", "fused": True}


def test_other_weights_give_another_image_with_equal_settings(load):
    pipe = load("sd1")
    run = heedmap.generate(pipe, "a red house", seed=1, steps=2)
    pipe.unet.conv_out.weight.data.mul_(1.5)
    found = heedmap.repeat(pipe, run)
    assert not found.same and not found.changed
