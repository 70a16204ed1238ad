"""Krea 2: a transformer over one sequence of text and image, whose attention has a gate.

Qwen 3 VL reads the prompt inside of a chat template. The pipeline drops the template's first
tokens, and pads the prompt in front of its last ones to `max_sequence_length` tokens; a mask hides
the padding. A token has the states of several layers of the language model, which the transformer
fuses before its blocks. Several heads share their keys.
"""

from dataclasses import replace
from typing import Any

from diffusers import Krea2Transformer2DModel
from diffusers.models.transformers.transformer_krea2 import Krea2Attention
from diffusers.modular_pipelines.qwenimage import prompt_templates
from torch import Tensor

from heedmap.backends.base import Arguments, GridShape
from heedmap.backends.flux import FluxFamily
from heedmap.backends.transformer import Transformer
from heedmap.text.axis import arrange
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable

_BEFORE, _AFTER = prompt_templates.QWENIMAGE_PROMPT_TEMPLATE.split("{}")


class Krea2(FluxFamily):
    """A pipeline with a `Krea2Transformer2DModel`, whose layers have half of the latent's grid."""

    model_class = Krea2Transformer2DModel
    block_lists = ("transformer_blocks",)
    layer_classes = (Krea2Attention,)
    masks_padding = True
    guidance_off = 0.0
    dropped = prompt_templates.QWENIMAGE_PROMPT_TEMPLATE_START_IDX
    groups = Transformer.groups

    def image_grids(self, inputs: Arguments) -> list[GridShape]:
        """Return the grid (h, w) of the image, by the place of its last position."""
        _, row, column = inputs["position_ids"][-1].tolist()
        return [(int(row) + 1, int(column) + 1)]

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, layers, C) fused, as the blocks are given them."""
        model = self.model
        return model.txt_in(model.text_fusion(states))

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt inside of the template, after its first ones.

        The padding stands in front of the template's last tokens.
        """
        last = tokenize("", tokenizer, after=_AFTER, padding=False)
        count = self.limit(arguments) + self.dropped
        table = tokenize(
            prompt,
            tokenizer,
            before=_BEFORE,
            limit=count - len(last.tokens),
        )
        whole = replace(table, limit=count, tokens=(*table.tokens, *last.tokens))
        return arrange(whole, self.axis_places(len(whole.tokens), arguments))
