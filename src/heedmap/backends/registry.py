"""The families that heedmap serves, and what a pipeline is asked through them.

A new one is a file beside this one and a row of the table.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from diffusers.models.attention_processor import Attention
from PIL import Image

from heedmap.backends.active_calls import put
from heedmap.backends.family import Family, GridShape
from heedmap.backends.pixart import PixArt
from heedmap.backends.unet import UNet
from heedmap.errors import ModelError, TraceError, quoted

FAMILIES: tuple[Family, ...] = (UNet(), PixArt())


def family_of(pipe: Any) -> Family:
    """The family of a pipeline's denoiser.

    Raises:
        ModelError: if it is of none that is served.
    """
    for family in FAMILIES:
        if family.serves(family.denoiser(pipe)):
            return family
    if isinstance(pipe, torch.nn.Module):
        raise ModelError(
            f"heedmap was given a {type(pipe).__name__} alone: expected the pipeline that runs it"
        )
    if isinstance(pipe, str):  # the prompt first, as nobody else's pipeline is called
        raise ModelError(
            f"the pipeline is the text {quoted(pipe)}: expected one that is loaded, before all else"
        )
    raise _none(type(pipe).__name__, *_why_none(pipe))


def family_named(index: Mapping[str, Any]) -> Family:
    """The family of a pipeline that is not loaded, by what its model_index.json says.

    Raises:
        ModelError: if its denoiser or its class is not served.
    """
    name = str(index.get("_class_name"))
    _check_class([name])
    why = "it has no unet and no transformer"
    for family in FAMILIES:
        part = index.get(family.component)
        if isinstance(part, list) and part and isinstance(part[-1], str):
            if part[-1] in (family.kind.__name__, *family.older_names):
                return family
            why = f"its {family.component} is of class {part[-1]}"
    raise _none(name, why)


def check_served(pipe: Any) -> None:
    """Raise a ModelError unless words can be recorded in what a pipeline does with its denoiser."""
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
    """Name the method that encodes a pipeline's prompts; ModelError if it has none that is known.

    InstructPix2Pix has the older method only; of both, the older one calls the newer.
    """
    name = next((n for n in ("encode_prompt", "_encode_prompt") if hasattr(pipe, n)), None)
    kind = type(pipe).__name__
    if name is None:
        raise ModelError(
            f"{kind} has no encode_prompt, so heedmap cannot tell what its model reads: expected a "
            "text-to-image pipeline of diffusers"
        )
    taken = inspect.signature(getattr(pipe, name)).parameters
    if "max_embeddings_multiples" in taken:
        raise ModelError(
            f"{kind} encodes long or weighted prompts in its own way, which heedmap cannot match "
            f"to words: encode the prompt with it, and pass the prompt_embeds to the plain pipeline"
        )
    if "prompt" not in taken:
        raise ModelError(
            f"{kind}.{name} takes no argument prompt, so heedmap cannot tell what its model reads: "
            "expected a text-to-image pipeline with diffusers' usual encode_prompt"
        )
    return name


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
    """Raise a TraceError if a layer has another number of positions than its grid (h, w)."""
    h, w = grid
    if positions != h * w:
        raise TraceError(
            f"{name} ran on {positions} positions, but its grid is {h}×{w} = {h * w}, so heedmap "
            "cannot place them: remove what merges tokens or rescales the layer's input"
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


def _none(name: str, why: str, advice: str = "") -> ModelError:
    advice = advice or "expected " + " or ".join(family.told for family in FAMILIES)
    return ModelError(f"{name} has no text cross-attention that heedmap reads: {why}; {advice}")


def _why_none(pipe: Any) -> tuple[str, str]:
    """Say what a pipeline has in place of a served denoiser, and what to do where that is known."""
    for family in FAMILIES:
        part, name = family.denoiser(pipe), family.component
        if part is None:
            continue
        kind, inner = type(part).__name__, getattr(part, "module", None)
        if family.serves(inner):
            return f"its {name} is wrapped in {kind}", f"set pipe.{name} = pipe.{name}.module"
        if not isinstance(part, torch.nn.Module):
            return (
                f"its {name} is of class {kind}, which does not run in torch",
                "load it with torch",
            )
        if isinstance(part, family.kind):
            return f"its {kind} is built or called in another way than {family.kind.__name__}", ""
        if name == "transformer":
            return (
                f"it has a {kind} (SD 3 and Flux have text and picture in one softmax; Sana and "
                "HunyuanDiT attend to text as a UNet does, and are not served yet)"
            ), ""
        return f"its {name} is of class {kind}", ""
    for name, part in getattr(pipe, "components", {}).items():
        if any(isinstance(part, family.kind) for family in FAMILIES):
            kind = type(part).__name__
            return f"its {kind} is its {name}, in a pipeline of several models: not served yet", ""
    return "it has no unet and no transformer", ""
