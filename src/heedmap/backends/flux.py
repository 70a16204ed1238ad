"""Flux.1: a transformer whose double and single blocks attend to T5's text and to the image.

CLIP's text enters each block as one vector, without attention, so that T5's tokens alone are on the
K axis. Latents are packed: four cells make one position. A negative prompt is encoded by a call
and run in a pass of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from diffusers import FluxTransformer2DModel
from diffusers.models.transformers.transformer_flux import FluxAttention
from torch import Tensor

from heedmap.backends.base import GridShape, TextStates, default_of
from heedmap.backends.joint import JointFamily
from heedmap.checks import check_int
from heedmap.errors import TraceError
from heedmap.text.words import TokenTable, tokenize

_REFERENCE = "puts the positions of an image of yours beside those of the image that it draws"


class Flux(JointFamily):
    """A pipeline with a `FluxTransformer2DModel`, whose layers have half of the latent's grid."""

    description = "a Flux.1 pipeline"
    model_class = FluxTransformer2DModel
    text_first = True
    sequences = (("tokenizer_2",),)
    encodes_negative_apart = True
    negative_guidance = "true_cfg_scale"
    unserved: ClassVar[Mapping[str, str]] = {
        "FluxKontextPipeline": _REFERENCE,
        "FluxKontextInpaintPipeline": _REFERENCE,
    }

    @property
    def latent_multiple(self) -> int:
        """The side of a packed position, in cells."""
        return 2

    @property
    def usual_cells(self) -> int:
        """The cells on each side of a latent by default."""
        return self.pipe.default_sample_size

    def attention(self) -> dict[str, Any]:
        """Return the layers of the double blocks, and then of the single ones."""
        modules = [*self.model.named_modules()]
        every = {name: one for name, one in modules if isinstance(one, FluxAttention)}
        blocks = ("transformer_blocks.", "single_transformer_blocks.")
        return {n: one for block in blocks for n, one in every.items() if n.startswith(block)}

    def reads_text(self, layer: Any) -> bool:
        """Return True: each layer attends to the text."""
        return True

    def grid(self, name: str, latent: GridShape) -> GridShape:
        """Return the grid of the packed latent."""
        return latent[0] // 2, latent[1] // 2

    def groups(self, names: Sequence[str]) -> dict[str, str]:
        """Return "single" or "double" for each layer."""
        return {n: "single" if n.startswith("single_") else "double" for n in names}

    def passed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Tensor, Any, Tensor]:
        """Return the packed latent, the scheduler's timestep and the text states of a pass."""
        sample, timestep, states = super().passed(args, kwargs)
        return sample, timestep * 1000, states

    def latent(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GridShape:
        """Return the (h, w) of the latent, by the places of its positions.

        Raises:
            TraceError: if other positions stand beside those of the image.
        """
        values = {**dict(zip(self.inputs, args, strict=False)), **kwargs}
        places, positions = values["img_ids"], values[self.inputs[0]].shape[1]
        h, w = (int(places[..., axis].max()) + 1 for axis in (1, 2))
        if positions != h * w:
            raise TraceError(
                f"{type(self.pipe).__name__} gives its model {positions} positions for an image of "
                f"{h}×{w}: expected those of the image alone"
            )
        return 2 * h, 2 * w

    def unpack(self, latents: Tensor, latent: GridShape) -> Tensor:
        """Return packed latents (B, N, 4C) as (B, C, h, w)."""
        side = self.cell_side
        return self.pipe._unpack_latents(latents, latent[0] * side, latent[1] * side, side)

    def pack(self, latents: Tensor) -> Tensor:
        """Return latents (B, C, h, w) as the pipeline packs them."""
        return self.pipe._pack_latents(latents.contiguous(), *latents.shape)

    def with_text(self, arguments: Mapping[str, Any], text: Tensor, row: int) -> dict[str, Any]:
        """Return the arguments of a block for one row; the places of all text tokens are equal."""
        tokens = arguments["encoder_hidden_states"].shape[1]
        rotations = tuple(
            torch.cat([one[:1].expand(text.shape[1], -1), one[tokens:]])
            for one in arguments["image_rotary_emb"]
        )
        return super().with_text(arguments, text, row) | {"image_rotary_emb": rotations}

    def text_states(self, encoded: Any) -> TextStates:
        """Select T5's states of the one text."""
        return encoded[0], None, None

    def table(self, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]) -> TokenTable:
        """Return the words and tokens of a prompt as T5 reads it, padded as the call asks."""
        name = "max_sequence_length"
        limit = check_int(name, arguments.get(name, default_of(self.pipe, name)), least=1)
        rewrite = self.placeholders_expanded(tokenizer)
        return tokenize(prompt, tokenizer, rewrite=rewrite, limit=limit)
