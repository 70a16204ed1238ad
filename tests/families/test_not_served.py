"""Models without text cross-attention that could be read: named, and refused beforehand."""

import numpy as np
import pytest
import torch
from diffusers import (
    AudioLDMPipeline,
    AuraFlowPipeline,
    AuraFlowTransformer2DModel,
    DDPMPipeline,
    DDPMScheduler,
    DreamLiteUNetModel,
    FlowMatchEulerDiscreteScheduler,
    StableDiffusionPipeline,
    StableDiffusionXLAutoBlocks,
    UNet2DConditionModel,
    UNet2DModel,
    UNetMotionModel,
    WanPipeline,
    WanTransformer3DModel,
)
from diffusers.pipelines.onnx_utils import OnnxRuntimeModel

from families import models
from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import HeedmapError, ModelError, TraceError
from heedmap.pipelines.editing import edit
from heedmap.pipelines.generation import generate
from heedmap.recording.edits import Reweight
from heedmap.recording.tracing import trace


# The text encoder plays no part, and is left out.
def aura_flow():
    transformer = AuraFlowTransformer2DModel(
        sample_size=8,
        num_mmdit_layers=1,
        num_single_dit_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=16,
        caption_projection_dim=16,
        pos_embed_max_size=16,
    )
    return AuraFlowPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=models.vae(),
        transformer=transformer,
        **dict.fromkeys(("text_encoder", "tokenizer")),
    )


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
    scheduler = FlowMatchEulerDiscreteScheduler()
    return WanPipeline(
        scheduler=scheduler,
        transformer=transformer,
        **dict.fromkeys(("text_encoder", "tokenizer", "vae")),
    )


def unconditional():
    unet = UNet2DModel(
        sample_size=16,
        block_out_channels=(8, 8),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=4,
    )
    return DDPMPipeline(unet=unet, scheduler=DDPMScheduler())


def without_cross_attention():
    pipe = models.sd1()
    pipe.unet = models.unet(
        block_out_channels=(8, 8),
        cross_attention_dim=32,
        mid_block_type="UNetMidBlock2D",
        **models.blocks(models.PLAIN, models.PLAIN),
    )
    return pipe


def audio():
    """AudioLDM: its UNet has the text as one vector beside the timestep."""
    pipe = models.sd1()
    kinds = models.blocks(models.CROSS, models.CROSS)
    pipe.unet = models.unet(block_out_channels=(16, 32), cross_attention_dim=(16, 32), **kinds)
    pipe.__class__ = AudioLDMPipeline
    return pipe


UNSERVED = pytest.mark.parametrize(
    "make", [aura_flow, video, unconditional, without_cross_attention, audio]
)


@UNSERVED
def test_unsupported_pipelines_are_refused_by_name(make):
    pipe = make()
    for ask in (trace, cross_attention_layers):
        with pytest.raises(ModelError) as raised:
            ask(pipe)
    said = {
        aura_flow: "AuraFlowTransformer2DModel",
        video: "WanTransformer3DModel",
        unconditional: "its unet is of class UNet2DModel",
        without_cross_attention: "attend to no text",
        audio: "attend to no text",
    }
    assert said[make] in str(raised.value)


@UNSERVED
@pytest.mark.parametrize(
    "ask",
    [
        lambda pipe: edit(pipe, "a red house", "a blue house", seed=1),
        lambda pipe: generate(pipe, "a red house", seed=1, edits=[Reweight("red", 2)]),
    ],
)
def test_unsupported_pipelines_refuse_every_request(make, ask):
    pipe = make()
    with pytest.raises(HeedmapError):
        ask(pipe)


def test_a_pipeline_without_its_unet_is_refused():
    """Parts may be left out when a pipeline is loaded."""
    pipe = models.sd1()
    pipe.unet = None
    with pytest.raises(ModelError, match="StableDiffusionPipeline has no"):
        trace(pipe)
    assert isinstance(pipe, StableDiffusionPipeline)
    assert torch.is_tensor(next(pipe.text_encoder.parameters()))


# --- a denoiser of a served class, in another form -------------------------------------------


class Timed(UNet2DConditionModel):
    """A subclass that neither builds its layers nor orders its inputs in its own way."""

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


class Swapped(UNet2DConditionModel):
    def forward(self, encoder_hidden_states, sample, timestep, **kwargs):
        return super().forward(sample, timestep, encoder_hidden_states, **kwargs)


def test_a_subclass_is_served_only_if_it_is_built_and_called_like_its_class():
    plain, pipe = models.sd1(), models.sd1()
    pipe.unet.__class__ = Timed
    runs = [generate(one, "a red house", seed=1, steps=2) for one in (plain, pipe)]
    assert np.array_equal(*(run.maps["house"].values for run in runs))
    pipe.unet.__class__ = Swapped
    with pytest.raises(ModelError):
        trace(pipe)
    # Of the same layers: two latents stand side by side in it, and its blocks are its own.
    pipe.unet.__class__ = DreamLiteUNetModel
    with pytest.raises(ModelError):
        trace(pipe)


class Templated(StableDiffusionPipeline):
    """Encodes as DreamLite does."""

    def encode_prompt(self, mode, prompts, device, dtype, image=None):
        raise AssertionError("never called")


class LongPrompts(StableDiffusionPipeline):
    """Encodes as `lpw_stable_diffusion` does."""

    def encode_prompt(
        self, prompt, device, num_images_per_prompt, do_classifier_free_guidance,
        negative_prompt=None, max_embeddings_multiples=3,
    ):  # fmt: skip
        raise AssertionError("never called")


class Packed(StableDiffusionPipeline):
    def encode_prompt(self, *args, **kwargs):
        return {"embeds": super().encode_prompt(*args, **kwargs)}


class Pooled(StableDiffusionPipeline):
    def encode_prompt(self, *args, **kwargs):
        states, negative = super().encode_prompt(*args, **kwargs)
        return states, states[:, 0], negative


class Inherited(StableDiffusionPipeline):
    """A user's own class, with diffusers' way to encode."""


@pytest.mark.parametrize("kind", [Templated, LongPrompts, Packed, Pooled, Inherited])
@pytest.mark.parametrize("labels", [None, "a red house"])
def test_prompts_in_an_unknown_encoded_form_are_refused(kind, labels):
    pipe = models.sd1()
    embeds, _ = pipe.encode_prompt("a red house", "cpu", 1, False)
    given = {"prompt": "a red house"} if labels is None else {"prompt_embeds": embeds}
    pipe.__class__ = kind
    ran = []
    pipe.unet.register_forward_pre_hook(lambda *_: ran.append(1))
    call = dict(given, num_inference_steps=2, guidance_scale=1)
    if kind is Inherited:
        with trace(pipe, prompts=labels) as open_trace:
            pipe(**call)
        assert "house" in [word.text for word in open_trace.maps[0].words]
        return
    with pytest.raises(HeedmapError), trace(pipe, prompts=labels):
        pipe(**call)
    with pytest.raises(HeedmapError):
        generate(pipe, "a red house", seed=1, steps=2)
    assert not ran


# --- what is given in place of a pipeline or of its denoiser ---------------------------------


@pytest.mark.filterwarnings("ignore:`OnnxRuntimeModel` is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("put", "named"),
    [
        (lambda unet: torch.nn.DataParallel(unet), "DataParallel"),
        (lambda unet: OnnxRuntimeModel(model=None), "OnnxRuntimeModel"),
        (lambda unet: UNetMotionModel.from_unet2d(unet), "UNetMotionModel"),
    ],
)
def test_the_error_names_the_object_in_place_of_the_unet(put, named):
    pipe = models.sd1()
    pipe.unet = put(pipe.unet)
    with pytest.raises(ModelError) as raised:
        trace(pipe)
    assert named in str(raised.value)


def test_a_denoiser_alone_and_a_modular_pipeline_are_refused():
    with pytest.raises(ModelError) as raised:
        trace(models.sd1().unet)
    assert "UNet2DConditionModel" in str(raised.value)
    pipe = StableDiffusionXLAutoBlocks().init_pipeline()
    pipe.update_components(unet=models.FAMILIES["sdxl"]().unet)
    for ask in (trace, lambda pipe: generate(pipe, "a red house", seed=1)):
        with pytest.raises(ModelError) as raised:
            ask(pipe)
        assert "ModularPipeline" in str(raised.value)


def test_a_block_that_rescales_its_input_is_refused():
    """Both numbers are named: that of the positions and that of the grid."""
    pipe = models.sd1()
    block, scale = pipe.unet.down_blocks[0], torch.nn.functional.interpolate
    run = block.forward

    def halved(hidden_states, *args, **kwargs):
        out, skips = run(scale(hidden_states, scale_factor=0.5), *args, **kwargs)
        return scale(out, scale_factor=2.0), tuple(scale(one, scale_factor=2.0) for one in skips)

    block.forward = halved
    with pytest.raises(TraceError) as raised:
        generate(pipe, "a red house", seed=1, steps=2)
    assert " 64 " in str(raised.value) and " 256" in str(raised.value)
