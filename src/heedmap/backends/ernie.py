"""ERNIE-Image: a transformer over one sequence of the image and of the text behind it.

A language model reads each prompt by itself, without padding. The pipeline pads the texts of both
branches to the longest of them; a mask hides the padding. Four cells of the autoencoder are the
channels of one position.
"""

from typing import Any

import torch
from diffusers import ErnieImageTransformer2DModel
from diffusers.models.transformers.transformer_ernie_image import ErnieImageAttention
from torch import Tensor
from torch.nn.functional import pixel_shuffle, pixel_unshuffle
from torch.nn.utils.rnn import pad_sequence

from heedmap.backends.base import Arguments, GridShape, TextStates, active_calls
from heedmap.backends.joint import JointFamily
from heedmap.errors import TraceError
from heedmap.io.schemas import MAX_TOKENS


class ErnieImage(JointFamily):
    """A pipeline with an `ErnieImageTransformer2DModel`."""

    model_class = ErnieImageTransformer2DModel
    block_lists = ("layers",)
    layer_classes = (ErnieImageAttention,)
    block_input = "x"
    text_first = False
    patch = 2
    cells_per_side = 2
    masks_padding = True
    pads_to_longest = "right"
    encodes_negative_apart = True

    def model_inputs(self, inputs: Arguments) -> tuple[Tensor, Any, Tensor]:
        """Return the latent, the timestep and the text states of a pass.

        Raises:
            TraceError: if the call has `prompt_embeds`, for which the pipeline encodes nothing.
        """
        for call in active_calls(self.pipe):
            if call.f_locals.get("prompt_embeds") is not None:
                raise TraceError(
                    "ErnieImagePipeline encodes nothing where it is given prompt_embeds, so that "
                    "heedmap cannot tell the branches apart: pass the prompt as text"
                )
        return inputs["hidden_states"], inputs["timestep"], inputs["text_bth"]

    def latent(self, inputs: Arguments) -> GridShape:
        """Return the (h, w) of the latent of a pass, in cells of the autoencoder."""
        h, w = super().latent(inputs)
        return 2 * h, 2 * w

    def pack(self, latents: Tensor) -> Tensor:
        """Return latents (B, C, h, w) as (B, 4C, h/2, w/2)."""
        return pixel_unshuffle(latents, 2)

    def unpack(self, latents: Tensor, latent: GridShape) -> Tensor:
        """Return latents (B, 4C, h/2, w/2) as (B, C, h, w)."""
        return pixel_shuffle(latents, 2)

    def text_states(self, encoded: Any) -> TextStates:
        """Return the states of a list of texts (K, C), padded."""
        return pad_sequence(encoded, batch_first=True), None

    def states_of_blocks(self, values: Arguments) -> TextStates:
        """Return the text states of a modular pipeline, which its denoiser has padded."""
        if "text_bth" in values:
            return values["text_bth"], values["negative_text_bth"]
        return self.text_states(values["prompt_embeds"])

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its first block."""
        project = self.model.text_proj or torch.nn.Identity()
        return project(states)

    def with_text(
        self,
        arguments: Arguments,
        text: Tensor,
        row: int,
        positions: int,
    ) -> dict[str, Any]:
        """Return the arguments of a block for one row of its batch, with other text (1, K, C).

        The sequence is the first axis of the states, and the modulation is alike all along it.
        """
        only = slice(row, row + 1)
        image = arguments["x"][:positions, only]
        rotations = arguments["rotary_pos_emb"][only, : positions + 1]
        place = rotations[:, -1:].expand(-1, text.shape[1] - 1, -1, -1)
        return {
            "x": torch.cat([image, text.transpose(0, 1)]),
            "rotary_pos_emb": torch.cat([rotations, place], dim=1),
            "temb": [one[:1, only] for one in arguments["temb"]],
        }

    def text_after(self, output: Any, tokens: int) -> Tensor:
        """Return the text states (1, K, C) in the output of a block."""
        return output[-tokens:].transpose(0, 1)

    @property
    def empty_token(self) -> int:
        """The token of an empty text."""
        return self.pipe.tokenizer.bos_token_id or 0

    def limit(
        self,
        arguments: Arguments,
        tokenizer: Any = None,
    ) -> int:
        """Return the number of tokens that a table has at most; the pipeline cuts no prompt."""
        return min(tokenizer.model_max_length, MAX_TOKENS)
