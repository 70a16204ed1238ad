"""The activations of a layer in one pass of the model, and its linear maps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heedmap.backends.base import Undo
from heedmap.errors import TraceError


def keys_of(layer: Any, states: Tensor) -> Tensor:
    """Return the keys (B, H, K, d) that a layer's processor makes of text states (B, K, C)."""
    key = layer.to_k(states)
    norm = layer.norm_k
    if norm is not None and norm.weight.numel() == key.shape[-1]:
        key = norm(key)  # over all heads together
        norm = None
    key = key.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
    if norm is not None:
        key = norm(key)
    return key


@dataclass(frozen=True, eq=False)
class LayerActivations:
    """The activations of a layer in one pass: output = (joined Wᵀ + b + residual) / factor.

    Axes: B row of the batch · Q position · K token · H·d heads side by side · C channels.

    Attributes:
        value: (B, K, H·d); None of a layer whose text and image share one softmax.
        joined: (B, Q, H·d), the outputs of the heads, which the output projection is given.
        gate: (B, Q, H·d), the factors of the heads' outputs in `joined`; None without a gate.
        residual: (B, Q, C), the input of the layer, if the layer adds it.
        factor: the divisor.
        output: (B, Q, C). In the single blocks of Flux the text's rows precede the image's here
            and in `joined`.
        adapted: whether another attention is added to `joined`, such as an image prompt's.
    """

    value: Tensor | None
    joined: Tensor
    gate: Tensor | None
    residual: Tensor | None
    factor: float
    output: Tensor
    adapted: bool


def record_activations(
    layer: Any,
    record: Callable[[LayerActivations], None],
    undo: Undo,
    joint: bool = False,
) -> None:
    """Call `record` with the activations after each pass of a layer, until undone."""
    tensors: dict[str, Tensor] = {}
    projection = projection_of(layer)
    channels = getattr(layer, "inner_dim", None)

    def keep(
        name: str,
        module: Any,
        select: Callable[[Any, Tensor], Tensor],
    ) -> None:
        """Keep a tensor of the arguments and the output of a module, if there is one."""

        def hook(_: Any, args: Any, output: Tensor) -> None:
            tensors[name] = select(args, output)

        if module is not None:
            undo(module.register_forward_hook(hook).remove)

    # The map of a single block is of the heads and, behind them, of an MLP.
    joins = projection or getattr(layer, "to_out", None)
    keep("joined", joins, lambda args, _: args[0][..., :channels])
    keep("gate", getattr(layer, "to_gate", None), lambda _, output: output.sigmoid())
    if not joint:
        # Fused projections give the keys, too, which are first.
        for module in (layer.to_v, getattr(layer, "to_kv", None)):
            keep("value", module, lambda _, output: output[..., -layer.inner_kv_dim :])

    def end(
        _: Any,
        args: Any,
        kwargs: Any,
        output: Any,
    ) -> None:
        processor = getattr(layer.processor, "original", layer.processor)
        if isinstance(output, tuple):  # the text's follow
            output = output[0]
        if projection is None:
            output = tensors.setdefault("joined", output)
        if "joined" not in tensors or not (joint or "value" in tensors):
            raise TraceError(
                f"{type(processor).__name__} has linear layers of its own: expected a processor "
                "that uses its layer's to_v and to_out; load the model without it"
            )
        residual = None
        if getattr(layer, "residual_connection", False):
            residual = args[0] if args else kwargs["hidden_states"]
        record(
            LayerActivations(
                value=tensors.get("value"),
                joined=tensors["joined"],
                gate=tensors.get("gate"),
                residual=residual,
                factor=float(getattr(layer, "rescale_output_factor", 1)),
                output=output,
                adapted=hasattr(processor, "to_k_ip"),
            )
        )
        tensors.clear()

    undo(layer.register_forward_hook(end, with_kwargs=True).remove)


def projection_of(layer: Any) -> Any:
    """Return the output projection of a layer; None in the single blocks of Flux and Flux.2.

    Their output projection is of the block, and also takes the output of an MLP.
    """
    maps = getattr(layer, "to_out", None)
    return maps[0] if isinstance(maps, torch.nn.ModuleList) else None


@torch.no_grad()
def output_projection(layer: Any, joined: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return W (C, H·d) and b (C) of a layer that has just run on `joined` (B, Q, H·d), float32.

    They include active LoRAs; b is None if there is none. Of a layer without an output projection W
    is the identity.
    """
    module = projection_of(layer)
    if module is None:
        return torch.eye(joined.shape[-1], device=joined.device), None
    if type(module) is torch.nn.Linear and not module.weight.is_meta:
        bias = module.bias
        if bias is not None:
            bias = bias.float()
        return module.weight.float(), bias
    # An adapted, quantised or offloaded map is measured with unit vectors. `forward` is called, so
    # that no hook of the module runs.
    ones = torch.eye(joined.shape[-1], dtype=joined.dtype, device=joined.device)
    bias = module.forward(torch.zeros_like(ones[:1])).float()[0]
    return (module.forward(ones).float() - bias).T, bias
