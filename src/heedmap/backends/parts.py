"""The parts of a pipeline, where they came from, and its LoRAs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from heedmap.backends.family import as_written

_COMMIT = re.compile(r"snapshots[\\/]([0-9a-f]{40})(?:[\\/]|$)")


def parts_of(pipe: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a pipeline except schedulers; a compiled part is unwrapped."""
    for name, kind in getattr(pipe, "config", {}).items():
        part = getattr(pipe, name, None) if isinstance(kind, list | tuple) else None
        if part is not None and not name.endswith("scheduler"):
            yield name, as_written(part)
    if getattr(pipe, "watermark", None) is not None:
        yield "watermark", pipe.watermark


def device_of(pipe: Any) -> torch.device:
    """Return the device on which a pipeline computes, also if its parts are offloaded."""
    return torch.device(getattr(pipe, "_execution_device", pipe.device))


@contextmanager
def left_early(pipe: Any) -> Iterator[None]:
    """Clean up after a call of a pipeline that the block leaves early.

    Offloaded parts return to the CPU. Attention processors that the pipeline installed for the call
    (perturbed-attention guidance does) are removed.
    """
    parts = [part for _, part in parts_of(pipe) if isinstance(part, torch.nn.Module)]
    found: list[Any] = [module for part in parts for module in part.modules()]
    before = [(layer, layer.processor) for layer in found if hasattr(layer, "set_processor")]
    try:
        yield
    except BaseException:
        for layer, processor in before:
            if layer.processor is not processor:
                layer.set_processor(processor)
        free = getattr(pipe, "maybe_free_model_hooks", None)
        if free is not None:
            free()
        raise


def commit_of(pipe: Any) -> str | None:
    """Return the commit of the hub repository that a pipeline came from; None if unknown."""
    for _, part in parts_of(pipe):
        config = getattr(part, "config", None)
        commit = getattr(config, "_commit_hash", None)
        if isinstance(commit, str):
            return commit
        source = getattr(config, "_name_or_path", None) or getattr(part, "name_or_path", None)
        if path := _COMMIT.search(str(source)):
            return path[1]
    return None


def loras(pipe: Any) -> list[dict[str, Any]]:
    """Return the name, part, scale and state of each LoRA of a pipeline.

    A LoRA that was fused and then unloaded still acts; only its name is known.
    """
    found = [
        _lora(name, part, adapter)
        for name, part in parts_of(pipe)
        for adapter in getattr(part, "peft_config", None) or {}
    ]
    fused = {str(name) for name in getattr(pipe, "fused_loras", ())}
    unloaded = fused - {lora["name"] for lora in found}
    return found + [{"name": name, "fused": True} for name in sorted(unloaded)]


def _lora(name: str, part: Any, adapter: str) -> dict[str, Any]:
    layers = [
        module
        for module in part.modules()
        if isinstance(scaling := getattr(module, "scaling", None), dict) and adapter in scaling
    ]
    scales = [float(layer.scaling[adapter]) for layer in layers]
    active = any(
        adapter in layer.active_adapters and not layer.disable_adapters for layer in layers
    )
    return {
        "name": str(adapter),
        "part": name,
        "scale": scales[0] if len({*scales}) == 1 else scales,
        "active": active,
        "fused": any(adapter in layer.merged_adapters for layer in layers),
    }
