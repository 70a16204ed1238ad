"""Bria and Bria FIBO: transformers shaped as Flux.1 that get the scheduler's own timesteps.

T5 reads each prompt of Bria by itself, without padding. The pipeline pads its states with zeros, to
which the image attends. It counts positions of the transformer where others count cells.

SmolLM 3 reads the prompts of FIBO, which pads them to the longest of both branches; a mask hides
the padding. Each block gets half of its text from another layer of the language model. A position
of the transformer is a cell of the latent.
"""

from collections.abc import Callable, Iterable
from typing import Any

from diffusers import BriaFiboTransformer2DModel, BriaTransformer2DModel
from diffusers.models.attention_processor import Attention
from diffusers.models.transformers.transformer_bria import BriaAttention
from diffusers.models.transformers.transformer_bria_fibo import BriaFiboAttention

from heedmap.backends.flux import FluxFamily
from heedmap.errors import ArgumentError


class Bria(FluxFamily):
    """A pipeline with a `BriaTransformer2DModel`."""

    model_class = BriaTransformer2DModel
    layer_classes = (BriaAttention,)
    timestep_factor = 1
    encoder_padding = "right"
    cells_per_side = 2
    encodes_negative_apart = False
    runs_negative_apart = False
    negative_place = 1

    @property
    def matches_flow(self) -> bool:
        """False with a scheduler of diffusion, which the pipeline takes, too."""
        return "beta_schedule" not in self.pipe.scheduler.config


class BriaFibo(Bria):
    """A pipeline with a `BriaFiboTransformer2DModel`."""

    model_class = BriaFiboTransformer2DModel
    layer_classes = (BriaFiboAttention, Attention)
    masks_padding = True
    pads_to_longest = "right"
    patch = 1
    cells_per_side = 1
    empty_token = 128000
    concepts_refusal = (
        "each block of Bria FIBO reads a layer of its language model, so that concepts are not "
        "yet supported: leave them out"
    )

    def guards(self) -> Iterable[tuple[object, str, Callable[..., Any]]]:
        """Yield replacements (owner, name, method) that refuse positions of several cells."""
        yield self.pipe, "_pack_latents", _refuse_patches


def _refuse_patches(*args: Any, **kwargs: Any) -> Any:
    raise ArgumentError("maps of do_patching=True are not yet supported: leave it out")
