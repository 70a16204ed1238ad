"""Z-Image: a transformer over one sequence of image and text, each padded to a multiple of 32.

Qwen 3 reads the prompt inside of its chat template. The transformer is given lists of latents and
of text states, those of the negative prompt behind the prompt's. Learned states stand in the place
of the padding, and the image attends to them: the text's are on the K axis, the image's are keys of
its own. A mask hides what makes the rows of a batch as long as the longest of them. Layers before
the main ones attend to the text alone or to the image alone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from diffusers import ZImageTransformer2DModel
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from heedmap.backends.base import Arguments, GridShape, TextStates
from heedmap.backends.joint import SequenceFamily, chat_around
from heedmap.mathematics.events import Layout, RowLayout


class ZImage(SequenceFamily):
    """A pipeline with a `ZImageTransformer2DModel`."""

    model_class = ZImageTransformer2DModel
    block_input = "x"
    patch = 2  # with which the pipelines call the model
    token_multiple = 32
    guidance_off = 0.0
    prompt_first = ("DiffusionPipeline",)

    def model_inputs(self, inputs: Arguments) -> tuple[Tensor, Any, Tensor]:
        """Return the latents, the scheduler's timestep and the text states of a pass."""
        texts = inputs["cap_feats"]
        states = self.text_of(texts, partial(_padded, texts))
        return torch.stack([*inputs["x"]]), 1000 - 1000 * inputs["t"], states

    def latent(self, inputs: Arguments) -> GridShape:
        """Return the (h, w) of the latent of a pass."""
        h, w = inputs["x"][0].shape[-2:]
        return h, w

    def text_states(self, encoded: Any) -> TextStates:
        """Return the states of both prompts, padded."""
        prompt, negative = encoded
        return _padded(prompt), _padded(negative) if negative else None

    def states_of_blocks(self, values: Arguments) -> TextStates:
        """Return the text states of a modular pipeline, padded."""
        return self.text_states(super().states_of_blocks(values))

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C), padded and refined as the main layers are given them."""
        model = self.model
        count = _multiple(states.shape[1])
        rows = [
            model._pad_with_ids(text, (count, 1, 1), (1, 0, 0), text.device)
            for text in states
        ]
        texts, places, paddings, *_ = zip(*rows, strict=True)
        text = model.cap_embedder(torch.stack(texts))
        text, rotations, *_ = model._prepare_sequence(
            [*text], places, paddings, model.cap_pad_token
        )
        for layer in model.context_refiner:
            text = layer(text, None, rotations)
        return text

    def layout(
        self,
        tokens: int,
        positions: int,
        references: Sequence[int] = (),
    ) -> Layout:
        """Return where text and image stand: the text behind the image and its padding."""
        first = _multiple(positions)
        row = RowLayout(
            tokens=slice(first, first + tokens),
            positions=slice(0, positions),
            image_span=slice(0, first),
        )
        return Layout((row,), joint=True, padding=first - positions)

    def with_text(
        self,
        arguments: Arguments,
        text: Tensor,
        row: int,
        positions: int,
    ) -> dict[str, Any]:
        """Return the arguments of a block for one row of its batch, with other text (1, K, C)."""
        one = super().with_text(arguments, text, row, positions)
        first = _multiple(positions)
        image = arguments["x"][row : row + 1, :first]
        rotations = one["freqs_cis"][:, : first + 1]
        place = rotations[:, first:].expand(-1, text.shape[1], -1)
        one["x"] = torch.cat([image, text], dim=1)
        one["freqs_cis"] = torch.cat([rotations[:, :first], place], dim=1)
        return one

    def text_after(self, output: Any, tokens: int) -> Tensor:
        """Return the text states (1, K, C) in the output of a block."""
        return output[:, -tokens:]

    def template(
        self,
        arguments: Arguments,
        tokenizer: Any,
        prompt: str,
    ) -> tuple[str, str]:
        """Return the texts of the chat template before and after a prompt."""
        return chat_around(prompt, tokenizer, enable_thinking=True)


def _multiple(count: int) -> int:
    """Return the multiple of 32 to which the model pads a number of tokens or positions."""
    return count + -count % 32


def _padded(texts: Sequence[Tensor]) -> Tensor:
    """Return text states (K, C) of unlike length as (B, K, C), with zeros behind them."""
    states = pad_sequence([*texts], batch_first=True)
    count = states.shape[1]
    return pad(states, (0, 0, 0, _multiple(count) - count))
