"""PixArt-α and Σ: a transformer over patches that attends to T5's text states.

A prompt is padded to the length that the call asks for. A mask hides the padding, so its attention
is exactly 0. The transformer projects T5's states once for all of its layers.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from diffusers import PixArtTransformer2DModel
from diffusers.models.attention_processor import Attention
from diffusers.utils import is_bs4_available, is_ftfy_available

from heedmap import checks
from heedmap.backends.base import Family, GridShape, default_of
from heedmap.errors import ArgumentError, TraceError, quoted
from heedmap.text.words import Rewritten, TokenTable, tokenize


class PixArt(Family):
    """A `PixArtTransformer2DModel`: all layers have one grid, of patches of the latent."""

    description = "a PixArt-α or Σ pipeline"
    component = "transformer"
    model_class = PixArtTransformer2DModel
    older_names = ("Transformer2DModel",)
    masks_padding = True
    defaults: ClassVar[Mapping[str, Any]] = {
        # Otherwise it draws the nearest size of a list, and then scales and crops the image.
        "use_resolution_binning": False,
        # Without these packages it cannot clean a text, and logs four lines at each call.
        **({} if is_bs4_available() and is_ftfy_available() else {"clean_caption": False}),
    }

    def attention(self, model: Any) -> dict[str, Attention]:
        """Return both attention layers of each block, but not those of adapters."""
        return {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, Attention) and name.startswith("transformer_blocks.")
        }

    def grid(self, model: Any, name: str, latent: GridShape) -> GridShape:
        """Return the grid of the patches."""
        side = model.config.patch_size
        return latent[0] // side, latent[1] // side

    def latent_multiple(self, model: Any) -> int:
        """Return the side of a patch."""
        return model.config.patch_size

    def project_text(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        """Return T5's states, projected."""
        projection = model.caption_projection
        return states if projection is None else projection(states)

    def text_states(
        self, encoded: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Select the states and the mask; each branch's mask follows its states."""
        return encoded[0], encoded[2], encoded[1]

    def table(
        self, pipe: Any, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """Return the words and tokens of a prompt, in lower case and padded as the call asks."""
        names = ("max_sequence_length", "clean_caption")
        length, clean = (arguments.get(name, default_of(pipe, name)) for name in names)

        def rewrite(text: str) -> Rewritten:
            lowered = _lowered(text)
            if clean and is_bs4_available() and is_ftfy_available():
                _check_clean(pipe, text, lowered.text)
            return lowered

        limit = checks.whole("max_sequence_length", length, least=1)
        return tokenize(prompt, tokenizer, rewrite=rewrite, limit=limit)

    def guards(self, pipe: Any) -> Iterable[tuple[object, str, Callable[..., Any]]]:
        """Yield the methods with which an image is drawn at one size and scaled to another."""
        processor = pipe.image_processor
        choose, scale = processor.classify_height_width_bin, processor.resize_and_crop_tensor

        def check_choice(height: int, width: int, ratios: Any) -> tuple[int, int]:
            drawn = choose(height, width, ratios=ratios)
            _check_size((height, width), drawn)
            return drawn

        def check_scale(samples: torch.Tensor, new_width: int, new_height: int) -> torch.Tensor:
            _check_size((new_height, new_width), (samples.shape[-2], samples.shape[-1]))
            return scale(samples, new_width, new_height)

        yield processor, "classify_height_width_bin", check_choice
        yield processor, "resize_and_crop_tensor", check_scale


def _lowered(prompt: str) -> Rewritten:
    """Return a prompt in lower case, without surrounding spaces."""
    origin = [(at, at + 1) for at, char in enumerate(prompt) for _ in char.lower()]
    text = prompt.lower()
    start, stripped = len(text) - len(text.lstrip()), text.strip()
    return Rewritten(stripped, origin[start : start + len(stripped)])


def _check_clean(pipe: Any, prompt: str, lowered: str) -> None:
    """Raise a TraceError if cleaning changes more of a prompt than capitals and outer spaces."""
    (cleaned,) = pipe._text_preprocessing(prompt, clean_caption=True)
    if cleaned != lowered:
        raise TraceError(
            f"{type(pipe).__name__} makes {quoted(cleaned)} of the prompt {quoted(prompt)} before "
            "it reads it, so that heedmap cannot label its words: write the prompt like that, or "
            "pass clean_caption=False"
        )


def _check_size(asked: tuple[int, int], drawn: tuple[int, int]) -> None:
    """Raise an ArgumentError unless an image (h, w) is drawn at the requested size."""
    if drawn != asked:
        raise ArgumentError(
            f"the image of {asked[1]}×{asked[0]} pixels would be drawn at {drawn[1]}×{drawn[0]} "
            "and then scaled and cropped, so that its maps would be misplaced: pass "
            "use_resolution_binning=False, or the size that is drawn"
        )
