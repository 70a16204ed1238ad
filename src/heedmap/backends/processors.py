"""The processor that heedmap puts in front of a layer's own.

It runs the layer's own processor and takes the place of one thing within: the first attention that
is computed there, which is the text's (an IP-Adapter's come after it). There it listens, and there
an edit changes what is computed. So it serves every processor
that ends in `scaled_dot_product_attention` or in `Attention.get_attention_scores`, whatever happens
before and after: fused or adapted projections, slices, image prompts.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from diffusers.models.attention_processor import Attention
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from heedmap.errors import TraceError
from heedmap.mathematics import probabilities
from heedmap.mathematics.probabilities import Scores

Record = Callable[[str, Scores], None]
F = TypeVar("F", bound=Callable[..., Any])


def uncompiled(function: F) -> F:
    """A function that `torch.compile` leaves as it is; what is around it is compiled."""
    return cast(F, torch.compiler.disable(function))


@dataclass(frozen=True, eq=False)
class Changes:
    """What takes part in a layer's attention, besides listening.

    Attributes:
        inputs: from queries and keys (B, H, …) to those to be used instead, or None.
        output: from the scores, the values (B, H, K, d) and the output (B, H, Q, d) to the output
            to be used; it may change that one in place.
        weights: from the scores and the probabilities (B, H, Q, K) to those to be used, for
            processors that make them.
    """

    inputs: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor] | None]
    output: Callable[[Scores, torch.Tensor, torch.Tensor], torch.Tensor]
    weights: Callable[[Scores, torch.Tensor], torch.Tensor]


class RecordingProcessor:
    """Runs the layer's own processor and hands what its attention is made of to `record`.

    Args:
        original: the layer's processor.
        name: the layer's dotted path.
        record: called with the name and the scores of all rows of the batch.
        changes: what to change on the way; without, the output is the original's to the bit.
        needed: whether it is an error if the attention is computed where it cannot be seen; else
            nothing is recorded then.
    """

    def __init__(
        self,
        original: Any,
        name: str,
        record: Record,
        changes: Changes | None = None,
        needed: bool = True,
    ) -> None:
        self.original = original
        self.name = name
        self.record = record
        self.changes = changes
        self.needed = needed

        # `Attention.forward` reads the signature of `processor.__call__` to decide which keyword
        # arguments to pass on, so the instance shows that of the original.
        def call(*args: Any, **kwargs: Any) -> torch.Tensor:
            return type(self).__call__(self, *args, **kwargs)

        call.__signature__ = inspect.signature(original.__call__)
        self.__dict__["__call__"] = call

    @uncompiled
    def __call__(
        self, attn: Attention, hidden_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """Run the original processor."""
        states = kwargs.get("encoder_hidden_states", args[0] if args else None)
        tap = _Tap(attn, hidden_states.shape[0], states, self.changes)
        with tap:
            output = self.original(attn, hidden_states, *args, **kwargs)
        if tap.unlike:
            raise self._unlike(tap.unlike)
        scores = tap.scores()
        if scores is None and not self.needed:
            return output
        if scores is None and tap.hidden:
            raise TraceError(
                f"a TorchFunctionMode around the call may replace the attention at {self.name}, so "
                "heedmap cannot see it: leave that mode before the call"
            )
        if scores is None:
            raise TraceError(
                f"{type(self.original).__name__} at {self.name} computed no attention that heedmap "
                "can see: it returned a cached output, or it uses a kernel of its own (xformers "
                "does); call set_default_attn_processor() of the model (pipe.unet, "
                "pipe.transformer) before the trace"
            )
        with torch.no_grad():
            self.record(self.name, scores)
        return output

    def _unlike(self, what: str) -> TraceError:
        return TraceError(
            f"{type(self.original).__name__} at {self.name} computes attention {what}, so heedmap "
            "cannot tell what each word draws: expected one attention over all of the text; call "
            "pipe.unet.set_default_attn_processor() before the trace"
        )


class _Tap(TorchFunctionMode):
    """Stands at the attention that is computed while it is open, in this thread alone.

    Args:
        attn: the layer.
        rows: of the batch.
        states: the text states (B, K, C) of a cross-attention layer, in a tuple with those of an
            IP-Adapter. Its attention must be one over all of them, in all heads; anything else is
            noted in `unlike`.
        changes: what to change.
    """

    def __init__(self, attn: Attention, rows: int, states: Any, changes: Changes | None) -> None:
        super().__init__()
        self.attn = attn
        self.rows = rows
        self.adapted = isinstance(states, tuple)
        text: torch.Tensor | None = states[0] if self.adapted else states
        self.tokens = None if text is None else text.shape[1]
        self.changes = changes
        self.unlike = ""
        self.hidden = False
        self.fused: Scores | None = None
        # What the classic computation was given, by slices of the B·H rows where it is sliced.
        self.classic: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]] = []

    def __enter__(self) -> "_Tap":
        # Another mode around this one may replace the attention (LayerSkip of diffusers does).
        modes = _get_current_function_mode_stack()
        self.hidden = not all(isinstance(mode, _Tap | DeviceContext) for mode in modes)
        self._original = self.attn.get_attention_scores
        vars(self.attn)["get_attention_scores"] = self._weigh
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
        if func is not scaled_dot_product_attention or self.hidden:
            return func(*args, **kwargs)
        given = _SIGNATURE.bind(*args, **kwargs).arguments
        if self.fused or self.classic:
            self._again(given["key"])
            return func(*args, **kwargs)
        if self.tokens is not None:
            self.unlike = self._difference(given)
            if self.unlike:
                self.hidden = True
                return func(*args, **kwargs)
        if self.changes is not None:
            inputs = self.changes.inputs(given["query"], given["key"])
            if inputs is not None:
                given["query"], given["key"] = inputs
        output, log_sum = probabilities.fused(**given)
        query, key = given["query"].detach(), given["key"].detach()
        scale = given.get("scale")
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        self.fused = Scores(query, key, scale, given.get("attn_mask"), log_sum)
        if self.changes is not None:
            output = self.changes.output(self.fused, given["value"], output)
        return output

    def _weigh(
        self, query: torch.Tensor, key: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """In the place of `Attention.get_attention_scores`: (B·H, Q, K), or a slice of it."""
        whole = self.rows * self.attn.heads
        if self.unlike or self.fused or sum(len(part) for part, _, _ in self.classic) >= whole:
            self._again(key)
            return self._original(query, key, attention_mask)
        if self.tokens not in (None, key.shape[-2]):
            self.unlike = f"over {key.shape[-2]} keys, of {self.tokens} text states"
            return self._original(query, key, attention_mask)
        if self.changes is not None:
            if len(query) != whole:
                raise TraceError(
                    "attention slicing computes the images apart, so that one cannot take from "
                    "another: call pipe.disable_attention_slicing() before an edit"
                )
            inputs = self.changes.inputs(self._by_head(query), self._by_head(key))
            if inputs is not None:
                query, key = (part.flatten(0, 1) for part in inputs)
        self.classic.append((query.detach(), key.detach(), attention_mask))
        p = self._original(query, key, attention_mask)
        if self.changes is not None:
            scores = self.scores()
            assert scores is not None
            p = self.changes.weights(scores, self._by_head(p)).flatten(0, 1)
        return p

    def _difference(self, given: Mapping[str, Any]) -> str:
        """Describe how an attention differs from one over all text states in all heads."""
        query, key = given["query"], given["key"]
        if key.ndim != 4 or (query.shape[1], key.shape[1]) != (self.attn.heads,) * 2:
            return f"of shape {tuple(query.shape)}, not of all {self.attn.heads} heads together"
        if key.shape[2] != self.tokens:
            return f"over {key.shape[2]} keys, of {self.tokens} text states"
        return "with is_causal" if given.get("is_causal") else ""

    def _again(self, key: torch.Tensor) -> None:
        """Note another attention over as many keys as there are text states, but other ones."""
        if self.tokens != key.shape[-2] or self.unlike or self.adapted:
            return
        first = self.classic[0][1] if self.fused is None else self.fused.key
        same = first.numel() != key.numel() or torch.equal(first.flatten(), key.to(first).flatten())
        self.unlike = "" if same else "over several texts"

    def scores(self) -> Scores | None:
        """What was heard, as (B, H, …); None if there was no attention."""
        if self.fused or not self.classic:
            return self.fused
        query = self._by_head(torch.cat([part for part, _, _ in self.classic]))
        key = self._by_head(torch.cat([part for _, part, _ in self.classic]))
        masks = [part for _, _, part in self.classic if part is not None]
        mask = self._by_head(torch.cat(masks)) if masks else None
        return Scores(query, key, self.attn.scale, mask)

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        """(B·H, …) to (B, H, …)."""
        return x.unflatten(0, (-1, self.attn.heads))


_SIGNATURE = inspect.signature(probabilities.fused)


# --- put in front, and taken off again --------------------------------------------------------


def install(
    layers: Mapping[str, Attention],
    record: Record,
    undo: Callable[[Callable[[], None]], object],
    changes: Callable[[str], Changes] | None = None,
    needed: bool = True,
) -> dict[str, RecordingProcessor]:
    """Put a recording processor in front of the own one of every layer.

    Args:
        layers: by dotted path, as `cross_attention_layers` gives them.
        record: called with the path and the scores whenever a layer has run.
        undo: given what takes a change back, before each change is made.
        changes: what to change in the layer of that path; nothing if None.
        needed: whether their attention has to be seen, as `RecordingProcessor` takes it.

    Returns:
        The recording processors, by dotted path.

    Raises:
        TraceError: if there are some already.
    """
    for name, layer in layers.items():
        if isinstance(layer.processor, RecordingProcessor):
            raise TraceError(
                f"another trace is open on this model (at {name}): close it first, since two "
                "recordings of one model would mix"
            )
    installed: dict[str, RecordingProcessor] = {}
    for name, layer in layers.items():
        change = None if changes is None else changes(name)
        recorder: Any = RecordingProcessor(layer.processor, name, record, change, needed)
        undo(_put_back(layer, layer.processor, recorder))
        layer.set_processor(recorder)
        installed[name] = recorder
    return installed


def projections(layer: Any) -> dict[str, torch.nn.Module]:
    """The linear maps of a layer, by what they make: query, key, value and output.

    Where key and value are made in one there is "key and value" as well, which then runs.
    """
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_kv": "key and value"}
    found = {ours: getattr(layer, name) for name, ours in names.items() if hasattr(layer, name)}
    return {**found, "output": layer.to_out[0]}


def own_weights(layer: Any) -> TraceError:
    """Make the error for a processor that does not use its layer's linear maps."""
    own = getattr(layer.processor, "original", layer.processor)
    return TraceError(
        f"{type(own).__name__} has linear maps of its own, so its numbers cannot be read: expected "
        "a processor that uses its layer's to_q, to_k, to_v and to_out; load the model without it"
    )


def keys_of(layer: Any, states: torch.Tensor) -> torch.Tensor:
    """The keys (B, H, K, d) that a layer makes of text states (B, K, C), as processors do."""
    if layer.norm_cross is not None:
        states = layer.norm_encoder_hidden_states(states)
    key = layer.to_k(states).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
    return key if layer.norm_k is None else layer.norm_k(key)


def _put_back(layer: Attention, original: Any, ours: Any) -> Callable[[], None]:
    def undo() -> None:
        # A processor that the user set meanwhile is theirs to keep.
        if layer.processor is ours:
            layer.set_processor(original)

    return undo


def run_uncompiled(model: Any, undo: Callable[[Callable[[], None]], object]) -> None:
    """Let a model that was compiled run as it was written, in whole or in its parts.

    A processor of our own would cut the compiled code, and the cuts would stay in torch's cache.

    Args:
        model: the denoiser, or what `torch.compile` made of it.
        undo: given what takes a change back, before each change is made.
    """

    def put(module: Any, name: str, value: Any) -> None:
        before = vars(module)[name]
        undo(lambda: vars(module).__setitem__(name, before))
        vars(module)[name] = value

    for module in model.modules():
        if hasattr(module, "_orig_mod"):
            put(module, "forward", module._orig_mod.__call__)
        if vars(module).get("_compiled_call_impl") is not None:
            put(module, "_compiled_call_impl", None)
