"""Sana: a transformer over latents of 32 pixels a cell that attends to Gemma's text states.

An instruction precedes the prompt. Of the tokens that Gemma reads, the first one and the last ones
are on the K axis: the prompt's, behind at most one of the instruction. A mask hides the padding.
Attention of the image to itself is linear: it has no softmax, and so no probabilities along which
maps could be refined or which an edit could take from its source.
"""

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import torch
from diffusers import SanaTransformer2DModel
from diffusers.models.attention_processor import Attention
from torch import Tensor

from heedmap.backends.base import Arguments, parameters
from heedmap.backends.pixart import PixArt
from heedmap.text.axis import arrange
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable

_INSTRUCTION = "complex_human_instruction"


class Sana(PixArt):
    """A pipeline with a `SanaTransformer2DModel`, which reads a text as PixArt does."""

    model_class = SanaTransformer2DModel
    prompt_arguments = (_INSTRUCTION,)
    unblended = ("SanaSprintPipeline", "SanaSprintImg2ImgPipeline")

    @property
    def defaults(self) -> Arguments:
        """The arguments of the pipeline that apply unless the user passes them.

        The pipeline's own size is that of one of its models.
        """
        side = self.model.config.sample_size * self.cell_side
        return {**super().defaults, "height": side, "width": side}

    @property
    def matches_flow(self) -> bool:
        """True for all models but Sana Sprint."""
        return not hasattr(self.pipe.scheduler.config, "sigma_data")

    @cached_property
    def layers(self) -> dict[str, Attention]:
        """The attention of each block to the text; its attention to itself is linear."""
        layers = super().layers.items()
        return {name: layer for name, layer in layers if layer.is_cross_attention}

    def project_text(self, states: Tensor) -> Tensor:
        """Return Gemma's states, projected and normed."""
        return self.model.caption_norm(self.model.caption_projection(states))

    def model_inputs(self, inputs: Arguments) -> tuple[Tensor, Any, Tensor]:
        """Return the latent, the scheduler's timestep and the text states of a pass."""
        sample, timestep, states = super().model_inputs(inputs)
        if not self.matches_flow:  # Sana Sprint passes a share of noise
            return sample, torch.atan2(timestep, 1 - timestep), states
        return sample, timestep / self.model.config.timestep_scale, states

    def axis_places(
        self,
        count: int,
        arguments: Arguments,
    ) -> Sequence[int]:
        """Return the first of `count` places, and the last ones."""
        return [0, *range(count - self.limit(arguments) + 1, count)]

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt behind the instruction of the call."""
        limit = self.limit(arguments)
        tokenizer = copy(tokenizer)
        tokenizer.padding_side = "right"  # which each call of the pipeline sets
        lines = arguments.get(_INSTRUCTION, parameters(self.pipe).get(_INSTRUCTION))
        before = "\n".join(lines or ())
        if before:
            limit += len(tokenizer.encode(before)) - 2
        table = tokenize(
            prompt,
            tokenizer,
            rewritten=self.rewrite(prompt, tokenizer),
            limit=limit,
            before=before,
        )
        return arrange(table, self.axis_places(limit, arguments))
