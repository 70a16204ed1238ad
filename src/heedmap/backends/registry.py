"""The table of model families, the layers and image sizes of a pipeline, and its arguments."""

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from math import prod
from typing import Any

import diffusers
import torch
from diffusers import ZImageControlNetModel
from torch import Tensor

from heedmap.backends import (
    aura_flow,
    bria,
    cogview4,
    ernie,
    flux,
    flux2,
    hunyuan,
    krea2,
    longcat,
    lumina2,
    ovis,
    pixart,
    qwen,
    sana,
    sd3,
    unet,
    zimage,
)
from heedmap.backends.base import Family, modules_of, parameters
from heedmap.backends.modular import is_modular
from heedmap.checks import as_ordered_list, check_int
from heedmap.errors import ArgumentError, ModelError, quoted
from heedmap.io.reading import MAX_ASPECT, MAX_PIXELS
from heedmap.options import RESERVED_ARGUMENTS, GenerateOptions

FAMILIES: tuple[type[Family], ...] = (
    unet.UNet,
    pixart.PixArt,
    sana.Sana,
    hunyuan.HunyuanDiT,
    sd3.StableDiffusion3,
    flux.Flux,
    flux.Chroma,
    flux2.Flux2,
    ovis.OvisImage,
    longcat.LongCatImage,
    bria.Bria,
    bria.BriaFibo,
    krea2.Krea2,
    qwen.QwenImage,
    qwen.QwenImageEdit,
    cogview4.CogView4,
    aura_flow.AuraFlow,
    zimage.ZImage,
    lumina2.Lumina2,
    ernie.ErnieImage,
)
# Models that the oldest version of diffusers which heedmap runs with does not have.
if hasattr(diffusers, "QwenImage21Transformer2DModel"):
    from heedmap.backends.qwen21 import QwenImage21

    FAMILIES += (QwenImage21,)
if hasattr(diffusers, "Flux3Transformer2DModel"):
    from heedmap.backends.flux3 import Flux3

    FAMILIES += (Flux3,)
UNSERVED: Mapping[str, Sequence[str]] = {
    "draws views that overlap, none of the whole image": [
        "StableDiffusionPanoramaPipeline"
    ],
    "runs several steps in one batch": ["StableDiffusionParadigmsPipeline"],
    "gives its UNet the text as one vector": ["AudioLDMPipeline", "MusicLDMPipeline"],
    "passes the strength of the noise to its UNet in place of a timestep": [
        "StableDiffusionLatentUpscalePipeline",
    ],
    "draws several layers, one image each": [
        "QwenImageLayeredPipeline",
        "QwenImageLayeredModularPipeline",
    ],
    "keeps the chat template of its prompt inside its blocks, where heedmap cannot read it": [
        "QwenImage21ModularPipeline",
        "QwenImage21TurboModularPipeline",
    ],
    "runs attention processors of its own in place of heedmap's": [
        "StableDiffusionAttendAndExcitePipeline",
        "TextToVideoZeroPipeline",
        "TextToVideoZeroSDXLPipeline",
        "StableDiffusionPix2PixZeroPipeline",
    ],
    "perturbs the attention of a part of its batch": [
        "StableDiffusion3PAGPipeline",
        "StableDiffusion3PAGImg2ImgPipeline",
    ],
    "puts the positions of an image of yours beside those of the image that it draws": [
        "ZImageOmniPipeline",
        "LongCatImageEditPipeline",
        "BriaFiboEditPipeline",
    ],
    "has a UNet with text and image in one softmax": [
        "IFPipeline",
        "IFSuperResolutionPipeline",
    ],
    "has no encode_prompt in diffusers' form": [
        "KandinskyCombinedPipeline",
        "KandinskyV22CombinedPipeline",
        "LDMTextToImagePipeline",
        "SemanticStableDiffusionPipeline",
        "VQDiffusionPipeline",
    ],
    "has a tokenizer without character offsets": [
        "KolorsPipeline",
        "KolorsPAGPipeline",
        "KolorsImg2ImgPipeline",
    ],
}
"""Pipelines that are refused although their denoiser is of a family: the names by the reason."""
GROUP = "heedmap.families"
"""The group of entry points by which other packages add families."""


@cache
def families() -> tuple[type[Family], ...]:
    """Return heedmap's families, and those of other packages: a class for each entry point."""
    points = sorted(entry_points(group=GROUP))
    return (*FAMILIES, *(point.load() for point in points))


def family_of(pipe: Any) -> Family:
    """Return a pipeline as one of its family; raise a ModelError if none serves it."""
    for kind in families():
        family = kind(pipe)
        if family.serves():
            return family
    name = type(pipe).__name__
    if not hasattr(pipe, "components"):
        raise ModelError(
            f"{name} is no pipeline: expected one, such as hm.load returns"
        )
    model = getattr(pipe, "unet", None) or getattr(pipe, "transformer", None)
    raise _unreadable(name, type(model).__name__)


def family_named(index: Mapping[str, Any]) -> type[Family]:
    """Return the family of the pipeline of a model_index.json; raise a ModelError if unserved."""
    name = str(index.get("_class_name"))
    _check_class([name])
    for family in families():
        part = index.get(family.component)
        names = (family.model_class.__name__, *family.older_names)
        if isinstance(part, list) and part[1] in names:
            return family
    model: Any = index.get("unet") or index.get("transformer")
    model = model[1] if isinstance(model, list) else model
    raise _unreadable(name, model or "parts of other names")


def _unreadable(name: str, model: Any) -> ModelError:
    return ModelError(
        f"{name} has no denoiser whose attention to the text heedmap reads, but {model}, which is "
        "not yet supported: expected a model such as Stable Diffusion, Flux or Qwen-Image; of a "
        "modular pipeline after load_components()"
    )


def check_served(pipe: Any) -> Family:
    """Return the family of a pipeline; ModelError if its attention cannot be recorded."""
    _check_class([kind.__name__ for kind in type(pipe).__mro__])
    family = family_of(pipe)
    if not family.text_layers():
        raise ModelError(
            f"the layers of {type(pipe).__name__} attend to no text, or to text and image in one "
            "softmax (as DeepFloyd IF): expected a model whose layers attend to the text alone"
        )
    if not is_modular(pipe):
        encoding_method(pipe)
    return family


def _check_class(names: Collection[str]) -> None:
    for reason, unserved in UNSERVED.items():
        for name in names:
            if name in unserved:
                raise ModelError(
                    f"{name} {reason}: no map of a word can be made of it; use another pipeline"
                )


def encoding_method(pipe: Any) -> str:
    """Return the name of a pipeline's encode_prompt; raise a ModelError if its form is unknown."""
    name = "encode_prompt"
    if not hasattr(pipe, name):
        name = "_encode_prompt"  # the older one, which InstructPix2Pix has
    if hasattr(pipe, name):
        parameters = inspect.signature(getattr(pipe, name)).parameters
        if "prompt" in parameters and "max_embeddings_multiples" not in parameters:
            return name
    raise ModelError(
        f"{type(pipe).__name__} has no encode_prompt in diffusers' form: expected a text-to-image "
        "pipeline of diffusers; pass long or weighted prompts to it as prompt_embeds"
    )


def control_reads_text(pipe: Any) -> bool:
    """Return whether a pipeline has a ControlNet with attention of its own to the text."""
    net = modules_of(pipe).get("controlnet")
    # Z-Image's attends to text and image in one sequence.
    return isinstance(net, ZImageControlNetModel) or any(
        getattr(layer, "is_cross_attention", False)
        or getattr(layer, "added_kv_proj_dim", None)
        for layer in (() if net is None else net.modules())
    )


# --- the size of its images ---


_DEFAULT_SIDE = 1024  # in pixels, where the model does not say


def default_size(pipe: Any) -> tuple[int, int]:
    """Return the (width, height) in pixels that a pipeline draws by default."""
    family = family_of(pipe)
    side = getattr(pipe, "vae_scale_factor", family.cell_side)
    default = getattr(family.model.config, "sample_size", _DEFAULT_SIDE // side)
    cells = getattr(pipe, "default_sample_size", None) or default
    if isinstance(cells, int):
        cells = (cells, cells)
    h, w = cells
    return w * side, h * side


def check_size(pipe: Any, size: object) -> tuple[int, int]:
    """Return a size (width, height) in pixels; raise an ArgumentError if it cannot be drawn."""
    family = family_of(pipe)
    multiple = family.unit
    sides = as_ordered_list(size) or ()
    numbers = [
        check_int("a side of the size", side, least=multiple, most=family.longest_side)
        for side in sides
    ]
    if len(numbers) != 2 or any(side % multiple for side in numbers):
        raise ArgumentError(
            f"the size is {quoted(size)}: expected (width, height) in pixels, both multiples of "
            f"{multiple}"
        )
    w, h = numbers
    if w * h > MAX_PIXELS or max(w, h) > MAX_ASPECT * min(w, h):
        raise ArgumentError(
            f"the size is {w}×{h}: expected at most {MAX_PIXELS} pixels in all, and no side above "
            f"{MAX_ASPECT} times the other"
        )
    return w, h


# --- the arguments of a call ---

DIFFUSERS_NAMES = {name: argument for argument, name in RESERVED_ARGUMENTS.items()}
"""The names that pipelines have for "steps", "guidance", "negative", and for "size" the height."""
STEP_LISTS = ("timesteps", "sigmas")
"""Arguments that list the steps one by one, in place of their number."""


def check_names(
    pipe: Any,
    names: Iterable[str],
    others: Iterable[str],
) -> None:
    """Raise an ArgumentError if a keyword is neither the pipeline's nor one of these others."""
    kind = type(pipe).__name__
    # Many take any name, and ignore it.
    known = sorted({*others, *parameters(pipe)} - {"self"})
    if family_of(pipe).needs_image and "image" not in names:
        raise ArgumentError(f"{kind} draws beside an image of yours: pass it as image")
    for name in {*names} - {*known}:
        if name == "guide":
            raise ArgumentError(
                "only generate and edit take the argument guide: leave it out"
            )
        close = get_close_matches(name, known, n=1)
        hint = f": did you mean {close[0]}?" if close else ""
        raise ArgumentError(f"{kind} takes no argument {name}{hint}")


def for_batch(
    pipe: Any,
    prompts: Sequence[str],
    seeds: Sequence[int],
    options: GenerateOptions,
) -> dict[str, Any]:
    """Return the arguments of a call that draws one image for each prompt and seed."""
    count = len(prompts)
    values = {
        DIFFUSERS_NAMES[name]: getattr(options, name)
        for name in ("steps", "guidance", "negative")
    }
    if options.size is not None:
        values["width"], values["height"] = options.size
        if "max_area" in parameters(pipe):  # to which Kontext scales a size
            values["max_area"] = prod(options.size)
    family = family_of(pipe)
    if count > 1 and family.has_quirk("single_prompt"):
        raise ModelError(
            f"{type(pipe).__name__} reads one prompt a call, so that it draws no batch and no edit "
            "of a source: pass one prompt and one seed, and edits=[…] to hm.generate"
        )
    call = {
        "prompt": prompts[0] if count == 1 else list(prompts),
        "generator": list(map(noise, seeds)),
        **family.defaults,
        **_guided(pipe),
        **{name: value for name, value in values.items() if value is not None},
        **options.arguments,
    }
    # Which diffusers takes for one prompt.
    for name in (DIFFUSERS_NAMES["negative"], "prompt_2"):
        if count > 1 and isinstance(call.get(name), str):
            call[name] = [call[name]] * count
    # Inpainting would encode a single row with the first image's generator alone, others fail.
    for name in ("image", "mask_image", "latents"):
        value = call.get(name)
        if value is None or (name == "image" and family.lists_references):
            continue
        # A list with an image for each of several nets holds for all rows.
        has_nets = hasattr(getattr(pipe, "controlnet", None), "nets")
        is_by_net = has_nets and "control_image" not in parameters(pipe)
        if name != "image" or not isinstance(value, list) or not is_by_net:
            call[name] = _repeated(name, value, count)
    if isinstance(call.get("image"), list) and not family.lists_references:
        call["image"] = family.encoding_arguments(call)["image"]
    return call


def _guided(pipe: Any) -> dict[str, Any]:
    """Return the empty negative prompt, where a guider would guide by nothing without one."""
    guider = getattr(pipe, "guider", None)
    is_guided = is_modular(pipe) and guider is not None and guider._enabled
    name = DIFFUSERS_NAMES["negative"]
    return {name: ""} if is_guided and name in parameters(pipe) else {}


def _repeated(name: str, value: Any, count: int) -> Any:
    """Return an image, a mask or noise for each of some rows; ArgumentError for another number."""
    axes = getattr(value, "ndim", 0)
    if axes == 3 and name == "mask_image":  # (B, H, W), or an array (H, W, 1)
        axes += value.shape[-1] != 1
    if not isinstance(value, list | tuple) and axes < 4:
        return value if count == 1 else [value] * count
    if len(value) == count:
        return value
    if len(value) != 1:
        raise ArgumentError(
            f"{name} has {len(value)} rows for {count} images: expected one, or one for each"
        )
    if isinstance(value, Tensor):
        return value.repeat(count, *[1] * (value.ndim - 1))
    return [*value] * count


def noise(seed: int) -> torch.Generator:
    """Return a generator on the CPU, so that a seed gives the same noise on every device."""
    return torch.Generator("cpu").manual_seed(seed)


def seed_of(generator: Any) -> Any:
    """Return the seed of a new generator, or the seeds of a list; else raise an ArgumentError."""
    if isinstance(generator, list | tuple):
        return [seed_of(one) for one in generator]
    is_on_cpu = (
        isinstance(generator, torch.Generator) and generator.device.type == "cpu"
    )
    if is_on_cpu:
        seed = generator.initial_seed()
        if torch.equal(generator.get_state(), noise(seed).get_state()):
            return seed
    raise ArgumentError(
        f"the generator is {quoted(generator)}: expected a newly seeded torch.Generator on the "
        "CPU, or seed"
    )
