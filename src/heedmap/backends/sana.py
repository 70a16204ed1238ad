"""Sana: a transformer over latents of 32 pixels a cell that attends to Gemma's text states.

An instruction precedes the prompt. Of the tokens that Gemma reads, the first one and the last ones
are on the K axis: the prompt's, behind at most one of the instruction. A mask hides the padding.
Attention of the image to itself is linear: it has no softmax, and so no probabilities along which
maps could be refined or which an edit could take from its source.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, ClassVar

import torch
from diffusers import SanaTransformer2DModel
from diffusers.models.attention_processor import Attention
from torch import Tensor

from heedmap.backends.base import TextStates, default_of
from heedmap.backends.pixart import PixArt
from heedmap.text.axis import arrange
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable

_INSTRUCTION = "complex_human_instruction"


class Sana(PixArt):
    """A pipeline with a `SanaTransformer2DModel`, which reads a text as PixArt does."""

    description = "a Sana pipeline"
    model_class = SanaTransformer2DModel
    older_names = ()
    quirks: ClassVar[Mapping[str, str]] = {
        "SanaSprintPipeline": "unblended",
        "SanaSprintImg2ImgPipeline": "unblended",
    }

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The arguments of the pipeline that apply unless the user passes them.

        The pipeline's own size is that of one of its models.
        """
        side = self.model.config.sample_size * self.cell_side
        return {**super().defaults, "height": side, "width": side}

    @property
    def matches_flow(self) -> bool:
        """Whether a timestep is σ, as in all models but Sana Sprint."""
        return not hasattr(self.pipe.scheduler.config, "sigma_data")

    def attention(self) -> dict[str, Attention]:
        """Return the attention of each block to the text; its attention to itself is linear."""
        return {
            name: one
            for name, one in super().attention().items()
            if one.is_cross_attention
        }

    def project_text(self, states: Tensor) -> Tensor:
        """Return Gemma's states, projected and normed."""
        return self.model.caption_norm(self.model.caption_projection(states))

    def passed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Tensor, Any, Tensor]:
        """Return the latent, the scheduler's timestep and the text states of a pass."""
        sample, timestep, states = super().passed(args, kwargs)
        # Sana Sprint passes a share of noise.
        if hasattr(self.pipe.scheduler.config, "sigma_data"):
            return sample, torch.atan2(timestep, 1 - timestep), states
        return sample, timestep / self.model.config.timestep_scale, states

    def text_states(self, encoded: Any) -> TextStates:
        """Select the states and the mask; Sana Sprint reads no negative prompt."""
        return (
            super().text_states(encoded)
            if len(encoded) > 2
            else (encoded[0], None, encoded[1])
        )

    def negative_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments without the instruction, which precedes the prompt alone."""
        return {**arguments, _INSTRUCTION: None}

    def axis_places(self, count: int, arguments: Mapping[str, Any]) -> Sequence[int]:
        """Return the first of `count` places, and the last ones."""
        return [0, *range(count - self.longest(arguments) + 1, count)]

    def table(
        self, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """Return the words and tokens of a prompt behind the instruction of the call."""
        tokenizer, limit = copy(tokenizer), self.longest(arguments)
        tokenizer.padding_side = "right"  # which each call of the pipeline sets
        lines = arguments.get(_INSTRUCTION, default_of(self.pipe, _INSTRUCTION))
        before = "\n".join(lines or ())
        if before:
            limit += len(tokenizer.encode(before)) - 2
        rewrite = self.lowered(arguments)
        table = tokenize(prompt, tokenizer, rewrite=rewrite, limit=limit, before=before)
        return arrange(table, self.axis_places(limit, arguments))

    def why_unblended(self) -> str | None:
        """Return why Sana Sprint cannot blend."""
        if not self.has_quirk("unblended"):
            return None
        return (
            "decodes what its scheduler predicts, which a blend of the latents does not reach: "
            "leave only out, or use SanaPipeline"
        )
