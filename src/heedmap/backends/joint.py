"""Joint attention: text and image are keys of one softmax.

A layer's queries and keys are those of the text and of the image, one after the other. The
recording has the rows of the image's queries and the columns of the text's keys. They are shares of
all attention, that to the image included: a row sums to less than 1.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heedmap.backends.base import Arguments, GridShape
from heedmap.backends.transformer import Transformer
from heedmap.errors import TraceError, quoted
from heedmap.mathematics.events import Layout, RowLayout
from heedmap.options import DEFAULT_JOINT_WINDOWS


class JointFamily(Transformer):
    """A pipeline with a transformer over text and image.

    Attributes:
        text_first: whether the text precedes the image among the keys.
    """

    is_joint = True
    windows = DEFAULT_JOINT_WINDOWS
    text_first: bool

    @property
    def matches_flow(self) -> bool:
        """True: all these models are trained by flow matching."""
        return True

    def reads_text(self, layer: Any) -> bool:
        """Return True: each layer attends to the text."""
        return True

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its first block."""
        return self.model.context_embedder(states)

    def blocks(self) -> dict[str, Any]:
        """Return the block around each layer that attends to the text, by the layer's path."""
        find = self.model.get_submodule
        return {name: find(name.rpartition(".")[0]) for name in self.text_layers()}

    def with_text(
        self,
        arguments: Arguments,
        text: Tensor,
        row: int,
        positions: int,
    ) -> dict[str, Any]:
        """Return the arguments of a block for one row of its batch, with other text (1, K, C).

        `positions` is the number of the image's positions. No mask hides the text. Where tokens
        have places, all of them have the place of the first token of the block's own text.

        Raises:
            TraceError: if an image prompt is among them.
        """
        name = "joint_attention_kwargs"
        if name not in arguments:
            name = "attention_kwargs"
        options = arguments.get(name) or {}
        if "ip_hidden_states" in options:
            raise TraceError(
                "concepts cannot be recorded with an image prompt: leave one out"
            )
        rows = len(arguments["hidden_states"])
        changed = _unmasked(arguments)
        for argument, value in changed.items():
            if isinstance(value, Tensor) and len(value) == rows:
                changed[argument] = value[[row]]
        if options:  # a mask of the user's is of the prompt's tokens
            changed[name] = _unmasked(options)
        if changed.get("encoder_hidden_states") is None:  # joined by the model
            image = changed["hidden_states"][:, -positions:]
            changed["hidden_states"] = torch.cat([text, image], dim=1)
        else:
            changed["encoder_hidden_states"] = text
        return changed

    def text_after(self, output: Any, tokens: int) -> Tensor:
        """Return the text states (1, K, C) in the output of a block."""
        return output[:, :tokens] if isinstance(output, Tensor) else output[0]

    def layout(
        self,
        count: int,
        tokens: int,
        positions: int,
    ) -> Layout:
        """Return where text and image stand: all rows have the same number of tokens."""
        image = slice(0, positions)
        text = slice(positions, positions + tokens)
        if self.text_first:
            text = slice(0, tokens)
            image = slice(tokens, tokens + positions)
        return Layout((RowLayout(text, image),) * count, joint=True)


class PackedFamily(JointFamily):
    """A pipeline that packs four cells of its latent into one position of the transformer.

    Its text precedes the image, and a negative prompt runs in a pass of its own.

    Attributes:
        timestep_factor: the scheduler's timestep, divided by that of a pass.
    """

    text_first = True
    runs_negative_apart = True
    timestep_factor = 1000

    @property
    def latent_multiple(self) -> int:
        """The side of a packed position, in cells."""
        return 2

    def model_inputs(self, inputs: Arguments) -> tuple[Tensor, Any, Tensor]:
        """Return the packed latent, the scheduler's timestep and the text states of a pass."""
        sample, timestep, states = super().model_inputs(inputs)
        return sample, timestep * self.timestep_factor, states

    def checked_latent(
        self,
        h: int,
        w: int,
        inputs: Arguments,
        references: bool,
    ) -> GridShape:
        """Return the (h, w) of the latent of a pass on h·w positions.

        Raises:
            TraceError: if other positions stand beside those of the image.
        """
        positions = inputs[self.inputs[0]].shape[1]
        if positions != h * w or references:
            raise TraceError(
                f"{type(self.pipe).__name__} gives its model {positions} positions for an image of "
                f"{h}×{w}: expected those of the image alone"
            )
        cells = self.latent_multiple
        return cells * h, cells * w

    def pack(self, latents: Tensor) -> Tensor:
        """Return latents (B, C, h, w) as the pipeline packs them."""
        return self.pipe._pack_latents(latents.contiguous(), *latents.shape)

    def unpack(self, latents: Tensor, latent: GridShape) -> Tensor:
        """Return packed latents (B, N, 4C) as (B, C, h, w)."""
        side = self.cell_side
        h, w = latent
        factor = self.pipe.vae_scale_factor
        return self.pipe._unpack_latents(latents, h * side, w * side, factor)


def _unmasked(values: Arguments) -> dict[str, Any]:
    """Return arguments by name, with None for masks."""
    names = [name for name in values if name.endswith("mask")]
    return {**values, **dict.fromkeys(names)}


_MARK = "\ue000"  # a character that no template holds


def template_around(prompt: str, render: Callable[[str], str]) -> tuple[str, str]:
    """Return the texts that a chat template puts before and after a prompt.

    Raises:
        TraceError: if the template changes the prompt.
    """
    before, _, after = render(_MARK).partition(_MARK)
    if render(prompt) != before + prompt + after:
        raise TraceError(
            f"the chat template of the text encoder changes the prompt {quoted(prompt)}, so that "
            "heedmap cannot label its words: write it without spaces around it, and without marks "
            "of the template"
        )
    return before, after
