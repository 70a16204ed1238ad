"""Runs of many kinds of pipelines drawn again: the steps asked for, not those that were run."""

import numpy as np
import pytest
import torch
from diffusers import (
    DPMSolverMultistepScheduler,
    PixArtSigmaPAGPipeline,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionInpaintPipeline,
    StableDiffusionPAGPipeline,
    StableDiffusionPipeline,
    StableDiffusionXLImg2ImgPipeline,
)
from diffusers.models.attention_processor import AttnProcessor
from PIL import Image

import heedmap
from families import models
from heedmap import generate, repeat
from heedmap.drawing.generation import generate_batch
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
        with pytest.raises(ArgumentError, match=f"{missing} of this run .* is not in its settings"):
            repeat(pipe, saved, **{name: value for name, value in given.items() if name != missing})
    found = repeat(pipe, saved, **given)
    assert found.same, str(found)
    assert found.changed == {}
    return run, saved


def test_img2img_with_a_strength(load, tmp_path):
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    image = picture()
    _, saved = check(pipe, tmp_path / "run", steps=8, ran=4, image=image, strength=0.5)
    with pytest.raises(ArgumentError, match="the image that was passed is not the one"):
        repeat(pipe, saved, image=picture(seed=1))
    assert repeat(pipe, saved, image=image.copy()).same


@pytest.mark.parametrize("strength", [np.float32(0.7), np.float64(0.7), np.array([0.5])[0]])
def test_a_number_of_numpys_is_one_of_pythons(load, tmp_path, strength):
    """Ten times the float32 0.7 is 7, and ten times its digits less."""
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    ran = int(10 * float(strength))
    check(pipe, tmp_path / "run", steps=10, ran=ran, image=picture(), strength=strength)


def test_the_kind_of_pipeline_that_the_settings_name(load, folder, tmp_path):
    """The folder says `StableDiffusionPipeline`; the run was drawn with another on its parts."""
    image = picture()
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    run = generate(pipe, PROMPT, seed=3, steps=4, image=image, strength=0.5)
    assert run.settings.model == str(folder("sd1"))
    found = repeat(None, run.save(tmp_path / "run"), image=image)
    assert found.same and found.changed == {}


def test_img2img_of_the_larger_model(load, tmp_path):
    pipe = load("sdxl", StableDiffusionXLImg2ImgPipeline)
    check(pipe, tmp_path / "run", steps=6, ran=3, image=picture(64, 64), strength=0.5)


def test_inpainting(load, tmp_path):
    pipe = load("sd1", StableDiffusionInpaintPipeline)
    mask = Image.fromarray((np.arange(64 * 64).reshape(64, 64) % 64 > 32).astype(np.uint8) * 255)
    images = {"image": picture(64, 64), "mask_image": mask}
    check(pipe, tmp_path / "run", steps=4, ran=3, size=(64, 64), strength=0.75, **images)


def test_second_prompts_of_a_batch(load):
    """Each picture's own, where the batch is drawn again as copies of one."""
    pipe = load("sdxl")
    prompts, negatives = [PROMPT, "a big tree", "the cat"], ["a cat", "", "a tree"]
    second = {"prompt_2": prompts, "negative_prompt_2": negatives}
    runs = generate_batch(pipe, prompts, seeds=[1, 2, 3], steps=2, **second)
    for run in runs:
        found = repeat(pipe, run)
        assert found.same and found.changed == {}, str(found)


def test_an_end_before_the_end(load, tmp_path):
    pipe = load("sdxl")
    run, _ = check(
        pipe, tmp_path / "run", steps=5, ran=3, denoising_end=0.7, size=(64, 64),
        original_size=(96, 128), crops_coords_top_left=(8, 0),
    )  # fmt: skip
    assert run.settings.arguments["original_size"]["object"] == "tuple"


def test_karras_sigmas(load, tmp_path):
    pipe = load("short")
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(
        pipe.scheduler.config, use_karras_sigmas=True
    )
    run = generate(pipe, PROMPT, seed=3, steps=50, size=(64, 64))
    assert run.settings.steps == 50
    other = load("short")
    found = repeat(other, run)
    assert found.same and "schedulers.scheduler.class" in found.changed


@pytest.mark.parametrize("family", ["sd2", "turbo", "lcm", "sigma", "alpha"])
def test_what_nobody_said(load, tmp_path, family):
    pipe = load(family)
    small = {"size": (64, 96)} if family == "alpha" else {}
    run = generate(pipe, PROMPT, seed=3, steps=2, **small)
    found = repeat(pipe, run.save(tmp_path / "run"))
    assert found.same and found.run.settings == run.settings


@pytest.mark.parametrize("length", [20, 300])
def test_what_is_told_of_the_text_is_told_again(load, folder, tmp_path, length):
    """With as many tokens as were asked for, weights and edits act where they did."""
    pipe = load("sigma")
    asked = {"size": (64, 96), "max_sequence_length": length}
    check(pipe, tmp_path / "run", steps=3, **asked, edits=[heedmap.Reweight("red", 2)])
    pair = heedmap.edit(pipe, "a (red:2) house", "a big house", seed=3, steps=3, **asked)
    found = repeat(None, pair.save(tmp_path / "pair"))
    assert found.same and found.changed == {}
    assert pair.edited.settings.model == str(folder("sigma"))
    assert heedmap.Pair.load(tmp_path / "pair").edited.settings == pair.edited.settings
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
    assert (noted["name"], noted["part"], noted["rank"]) == ("style", "unet", 2)
    assert (noted["scale"], noted["active"], noted["fused"]) == (1.0, True, False)
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


def test_an_ip_adapter_is_noted(load, tmp_path):
    pipe = load("short")
    models.save_ip_adapter(tmp_path, pipe.unet)
    pipe.load_ip_adapter(
        str(tmp_path), subfolder="models", weight_name="ip-adapter_sd15.safetensors"
    )
    asked = {"ip_adapter_image": picture(32, 32), "size": (64, 64)}
    run, saved = check(pipe, tmp_path / "run", steps=2, **asked)
    assert run.settings.adapters["ip_adapter"]["scale"] == [1.0]
    pipe.set_ip_adapter_scale(0.3)
    found = repeat(pipe, saved, ip_adapter_image=asked["ip_adapter_image"])
    assert not found.same
    assert found.changed == {"adapters.ip_adapter.scale": ([1.0], [0.3])}


def test_what_a_pipeline_was_told_is_noted(load):
    """Options of the pipeline, the configurations of its parts, the layers that PAG perturbs."""
    pipe = load("sd1", StableDiffusionPAGPipeline, pag_applied_layers=["mid"])
    run = heedmap.generate(pipe, "a red house", seed=1, steps=2)
    assert heedmap.repeat(pipe, run).same
    pipe.set_pag_applied_layers(["down_blocks.0"])
    found = heedmap.repeat(pipe, run)
    assert not found.same and "options.pag_applied_layers" in found.changed

    pipe = load("sdxl")
    run = heedmap.generate(pipe, "a red house", seed=1, steps=2)
    pipe.register_to_config(force_zeros_for_empty_prompt=False)
    pipe.vae.register_to_config(scaling_factor=0.3)
    found = heedmap.repeat(pipe, run)
    assert {"options.force_zeros_for_empty_prompt", "configs.vae"} <= found.changed.keys()
    assert not found.same and "do not tell why" not in str(found)


def test_what_a_transformer_was_told_is_noted(load):
    pipe = load("sigma", PixArtSigmaPAGPipeline, pag_applied_layers=["blocks.1"])
    run = heedmap.generate(pipe, "a red house", seed=1, steps=2)
    assert heedmap.repeat(pipe, run).same
    pipe.set_pag_applied_layers(["blocks.2"])
    pipe.transformer.set_attn_processor(AttnProcessor())
    found = heedmap.repeat(pipe, run)
    assert {"options.pag_applied_layers", "attention"} <= found.changed.keys() and not found.same


@pytest.mark.parametrize("family", ["sd1", "sigma"])
def test_other_weights_are_no_setting(load, family):
    pipe = load(family)
    run = heedmap.generate(pipe, "a red house", seed=1, steps=2)
    last = pipe.unet.conv_out if family == "sd1" else pipe.transformer.proj_out
    last.weight.data.mul_(1.5)
    found = heedmap.repeat(pipe, run)
    assert not found.same and not found.changed
    assert "the settings do not tell why" in str(found)
