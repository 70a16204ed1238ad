"""Small pipelines of random weights, each with what tells its family apart.

The configurations are those of the published models (named beside each), with fewer channels and
layers: what stays is the order of block types, heads per level, the width of the text against the
UNet's, embeddings that are added, input channels, schedulers. They are saved with
`save_pretrained` and come back through `from_pretrained`, as a user's would.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers import (
    AuraFlowPipeline,
    AuraFlowTransformer2DModel,
    AutoencoderDC,
    AutoencoderKL,
    AutoencoderKLFlux2,
    AutoencoderKLQwenImage,
    AutoencoderKLWan,
    BriaFiboPipeline,
    BriaFiboTransformer2DModel,
    BriaPipeline,
    BriaTransformer2DModel,
    ChromaPipeline,
    ChromaTransformer2DModel,
    CogView4Pipeline,
    CogView4Transformer2DModel,
    ControlNetModel,
    DDIMScheduler,
    DDPMScheduler,
    DiffusionPipeline,
    ErnieImagePipeline,
    ErnieImageTransformer2DModel,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Pipeline,
    Flux2Transformer2DModel,
    FluxKontextPipeline,
    FluxPipeline,
    FluxTransformer2DModel,
    HunyuanDiT2DModel,
    HunyuanDiTPipeline,
    Krea2Pipeline,
    Krea2Transformer2DModel,
    LatentConsistencyModelPipeline,
    LCMScheduler,
    LongCatImagePipeline,
    LongCatImageTransformer2DModel,
    Lumina2Pipeline,
    Lumina2Transformer2DModel,
    OvisImagePipeline,
    OvisImageTransformer2DModel,
    PixArtAlphaPipeline,
    QwenImageEditPipeline,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
    SanaPipeline,
    SanaSprintPipeline,
    SanaTransformer2DModel,
    SCMScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionGLIGENPipeline,
    StableDiffusionInpaintPipeline,
    StableDiffusionInstructPix2PixPipeline,
    StableDiffusionPipeline,
    StableDiffusionUpscalePipeline,
    StableDiffusionXLImg2ImgPipeline,
    StableDiffusionXLPipeline,
    T2IAdapter,
    UNet2DConditionModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from diffusers.pipelines import qwenimage
from making import letter_qwen, letter_t5, letter_tokenizer, random_pixart
from oracle import denoiser
from peft import LoraConfig
from PIL import Image
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    Gemma2Config,
    Gemma2Model,
    GemmaTokenizer,
    GlmConfig,
    GlmModel,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLProcessor,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3Model,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLModel,
    Qwen3VLProcessor,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    T5Config,
    T5EncoderModel,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

BETAS = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
UNCHECKED = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
CROSS, PLAIN = "CrossAttn{}Block2D", "{}Block2D"


def blocks(*kinds: str) -> dict[str, tuple[str, ...]]:
    """The block types of a UNet: those on the way up mirror those on the way down."""
    return {
        "down_block_types": tuple(kind.format("Down") for kind in kinds),
        "up_block_types": tuple(kind.format("Up") for kind in reversed(kinds)),
    }


def unet(**config) -> UNet2DConditionModel:
    """A UNet of random weights whose attention is sharp, so that wrong maps are seen."""
    torch.manual_seed(0)
    whole = {"sample_size": 16, "layers_per_block": 1, "norm_num_groups": 8} | config
    model = UNet2DConditionModel(**whole).eval()
    for name, parameter in model.named_parameters():
        if ".to_q." in name or (
            ".to_k." in name and parameter.shape[1] == whole["cross_attention_dim"]
        ):
            parameter.data.mul_(4)
    return model


def vae(levels: int = 4, **config) -> AutoencoderKL:
    torch.manual_seed(1)
    return AutoencoderKL(
        block_out_channels=(8,) * levels,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        layers_per_block=1,
        norm_num_groups=4,
        **config,
    ).eval()


def tokenizer(pad: str = "<|endoftext|>") -> CLIPTokenizer:
    """Stable Diffusion 1 pads with the end token; 2 and the second of SDXL pad with "!"."""
    made = letter_tokenizer()
    made.pad_token = pad
    return made


def text_encoder(width: int, projection: int | None = None, act: str = "quick_gelu"):
    torch.manual_seed(2 + width)
    words = letter_tokenizer()
    config = CLIPTextConfig(
        vocab_size=len(words),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=77,
        hidden_act=act,
        projection_dim=projection or width,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    return (CLIPTextModelWithProjection if projection else CLIPTextModel)(config).eval()


# --- the families ---


SD1_UNET = {
    "block_out_channels": (16, 32, 32, 32),
    "attention_head_dim": 2,  # which diffusers reads as the number of heads; 8 in the real one
    "cross_attention_dim": 32,
    **blocks(CROSS, CROSS, CROSS, PLAIN),
}
SD2_UNET = {
    "block_out_channels": (16, 32, 64, 64),
    "attention_head_dim": (2, 4, 8, 8),  # 5, 10, 20, 20
    "cross_attention_dim": 64,  # 1024
    "use_linear_projection": True,
    **blocks(CROSS, CROSS, CROSS, PLAIN),
}


def short() -> DiffusionPipeline:
    """Stable Diffusion 1 with half of its levels, for what takes long with each layer."""
    return sd1(block_out_channels=(16, 32), **blocks(CROSS, PLAIN))


def least() -> DiffusionPipeline:
    """Stable Diffusion 1 with one level and one layer, for what takes very long with each."""
    ways = {"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("UpBlock2D",)}
    return sd1(block_out_channels=(16,), mid_block_type=None, **ways)


def ddim(**config) -> DDIMScheduler:
    return DDIMScheduler(
        **BETAS, clip_sample=False, set_alpha_to_one=False, steps_offset=1, **config
    )


def sd1(kind=StableDiffusionPipeline, scheduler=None, **config) -> DiffusionPipeline:
    """stable-diffusion-v1-5/stable-diffusion-v1-5."""
    return kind(
        vae=vae(),
        text_encoder=text_encoder(32),
        tokenizer=tokenizer(),
        unet=unet(**(SD1_UNET | config)),
        scheduler=scheduler or ddim(),
        **UNCHECKED,
    )


def sd2(kind=StableDiffusionPipeline, scheduler=None, **config) -> DiffusionPipeline:
    """stabilityai/stable-diffusion-2-1: it predicts the velocity, and attends in float32."""
    return kind(
        vae=vae(),
        text_encoder=text_encoder(64, act="gelu"),
        tokenizer=tokenizer("!"),
        unet=unet(**(SD2_UNET | {"upcast_attention": True} | config)),
        scheduler=scheduler or ddim(prediction_type="v_prediction"),
        **UNCHECKED,
    )


def turbo() -> DiffusionPipeline:
    """stabilityai/sd-turbo: the 2.1 network, one step, no guidance."""
    return sd2(
        scheduler=EulerDiscreteScheduler(**BETAS, timestep_spacing="trailing", steps_offset=1),
        upcast_attention=False,
    )


def lcm() -> DiffusionPipeline:
    """SimianLuo/LCM_Dreamshaper_v7: the guidance is an embedding, so there is one branch."""
    return sd1(LatentConsistencyModelPipeline, LCMScheduler(**BETAS), time_cond_proj_dim=32)


def pix2pix() -> DiffusionPipeline:
    """timbrooks/instruct-pix2pix: 4 channels of the latent and 4 of the picture."""
    return sd1(StableDiffusionInstructPix2PixPipeline, in_channels=8)


def inpainting() -> DiffusionPipeline:
    """runwayml/stable-diffusion-inpainting: latent, mask and masked picture."""
    return sd1(StableDiffusionInpaintPipeline, in_channels=9)


def sdxl() -> DiffusionPipeline:
    """stabilityai/stable-diffusion-xl-base-1.0: two text encoders, no attention at full size."""
    return StableDiffusionXLPipeline(
        vae=vae(scaling_factor=0.13025),
        text_encoder=text_encoder(24),
        text_encoder_2=text_encoder(40, projection=40, act="gelu"),
        tokenizer=tokenizer(),
        tokenizer_2=tokenizer("!"),
        unet=unet(
            block_out_channels=(16, 32, 64),
            attention_head_dim=(2, 4, 8),  # 5, 10, 20
            cross_attention_dim=64,  # 768 + 1280
            transformer_layers_per_block=(1, 1, 2),  # 1, 2, 10
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=40 + 6 * 8,
            **blocks(PLAIN, CROSS, CROSS),
        ),
        scheduler=EulerDiscreteScheduler(**BETAS, timestep_spacing="leading", steps_offset=1),
        add_watermarker=False,
    )


def refiner() -> DiffusionPipeline:
    """stabilityai/stable-diffusion-xl-refiner-1.0: the second text encoder alone."""
    return StableDiffusionXLImg2ImgPipeline(
        vae=vae(scaling_factor=0.13025),
        text_encoder=None,
        text_encoder_2=text_encoder(40, projection=40, act="gelu"),
        tokenizer=None,
        tokenizer_2=tokenizer("!"),
        unet=unet(
            block_out_channels=(16, 32, 64, 64),
            attention_head_dim=(2, 4, 8, 8),  # 6, 12, 24, 24
            cross_attention_dim=40,  # 1280
            transformer_layers_per_block=2,  # 4
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=40 + 5 * 8,
            **blocks(PLAIN, CROSS, CROSS, PLAIN),
        ),
        scheduler=EulerDiscreteScheduler(**BETAS, timestep_spacing="leading", steps_offset=1),
        requires_aesthetics_score=True,
        force_zeros_for_empty_prompt=False,
        add_watermarker=False,
    )


def upscaler() -> DiffusionPipeline:
    """stabilityai/stable-diffusion-x4-upscaler: both attentions of a block read the text."""
    return StableDiffusionUpscalePipeline(
        vae=vae(levels=3, scaling_factor=0.08333),
        text_encoder=text_encoder(64, act="gelu"),
        tokenizer=tokenizer("!"),
        unet=unet(
            in_channels=7,
            block_out_channels=(16, 32, 32, 64),
            attention_head_dim=2,
            cross_attention_dim=64,
            only_cross_attention=(True, True, True, False),
            num_class_embeds=1000,
            use_linear_projection=True,
            **blocks(PLAIN, CROSS, CROSS, CROSS),
        ),
        low_res_scheduler=DDPMScheduler(beta_schedule="scaled_linear"),
        scheduler=ddim(prediction_type="v_prediction"),
    )


# --- PixArt: a transformer, T5, and padding that a mask hides ---


def sigma() -> DiffusionPipeline:
    """PixArt-alpha/PixArt-Sigma-XL-2-256x256."""
    return random_pixart()


def alpha() -> DiffusionPipeline:
    """PixArt-alpha/PixArt-XL-2-1024-MS: its transformer is told the size, too."""
    return random_pixart(PixArtAlphaPipeline, sample_size=128, attention_head_dim=12, num_layers=2)


# --- Sana and HunyuanDiT: other transformers that attend to the text alone ---


def letter_gemma() -> GemmaTokenizer:
    """A Gemma tokenizer of letters and two words: a space is the beginning of the next token."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    merges = [("h", "o"), ("u", "s"), ("ho", "us"), ("hous", "e"), ("a", "t")]
    merges += [("▁", piece) for piece in ("house", "at", *letters)]
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *letters, *letters.upper()]
    pieces += [*".,!?-:'\n>", *("".join(pair) for pair in merges)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return GemmaTokenizer(vocab=vocabulary, merges=merges, add_bos_token=True)


def sana(kind=SanaPipeline, scheduler=None, **config) -> DiffusionPipeline:
    """Efficient-Large-Model/Sana_600M_512px_diffusers."""
    torch.manual_seed(12)
    words, levels = letter_gemma(), 6
    encoder = Gemma2Model(
        Gemma2Config(
            vocab_size=len(words), hidden_size=24, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=12, initializer_range=0.5,
        )
    )  # fmt: skip
    transformer = SanaTransformer2DModel(
        **{
            "in_channels": 4,  # 32
            "out_channels": 4,
            "num_attention_heads": 4,  # 36
            "attention_head_dim": 8,  # 32
            "num_layers": 2,  # 28
            "num_cross_attention_heads": 2,  # 16
            "cross_attention_head_dim": 16,  # 72
            "cross_attention_dim": 32,  # 1152
            "caption_channels": 24,  # 2304
            "sample_size": 16,
        }
        | config
    )
    torch.nn.init.normal_(transformer.caption_norm.weight, mean=1.0, std=0.5)
    kinds = ("ResBlock",) * (levels - 1) + ("EfficientViTBlock",)
    torch.manual_seed(1)
    autoencoder = AutoencoderDC(
        latent_channels=4, attention_head_dim=4, scaling_factor=0.41407,
        encoder_block_types=kinds, encoder_block_out_channels=(8,) * levels,
        encoder_layers_per_block=(1,) * levels, encoder_qkv_multiscales=((),) * levels,
        decoder_block_types=kinds, decoder_block_out_channels=(8,) * levels,
        decoder_layers_per_block=(1,) * levels, decoder_qkv_multiscales=((),) * levels,
    )  # fmt: skip
    return kind(
        tokenizer=words,
        text_encoder=encoder.eval(),
        vae=autoencoder.eval(),
        transformer=sharpened(transformer),
        scheduler=scheduler or FlowMatchEulerDiscreteScheduler(shift=3.0),
    )


def sana15() -> DiffusionPipeline:
    """Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers: its queries and keys are normed."""
    return sana(qk_norm="rms_norm_across_heads", timestep_scale=0.5)


def sprint() -> DiffusionPipeline:
    """Efficient-Large-Model/Sana_Sprint_0.6B_1024px_diffusers: two steps, no negative prompt."""
    return sana(SanaSprintPipeline, SCMScheduler(), guidance_embeds=True, sample_size=32)


def letter_bert() -> BertTokenizer:
    """A BERT tokenizer of letters and two words."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *".,!?-'", "house", "at"]
    pieces += [f"##{letter}" for letter in letters]
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})


def hunyuan(kind=HunyuanDiTPipeline, **config) -> DiffusionPipeline:
    """Tencent-Hunyuan/HunyuanDiT-v1.2-Diffusers: BERT and T5 read the prompt."""
    torch.manual_seed(13)
    words = letter_bert()
    encoder = BertModel(
        BertConfig(
            vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, initializer_range=0.5, pad_token_id=0,
        )
    )  # fmt: skip
    transformer = HunyuanDiT2DModel(
        **{
            "sample_size": 16,  # 128
            "num_layers": 4,  # 40
            "patch_size": 2,
            "num_attention_heads": 3,  # 16
            "attention_head_dim": 8,  # 88
            "hidden_size": 24,  # 1408
            "in_channels": 4,
            "cross_attention_dim": 32,  # 1024
            "cross_attention_dim_t5": 40,  # 2048
            "pooled_projection_dim": 16,  # 1024
            "use_style_cond_and_image_meta_size": False,
        }
        | config
    )
    for name, parameter in transformer.named_parameters():
        if ".norm_q." in name or ".norm_k." in name:  # in a trained model they are not those of 1
            torch.nn.init.normal_(parameter, mean=1.0, std=0.5)
    return kind(
        vae=vae(scaling_factor=0.13025),
        text_encoder=encoder.eval(),
        tokenizer=words,
        transformer=sharpened(transformer),
        scheduler=DDPMScheduler(**BETAS, prediction_type="v_prediction"),
        text_encoder_2=t5_encoder(40),
        tokenizer_2=letter_t5(),
        **UNCHECKED,
    )


# --- joint attention: text and image in one softmax ---


def t5_encoder(width: int) -> T5EncoderModel:
    torch.manual_seed(9)
    config = T5Config(
        vocab_size=len(letter_t5()), d_model=width, d_kv=8, d_ff=2 * width, num_layers=2,
        num_heads=3, feed_forward_proj="gated-gelu", is_encoder_decoder=False, use_cache=False,
    )  # fmt: skip
    encoder = T5EncoderModel(config).eval()
    for name, parameter in encoder.named_parameters():
        if "embed_tokens" in name or "relative_attention_bias" in name or "shared" in name:
            torch.nn.init.normal_(parameter)
    return encoder


def sharpened(model: torch.nn.Module) -> torch.nn.Module:
    """The model with sharp attention, also between text and image, so that wrong maps are seen."""
    for name, parameter in model.named_parameters():
        if ".to_q." in name or ".add_k_proj." in name or ".norm_q." in name:
            parameter.data.mul_(4)
    return model.eval()


def sd3(kind=StableDiffusion3Pipeline, **config) -> DiffusionPipeline:
    """stabilityai/stable-diffusion-3-medium-diffusers."""
    torch.manual_seed(10)
    transformer = SD3Transformer2DModel(
        **{
            "sample_size": 8,  # 128
            "pos_embed_max_size": 12,  # 192
            "num_layers": 4,  # 24
            "num_attention_heads": 3,  # 24
            "attention_head_dim": 16,  # 64
            "joint_attention_dim": 64,  # 4096
            "caption_projection_dim": 48,  # 1536
            "pooled_projection_dim": 24 + 40,  # 768 + 1280
            "in_channels": 4,  # 16
            "out_channels": 4,
        }
        | config
    )
    return kind(
        transformer=sharpened(transformer),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae(scaling_factor=1.5305, shift_factor=0.0609),
        text_encoder=text_encoder(24, projection=24),
        text_encoder_2=text_encoder(40, projection=40, act="gelu"),
        text_encoder_3=t5_encoder(64),
        tokenizer=tokenizer(),
        tokenizer_2=tokenizer("!"),
        tokenizer_3=letter_t5(),
    )


def sd35() -> DiffusionPipeline:
    """stabilityai/stable-diffusion-3.5-medium: its first blocks attend to the image once more."""
    return sd3(dual_attention_layers=(0, 1), qk_norm="rms_norm")


FLUX = {
    "in_channels": 16,  # 64
    "num_layers": 2,  # 19
    "num_single_layers": 2,  # 38
    "attention_head_dim": 16,  # 128
    "num_attention_heads": 3,  # 24
    "joint_attention_dim": 24,  # 4096
    "axes_dims_rope": (4, 4, 8),  # (16, 56, 56)
}


def flux(kind=FluxPipeline, **config) -> DiffusionPipeline:
    """black-forest-labs/FLUX.1-dev: its guidance is an embedding."""
    torch.manual_seed(11)
    config = {"pooled_projection_dim": 32, "guidance_embeds": True} | config  # 768
    pipe = kind(
        transformer=sharpened(FluxTransformer2DModel(**FLUX, **config)),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=vae(scaling_factor=0.3611, shift_factor=0.1159),
        text_encoder=text_encoder(32),
        text_encoder_2=t5_encoder(24),
        tokenizer=tokenizer(),
        tokenizer_2=letter_t5(),
    )
    pipe.default_sample_size = 8  # 128
    return pipe


def kontext() -> DiffusionPipeline:
    """black-forest-labs/FLUX.1-Kontext-dev: an image of one's own beside the one it draws."""
    return flux(FluxKontextPipeline)


def schnell() -> DiffusionPipeline:
    """black-forest-labs/FLUX.1-schnell: no guidance at all."""
    return flux(guidance_embeds=False)


def chroma(kind=ChromaPipeline) -> DiffusionPipeline:
    """lodestones/Chroma1-HD."""
    torch.manual_seed(12)
    transformer = ChromaTransformer2DModel(
        approximator_num_channels=8,  # 64
        approximator_hidden_dim=16,  # 5120
        approximator_layers=1,  # 5
        **FLUX,
    )
    return kind(
        transformer=sharpened(transformer),
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=vae(scaling_factor=0.3611, shift_factor=0.1159),
        text_encoder=t5_encoder(24),
        tokenizer=letter_t5(),
    )


def shaped(kind: type, seed: int, model: type, **parts) -> DiffusionPipeline:
    """A pipeline around a transformer with the shape of Flux, of these sizes and parts."""
    torch.manual_seed(seed)
    transformer = sharpened(model(**FLUX | parts.pop("sizes", {})))
    default = {
        "scheduler": FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        "vae": vae(scaling_factor=0.3611, latent_channels=transformer.config.in_channels // 4),
        "tokenizer": letter_qwen(),
    }
    return kind(transformer=transformer, **default | parts)


def bria() -> DiffusionPipeline:
    """briaai/BRIA-3.2: its transformer is given the timestep as it is."""
    parts = {"text_encoder": t5_encoder(24), "tokenizer": letter_t5()}
    return shaped(BriaPipeline, 18, BriaTransformer2DModel, **parts)


def fibo() -> DiffusionPipeline:
    """briaai/FIBO: each block reads a layer of the language model."""
    sizes = {"in_channels": 4, "joint_attention_dim": 32, "text_encoder_dim": 16}  # 48, 4096, 2048
    autoencoder = AutoencoderKLWan(
        base_dim=4, z_dim=4, num_res_blocks=1, patch_size=2, in_channels=12, out_channels=12,
        latents_mean=[-0.7, 0.5, 0.1, -0.2], latents_std=[2.8, 1.4, 2.3, 1.6],
    )  # fmt: skip
    encoder = SmolLM3ForCausalLM(SmolLM3Config(**language(16, 5) | {"vocab_size": 128001})).eval()
    parts = {"vae": autoencoder.eval(), "text_encoder": encoder, "sizes": sizes}
    return shaped(BriaFiboPipeline, 19, BriaFiboTransformer2DModel, **parts)


def language(width: int, layers: int, **more) -> dict[str, object]:
    """A small configuration of a language model that reads `letter_qwen`."""
    words = letter_qwen()
    return {
        "vocab_size": len(words), "hidden_size": width, "intermediate_size": 2 * width,
        "num_hidden_layers": layers, "num_attention_heads": 2, "num_key_value_heads": 2,
        "head_dim": width // 2, "max_position_embeddings": 1024, "bos_token_id": None,
        "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id,
    } | more  # fmt: skip


MROPE = {"mrope_section": [1, 1, 2], "rope_type": "default", "rope_theta": 1e6}
VISION = {
    "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16,
}  # fmt: skip
MARKS = [f"<|{name}|>" for name in ("vision_start", "vision_end", "image_pad", "video_pad")]
QWEN = {
    "num_layers": 3,  # 60; 32
    "attention_head_dim": 16,  # 128
    "num_attention_heads": 3,  # 24; 32
    "axes_dims_rope": (4, 4, 8),  # (16, 56, 56)
}


def qwen_vl() -> Qwen2_5_VLForConditionalGeneration:
    """Qwen/Qwen2.5-VL-7B-Instruct."""
    config = Qwen2_5_VLConfig(
        text_config=language(16, 2, rope_parameters=MROPE), vision_config=VISION
    )
    return Qwen2_5_VLForConditionalGeneration(config).eval()


def qwen(kind=QwenImagePipeline) -> DiffusionPipeline:
    """Qwen/Qwen-Image."""
    torch.manual_seed(13)
    transformer = QwenImageTransformer2DModel(
        in_channels=16,  # 64
        out_channels=4,  # 16
        joint_attention_dim=16,  # 3584
        **QWEN,
    )
    autoencoder = AutoencoderKLQwenImage(
        base_dim=4, z_dim=4, num_res_blocks=1,  # 96, 16, 2
        latents_mean=[-0.7, 0.5, 0.1, -0.2], latents_std=[2.8, 1.4, 2.3, 1.6],
    )  # fmt: skip
    return kind(
        transformer=sharpened(transformer),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=autoencoder.eval(),
        text_encoder=qwen_vl(),
        tokenizer=letter_qwen(),
    )


class Seeing(Qwen2VLProcessor):
    """Qwen's processor without the one of videos, which needs torchvision."""

    def __init__(self, image_processor=None, tokenizer=None, chat_template=None):
        super().__init__(image_processor, tokenizer, None, chat_template)

    def check_argument_for_proper_class(self, name, part):
        return type(part)


def qwen_edit(kind=QwenImageEditPipeline) -> DiffusionPipeline:
    """Qwen/Qwen-Image-Edit: it reads the image, too, here of a 64th of the pixels."""
    parts, words = qwen().components, letter_qwen(*MARKS)
    config = parts["text_encoder"].config
    config.image_token_id = words.convert_tokens_to_ids(MARKS[2])
    config.text_config.vocab_size = len(words)
    torch.manual_seed(14)
    parts |= {
        "text_encoder": Qwen2_5_VLForConditionalGeneration(config).eval(),
        "tokenizer": words,
        "processor": Seeing(Qwen2VLImageProcessorPil(), words),
    }
    pipe = kind(**parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


class Seeing3(Seeing, Qwen3VLProcessor):
    """That of Qwen 3."""


SYSTEM = "<|im_start|>system\n{{ messages[0].content[0].text }}<|im_end|>\n"


def qwen21() -> DiffusionPipeline:
    """Qwen/Qwen-Image-2.1: its images have an alpha."""
    from diffusers import (
        AutoencoderKLQwenImage21,
        QwenImage21Pipeline,
        QwenImage21Transformer2DModel,
    )

    words = letter_qwen(*MARKS)
    torch.manual_seed(15)
    transformer = QwenImage21Transformer2DModel(
        in_channels=4, out_channels=4, context_in_dim=16, **QWEN  # 64, 64, 4096
    )  # fmt: skip
    autoencoder = AutoencoderKLQwenImage21(
        base_dim=4, decoder_base_dim=4, z_dim=4, num_res_blocks=1, dim_mult=[1] * 5,  # 96, 144, 64
        latents_mean=[-0.7, 0.5, 0.1, -0.2], latents_std=[2.8, 1.4, 2.3, 1.6],
    )  # fmt: skip
    config = Qwen3VLConfig(
        text_config=language(16, 2, rope_parameters=MROPE, vocab_size=len(words)),
        vision_config=VISION | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
        image_token_id=words.convert_tokens_to_ids(MARKS[2]),
    )
    seeing = Seeing3(Qwen2VLImageProcessorPil(patch_size=16, min_pixels=1024), words, SYSTEM)
    return QwenImage21Pipeline(
        transformer=sharpened(transformer),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=autoencoder.eval(),
        text_encoder=Qwen3VLForConditionalGeneration(config).eval(),
        processor=seeing,
    )


def read_smaller(module, calculate: Callable) -> None:
    """Make the sizes at which images are read those of a 64th of the pixels."""
    module.calculate_dimensions = lambda area, ratio: calculate(area / 64, ratio)


for kind in ("", "_plus", "_inpaint"):
    module = getattr(qwenimage, f"pipeline_qwenimage_edit{kind}")
    read_smaller(module, module.calculate_dimensions)


def flux2_parts(width: int, **config) -> dict[str, object]:
    """The transformer, the autoencoder and the scheduler of Flux.2, for states of a width."""
    torch.manual_seed(14)
    sizes = {"joint_attention_dim": 3 * width, "axes_dims_rope": (4, 4, 4, 4)}  # of three layers
    config |= {"timestep_guidance_channels": 16}  # 256
    transformer = Flux2Transformer2DModel(**FLUX | sizes, **config)
    autoencoder = AutoencoderKLFlux2(
        block_out_channels=(8,) * 4, down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, norm_num_groups=4,
        latent_channels=4,
    ).eval()  # fmt: skip
    autoencoder.bn.running_mean.normal_()
    autoencoder.bn.running_var.uniform_(0.5, 2.0)
    return {
        "transformer": sharpened(transformer),
        "vae": autoencoder,
        "scheduler": FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
    }


def klein(kind=Flux2KleinPipeline) -> DiffusionPipeline:
    """black-forest-labs/FLUX.2-klein-base-9B: guidance by an empty prompt in passes of its own."""
    parts = flux2_parts(8, guidance_embeds=False)
    encoder = Qwen3ForCausalLM(Qwen3Config(**language(8, 28))).eval()  # 36; states of 9, 18, 27
    return kind(text_encoder=encoder, tokenizer=letter_qwen(), **parts)


def ovis() -> DiffusionPipeline:
    """AIDC-AI/Ovis-Image-7B."""
    sizes = {"joint_attention_dim": 16, "out_channels": 16}  # 2048, 64
    encoder = Qwen3Model(Qwen3Config(**language(16, 2))).eval()
    parts = {"text_encoder": encoder, "vae": vae(scaling_factor=0.3611, shift_factor=0.1159)}
    return shaped(OvisImagePipeline, 16, OvisImageTransformer2DModel, sizes=sizes, **parts)


def longcat() -> DiffusionPipeline:
    """meituan-longcat/LongCat-Image: its pipeline draws 16 channels, whatever the model has."""
    sizes = {"in_channels": 64, "joint_attention_dim": 16}  # 64, 3584
    encoder = {"text_encoder": qwen_vl(), "text_processor": letter_qwen()}
    images = vae(scaling_factor=0.3611, shift_factor=0.1159, latent_channels=16)
    parts = {"sizes": sizes, "vae": images, **encoder}
    return shaped(LongCatImagePipeline, 17, LongCatImageTransformer2DModel, **parts)


def lengthened(call: dict[str, Any], by: int) -> dict[str, Any]:
    """A call that reads more tokens of a prompt, where that can be chosen."""
    name = "max_sequence_length"
    return call | ({name: call[name] + by} if name in call else {})


class Processor(ProcessorMixin):
    """A processor around a tokenizer, as Pixtral's, which needs torchvision."""

    def __init__(self, tokenizer=None, chat_template=None):
        super().__init__(tokenizer, chat_template=chat_template)


def dev2() -> DiffusionPipeline:
    """black-forest-labs/FLUX.2-dev: guidance embedded, a system message before the prompt."""
    template = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content[0].text }}[/]{% endfor %}"
    )
    words = letter_qwen()
    words.bos_token, words.padding_side = "<|im_start|>", "left"
    vision = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "image_size": 32,
        "num_attention_heads": 2, "head_dim": 8, "patch_size": 8, "model_type": "pixtral",
    }  # fmt: skip
    text = language(8, 31, model_type="mistral")  # 40; states of 10, 20, 30
    config = Mistral3Config(text_config=text, vision_config=vision)
    parts = flux2_parts(8)
    parts["text_encoder"] = Mistral3ForConditionalGeneration(config).eval()
    pipe = Flux2Pipeline(tokenizer=Processor(words, chat_template=template), **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def letter_glm() -> PreTrainedTokenizerFast:
    """Letters and words, behind two special tokens; it pads in front, as GLM's does."""
    backend = letter_qwen().backend_tokenizer
    starts = [(text, backend.token_to_id(text)) for text in ("<|im_start|>", "<think>")]
    backend.post_processor = TemplateProcessing(
        single="<|im_start|> <think> $A", special_tokens=starts
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<|endoftext|>", eos_token="<|endoftext|>",
        padding_side="left", model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def cogview4(kind=CogView4Pipeline) -> DiffusionPipeline:
    """THUDM/CogView4-6B."""
    torch.manual_seed(15)
    transformer = CogView4Transformer2DModel(
        in_channels=4,  # 16
        out_channels=4,  # 16
        num_layers=3,  # 30
        attention_head_dim=16,  # 40
        num_attention_heads=3,  # 64
        text_embed_dim=16,  # 4096
        time_embed_dim=8,  # 512
        condition_dim=4,  # 256
        sample_size=8,  # 128
    )
    encoder = GlmModel(GlmConfig(**language(16, 3))).eval()
    return kind(
        transformer=sharpened(transformer),
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=vae(),
        text_encoder=encoder,
        tokenizer=letter_glm(),
    )


def zimage(kind=ZImagePipeline) -> DiffusionPipeline:
    """Tongyi-MAI/Z-Image."""
    torch.manual_seed(16)
    transformer = ZImageTransformer2DModel(
        in_channels=4, dim=48, n_layers=3, n_refiner_layers=1,  # 16, 3840, 30, 2
        n_heads=3, n_kv_heads=3, cap_feat_dim=16, axes_dims=[4, 4, 8],  # 30, 30, 2560, [32, 48, 48]
    )  # fmt: skip
    torch.nn.init.normal_(transformer.cap_pad_token)
    return kind(
        transformer=sharpened(transformer), vae=vae(scaling_factor=0.3611, shift_factor=0.1159),
        text_encoder=Qwen3ForCausalLM(Qwen3Config(**language(16, 3))).eval().model,
        tokenizer=letter_qwen(), scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
    )  # fmt: skip


def lumina2(kind=Lumina2Pipeline) -> DiffusionPipeline:
    """Alpha-VLLM/Lumina-Image-2.0: two heads share their keys."""
    torch.manual_seed(17)
    transformer = Lumina2Transformer2DModel(
        sample_size=8, in_channels=4, hidden_size=64, num_layers=3,  # 128, 16, 2304, 26
        num_refiner_layers=1, num_attention_heads=4, num_kv_heads=2,  # 2, 24, 8
        multiple_of=8, axes_dim_rope=(4, 4, 8), cap_feat_dim=24,  # 256, (32, 32, 32), 2304
    )  # fmt: skip
    return kind(
        transformer=sharpened(transformer), vae=vae(scaling_factor=0.3611, shift_factor=0.1159),
        text_encoder=sana().text_encoder, tokenizer=letter_gemma(),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=6.0),
    )  # fmt: skip


def aura(kind=AuraFlowPipeline) -> DiffusionPipeline:
    """fal/AuraFlow-v0.3: registers stand in front of the text."""
    torch.manual_seed(20)
    transformer = AuraFlowTransformer2DModel(
        sample_size=8,  # 64
        num_mmdit_layers=2,  # 4
        num_single_dit_layers=2,  # 32
        attention_head_dim=16,  # 256
        num_attention_heads=3,  # 12
        joint_attention_dim=24,  # 2048
        caption_projection_dim=48,  # 3072
        pos_embed_max_size=144,  # 9216
    )
    torch.nn.init.normal_(transformer.register_tokens)
    return kind(
        transformer=sharpened(transformer),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=1.73),
        vae=vae(scaling_factor=0.13025),
        text_encoder=t5_encoder(24),
        tokenizer=letter_t5(),
    )


def krea() -> DiffusionPipeline:
    """Krea 2: two heads share their keys, and each channel of the heads has a gate."""
    torch.manual_seed(21)
    transformer = Krea2Transformer2DModel(
        in_channels=16, num_layers=3, attention_head_dim=16, num_attention_heads=4,  # 64, 28, 128
        num_key_value_heads=2, intermediate_size=32, timestep_embed_dim=16, text_hidden_dim=16,
        num_text_layers=3, text_num_attention_heads=2, text_num_key_value_heads=2,  # 12, 20, 20
        text_intermediate_size=32, axes_dims_rope=(4, 6, 6),  # 6912, (32, 48, 48)
    )  # fmt: skip
    for name, parameter in transformer.named_parameters():
        if ".norm_q." in name or ".norm_k." in name:  # one is added to each
            torch.nn.init.normal_(parameter, mean=1.0, std=0.5)
    rope = {"mrope_section": [2, 1, 1], "rope_type": "default", "rope_theta": 5e6}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    vision |= {"out_hidden_size": 16, "deepstack_visual_indexes": [0]}
    text = language(16, 3, rope_parameters=rope)
    encoder = Qwen3VLModel(Qwen3VLConfig(text_config=text, vision_config=vision)).eval()
    parts = qwen().components | {"transformer": transformer.eval(), "text_encoder": encoder}
    return Krea2Pipeline(**parts, text_encoder_select_layers=(1, 2, 3))  # of 36


def ernie() -> DiffusionPipeline:
    """baidu/ERNIE-Image: each text is read by itself, and stands behind the image."""
    torch.manual_seed(22)
    transformer = ErnieImageTransformer2DModel(
        hidden_size=48, num_attention_heads=3, num_layers=3, ffn_hidden_size=32,  # 3072, 24, 24
        in_channels=16, out_channels=16, text_in_dim=8, rope_axes_dim=(4, 6, 6),  # 128, 128, 2560
    )  # fmt: skip
    for part in (transformer.adaLN_modulation[-1], transformer.final_linear):  # gates of zero
        torch.nn.init.normal_(part.weight, std=0.2)
    parts = dev2().components
    parts["vae"].register_to_config(batch_norm_eps=1e-5)
    return ErnieImagePipeline(
        transformer=sharpened(transformer), vae=parts["vae"], tokenizer=letter_qwen(),
        text_encoder=parts["text_encoder"].model, scheduler=lumina2().scheduler,
    )  # fmt: skip


class OneLayer(UNet2DConditionModel):
    """Of its layers one cross-attention alone runs: a pass is cheap, to run and to compile.

    What it reads and gives depends on the latents and on the timestep, so that a pass too many or
    too few makes other latents, and each step has a map of its own.
    """

    def forward(self, sample, timestep, encoder_hidden_states, **_):
        layer = self.down_blocks[0].attentions[0].transformer_blocks[0].attn2
        seen = sample.flatten(2).mT
        seen = torch.cat([seen, torch.ones_like(seen) * timestep / 1000], dim=-1)
        seen = seen.repeat(1, 1, layer.query_dim // seen.shape[-1])
        read = layer(seen, encoder_hidden_states=encoder_hidden_states)
        return ((sample + read[..., : sample.shape[1]].mT.reshape(sample.shape)) / 2,)


# --- what is put beside a model ---


def controlnet(of: UNet2DConditionModel) -> ControlNetModel:
    """A ControlNet for a UNet; its closing convolutions start at zero, so it is given weights."""
    torch.manual_seed(3)
    model = ControlNetModel.from_unet(of, conditioning_embedding_out_channels=(4, 8, 8, 16))
    for parameter in model.controlnet_down_blocks.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


def gligen() -> DiffusionPipeline:
    """masterful/gligen-1-4-generation-text-box; its gates start at zero, so they are opened."""
    pipe = sd1(StableDiffusionGLIGENPipeline, attention_type="gated")
    for name, parameter in pipe.unet.named_parameters():
        if name.endswith((".alpha_attn", ".alpha_dense")):
            parameter.data.fill_(1.0)
    return pipe


def t2i_adapter() -> T2IAdapter:
    torch.manual_seed(4)
    return T2IAdapter(
        in_channels=3,
        channels=[*SD1_UNET["block_out_channels"]],
        num_res_blocks=1,
        downscale_factor=8,
        adapter_type="full_adapter",
    ).eval()


def lora() -> LoraConfig:
    """A LoRA of random weights, for each projection of any attention."""
    torch.manual_seed(8)
    layers = ["to_q", "to_k", "to_v", "to_out.0", "add_k_proj", "add_q_proj"]
    return LoraConfig(r=2, target_modules=layers, init_lora_weights=False)


def fuse(pipe: DiffusionPipeline) -> None:
    denoiser(pipe).fuse_qkv_projections()


def save_ip_adapter(folder: Path, unet: UNet2DConditionModel) -> None:
    """The files of h94/IP-Adapter: models/ip-adapter_sd15.safetensors, models/image_encoder."""
    torch.manual_seed(5)
    cross, seen = unet.config.cross_attention_dim, 16
    weights = {
        "image_proj.proj.weight": torch.randn(4 * cross, seen) / 4,
        "image_proj.proj.bias": torch.randn(4 * cross),
        "image_proj.norm.weight": torch.ones(cross),
        "image_proj.norm.bias": torch.zeros(cross),
    }
    number = 1  # they are numbered with the self-attention layers: 1, 3, 5, …
    for name in unet.attn_processors:
        if name.endswith("attn2.processor"):
            width = unet.get_submodule(name.removesuffix(".processor")).to_k.out_features
            for what in ("k", "v"):
                weights[f"ip_adapter.{number}.to_{what}_ip.weight"] = torch.randn(width, cross)
            number += 2
    (folder / "models").mkdir(parents=True)
    save_file(weights, folder / "models" / "ip-adapter_sd15.safetensors")
    config = CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=32,
        projection_dim=seen,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=32,
        patch_size=16,
    )
    CLIPVisionModelWithProjection(config).eval().save_pretrained(folder / "models/image_encoder")


def save_textual_inversion(folder: Path, token: str, vectors: int, width: int) -> None:
    """A learned_embeds.safetensors of several vectors for one token."""
    torch.manual_seed(6)
    folder.mkdir(parents=True)
    save_file({token: torch.randn(vectors, width)}, folder / "learned_embeds.safetensors")


def picture(w: int, h: int) -> Image.Image:
    """A picture to start from: the same for each size, and nowhere flat."""
    noise = np.random.default_rng(7).integers(0, 256, (h, w, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def mask(w: int, h: int) -> Image.Image:
    """White (to be painted) in its right half."""
    white = np.zeros((h, w), dtype=np.uint8)
    white[:, w // 2 :] = 255
    return Image.fromarray(white)


# --- the table of families ---

ALONE = ("conditional",)
GUIDED = ("negative", "conditional")
# Both others of InstructPix2Pix read the negative prompt; the text is guided against the one that
# sees the picture, as the conditional one does.
PIX2PIX = ("conditional", "negative", "without picture")
PERTURBED = ("negative", "conditional", "perturbed")
APART = "apart"
"""The negative prompt runs in a pass of its own, after the prompt's."""


@dataclass(frozen=True)
class Family:
    """A row of the table: how a family is called, and what its layers then are.

    Attributes:
        make: a function that makes the pipeline.
        grids: the (h, w) of its layers' grids.
        layout: the branches in the rows of a batch, or `APART`.
        call: the arguments of the call beside the prompts.
        size: (width, height), where the call takes one.
        negative: whether the call takes a negative prompt.
        red: the tokens of "red" in "a red dog".
        repeats: the images of each prompt.
        masks_padding: whether a mask hides the padding.
        is_joint: whether text and image share one softmax.
    """

    make: Callable[[], DiffusionPipeline]
    grids: Sequence[tuple[int, int]]
    layout: tuple[str, ...] | str = GUIDED
    call: dict[str, Any] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    negative: bool = True
    red: tuple[int, ...] = (2, 3, 4)
    repeats: int = 1
    masks_padding: bool = False
    is_joint: bool = False

    def arguments(self, prompts: int | None = None, **more: Any) -> dict[str, Any]:
        """The arguments of the pipeline for a list of so many prompts, or for one as a text."""
        sides = dict(zip(("width", "height"), self.size or (), strict=False))
        call = self.call | sides
        if self.negative:
            call["negative_prompt"] = ["at night"] * prompts if prompts else "at night"
        if prompts and isinstance(call.get("image"), Image.Image):
            images = prompts * more.get("num_images_per_prompt", 1)
            call["image"] = [call["image"]] * images
        return call | more

    def options(self, **more: Any) -> dict[str, Any]:
        """The arguments of heedmap's functions."""
        call = dict(self.call)
        if self.size:
            call["size"] = self.size
        if self.negative:
            call["negative"] = "at night"
        if "guidance_scale" in call:
            call["guidance"] = call.pop("guidance_scale")
        return {**call, "seed": 1, "steps": 2, **more}

    @property
    def branches(self) -> tuple[str, ...]:
        """What can be recorded of a call."""
        return GUIDED if self.negative or self.layout == APART else ALONE

    def layouts(self, steps: int) -> list[tuple[str, ...]]:
        """The branches in the rows of each pass."""
        if self.layout == APART:
            return [ALONE, ("negative",)] * steps
        return [self.layout] * steps

    def groups(self, steps: int) -> list[list[int]]:
        """The passes of each step."""
        if self.layout == APART:
            return [[2 * step, 2 * step + 1] for step in range(steps)]
        return [[step] for step in range(steps)]


STRONG = {"guidance_scale": 5.0}
BINNED = STRONG | {"use_resolution_binning": False}
SHORT = {"max_sequence_length": 40}
LATENT = [(12, 16), (6, 8), (3, 4)]
CLIP_T5 = (2, 3, 4, 79, 80, 81)


def joint(
    make, layout: tuple[str, ...] | str, length: int | None, size=(48, 80), **cells: Any
) -> Family:
    """The row of a family whose text and image share one softmax, with cells of 16 pixels."""
    call = {"max_sequence_length": length} if length else {}
    call |= cells.pop("call", {})
    cells = {"repeats": 2, **cells}
    grid = (size[1] // 16, size[0] // 16)
    return Family(make, [grid], layout, call, size=size, is_joint=True, **cells)


TRUE = {"true_cfg_scale": 3.0}
SCALE = {"guidance_scale": 3.0}
SEVERAL = {"image": [picture(64, 96), picture(80, 64)]}
BESIDE = {"image": picture(64, 32), "max_area": 48 * 80, "_auto_resize": False}
TABLE: dict[str, Family] = {
    "sd1": Family(sd1, [(9, 13), (5, 7), (3, 4), (2, 2)], call=STRONG, size=(104, 72), repeats=2),
    "sd2": Family(sd2, [*LATENT, (2, 2)], call=STRONG, size=(128, 96)),
    "turbo": Family(
        turbo, [*LATENT, (2, 2)], ALONE, {"guidance_scale": 0.0}, size=(128, 96), negative=False
    ),
    "lcm": Family(
        lcm, [*LATENT, (2, 2)], ALONE, {"guidance_scale": 8.0}, size=(128, 96), negative=False,
        repeats=2,
    ),
    "pix2pix": Family(
        pix2pix, [(16, 12), (8, 6), (4, 3), (2, 2)], PIX2PIX, STRONG | {"image": picture(96, 128)},
        repeats=2,
    ),
    "inpainting": Family(
        inpainting, [*LATENT, (2, 2)], size=(128, 96),
        call=STRONG | {"image": picture(128, 96), "mask_image": mask(128, 96)},
    ),
    "sdxl": Family(sdxl, LATENT[1:], call=STRONG, size=(128, 96)),
    "refiner": Family(
        refiner, [*LATENT[1:], (2, 2)],
        call=STRONG | {"image": picture(128, 96), "strength": 1.0},
    ),
    "upscaler": Family(
        upscaler, [(8, 12), (4, 6), (2, 3)], call=STRONG | {"image": picture(24, 16)}
    ),
    "sigma": Family(
        sigma, [(6, 4)], call=BINNED | SHORT, size=(64, 96), repeats=2,
        masks_padding=True,
    ),
    "alpha": Family(alpha, [(6, 4)], call=BINNED, size=(64, 96), masks_padding=True),
    "sana": Family(
        sana, [(9, 6)], size=(192, 288), repeats=2, masks_padding=True,
        call=BINNED | SHORT | {"complex_human_instruction": ["Draw: ", "Prompt: "]},
    ),
    "sana15": Family(
        sana15, [(9, 6)], size=(192, 288), masks_padding=True,
        call=BINNED | SHORT | {"complex_human_instruction": None},
    ),
    "sprint": Family(
        sprint, [(9, 6)], ALONE, BINNED | SHORT, size=(192, 288),
        negative=False, masks_padding=True,
    ),
    "hunyuan": Family(
        hunyuan, [(6, 4)], call=BINNED, size=(64, 96), red=CLIP_T5, repeats=2
    ),
    "sd3": joint(sd3, GUIDED, 12, call=STRONG, red=CLIP_T5),
    "sd35": joint(sd35, GUIDED, 12, call=STRONG, red=CLIP_T5),
    "flux": joint(flux, APART, 12, call=TRUE),
    "kontext": joint(kontext, APART, 12, call=TRUE | BESIDE),
    "schnell": joint(schnell, ALONE, 12, negative=False),
    "chroma": joint(chroma, APART, 12, call=SCALE),
    "bria": joint(bria, GUIDED, 12, call=SCALE),
    "fibo": joint(
        fibo, GUIDED, 12, call=SCALE, red=(1, 2), masks_padding=True
    ),
    "klein": joint(klein, APART, 24, call=SCALE, negative=False, red=(4, 5)),
    "klein_images": joint(
        klein, APART, 24, call=SCALE | SEVERAL, negative=False, red=(4, 5)
    ),
    "dev2": joint(dev2, ALONE, 230, negative=False, red=(222, 223)),
    "dev2_image": joint(
        dev2, ALONE, 230, call={"image": SEVERAL["image"][:1]}, negative=False, red=(222, 223)
    ),
    "qwen": joint(qwen, APART, 12, call=TRUE, red=(1, 2), masks_padding=True),
    "krea": joint(krea, APART, 14, call=SCALE, red=(1, 2), masks_padding=True),
    "qwen_edit": joint(
        qwen_edit, APART, 12, call=TRUE | {"image": picture(160, 96)}, red=(163, 164), repeats=1,
        masks_padding=True,
    ),
    "qwen21": joint(qwen21, APART, None, (64, 96), call=TRUE, red=(5, 6), masks_padding=True),
    "qwen21_images": joint(
        qwen21, APART, None, (64, 96), call=TRUE | SEVERAL | {"output_resolution": 64},
        red=(26, 27), masks_padding=True,
    ),
    "ovis": joint(ovis, APART, 24, call=SCALE, red=(2, 3)),
    "longcat": joint(
        longcat, APART, None, call=SCALE | {"enable_prompt_rewrite": False}, red=(1, 2)
    ),
    "aura": joint(aura, GUIDED, 12, call=SCALE, red=(10, 11, 12)),
    "cogview4": joint(cogview4, APART, 16, call=SCALE, red=(11, 12)),
    "zimage": joint(zimage, GUIDED[::-1], 64, call=SCALE, red=(4, 5)),
    "lumina2": joint(lumina2, APART, 220, call=SCALE, red=(142, 143, 144)),
    "ernie": joint(ernie, GUIDED, None, call=SCALE, red=(1, 2), masks_padding=True),
}  # fmt: skip
if not hasattr(diffusers, "QwenImage21Pipeline"):  # diffusers 0.40
    TABLE = {name: row for name, row in TABLE.items() if row.make is not qwen21}
FAMILIES = {name: row.make for name, row in TABLE.items() if not row.is_joint}
FAMILIES |= {"short": short, "least": least}
UNSAVED = ("dev2", "dev2_image", "qwen_edit", "qwen21_images")
JOINT = {name: row.make for name, row in TABLE.items() if row.is_joint and name not in UNSAVED}
DISTINCT = [name for name in TABLE if name not in ("turbo", "inpainting", "refiner")]
"""The families, but those whose attention is another's: of SD 2, 1 and SDXL."""
KINDS = ("sd1", "sigma", "sd3", "flux", "zimage", "klein_images")
"""A family of each kind: UNet, transformer that attends to the text alone, text and image in two
streams, in two and one, in one sequence, and beside reference images."""
