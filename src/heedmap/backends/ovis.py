"""Ovis-Image: a transformer shaped as Flux.1 that reads a chat in place of T5's text.

Qwen 3 reads the prompt behind an instruction in its chat template. The pipeline drops the first
tokens, and sets the states of the padding to zero; the image attends to them all the same.
"""

from collections.abc import Sequence
from typing import Any

from diffusers import OvisImageTransformer2DModel
from diffusers.models.transformers.transformer_ovis_image import OvisImageAttention
from torch import Tensor

from heedmap.backends.base import Arguments
from heedmap.backends.flux import Flux
from heedmap.backends.joint import template_around
from heedmap.text.axis import arrange
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable


class OvisImage(Flux):
    """A pipeline with an `OvisImageTransformer2DModel`."""

    description = "an Ovis-Image pipeline"
    model_class = OvisImageTransformer2DModel
    layer_classes = (OvisImageAttention,)
    sequences = (("tokenizer",),)
    encodes_negative_apart = False
    encoded_places = (0, 1, -1)
    negative_guidance = "guidance_scale"

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its first block."""
        return super().project_text(self.model.context_embedder_norm(states))

    def axis_places(
        self,
        count: int,
        arguments: Arguments,
    ) -> Sequence[int]:
        """Return the places after those that are dropped."""
        return range(self.pipe.user_prompt_begin_id, count)

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt inside of the template, after its first ones."""
        messages = self.pipe._get_messages
        before, after = template_around(prompt, lambda text: messages(text)[0])
        table = tokenize(
            prompt,
            tokenizer,
            before=before,
            after=after,
            limit=self.limit(arguments) + self.pipe.user_prompt_begin_id,
        )
        return arrange(table, self.axis_places(len(table.tokens), arguments))
