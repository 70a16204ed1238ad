"""HunyuanDiT: a transformer over patches that attends to the text as BERT and as T5 read it.

On the K axis 77 positions of BERT come first, and then 256 of T5. The pipeline encodes a prompt by
a call for each. No mask hides the padding: the model puts a learned state in its place, which the
image attends to.
"""

from collections.abc import Mapping
from typing import Any

import torch
from diffusers import HunyuanDiT2DModel
from torch import Tensor
from torch.nn.functional import pad

from heedmap.backends.base import TextStates
from heedmap.backends.transformer import Transformer
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable


class HunyuanDiT(Transformer):
    """A pipeline with a `HunyuanDiT2DModel`.

    Its text states are those of both encoders, padded to one width, with their mask as the last
    channel.
    """

    description = "a HunyuanDiT pipeline"
    model_class = HunyuanDiT2DModel
    block_lists = ("blocks",)
    sequences = (("tokenizer",), ("tokenizer_2",))
    encoding_calls = 2

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The arguments of the pipeline that apply unless the user passes them."""
        # Else it draws the nearest size of a list.
        return {"use_resolution_binning": False}

    def passed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Tensor, Any, Tensor]:
        """Return the latent, the timestep and the text states of both encoders."""
        sample, timestep, states = super().passed(args, kwargs)
        values = self.named_inputs(args, kwargs)
        bert = states, values["text_embedding_mask"]
        t5 = values["encoder_hidden_states_t5"], values["text_embedding_mask_t5"]
        return sample, timestep, _joined(bert, t5)

    def project_text(self, states: Tensor) -> Tensor:
        """Return BERT's states and T5's, projected, with learned states in place of padding."""
        model, config = self.model, self.model.config
        first, second = states.split([config.text_len, config.text_len_t5], dim=1)
        first = first[..., : config.cross_attention_dim]
        second = model.text_embedder(second[..., : config.cross_attention_dim_t5])
        is_read = states[..., -1:].bool()
        return torch.where(
            is_read, torch.cat([first, second], 1), model.text_embedding_padding
        )

    def text_states(self, encoded: Any) -> TextStates:
        """Join the states of both encoders."""
        prompt = _joined(*((states, mask) for states, _, mask, _ in encoded))
        if any(negative is None for _, negative, _, _ in encoded):
            return prompt, None, None
        return (
            prompt,
            _joined(*((negative, mask) for _, negative, _, mask in encoded)),
            None,
        )

    def table(
        self, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """Return the words and tokens of a prompt as BERT reads it, or T5."""
        is_t5 = tokenizer is self.pipe.tokenizer_2
        # Set by the pipeline.
        return tokenize(prompt, tokenizer, limit=256 if is_t5 else 77)


def _joined(*parts: tuple[Tensor, Tensor]) -> Tensor:
    """Return states (B, K, C) of several encoders and their masks (B, K) as one tensor."""
    width = max(states.shape[-1] for states, _ in parts)
    every = [
        torch.cat(
            [pad(one, (0, width - one.shape[-1])), mask[..., None].to(one)], dim=-1
        )
        for one, mask in parts
    ]
    return torch.cat(every, dim=1)
