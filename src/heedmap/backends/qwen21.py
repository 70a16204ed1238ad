"""Qwen-Image 2.1: a transformer over a text that is read once, whose keys and values are cached.

Qwen 3 VL reads the prompt inside of a chat template, and the pipeline drops the template's first
tokens. In the first step the text's tokens attend to the text before them, the image to text and
image. The text's keys and values are those of all steps: in the others the image alone has queries.

Reference images stand in the text, in the places of the tokens that Qwen reads of them. These are
not on the K axis: in each of their places are four positions of the image's latent.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import torch
from diffusers import QwenImage21Transformer2DModel
from diffusers.models.transformers.transformer_qwenimage21 import QwenImage21Attention
from torch import Tensor

from heedmap.backends.base import Arguments, Family, GridShape, TextStates, device_of
from heedmap.backends.qwen import QwenImage, QwenImageEdit, as_list
from heedmap.mathematics.events import Indices, Layout, RowLayout
from heedmap.text.words import TokenTable


class QwenImage21(QwenImage):
    """A pipeline with a `QwenImage21Transformer2DModel`, whose layers have the latent's grid."""

    model_class = QwenImage21Transformer2DModel
    layer_classes = (QwenImage21Attention,)
    patch = 1
    reads_images = True
    maps_references = False
    encoder_padding = "left"
    serves = Family.serves
    limit = QwenImageEdit.limit

    @property
    def defaults(self) -> Arguments:
        """The steps that the model is published with, if it is; they replace any number."""
        return {"sigmas": self.pipe.config.sample_sigmas}

    @property
    def unit(self) -> int:
        """The divisor of both sides of an image, in pixels: it has an even number of cells."""
        return 2 * self.cell_side

    def image_grids(self, inputs: Arguments) -> list[GridShape]:
        """Return the grids (h, w) of the image, which is the last, and of reference images."""
        *references, image = super().image_grids(inputs)
        return [image, *references]

    def model_inputs(self, inputs: Arguments) -> tuple[Tensor, Any, Tensor]:
        """Return the latents, the scheduler's timestep and the text states of a pass."""
        sample, timestep, states = super().model_inputs(inputs)
        sources = (states, inputs["img_mask"])
        return sample, timestep, self.text_of(sources, partial(_of_text, *sources))

    def text_states(self, encoded: Any) -> TextStates:
        """Return the states of a prompt without those of images."""
        states, _, images = encoded
        return _of_text(states, images), None

    def layout(
        self,
        tokens: int,
        positions: int,
        references: Sequence[int] = (),
    ) -> Layout:
        """Return where text and images stand: each reference image behind its mark in the text.

        The image's keys are the last. All queries are the image's.
        """
        before, _ = self.template({"image": [*references]})
        ids = self.tokenizer("tokenizer")(before)["input_ids"][self.dropped :]
        mark = self.pipe.processor.vision_start_token_id
        places = [place for place, one in enumerate(ids, start=1) if one == mark]
        others = list[slice]()
        is_text = torch.ones(tokens + sum(references), dtype=torch.bool)
        for number, size in enumerate(references):
            start = places[number] + sum(references[:number])
            others.append(slice(start, start + size))
            is_text[others[-1]] = False
        text: Indices = slice(0, tokens)
        if references:
            text = is_text.nonzero().flatten().to(device_of(self.pipe))
        row = RowLayout(
            tokens=text,
            keys=slice(-positions, None),
            references=tuple(others),
        )
        return Layout((row,), joint=True, keys=len(is_text) + positions)

    @property
    def off_axis(self) -> Collection[int]:
        """The token of a part of an image."""
        return {self.pipe._img_token_id}

    @property
    def dropped(self) -> int:
        """The number of the template's first tokens, which the pipeline drops."""
        return self.pipe._drop_idx

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its first block."""
        return self.model.txt_in(states)

    def with_text(
        self,
        arguments: Arguments,
        text: Tensor,
        row: int,
        positions: int,
    ) -> dict[str, Any]:
        """Return the arguments of a block for other text (1, K, C) alone, without the image.

        As the prompt's, its tokens attend to those before them, and have no noise: the last
        modulation is that of timestep 0.
        """
        tokens = text.shape[1]
        visible = text.new_ones(tokens, tokens, dtype=torch.bool)
        first = torch.ones_like(arguments["rotary_emb"][:1])
        return dict.fromkeys(arguments) | {
            "hidden_states": text,
            "modulation": arguments["modulation"][-1:],
            "rotary_emb": first.expand(tokens, -1),
            "attention_mask": visible.tril(),
        }

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt; in place of an empty one a space is read."""
        return super().table(tokenizer, prompt or " ", arguments)

    def template(self, arguments: Arguments, *_: Any) -> tuple[str, str]:
        """Return the texts before and after a prompt, with the marks around its images."""
        before, after = self.pipe.prompt_template_t2i.split("{}")
        count = len(as_list(arguments.get("image")))
        marks = map(_NUMBERED.format, range(1, count + 1))
        return before + " ".join(marks), after


_NUMBERED = "<image{}><|vision_start|><|vision_end|>"


def _of_text(states: Tensor, images: Tensor) -> Tensor:
    """Return states (B, K, …) without those in the places of images (B, K or more)."""
    return states[:, ~images[0, : states.shape[1]]]
