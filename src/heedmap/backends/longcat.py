"""LongCat-Image: a transformer shaped as Flux.1 that reads a prompt by parts.

Qwen 2.5 VL reads the prompt inside of a chat template, whose tokens are dropped. The pipeline
tokenizes quoted texts letter by letter, and pads the prompt to 512 tokens in front of the
template's end; the image attends to the padding.
"""

from collections.abc import Sequence
from typing import Any

from diffusers import LongCatImageTransformer2DModel
from diffusers.models.transformers.transformer_longcat_image import (
    LongCatImageAttention,
)
from diffusers.pipelines.longcat_image.pipeline_longcat_image import split_quotation

from heedmap.backends.base import Arguments
from heedmap.backends.flux import FluxFamily
from heedmap.errors import TraceError, quoted
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable


class LongCatImage(FluxFamily):
    """A pipeline with a `LongCatImageTransformer2DModel`."""

    model_class = LongCatImageTransformer2DModel
    layer_classes = (LongCatImageAttention,)

    @property
    def defaults(self) -> Arguments:
        """The arguments that apply: a negative prompt for each prompt, and none rewritten."""
        return {**super().defaults, "negative_prompt": ""}

    def limit(
        self,
        arguments: Arguments,
        tokenizer: Any = None,
    ) -> int:
        """Return the number of tokens that a call reads at most."""
        return self.pipe.tokenizer_max_length

    def axis_places(
        self,
        count: int,
        arguments: Arguments,
    ) -> Sequence[int]:
        """Return the places between the tokens of the template."""
        before = self.pipe.tokenizer(self.pipe.prompt_template_encode_prefix)
        first = len(before["input_ids"])
        return range(first, first + self.limit(arguments))

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt, which the tokenizer reads by parts."""
        return tokenize(
            prompt,
            tokenizer,
            split=_parts,
            limit=self.limit(arguments),
        )


def _parts(prompt: str) -> list[str]:
    """Return the parts of a prompt: the letters of quoted texts, and what stands between these.

    Raises:
        TraceError: if they are not those of the prompt.
    """
    parts: list[str] = []
    for text, is_quoted in split_quotation(prompt):
        parts += text if is_quoted else [text]
    if "".join(parts) != prompt:
        raise TraceError(
            f"LongCat-Image would read {quoted(''.join(parts))} for the prompt {quoted(prompt)}, "
            "by a fault of diffusers with several apostrophes: write ’ in place of '"
        )
    return parts
