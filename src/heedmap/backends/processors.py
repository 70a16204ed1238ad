"""The attention of a layer: recorded and changed while its own processor runs, and its shapes.

The recording processor runs the layer's own and intercepts the first attention that is computed
there, which is the text's (an IP-Adapter's comes after it). So it serves every processor that ends
in `scaled_dot_product_attention` or in `Attention.get_attention_scores`, with fused or adapted
projections, slices and image prompts.
"""

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import torch
from diffusers.models import attention_dispatch
from diffusers.models.attention_dispatch import AttentionBackendName
from diffusers.models.attention_processor import Attention
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from heedmap.backends import registry
from heedmap.backends.base import Undo, replace_method
from heedmap.backends.loading import usual_arguments
from heedmap.backends.prompts import prompt_table
from heedmap.errors import ModelError, SelectionError, TraceError, quoted
from heedmap.maps.recordings import layers_there, name_fits
from heedmap.mathematics import probabilities
from heedmap.mathematics.probabilities import Scores

Record = Callable[[str, Scores], None]
uncompiled: Any = torch.compiler.disable
"""A decorator of functions that `torch.compile` leaves out of what it compiles around them."""
_UNSEEN = ("_native_npu", "_native_xla")
_DEFAULT = (
    "load the model again, and keep the attention processors that it is loaded with"
)


@dataclass(eq=False)
class RecordingProcessor:
    """A processor that runs the layer's own and records the scores of its attention.

    Attributes:
        original: the layer's processor.
        name: the layer's dotted path.
        record: a function of the name and the scores of all rows of the batch.
        editor: the changes of the attention (`recording.edits.AttentionController`); without, the
            output is the original's to the bit.
        needed: whether attention that cannot be seen is an error.
        joint: whether the layer attends to text and image in one softmax.
    """

    original: Any
    name: str
    record: Record
    editor: Any = None
    needed: bool = True
    joint: bool = False

    def __post_init__(self) -> None:
        # `Attention.forward` inspects the signature of `processor.__call__` to decide which keyword
        # arguments to pass on, so the instance needs that of the original.
        def call(*args: Any, **kwargs: Any) -> Tensor:
            return type(self).__call__(self, *args, **kwargs)

        call.__signature__ = inspect.signature(self.original.__call__)
        self.__dict__["__call__"] = call

    @contextmanager
    def redirected(self, record: Record) -> Iterator[None]:
        """Record to another function within the block, and edit nothing."""
        before = self.record, self.editor
        self.record, self.editor = record, None
        try:
            yield
        finally:
            self.record, self.editor = before

    @uncompiled
    def __call__(
        self, attn: Attention, hidden_states: Tensor, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Run the original processor."""
        tap = _Tap(self, attn, hidden_states.shape, _text_states(attn, args, kwargs))
        with tap:
            output = self.original(attn, hidden_states, *args, **kwargs)
        scores = tap.scores()
        if scores is not None:
            with torch.no_grad():
                self.record(self.name, scores.detach())
        elif self.needed and tap.overridden:
            raise TraceError(
                f"a TorchFunctionMode may replace the attention at {self.name}: exit it first"
            )
        elif self.needed:
            raise TraceError(
                f"{type(self.original).__name__} at {self.name} computed no attention that heedmap "
                "can see (it returned a cached output, or uses a kernel of its own, as xformers "
                f"does): {_DEFAULT}"
            )
        return output


def _text_states(layer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the text states among the arguments of a layer's processor.

    The single blocks of Flux.2 take none, and pass a mask in their place.
    """
    name = "encoder_hidden_states"
    has_place = args and name in inspect.signature(layer.forward).parameters
    return kwargs.get(name, args[0] if has_place else None)


class _Tap(TorchFunctionMode):
    """An interceptor of the attention that a layer computes in this thread.

    It raises a TraceError if the attention is not one over all text states (B, K, C), in all heads.
    An IP-Adapter gives the states in a tuple with its own. The hidden states have the `shape` (B,
    Q, C).

    Attributes:
        keys: the number of keys that the attention must have; None for any.
        reads_text: whether the layer attends to the text.
    """

    def __init__(
        self,
        processor: RecordingProcessor,
        attn: Attention,
        shape: torch.Size,
        states: Any,
    ) -> None:
        super().__init__()
        self.processor, self.attn, self.rows = processor, attn, shape[0]
        self.adapted = isinstance(states, tuple)
        text: Tensor | None = states[0] if self.adapted else states
        self.keys = None if text is None else text.shape[1]
        self.reads_text = processor.joint or attn.is_cross_attention
        if processor.joint:  # some blocks join text and image before the layer
            self.keys = shape[1] + (self.keys or 0)
        self.overridden = False
        self.fused: Scores | None = None
        # The inputs of the classic computation, by slices of the B·H rows where it is sliced.
        self.classic: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def __enter__(self) -> "_Tap":
        # Another mode around this one may replace the attention (LayerSkip of diffusers does).
        modes = _get_current_function_mode_stack()
        self.overridden = not all(
            isinstance(mode, _Tap | DeviceContext) for mode in modes
        )
        self._original: Any = getattr(self.attn, "get_attention_scores", None)
        vars(self.attn)["get_attention_scores"] = self._classic
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        vars(self.attn).pop("get_attention_scores", None)
        super().__exit__(*error)

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention or self.overridden:
            return func(*args, **kwargs)
        arguments = _SIGNATURE.bind(*args, **kwargs).arguments
        query, key, heads = arguments["query"], arguments["key"], self.attn.heads
        if self.fused or self.classic:
            self._check_later(key)
            return func(*args, **kwargs)
        if self.keys is not None:
            if key.ndim != 4 or (query.shape[1], key.shape[1]) != (heads, heads):
                self._fail(f"of shape {tuple(query.shape)}, not of all {heads} heads")
            if arguments.get("is_causal"):
                self._fail("with is_causal")
        self._check_keys(key)
        editor = self.processor.editor
        if editor is not None and (self.processor.joint or not self.reads_text):
            query, key = editor.inputs(self.processor.name, query, key)
            arguments["query"], arguments["key"] = query, key
        output, log_sum = probabilities.fused(**arguments)
        scale, mask = arguments.get("scale"), arguments.get("attn_mask")
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        value = arguments["value"]
        self.fused = Scores(query, key, scale, mask, log_sum, value=value)
        if editor is not None and self.reads_text:
            output = editor.output(self.processor.name, self.fused, value, output)
        if self.processor.joint:
            self.fused = replace(self.fused, output=output)
        return output

    def _classic(
        self, query: Tensor, key: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Replace `Attention.get_attention_scores`, of (B·H, Q, K) or a slice of it."""
        every, editor = self.rows * self.attn.heads, self.processor.editor
        if self.fused or sum(len(part) for part, _, _ in self.classic) >= every:
            self._check_later(key)
            return self._original(query, key, attention_mask)
        self._check_keys(key)
        if editor is not None and len(query) != every:
            raise TraceError(
                "attention slicing computes a layer in parts, and edits and weights need the "
                "whole: call pipe.disable_attention_slicing() before"
            )
        if editor is not None and self.processor.joint:
            self._fail("by get_attention_scores, which an edit cannot change there")
        if editor is not None and not self.reads_text:
            edited = editor.inputs(
                self.processor.name, self._by_head(query), self._by_head(key)
            )
            query, key = (part.flatten(0, 1) for part in edited)
        self.classic.append((query, key, attention_mask))
        p = self._original(query, key, attention_mask)
        if editor is not None and self.reads_text:
            scores = self.scores()
            assert scores is not None
            p = editor.weights(self.processor.name, scores, self._by_head(p)).flatten(
                0, 1
            )
        return p

    def _check_keys(self, key: Tensor) -> None:
        if self.keys not in (None, key.shape[-2]):
            what = "text and image states" if self.processor.joint else "text states"
            self._fail(f"over {key.shape[-2]} keys, of {self.keys} {what}")

    def _check_later(self, key: Tensor) -> None:
        """Refuse a later attention over as many keys as there are text states, if they differ."""
        if self.keys != key.shape[-2] or self.adapted:
            return
        first = self.classic[0][1] if self.fused is None else self.fused.key
        if first.numel() == key.numel() and not torch.equal(
            first.flatten(), key.to(first).flatten()
        ):
            self._fail("over several texts")

    def _fail(self, what: str) -> NoReturn:
        raise TraceError(
            f"{type(self.processor.original).__name__} at {self.processor.name} computes attention "
            f"{what}: expected one attention over all of the text; {_DEFAULT}"
        )

    def scores(self) -> Scores | None:
        """Return the scores of the recorded attention (B, H, …); None if there was none."""
        if self.fused or not self.classic:
            return self.fused
        queries, keys, masks = zip(*self.classic, strict=True)
        query, key = (self._by_head(torch.cat(parts)) for parts in (queries, keys))
        mask = None if masks[0] is None else self._by_head(torch.cat(masks))
        return Scores(query, key, self.attn.scale, mask)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (-1, self.attn.heads))


_SIGNATURE = inspect.signature(probabilities.fused)


def install(
    layers: Mapping[str, Attention],
    record: Record,
    undo: Undo,
    editor: Any = None,
    needed: bool = True,
    joint: bool = False,
) -> dict[str, RecordingProcessor]:
    """Install a recording processor in every layer, until undone; return them by dotted path.

    Raises:
        TraceError: if a trace is open on the model.
    """
    for name, layer in layers.items():
        if isinstance(layer.processor, RecordingProcessor):
            raise TraceError(
                f"another trace is open on this model (at {name}), and heedmap makes one call at a "
                "time on a pipeline: close it first, or wait until the other call has ended"
            )
        _check_backend(name, layer.processor)
    installed: dict[str, RecordingProcessor] = {}
    for name, layer in layers.items():
        recorder: Any = RecordingProcessor(
            layer.processor, name, record, editor, needed, joint
        )

        def restore(layer: Attention = layer, recorder: Any = recorder) -> None:
            if (
                layer.processor is recorder
            ):  # a processor that the user set meanwhile stays
                layer.set_processor(recorder.original)

        undo(restore)
        layer.set_processor(recorder)
        # `model.attn_processors` has the original: `set_ip_adapter_scale` looks for it there.
        for method, replacement in (
            ("get_processor", _original),
            ("set_processor", _set),
        ):
            own = getattr(layer, method)
            undo(replace_method(layer, method, partial(replacement, layer, own)))
        installed[name] = recorder
    return installed


def _check_backend(name: str, processor: Any) -> None:
    """Raise a TraceError if diffusers' dispatcher computes attention out of sight.

    The native backends end in `scaled_dot_product_attention`.
    """
    if not hasattr(processor, "_attention_backend"):  # it does not use the dispatcher
        return
    active, _ = attention_dispatch._AttentionBackendRegistry.get_active_backend()
    backend = AttentionBackendName(processor._attention_backend or active).value
    if processor._parallel_config is not None:
        raise TraceError(
            f"{name} runs in parallel on several devices, each with a part of the image: expected "
            "one; call the pipeline without context parallelism"
        )
    if not backend.removeprefix("_").startswith("native") or backend in _UNSEEN:
        raise TraceError(
            f"{name} computes attention with the backend {backend!r}, which heedmap cannot see: "
            "call set_attention_backend('native') of the model first"
        )


def _original(
    layer: Attention, get: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Return the processor of a layer; the original one where it is recorded."""
    recorder = layer.processor
    return (
        recorder.original
        if isinstance(recorder, RecordingProcessor)
        else get(*args, **kwargs)
    )


def _set(
    layer: Attention, set_processor: Callable[[Any], None], processor: Any
) -> None:
    """Set a processor, unless it is the original of the one that records."""
    recorder: Any = layer.processor
    if not (
        isinstance(recorder, RecordingProcessor) and recorder.original is processor
    ):
        set_processor(processor)


def run_uncompiled(model: Any, undo: Undo) -> None:
    """Run a compiled model without its compiled code, in whole or in part, until undone.

    A recording processor would break the compiled graph, and the breaks would stay in torch's
    cache.
    """
    for module in model.modules():
        changed: dict[str, Any] = {}
        if hasattr(module, "_orig_mod"):
            changed["forward"] = module._orig_mod.__call__
        if vars(module).get("_compiled_call_impl") is not None:
            changed["_compiled_call_impl"] = None
        if changed:
            before = {name: vars(module)[name] for name in changed}
            undo(lambda module=module, before=before: vars(module).update(before))
            vars(module).update(changed)


# --- tools that skip layers ---

# How the names of diffusers' hooks begin that skip nothing.
_NOT_SKIPPING = (
    "group_offloading",
    "layer_execution",
    "lazy_prefetch",
    "layerwise_",
    "peft_",
)


def skipping_tools(model: torch.nn.Module, layers: Collection[str]) -> tuple[str, ...]:
    """Return the names of the tools that may skip some layers of a model at some steps.

    Raises:
        ModelError: if FasterCache is among them, which computes attention for a part of a batch.
    """
    tools: dict[str, None] = {}
    for path, module in model.named_modules():
        for hook in getattr(getattr(module, "_diffusers_hook", None), "hooks", ()):
            if hook.startswith("faster_cache"):
                raise ModelError(
                    "FasterCache computes attention for only a part of the batch at some steps: "
                    "call disable_cache() on the model first"
                )
            if not hook.startswith(_NOT_SKIPPING):
                tools[hook] = None
        replaced = _replaced_forward(module)
        if replaced is not None and any(
            name.startswith(f"{path}.".lstrip(".")) for name in layers
        ):
            tools[
                getattr(replaced, "__module__", type(replaced).__name__).split(".")[0]
            ] = None
    return tuple(tools)


def check_forwards(layers: Mapping[str, Any]) -> None:
    """Raise a TraceError if the `forward` method of a layer was replaced, as T-GATE does."""
    replaced = [
        name for name, layer in layers.items() if _replaced_forward(layer) is not None
    ]
    if replaced:
        raise TraceError(
            f"the forward method of {replaced[0]} was replaced, so heedmap cannot see its "
            "attention: undo that (T-GATE and register_attention_control of prompt-to-prompt do it)"
        )


def _replaced_forward(module: torch.nn.Module) -> Any:
    """Return what replaced a module's `forward`; None if nothing did.

    Hooks of accelerate and of diffusers, and compiled modules, call the method itself.
    """
    forward = vars(module).get("forward")
    if forward is None or getattr(forward, "__func__", None) is type(module).forward:
        return None
    known = ("_hf_hook", "_diffusers_hook", "_orig_mod")
    return None if any(hasattr(module, name) for name in known) else forward


# --- the activations of a layer ---


def keys_of(layer: Any, states: Tensor) -> Tensor:
    """Return the keys (B, H, K, d) that a layer's processor makes of text states (B, K, C)."""
    if layer.norm_cross is not None:
        states = layer.norm_encoder_hidden_states(states)
    key, norm = layer.to_k(states), layer.norm_k
    if (
        norm is not None and norm.weight.numel() == key.shape[-1]
    ):  # over all heads together
        key, norm = norm(key), None
    key = key.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
    return key if norm is None else norm(key)


@dataclass(frozen=True, eq=False)
class LayerActivations:
    """The activations of a layer in one pass: output = (joined Wᵀ + b + residual) / factor.

    Axes: B row of the batch · Q position · K token · H·d heads side by side · C channels.

    Attributes:
        value: (B, K, H·d); None of a layer whose text and image share one softmax.
        joined: (B, Q, H·d), the outputs of the heads, which the output projection is given.
        residual: (B, Q, C), the input of the layer, if the layer adds it.
        factor: the divisor.
        output: (B, Q, C). In the single blocks of Flux the text's rows precede the image's here
            and in `joined`.
        adapted: whether another attention is added to `joined`, such as an image prompt's.
    """

    value: Tensor | None
    joined: Tensor
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
    hooks: list[tuple[torch.nn.Module, Any]] = []
    projection = _projection(layer)
    if projection is not None:
        hooks.append(
            (projection, lambda _, args, output: tensors.update(joined=args[0]))
        )
    elif (
        getattr(layer, "to_out", None) is not None
    ):  # one map of the heads and of an MLP
        heads = slice(layer.inner_dim)
        hooks.append(
            (
                layer.to_out,
                lambda _, args, output: tensors.update(joined=args[0][..., heads]),
            )
        )
    if not joint:
        hooks.append((layer.to_v, lambda _, args, output: tensors.update(value=output)))
    if not joint and hasattr(
        layer, "to_kv"
    ):  # which runs in place of to_k and to_v if fused
        hooks.append(
            (
                layer.to_kv,
                lambda _, args, output: tensors.update(value=output.chunk(2, -1)[1]),
            )
        )

    @uncompiled
    def end(module: Any, args: tuple[Any, ...], kwargs: Any, output: Any) -> None:
        processor = getattr(layer.processor, "original", layer.processor)
        output = output[0] if isinstance(output, tuple) else output  # the text's follow
        if projection is None:
            output = tensors.setdefault("joined", output)
        if len(tensors) < 2 - joint:
            raise TraceError(
                f"{type(processor).__name__} has linear layers of its own: expected a processor "
                "that uses its layer's to_v and to_out; load the model without it"
            )
        hidden = args[0] if args else kwargs["hidden_states"]
        activations = LayerActivations(
            value=tensors.get("value"),
            joined=tensors["joined"],
            residual=hidden if getattr(layer, "residual_connection", False) else None,
            factor=float(getattr(layer, "rescale_output_factor", 1)),
            output=output,
            adapted=hasattr(processor, "to_k_ip"),
        )
        tensors.clear()
        record(activations)

    for module, hook in hooks:
        undo(module.register_forward_hook(uncompiled(hook)).remove)
    undo(layer.register_forward_hook(end, with_kwargs=True).remove)


def _projection(layer: Any) -> Any:
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
    module = _projection(layer)
    if module is None:
        return torch.eye(joined.shape[-1], device=joined.device), None
    if type(module) is torch.nn.Linear and not module.weight.is_meta:
        bias = None if module.bias is None else module.bias.detach().float()
        return module.weight.detach().float(), bias
    # An adapted, quantised or offloaded map is measured with unit vectors. `forward` is called, so
    # that no hook of the module runs.
    ones = torch.eye(joined.shape[-1], dtype=joined.dtype, device=joined.device)
    bias = module.forward(torch.zeros_like(ones[:1])).float()[0]
    return (module.forward(ones).float() - bias).T, bias


# --- the shapes in all layers ---

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
        key: E·W_K, (K, H·d); the values have the same shape.
        scores: those of one head, and so its probabilities: (Q, K), or (Q, K + Q) where the image's
            keys share the softmax with the text's.
        output: Y, after the output projection: (Q, C).
        masked: the number of the prompt's K tokens that a mask hides, so that their probability is
            exactly 0; None without a mask.
        image_key: X·W'_K, the image's keys, (Q, H·d); its values have the same shape. W'_K is W_K
            in the single blocks of Flux. None where the text has a softmax of its own.
        projected: whether the layer has an output projection; else Y has the heads side by side.
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
    masked: int | None = None
    image_key: Shape | None = None
    projected: bool = True
    part: str = ""

    @property
    def head_dim(self) -> int:
        """d, the channels of one head."""
        return self.query[1] // self.heads

    def chain(self) -> list[tuple[str, str, Shape]]:
        """Return the matrix products from the hidden states X and the text E to the output Y.

        Returns:
            Of each product the equation, the factors and the shape:
            ("Q = X·W_Q", "(256 × 64) · (64 × 64)", (256, 64)).
        """
        (places, channels), (tokens, width) = self.hidden, self.text
        inner, d, keys = self.query[1], self.head_dim, self.scores[1]
        root = math.isclose(self.scale, d**-0.5, rel_tol=1e-6)
        key, value = (
            ("K_h", "V_h") if self.image_key is None else ("[K_h; K'_h]", "[V_h; V'_h]")
        )
        score = f"S_h = Q_h·{key}ᵀ" + (f"/√{d}" if root else f"·{self.scale:.6g}")
        mask = "" if self.masked is None else " + M"
        products = [
            ("Q = X·W_Q", places, channels, inner),
            ("K = E·W_K", tokens, width, inner),
            ("V = E·W_V", tokens, width, inner),
        ]
        if self.image_key is not None:
            products += [(f"{x}' = X·W'_{x}", places, channels, inner) for x in "KV"]
        products += [
            (score, places, d, keys),
            (f"O_h = softmax(S_h{mask})·{value}", places, keys, d),
        ]
        if self.projected:
            name = f"Y = [O_0 … O_{self.heads - 1}]·W_O + b"
            products.append((name, places, inner, self.output[1]))
        return [
            (name, f"({m} × {k}) · ({k} × {n})", (m, n)) for name, m, k, n in products
        ]


def layer_shapes(
    pipe: Any, prompt: str = "a cat", *, size: Shape | None = None, **arguments: Any
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
    layers, family = registry.cross_attention_layers(pipe), registry.family_of(pipe)
    registry.check_names(pipe, arguments, ("prompt", "size"))
    arguments = usual_arguments(pipe) | arguments
    width, height = (
        registry.usual_size(pipe) if size is None else registry.check_size(pipe, size)
    )
    table, side = prompt_table(pipe, prompt, arguments), family.cell_side
    grids = [family.grid(name, (height // side, width // side)) for name in layers]
    tokens, parts = len(table.tokens), family.groups(list(layers))
    return tuple(
        LayerShapes(
            name=name,
            grid=(h, w),
            heads=layer.heads,
            scale=getattr(layer, "scale", (layer.inner_dim // layer.heads) ** -0.5),
            hidden=(h * w, layer.query_dim),
            text=(tokens, family.text_width(layer)),
            query=(h * w, layer.inner_dim),
            key=(tokens, getattr(layer, "inner_kv_dim", layer.inner_dim)),
            scores=(h * w, tokens + h * w * family.is_joint),
            output=(h * w, layer.out_dim),
            masked=len(table.positions("pad")) if family.masks_padding else None,
            image_key=(h * w, layer.inner_dim) if family.is_joint else None,
            projected=_projection(layer) is not None,
            part=parts.get(name, ""),
        )
        for (name, layer), (h, w) in zip(layers.items(), grids, strict=True)
    )


def pick(layers: Sequence[LayerShapes], wanted: str) -> list[LayerShapes]:
    """Return the layers of a group such as "up" or "single", a name, or a pattern with `*`.

    Raises:
        SelectionError: if there are none; it lists the layers there are.
    """
    fitting = [one for one in layers if name_fits(one.name, wanted, one.part)]
    if not fitting:
        names = layers_there({layer.name: layer.part for layer in layers}, wanted)
        raise SelectionError(
            f"no layer matches {quoted(wanted)}: available are {names}"
        )
    return fitting
