"""What stands in a pipeline while a trace is open, and how all of it is taken off again."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from heedmap.errors import TraceError
from heedmap.mathematics.probabilities import Scores
from heedmap.recording.steering import Steerer
from heedmap.wiring import schedules
from heedmap.wiring.processors import Record, RecordingProcessor, install, run_uncompiled
from heedmap.wiring.registry import cross_attention_layers, family_of, guard, self_attention_layers


class Installation:
    """The processors, hooks and methods of a trace in one pipeline.

    Args:
        pipe: the pipeline.
        steerer: what changes its attention; None where it is recorded alone.

    Attributes:
        layers: the text cross-attention layers, by dotted path.
    """

    def __init__(self, pipe: Any, steerer: Steerer | None) -> None:
        self._pipe = pipe
        self._steerer = steerer
        self.layers = cross_attention_layers(pipe)
        shares = steerer is not None and steerer.steering.sources
        self._own = self_attention_layers(pipe) if shares else {}
        self._installed: Mapping[str, RecordingProcessor] = {}
        self._in_front: dict[str, list[RecordingProcessor]] = {}  # of self-attention layers
        self._schedulers: list[Any] = []  # that are listened to
        self._undo = ExitStack()

    def put(self, record: Record, before_pass: Callable[..., None]) -> None:
        """Put a processor in front of each layer, and a hook in front of the model.

        Args:
            record: called whenever a cross-attention layer has run.
            before_pass: called with the model and its arguments before it runs.
        """
        steerer = self._steerer
        self._installed = install(
            self.layers, record, self._undo.callback, steerer and steerer.cross
        )
        self.follow()
        model = family_of(self._pipe).part(self._pipe)
        run_uncompiled(model, self._undo.callback)
        handle = model.register_forward_pre_hook(before_pass, with_kwargs=True)
        self._undo.callback(handle.remove)
        guard(self._pipe, self._undo.callback)

    def also(self, undo: Callable[[], None]) -> None:
        """Take off something else, too."""
        self._undo.callback(undo)

    def follow(self) -> None:
        """Stand in front of self-attention too, also where the pipeline has just replaced it.

        Perturbed-attention guidance puts its own processors there for the time of a call.
        """
        if self._steerer is None:
            return
        bare = {
            name: layer
            for name, layer in self._own.items()
            if layer.processor not in self._in_front.get(name, ())
        }
        for name, recorder in install(
            bare, _ignore, self._undo.callback, self._steerer.own
        ).items():
            self._in_front.setdefault(name, []).append(recorder)

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
        self._undo.close()


def _ignore(name: str, scores: Scores) -> None:
    """What self-attention is made of is not recorded."""
