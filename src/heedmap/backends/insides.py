"""What one layer of attention computes around its softmax: values, and what is made of the heads.

Q, K and the mask are heard where they are used (`processors`); here the rest of the layer's way is
listened to, by hooks on its own linear maps, which run in whatever processor there is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from heedmap.backends.processors import own_weights, projections, uncompiled


@dataclass(frozen=True, eq=False)
class Insides:
    """What a layer computed in one pass, for all rows B of the batch.

    Axes: Q place · K token · H·d heads side by side · C channels.

    Attributes:
        hidden: (B, Q, C), what the layer was given.
        value: (B, K, H·d).
        joined: (B, Q, H·d), what went into the output's linear map: the heads' outputs.
        output: (B, Q, C), what the layer gave.
    """

    hidden: torch.Tensor
    value: torch.Tensor
    joined: torch.Tensor
    output: torch.Tensor


@dataclass(frozen=True, eq=False)
class Ending:
    """How a layer puts its heads together: Y = ((joined + …) Wᵀ + b + residual) / factor.

    Attributes:
        weight: W (C, H·d), float32, with LoRAs as they act.
        bias: b (C), float32; None if there is none.
        residual: whether what went in is added.
        factor: what the sum is divided by.
        adds: whether another attention is added to `joined`, as an image prompt's is.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    residual: bool
    factor: float
    adds: bool


def overhear(
    layer: Any, heard: Callable[[Insides], None], undo: Callable[[Callable[[], None]], object]
) -> None:
    """Call `heard` after each pass of a layer with what it computed.

    Args:
        layer: one of a family's layers.
        heard: what to call.
        undo: given what takes each hook off.
    """
    found: dict[str, torch.Tensor] = {}

    def keep(what: str) -> Callable[..., None]:
        @uncompiled
        def hook(module: torch.nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> None:
            if what == "output":
                found["joined"] = args[0]
            elif what == "key and value":
                found["value"] = output.chunk(2, dim=-1)[1]
            else:
                found[what] = output

        return hook

    @uncompiled
    def whole(
        module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor
    ) -> None:
        if not {"value", "joined"} <= found.keys():
            raise own_weights(layer)
        hidden = args[0] if args else kwargs["hidden_states"]
        now = Insides(hidden, found["value"], found["joined"], output)
        found.clear()
        heard(now)

    parts = projections(layer)
    for what in ("value", "key and value", "output"):
        if what in parts:
            undo(parts[what].register_forward_hook(keep(what)).remove)
    undo(layer.register_forward_hook(whole, with_kwargs=True).remove)


def ending(layer: Any, joined: torch.Tensor) -> Ending:
    """Read how a layer has just put its heads together, which are joined (B, Q, H·d)."""
    module = projections(layer)["output"]
    weight = getattr(module, "weight", None)
    with torch.no_grad():
        if type(module) is torch.nn.Linear and weight is not None and not weight.is_meta:
            bias = None if module.bias is None else module.bias.detach().float()
            made = weight.detach().float()
        else:
            made, bias = _measured(module, joined)
    own = getattr(layer.processor, "original", layer.processor)
    return Ending(
        made,
        bias,
        bool(getattr(layer, "residual_connection", False)),
        float(getattr(layer, "rescale_output_factor", 1.0)),
        getattr(own, "to_k_ip", None) is not None,
    )


def _measured(module: Any, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The matrix and bias of a linear map that is adapted, quantised or elsewhere, by using it.

    Unit vectors go through it as the picture does. `forward` is called, so that nobody who listens
    to the module hears of it.
    """
    ones = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
    none = module.forward(torch.zeros_like(ones[:1])).float()
    return (module.forward(ones).float() - none).T, none[0]
