"""The attention layers of a UNet: find them, and put processors in front of their own."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import Attention

from heedmap.errors import ModelError, TraceError
from heedmap.wiring.processors import Changes, Record, RecordingProcessor

STAGES = ("down_blocks", "mid_block", "up_blocks")
"""The parts of a UNet that hold its layers, in the order in which they run."""


OWN_WAY = "runs through attention processors of its own, which take the place of heedmap's"
CHAT = "reads its prompt with a language model whose tokens heedmap does not tie to words yet"
UNSERVED: dict[str, str] = {
    "StableDiffusionPanoramaPipeline": "draws views that overlap, none of the whole picture",
    "StableDiffusionAttendAndExcitePipeline": OWN_WAY,
    "TextToVideoZeroPipeline": OWN_WAY,
    "TextToVideoZeroSDXLPipeline": OWN_WAY,
    "LEditsPPPipelineStableDiffusion": OWN_WAY,
    "LEditsPPPipelineStableDiffusionXL": OWN_WAY,
    "StableDiffusionPix2PixZeroPipeline": OWN_WAY,
    "SemanticStableDiffusionPipeline": "encodes its prompt where heedmap cannot hear what is read",
    "StableDiffusionParadigmsPipeline": "runs several steps in one batch",
    "StableDiffusionImageVariationPipeline": "reads a picture and no prompt",
    "PaintByExamplePipeline": "reads a picture and no prompt",
    "StableDiffusionLatentUpscalePipeline": "gives its UNet the noise's strength for a timestep",
    "KolorsPipeline": CHAT,
    "KolorsImg2ImgPipeline": CHAT,
    "KolorsPAGPipeline": CHAT,
}
"""Pipelines with a UNet of ours that cannot be recorded, and why."""


def served(pipe: Any) -> None:
    """Raise a ModelError if a pipeline has a UNet, but uses it in a way that cannot be recorded."""
    for kind in type(pipe).__mro__:
        if kind.__name__ in UNSERVED:
            raise ModelError(
                f"{kind.__name__} {UNSERVED[kind.__name__]}: no map of a word can be made of it; "
                "use another pipeline of the same model"
            )


def cross_attention_layers(pipe: Any) -> dict[str, Attention]:
    """The text cross-attention layers of a pipeline's UNet, by dotted path, as they are run.

    Raises:
        ModelError: if the pipeline has no UNet with text cross-attention.
    """
    unet: Any = getattr(pipe, "unet", None)
    unet = getattr(unet, "_orig_mod", unet)  # within what torch.compile made of it
    layers: dict[str, Attention] = {}
    if isinstance(unet, UNet2DConditionModel):
        found = [
            (name, module)
            for name, module in unet.named_modules()
            # Layers with added keys (DeepFloyd IF, Kandinsky) mix text and picture in one softmax.
            if isinstance(module, Attention)
            and name.startswith(STAGES)
            and module.is_cross_attention
            and module.added_kv_proj_dim is None
        ]
        # The UNet registers its middle last; within a stage the order is that of the forward pass.
        layers = dict(sorted(found, key=lambda item: STAGES.index(item[0].partition(".")[0])))
    if not layers:
        raise ModelError(
            f"{type(pipe).__name__} has no UNet with text cross-attention: {_why_not(pipe, unet)}; "
            "expected a Stable Diffusion pipeline with a UNet2DConditionModel (1.x, 2.x, XL and "
            "their relatives)"
        )
    return layers


def _why_not(pipe: Any, unet: Any) -> str:
    """What a pipeline has in the place of cross-attention that can be read."""
    transformer = getattr(pipe, "transformer", None)
    if unet is None and transformer is not None:
        return (
            f"it has a {type(transformer).__name__} (SD 3 and Flux have text and picture in one "
            "softmax; PixArt, Sana and HunyuanDiT attend to text as a UNet does, and are not "
            "served yet)"
        )
    other = next(
        (
            name
            for name, part in getattr(pipe, "components", {}).items()
            if isinstance(part, UNet2DConditionModel)
        ),
        None,
    )
    if unet is None and other is not None:
        return f"its UNet is its {other}, in a pipeline of several models, which is not served yet"
    if unet is None:
        return "it has none"
    if not isinstance(unet, UNet2DConditionModel):
        return f"its {type(unet).__name__} is built otherwise, or for frames of a video"
    if any(getattr(m, "added_kv_proj_dim", None) is not None for m in unet.modules()):
        return (
            "its layers have text and picture in one softmax (DeepFloyd IF and Kandinsky 2 do), "
            "which is not served yet"
        )
    return "its layers attend to no text"


def self_attention_layers(pipe: Any) -> dict[str, Attention]:
    """The self-attention layers of a pipeline's UNet, by dotted path.

    An image prompt's resampler has attention of its own (IP-Adapter Plus), and so has what ties
    boxes to a picture (GLIGEN): neither is the picture's to itself.
    """
    unet: Any = getattr(pipe.unet, "_orig_mod", pipe.unet)
    return {
        name: module
        for name, module in unet.named_modules()
        if isinstance(module, Attention)
        and name.startswith(STAGES)
        and ".fuser." not in name
        and not module.is_cross_attention
        and module.added_kv_proj_dim is None
    }


def grids(pipe: Any, names: Iterable[str], latent: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """The grid (h, w) of each layer, by its path, for a latent of (h, w).

    A UNet halves its latent from stage to stage, rounding up, and comes back the same way: the
    stage tells the grid. A number of positions would not: merged tokens may be as many as a
    coarser grid has.
    """
    unet: Any = getattr(pipe.unet, "_orig_mod", pipe.unet)
    last = len(unet.config.block_out_channels) - 1
    found = {}
    for name in names:
        stage, _, rest = name.partition(".")
        number = int(rest.partition(".")[0]) if stage != "mid_block" else last
        h, w = latent
        for _ in range(last - number if stage == "up_blocks" else number):
            h, w = (h + 1) // 2, (w + 1) // 2
        found[name] = (h, w)
    return found


def check_places(name: str, positions: int, grid: tuple[int, int]) -> None:
    """Raise a TraceError if a layer attends from other places than those of its grid (h, w)."""
    if positions != grid[0] * grid[1]:
        raise TraceError(
            f"{name} attends from {positions} places, where its stage of the UNet has "
            f"{grid[0]}×{grid[1]}: heedmap cannot tell which place is which (are tokens merged? "
            "take the patch off)"
        )


def install(
    layers: Mapping[str, Attention],
    record: Record,
    undo: Callable[[Callable[[], None]], object],
    changes: Callable[[str], Changes] | None = None,
) -> dict[str, RecordingProcessor]:
    """Put a recording processor in front of the own one of every layer.

    Args:
        layers: by dotted path, as `cross_attention_layers` gives them.
        record: called with the path and the scores whenever a layer has run.
        undo: given what takes a change back, before each change is made.
        changes: what to change in the layer of that path; nothing if None.

    Returns:
        The recording processors, by dotted path.

    Raises:
        TraceError: if there are some already.
    """
    for name, layer in layers.items():
        if isinstance(layer.processor, RecordingProcessor):
            raise TraceError(
                f"another trace is open on this UNet (at {name}): close it first, since two "
                "recordings of one UNet would mix"
            )
    installed: dict[str, RecordingProcessor] = {}
    for name, layer in layers.items():
        change = None if changes is None else changes(name)
        recorder: Any = RecordingProcessor(layer.processor, name, record, change)
        undo(_put_back(layer, layer.processor, recorder))
        layer.set_processor(recorder)
        installed[name] = recorder
    return installed


def _put_back(layer: Attention, original: Any, ours: Any) -> Callable[[], None]:
    def undo() -> None:
        # A processor that the user set meanwhile is theirs to keep.
        if layer.processor is ours:
            layer.set_processor(original)

    return undo


def run_uncompiled(unet: Any, undo: Callable[[Callable[[], None]], object]) -> None:
    """Let a UNet that was compiled run as it was written, in whole or in its parts.

    A processor of our own would cut the compiled code, and the cuts would stay in torch's cache.

    Args:
        unet: the UNet, or what `torch.compile` made of it.
        undo: given what takes a change back, before each change is made.
    """

    def put(module: Any, name: str, value: Any) -> None:
        before = vars(module)[name]
        undo(lambda: vars(module).__setitem__(name, before))
        vars(module)[name] = value

    for module in unet.modules():
        if hasattr(module, "_orig_mod"):
            put(module, "forward", module._orig_mod.__call__)
        if vars(module).get("_compiled_call_impl") is not None:
            put(module, "_compiled_call_impl", None)
