"""The processors, hooks and methods that a trace installs in a pipeline, and takes back."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from torch import Tensor

from heedmap.backends import base, loading, skipping, tap
from heedmap.backends.base import Family
from heedmap.backends.schedules import listen
from heedmap.backends.tap import Editor, ModelPass, Observer, RecordingProcessor
from heedmap.errors import TraceError
from heedmap.mathematics.events import SELF_ATTENTION

_UNRECORDED = "a pipeline that does it in its own call cannot be recorded"


class TraceHooks:
    """The processors, hooks and methods of a trace in a pipeline.

    Args:
        family: that of the pipeline.
        editor: the edits; None without these.
        shares: whether the edits change self-attention, too.
        model_pass: the pass of the model that runs.

    Attributes:
        layers: the text cross-attention layers, by dotted path.
        self_layers: the self-attention layers.
        installed: the processors of the text cross-attention layers.
        undo: takes everything back.
    """

    def __init__(
        self,
        family: Family,
        editor: Editor | None,
        shares: bool,
        model_pass: ModelPass,
    ) -> None:
        self._family = family
        self._editor = editor
        self._self_editor = editor if shares else None
        self.model_pass = model_pass
        self.layers = family.text_layers()
        self.self_layers = family.image_layers()
        self.undo = ExitStack()
        self.installed: Mapping[str, RecordingProcessor] = {}
        # Of the present call: its self-attention layers with a processor of the trace.
        self._needed: Mapping[str, Any] = {}
        self._propagate: Observer | None = None
        self._is_needed = self._self_editor is not None
        self._undo_call = ExitStack()

    def install(
        self,
        observe: Observer,
        before_pass: Callable[..., None],
        after_pass: Callable[..., None],
    ) -> None:
        """Call `observe` after each cross-attention layer, and the others around the model."""
        family = self._family
        undo = self.undo.callback
        pipe = family.pipe
        model = family.called_model
        skipping.check_forwards(self.layers)
        self.undo.enter_context(loading.silence_logs(pipe))
        self.installed = tap.install(
            self.layers,
            observe,
            self.model_pass,
            undo,
            self._editor,
            joint=family.is_joint,
        )
        skipping.run_uncompiled(model, undo)
        # These replace attention processors, and do not know those of a trace.
        replacing = [(pipe, "load_ip_adapter"), (pipe, "unload_ip_adapter")]
        for owner, name in [*replacing, (family.model, "set_default_attn_processor")]:
            if hasattr(owner, name):
                undo(base.replace_method(owner, name, partial(_refuse, name)))
        undo(model.register_forward_pre_hook(before_pass, with_kwargs=True).remove)
        undo(model.register_forward_hook(after_pass).remove)
        for owner, name, method in family.guards():
            undo(base.replace_method(owner, name, method))

    def install_self_attention(
        self,
        propagating: Iterable[str],
        propagate: Observer,
        needs_all: bool = False,
    ) -> None:
        """Call `propagate` after these self-attention layers, or after all of them.

        Edits need all. What cannot be seen is then an error.
        """
        names = [name for name in propagating if name in self.self_layers]
        self._is_needed = needs_all or self._self_editor is not None
        if self._is_needed:
            names = [*self.self_layers]
        self._needed = {name: self.self_layers[name] for name in names}
        self._propagate = propagate
        self.check()

    def check(self) -> None:
        """Raise a TraceError if a processor of cross-attention was replaced.

        Of self-attention they are installed again: perturbed-attention guidance replaces them.
        """
        for name, layer in self.layers.items():
            if layer.processor is not self.installed[name]:
                raise TraceError(
                    f"the attention processor of {name} was replaced while the trace was open "
                    "(attention slicing, fused projections, xformers and load_ip_adapter do that): "
                    f"do it before the trace is opened; {_UNRECORDED}"
                )
        bare = {
            name: layer
            for name, layer in self._needed.items()
            if not isinstance(layer.processor, RecordingProcessor)
        }
        if bare and self._propagate is not None:
            tap.install(
                bare,
                self._propagate,
                self.model_pass,
                self._undo_call.callback,
                self._self_editor,
                needed=self._is_needed,
                layout=SELF_ATTENTION,
            )

    def begin_call(
        self,
        after_step: Callable[[Tensor], Tensor],
        before_step: Callable[..., None] | None = None,
        step: Callable[..., Any] | None = None,
    ) -> None:
        """Listen to the scheduler that the pipeline has now (`schedules.listen`).

        Its method `step` is then called by the function `step`, which gets it with its arguments.
        """
        self.end_call()
        scheduler = self._family.pipe.scheduler
        self._undo_call.callback(listen(scheduler, after_step, before_step))
        if step is not None:
            called = partial(step, scheduler.step)
            self._undo_call.callback(base.replace_method(scheduler, "step", called))

    def end_call(self) -> None:
        """Leave scheduler and self-attention as they were: others may change them between calls."""
        self._needed = {}
        self._undo_call.close()

    def remove(self) -> None:
        """Leave the pipeline as it was; an error is raised when all is undone."""
        with self.undo:
            self.end_call()


def _refuse(name: str, *args: Any, **kwargs: Any) -> None:
    raise TraceError(
        f"{name} replaces the attention processors while a trace is open: call it before the "
        f"trace is opened, or after it is closed; {_UNRECORDED}"
    )
