"""AuraFlow: joint and single blocks over T5's text, the image, and registers in front of both.

The registers are eight learned states that the transformer puts in front of the text in one
softmax. They are on the K axis, as tokens of the kind "start". The states of the padding are zeros,
to which the image attends.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from diffusers import AuraFlowTransformer2DModel
from torch import Tensor
from torch.nn.functional import pad

from heedmap.backends.base import Arguments, TextStates
from heedmap.backends.flux import FluxFamily
from heedmap.backends.joint import JointFamily
from heedmap.text.axis import padded
from heedmap.text.words import TokenTable

_REGISTERS = 8


class AuraFlow(JointFamily):
    """A pipeline with an `AuraFlowTransformer2DModel`."""

    model_class = AuraFlowTransformer2DModel
    block_lists = ("joint_transformer_blocks", "single_transformer_blocks")
    text_first = True
    negative_place = 2
    groups = FluxFamily.groups

    def model_inputs(self, inputs: Arguments) -> tuple[Tensor, Any, Tensor]:
        """Return the latent, the scheduler's timestep and the text states of a pass."""
        sample, timestep, states = super().model_inputs(inputs)
        text = self.text_of([states], partial(_behind_registers, states))
        return sample, timestep * 1000, text

    def text_states(self, encoded: Any) -> TextStates:
        """Return the text states of both prompts, behind the registers."""
        prompt, negative = super().text_states(encoded)
        if negative is not None:
            negative = _behind_registers(negative)
        return _behind_registers(prompt), negative

    def whole_table(
        self,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt, behind the registers."""
        table = super().whole_table(prompt, arguments)
        table = padded(table, len(table.tokens) + _REGISTERS, in_front=True)
        registers = [
            replace(token, text="<start>", kind="start")
            for token in table.tokens[:_REGISTERS]
        ]
        return replace(table, tokens=(*registers, *table.tokens[_REGISTERS:]))


def _behind_registers(states: Tensor) -> Tensor:
    """Return text states (B, K, C) behind zeros in the places of the registers."""
    return pad(states, (0, 0, _REGISTERS, 0))
