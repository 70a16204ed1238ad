"""Flux.2: a transformer whose double and single blocks attend to a chat's text and to the image.

A language model reads the prompt inside of its chat template: Mistral for dev, Qwen 3 for klein.
All tokens are on the K axis, those of the template and the padding, too. Latents are packed: four
cells make one position, normalized by the autoencoder's own statistics.
"""

from typing import Any

from diffusers import Flux2Transformer2DModel
from diffusers.models.transformers.transformer_flux2 import (
    Flux2Attention,
    Flux2ParallelSelfAttention,
)
from diffusers.pipelines.flux2.pipeline_flux2 import format_input
from torch import Tensor
from torch.nn.functional import pixel_unshuffle

from heedmap.backends.base import Arguments, parameters
from heedmap.backends.flux import FluxFamily
from heedmap.backends.joint import chat_around, template_around


class Flux2(FluxFamily):
    """A pipeline with a `Flux2Transformer2DModel`, whose layers have half of the latent's grid."""

    model_class = Flux2Transformer2DModel
    layer_classes = (Flux2Attention, Flux2ParallelSelfAttention)

    def __init__(self, pipe: Any) -> None:
        super().__init__(pipe)
        # Inpainting takes an image to draw on by this name.
        self.reads_images = "mask_image" not in parameters(pipe)

    def initial(self, latents: Tensor) -> Tensor:
        """Return latents (B, C, h, w) with the cells of each position as its channels."""
        return pixel_unshuffle(latents, self.latent_multiple)

    def template(
        self,
        arguments: Arguments,
        tokenizer: Any,
        prompt: str,
    ) -> tuple[str, str]:
        """Return the texts of the chat template before and after a prompt."""
        system = getattr(self.encoder, "system_message", None)  # dev has one
        system = getattr(self.encoder, "DEFAULT_SYSTEM_MESSAGE", system)
        if system is None:
            return chat_around(prompt, tokenizer, enable_thinking=False)

        def render(text: str) -> str:
            (chat,) = format_input([text], system_message=system)
            return tokenizer.apply_chat_template(chat, tokenize=False)

        return template_around(prompt, render)
