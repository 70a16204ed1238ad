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
from heedmap.backends.flux import Flux
from heedmap.backends.joint import template_around
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable


class Flux2(Flux):
    """A pipeline with a `Flux2Transformer2DModel`, whose layers have half of the latent's grid."""

    description = "a Flux.2 pipeline"
    model_class = Flux2Transformer2DModel
    layer_classes = (Flux2Attention, Flux2ParallelSelfAttention)
    sequences = (("tokenizer",),)
    negative_guidance = "guidance_scale"

    def __init__(self, pipe: Any) -> None:
        super().__init__(pipe)
        # Inpainting takes an image to draw on by this name.
        self.reads_images = "mask_image" not in parameters(pipe)

    def initial(self, latents: Tensor) -> Tensor:
        """Return latents (B, C, h, w) with the cells of each position as its channels."""
        return pixel_unshuffle(latents, self.latent_multiple)

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt inside of the chat template."""
        system = getattr(self.encoder, "system_message", None)  # dev has one
        system = getattr(self.encoder, "DEFAULT_SYSTEM_MESSAGE", system)

        def render(text: str) -> str:
            if system is not None:
                (chat,) = format_input([text], system_message=system)
                return tokenizer.apply_chat_template(chat, tokenize=False)
            chat = [{"role": "user", "content": text}]
            return tokenizer.apply_chat_template(
                chat,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
            )

        before, after = template_around(prompt, render)
        # A processor adds no second start token.
        inner = getattr(tokenizer, "tokenizer", tokenizer)
        begun = inner is not tokenizer and before.startswith(inner.bos_token or "\0")
        return tokenize(
            prompt,
            inner,
            before=before,
            after=after,
            limit=self.limit(arguments),
            add_special_tokens=not begun,
        )
