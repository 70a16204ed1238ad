"""Stable Diffusion 3 and 3.5: a transformer over patches, read by two CLIPs and T5.

On the K axis the positions of CLIP come first, each read by both CLIPs, and then those of T5. No
mask hides the padding. The first blocks of SD 3.5 medium also have attention of the image alone.
"""

from collections.abc import Sequence
from typing import Any

from diffusers import SD3Transformer2DModel

from heedmap.backends.base import Arguments
from heedmap.backends.joint import JointFamily
from heedmap.text.axis import padded
from heedmap.text.words import TokenTable


class StableDiffusion3(JointFamily):
    """A pipeline with an `SD3Transformer2DModel`."""

    model_class = SD3Transformer2DModel
    text_first = False
    sequences = (("tokenizer", "tokenizer_2"), ("tokenizer_3",))

    @property
    def longest_side(self) -> int:
        """The longest side of an image, in pixels: patches beyond it have no embedding."""
        return self.model.config.pos_embed_max_size * self.unit

    def reads_text(self, name: str, layer: Any) -> bool:
        """Return whether a layer has linear maps for the text; others are of the image alone."""
        return layer.added_kv_proj_dim is not None

    def repeats(self, inputs: Arguments) -> bool:
        """Return whether a pass skips layers, as skip-layer guidance does after the usual pass."""
        return inputs.get("skip_layers") is not None

    def tokenizer_of(self, names: Sequence[str]) -> Any:
        """Return the first tokenizer of these; None for T5's if its encoder is not loaded."""
        if names != ("tokenizer_3",):
            return super().tokenizer_of(names)
        # Of a pipeline that was loaded without any encoder, the tokenizer alone tells.
        is_read = self.pipe.text_encoder_3 is not None or self.pipe.text_encoder is None
        return self.pipe.tokenizer_3 if is_read else None

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt as a CLIP reads it, or T5; None is T5's absence.

        Without T5 its positions hold zeros, which are padding.
        """
        if tokenizer is not None:
            return super().table(tokenizer, prompt, arguments)
        limit = self.limit(arguments)
        return padded(TokenTable(prompt, limit, 0, (), ()), limit)

    def limit(
        self,
        arguments: Arguments,
        tokenizer: Any = None,
    ) -> int:
        """Return the number of tokens that a CLIP reads; else that of T5."""
        if tokenizer is None or tokenizer is self.pipe.tokenizer_3:
            return super().limit(arguments)
        return self.pipe.tokenizer_max_length
