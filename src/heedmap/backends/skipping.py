"""Tools that skip layers at some steps, or replace their computation."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import torch

from heedmap.backends.base import Undo
from heedmap.errors import ModelError, TraceError, warn


def run_uncompiled(modules: Iterable[Any], undo: Undo) -> None:
    """Run compiled modules of a model without their compiled code, until undone.

    A recording processor would break the compiled graph, and the breaks would stay in torch's
    cache. A warning says that it is slower.
    """
    is_compiled = any(
        "_orig_mod" in module._modules
        or module._compiled_call_impl is not None
        or hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")
        for module in modules
    )
    if not is_compiled:
        return
    stance = torch.compiler.set_stance("force_eager")
    undo(partial(stance.__exit__, None, None, None))
    warn(
        "the model is compiled, and heedmap runs it as it was before: expect the speed of a "
        "model without torch.compile until the recording is over"
    )


# How the names of diffusers' hooks begin that skip nothing.
_NOT_SKIPPING = (
    "group_offloading",
    "layer_execution",
    "lazy_prefetch",
    "layerwise_",
    "peft_",
)


def skipping_tools(
    modules: Mapping[str, Any], layers: Collection[str]
) -> tuple[str, ...]:
    """Return the names of the tools that may skip some layers of a model at some steps.

    Args:
        modules: all modules of the model, by dotted path.
        layers: the dotted paths of the layers.

    Raises:
        ModelError: if FasterCache is among them, which computes attention for a part of a batch.
    """
    tools: dict[str, None] = {}
    for path, module in modules.items():
        attributes = vars(module)
        if "forward" not in attributes and "_diffusers_hook" not in attributes:
            continue
        registry = attributes.get("_diffusers_hook")
        for hook in getattr(registry, "hooks", ()):
            if hook.startswith("faster_cache"):
                raise ModelError(
                    "FasterCache computes attention for only a part of the batch at some steps: "
                    "call disable_cache() on the model first"
                )
            if not hook.startswith(_NOT_SKIPPING):
                tools[hook] = None
        replaced = _replaced_forward(module)
        if replaced is None:
            continue
        prefix = f"{path}.".lstrip(".")
        if any(name.startswith(prefix) for name in layers):
            source = getattr(replaced, "__module__", type(replaced).__name__)
            tools[source.partition(".")[0]] = None
    return tuple(tools)


def check_forwards(layers: Mapping[str, Any]) -> None:
    """Raise a TraceError if the `forward` method of a layer was replaced, as T-GATE does."""
    for name, layer in layers.items():
        if _replaced_forward(layer) is not None:
            raise TraceError(
                f"the forward method of {name} was replaced, so heedmap cannot see its attention: "
                "undo that (T-GATE and register_attention_control of prompt-to-prompt do it)"
            )


def _replaced_forward(module: torch.nn.Module) -> Any:
    """Return what replaced a module's `forward`; None if nothing did.

    Hooks of accelerate and of diffusers, and compiled modules, call the method itself.
    """
    forward = vars(module).get("forward")
    if forward is None or getattr(forward, "__func__", None) is type(module).forward:
        return None
    known = ("_hf_hook", "_diffusers_hook", "_orig_mod")
    if any(hasattr(module, name) for name in known):
        return None
    return forward
