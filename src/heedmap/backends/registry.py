"""The table of model families, and questions about a pipeline that its family answers."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from diffusers.models.attention_processor import Attention
from PIL import Image

from heedmap.backends.base import Family, GridShape
from heedmap.backends.pixart import PixArt
from heedmap.backends.unet import UNet
from heedmap.errors import ModelError, quoted

FAMILIES: tuple[type[Family], ...] = (UNet, PixArt)


def family_of(pipe: Any) -> Family:
    """Return a pipeline as one of its family; raise a ModelError if none serves it."""
    families = [family(pipe) for family in FAMILIES]
    for family in families:
        if family.serves():
            return family
    name = quoted(pipe) if isinstance(pipe, str) else type(pipe).__name__
    found = next((family for family in families if family.model is not None), None)
    if found is None:
        raise _unreadable(name, "it has no unet and no transformer")
    part, kind = found.component, type(found.model).__name__
    if isinstance(found.model, torch.nn.DataParallel):
        why = f"its {part} is wrapped in {kind} (set pipe.{part} = pipe.{part}.module)"
    elif part == "transformer":
        why = (
            f"it has a {kind} (SD 3 and Flux have text and image in one softmax; Sana and "
            "HunyuanDiT attend to text as a UNet does, and are not served yet)"
        )
    else:
        why = f"its {part} is of class {kind}"
    raise _unreadable(name, why)


def family_named(index: Mapping[str, Any]) -> type[Family]:
    """Return the family of the pipeline of a model_index.json; raise a ModelError if unserved."""
    name, why = str(index.get("_class_name")), "it has no unet and no transformer"
    _check_class([name])
    for family in FAMILIES:
        part = index.get(family.component)
        if isinstance(part, list) and part and part[-1] is not None:
            if part[-1] in (family.model_class.__name__, *family.older_names):
                return family
            why = f"its {family.component} is of class {part[-1]}"
    raise _unreadable(name, why)


def _unreadable(name: str, why: str) -> ModelError:
    expected = " or ".join(family.description for family in FAMILIES)
    return ModelError(
        f"{name} has no text cross-attention that heedmap reads: {why}; expected {expected}"
    )


def check_served(pipe: Any) -> None:
    """Raise a ModelError unless the attention of a pipeline can be recorded."""
    _check_class(kind.__name__ for kind in type(pipe).__mro__)
    cross_attention_layers(pipe)
    encoding_method(pipe)


def _check_class(names: Iterable[str]) -> None:
    unserved = {name: why for family in FAMILIES for name, why in family.unserved.items()}
    for name in names:
        if name in unserved:
            raise ModelError(
                f"{name} {unserved[name]}: no map of a word can be made of it; use another "
                "pipeline of the same model"
            )


def encoding_method(pipe: Any) -> str:
    """Return the name of a pipeline's encode_prompt; raise a ModelError if its form is unknown."""
    for name in ("encode_prompt", "_encode_prompt"):  # InstructPix2Pix has only the older one
        if hasattr(pipe, name):
            parameters = inspect.signature(getattr(pipe, name)).parameters
            if "prompt" in parameters and "max_embeddings_multiples" not in parameters:
                return name
            break
    raise ModelError(
        f"{type(pipe).__name__} has no encode_prompt in diffusers' form: expected a text-to-image "
        "pipeline of diffusers; pass long or weighted prompts to it as prompt_embeds"
    )


# --- its layers ---


def cross_attention_layers(pipe: Any) -> dict[str, Attention]:
    """Return the text cross-attention layers of a pipeline, by dotted path, in running order."""
    every = family_of(pipe).attention()
    layers = {name: layer for name, layer in every.items() if layer.is_cross_attention}
    if not layers:
        why = "its layers attend to no text, or to text and image in one softmax (as DeepFloyd IF)"
        raise _unreadable(type(pipe).__name__, why)
    return layers


def self_attention_layers(pipe: Any) -> dict[str, Attention]:
    """Return the layers of the image's attention to itself, by dotted path."""
    every = family_of(pipe).attention()
    return {name: layer for name, layer in every.items() if not layer.is_cross_attention}


def grids(pipe: Any, names: Iterable[str], latent: GridShape) -> dict[str, GridShape]:
    """Return the grid (h, w) of each layer for a latent (h, w), by path."""
    family = family_of(pipe)
    return {name: family.grid(name, latent) for name in names}


# --- the size of its images ---


def usual_size(pipe: Any) -> tuple[int, int]:
    """Return the (width, height) in pixels that a pipeline draws by default."""
    family = family_of(pipe)
    cells, side = family.model.config.sample_size, family.cell_side
    h, w = (cells, cells) if isinstance(cells, int) else cells
    return w * side, h * side


def picture_size(pipe: Any, arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Return the (width, height) that a pipeline draws with these arguments, but no size."""
    start, side = arguments.get("image"), family_of(pipe).cell_side
    start = start[0] if isinstance(start, list | tuple) and start else start
    # Inpainting resizes its image to the model's size; other pipelines keep the image's.
    if "mask_image" not in arguments and isinstance(start, Image.Image | torch.Tensor):
        sides = start.size if isinstance(start, Image.Image) else start.shape[:-3:-1]
        if len(sides) == 2:
            w, h = sides
            return w - w % side, h - h % side
    return usual_size(pipe)


def unit(pipe: Any) -> int:
    """Return the divisor of both sides of a pipeline's images, in pixels."""
    family = family_of(pipe)
    return family.cell_side * family.latent_multiple
