"""The tap: an event for each attention that a layer computes, before and after its kernel.

A recording processor runs the layer's own and intercepts the first attention that is computed
there, which is the text's (an IP-Adapter's comes after it). So it serves every processor that ends
in `scaled_dot_product_attention` or in `Attention.get_attention_scores`, with fused or adapted
projections, slices and image prompts.
"""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import MethodType
from typing import Any, NoReturn

import torch
from diffusers.hooks._helpers import (
    AttentionProcessorMetadata,
    AttentionProcessorRegistry,
)
from diffusers.models import attention_dispatch
from diffusers.models.attention_dispatch import AttentionBackendName
from diffusers.models.attention_processor import Attention
from torch import Tensor
from torch.nn import functional
from torch.overrides import (
    _get_current_function_mode_stack,
    _len_torch_function_stack,
)
from torch.utils._device import DeviceContext

from heedmap.backends.base import GridShape, Undo, heads_of, replace_method
from heedmap.errors import TraceError
from heedmap.mathematics.events import (
    CROSS_ATTENTION,
    AttentionEvent,
    EditedRow,
    Layout,
)
from heedmap.mathematics.probabilities import (
    fused,
    scaled_dot_product_attention as _KERNEL,
)
from heedmap.mathematics.rules import Site

Observer = Callable[[AttentionEvent], None]
"""A function of each event, which it leaves as it is."""
_TEXT = "encoder_hidden_states"
_DEFAULT = (
    "load the model again, and keep the attention processors that it is loaded with"
)


@dataclass(eq=False)
class ModelPass:
    """The pass of the model that runs, which the processors of a trace share.

    Attributes:
        layout: that of the layers that attend to the text.
        step: from 0.
        steps: their number.
        grids: (h, w) of each layer, by dotted path.
        is_recorded: whether the rows that read the prompt are recorded.
    """

    layout: Layout = CROSS_ATTENTION
    step: int = 0
    steps: int = 1
    grids: Mapping[str, GridShape] = field(default_factory=dict)
    is_recorded: bool = False


@dataclass(eq=False)
class RecordingProcessor:
    """A processor that runs the layer's own and gives an observer the event of its attention.

    Attributes:
        original: the layer's processor.
        name: the layer's dotted path.
        observe: a function of the event.
        model_pass: the pass that runs.
        editor: the edits, a `recording.controller.AttentionController`; without these the output
            is the original's to the bit.
        needed: whether attention that cannot be seen is an error.
        joint: whether the layer attends to text and image in one softmax.
        layout: that of the layer, if it is not that of the pass.
    """

    original: Any
    name: str
    observe: Observer
    model_pass: ModelPass
    editor: Any = None
    needed: bool = True
    joint: bool = False
    layout: Layout | None = None

    def __post_init__(self) -> None:
        # `Attention.forward` inspects the signature of `processor.__call__` to decide which keyword
        # arguments to pass on, so the instance needs that of the original.
        def call(*args: Any, **kwargs: Any) -> Tensor:
            return type(self).__call__(self, *args, **kwargs)

        kind = type(self.original)
        signature = _signature(kind)
        call.__signature__ = signature
        self.__dict__["__call__"] = call
        # ERNIE-Image and the single blocks of Flux.2 take a mask in the place of the text states.
        self.takes_text = _TEXT in signature.parameters
        # Others may write to their queries and keys later.
        self.is_of_diffusers = kind.__module__.startswith("diffusers.")

    @property
    def site(self) -> Site:
        """The layer at the present step."""
        now = self.model_pass
        return Site(self.name, now.step, now.steps, now.grids.get(self.name, (0, 0)))

    @contextmanager
    def redirected(self, observe: Observer, layout: Layout) -> Iterator[None]:
        """Give events of another layout to another observer within the block; edit nothing."""
        before = self.observe, self.editor, self.layout
        self.observe, self.editor, self.layout = observe, None, layout
        try:
            yield
        finally:
            self.observe, self.editor, self.layout = before

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """Run the original processor."""
        text = kwargs.get(_TEXT)
        if args and self.takes_text:
            text = args[0]
        if text is hidden_states:  # both are joined before, as in Lumina 2
            text = None
        # A mode may replace the attention (LayerSkip of diffusers does).
        is_overridden = False
        if _len_torch_function_stack():
            modes = _get_current_function_mode_stack()
            is_overridden = any(type(mode) is not DeviceContext for mode in modes)
        tap = None
        if not is_overridden:
            tap = _Tap(self, attn, hidden_states.shape, text)
        before = getattr(_present, "tap", None)
        _present.tap = tap
        try:
            output = self.original(attn, hidden_states, *args, **kwargs)
        finally:
            _present.tap = before
        event = None if tap is None else tap.event()
        if event is not None:
            self.observe(event)
            return output
        is_used = self.editor is not None or self.model_pass.is_recorded
        if self.needed and (is_used or not is_overridden):
            raise TraceError(
                f"{type(self.original).__name__} at {self.name} computed no attention that heedmap "
                "can see (it returned a cached output, has a kernel of its own, as xformers does, "
                "or a TorchFunctionMode or a guider replaces its attention): exit the mode, take "
                f"another guider, or {_DEFAULT}"
            )
        return output


class _Tap:
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
        self.processor = processor
        self.attn = attn
        self.rows = shape[0]
        self.adapted = isinstance(states, tuple)
        text: Tensor | None = states[0] if self.adapted else states
        self.keys = None if text is None else text.shape[1]
        self.layout = processor.layout or processor.model_pass.layout
        self.reads_text = processor.joint or attn.is_cross_attention
        if processor.joint:  # some blocks join text and image before the layer
            self.keys = self.layout.keys or shape[1] + (self.keys or 0)
        self.fused: AttentionEvent | None = None
        # The inputs of the classic computation, by slices of the B·H rows where it is sliced.
        self.classic: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self.edited: Mapping[int, EditedRow] = {}

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        """Return `scaled_dot_product_attention` with the edits, and keep its event."""
        processor = self.processor
        layout = self.layout
        options["attn_mask"] = attn_mask
        options["dropout_p"] = dropout_p
        options["is_causal"] = is_causal
        # The text's queries may attend apart, to fewer keys.
        is_apart = layout.keys not in (None, key.shape[-2])
        if is_apart or self.fused is not None or self.classic:
            self._check_later(key)
            return _kernel(query, key, value, **options)
        heads = heads_of(self.attn)
        if self.keys is not None:
            has_all_heads = key.ndim == 4 and query.shape[1] == key.shape[1] == heads
            if is_causal or not has_all_heads:
                self._fail(f"with keys of shape {tuple(key.shape)}")
        self._check_keys(key)
        site = processor.site
        editor = processor.editor
        if editor is not None and (processor.joint or not self.reads_text):
            query, key = editor.inputs(site, layout, query, key)
        device = key.device.type
        if torch.is_autocast_enabled(device):
            query = _autocast(query)
            key = _autocast(key)
        if _kernel is _KERNEL:
            output, log_sum = fused(query, key, value, **options)
        else:
            output = _kernel(query, key, value, **options)
            log_sum = None
        if not processor.is_of_diffusers:
            query = query.clone()
            key = key.clone()
        if processor.joint and device == "cpu" and key.itemsize < 4:
            log_sum = None  # the kernel's is good to 1e-4 only
        scale = options.get("scale")
        event = AttentionEvent(
            query=query,
            key=key,
            scale=query.shape[-1] ** -0.5 if scale is None else scale,
            mask=attn_mask,
            log_sum=log_sum,
            value=value,
            output=output,
            layout=layout,
            layer=processor.name,
            site=site,
        )
        if editor is not None and self.reads_text:
            event = editor.output(event)
        self.fused = event
        assert event.output is not None
        return event.output

    def scores(
        self,
        compute: Callable[..., Tensor],
        query: Tensor,
        key: Tensor,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the result of `get_attention_scores` with the edits, and keep its inputs.

        It is (B·H, Q, K), or a slice of it.
        """
        editor = self.processor.editor
        count = self.rows * self.attn.heads
        done = sum(len(part) for part, _, _ in self.classic)
        if self.fused is not None or done >= count:
            self._check_later(key)
            return compute(query, key, attention_mask)
        self._check_keys(key)
        if editor is not None and (self.processor.joint or len(query) != count):
            raise TraceError(
                "edits and weights change the attention of a layer as a whole: call "
                f"pipe.disable_attention_slicing() before; {_DEFAULT}"
            )
        if editor is not None and not self.reads_text:
            query, key = editor.inputs(
                self.processor.site,
                self.layout,
                self._by_head(query),
                self._by_head(key),
            )
            query, key = query.flatten(0, 1), key.flatten(0, 1)
        self.classic.append((query, key, attention_mask))
        p = compute(query, key, attention_mask)
        if editor is not None and self.reads_text:
            event = self.event()
            assert event is not None
            p, self.edited = editor.weights(event, self._by_head(p))
            p = p.flatten(0, 1)
        return p

    def _check_keys(self, key: Tensor) -> None:
        if self.keys not in (None, key.shape[-2]):
            self._fail(f"over {key.shape[-2]} keys, of {self.keys}")

    def _check_later(self, key: Tensor) -> None:
        """Refuse a later attention over as many keys as there are text states."""
        if self.keys != key.shape[-2] or self.adapted:
            return
        self._fail("over several texts")

    def _fail(self, what: str) -> NoReturn:
        raise TraceError(
            f"{type(self.processor.original).__name__} at {self.processor.name} computes attention "
            f"{what}: expected one attention over all of the text; {_DEFAULT}"
        )

    def event(self) -> AttentionEvent | None:
        """Return the event of the attention; None if there was none."""
        if self.fused is not None or not self.classic:
            return self.fused
        queries, keys, masks = zip(*self.classic, strict=True)
        processor = self.processor
        return AttentionEvent(
            query=self._by_head(torch.cat(queries)),
            key=self._by_head(torch.cat(keys)),
            scale=self.attn.scale,
            mask=None if masks[0] is None else self._by_head(torch.cat(masks)),
            layout=self.layout,
            layer=processor.name,
            site=processor.site,
            edited=self.edited,
        )

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (-1, self.attn.heads))


@lru_cache(maxsize=64)
def _signature(kind: type) -> inspect.Signature:
    """Return the signature of a processor's call."""
    return inspect.signature(MethodType(kind.__call__, kind))


def _autocast(x: Tensor) -> Tensor:
    """Return queries or keys in the type that the kernel computes in with autocast."""
    if x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


# --- the interception of the kernel ---


_present = threading.local()  # its `tap` is that of the layer that runs in the thread
_lock = threading.Lock()
_count = 0  # of models with recording processors
# What `_attend` stands for: torch's kernel, or a user's own.
_kernel: Callable[..., Tensor] = _KERNEL


def _intercept(undo: Undo) -> None:
    """Replace the kernel where diffusers looks it up, in `torch.nn.functional`, until undone."""
    global _count, _kernel
    with _lock:
        if not _count:
            _kernel = functional.scaled_dot_product_attention
            functional.scaled_dot_product_attention = _attend
        _count += 1
    undo(_release)


def _release() -> None:
    """Put the kernel back when no model has recording processors any more."""
    global _count
    with _lock:
        _count -= 1
        # A kernel that the user put there meanwhile stays.
        if not _count and functional.scaled_dot_product_attention is _attend:
            functional.scaled_dot_product_attention = _kernel


def _attend(*args: Any, **kwargs: Any) -> Tensor:
    """Replace the kernel: outside of a recorded layer it is called as it is."""
    tap: _Tap | None = getattr(_present, "tap", None)
    if tap is not None:
        return tap.attend(*args, **kwargs)
    if not _len_torch_function_stack():
        return _kernel(*args, **kwargs)
    # A mode may know the kernel by its name: `PerturbedAttentionGuidance` has such a mode.
    before = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _kernel
    try:
        return _kernel(*args, **kwargs)
    finally:
        functional.scaled_dot_product_attention = before


def _scores(
    layer: Attention,
    compute: Callable[..., Tensor],
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Replace a layer's `get_attention_scores`: unless it is recorded, it is called as it is."""
    tap = getattr(_present, "tap", None)
    if tap is None or tap.attn is not layer:
        return compute(*args, **kwargs)
    return tap.scores(compute, *args, **kwargs)


# --- installation ---


def _output_when_skipped(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the output of a layer whose attention a guider skips, as without the trace."""
    original = type(layer.processor.original)
    known = AttentionProcessorRegistry.get(original)
    return known.skip_processor_output_fn(layer, *args, **kwargs)


AttentionProcessorRegistry.register(
    RecordingProcessor, AttentionProcessorMetadata(_output_when_skipped)
)


def install(
    layers: Mapping[str, Attention],
    undo: Undo,
    **options: Any,
) -> dict[str, RecordingProcessor]:
    """Install a recording processor in every layer, until undone; return them by dotted path.

    The options are those of `RecordingProcessor`.

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
    if layers:
        _intercept(undo)
    installed: dict[str, RecordingProcessor] = {}
    for name, layer in layers.items():
        recorder: Any = RecordingProcessor(layer.processor, name, **options)

        def restore(layer: Attention = layer, recorder: Any = recorder) -> None:
            # A processor that the user set meanwhile stays.
            if layer.processor is recorder:
                layer.set_processor(recorder.original)

        undo(restore)
        layer.set_processor(recorder)
        # `set_ip_adapter_scale`, also as a callback of diffusers, looks for the original there.
        get = getattr(layer, "get_processor", None)
        if get is not None:
            original = partial(_original, layer, get)
            undo(replace_method(layer, "get_processor", original))
        compute = getattr(layer, "get_attention_scores", None)
        if compute is not None:
            scores = partial(_scores, layer, compute)
            undo(replace_method(layer, "get_attention_scores", scores))
        installed[name] = recorder
    return installed


def _original(layer: Attention, get: Callable[..., Any], **kwargs: Any) -> Any:
    """Return the processor of a layer; the original one where it is recorded."""
    recorder: Any = layer.processor
    if isinstance(recorder, RecordingProcessor):
        return recorder.original
    return get(**kwargs)


def _check_backend(name: str, processor: Any) -> None:
    """Raise a TraceError if diffusers' dispatcher computes attention out of sight.

    The native backends end in `scaled_dot_product_attention`.
    """
    if not hasattr(processor, "_attention_backend"):  # it does not use the dispatcher
        return
    kind = type(processor).__name__
    active, _ = attention_dispatch._AttentionBackendRegistry.get_active_backend()
    backend = AttentionBackendName(processor._attention_backend or active).value
    is_native = "native" in backend
    is_parallel = processor._parallel_config is not None
    if "Flex" in kind or is_parallel or not is_native:
        raise TraceError(
            f"{kind} at {name} computes attention with the backend {backend!r}, by flex_attention, "
            "or on several devices, where heedmap cannot see it: keep the processors that the "
            "model is loaded with, call its set_attention_backend('native'), and leave context "
            "parallelism out"
        )
