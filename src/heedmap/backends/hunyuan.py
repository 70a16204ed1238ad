"""HunyuanDiT: a transformer over patches that attends to the text as BERT and as T5 read it.

On the K axis 77 positions of BERT come first, and then 256 of T5. The pipeline encodes a prompt by
a call for each. No mask hides the padding: the model puts a learned state in its place, which the
image attends to.
"""

from typing import Any

import torch
from diffusers import HunyuanDiT2DModel
from torch import Tensor
from torch.nn.functional import pad

from heedmap.backends.base import Arguments, TextStates
from heedmap.backends.transformer import Transformer


class HunyuanDiT(Transformer):
    """A pipeline with a `HunyuanDiT2DModel`.

    Its text states are those of both encoders, padded to one width, with their mask as the last
    channel.
    """

    model_class = HunyuanDiT2DModel
    block_lists = ("blocks",)
    sequences = (("tokenizer",), ("tokenizer_2",))
    encoding_calls = 2

    def model_inputs(self, inputs: Arguments) -> tuple[Tensor, Any, Tensor]:
        """Return the latent, the timestep and the text states of both encoders."""
        sample, timestep, states = super().model_inputs(inputs)
        bert = (states, inputs["text_embedding_mask"])
        t5 = (inputs["encoder_hidden_states_t5"], inputs["text_embedding_mask_t5"])
        return sample, timestep, _joined(bert, t5)

    def project_text(self, states: Tensor) -> Tensor:
        """Return BERT's states and T5's, projected, with learned states in place of padding."""
        model = self.model
        config = model.config
        first, second = states.split([config.text_len, config.text_len_t5], dim=1)
        first = first[..., : config.cross_attention_dim]
        second = model.text_embedder(second[..., : config.cross_attention_dim_t5])
        is_read = states[..., -1:].bool()
        return torch.where(
            is_read, torch.cat([first, second], 1), model.text_embedding_padding
        )

    def text_states(self, encoded: Any) -> TextStates:
        """Join the states of both encoders."""
        states, negative_states, masks, negative_masks = zip(*encoded, strict=True)
        prompt = _joined(*zip(states, masks, strict=True))
        if negative_states[0] is None:
            return prompt, None
        negative = _joined(*zip(negative_states, negative_masks, strict=True))
        return prompt, negative

    def limit(
        self,
        arguments: Arguments,
        tokenizer: Any = None,
    ) -> int:
        """Return the number of tokens of T5, or of BERT, which the pipeline sets."""
        return 256 if tokenizer is self.pipe.tokenizer_2 else 77


def _joined(*parts: tuple[Tensor, Tensor]) -> Tensor:
    """Return states (B, K, C) of several encoders and their masks (B, K) as one tensor."""
    width = max(states.shape[-1] for states, _ in parts)
    widened: list[Tensor] = []
    for states, mask in parts:
        wide = pad(states, (0, width - states.shape[-1]))
        widened.append(torch.cat([wide, mask[..., None].to(wide)], dim=-1))
    return torch.cat(widened, dim=1)
