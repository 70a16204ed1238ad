"""PixArt-α and Σ: a transformer over patches that attends to T5's text, and to nothing else there.

A prompt is padded to the length that the call asks for, and the padding is hidden by a mask: it
draws exactly nothing. What the transformer is given of the text are T5's own states; it projects
them for all of its layers at once.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from diffusers import PixArtTransformer2DModel
from diffusers.models.attention_processor import Attention
from diffusers.utils import is_bs4_available, is_ftfy_available

from heedmap import checks
from heedmap.backends.family import Family, GridShape, Guard, default_of
from heedmap.errors import ArgumentError, TraceError, quoted
from heedmap.text.tokens import Rewritten, tokenize
from heedmap.text.words import TokenTable

BLOCKS = "transformer_blocks."
"""What the path of every layer begins with; pictures are encoded elsewhere (adapters)."""


class PixArt(Family):
    """A `PixArtTransformer2DModel`: all layers have one grid, of patches of the latent."""

    told = "a PixArt-α or Σ pipeline"
    component = "transformer"
    kind = PixArtTransformer2DModel
    older_names = ("Transformer2DModel",)
    inputs = ("hidden_states", "encoder_hidden_states", "timestep")
    sample = "hidden_states"
    defaults: ClassVar[Mapping[str, Any]] = {
        # Else it draws the nearest size of a list, and then scales and cuts the picture.
        "use_resolution_binning": False,
        # Where it cannot clean a text, it says so in four lines each time, and leaves it as it is.
        **({} if is_bs4_available() and is_ftfy_available() else {"clean_caption": False}),
    }
    least_steps = 2  # α takes something else from its scheduler where it is asked for a single one

    def cross_attention(self, model: Any) -> dict[str, Attention]:
        """The second attention of each block."""
        return {n: layer for n, layer in _attention(model).items() if layer.is_cross_attention}

    def self_attention(self, model: Any) -> dict[str, Attention]:
        """The first attention of each block."""
        return {n: layer for n, layer in _attention(model).items() if not layer.is_cross_attention}

    def grid(self, model: Any, name: str, latent: GridShape) -> GridShape:
        """The patches."""
        side = model.config.patch_size
        return latent[0] // side, latent[1] // side

    def unit(self, model: Any) -> int:
        """A picture is made of whole patches."""
        return model.config.patch_size

    def width(self, model: Any) -> int:
        """The channels of a patch, over its cells."""
        return -(-model.inner_dim // model.config.patch_size**2)

    def states(self, encoded: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Each branch's mask stands beside its states."""
        return encoded[0], encoded[2]

    def visible(self, encoded: Any) -> torch.Tensor | None:
        """The mask of the prompt."""
        return encoded[1]

    def within(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        """Projected once for all layers."""
        projection = model.caption_projection
        return states if projection is None else projection(states)

    def table(
        self, pipe: Any, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """As T5 reads it: in small letters, padded to as many tokens as the call asks for."""
        told = {n: default_of(pipe, n) for n in ("max_sequence_length", "clean_caption")}
        told |= {name: value for name, value in arguments.items() if name in told}

        def rewrite(text: str) -> Rewritten:
            made = _lowered(text)
            if told["clean_caption"] and is_bs4_available() and is_ftfy_available():
                _check_clean(pipe, text, made.text)
            return made

        limit = checks.whole("max_sequence_length", told["max_sequence_length"], least=1)
        return tokenize(prompt, tokenizer, rewrite=rewrite, limit=limit)

    def guards(self, pipe: Any) -> Iterable[Guard]:
        """What is drawn at one size and scaled to another is no longer where its maps are."""
        sizes = pipe.image_processor
        yield sizes, "classify_height_width_bin", _choosing(sizes.classify_height_width_bin)
        yield sizes, "resize_and_crop_tensor", _scaling(sizes.resize_and_crop_tensor)


def _attention(model: Any) -> dict[str, Attention]:
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, Attention) and name.startswith(BLOCKS)
    }


def _lowered(prompt: str) -> Rewritten:
    """A prompt in small letters, without the spaces around it."""
    origin = [(at, at + 1) for at, char in enumerate(prompt) for _ in char.lower()]
    text = prompt.lower()
    start, stripped = len(text) - len(text.lstrip()), text.strip()
    return Rewritten(stripped, origin[start : start + len(stripped)])


def _check_clean(pipe: Any, prompt: str, lowered: str) -> None:
    """Raise unless cleaning leaves a prompt as it is but for capitals and spaces around it."""
    (cleaned,) = pipe._text_preprocessing(prompt, clean_caption=True)
    if cleaned != lowered:
        raise TraceError(
            f"{type(pipe).__name__} makes {quoted(cleaned)} of the prompt {quoted(prompt)} before "
            "it reads it, so that heedmap cannot label its words: write the prompt like that, or "
            "pass clean_caption=False"
        )


def _choosing(choose: Callable[..., tuple[int, int]]) -> Callable[..., tuple[int, int]]:
    def watched(height: int, width: int, ratios: Any) -> tuple[int, int]:
        drawn = choose(height, width, ratios=ratios)
        _check_size((height, width), drawn)
        return drawn

    return watched


def _scaling(scale: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def watched(samples: torch.Tensor, new_width: int, new_height: int) -> torch.Tensor:
        _check_size((new_height, new_width), (samples.shape[-2], samples.shape[-1]))
        return scale(samples, new_width, new_height)

    return watched


def _check_size(asked: tuple[int, int], drawn: tuple[int, int]) -> None:
    """Raise unless a picture (h, w) is drawn at the size that is asked for."""
    if drawn != asked:
        raise ArgumentError(
            f"the picture of {asked[1]}×{asked[0]} pixels would be drawn at {drawn[1]}×{drawn[0]} "
            "and then scaled and cut, so that its maps would not lie where the picture is: ask "
            "for use_resolution_binning=False, or the size that is drawn"
        )
