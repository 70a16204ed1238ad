"""PixArt-α and Σ: a transformer over patches that attends to T5's text states.

A prompt is padded to the length that the call asks for. A mask hides the padding, so its attention
is exactly 0. The transformer projects T5's states once for all of its layers.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from diffusers import PixArtTransformer2DModel
from diffusers.utils import is_bs4_available, is_ftfy_available
from torch import Tensor

from heedmap.backends.base import TextStates, default_of
from heedmap.backends.transformer import Transformer
from heedmap.errors import ArgumentError, TraceError, quoted
from heedmap.text.tokenization import Rewritten, tokenize
from heedmap.text.words import TokenTable


class PixArt(Transformer):
    """A pipeline with a `PixArtTransformer2DModel`."""

    description = "a PixArt-α or Σ pipeline"
    model_class = PixArtTransformer2DModel
    older_names = ("Transformer2DModel",)
    masks_padding = True

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The arguments of the pipeline that apply unless the user passes them."""
        return {
            # Otherwise it draws the nearest size of a list, and then scales and crops the image.
            "use_resolution_binning": False,
            # Without these packages it cannot clean a text, and logs four lines at each call.
            **(
                {}
                if is_bs4_available() and is_ftfy_available()
                else {"clean_caption": False}
            ),
        }

    def project_text(self, states: Tensor) -> Tensor:
        """Return T5's states, projected."""
        projection = self.model.caption_projection
        return states if projection is None else projection(states)

    def text_states(self, encoded: Any) -> TextStates:
        """Select the states and the mask; each branch's mask follows its states."""
        return encoded[0], encoded[2], encoded[1]

    def lowered(self, arguments: Mapping[str, Any]) -> Callable[[str], Rewritten]:
        """Return the function that makes the text that such a call reads of a prompt."""
        name = "clean_caption"
        clean = arguments.get(name, default_of(self.pipe, name))

        def rewrite(text: str) -> Rewritten:
            origin = [
                (at, at + 1) for at, char in enumerate(text) for _ in char.lower()
            ]
            lowered = text.lower()
            start, stripped = len(lowered) - len(lowered.lstrip()), lowered.strip()
            if clean and is_bs4_available() and is_ftfy_available():
                (cleaned,) = self.pipe._text_preprocessing(text, clean_caption=True)
                if cleaned != stripped:
                    raise TraceError(
                        f"{type(self.pipe).__name__} makes {quoted(cleaned)} of the prompt "
                        f"{quoted(text)} before it reads it, so that heedmap cannot label its "
                        "words: write the prompt like that, or pass clean_caption=False"
                    )
            return Rewritten(stripped, origin[start : start + len(stripped)])

        return rewrite

    def table(
        self, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """Return the words and tokens of a prompt, in lower case and padded as the call asks."""
        rewrite, limit = self.lowered(arguments), self.longest(arguments)
        return tokenize(prompt, tokenizer, rewrite=rewrite, limit=limit)

    def guards(self) -> Iterable[tuple[object, str, Callable[..., Any]]]:
        """Yield the methods with which an image is drawn at one size and scaled to another."""
        processor = self.pipe.image_processor
        choose, scale = (
            processor.classify_height_width_bin,
            processor.resize_and_crop_tensor,
        )

        def check_choice(height: int, width: int, ratios: Any) -> tuple[int, int]:
            size = choose(height, width, ratios=ratios)
            _check_size((height, width), size)
            return size

        def check_scale(samples: Tensor, new_width: int, new_height: int) -> Tensor:
            _check_size((new_height, new_width), (samples.shape[-2], samples.shape[-1]))
            return scale(samples, new_width, new_height)

        yield processor, "classify_height_width_bin", check_choice
        yield processor, "resize_and_crop_tensor", check_scale


def _check_size(size: tuple[int, int], real: tuple[int, int]) -> None:
    if real != size:
        raise ArgumentError(
            f"the image of {size[1]}×{size[0]} pixels would be drawn at {real[1]}×{real[0]} "
            "and then scaled and cropped, so that its maps would be misplaced: pass "
            "use_resolution_binning=False, or the size that is drawn"
        )
