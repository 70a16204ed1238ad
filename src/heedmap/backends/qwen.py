"""Qwen-Image: a transformer over packed latents and the states of a language model.

Qwen 2.5 VL reads the prompt inside of a chat template. The pipeline drops the template's first
tokens, and pads the prompts of a batch to the longest of them. A mask hides the padding, so its
attention is exactly 0. A negative prompt is encoded by a call and run in a pass of its own.
"""

from collections.abc import Sequence
from typing import Any

from diffusers import QwenImageTransformer2DModel
from torch import Tensor

from heedmap.backends.base import Arguments, GridShape
from heedmap.backends.joint import PackedFamily
from heedmap.text.axis import arrange
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable


class QwenImage(PackedFamily):
    """A pipeline with a `QwenImageTransformer2DModel`, whose layers have half the latent's grid."""

    description = "a Qwen-Image pipeline"
    model_class = QwenImageTransformer2DModel
    masks_padding = True
    pads_to_longest = "right"
    encodes_negative_apart = True
    encoded_places = (0, -1, 1)
    sequences = (("tokenizer",),)
    negative_guidance = "true_cfg_scale"

    def image_grids(self, inputs: Arguments) -> list[GridShape]:
        """Return the grids (h, w) of the images, by the shapes that the model is given."""
        shapes = inputs["img_shapes"][0]
        # That of a single image, as ControlNets' pipelines give it.
        if isinstance(shapes, tuple):
            shapes = [shapes]
        return [(h, w) for _, h, w in shapes]

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its first block."""
        return self.model.txt_in(self.model.txt_norm(states))

    def with_text(
        self,
        arguments: Arguments,
        text: Tensor,
        row: int,
        positions: int,
    ) -> dict[str, Any]:
        """Return the arguments of a block for one row of its batch, with other text (1, K, C)."""
        image, places = arguments["image_rotary_emb"]
        one = super().with_text(arguments, text, row, positions)
        return one | {"image_rotary_emb": (image, places[:1].expand(text.shape[1], -1))}

    def unpack(self, latents: Tensor, latent: GridShape) -> Tensor:
        """Return packed latents (B, N, 4C) as (B, C, h, w)."""
        return super().unpack(latents, latent)[:, :, 0]

    def axis_places(
        self,
        count: int,
        arguments: Arguments,
    ) -> Sequence[int]:
        """Return the places after those that are dropped."""
        return range(self.pipe.prompt_template_encode_start_idx, count)

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt inside of the template, after its first ones."""
        pipe = self.pipe
        before, after = pipe.prompt_template_encode.split("{}")
        limit = min(self.limit(arguments), pipe.tokenizer_max_length)
        table = tokenize(
            prompt,
            tokenizer,
            before=before,
            after=after,
            limit=limit + pipe.prompt_template_encode_start_idx,
            padding=False,
        )
        return arrange(table, self.axis_places(len(table.tokens), arguments))
