"""PixArt-α and Σ: a transformer over patches that attends to T5's text states.

A prompt is padded to the length that the call asks for. A mask hides the padding, so its attention
is exactly 0. The transformer projects T5's states once for all of its layers.
"""

from collections.abc import Callable, Iterable
from typing import Any

from diffusers import PixArtTransformer2DModel
from torch import Tensor

from heedmap.backends.base import Arguments
from heedmap.backends.transformer import Transformer
from heedmap.errors import ArgumentError
from heedmap.text.tokenization import Rewritten


class PixArt(Transformer):
    """A pipeline with a `PixArtTransformer2DModel`."""

    model_class = PixArtTransformer2DModel
    older_names = ("Transformer2DModel",)
    masks_padding = True
    negative_place = 2

    def project_text(self, states: Tensor) -> Tensor:
        """Return T5's states, projected."""
        projection = self.model.caption_projection
        return states if projection is None else projection(states)

    def rewriter(
        self,
        tokenizer: Any,
        arguments: Arguments,
    ) -> Callable[[str], Rewritten]:
        """Return the function that makes the text that such a call reads: in lower case.

        What else `clean_caption` changes is seen by the ids that the encoder reads.
        """

        def rewrite(text: str) -> Rewritten:
            origin = [
                (at, at + 1) for at, char in enumerate(text) for _ in char.lower()
            ]
            lowered = text.lower()
            stripped = lowered.strip()
            start = lowered.find(stripped)
            return Rewritten(stripped, origin[start : start + len(stripped)])

        return rewrite

    def guards(self) -> Iterable[tuple[object, str, Callable[..., Any]]]:
        """Yield the method that selects another size, to which an image is scaled afterwards."""
        processor = self.pipe.image_processor
        choose = processor.classify_height_width_bin

        def check_choice(
            height: int,
            width: int,
            ratios: Any,
        ) -> tuple[int, int]:
            h, w = choose(height, width, ratios=ratios)
            if (h, w) != (height, width):
                raise ArgumentError(
                    f"the image of {width}×{height} pixels would be drawn at {w}×{h} and then "
                    "scaled and cropped, so that its maps would be misplaced: pass "
                    "use_resolution_binning=False, or the size that is drawn"
                )
            return h, w

        yield processor, "classify_height_width_bin", check_choice
