"""Ovis-Image: a transformer shaped as Flux.1 that reads a chat in place of T5's text.

Qwen 3 reads the prompt behind an instruction in its chat template. The pipeline drops the first
tokens, and sets the states of the padding to zero; the image attends to them all the same.
"""

from typing import Any

from diffusers import OvisImageTransformer2DModel
from diffusers.models.transformers.transformer_ovis_image import OvisImageAttention
from torch import Tensor

from heedmap.backends.base import Arguments
from heedmap.backends.flux import FluxFamily
from heedmap.backends.joint import template_around


class OvisImage(FluxFamily):
    """A pipeline with an `OvisImageTransformer2DModel`."""

    model_class = OvisImageTransformer2DModel
    layer_classes = (OvisImageAttention,)
    encodes_negative_apart = False
    negative_place = 1

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its first block."""
        return super().project_text(self.model.context_embedder_norm(states))

    @property
    def dropped(self) -> int:
        """The number of the template's first tokens, which the pipeline drops."""
        return self.pipe.user_prompt_begin_id

    def template(
        self,
        arguments: Arguments,
        tokenizer: Any,
        prompt: str,
    ) -> tuple[str, str]:
        """Return the texts before and after a prompt."""
        messages = self.pipe._get_messages
        return template_around(prompt, lambda text: messages(text)[0])
