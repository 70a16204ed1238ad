"""The UNets of Stable Diffusion: 1.x, 2.x, XL and their relatives."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import Attention

from heedmap.backends.family import Family, GridShape, Guard, made_from
from heedmap.errors import ArgumentError
from heedmap.text.tokens import Rewritten, expanded, tokenize
from heedmap.text.words import TokenTable

STAGES = ("down_blocks", "mid_block", "up_blocks")
"""The parts of a UNet that hold its layers, in the order in which they run."""
OWN_WAY = "runs through attention processors of its own, which take the place of heedmap's"
PIX2PIX = ("StableDiffusionInstructPix2PixPipeline", "StableDiffusionXLInstructPix2PixPipeline")
CONSISTENT = ("LatentConsistencyModelPipeline", "LatentConsistencyModelImg2ImgPipeline")
UPSCALERS = ("StableDiffusionUpscalePipeline",)  # to import one would import all that it needs
CHAT = "reads its prompt with a language model whose tokens heedmap does not tie to words yet"


class UNet(Family):
    """A `UNet2DConditionModel`, which halves its latent from stage to stage and comes back."""

    told = (
        "a Stable Diffusion pipeline with a UNet2DConditionModel (1.x, 2.x, XL and their relatives)"
    )
    component = "unet"
    kind = UNet2DConditionModel
    inputs = ("sample", "timestep", "encoder_hidden_states")
    sample = "sample"
    unserved: ClassVar[Mapping[str, str]] = {
        "ModularPipeline": "encodes its prompt inside its blocks, where heedmap cannot see it",
        "StableDiffusionPanoramaPipeline": "draws views that overlap, none of the whole picture",
        "StableDiffusionAttendAndExcitePipeline": OWN_WAY,
        "TextToVideoZeroPipeline": OWN_WAY,
        "TextToVideoZeroSDXLPipeline": OWN_WAY,
        "LEditsPPPipelineStableDiffusion": OWN_WAY,
        "LEditsPPPipelineStableDiffusionXL": OWN_WAY,
        "StableDiffusionPix2PixZeroPipeline": OWN_WAY,
        "SemanticStableDiffusionPipeline": (
            "encodes its prompt where heedmap cannot hear what is read"
        ),
        "StableDiffusionParadigmsPipeline": "runs several steps in one batch",
        "StableDiffusionImageVariationPipeline": "reads a picture and no prompt",
        "PaintByExamplePipeline": "reads a picture and no prompt",
        "StableDiffusionLatentUpscalePipeline": (
            "gives its UNet the noise's strength for a timestep"
        ),
        "KolorsPipeline": CHAT,
        "KolorsImg2ImgPipeline": CHAT,
        "KolorsPAGPipeline": CHAT,
    }

    def cross_attention(self, model: Any) -> dict[str, Attention]:
        """The text cross-attention layers, stage by stage."""
        found = [
            (name, module)
            for name, module in model.named_modules()
            # Layers with added keys (DeepFloyd IF, Kandinsky) mix text and picture in one softmax.
            if isinstance(module, Attention)
            and name.startswith(STAGES)
            and module.is_cross_attention
            and module.added_kv_proj_dim is None
        ]
        # The UNet registers its middle last; within a stage the order is that of the forward pass.
        return dict(sorted(found, key=lambda item: STAGES.index(item[0].partition(".")[0])))

    def why_none(self, model: Any) -> str:
        """Why there are no layers, where there are none."""
        if any(getattr(m, "added_kv_proj_dim", None) is not None for m in model.modules()):
            return (
                "its layers have text and picture in one softmax (DeepFloyd IF and Kandinsky 2 "
                "do), which is not served yet"
            )
        return super().why_none(model)

    def self_attention(self, model: Any) -> dict[str, Attention]:
        """The layers in which the picture attends to itself.

        An image prompt's resampler has attention of its own (IP-Adapter Plus), and so has what ties
        boxes to a picture (GLIGEN): neither is the picture's to itself.
        """
        return {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, Attention)
            and name.startswith(STAGES)
            and ".fuser." not in name
            and not module.is_cross_attention
            and module.added_kv_proj_dim is None
        }

    def grid(self, model: Any, name: str, latent: GridShape) -> GridShape:
        """The grid of a layer's stage: halved from stage to stage, rounding up, and back again."""
        last = len(model.config.block_out_channels) - 1
        stage, _, rest = name.partition(".")
        number = int(rest.partition(".")[0]) if stage != "mid_block" else last
        h, w = latent
        for _ in range(last - number if stage == "up_blocks" else number):
            h, w = (h + 1) // 2, (w + 1) // 2
        return h, w

    def width(self, model: Any) -> int:
        """The channels of the first stage, which has the finest grid."""
        return model.config.block_out_channels[0]

    def table(
        self, pipe: Any, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """As CLIP reads it; textual inversion makes several tokens of a placeholder."""
        convert = getattr(pipe, "maybe_convert_prompt", None)
        if convert is None:
            return tokenize(prompt, tokenizer)

        def rewrite(text: str) -> Rewritten | None:
            return expanded(text, tokenizer, lambda piece: convert(piece, tokenizer))

        return tokenize(prompt, tokenizer, rewrite=rewrite)

    def within(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        """Some project them once for all layers."""
        projected = model.config.encoder_hid_dim_type == "text_proj"
        return model.encoder_hid_proj(states) if projected else states

    def prompt_first(self, pipe: Any, encoded: Any) -> bool:
        """As InstructPix2Pix has it: with the older method, or with the newer one of SDXL."""
        older = isinstance(encoded, torch.Tensor)
        return older or made_from(pipe, PIX2PIX) is not None

    def pictures(self, made: Any) -> Sequence[Any]:
        """LDM3D has them beside a depth."""
        return made.images if hasattr(made, "images") else made.rgb

    def repeats_passes(self, pipe: Any) -> bool:
        """Self-attention guidance does, on blurred latents (Hong et al., 2023)."""
        return made_from(pipe, {"StableDiffusionSAGPipeline"}) is not None

    def source_first(self, pipe: Any) -> bool:
        """CycleDiffusion has a source (Wu & De la Torre, 2022)."""
        return made_from(pipe, {"CycleDiffusionPipeline"}) is not None

    def why_unblended(self, pipe: Any) -> str | None:
        """The pipelines of latent consistency decode what is not a latent of a step."""
        if made_from(pipe, CONSISTENT) is None:
            return None
        return (
            "decodes what its scheduler makes besides the latents and a blend does not reach: "
            "leave only out, or use StableDiffusionPipeline with an LCMScheduler"
        )

    def start_size(self, pipe: Any, size: tuple[int, int]) -> tuple[int, int]:
        """An upscaler starts from a small picture, whose pixels are the cells of its latent."""
        if made_from(pipe, UPSCALERS) is None:
            return size
        side = self.cell_side(pipe)
        return size[0] // side, size[1] // side

    def guards(self, pipe: Any) -> Iterable[Guard]:
        """Inpainting may draw a crop of the picture, larger."""
        if hasattr(pipe, "mask_processor"):
            yield pipe.mask_processor, "get_crop_region", _refuse_crop


def _refuse_crop(*args: Any, **kwargs: Any) -> Any:
    """In the place of what finds the part of a picture that is drawn larger."""
    raise ArgumentError(
        "padding_mask_crop draws a part of the picture alone, so that its maps would not lie where "
        "the picture is: leave it out, or crop the picture and the mask before"
    )
