"""Models without text cross-attention that could be read: named, and refused beforehand."""

import pytest
import torch
from diffusers import (
    DDPMPipeline,
    DDPMScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
    UNet2DModel,
)

from families import models
from heedmap.drawing.editing import edit
from heedmap.drawing.generation import generate
from heedmap.errors import HeedmapError, ModelError
from heedmap.recording.edits import Reweight
from heedmap.recording.tracing import trace
from heedmap.wiring.registry import cross_attention_layers


# The text encoders play no part, and those of these two families are many: they are left out.
def stable_diffusion_3():
    transformer = SD3Transformer2DModel(
        sample_size=8,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=16,
        caption_projection_dim=16,
        pooled_projection_dim=16,
        in_channels=4,
        out_channels=4,
    )
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=models.vae(),
        **dict.fromkeys(f"text_encoder{n}" for n in ("", "_2", "_3")),
        **dict.fromkeys(f"tokenizer{n}" for n in ("", "_2", "_3")),
    )


def flux():
    transformer = FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
    )
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=models.vae(),
        transformer=transformer,
        **dict.fromkeys(("text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2")),
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


@pytest.mark.parametrize("make", [stable_diffusion_3, flux, unconditional, without_cross_attention])
def test_named_and_refused(make):
    pipe = make()
    for ask in (trace, cross_attention_layers):
        with pytest.raises(ModelError, match=f"^{type(pipe).__name__} has no") as raised:
            ask(pipe)
    said = {
        stable_diffusion_3: "it has a SD3Transformer2DModel",
        flux: "it has a FluxTransformer2DModel",
        unconditional: "its UNet2DModel is built otherwise",
        without_cross_attention: "its layers attend to no text",
    }
    assert said[make] in str(raised.value)


@pytest.mark.parametrize("make", [stable_diffusion_3, flux, unconditional, without_cross_attention])
@pytest.mark.parametrize(
    "ask",
    [
        lambda pipe: edit(pipe, "a red house", "a blue house", seed=1),
        lambda pipe: generate(pipe, "a red house", seed=1, edits=[Reweight("red", 2)]),
    ],
)
def test_nothing_to_edit(make, ask):
    pipe = make()
    with pytest.raises(HeedmapError, match=f"^{type(pipe).__name__} has no"):
        ask(pipe)


def test_a_pipeline_without_its_unet():
    """Parts may be left out when a pipeline is loaded."""
    pipe = models.sd1()
    pipe.unet = None
    with pytest.raises(ModelError, match="StableDiffusionPipeline has no"):
        trace(pipe)
    assert isinstance(pipe, StableDiffusionPipeline)
    assert torch.is_tensor(next(pipe.text_encoder.parameters()))
