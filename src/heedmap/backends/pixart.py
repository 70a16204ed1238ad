"""PixArt-α and Σ: a transformer over patches that attends to T5's text states.

A prompt is padded to the length that the call asks for. A mask hides the padding, so its attention
is exactly 0. The transformer projects T5's states once for all of its layers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from diffusers import PixArtTransformer2DModel
from torch import Tensor

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

    def rewrite(self, prompt: str, tokenizer: Any) -> Rewritten:
        """Return the text that a call reads of a prompt: in lower case.

        What else `clean_caption` changes is seen by the ids that the encoder reads.
        """
        origin = [(at, at + 1) for at, char in enumerate(prompt) for _ in char.lower()]
        lowered = prompt.lower()
        stripped = lowered.strip()
        start = lowered.find(stripped)
        return Rewritten(stripped, origin[start : start + len(stripped)])

    def guards(self) -> Iterable[tuple[object, str, Callable[..., Any]]]:
        """Yield the methods with which an image is drawn at one size and scaled to another."""
        processor = self.pipe.image_processor
        choose = processor.classify_height_width_bin
        scale = processor.resize_and_crop_tensor

        def check_choice(
            height: int,
            width: int,
            ratios: Any,
        ) -> tuple[int, int]:
            size = choose(height, width, ratios=ratios)
            _check_size((height, width), size)
            return size

        def check_scale(
            samples: Tensor,
            new_width: int,
            new_height: int,
        ) -> Tensor:
            _check_size((new_height, new_width), samples.shape[-2:])
            return scale(samples, new_width, new_height)

        yield processor, "classify_height_width_bin", check_choice
        yield processor, "resize_and_crop_tensor", check_scale


def _check_size(size: tuple[int, int], actual: Sequence[int]) -> None:
    if tuple(actual) != size:
        raise ArgumentError(
            f"the image of {size[1]}×{size[0]} pixels would be drawn at {actual[1]}×{actual[0]} "
            "and then scaled and cropped, so that its maps would be misplaced: pass "
            "use_resolution_binning=False, or the size that is drawn"
        )
