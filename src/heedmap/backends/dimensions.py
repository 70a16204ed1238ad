"""The dimensions of cross-attention: what shapes flow through each layer of a model.

Nothing is looked up in a configuration. The pipeline takes one step, and what its layers are given
and give back is measured: X and E go in, Q, K and V are made of them and shared out among the
heads, and O is put together and projected to Y.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from heedmap import checks
from heedmap.backends import arguments as called
from heedmap.backends import loading, registry
from heedmap.backends.processors import install, own_weights, projections, uncompiled
from heedmap.errors import SelectionError, TraceError, quoted
from heedmap.maps.recordings import layers_there, name_fits
from heedmap.mathematics.probabilities import Scores

Shape = tuple[int, int]
PROMPT = "a cat"
"""What a model is given to read, unless told otherwise."""


@dataclass(frozen=True)
class LayerShapes:
    """The shapes in one text cross-attention layer, of one row of the batch.

    Letters: Q latent positions (Q = h·w), K text tokens, H heads of d channels, C channels of the
    hidden states, T channels of the text.

    Attributes:
        name: the layer's dotted path in the model.
        grid: (h, w).
        heads: H.
        scale: what QKᵀ is multiplied by; 1/√d.
        hidden: X, (Q, C): what the layer is given of the latent.
        text: E, (K, T): what it is given of the text.
        query: X·W_Q, (Q, H·d).
        key: E·W_K, (K, H·d).
        value: E·W_V, (K, H·d).
        head_query: (Q, d).
        head_key: (K, d).
        head_value: (K, d).
        scores: of one head, and so its probabilities: (Q, K).
        head_output: (Q, d).
        joined: the outputs of all heads side by side, (Q, H·d).
        output: Y, after the output projection: (Q, C).
        masked: how many of the K tokens a mask hides in each row of the batch: their probability is
            exactly 0 for every head and position. None without a mask.
    """

    name: str
    grid: Shape
    heads: int
    scale: float
    hidden: Shape
    text: Shape
    query: Shape
    key: Shape
    value: Shape
    head_query: Shape
    head_key: Shape
    head_value: Shape
    scores: Shape
    head_output: Shape
    joined: Shape
    output: Shape
    masked: tuple[int, ...] | None = None

    def chain(self) -> list[tuple[str, str, Shape]]:
        """From the hidden states and the text to the output, line by line.

        Returns:
            What is made, of what, and its shape: ("O_h = P_h·V_h", "(9 × 77) · (77 × 8)", (9, 8)).
        """
        (h, w), (tokens, d) = self.grid, self.head_key
        root = math.isclose(self.scale, d**-0.5, rel_tol=1e-6)
        score = "S_h = Q_h·K_hᵀ" + (f"/√{d}" if root else f"·{self.scale:.6g}")
        sums = f"rows that sum to 1 over {tokens} tokens"
        if self.masked is not None:
            score += " + M"
            hidden = " or ".join(map(str, sorted(set(self.masked))))
            sums = f"exactly 0 for {hidden} hidden tokens"
        return [
            ("X", f"hidden states of {h} × {w} places", self.hidden),
            ("E", f"text of {tokens} tokens", self.text),
            ("Q = X·W_Q", _product(self.hidden, (self.hidden[1], self.query[1])), self.query),
            ("K = E·W_K", _product(self.text, (self.text[1], self.key[1])), self.key),
            ("V = E·W_V", _product(self.text, (self.text[1], self.value[1])), self.value),
            ("Q_h", f"Q shared out among {self.heads} heads", self.head_query),
            ("K_h", "K likewise", self.head_key),
            ("V_h", "V likewise", self.head_value),
            (score, _product(self.head_query, self.head_key[::-1]), self.scores),
            ("P_h = softmax(S_h)", sums, self.scores),
            ("O_h = P_h·V_h", _product(self.scores, self.head_value), self.head_output),
            (
                f"O = [O_0 … O_{self.heads - 1}]",
                f"{self.heads} times ({_text(self.head_output)}), side by side",
                self.joined,
            ),
            ("Y = O·W_O + b", _product(self.joined, (self.joined[1], self.output[1])), self.output),
        ]


def layer_shapes(
    pipe: Any, prompt: str = PROMPT, *, size: Shape | None = None, **arguments: Any
) -> tuple[LayerShapes, ...]:
    """Measure the shapes in every text cross-attention layer of a pipeline, in one step of it.

    Pictures that a pipeline starts from are grey unless given. It is left as it was.

    Args:
        pipe: a pipeline, as `load` gives it.
        prompt: what the model reads.
        size: (width, height) in pixels; the model's own if None.
        arguments: any other argument of the pipeline, passed on.

    Returns:
        The layers in the order in which the model runs them.

    Raises:
        ArgumentError: if the size does not fit the model, or an argument is none of the pipeline's.
        ModelError: if the model has no text cross-attention, or does not take prompts.
        TraceError: if a trace is open on it, or its attention cannot be seen.
    """
    if "prompt_embeds" not in arguments:
        checks.text("the prompt", prompt, "a red house")
    layers = registry.cross_attention_layers(pipe)
    called.check_names(pipe, arguments, ("prompt", "size"))
    drawn = registry.usual_size(pipe) if size is None else loading.check_size(pipe, size)
    call = called.for_one_step(pipe, prompt, drawn) | arguments
    measure = _Measure(pipe, layers)
    with ExitStack() as stack:
        install(layers, measure.record, stack.callback)
        family = registry.family_of(pipe)
        registry.guard(pipe, stack.callback)
        before = family.part(pipe).register_forward_pre_hook(measure.begin, with_kwargs=True)
        stack.callback(before.remove)
        for name, layer in layers.items():
            for what, module in projections(layer).items():
                hook = module.register_forward_hook(measure.hear(name, what))
                stack.callback(hook.remove)
        pipe(**call)
    missing = [name for name in layers if name not in measure.found]
    if missing:
        raise TraceError(
            f"{len(missing)} of {len(layers)} cross-attention layers did not run in a step of "
            f"{type(pipe).__name__}, such as {missing[0]}: expected a pipeline that runs its model"
        )
    return tuple(measure.found[name] for name in layers)


def pick(layers: Sequence[LayerShapes], wanted: str) -> list[LayerShapes]:
    """The layers meant by "down", "mid", "up", a name, or a pattern with `*`.

    Raises:
        SelectionError: if there are none; it lists those there are.
    """
    found = [layer for layer in layers if name_fits(layer.name, wanted)]
    if not found:
        there = layers_there([layer.name for layer in layers], wanted)
        raise SelectionError(f"no layer fits layer={quoted(wanted)}: expected {there}")
    return found


class _Measure:
    """What one pass of the model has shown so far."""

    def __init__(self, pipe: Any, layers: Mapping[str, Any]) -> None:
        self._pipe, self._layers = pipe, layers
        self.found: dict[str, LayerShapes] = {}
        self._latent: Shape = (0, 0)
        # By layer and projection: the shape of what went in, and of what came out.
        self._heard: dict[str, dict[str, tuple[Shape, Shape]]] = {name: {} for name in layers}

    @uncompiled
    def begin(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is about to run."""
        sample, _, _ = registry.family_of(self._pipe).passed(args, kwargs)
        self._latent = (sample.shape[-2], sample.shape[-1])

    def hear(self, name: str, what: str) -> Callable[..., None]:
        """A forward hook for one projection of one layer."""

        def hook(_: torch.nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> None:
            self._heard[name][what] = (_shape(args[0]), _shape(output))

        return hook

    def record(self, name: str, scores: Scores) -> None:
        """A layer has run."""
        heard = self._heard[name]
        made = {"key and value"} if "key and value" in heard else {"key", "value"}
        if not {"query", "output", *made} <= heard.keys():
            raise own_weights(self._layers[name])
        hidden, query = heard["query"]
        if "key" in heard:
            (text, key), (_, value) = heard["key"], heard["value"]
        else:
            text, (tokens, width) = heard["key and value"]
            key = value = (tokens, width // 2)
        joined, output = heard["output"]
        _, heads, positions, _ = scores.query.shape
        grid = registry.grids(self._pipe, [name], self._latent)[name]
        registry.check_places(name, positions, grid)
        self.found[name] = LayerShapes(
            name=name,
            grid=grid,
            heads=heads,
            scale=float(scores.scale),
            hidden=hidden,
            text=text,
            query=query,
            key=key,
            value=value,
            head_query=_shape(scores.query),
            head_key=_shape(scores.key),
            head_value=(value[0], value[1] // heads),
            scores=(scores.query.shape[2], scores.key.shape[2]),
            head_output=(joined[0], joined[1] // heads),
            joined=joined,
            output=output,
            masked=_masked(scores),
        )


def _masked(scores: Scores) -> tuple[int, ...] | None:
    """How many tokens the mask hides in each row of the batch, so that they get exactly 0."""
    mask = scores.mask
    if mask is None:
        return None
    rows, heads = scores.query.shape[:2]
    lowered = (~mask if mask.dtype == torch.bool else mask < 0).expand(rows, heads, -1, -1)
    tokens = range(scores.key.shape[2])
    counts = []
    for row in range(rows):
        zero = (scores.of(row, slice(None), tokens) == 0).flatten(0, 1).all(dim=0)  # (K,)
        counts.append(int((zero & lowered[row].flatten(0, 1).all(dim=0)).sum()))
    return tuple(counts)


def _shape(tensor: torch.Tensor) -> Shape:
    return tensor.shape[-2], tensor.shape[-1]


def _text(shape: Sequence[int]) -> str:
    return "{} × {}".format(*shape)


def _product(left: Sequence[int], right: Sequence[int]) -> str:
    return f"({_text(left)}) · ({_text(right)})"
