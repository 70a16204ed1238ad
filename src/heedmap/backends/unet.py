"""The UNets of Stable Diffusion: 1.x, 2.x, XL and their relatives."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import Attention

from heedmap.backends.base import Family, GridShape
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable

_STAGES = ("down_blocks", "mid_block", "up_blocks")  # in the order they run
_OWN_PROCESSORS = "runs attention processors of its own in place of heedmap's"


class UNet(Family):
    """A pipeline with a `UNet2DConditionModel`, which halves its latent from stage to stage.

    A prompt is read by CLIP; textual inversion turns a placeholder into several tokens.
    """

    description = (
        "a Stable Diffusion pipeline with a UNet2DConditionModel"
        " (1.x, 2.x, XL and their relatives)"
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
    quirks: ClassVar[Mapping[str, str]] = {
        "StableDiffusionInstructPix2PixPipeline": "prompt_first",
        "StableDiffusionXLInstructPix2PixPipeline": "prompt_first",
        "CycleDiffusionPipeline": "source_first",  # Wu & De la Torre, 2022
        "StableDiffusionSAGPipeline": "repeats_passes",  # on blurred latents (Hong et al., 2023)
        "LatentConsistencyModelPipeline": "unblended",
        "LatentConsistencyModelImg2ImgPipeline": "unblended",
    }

    def attention(self) -> dict[str, Attention]:
        """Return the attention layers of the stages.

        Layers with added keys (DeepFloyd IF, Kandinsky 2) mix text and image in one softmax. The
        attention of GLIGEN's fusers and of IP-Adapter's resampler is not the image's.
        """
        layers = [
            (name, module)
            for name, module in self.model.named_modules()
            if isinstance(module, Attention)
            and name.startswith(_STAGES)
            and ".fuser." not in name
            and module.added_kv_proj_dim is None
        ]
        # The UNet registers its middle last; within a stage the order is that of the forward pass.
        return dict(
            sorted(layers, key=lambda item: _STAGES.index(item[0].partition(".")[0]))
        )

    def reads_text(self, layer: Any) -> bool:
        """Return whether a layer attends to the text.

        Several widths of text are those of the hidden states: the UNets of AudioLDM and MusicLDM
        attend to these alone, and the text is one vector beside the timestep.
        """
        widths = self.model.config.cross_attention_dim
        is_given_text = not isinstance(widths, list | tuple) or len({*widths}) == 1
        return is_given_text and super().reads_text(layer)

    def grid(self, name: str, latent: GridShape) -> GridShape:
        """Return the grid of a layer's stage: the latent's, halved and rounded up at each level."""
        last = len(self.model.config.block_out_channels) - 1
        stage, _, rest = name.partition(".")
        number = int(rest.partition(".")[0]) if stage != "mid_block" else last
        h, w = latent
        for _ in range(last - number if stage == "up_blocks" else number):
            h, w = (h + 1) // 2, (w + 1) // 2
        return h, w

    def project_text(self, states: torch.Tensor) -> torch.Tensor:
        """Return text states projected, if the model projects them once for all layers."""
        projected = self.model.config.encoder_hid_dim_type == "text_proj"
        return self.model.encoder_hid_proj(states) if projected else states

    def table(
        self, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """Return the words and tokens of a prompt, with placeholders expanded."""
        return tokenize(
            prompt, tokenizer, rewrite=self.placeholders_expanded(tokenizer)
        )

    def why_unblended(self) -> str | None:
        """Return why latent consistency models cannot blend."""
        if not self.has_quirk("unblended"):
            return None
        return (
            "decodes what its scheduler makes besides the latents and a blend does not reach: "
            "leave only out, or use StableDiffusionPipeline with an LCMScheduler"
        )
