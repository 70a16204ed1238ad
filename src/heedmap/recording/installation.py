"""What stands in a pipeline while a trace is open, and how all of it is taken off again."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from heedmap.backends import schedules
from heedmap.backends.patches import put
from heedmap.backends.processors import Record, RecordingProcessor, install, run_uncompiled
from heedmap.backends.registry import (
    cross_attention_layers,
    family_of,
    guard,
    self_attention_layers,
)
from heedmap.backends.skipping import check_forwards
from heedmap.errors import TraceError
from heedmap.mathematics.probabilities import Scores
from heedmap.recording.steering import Steerer

CHANGES = (
    ("pipe", "load_ip_adapter"),
    ("pipe", "unload_ip_adapter"),
    ("model", "set_default_attn_processor"),
)
"""Methods that replace attention processors and do not know those of a trace."""


def _refuse(name: str) -> Callable[..., None]:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise TraceError(
            f"{name} replaces the attention processors while a trace is open: call it before the "
            "trace is opened, or after it is closed"
        )

    return refused


class Installation:
    """The processors, hooks and methods of a trace in one pipeline.

    Args:
        pipe: the pipeline.
        steerer: what changes its attention; None where it is recorded alone.

    Attributes:
        layers: the text cross-attention layers, by dotted path.
        own: the layers in which the picture attends to itself.
    """

    def __init__(self, pipe: Any, steerer: Steerer | None) -> None:
        self._pipe = pipe
        self._steerer = steerer
        self.layers = cross_attention_layers(pipe)
        shares = steerer is not None and steerer.steering.sources
        self.own = self_attention_layers(pipe)
        self._shared = self.own if shares else {}
        self._carriers: dict[str, Any] = {}
        self._carry: Record | None = None
        self._installed: Mapping[str, RecordingProcessor] = {}
        self._in_front: dict[str, list[RecordingProcessor]] = {}  # of self-attention layers
        self._schedulers: list[Any] = []  # that are listened to
        self._undo = ExitStack()
        self._undo_own = ExitStack()  # of the self-attention that is heard in one call

    def put(self, record: Record, before_pass: Callable[..., None]) -> None:
        """Put a processor in front of each layer, and a hook in front of the model.

        Args:
            record: called whenever a cross-attention layer has run.
            before_pass: called with the model and its arguments before it runs.
        """
        check_forwards(self.layers)
        steerer = self._steerer
        self._installed = install(
            self.layers, record, self._undo.callback, steerer and steerer.cross
        )
        self.follow()
        model = family_of(self._pipe).part(self._pipe)
        run_uncompiled(model, self._undo.callback)
        for owner, name in CHANGES:
            part = self._pipe if owner == "pipe" else family_of(self._pipe).denoiser(self._pipe)
            if hasattr(part, name):
                self._undo.callback(put(part, name, _refuse(name)))
        handle = model.register_forward_pre_hook(before_pass, with_kwargs=True)
        self._undo.callback(handle.remove)
        guard(self._pipe, self._undo.callback)

    def also(self, undo: Callable[[], None]) -> None:
        """Take off something else, too."""
        self._undo.callback(undo)

    def hear_own(self, names: Iterable[str], record: Record) -> None:
        """Call `record` whenever one of these self-attention layers has run in this call."""
        self.leave_own()
        self._carry = record
        self._carriers = {name: self.own[name] for name in names}
        self.follow()

    def leave_own(self) -> None:
        """A call is over: between calls self-attention is as it was, for whoever changes it."""
        self._carriers = {}
        self._undo_own.close()

    def follow(self) -> None:
        """Stand in front of self-attention too, also where the pipeline has just replaced it.

        Perturbed-attention guidance puts its own processors there for the time of a call.
        """
        shared = self._shared
        heard = {name: layer for name, layer in self._carriers.items() if name not in shared}
        change = None if self._steerer is None else self._steerer.own
        for installed in (
            install(self._bare(shared), self._heard, self._undo.callback, change),
            install(self._bare(heard), self._heard, self._undo_own.callback, needed=False),
        ):
            for name, recorder in installed.items():
                self._in_front.setdefault(name, []).append(recorder)

    def _heard(self, name: str, scores: Scores) -> None:
        """A self-attention layer has run; whoever wants to know is told."""
        if self._carry is not None and name in self._carriers:
            self._carry(name, scores)

    def _bare(self, layers: Mapping[str, Any]) -> dict[str, Any]:
        """The layers in front of which nothing stands."""
        return {
            name: layer
            for name, layer in layers.items()
            if layer.processor not in self._in_front.get(name, ())
        }

    def listen(
        self,
        after_call: Callable[[torch.Tensor], torch.Tensor],
        before_call: Callable[..., None] | None = None,
    ) -> None:
        """Listen to the scheduler that the pipeline has now, once (`schedules.listen`)."""
        scheduler = self._pipe.scheduler
        if all(scheduler is not other for other in self._schedulers):
            self._schedulers.append(scheduler)
            self._undo.callback(schedules.listen(scheduler, after_call, before_call))

    def check(self) -> None:
        """Raise a TraceError if a processor was replaced since it was put there."""
        for name, layer in self.layers.items():
            if layer.processor is not self._installed[name]:
                raise TraceError(
                    f"the attention processor of {name} was replaced while the trace was open "
                    "(attention slicing, fused projections, xformers and load_ip_adapter do that): "
                    "do it before the trace is opened"
                )

    def take_off(self) -> None:
        """Leave the pipeline as it was; an error is raised when all is undone."""
        self._installed = {}
        self._in_front.clear()
        self._schedulers.clear()
        self._carriers = {}
        with self._undo:
            self._undo_own.close()
