"""CogView 4: a transformer over patches and the states of a language model.

GLM reads the prompt. The pipeline pads the prompts of a batch in front, to a multiple of 16 tokens
and to the longest of them; no mask hides the padding. A negative prompt runs in a pass of its own.
"""

from math import prod
from typing import Any

from diffusers import CogView4Transformer2DModel
from diffusers.pipelines.cogview4.pipeline_cogview4 import calculate_shift
from torch import Tensor

from heedmap.backends.base import GridShape
from heedmap.backends.joint import JointFamily


class CogView4(JointFamily):
    """A pipeline with a `CogView4Transformer2DModel`."""

    model_class = CogView4Transformer2DModel
    text_first = True
    pads_to_longest = "left"
    token_multiple = 16
    runs_negative_apart = True

    def noise_shift(self, latent: GridShape) -> float:
        """Return mu, which grows with the size of the image."""
        config = self.pipe.scheduler.config
        names = ("base_image_seq_len", "base_shift", "max_shift")
        return calculate_shift(prod(self.grid("", latent)), *map(config.get, names))

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its first block."""
        return self.model.patch_embed.text_proj(states)

    def text_after(self, output: Any, tokens: int) -> Tensor:
        """Return the text states (1, K, C) in the output of a block, after those of the image."""
        return output[1]
