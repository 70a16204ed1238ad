"""Record the text cross-attention of a pipeline, and edit it, while a `with` block is open.

A trace puts a processor in front of each text cross-attention layer's own
(`backends.tap`), watches the prompts that the pipeline encodes (`backends.prompts`) and the
calls of its scheduler (`backends.schedules`). Each pass of the model goes `Trace._before_pass` →
`Trace._observe` → `Call.record` → `AttentionAccumulator.add`; `Call.recording` makes the result.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heedmap.backends import base, loading, prompts, registry, skipping, tap
from heedmap.backends.base import Family, GridShape, Pipeline
from heedmap.backends.joint import JointFamily
from heedmap.backends.noise_levels import predicted
from heedmap.backends.prompts import Encoding
from heedmap.backends.schedules import (
    Moment,
    TimestepReader,
    announced,
    listen,
    rounding_of,
)
from heedmap.backends.tap import ModelPass, Observer, RecordingProcessor
from heedmap.checks import as_ordered_list
from heedmap.errors import (
    ArgumentError,
    NothingRecordedError,
    TraceError,
    format_bytes,
    quoted,
    warn,
)
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.mathematics.events import (
    CROSS_ATTENTION,
    SELF_ATTENTION,
    AttentionEvent,
)
from heedmap.options import AXES, BranchName, GenerateOptions, Keep, ShareOf, Tokens
from heedmap.recording.calls import Call, RecordingSpec, RecordName
from heedmap.recording.controller import AttentionController, Steering
from heedmap.recording.edits import (
    Edit,
    checked_edits,
    rules_of,
    warn_of_idle,
)
from heedmap.recording.probing import Probe
from heedmap.text.weights import unread_weights

_UNRECORDED = "a pipeline that does it in its own call cannot be recorded"
MEMORY_WARNING = 256 * 2**20
"""Bytes from which on a trace warns how much a call will keep."""


def trace(
    pipe: Pipeline,
    keep: Keep = GenerateOptions.keep,
    *,
    tokens: Tokens = GenerateOptions.tokens,
    branches: Iterable[BranchName] = GenerateOptions.branches,
    concepts: Sequence[str] = GenerateOptions.concepts,
    prompts: str | Sequence[str] | None = None,
    share_of: ShareOf = GenerateOptions.share_of,
    limit: int = GenerateOptions.limit,
    edits: Iterable[Edit] = (),
) -> "Trace":
    """Record the text cross-attention of a pipeline while the `with` block is open.

        with heedmap.trace(pipe, keep={"layer", "step"}) as trace:
            images = pipe(["a cat", "a dog"]).images
        trace.maps[0]["cat"]

    Without edits the images are bit-identical to those of the bare pipeline. Afterwards the
    pipeline is as it was, also after an exception. The maps follow the idea of DAAM (Tang et al.,
    2022, arXiv 2210.04885), for any size of image and any number of images.

    Args:
        pipe: a pipeline that `load` returns, or another of a family that is served.
        keep: the axes to store separately: any of "layer", "step" and "head", or "all". The maps
            are averaged over the other axes during the run; every step has the same weight, even
            if it calls the model twice.
        tokens: "prompt" for the prompt's own tokens with start and end, "all" for the padding too.
        branches: the branches of a guided run to record: "conditional", "negative", or both.
        concepts: words and phrases to look for in each image, by the image's own queries, whether
            or not its prompt has them (`Trace.concept_maps`).
        prompts: if you call the pipeline with `prompt_embeds`: the texts they were encoded from.
            Without them, maps are labelled by token position.
        share_of: as in `generate`.
        limit: the number of bytes that may be kept in all, 2 GiB by default; a run that would keep
            more is refused before its first step.
        edits: changes of the attention of every prompt, as in `generate`. The images then differ,
            and the maps are of the edited attention. Weights that are written into a prompt, as
            `(word:1.5)`, are not read here: pass `Reweight`.

    Returns:
        A context manager. `maps`, `negative_maps`, `concept_maps`, the `recordings` of each and
        `steps` can be read during and after the `with` block.

    Raises:
        ArgumentError: if an axis, a branch, the choice of tokens or an edit is not known, or a
            concept is none, or share_of is "text" where the text has a softmax of its own.
        ModelError: if the model has no text cross-attention.
    """
    options = GenerateOptions(
        keep=keep,
        tokens=tokens,
        branches=branches,
        concepts=concepts,
        share_of=share_of,
        limit=limit,
    )
    texts = [prompts] if isinstance(prompts, str) else as_ordered_list(prompts or [])
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f"prompts is {quoted(prompts)}: expected a list of texts")
    registry.check_share(pipe, options.share_of)
    spec = RecordingSpec.of(options, prompts=None if prompts is None else tuple(texts))
    return Trace(pipe, spec, edits=checked_edits(edits))


def observe(
    pipe: Pipeline, observer: Observer, *, edits: Iterable[Edit] = ()
) -> "Trace":
    """Call a function with the attention of each layer while the `with` block is open.

        def strongest(event):
            p = event.row(0).probabilities()  # (H, Q, K)
            print(event.layer, event.site.step, float(p.max()))

        with heedmap.observe(pipe, strongest):
            pipe("a red house")

    Nothing is recorded. The images are bit-identical to those of the bare pipeline. To a function
    that reads a number from the device, a GPU answers when all before it is done.

    Args:
        pipe: a pipeline that `load` returns, or another of a family that is served.
        observer: a function of an `AttentionEvent`: of each layer that attends to the text, in
            each pass of the model, once the layer's attention is computed. Each row of the event's
            batch has the number of its image and its branch (`event.layout.rows`).
        edits: changes of the attention of every prompt, as in `trace`.

    Returns:
        A context manager.

    Raises:
        ArgumentError: if the observer is not callable, or an edit is not known.
        ModelError: if the model has no text cross-attention.
    """
    if not callable(observer):
        raise ArgumentError(
            f"observer is {quoted(observer)}: expected a function of an event"
        )
    spec = RecordingSpec(branches=frozenset())
    return Trace(pipe, spec, edits=checked_edits(edits), observers=[observer])


@dataclass(frozen=True, eq=False)
class StepState:
    """The state of a run after a call of its scheduler.

    Attributes:
        moment: the call.
        latents: (B, C, h, w), those to go on with.
        predicted: the latents without noise that the model predicted, as these, float32; None
            where the scheduler does not tell them, or they were not asked for.
        current_maps: by image and token the maps (2, h, w) so far, refined and plain, of the tokens
            whose maps were asked for.
    """

    moment: Moment
    latents: Tensor
    predicted: Tensor | None
    current_maps: Mapping[int, Mapping[int, np.ndarray]]

    def strength(self, image: int, tokens: Sequence[int]) -> np.ndarray:
        """Return where tokens are read so far (2, h, w): the sum of refined and plain magnitudes.

        Both are plain in the first part of the run, where no maps are refined.
        """
        maps = [self.current_maps[image][token] for token in tokens]
        return np.abs(np.stack(maps, axis=-1)).sum(axis=-1)


AfterStep = Callable[[StepState], Tensor]
"""Called after every call of the scheduler; returns the latents to go on with."""


def check_memory_limit(calls: Sequence[Call], spec: RecordingSpec) -> None:
    """Raise an ArgumentError if calls would keep too much; warn if the last one keeps much."""
    total, size = sum(call.nbytes for call in calls), calls[-1].nbytes
    axes = f"keep={quoted(sorted(spec.keep))}"
    if total > spec.limit:
        raise ArgumentError(
            f"{axes} would take {format_bytes(total)}, and the limit is "
            f"{format_bytes(spec.limit)}: keep fewer axes, or pass a higher limit"
        )
    if size > MEMORY_WARNING:
        warn(
            f"{axes} will take {format_bytes(size)} of memory: keep fewer axes if that is too much"
        )


class TraceHooks:
    """The processors, hooks and methods that a trace installs in a pipeline.

    Attributes:
        layers: the text cross-attention layers, by dotted path.
        self_layers: the self-attention layers.
        installed: the processors of the text cross-attention layers.
        model_pass: the pass of the model that runs.
        undo: takes everything back.
    """

    def __init__(
        self,
        family: Family,
        controller: AttentionController | None,
        model_pass: ModelPass,
    ) -> None:
        self._family = family
        self._controller = controller
        self.model_pass = model_pass
        self.layers = registry.cross_attention_layers(family.pipe)
        self.self_layers = registry.self_attention_layers(family.pipe)
        self.undo = ExitStack()
        self.installed: Mapping[str, RecordingProcessor] = {}
        # Of the present call: its self-attention layers with a processor of the trace.
        self._needed: Mapping[str, Any] = {}
        self._self_options: dict[str, Any] = {}
        self._undo_call = ExitStack()

    def install(
        self,
        observe: Observer,
        before_pass: Callable[..., None],
        after_pass: Callable[..., None],
    ) -> None:
        """Call `observe` after each cross-attention layer, and `before_pass` before the model."""
        family, undo = self._family, self.undo.callback
        pipe, model = family.pipe, family.called_model
        skipping.check_forwards(self.layers)
        self.undo.enter_context(loading.silence_logs(pipe))
        self.installed = tap.install(
            self.layers,
            observe,
            self.model_pass,
            undo,
            self._controller,
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
        self, propagating: Iterable[str], propagate: Observer
    ) -> None:
        """Call `propagate` after these self-attention layers, and after those that edits change."""
        shared = self._controller is not None and bool(
            self._controller.steering.sources
        )
        alone = [name for name in propagating if name in self.self_layers]
        names = self.self_layers if shared else alone
        self._needed = {name: self.self_layers[name] for name in names}
        editor, undo = self._controller if shared else None, self._undo_call.callback
        self._self_options = dict(
            observe=propagate,
            model_pass=self.model_pass,
            undo=undo,
            editor=editor,
            needed=shared,
            layout=SELF_ATTENTION,
        )
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
        needed = self._needed.items()
        bare = {
            n: one
            for n, one in needed
            if not isinstance(one.processor, RecordingProcessor)
        }
        if bare:
            tap.install(bare, **self._self_options)

    def begin_call(
        self, after_step: Callable[[Tensor], Tensor], before_step: Any = None
    ) -> None:
        """Listen to the scheduler that the pipeline has now (`schedules.listen`)."""
        self.end_call()
        scheduler = self._family.pipe.scheduler
        self._undo_call.callback(listen(scheduler, after_step, before_step))

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


class Trace:
    """The recording that `trace` opens: a context manager, with one entry for each image.

    The entries are in the order of the images, over all calls of the pipeline so far. Maps that
    were not recorded raise a NothingRecordedError.

    Attributes:
        controller: the edits, and their effect; None without edits.
    """

    def __init__(
        self,
        pipe: Any,
        spec: RecordingSpec | None = None,
        *,
        edits: tuple[Edit, ...] = (),  # of each prompt, once it is read
        steering: Steering | None = None,  # acts before the edits
        after_step: AfterStep | None = None,
        map_tokens: Mapping[int, Sequence[int]]
        | None = None,  # by image, of `current_maps`
        predicts: bool = False,  # whether `StepState.predicted` is found
        probe: Probe | None = None,  # ends the run when it has its numbers
        steered: Sequence[str]
        | None = None,  # the prompts that the steering is made for
        observers: Sequence[Observer] = (),  # get each event after the recorder
    ) -> None:
        registry.check_served(pipe)
        spec = spec or RecordingSpec()
        self._pipe, self._family = pipe, registry.family_of(pipe)
        self._spec = spec
        self._edits, self._probe, self._steered = edits, probe, steered
        self._observers = observers
        self._after_step, self._map_tokens = after_step, map_tokens
        self._predicts, self._predicted = predicts, None
        steering = Steering({}) if edits and steering is None else steering
        self._rules = {} if steering is None else steering.rules
        model_pass = ModelPass()
        self.controller: AttentionController | None = None
        if steering is not None:
            self.controller = AttentionController(steering, model_pass)
        self._hooks = TraceHooks(self._family, self.controller, model_pass)
        several = len({layer.heads for layer in self._hooks.layers.values()}) > 1
        if several and "head" in spec.keep and "layer" not in spec.keep:
            keep = [axis for axis in AXES if axis in {"layer", *spec.keep}]
            raise ArgumentError(
                "the layers have different numbers of heads: heads cannot be kept while layers "
                f"are averaged; take keep={quoted(keep)}"
            )
        # Of the call that has not run the model yet.
        self._encodings: list[Encoding] = []
        self._frame: FrameType | None = None
        self._timesteps = TimestepReader(pipe)
        self._calls: list[Call] = []
        self._open = False

    # --- what was recorded ---

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """The probabilities of each image, at the axes that were kept (`HeatMaps.recording`)."""
        return self._recordings("conditional")

    @property
    def negative_recordings(self) -> tuple[Recording, ...]:
        """The recordings of the negative branch."""
        return self._recordings("negative")

    @property
    def concept_recordings(self) -> tuple[Recording, ...]:
        """The recordings of the concepts."""
        return self._recordings("concepts")

    @property
    def maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of each image."""
        return tuple(map(HeatMaps, self.recordings))

    @property
    def negative_maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of the negative prompt's words, of each image."""
        return tuple(map(HeatMaps, self.negative_recordings))

    @property
    def concept_maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of the concepts, each one word, of each image."""
        return tuple(map(HeatMaps, self.concept_recordings))

    @property
    def steps(self) -> int:
        """The number of steps of the last call."""
        return self._done()[-1].schedule.count

    @property
    def guided(self) -> bool:
        """True if the last call used a negative prompt, also an empty one: with guidance."""
        return bool(self._calls) and self._calls[-1].guided

    def _done(self) -> list[Call]:
        """Return the calls that drew something; the last one also while it runs."""
        # A call that never called the scheduler drew nothing (a mask of DiffEdit's).
        calls = [call for call in self._calls if call.done]
        if calls and not self._open and not calls[-1].over:
            calls.pop()  # it failed
        if not calls:
            raise NothingRecordedError(
                "nothing was recorded: call the pipeline inside of the `with` block of the trace"
            )
        return calls

    def _recordings(self, name: RecordName) -> tuple[Recording, ...]:
        done = self._done()
        if name not in done[-1].records:
            what, option = f"the {name} prompt was", f"branches={{'{name}'}}"
            if name == "concepts":
                what, option = "concepts were", "concepts=['sky']"
            raise NothingRecordedError(f"{what} not recorded: pass {option}")
        return tuple(
            call.recording(name, image) for call in done for image in range(call.images)
        )

    # --- install and restore ---

    def __enter__(self) -> "Trace":
        if self._open:
            raise TraceError(
                "this trace is open already: open it once, or make another"
            )
        spec, hooks = self._spec, self._hooks
        try:
            hooks.install(self._observe, self._before_pass, self._after_pass)
            if spec.concepts and isinstance(self._family, JointFamily):
                for name, block in self._family.blocks().items():
                    after = partial(self._after_block, name)
                    hooks.undo.callback(
                        block.register_forward_hook(after, with_kwargs=True).remove
                    )
            if self._probe is not None:
                self._probe.attach(hooks.layers, hooks.undo.callback)
            is_labelled = "negative" in spec.branches
            watched = self._pipe, spec.prompts, is_labelled, self._begin, self._end
            more = {"concepts": spec.concepts, "is_sampling": self._is_sampling}
            hooks.undo.callback(prompts.watch(*watched, **more))
        except BaseException:
            hooks.remove()
            raise
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._settle()
        self._open = False
        self._hooks.remove()
        if kind is None and self._edits:
            for call in self._calls:
                if call.over:
                    for name in call.records:
                        call.check(name)
                    warn_of_idle(self._edits, call.edited, call.sites)

    # --- while it runs ---

    def _is_sampling(self) -> bool:
        """Return whether the pipeline runs in the midst of the steps of the last call."""
        call = self._calls[-1] if self._calls else None
        if call is None or call.is_drawn:
            return False
        return base.active_calls(self._pipe) == [call.frame]

    def _begin(self, encoding: Encoding) -> None:
        running, kind = base.active_calls(self._pipe), type(self._pipe).__name__
        if len(running) > 1:
            raise TraceError(
                f"{kind} was called from within its own call, whose maps would be lost: call it "
                "after the other has ended"
            )
        count = len(encoding.conditional.tables)
        if count > 1 and self._family.has_quirk("source_first"):
            raise TraceError(
                f"{kind} generates one image a call, and got {count} prompts: call it once for each"
            )
        branches = filter(None, (encoding.conditional, encoding.negative))
        tables = [table for branch in branches for table in branch.tables]
        warnings = [table.unread for table in tables]
        if not self._spec.weights_read:
            warnings += [unread_weights(table.prompt) for table in tables]
        for warning in filter(None, dict.fromkeys(warnings)):
            warn(warning)
        if not running and self._is_in_own_loop():
            # The next pass tells whether the run goes on.
            self._encodings.append(encoding)
            return
        if not self._encodings and not self._settle():
            self._calls.pop()  # it failed
        self._encodings.append(encoding)
        self._frame = running[0] if running else None
        self._listen()

    def _listen(self) -> None:
        """Listen to the scheduler of the call that begins."""
        before_step = self._before_scheduler if self._predicts else None
        self._hooks.begin_call(self._after_scheduler, before_step)

    def _is_in_own_loop(self) -> bool:
        """Return whether the last call is a denoising loop of the user's own, between its steps."""
        call = self._calls[-1] if self._calls else None
        if call is None or call.over or call.frame is not None:
            return False
        return call.done > 0 and not call.is_drawn

    def _settle(self) -> bool:
        """End the last call if it has ended without saying so; return whether it ended well.

        Some pipelines return latents without freeing their models, and a denoising loop of the
        user's own says nothing.
        """
        if not self._calls:
            return True
        call = self._calls[-1]
        if call.over:
            return True
        # In one call.
        is_next = call.is_drawn and call.frame in base.active_calls(self._pipe)
        if is_next or call.frame is None or base.has_returned(call.frame):
            self._end()
        return call.over

    @tap.uncompiled
    def _before_pass(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._hooks.check()
        sample, now, states = self._family.passed(args, kwargs)
        timesteps = torch.as_tensor(now).flatten()
        timestep = self._timesteps.read(timesteps)
        error = rounding_of(timesteps)
        is_inside = bool(self._encodings) and self._is_in_own_loop()
        if is_inside and self._calls[-1].is_next(states, timestep, error):
            self._encodings = []  # the text of the run, encoded once more
        if self._encodings:
            if not sample.numel():
                raise ArgumentError(
                    "the image has no position of the model: expected a width and a height of "
                    f"{registry.unit(self._pipe)} pixels or more"
                )
            latent = self._family.latent(args, kwargs)
            self._start(sample, latent, states, timestep, error)
        elif not self._calls or self._calls[-1].over:
            raise TraceError(
                "the model ran before the pipeline of this trace encoded a prompt: call that very "
                "pipeline, with the prompt as text, inside of the trace"
            )
        call = self._calls[-1]
        call.enter(states, timestep, self._family.repeats(kwargs), error)
        now = self._hooks.model_pass
        now.layout = call.layout
        now.grids = call.grids
        now.step = call.moment.step
        now.steps = call.schedule.count
        now.is_recorded = call.is_recorded

    @tap.uncompiled
    @torch.no_grad()
    def _after_pass(self, *_: Any) -> None:
        self._calls[-1].compute()

    def _start(
        self,
        sample: Tensor,
        latent: GridShape,
        states: Tensor,
        timestep: float,
        error: float,
    ) -> None:
        encodings, self._encodings = self._encodings, []
        if self._is_in_own_loop():
            self._settle()
            self._listen()
        if not bool(sample.isfinite().all()):
            raise ArgumentError(
                "the latents hold NaN or Inf before the first step: expected finite numbers; look "
                "at the latents or the image that the pipeline was given"
            )
        family, hooks, encoding = (
            self._family,
            self._hooks,
            prompts.encoding_of(encodings, states),
        )
        if encoding.conditional.shifted and (self._rules or self._map_tokens):
            raise ArgumentError(
                f"{type(self._pipe).__name__} pads the prompts of a batch in front, which moves "
                "the tokens of the shorter ones, so that an edit would act on others: expected "
                "prompts that are as long, up to a multiple of 16 tokens"
            )
        read = [table.prompt for table in encoding.conditional.tables]
        if self._steered not in (None, read):
            raise ArgumentError(
                f"the weights and edits are for {quoted(self._steered)}, and the model reads "
                f"{quoted(read)}: leave out what changes the prompt (such as prompt_2 and "
                "caption_upsample_temperature), or pass edits to hm.generate, which find words in "
                "what is read"
            )
        call = Call(
            *(
                family,
                self._spec,
                encoding,
                announced(self._pipe, timestep, error),
                latent,
            ),
            hooks.layers,
            hooks.self_layers,
            map_tokens=self._map_tokens,
            frame=self._frame,
        )
        check_memory_limit([*self._calls, call], self._spec)
        if (self._edits or self._rules) and registry.control_reads_text(self._pipe):
            warn(
                "the ControlNet reads the whole prompt by attention of its own, where edits and "
                "weights do not act: give it less part in the image by a smaller "
                "controlnet_conditioning_scale, or leave a word out of the prompt"
            )
        if self._edits and self.controller is not None:
            size = (latent[1] * family.cell_side, latent[0] * family.cell_side)
            call.edited = [
                rules_of(self._edits, table, size)
                for table in encoding.conditional.tables
            ]
            self.controller.steering = Steering(
                {
                    n: [*self._rules.get(n, ()), *chain(*some)]
                    for n, some in enumerate(call.edited)
                }
            )
        self._calls.append(call)
        hooks.install_self_attention(call.propagating, self._propagate)

    def _observe(self, event: AttentionEvent) -> None:
        """Give the observers the event of a layer that attends to the text."""
        call = self._calls[-1]
        with torch.no_grad():
            call.record(event)
            if self._probe is not None:
                self._probe.record(call, event)
        for observer in self._observers:
            observer(event)

    @torch.no_grad()
    def _propagate(self, event: AttentionEvent) -> None:
        """Propagate maps along a self-attention layer that has just run."""
        self._calls[-1].propagate(event)

    @tap.uncompiled
    def _after_block(
        self,
        name: str,
        block: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        """Record the concepts in a joint block that has just run, whose layer has this name."""
        arguments = inspect.signature(block.forward).bind(*args, **kwargs).arguments
        self._calls[-1].record_concepts(
            name, block, arguments, self._hooks.installed[name]
        )

    def _before_scheduler(self, *args: Any, **kwargs: Any) -> None:
        self._predicted = predicted(*args, **kwargs)

    def _after_scheduler(self, latents: Tensor) -> Tensor:
        call = self._calls[-1] if self._calls else None
        if (
            call is None
            or call.over
            or (self._encodings and not self._is_in_own_loop())
        ):
            return latents
        count = len(call.schedule.timesteps)
        if call.done >= count:
            raise TraceError(
                f"the scheduler was called more often than the {count} times that this run has: "
                "expected one call for each of the model's passes"
            )
        if self._probe is not None:
            self._probe.leave()
        if self._after_step is not None:
            maps, opened = (
                call.current_maps(),
                self._family.unpack(latents, call.latent),
            )
            state = StepState(call.moment, opened, self._predicted, maps)
            latents = self._family.pack(self._after_step(state))
        call.leave()
        if call.is_drawn and not base.announces_end(self._pipe):
            self._end()
        return latents

    def _end(self) -> None:
        self._hooks.end_call()
        self._encodings, self._frame = [], None
        if not self._calls or self._calls[-1].over:
            return
        call = self._calls[-1]
        call.end()
        self._predicted = None
        self._hooks.model_pass.layout = CROSS_ATTENTION  # no row is edited any more
        for warning in call.omissions():
            warn(warning)
