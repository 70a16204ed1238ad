"""What cannot be recorded: named, and refused before sampling."""

import warnings

import diffusers
import numpy as np
import pytest
import torch
from diffusers import (
    DreamLiteUNetModel,
    StableDiffusionPipeline,
    UNet2DConditionModel,
    UNetMotionModel,
    WanTransformer3DModel,
)

import heedmap as hm
from families import models
from families.checking import BOTH, count_passes, paint
from families.models import TABLE, mask, picture
from heedmap.backends.registry import check_served
from heedmap.errors import ArgumentError, HeedmapError, HeedmapWarning, ModelError, TraceError
from heedmap.recording.tracing import trace

PROMPT = "a red house"

# --- models ---


def video():
    transformer = WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=8,
        freq_dim=8,
        ffn_dim=8,
        num_layers=1,
    )
    parts = dict.fromkeys(("text_encoder", "tokenizer", "vae"))
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler()
    return diffusers.WanPipeline(scheduler=scheduler, transformer=transformer, **parts)


def with_unet(change):
    """Stable Diffusion 1 with another object in place of its UNet."""

    def make():
        pipe = models.sd1()
        pipe.unet = change(pipe.unet)
        return pipe

    return make


UNSERVED = {
    "WanTransformer3DModel": video,
    "StableDiffusionPipeline has no": with_unet(lambda unet: None),
    "DataParallel": with_unet(torch.nn.DataParallel),
    "UNetMotionModel": with_unet(UNetMotionModel.from_unet2d),
    "UNet2DConditionModel": lambda: models.sd1().unet,
}


@pytest.mark.parametrize("name", UNSERVED)
def test_what_is_not_served_is_refused_by_name(name):
    with pytest.raises(ModelError, match=name):
        trace(UNSERVED[name]())


class Timed(UNet2DConditionModel):
    """A subclass that neither builds its layers nor orders its inputs in its own way."""

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


class Swapped(UNet2DConditionModel):
    def forward(self, encoder_hidden_states, sample, timestep, **kwargs):
        return super().forward(sample, timestep, encoder_hidden_states, **kwargs)


def test_a_subclass_is_served_only_if_it_is_built_and_called_like_its_class():
    pipe = models.sd1()
    plain = hm.generate(pipe, PROMPT, seed=1, steps=1)
    pipe.unet.__class__ = Timed
    run = hm.generate(pipe, PROMPT, seed=1, steps=1)
    assert np.array_equal(plain.maps["house"].values, run.maps["house"].values)
    # Of the same layers: two latents stand side by side in DreamLite's, and its blocks are its own.
    for kind in (Swapped, DreamLiteUNetModel):
        pipe.unet.__class__ = kind
        with pytest.raises(ModelError):
            trace(pipe)


# --- pipelines ---


@pytest.mark.parametrize(
    ("family", "kind", "reason"),
    [
        ("sd1", "StableDiffusionPanoramaPipeline", "views"),
        ("sd1", "StableDiffusionAttendAndExcitePipeline", "processors"),
        ("sd1", "TextToVideoZeroPipeline", "processors"),
        ("sd3", "StableDiffusion3PAGPipeline", "perturbs"),
        ("zimage", "ZImageOmniPipeline", "beside"),
        ("qwen", "QwenImageLayeredPipeline", "layers"),
    ],
)
def test_pipelines_that_have_no_map_of_their_image_are_refused(load, family, kind, reason):
    pipe = load(family)
    pipe.__class__ = type("Own", (getattr(diffusers, kind),), {})  # also a subclass
    with pytest.raises(ModelError, match=reason):
        check_served(pipe)


class Pooled(StableDiffusionPipeline):
    def encode_prompt(self, *args, **kwargs):
        states, negative = super().encode_prompt(*args, **kwargs)
        return states, states[:, 0], negative


def test_prompts_in_an_unknown_encoded_form_are_refused(load):
    pipe = load("sd1")
    pipe.__class__ = Pooled
    passes = count_passes(pipe)
    with pytest.raises(HeedmapError):
        hm.generate(pipe, PROMPT, seed=1, steps=2)
    assert not passes


class Passing(StableDiffusionPipeline):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)


def test_arguments_that_a_pipeline_does_not_take_are_refused(load):
    """A call that passes on its arguments takes those of its base."""
    hm.generate(load("sd1", Passing), PROMPT, seed=1, steps=1, eta=0.5)
    started = diffusers.StableDiffusionImg2ImgPipeline
    for pipe, name, given in (
        (load("sd1", Passing), "etas", {"etas": 1}),
        (load("sd1", started), "width", {"size": (64, 64), "image": picture(64, 64)}),
        (load("lcm"), "negative_prompt", {"negative": "blurry"}),
        (load("klein"), "negative", {"negative": "blurry"}),
    ):
        passes = count_passes(pipe)
        with pytest.raises(HeedmapError, match=name):
            hm.generate(pipe, PROMPT, seed=1, steps=1, **given)
        assert not passes
    with pytest.raises(ArgumentError, match="blend"):
        hm.edit(load("sprint"), PROMPT, "a red tree", only="house->tree")


def test_qwen_image_edit_needs_an_image_and_its_plus_one_prompt(load):
    one, several = load("qwen_edit"), models.qwen_edit(diffusers.QwenImageEditPlusPipeline)
    with pytest.raises(ArgumentError, match="image"):
        hm.generate(one, PROMPT, seed=1, steps=1)
    passes, given = count_passes(several), {"image": picture(64, 64), "steps": 1}
    for act in (
        lambda: hm.generate(several, PROMPT, seed=[1, 2], **given),
        lambda: hm.edit(several, PROMPT, "a red tree", seed=1, **given),
    ):
        with pytest.raises(ModelError, match="one prompt"):
            act()
    assert not passes


def test_flux_needs_true_guidance_for_a_negative_prompt(load):
    pipe, more = load("flux"), {"seed": 1, "steps": 1, "size": (48, 80)}
    with pytest.warns(HeedmapWarning, match="true_cfg_scale"):
        hm.generate(pipe, PROMPT, negative="at sea", **more)
    with pytest.raises(TraceError, match="true_cfg_scale"):
        hm.generate(pipe, PROMPT, branches=BOTH, **more)


@pytest.mark.parametrize(
    ("family", "given", "is_idle"),
    [
        ("qwen", {}, True),
        ("schnell", {}, True),
        ("schnell", {"guidance": 1.0}, False),
        ("schnell", {"true_cfg_scale": 3.0, "negative": "at"}, True),
        *[(family, {}, False) for family in ("flux", "chroma", "klein", "sd3", "lcm")],
    ],
)
def test_guidance_that_changes_nothing_gives_a_warning(load, family, given, is_idle):
    more = {"guidance": 3.0, "size": (64, 64), "steps": 2, "seed": 1} | given
    if family != "lcm":
        more["max_sequence_length"] = TABLE[family].call["max_sequence_length"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HeedmapWarning)
        hm.generate(load(family), PROMPT, **more)
    assert any("guidance" in str(one.message) for one in caught) == is_idle


# --- sizes and positions ---


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("sd1", "StableDiffusionInpaintPipeline"),
        ("sd3", "StableDiffusion3InpaintPipeline"),
        ("flux", "FluxInpaintPipeline"),
        ("qwen", "QwenImageInpaintPipeline"),
    ],
)
def test_a_crop_that_is_drawn_larger_is_refused(load, family, kind):
    pipe = load(family, getattr(diffusers, kind))
    given = {"image": picture(64, 64), "mask_image": mask(64, 64), "strength": 1.0}
    given |= {"width": 64, "height": 64, "num_inference_steps": 2, "padding_mask_crop": 4}
    processor = pipe.mask_processor
    with pytest.raises(ArgumentError, match="padding_mask_crop"), trace(pipe):
        pipe(prompt=PROMPT, **given)
    assert "get_crop_region" not in vars(processor)


@pytest.mark.parametrize("family", ["sigma", "alpha"])
def test_a_picture_that_is_scaled_after_it_was_drawn_is_refused(load, family):
    """Where the size is no size of the list, the nearest is drawn, scaled and cut."""
    pipe = load(family)
    for size in ({"width": 64, "height": 32}, {"latents": torch.zeros(1, 4, 8, 8)}):
        with pytest.raises(ArgumentError, match=r"use_resolution_binning|64×64"), trace(pipe):
            paint(pipe, PROMPT, **size)
    # heedmap's own calls draw the size that they are asked for.
    run = hm.generate(pipe, PROMPT, seed=1, steps=2, size=(64, 32))
    assert run.image.size == run.maps.recording.size == (64, 32)


def test_positions_of_several_cells_are_refused(load):
    """Which a Bria FIBO draws whose pipeline is asked for them, on other grids."""
    pipe = load("fibo")
    passes = count_passes(pipe)
    with pytest.raises(ArgumentError, match="do_patching"):
        hm.generate(pipe, PROMPT, seed=1, steps=1, do_patching=True)
    assert not passes


def test_positions_of_other_images_in_front_are_refused(load):
    """They are given in the first step alone."""
    pipe = load("klein", diffusers.Flux2KleinKVPipeline)
    passes = count_passes(pipe)
    with pytest.raises(TraceError, match="in front"), trace(pipe):
        paint(pipe, prompt=PROMPT, max_sequence_length=24, image=picture(64, 64))
    assert not passes


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_text_states_that_a_pipeline_does_not_encode_are_refused(load, guidance):
    """Its negative prompt would else be taken for the prompt."""
    pipe = load("ernie")
    passes, states = count_passes(pipe), pipe.encode_prompt(PROMPT, "cpu")
    with pytest.raises(TraceError, match="prompt_embeds"), trace(pipe):
        paint(pipe, prompt_embeds=states, guidance_scale=guidance)
    assert not passes


def test_layers_on_another_grid_are_refused(load):
    """Three in four merged tokens are as many as the next coarser grid has places."""
    pipe = load("sd1")
    attention = pipe.unet.down_blocks[0].attentions[0].transformer_blocks[0].attn2
    attention.register_forward_pre_hook(lambda _, args: (args[0][:, : args[0].shape[1] // 4],))
    attention.register_forward_hook(lambda _, args, output: output.repeat(1, 4, 1))
    with pytest.raises(TraceError, match=r"64 .* 16×16"), trace(pipe):
        paint(pipe, PROMPT, height=128, width=128)
