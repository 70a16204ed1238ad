"""Flux.1 and Chroma: double and single blocks that attend to T5's text and to the image.

CLIP's text enters each block of Flux as one vector, without attention, so that T5's tokens alone
are on the K axis; Chroma has T5 alone. Latents are packed: four cells make one position. The
negative prompt runs in a pass of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from diffusers import ChromaTransformer2DModel, FluxTransformer2DModel
from diffusers.models.transformers.transformer_flux import FluxAttention
from torch import Tensor

from heedmap.backends.base import GridShape, TextStates
from heedmap.backends.joint import PackedFamily
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable

REFERENCE = (
    "puts the positions of an image of yours beside those of the image that it draws"
)


class Flux(PackedFamily):
    """A pipeline with a `FluxTransformer2DModel`, whose layers have half of the latent's grid."""

    description = "a Flux.1 pipeline"
    model_class = FluxTransformer2DModel
    block_lists = ("transformer_blocks", "single_transformer_blocks")
    layer_classes = (FluxAttention,)
    sequences = (("tokenizer_2",),)
    encodes_negative_apart = True
    negative_guidance = "true_cfg_scale"
    unserved: ClassVar[Mapping[str, str]] = {
        "FluxKontextPipeline": REFERENCE,
        "FluxKontextInpaintPipeline": REFERENCE,
    }

    def groups(self, names: Sequence[str]) -> dict[str, str]:
        """Return "single" or "double" for each layer."""
        return {n: "single" if n.startswith("single_") else "double" for n in names}

    def latent(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GridShape:
        """Return the (h, w) of the latent, by the places of its positions.

        Raises:
            TraceError: if other positions stand beside those of the image.
        """
        values = self.named_inputs(args, kwargs)
        places, positions = values["img_ids"], values[self.inputs[0]].shape[1]
        h, w = (int(places[..., axis].max()) + 1 for axis in (1, 2))
        return self.checked_latent(
            h, w, positions, references=bool(places[..., 0].any())
        )

    def with_text(
        self, arguments: Mapping[str, Any], text: Tensor, row: int, positions: int
    ) -> dict[str, Any]:
        """Return the arguments of a block for one row of its batch, with other text (1, K, C)."""
        rotations = tuple(
            torch.cat([one[:1].expand(text.shape[1], -1), one[-positions:]])
            for one in arguments["image_rotary_emb"]
        )
        one = super().with_text(arguments, text, row, positions)
        return one | {"image_rotary_emb": rotations}

    def text_states(self, encoded: Any) -> TextStates:
        """Select T5's states of the one text."""
        return encoded[0], None, None

    def table(
        self, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """Return the words and tokens of a prompt as T5 reads it, padded as the call asks."""
        rewrite = self.placeholders_expanded(tokenizer)
        return tokenize(
            prompt, tokenizer, rewrite=rewrite, limit=self.longest(arguments)
        )


class Chroma(Flux):
    """A pipeline with a `ChromaTransformer2DModel`, which lowers the scores of padding by a mask.

    The pipeline makes its mask of numbers, which diffusers adds to the scores: 1 for the prompt, 0
    for padding. So padding has e times less attention, and not none.
    """

    description = "a Chroma pipeline"
    model_class = ChromaTransformer2DModel
    sequences = (("tokenizer",),)
    encodes_negative_apart = False
    negative_guidance = "guidance_scale"
    unserved: ClassVar[Mapping[str, str]] = {}

    def text_states(self, encoded: Any) -> TextStates:
        """Select the states of both prompts; padding stays visible."""
        return encoded[0], encoded[3], None
