"""The networks of the embedded model: untrained, as an earlier stage left them, and put together.

What is decided here (widths, depth, schedule) is what the exported files hold.
"""

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from world import scenes

EXPORT = Path(__file__).parents[2] / "src" / "heedmap" / "tiny" / "model"
"""The embedded model's folder in the package."""
MAX_TOKENS = 77


# --- untrained --------------------------------------------------------------------------------


def vae_model(latent_side: int) -> Any:
    """An untrained `AutoencoderKL` for 128-pixel pictures with latents 16 or 32 wide.

    Any type, as `trained_vae`: diffusers does not tell type checkers what its `to` takes.
    """
    channels = {16: (32, 64, 96, 128), 32: (24, 64, 128)}[latent_side]
    kinds: dict[str, Any] = {
        "down_block_types": ("DownEncoderBlock2D",) * len(channels),
        "up_block_types": ("UpDecoderBlock2D",) * len(channels),
    }
    return AutoencoderKL(
        **kinds,
        block_out_channels=channels,
        layers_per_block=2,
        latent_channels=4,
        norm_num_groups=8,
        mid_block_add_attention=False,
        sample_size=scenes.SIZE,
        scaling_factor=1.0,
    )


def unet_model(latent_side: int) -> UNet2DConditionModel:
    """An untrained UNet: cross-attention at all grids but the 4x4 one, where it was noise."""
    return UNet2DConditionModel(
        sample_size=latent_side,
        in_channels=4,
        out_channels=4,
        block_out_channels=(64, 128, 192),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        mid_block_type="UNetMidBlock2D",
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        attention_head_dim=4,  # the number of heads, by diffusers' old naming
        cross_attention_dim=128,
        norm_num_groups=16,
    )


def text_model(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    """An untrained text encoder of one layer: each word keeps more of its own meaning."""
    special: dict[str, Any] = {
        name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    config = CLIPTextConfig(
        **special,
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=512,
        projection_dim=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=MAX_TOKENS,
        hidden_act="gelu",
    )
    config._attn_implementation = "eager"
    return CLIPTextModel(config)


def noise_schedule() -> DDIMScheduler:
    """v-prediction with zero terminal signal-to-noise ratio (Lin et al., 2024)."""
    return DDIMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
        set_alpha_to_one=True,
        steps_offset=1,
    )


# --- trained ----------------------------------------------------------------------------------


def made(work: Path, part: str) -> Path:
    """The folder of an earlier result: in `work`, or the exported one where that is lost."""
    return work / part if (work / part).is_dir() else EXPORT / part


def trained_tokenizer(work: Path) -> CLIPTokenizer:
    return CLIPTokenizer.from_pretrained(made(work, "tokenizer"))


def trained_vae(work: Path) -> Any:
    """The `AutoencoderKL` in float32; the exported one is float16."""
    return AutoencoderKL.from_pretrained(made(work, "vae"), dtype=torch.float32)


def latents_of(vae: AutoencoderKL, x: torch.Tensor) -> torch.Tensor:
    """Latents float32 (B, 4, h, w) of pictures (B, 3, H, W), the mode of `vae.encode`'s."""
    assert vae.quant_conv is not None
    return vae.quant_conv(vae.encoder(x))[:, :4].float()


def pictures_of(vae: AutoencoderKL, z: torch.Tensor) -> torch.Tensor:
    """Pictures (B, 3, H, W) of latents (B, 4, h, w), as `vae.decode` gives them."""
    assert vae.post_quant_conv is not None
    return vae.decoder(vae.post_quant_conv(z))


def assemble(
    text: CLIPTextModel, unet: UNet2DConditionModel, tokenizer: CLIPTokenizer, vae: AutoencoderKL
) -> StableDiffusionPipeline:
    """A pipeline of the parts."""
    others: dict[str, Any] = {
        "scheduler": noise_schedule(),
        "safety_checker": None,
        "feature_extractor": None,
    }
    pipe = StableDiffusionPipeline(
        vae, text, tokenizer, unet, **others, requires_safety_checker=False
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe
