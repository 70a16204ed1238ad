"""Lumina 2: a transformer over one sequence of text and image, in each row behind its own text.

Gemma reads the prompt behind a system prompt; the negative prompt, in passes of its own, has none.
The sequence of a row holds no padding, so that images stand at places of their own in the rows of a
batch; behind the shorter rows a mask hides the rest. Layers before the main ones attend to the text
alone or to the image alone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from diffusers import Lumina2Transformer2DModel
from torch import Tensor

from heedmap.backends.base import Arguments, TextStates
from heedmap.backends.joint import SequenceFamily
from heedmap.mathematics.events import Indices, RowLayout


class Lumina2(SequenceFamily):
    """A pipeline with a `Lumina2Transformer2DModel`."""

    model_class = Lumina2Transformer2DModel
    text_first = True
    runs_negative_apart = True
    prompt_arguments = ("prompt", "prompt_embeds")

    def model_inputs(self, inputs: Arguments) -> tuple[Tensor, Any, Tensor]:
        """Return the latents, the scheduler's timestep and the text states of a pass."""
        sample, timestep, states = super().model_inputs(inputs)
        sources = (states, inputs["encoder_attention_mask"])
        states = self.text_of(sources, partial(_visible, *sources))
        return sample, 1000 - 1000 * timestep, states

    def text_states(self, encoded: Any) -> TextStates:
        """Return the states of both prompts that are read."""
        states, mask, negative, negative_mask = encoded
        states = _visible(states, mask)
        if negative is not None:
            negative = _visible(negative, negative_mask)
        return states, negative

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C), refined as the main layers are given them."""
        model = self.model
        places = torch.zeros(
            *states.shape[:2], 3, dtype=torch.int32, device=states.device
        )
        places[..., 0] = torch.arange(states.shape[1], device=states.device)
        rotations = model.rope_embedder._get_freqs_cis(places)
        text = model.time_caption_embed.caption_embedder(states)
        for layer in model.context_refiner:
            text = layer(text, None, rotations)
        return text

    def row_layout(
        self,
        states: Tensor,
        tokens: int,
        positions: int,
        references: Sequence[int] = (),
    ) -> RowLayout:
        """Return where text and image stand in a row: the image behind the row's own text.

        Tokens of longer texts of the batch are keys behind the image, which the mask hides.
        """
        length = int((states != 0).any(-1).sum())  # others are in place of hidden ones
        end = length + positions
        text: Indices = slice(0, tokens)
        if length < tokens:
            order = [*range(length), *range(end, tokens + positions)]
            text = torch.tensor(order, device=states.device)
        return RowLayout(text, slice(length, end))

    def with_text(
        self,
        arguments: Arguments,
        text: Tensor,
        row: int,
        positions: int,
    ) -> dict[str, Any]:
        """Return the arguments of a block for one row of its batch, with other text (1, K, C)."""
        one = super().with_text(arguments, text, row, positions)
        states = arguments["hidden_states"][row : row + 1]
        rotations = one["image_rotary_emb"]
        mask = arguments["attention_mask"]
        index = torch.arange(-positions, 0, device=states.device)
        index += states.shape[1] if mask is None else mask[row].sum()
        image = states.index_select(1, index)
        place = rotations[:, :1].expand(-1, text.shape[1], -1)
        places = rotations.index_select(1, index)
        one["hidden_states"] = torch.cat([text, image], dim=1)
        one["image_rotary_emb"] = torch.cat([place, places], dim=1)
        return one

    def template(self, arguments: Arguments, *_: Any) -> tuple[str, str]:
        """Return the system prompt of the call; the negative prompt has none."""
        before = arguments.get("system_prompt")
        if before is None:
            before = self.pipe.system_prompt
        named = [arguments.get(name, "") for name in self.prompt_arguments]
        if named == [None, None]:  # the negative prompt
            return "", ""
        return before + " <Prompt Start> ", ""


def _visible(states: Tensor, mask: Tensor) -> Tensor:
    """Return text states (B, K, C) to the longest text's end, with zeros for hidden ones.

    As the model does, it takes the first states, as many as the mask shows.
    """
    lengths = mask.sum(dim=1)
    places = torch.arange(states.shape[1], device=states.device)
    hidden = places >= lengths[:, None]
    return states.masked_fill(hidden[..., None], 0)[:, : int(lengths.max())]
