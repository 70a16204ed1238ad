"""The families that heedmap serves, and what a pipeline is asked through them.

A new one is a file beside this one and a row of the table.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from diffusers.models.attention_processor import Attention
from PIL import Image

from heedmap.errors import ModelError, TraceError, quoted
from heedmap.wiring.family import Family, GridShape, made_from
from heedmap.wiring.patches import put
from heedmap.wiring.pixart import PixArt
from heedmap.wiring.unet import UNet

FAMILIES: tuple[Family, ...] = (UNet(), PixArt())


def family_of(pipe: Any) -> Family:
    """The family of a pipeline's denoiser.

    Raises:
        ModelError: if it is of none that is served.
    """
    for family in FAMILIES:
        if isinstance(family.denoiser(pipe), family.kind):
            return family
    if isinstance(pipe, str):  # the prompt first, as nobody else's pipeline is called
        raise ModelError(
            f"the pipeline is the text {quoted(pipe)}: expected one that is loaded, before all else"
        )
    raise _none(type(pipe).__name__, _why_none(pipe))


def family_named(index: Mapping[str, Any]) -> Family:
    """The family of a pipeline that is not loaded, by what its model_index.json says.

    Raises:
        ModelError: if it is of none that is served.
    """
    for family in FAMILIES:
        part = index.get(family.component)
        if isinstance(part, list) and part[-1] in (family.kind.__name__, *family.older_names):
            return family
    raise _none(str(index.get("_class_name")), "its denoiser is of another kind")


def served(pipe: Any) -> None:
    """Raise a ModelError if a pipeline uses its denoiser in a way that cannot be recorded."""
    unserved = {name: why for family in FAMILIES for name, why in family.unserved.items()}
    name = made_from(pipe, unserved)
    if name is not None:
        raise ModelError(
            f"{name} {unserved[name]}: no map of a word can be made of it; use another pipeline of "
            "the same model"
        )


def cross_attention_layers(pipe: Any) -> dict[str, Attention]:
    """The text cross-attention layers of a pipeline's denoiser, by dotted path, as they are run.

    Raises:
        ModelError: if there are none.
    """
    family = family_of(pipe)
    model = family.denoiser(pipe)
    layers = family.cross_attention(model)
    if not layers:
        raise _none(type(pipe).__name__, family.why_none(model))
    return layers


def self_attention_layers(pipe: Any) -> dict[str, Attention]:
    """The layers in which the picture attends to itself, by dotted path."""
    family = family_of(pipe)
    return family.self_attention(family.denoiser(pipe))


def grids(pipe: Any, names: Iterable[str], latent: GridShape) -> dict[str, GridShape]:
    """The grid (h, w) of each layer, by its path, for a latent of (h, w)."""
    family = family_of(pipe)
    model = family.denoiser(pipe)
    return {name: family.grid(model, name, latent) for name in names}


def check_places(name: str, positions: int, grid: GridShape) -> None:
    """Raise a TraceError if a layer attends from other places than those of its grid (h, w)."""
    if positions != grid[0] * grid[1]:
        raise TraceError(
            f"{name} attends from {positions} places, where the model has {grid[0]}×{grid[1]} by "
            "the way it is built: heedmap cannot tell which place is which (are tokens merged? "
            "take the patch off)"
        )


def guard(pipe: Any, undo: Callable[[Callable[[], None]], object]) -> None:
    """Refuse, from now on, a call whose maps would not lie where its picture is.

    Args:
        pipe: the pipeline.
        undo: given what takes each change back.
    """
    for owner, name, method in family_of(pipe).guards(pipe):
        undo(put(owner, name, method))


def processors(pipe: Any) -> dict[str, Any]:
    """The attention processors of a pipeline's denoiser, by path; empty if it has none."""
    for family in FAMILIES:
        model = family.denoiser(pipe)
        if model is not None:
            return dict(getattr(model, "attn_processors", {}))
    return {}


def usual_size(pipe: Any) -> tuple[int, int]:
    """The (width, height) in pixels that a pipeline draws unless it is told otherwise."""
    family = family_of(pipe)
    cells = family.denoiser(pipe).config.sample_size
    h, w = (cells, cells) if isinstance(cells, int) else cells
    side = family.cell_side(pipe)
    return w * side, h * side


def picture_size(pipe: Any, arguments: Mapping[str, Any]) -> tuple[int, int]:
    """The (width, height) that a pipeline draws with these arguments, but no size."""
    start = arguments.get("image")
    start = start[0] if isinstance(start, list | tuple) and start else start
    # Inpainting brings its picture to the model's size; others go by the picture.
    if "mask_image" in arguments or not isinstance(start, Image.Image | torch.Tensor):
        return usual_size(pipe)
    sides = start.size if isinstance(start, Image.Image) else start.shape[:-3:-1]
    if len(sides) < 2:  # no picture, as the pipeline will say
        return usual_size(pipe)
    side = family_of(pipe).cell_side(pipe)
    w, h = sides
    return w - w % side, h - h % side


def unit(pipe: Any) -> int:
    """Of how many pixels each side of a pipeline's pictures has to be a multiple."""
    family = family_of(pipe)
    return family.cell_side(pipe) * family.unit(family.denoiser(pipe))


def _none(name: str, why: str) -> ModelError:
    known = " or ".join(family.told for family in FAMILIES)
    return ModelError(
        f"{name} has no text cross-attention that heedmap reads: {why}; expected {known}"
    )


def _why_none(pipe: Any) -> str:
    """What a pipeline has in the place of a denoiser that is served."""
    there = [part for family in FAMILIES if (part := family.denoiser(pipe)) is not None]
    if there and there[0] is getattr(pipe, "transformer", None):
        return (
            f"it has a {type(there[0]).__name__} (SD 3 and Flux have text and picture in one "
            "softmax; Sana and HunyuanDiT attend to text as a UNet does, and are not served yet)"
        )
    if there:
        return f"its {type(there[0]).__name__} is built otherwise, or for frames of a video"
    for name, part in getattr(pipe, "components", {}).items():
        if any(isinstance(part, family.kind) for family in FAMILIES):
            kind = type(part).__name__
            return f"its {kind} is its {name}, in a pipeline of several models: not served yet"
    return "it has none"
