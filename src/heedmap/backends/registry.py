"""The table of model families, and questions about a pipeline that its family answers."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from diffusers.models.attention_processor import Attention
from PIL import Image

from heedmap.backends.base import Family, GridShape, Undo, put
from heedmap.backends.pixart import PixArt
from heedmap.backends.unet import UNet
from heedmap.errors import ModelError, TraceError, quoted

FAMILIES: tuple[Family, ...] = (UNet(), PixArt())


def family_of(pipe: Any) -> Family:
    """Return the family of a pipeline's denoiser; raise a ModelError if none serves it."""
    for family in FAMILIES:
        if family.serves(family.denoiser(pipe)):
            return family
    if isinstance(pipe, torch.nn.Module | str):
        given = quoted(pipe) if isinstance(pipe, str) else f"a {type(pipe).__name__}"
        raise ModelError(f"the pipeline is {given}: expected one that hm.load() returns")
    raise _unreadable(type(pipe).__name__, _reason(pipe))


def family_named(index: Mapping[str, Any]) -> Family:
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


def cross_attention_layers(pipe: Any) -> dict[str, Attention]:
    """Return the text cross-attention layers of a pipeline, by dotted path, in running order."""
    family = family_of(pipe)
    layers = family.cross_attention(family.denoiser(pipe))
    if not layers:
        why = "its layers attend to no text, or to text and image in one softmax (as DeepFloyd IF)"
        raise _unreadable(type(pipe).__name__, why)
    return layers


def self_attention_layers(pipe: Any) -> dict[str, Attention]:
    """Return the layers of the image's attention to itself, by dotted path."""
    family = family_of(pipe)
    return family.self_attention(family.denoiser(pipe))


def grids(pipe: Any, names: Iterable[str], latent: GridShape) -> dict[str, GridShape]:
    """Return the grid (h, w) of each layer for a latent (h, w), by path."""
    family = family_of(pipe)
    model = family.denoiser(pipe)
    return {name: family.grid(model, name, latent) for name in names}


def check_places(name: str, positions: int, grid: GridShape) -> None:
    """Raise a TraceError unless a layer has as many positions as its grid (h, w) has cells."""
    h, w = grid
    if positions != h * w:
        raise TraceError(
            f"{name} ran on {positions} positions, but its grid is {h}×{w} = {h * w}: remove what "
            "merges tokens or rescales the layer's input"
        )


def guard(pipe: Any, undo: Undo) -> None:
    """Refuse calls of a pipeline whose maps would be misplaced in the image, until undone."""
    for owner, name, method in family_of(pipe).guards(pipe):
        undo(put(owner, name, method))


def usual_size(pipe: Any) -> tuple[int, int]:
    """Return the (width, height) in pixels that a pipeline draws by default."""
    family = family_of(pipe)
    cells = family.denoiser(pipe).config.sample_size
    h, w = (cells, cells) if isinstance(cells, int) else cells
    side = family.cell_side(pipe)
    return w * side, h * side


def picture_size(pipe: Any, arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Return the (width, height) that a pipeline draws with these arguments, but no size."""
    start, side = arguments.get("image"), family_of(pipe).cell_side(pipe)
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
    return family.cell_side(pipe) * family.latent_multiple(family.denoiser(pipe))


def _unreadable(name: str, why: str) -> ModelError:
    expected = " or ".join(family.description for family in FAMILIES)
    return ModelError(
        f"{name} has no text cross-attention that heedmap reads: {why}; expected {expected}"
    )


def _reason(pipe: Any) -> str:
    """Name the part that a pipeline has in place of a served denoiser."""
    for family in FAMILIES:
        model, name = family.denoiser(pipe), family.component
        kind = type(model).__name__
        if isinstance(model, torch.nn.DataParallel):
            return f"its {name} is wrapped in {kind} (set pipe.{name} = pipe.{name}.module)"
        if model is not None and name == "transformer":
            return (
                f"it has a {kind} (SD 3 and Flux have text and image in one softmax; Sana and "
                "HunyuanDiT attend to text as a UNet does, and are not served yet)"
            )
        if model is not None:
            return f"its {name} is of class {kind}"
    return "it has no unet and no transformer"
