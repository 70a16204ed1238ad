"""The UNets of Stable Diffusion: 1.x, 2.x, XL and their relatives."""

from functools import cached_property
from math import ceil

from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import Attention

from heedmap.backends.base import Family, GridShape


class UNet(Family):
    """A pipeline with a `UNet2DConditionModel`, which halves its latent from stage to stage.

    A prompt is read by CLIP; textual inversion turns a placeholder into several tokens.
    """

    component = "unet"
    block_lists = ("down_blocks", "mid_block", "up_blocks")
    model_class = UNet2DConditionModel
    prompt_first = (
        "StableDiffusionInstructPix2PixPipeline",
        "StableDiffusionXLInstructPix2PixPipeline",
    )
    source_first = ("CycleDiffusionPipeline",)  # Wu & De la Torre, 2022
    # On blurred latents (Hong et al., 2023).
    repeats_passes = ("StableDiffusionSAGPipeline",)
    unblended = (
        "LatentConsistencyModelPipeline",
        "LatentConsistencyModelImg2ImgPipeline",
    )

    @cached_property
    def layers(self) -> dict[str, Attention]:
        """The attention layers of the stages.

        Layers with added keys (DeepFloyd IF, Kandinsky 2) mix text and image in one softmax. The
        attention of GLIGEN's fusers and of IP-Adapter's resampler is not the image's.
        """
        layers = super().layers.items()
        return {
            name: layer
            for name, layer in layers
            if ".fuser." not in name and layer.added_kv_proj_dim is None
        }

    def grid(self, name: str, latent: GridShape) -> GridShape:
        """Return the grid of a layer's stage: the latent's, halved and rounded up at each level."""
        last = len(self.model.config.block_out_channels) - 1
        stage, number, *_ = name.split(".")
        halvings = last
        if stage == "down_blocks":
            halvings = int(number)
        elif stage == "up_blocks":
            halvings = last - int(number)
        h, w = latent
        return ceil(h / 2**halvings), ceil(w / 2**halvings)
