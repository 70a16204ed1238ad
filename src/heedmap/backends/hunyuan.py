"""HunyuanDiT: a transformer over patches that attends to the text as BERT and as T5 read it.

On the K axis 77 positions of BERT come first, and then 256 of T5. The pipeline encodes a prompt by
a call for each. No mask hides the padding: the model puts a learned state in its place, which the
image attends to.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from diffusers import HunyuanDiT2DModel
from diffusers.models.attention_processor import Attention
from torch import Tensor
from torch.nn.functional import pad

from heedmap.backends.base import Family, GridShape, TextStates
from heedmap.backends.joint import thirds
from heedmap.text.words import TokenTable, tokenize


class HunyuanDiT(Family):
    """A pipeline with a `HunyuanDiT2DModel`: all layers have one grid, of patches.

    Its text states are those of both encoders, padded to one width, with their mask as the last
    channel.
    """

    description = "a HunyuanDiT pipeline"
    component = "transformer"
    model_class = HunyuanDiT2DModel
    sequences = (("tokenizer",), ("tokenizer_2",))
    encoding_calls = 2

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The arguments of the pipeline that apply unless the user passes them."""
        return {"use_resolution_binning": False}  # else it draws the nearest size of a list

    @property
    def latent_multiple(self) -> int:
        """The side of a patch."""
        return self.model.config.patch_size

    def attention(self) -> dict[str, Attention]:
        """Return both attention layers of each block."""
        return {
            name: module
            for name, module in self.model.named_modules()
            if isinstance(module, Attention) and name.startswith("blocks.")
        }

    def grid(self, name: str, latent: GridShape) -> GridShape:
        """Return the grid of the patches."""
        return latent[0] // self.latent_multiple, latent[1] // self.latent_multiple

    def groups(self, names: Sequence[str]) -> dict[str, str]:
        """Return the third of the depth that each layer is in."""
        return thirds(names)

    def passed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Tensor, Any, Tensor]:
        """Return the latent, the timestep and the text states of both encoders."""
        sample, timestep, states = super().passed(args, kwargs)
        values = {**dict(zip(self.inputs, args, strict=False)), **kwargs}
        mask, *second = (
            values[name]
            for name in (
                "text_embedding_mask", "encoder_hidden_states_t5", "text_embedding_mask_t5",
            )
        )  # fmt: skip
        return sample, timestep, _joined((states, mask), (second[0], second[1]))

    def project_text(self, states: Tensor) -> Tensor:
        """Return BERT's states and T5's, projected, with learned states in place of padding."""
        model, config = self.model, self.model.config
        first, second = states.split([config.text_len, config.text_len_t5], dim=1)
        first = first[..., : config.cross_attention_dim]
        second = model.text_embedder(second[..., : config.cross_attention_dim_t5])
        is_read = states[..., -1:].bool()
        return torch.where(is_read, torch.cat([first, second], 1), model.text_embedding_padding)

    def text_states(self, encoded: Any) -> TextStates:
        """Join the states of both encoders."""
        prompt = _joined(*((states, mask) for states, _, mask, _ in encoded))
        if any(negative is None for _, negative, _, _ in encoded):
            return prompt, None, None
        return prompt, _joined(*((negative, mask) for _, negative, _, mask in encoded)), None

    def table(self, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]) -> TokenTable:
        """Return the words and tokens of a prompt as BERT reads it, or T5."""
        is_t5 = tokenizer is self.pipe.tokenizer_2
        return tokenize(prompt, tokenizer, limit=256 if is_t5 else 77)  # set by the pipeline


def _joined(*parts: tuple[Tensor, Tensor]) -> Tensor:
    """Return states (B, K, C) of several encoders and their masks (B, K) as one tensor."""
    width = max(states.shape[-1] for states, _ in parts)
    every = [
        torch.cat([pad(one, (0, width - one.shape[-1])), mask[..., None].to(one)], dim=-1)
        for one, mask in parts
    ]
    return torch.cat(every, dim=1)
