"""The UNets of Stable Diffusion: 1.x, 2.x, XL and their relatives."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import Attention

from heedmap.backends.base import Family, GridShape, made_from
from heedmap.errors import ArgumentError
from heedmap.text.words import Rewritten, TokenTable, expanded, tokenize

_STAGES = ("down_blocks", "mid_block", "up_blocks")  # in the order they run
_CONSISTENT = ("LatentConsistencyModelPipeline", "LatentConsistencyModelImg2ImgPipeline")
_OWN_PROCESSORS = "runs attention processors of its own in place of heedmap's"


class UNet(Family):
    """A `UNet2DConditionModel`, which halves its latent from stage to stage and doubles it again.

    A prompt is read by CLIP; textual inversion turns a placeholder into several tokens.
    """

    description = (
        "a Stable Diffusion pipeline with a UNet2DConditionModel (1.x, 2.x, XL and their relatives)"
    )
    component = "unet"
    model_class = UNet2DConditionModel
    unserved: ClassVar[Mapping[str, str]] = {
        "ModularPipeline": "encodes its prompt inside its blocks, where heedmap cannot see it",
        "StableDiffusionPanoramaPipeline": "draws views that overlap, none of the whole image",
        "StableDiffusionAttendAndExcitePipeline": _OWN_PROCESSORS,
        "TextToVideoZeroPipeline": _OWN_PROCESSORS,
        "TextToVideoZeroSDXLPipeline": _OWN_PROCESSORS,
        "StableDiffusionPix2PixZeroPipeline": _OWN_PROCESSORS,
        "StableDiffusionParadigmsPipeline": "runs several steps in one batch",
        "StableDiffusionLatentUpscalePipeline": (
            "passes the strength of the noise to its UNet in place of a timestep"
        ),
    }
    prompt_first = (
        "StableDiffusionInstructPix2PixPipeline",
        "StableDiffusionXLInstructPix2PixPipeline",
    )
    source_first = ("CycleDiffusionPipeline",)  # Wu & De la Torre, 2022
    repeats_passes = ("StableDiffusionSAGPipeline",)  # on blurred latents (Hong et al., 2023)

    def attention(self, model: Any) -> dict[str, Attention]:
        """Return the attention layers of the stages.

        Layers with added keys (DeepFloyd IF, Kandinsky 2) mix text and image in one softmax. The
        attention of GLIGEN's fusers and of IP-Adapter's resampler is not the image's.
        """
        layers = [
            (name, module)
            for name, module in model.named_modules()
            if isinstance(module, Attention)
            and name.startswith(_STAGES)
            and ".fuser." not in name
            and module.added_kv_proj_dim is None
        ]
        # The UNet registers its middle last; within a stage the order is that of the forward pass.
        return dict(sorted(layers, key=lambda item: _STAGES.index(item[0].partition(".")[0])))

    def grid(self, model: Any, name: str, latent: GridShape) -> GridShape:
        """Return the grid of a layer's stage: the latent's, halved and rounded up at each level."""
        last = len(model.config.block_out_channels) - 1
        stage, _, rest = name.partition(".")
        number = int(rest.partition(".")[0]) if stage != "mid_block" else last
        h, w = latent
        for _ in range(last - number if stage == "up_blocks" else number):
            h, w = (h + 1) // 2, (w + 1) // 2
        return h, w

    def project_text(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        """Return text states projected, if the model projects them once for all layers."""
        projected = model.config.encoder_hid_dim_type == "text_proj"
        return model.encoder_hid_proj(states) if projected else states

    def table(
        self, pipe: Any, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """Return the words and tokens of a prompt, with placeholders expanded."""
        if not hasattr(pipe, "maybe_convert_prompt"):
            return tokenize(prompt, tokenizer)

        def rewrite(text: str) -> Rewritten | None:
            convert = pipe.maybe_convert_prompt
            return expanded(text, tokenizer, lambda piece: convert(piece, tokenizer))

        return tokenize(prompt, tokenizer, rewrite=rewrite)

    def guards(self, pipe: Any) -> Iterable[tuple[object, str, Callable[..., Any]]]:
        """Yield the method with which inpainting selects a crop, which it draws enlarged."""
        if hasattr(pipe, "mask_processor"):
            yield pipe.mask_processor, "get_crop_region", _refuse_crop

    def why_unblended(self, pipe: Any) -> str | None:
        """Return why latent consistency models cannot blend."""
        if not made_from(pipe, _CONSISTENT):
            return None
        return (
            "decodes what its scheduler makes besides the latents and a blend does not reach: "
            "leave only out, or use StableDiffusionPipeline with an LCMScheduler"
        )


def _refuse_crop(*args: Any, **kwargs: Any) -> Any:
    raise ArgumentError(
        "padding_mask_crop draws a part of the image alone, so that its maps would be misplaced: "
        "leave it out, or crop the image and the mask before"
    )
