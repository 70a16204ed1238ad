"""Flux.1 and Chroma: double and single blocks that attend to T5's text and to the image.

CLIP's text enters each block of Flux as one vector, without attention, so that T5's tokens alone
are on the K axis; Chroma has T5 alone. Latents are packed: four cells make one position. The
negative prompt runs in a pass of its own.
"""

from collections.abc import Sequence
from typing import Any

import torch
from diffusers import ChromaTransformer2DModel, FluxTransformer2DModel
from diffusers.models.transformers.transformer_flux import FluxAttention
from torch import Tensor

from heedmap.backends.base import Arguments, GridShape
from heedmap.backends.joint import PackedFamily
from heedmap.errors import TraceError


class FluxFamily(PackedFamily):
    """A pipeline with a transformer shaped as Flux.1, whose layers have half of the latent's grid.

    Positions have places in `img_ids`.
    """

    block_lists = ("transformer_blocks", "single_transformer_blocks")
    layer_classes = (FluxAttention,)
    encodes_negative_apart = True
    negative_place = -1

    def groups(self, names: Sequence[str]) -> dict[str, str]:
        """Return "single" or "double" for each layer."""
        return {n: "single" if n.startswith("single_") else "double" for n in names}

    def image_grids(self, inputs: Arguments) -> list[GridShape]:
        """Return the grids (h, w) of the images, by the places of their positions.

        Raises:
            TraceError: if the image is not the first one.
        """
        places = inputs["img_ids"]
        places = places[0] if places.ndim == 3 else places
        numbers = places[:, 0].unique_consecutive().tolist()
        if numbers[0] > min(numbers):
            raise TraceError(
                f"{type(self.pipe).__name__} puts the positions of reference images in front "
                "of those of the image: not yet supported; use another pipeline of the same "
                "model"
            )
        return grids_of(places, axis=0)

    def with_text(
        self,
        arguments: Arguments,
        text: Tensor,
        row: int,
        positions: int,
    ) -> dict[str, Any]:
        """Return the arguments of a block for one row of its batch, with other text (1, K, C)."""
        rotations = tuple(
            torch.cat([one[:1].expand(text.shape[1], -1), one[-positions:]])
            for one in arguments["image_rotary_emb"]
        )
        one = super().with_text(arguments, text, row, positions)
        return one | {"image_rotary_emb": rotations}


def grids_of(places: Tensor, axis: int) -> list[GridShape]:
    """Return the grids (h, w) of images, by the places (N, 3 or 4) of their positions.

    An image has one number on this axis; h and w are on the axes 1 and 2.
    """
    _, counts = places[:, axis].unique_consecutive(return_counts=True)
    grids: list[GridShape] = []
    for part in places.split(counts.tolist()):
        h, w = (part[:, side].unique().numel() for side in (1, 2))
        grids.append((h, w))
    return grids


class Flux(FluxFamily):
    """A pipeline with a `FluxTransformer2DModel`."""

    model_class = FluxTransformer2DModel
    sequences = (("tokenizer_2",),)
    negative_guidance = "true_cfg_scale"


class Chroma(FluxFamily):
    """A pipeline with a `ChromaTransformer2DModel`, which lowers the scores of padding by a mask.

    The pipeline makes its mask of numbers, which diffusers adds to the scores: 1 for the prompt, 0
    for padding. So padding has e times less attention, and not none.
    """

    model_class = ChromaTransformer2DModel
    encodes_negative_apart = False
    negative_place = 3
