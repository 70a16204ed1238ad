"""Bria: a transformer shaped as Flux.1 that reads T5's text alone.

T5 reads each prompt by itself, without padding. The pipeline pads its states with zeros, to which
the image attends, and passes the scheduler's timesteps as they are. It counts positions of the
transformer where others count cells of the latent.
"""

from diffusers import BriaTransformer2DModel
from diffusers.models.transformers.transformer_bria import BriaAttention

from heedmap.backends.flux import Flux


class Bria(Flux):
    """A pipeline with a `BriaTransformer2DModel`."""

    description = "a Bria pipeline"
    model_class = BriaTransformer2DModel
    layer_classes = (BriaAttention,)
    timestep_factor = 1
    sequences = (("tokenizer",),)
    pads_to_longest = "right"
    encodes_negative_apart = False
    runs_negative_apart = False
    encoded_places = (0, 1, -1)
    negative_guidance = "guidance_scale"
    needed_parts = ("vae",)

    @property
    def cell_side(self) -> int:
        """The pixels on the side of a cell of the latent."""
        return super().cell_side // 2
