"""Tools that skip a denoiser's layers at some steps: the caches of diffusers, DeepCache and others.

A skipped layer computes no attention, so there is nothing to record. Where such a tool is in use,
the maps are means over the steps at which each layer ran. A layer whose own `forward` was replaced
is another case: it runs at every step, and heedmap cannot see what it computes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from heedmap.errors import ModelError, TraceError

UNRELATED = ("group_offloading", "layer_execution", "lazy_prefetch", "layerwise_", "peft_autocast")
"""How the names of those of diffusers' hooks begin that skip nothing."""


def skipping_tools(model: torch.nn.Module, layers: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the tools that may skip layers of a model at some steps.

    Args:
        model: the denoiser.
        layers: the dotted paths of its text cross-attention layers.

    Raises:
        ModelError: if FasterCache is among them, which computes attention for a part of a batch.
    """
    parents = {path for name in layers for path in _parents(name)}
    found: dict[str, None] = {}
    for path, module in model.named_modules():
        for hook in getattr(getattr(module, "_diffusers_hook", None), "hooks", ()):
            if hook.startswith("faster_cache"):
                raise ModelError(
                    "FasterCache computes attention for only a part of the batch at some steps and "
                    "estimates the rest, so there is nothing to record for these images: call "
                    "disable_cache() on the model first"
                )
            if not hook.startswith(UNRELATED):
                found[hook] = None
        if path in parents and (replaced := replaced_forward(module)) is not None:
            found[getattr(replaced, "__module__", type(replaced).__name__).split(".")[0]] = None
    return tuple(found)


def check_forwards(layers: Mapping[str, Any]) -> None:
    """Raise a TraceError if some layers' own `forward` was replaced, as T-GATE does."""
    replaced = [name for name, layer in layers.items() if replaced_forward(layer) is not None]
    if replaced:
        raise TraceError(
            f"the forward method of {len(replaced)} of {len(layers)} cross-attention layers was "
            f"replaced (such as {replaced[0]}), so heedmap cannot see their attention: undo what "
            "replaced it (T-GATE and register_attention_control of prompt-to-prompt do)"
        )


def replaced_forward(module: torch.nn.Module) -> Any:
    """Return what somebody put in the place of a module's `forward`; None if nobody did.

    Hooks of accelerate and of diffusers, and compiled modules, call the method itself.
    """
    forward = vars(module).get("forward")
    if forward is None or getattr(forward, "__func__", None) is type(module).forward:
        return None
    known = ("_hf_hook", "_diffusers_hook", "_orig_mod")
    return None if any(hasattr(module, name) for name in known) else forward


def _parents(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts))]
