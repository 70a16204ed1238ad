"""The shapes in all layers that attend to the text, without a run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heedmap.backends import registry
from heedmap.backends.base import heads_of
from heedmap.backends.loading import default_arguments
from heedmap.backends.prompts import prompt_table
from heedmap.errors import SelectionError, quoted
from heedmap.maps.recordings import layers_there, name_fits

Shape = tuple[int, int]


@dataclass(frozen=True)
class LayerShapes:
    """The shapes in one layer that attends to the text, for one row of the batch.

    Letters: Q latent positions (Q = h·w), K text tokens, H heads of d channels, C channels of the
    hidden states, T channels of the text.

    Attributes:
        name: the layer's dotted path in the model.
        grid: (h, w).
        heads: H.
        scale: the factor of QKᵀ; 1/√d.
        hidden: X, (Q, C), the layer's input.
        text: E, (K, T), the text states.
        query: X·W_Q, (Q, H·d).
        key: E·W_K, (K, H·d), less where heads share keys; the values have the same shape.
        scores: those of one head, and so its probabilities: (Q, K), or (Q, K + Q) where the image's
            keys share the softmax with the text's; without those of reference images. Z-Image's
            padding of the image has keys, too.
        output: Y, (Q, C), after the output projection; the heads side by side in the single blocks
            of Flux, which have none.
        masked: the number of the prompt's K tokens that a mask hides, so that their probability is
            exactly 0; None without a mask.
        image_key: X·W'_K, the image's keys, (Q, H·d), more with padding; its values have the same
            shape. W'_K is W_K in the single blocks of Flux. None where the text has a softmax of
            its own.
        part: the name of the layers that it belongs to, such as "early" or "single".
    """

    name: str
    grid: Shape
    heads: int
    scale: float
    hidden: Shape
    text: Shape
    query: Shape
    key: Shape
    scores: Shape
    output: Shape
    masked: int | None
    image_key: Shape | None
    part: str

    @property
    def head_dim(self) -> int:
        """d, the channels of one head."""
        return self.query[1] // self.heads


def layer_shapes(
    pipe: Any,
    prompt: str = "a cat",
    *,
    size: Shape | None = None,
    **arguments: Any,
) -> tuple[LayerShapes, ...]:
    """Return the shapes in every layer that attends to the text; nothing is generated.

        for layer in heedmap.layer_shapes(pipe, size=(512, 768)):
            print(layer.name, layer.grid, layer.heads, layer.scores)

    Args:
        pipe: a pipeline that `load` returns.
        prompt: the prompt of the call.
        size: (width, height) in pixels. Default: the model's.
        arguments: other arguments of the pipeline.

    Returns:
        The layers, as the model runs them one after the other.

    Raises:
        ArgumentError: if the size does not fit the model, or the pipeline takes no such argument.
        ModelError: if the model has no layer that attends to the text.
    """
    family = registry.check_served(pipe)
    layers = family.text_layers()
    registry.check_names(pipe, arguments, ("prompt", "size"))
    arguments = default_arguments(pipe) | arguments
    width, height = registry.check_size(pipe, size or registry.default_size(pipe))
    latent = (height // family.cell_side, width // family.cell_side)
    table = prompt_table(pipe, prompt, arguments)
    tokens = len(table.tokens)
    masked = len(table.positions("pad")) if family.masks_padding else None
    parts = family.groups(list(layers))
    result: list[LayerShapes] = []
    for name, layer in layers.items():
        grid = family.grid(name, latent)
        positions = math.prod(grid)
        heads = heads_of(layer)
        inner = _channels(layer, "inner_dim")
        shared = inner // heads * getattr(layer, "num_kv_heads", heads)
        width = getattr(layer, "inner_kv_dim", shared)
        layout = family.layout(tokens, positions)
        keys = (positions + layout.padding, width)
        result.append(
            LayerShapes(
                name=name,
                grid=grid,
                heads=heads,
                scale=getattr(layer, "scale", (inner // heads) ** -0.5),
                hidden=(positions, _channels(layer, "query_dim")),
                text=(tokens, _text_width(layer)),
                query=(positions, inner),
                key=(tokens, width),
                scores=(positions, tokens + keys[0] * layout.joint),
                output=(positions, _channels(layer, "out_dim")),
                masked=masked,
                image_key=keys if layout.joint else None,
                part=parts.get(name, ""),
            )
        )
    return tuple(result)


def _channels(layer: Any, name: str) -> int:
    """Return a number of a layer's channels; some have one number for all of them."""
    if hasattr(layer, "hidden_size"):
        return layer.hidden_size
    return getattr(layer, name, layer.inner_dim)


def _text_width(layer: Any) -> int:
    """Return the channels of the text; of the model where it was joined with the image before."""
    width = getattr(layer, "cross_attention_dim", None)
    width = width or _channels(layer, "query_dim")
    return getattr(layer, "added_kv_proj_dim", None) or width


def pick(parts: Mapping[str, str], wanted: str) -> list[str]:
    """Return the layers of a group such as "up" or "single", a name, or a pattern with `*`.

    `parts` has by path the part that each layer is in (`Layer.part`).

    Raises:
        SelectionError: if there are none; it lists the layers there are.
    """
    names = [name for name, part in parts.items() if name_fits(name, wanted, part)]
    if not names:
        raise SelectionError(
            f"no layer matches {quoted(wanted)}: expected {layers_there(parts, wanted)}"
        )
    return names
