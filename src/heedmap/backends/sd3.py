"""Stable Diffusion 3 and 3.5: a transformer over patches, read by two CLIPs and T5.

On the K axis the positions of CLIP come first, each read by both CLIPs, and then those of T5. No
mask hides the padding. The first blocks of SD 3.5 medium also have attention of the image alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from diffusers import SD3Transformer2DModel

from heedmap.backends.joint import JointFamily
from heedmap.text.axis import padded
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable

_PERTURBED = "perturbs the attention of a part of its batch"


class StableDiffusion3(JointFamily):
    """A pipeline with an `SD3Transformer2DModel`."""

    description = "a Stable Diffusion 3 or 3.5 pipeline"
    model_class = SD3Transformer2DModel
    text_first = False
    sequences = (("tokenizer", "tokenizer_2"), ("tokenizer_3",))
    unserved: ClassVar[Mapping[str, str]] = {
        "StableDiffusion3PAGPipeline": _PERTURBED,
        "StableDiffusion3PAGImg2ImgPipeline": _PERTURBED,
    }

    @property
    def longest_side(self) -> int:
        """The longest side of an image, in pixels: patches beyond it have no embedding."""
        return (
            self.model.config.pos_embed_max_size * self.latent_multiple * self.cell_side
        )

    def reads_text(self, layer: Any) -> bool:
        """Return whether a layer has linear maps for the text; others are of the image alone."""
        return layer.added_kv_proj_dim is not None

    def repeats(self, kwargs: Mapping[str, Any]) -> bool:
        """Return whether a pass skips layers, as skip-layer guidance does after the usual pass."""
        return kwargs.get("skip_layers") is not None

    def tokenizer_of(self, names: Sequence[str]) -> Any:
        """Return the first tokenizer of these; None for T5's if its encoder is not loaded."""
        if names != ("tokenizer_3",):
            return super().tokenizer_of(names)
        # Of a pipeline that was loaded without any encoder, the tokenizer alone tells.
        is_read = self.pipe.text_encoder_3 is not None or self.pipe.text_encoder is None
        return self.pipe.tokenizer_3 if is_read else None

    def table(
        self, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """Return the words and tokens of a prompt as a CLIP reads it, or T5; None is T5's absence.

        Without T5 its positions hold zeros, which are padding.
        """
        pipe = self.pipe
        if tokenizer is not None and tokenizer is not pipe.tokenizer_3:
            return tokenize(prompt, tokenizer, limit=pipe.tokenizer_max_length)
        limit = self.longest(arguments)
        if tokenizer is not None:
            return tokenize(prompt, tokenizer, limit=limit)
        return padded(TokenTable(prompt, limit, 0, (), ()), limit)
