"""The processors, hooks and methods that a trace installs in a pipeline, and takes back."""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from heedmap.backends import base, loading, skipping, tap
from heedmap.backends.base import Family
from heedmap.backends.schedules import listen
from heedmap.backends.tap import ModelPass, Observer, RecordingProcessor
from heedmap.errors import TraceError
from heedmap.mathematics.events import SELF_ATTENTION
from heedmap.recording.controller import AttentionController


@dataclass(eq=False)
class TraceHooks:
    """The processors, hooks and methods of a trace in a pipeline.

    Attributes:
        family: that of the pipeline.
        editor: the edits; None without these.
        model_pass: the pass of the model that runs.
        layers: the text cross-attention layers, by dotted path.
        self_layers: the self-attention layers.
        installed: the processors of the text cross-attention layers.
        undo: takes everything back.
    """

    family: Family
    editor: AttentionController | None
    model_pass: ModelPass

    def __post_init__(self) -> None:
        editor = self.editor
        # Images with sources take their self-attention, too.
        shares = editor is not None and bool(editor.steering.sources)
        self._self_editor = editor if shares else None
        self.layers = self.family.text_layers()
        self.self_layers = self.family.image_layers()
        self.undo = ExitStack()
        self.installed: Mapping[str, RecordingProcessor] = {}
        # Of the present call: its self-attention layers with a processor of the trace.
        self._needed: Mapping[str, Any] = {}
        self._is_needed = False
        self._undo_call = ExitStack()

    def install(
        self,
        observe: Observer,
        before_pass: Callable[..., Any],
        after_pass: Callable[..., None],
    ) -> None:
        """Call `observe` after each cross-attention layer, and the others around the model."""
        family = self.family
        undo = self.undo.callback
        model = family.called_model
        skipping.check_forwards(self.layers)
        self.undo.enter_context(loading.silence_logs())
        self.installed = tap.install(
            self.layers,
            undo,
            observe=observe,
            model_pass=self.model_pass,
            editor=self.editor,
            joint=family.is_joint,
        )
        skipping.run_uncompiled([model, *family.modules.values()], undo)
        undo(model.register_forward_pre_hook(before_pass, with_kwargs=True).remove)
        undo(model.register_forward_hook(after_pass).remove)
        for owner, name, method in family.guards():
            undo(base.replace_method(owner, name, method))

    def install_self_attention(
        self,
        some: Collection[str],
        observe: Observer,
        needs_all: bool = False,
    ) -> None:
        """Call `observe` after some self-attention layers, or after all of them.

        Edits need all. What cannot be seen is then an error.
        """
        self._observe_image = observe
        self._is_needed = needs_all or self._self_editor is not None
        self._needed = {
            name: layer
            for name, layer in self.self_layers.items()
            if self._is_needed or name in some
        }
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
                    "do it before the trace is opened; a pipeline that does it in its own call "
                    "cannot be recorded"
                )
        bare = {
            name: layer
            for name, layer in self._needed.items()
            if not isinstance(layer.processor, RecordingProcessor)
        }
        if bare:
            tap.install(
                bare,
                self._undo_call.callback,
                observe=self._observe_image,
                model_pass=self.model_pass,
                editor=self._self_editor,
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
        scheduler = self.family.pipe.scheduler
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
