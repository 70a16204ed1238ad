"""Flux.3, of modular pipelines alone: a transformer whose joint blocks follow blocks of each kind.

Text, image and reference images pass through blocks of their own, and then together through the
joint ones. Qwen 3 VL reads the prompt inside of its chat template, padded to a multiple of 80
tokens; the padding is visible to the image.
"""

from collections.abc import Mapping
from typing import Any

from diffusers import Flux3Transformer2DModel
from diffusers.models.transformers.transformer_flux3 import Flux3Attention

from heedmap.backends.base import Arguments, GridShape, TextStates
from heedmap.backends.flux import grids_of
from heedmap.backends.flux2 import Flux2
from heedmap.backends.joint import chat_around
from heedmap.backends.transformer import Transformer
from heedmap.errors import ArgumentError


class Flux3(Flux2):
    """A pipeline with a `Flux3Transformer2DModel`, whose layers have half of the latent's grid."""

    model_class = Flux3Transformer2DModel
    block_lists = ("mode_blocks.image", "single_transformer_blocks")
    joint_blocks = "single_transformer_blocks."
    layer_classes = (Flux3Attention,)
    groups = Transformer.groups
    pads_to_longest = "right"
    concepts_refusal = (
        "Flux.3 passes its text through blocks of their own, so that concepts are not yet "
        "supported: leave them out"
    )
    single_prompt = ("Flux3ModularPipeline",)

    def image_grids(self, inputs: Arguments) -> list[GridShape]:
        """Return the grids (h, w) of the image and of each reference image, by their places."""
        grids = grids_of(inputs["img_ids"], axis=3)
        places = inputs.get("image_cond_ids")
        return grids if places is None else grids + grids_of(places, axis=3)

    def states_of_blocks(self, values: Mapping[str, Any]) -> TextStates:
        """Return the text states among the values of a pipeline's state.

        Raises:
            ArgumentError: if the image is cropped to its reference afterwards.
        """
        boxes = values.get("reference_crop") or ()
        w, h = values["width"], values["height"]
        if any(box and box != (0, 0, w, h) for box in boxes):
            raise ArgumentError(
                "the image would be cropped to its reference, so that maps would be misplaced: "
                "pass height and width"
            )
        return super().states_of_blocks(values)

    @property
    def token_multiple(self) -> int:
        """The number of tokens to whose multiples a prompt is padded."""
        return self.encoder.pad_multiple

    def template(
        self,
        arguments: Arguments,
        tokenizer: Any,
        prompt: str,
    ) -> tuple[str, str]:
        """Return the texts of the chat template before and after a prompt."""
        return chat_around(prompt, tokenizer)
