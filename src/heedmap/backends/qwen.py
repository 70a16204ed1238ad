"""Qwen-Image and Qwen-Image-Edit: a transformer over packed latents and a language model's states.

Qwen 2.5 VL reads the prompt inside of a chat template. The pipeline drops the template's first
tokens, and pads the prompts of a batch to the longest of them. A mask hides the padding, so its
attention is exactly 0. A negative prompt is encoded by a call and run in a pass of its own.

Of Qwen-Image-Edit the language model reads images, too: their tokens stand before the prompt's.
"""

from dataclasses import replace
from typing import Any

from diffusers import QwenImageTransformer2DModel
from diffusers.pipelines.qwenimage import (
    pipeline_qwenimage_edit,
    pipeline_qwenimage_edit_plus,
)
from PIL import Image
from torch import Tensor

from heedmap.backends.base import Arguments, GridShape
from heedmap.backends.joint import PackedFamily
from heedmap.errors import ArgumentError
from heedmap.io.schemas import MAX_TOKENS
from heedmap.text.words import Token, TokenTable


class QwenImage(PackedFamily):
    """A pipeline with a `QwenImageTransformer2DModel`, whose layers have half the latent's grid."""

    model_class = QwenImageTransformer2DModel
    masks_padding = True
    pads_to_longest = "right"
    encodes_negative_apart = True
    negative_place = -1
    negative_guidance = "true_cfg_scale"

    def serves(self) -> bool:
        """Return whether the denoiser is the family's, and the text encoder reads texts alone."""
        return super().serves() and not hasattr(self.pipe, "processor")

    def image_grids(self, inputs: Arguments) -> list[GridShape]:
        """Return the grids (h, w) of the images, by the shapes that the model is given."""
        shapes = inputs["img_shapes"][0]
        # That of a single image, as ControlNets' pipelines give it.
        if isinstance(shapes, tuple):
            shapes = [shapes]
        return [(h, w) for _, h, w in shapes]

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its first block."""
        return self.model.txt_in(self.model.txt_norm(states))

    def with_text(
        self,
        arguments: Arguments,
        text: Tensor,
        row: int,
        positions: int,
    ) -> dict[str, Any]:
        """Return the arguments of a block for one row of its batch, with other text (1, K, C)."""
        image, places = arguments["image_rotary_emb"]
        one = super().with_text(arguments, text, row, positions)
        return one | {"image_rotary_emb": (image, places[:1].expand(text.shape[1], -1))}

    @property
    def dropped(self) -> int:
        """The number of the template's first tokens, which the pipeline drops."""
        return self.encoder.prompt_template_encode_start_idx

    def limit(
        self,
        arguments: Arguments,
        tokenizer: Any = None,
    ) -> int:
        """Return the number of tokens that a call reads at most, after those that are dropped."""
        return min(super().limit(arguments), self.encoder.tokenizer_max_length)

    def template(self, arguments: Arguments, *_: Any) -> tuple[str, str]:
        """Return the texts before and after a prompt."""
        before, after = self.encoder.prompt_template_encode.split("{}")
        return before, after


_IMAGE = "<|image_pad|>"
_NUMBERED = "Picture {}: <|vision_start|>{}<|vision_end|>"


class QwenImageEdit(QwenImage):
    """A Qwen-Image pipeline whose language model reads images of the user's before the prompt.

    QwenImageEditPlusPipeline reads several, of another size than those beside the image.
    """

    needs_image = True
    single_prompt = (
        "QwenImageEditPlusPipeline",
        "QwenImageEditPlusModularPipeline",
    )

    def serves(self) -> bool:
        """Return whether the denoiser is the family's, and the text encoder reads images."""
        return super(QwenImage, self).serves() and hasattr(self.pipe, "processor")

    def limit(
        self,
        arguments: Arguments,
        tokenizer: Any = None,
    ) -> int:
        """Return the number of tokens that a table has at most; the pipelines cut no prompt."""
        return MAX_TOKENS - self.dropped

    def encoding_arguments(self, arguments: Arguments) -> Arguments:
        """Return the arguments of a call, with the images at the size that they are read at.

        The blocks of a modular pipeline have resized them.
        """
        images = arguments.get("resized_cond_image") or arguments.get("resized_image")
        if images is None:
            images = [self._resized(one) for one in as_list(arguments.get("image"))]
        return {**arguments, "image": images}

    def _resized(self, image: Image.Image) -> Image.Image:
        ratio = image.width / image.height
        if self.lists_references:
            plus = pipeline_qwenimage_edit_plus
            w, h = plus.calculate_dimensions(plus.CONDITION_IMAGE_SIZE, ratio)
        else:
            w, h, _ = pipeline_qwenimage_edit.calculate_dimensions(1024 * 1024, ratio)
        return self.pipe.image_processor.resize(image, h, w)

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt behind the tokens of its images."""
        table = super().table(tokenizer, prompt, arguments)
        number = tokenizer.convert_tokens_to_ids(_IMAGE)
        tokens: list[Token] = []
        for token in table.tokens:
            if token.kind == "start" and token.id == number:
                token = replace(token, text="<image>", kind="image")
            tokens.append(token)
        return replace(table, tokens=tuple(tokens))

    def template(self, arguments: Arguments, *_: Any) -> tuple[str, str]:
        """Return the texts before and after a prompt, with the tokens of its images."""
        before, after = super().template(arguments)
        images = as_list(arguments.get("image"))
        texts = [_IMAGE * self._token_count(image) for image in images]
        if self.lists_references:
            for number, text in enumerate(texts, start=1):
                before += _NUMBERED.format(number, text)
            return before, after
        if len({*texts}) > 1:
            raise ArgumentError(
                "the images have unlike sizes, so that a word has other tokens beside each: pass "
                "images of one size, or one a call"
            )
        for text in texts[:1]:
            before = before.replace(_IMAGE, text)
        return before, after

    def _token_count(self, image: Image.Image) -> int:
        """Return the number of tokens that the text encoder reads of an image."""
        processor = self.pipe.processor.image_processor
        patches = processor.get_number_of_image_patches(image.height, image.width, {})
        return patches // processor.merge_size**2


def as_list(image: Any) -> list[Any]:
    """Return the images that an argument is, if any."""
    if image is None:
        return []
    return image if isinstance(image, list) else [image]
