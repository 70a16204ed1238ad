"""What cannot be recorded: named, and refused before sampling."""

import warnings

import diffusers
import numpy as np
import pytest
import torch
from diffusers import (
    AuraFlowTransformer2DModel,
    DreamLiteUNetModel,
    StableDiffusionPipeline,
    UNet2DConditionModel,
    UNet2DModel,
    UNetMotionModel,
    WanTransformer3DModel,
)
from diffusers.models.attention_processor import AttnProcessor2_0
from diffusers.pipelines.onnx_utils import OnnxRuntimeModel

import heedmap as hm
from families import models
from families.checking import BOTH, count_passes, paint
from families.models import TABLE, mask, picture
from heedmap.backends.registry import check_served
from heedmap.errors import ArgumentError, HeedmapError, HeedmapWarning, ModelError, TraceError
from heedmap.recording.tracing import trace

PROMPT = "a red house"

# --- models ---


# The text encoder plays no part, and is left out.
def aura_flow():
    transformer = AuraFlowTransformer2DModel(
        sample_size=8, num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=16, caption_projection_dim=16,
        pos_embed_max_size=16,
    )  # fmt: skip
    parts = {"scheduler": diffusers.FlowMatchEulerDiscreteScheduler(), "vae": models.vae()}
    parts |= {"text_encoder": None, "tokenizer": None}
    return diffusers.AuraFlowPipeline(transformer=transformer, **parts)


def video():
    transformer = WanTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=8,
        freq_dim=8, ffn_dim=8, num_layers=1,
    )  # fmt: skip
    parts = dict.fromkeys(("text_encoder", "tokenizer", "vae"))
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler()
    return diffusers.WanPipeline(scheduler=scheduler, transformer=transformer, **parts)


def unconditional():
    unet = UNet2DModel(
        sample_size=16, block_out_channels=(8, 8), norm_num_groups=4, attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return diffusers.DDPMPipeline(unet=unet, scheduler=diffusers.DDPMScheduler())


def with_unet(change):
    """Stable Diffusion 1 with another object in place of its UNet."""

    def make():
        pipe = models.sd1()
        pipe.unet = change(pipe.unet)
        return pipe

    return make


def without_cross_attention(unet):
    plain = models.blocks(models.PLAIN, models.PLAIN)
    config = {"block_out_channels": (8, 8), "cross_attention_dim": 32}
    return models.unet(**config, mid_block_type="UNetMidBlock2D", **plain)


def audio():
    """AudioLDM: its UNet has the text as one vector beside the timestep."""
    kinds = models.blocks(models.CROSS, models.CROSS)
    unet = models.unet(block_out_channels=(16, 32), cross_attention_dim=(16, 32), **kinds)
    pipe = with_unet(lambda _: unet)()
    pipe.__class__ = diffusers.AudioLDMPipeline
    return pipe


def modular():
    pipe = diffusers.StableDiffusionXLAutoBlocks().init_pipeline()
    pipe.update_components(unet=models.sdxl().unet)
    return pipe


UNSERVED = {
    "AuraFlowTransformer2DModel": aura_flow,
    "WanTransformer3DModel": video,
    "UNet2DModel": unconditional,
    "attend to no text": with_unet(without_cross_attention),
    "no text": audio,
    "StableDiffusionPipeline has no": with_unet(lambda unet: None),
    "DataParallel": with_unet(torch.nn.DataParallel),
    "OnnxRuntimeModel": with_unet(lambda unet: OnnxRuntimeModel(model=None)),
    "UNetMotionModel": with_unet(UNetMotionModel.from_unet2d),
    "UNet2DConditionModel": lambda: models.sd1().unet,
    "ModularPipeline": modular,
}


@pytest.mark.filterwarnings("ignore:`OnnxRuntimeModel` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", UNSERVED)
def test_what_is_not_served_is_refused_by_name(name):
    pipe = UNSERVED[name]()
    with pytest.raises(ModelError, match=name):
        trace(pipe)
    if name in ("UNet2DConditionModel", "StableDiffusionPipeline has no"):
        return
    for ask in (
        lambda: hm.edit(pipe, PROMPT, "a blue house", seed=1),
        lambda: hm.generate(pipe, PROMPT, seed=1, edits=[hm.Reweight("red", 2)]),
    ):
        with pytest.raises(HeedmapError):
            ask()


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
        ("flux", "FluxKontextPipeline", "beside"),
        ("klein", "Flux2KleinInpaintPipeline", "beside"),
        ("qwen", "QwenImageEditPipeline", "beside"),
    ],
)
def test_pipelines_that_have_no_map_of_their_image_are_refused(load, family, kind, reason):
    pipe = load(family)
    pipe.__class__ = type("Own", (getattr(diffusers, kind),), {})  # also a subclass
    with pytest.raises(ModelError, match=reason):
        check_served(pipe)


class Templated(StableDiffusionPipeline):
    """Encodes as DreamLite does."""

    def encode_prompt(self, mode, prompts, device, dtype, image=None):
        raise AssertionError("never called")


class Pooled(StableDiffusionPipeline):
    def encode_prompt(self, *args, **kwargs):
        states, negative = super().encode_prompt(*args, **kwargs)
        return states, states[:, 0], negative


class Inherited(StableDiffusionPipeline):
    """A user's own class, with diffusers' way to encode."""


@pytest.mark.parametrize("kind", [Templated, Pooled, Inherited])
@pytest.mark.parametrize("labels", [None, PROMPT])
def test_prompts_in_an_unknown_encoded_form_are_refused(load, kind, labels):
    pipe = load("sd1")
    embeds, _ = pipe.encode_prompt(PROMPT, "cpu", 1, False)
    given = {"prompt": PROMPT} if labels is None else {"prompt_embeds": embeds}
    pipe.__class__ = kind
    passes = count_passes(pipe)
    call = dict(given, num_inference_steps=1, guidance_scale=1)
    if kind is Inherited:
        with trace(pipe, prompts=labels) as recorder:
            pipe(**call)
        assert "house" in [word.text for word in recorder.maps[0].words]
        return
    with pytest.raises(HeedmapError), trace(pipe, prompts=labels):
        pipe(**call)
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
        (load("sd1", started), "strength", {"strenght": 0.3}),
        (load("sd1", started), "width", {"size": (64, 64), "image": picture(64, 64)}),
        (load("lcm"), "negative_prompt", {"negative": "blurry"}),
        (load("klein"), "negative", {"negative": "blurry"}),
    ):
        passes = count_passes(pipe)
        with pytest.raises(HeedmapError, match=name):
            hm.generate(pipe, PROMPT, seed=1, steps=1, **given)
        assert not passes
    for family in ("lcm", "sprint"):
        with pytest.raises(ArgumentError, match="blend"):
            hm.edit(load(family), PROMPT, "a red tree", only="house->tree")


def test_a_pipeline_that_replaces_processors_in_its_own_call_is_refused(load):
    """HD-Painter does, so that no advice of what to do before would help."""

    class Painter(StableDiffusionPipeline):
        def prepare_latents(self, *args, **kwargs):
            self.unet.set_attn_processor(AttnProcessor2_0())
            return super().prepare_latents(*args, **kwargs)

    with pytest.raises(TraceError, match="its own call"), trace(pipe := load("sd1", Painter)):
        paint(pipe, PROMPT)


def test_flux_needs_true_guidance_for_a_negative_prompt(load):
    pipe, more = load("flux"), {"seed": 1, "steps": 1, "size": (48, 80)}
    with pytest.warns(HeedmapWarning, match="true_cfg_scale"):
        hm.generate(pipe, PROMPT, negative="at sea", **more)
    with pytest.raises(TraceError, match="true_cfg_scale"):
        hm.generate(pipe, PROMPT, branches=BOTH, **more)


@pytest.mark.parametrize(
    ("family", "given", "is_idle"),
    [
        ("qwen", {}, True), ("schnell", {}, True), ("schnell", {"guidance": 1.0}, False),
        ("schnell", {"true_cfg_scale": 3.0, "negative": "at"}, True),
        *[(family, {}, False) for family in ("flux", "chroma", "klein", "dev2", "sd3", "lcm")],
    ],
)  # fmt: skip
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
    assert "classify_height_width_bin" not in vars(pipe.image_processor)
    # heedmap's own calls draw the size that they are asked for.
    run = hm.generate(pipe, PROMPT, seed=1, steps=2, size=(64, 32))
    assert run.image.size == run.maps.recording.size == (64, 32)
    with pytest.raises(ArgumentError):
        hm.generate(pipe, PROMPT, seed=1, steps=2, size=(64, 40))


@pytest.mark.parametrize("family", ["flux", "chroma", "klein", "qwen"])
def test_an_image_without_a_position_is_refused(load, family):
    """Whose pipelines round sides down to multiples of 16 pixels."""
    pipe = load(family)
    passes = count_passes(pipe)
    with pytest.raises(ArgumentError), trace(pipe):
        paint(pipe, prompt=PROMPT, **TABLE[family].arguments(height=7))
    assert not passes


@pytest.mark.parametrize("size", [(64, 64), (32, 128)])
def test_positions_of_another_image_are_refused(load, size):
    """Also where 2·8 and 4·4 positions are as many as those of 4·8, and where no class tells."""
    pipe, (width, height) = load("klein"), size
    passes = count_passes(pipe)
    image = {"image": picture(64, 64), "width": width, "height": height}
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, prompt=PROMPT, max_sequence_length=24, **image)
    with pytest.raises(ArgumentError, match="image"):  # too small for the pipeline
        hm.generate(pipe, PROMPT, seed=1, steps=1, size=size, image=picture(20, 20))
    assert not passes
    pipe = load("flux")
    prepare = pipe.prepare_latents

    def doubled(*args, **kwargs):
        latents, places = prepare(*args, **kwargs)
        return torch.cat([latents] * 2, dim=1), torch.cat([places] * 2)

    pipe.prepare_latents = doubled
    with pytest.raises(TraceError, match="positions"), trace(pipe):
        paint(pipe, PROMPT, output_type="latent", width=width, height=height)


@pytest.mark.parametrize("family", ["sd1", "sigma"])
def test_layers_on_another_grid_are_refused(load, family):
    """Three in four merged tokens are as many as the next coarser grid has places."""
    pipe = load(family)
    block = dict(pipe.components["unet" if family == "sd1" else "transformer"].named_modules())
    name = "down_blocks.0.attentions.0." if family == "sd1" else ""
    attention = block[f"{name}transformer_blocks.0"].attn2
    attention.register_forward_pre_hook(lambda _, args: (args[0][:, : args[0].shape[1] // 4],))
    attention.register_forward_hook(lambda _, args, output: output.repeat(1, 4, 1))
    side = {"sd1": 128, "sigma": 256}[family]
    with pytest.raises(TraceError, match=r"64 .* 16×16"), trace(pipe):
        paint(pipe, PROMPT, height=side, width=side)
