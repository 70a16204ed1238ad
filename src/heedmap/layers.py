"""The attention layers of a UNet: find them, and put processors in front of their own."""

from collections.abc import Callable, Mapping
from typing import Any

from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import Attention

from heedmap.errors import ModelError, TraceError
from heedmap.processors import Changes, Record, RecordingProcessor


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
            and module.is_cross_attention
            and module.added_kv_proj_dim is None
        ]
        # The UNet registers its middle last; within a stage the order is that of the forward pass.
        stages = ("down_blocks", "mid_block", "up_blocks")
        layers = dict(sorted(found, key=lambda item: stages.index(item[0].partition(".")[0])))
    if not layers:
        raise ModelError(
            f"{type(pipe).__name__} has no UNet with text cross-attention: expected a Stable "
            "Diffusion pipeline (1.x, 2.x, XL and their relatives); transformers such as SD 3 or "
            "Flux, and UNets that mix text and picture in one softmax (DeepFloyd IF, Kandinsky), "
            "are not supported"
        )
    return layers


def self_attention_layers(pipe: Any) -> dict[str, Attention]:
    """The self-attention layers of a pipeline's UNet, by dotted path."""
    unet: Any = getattr(pipe.unet, "_orig_mod", pipe.unet)
    return {
        name: module
        for name, module in unet.named_modules()
        if isinstance(module, Attention)
        and not module.is_cross_attention
        and module.added_kv_proj_dim is None
    }


def install(
    layers: Mapping[str, Attention], record: Record, undo: Callable[[Callable[[], None]], object],
    changes: Callable[[str], Changes] | None = None,
) -> dict[str, RecordingProcessor]:  # fmt: skip
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
