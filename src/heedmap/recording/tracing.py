"""Record the text cross-attention of a pipeline, and edit it, while a `with` block is open.

A trace puts a processor in front of each text cross-attention layer's own
(`backends.tap`), watches the prompts that the pipeline encodes (`backends.prompts`) and the
calls of its scheduler (`backends.schedules`). Each pass of the model goes `Trace._before_pass` →
`Trace._observe` → `Recorder` → `Record.compute`; `Recorder.recording` makes the result.
"""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from heedmap.backends import base, prompts, registry
from heedmap.backends.base import Arguments, Pipeline, heads_of
from heedmap.backends.joint import JointFamily
from heedmap.backends.noise_levels import predicted
from heedmap.backends.prompts import Encoding
from heedmap.backends.schedules import (
    TimestepReader,
    one_timestep,
    rounding_of,
    schedule_of,
)
from heedmap.backends.tap import ModelPass, Observer
from heedmap.checks import as_ordered_list
from heedmap.errors import (
    ArgumentError,
    HeedmapError,
    NothingRecordedError,
    TraceError,
    format_bytes,
    quoted,
    warn,
)
from heedmap.maps.budgets import Budget
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.maps.text_attention import TextAttention
from heedmap.mathematics.events import (
    CROSS_ATTENTION,
    AttentionEvent,
    Layout,
)
from heedmap.mathematics.rules import Rule
from heedmap.options import (
    BranchName,
    GenerateOptions,
    Keep,
    Places,
    ShareOf,
    Tokens,
)
from heedmap.recording.calls import Call
from heedmap.recording.controller import AttentionController, Steering
from heedmap.recording.edits import (
    Edit,
    checked_edits,
    rules_of,
    warn_of_idle,
    within,
)
from heedmap.recording.guidance import LatentGuide
from heedmap.recording.hooks import TraceHooks
from heedmap.recording.probing import Probe
from heedmap.recording.recorder import Recorder, RecordingSpec, RecordName
from heedmap.recording.steps import AfterStep, StepState
from heedmap.text.weights import unread_weights


def trace(
    pipe: Pipeline,
    keep: Keep = GenerateOptions.keep,
    *,
    tokens: Tokens = GenerateOptions.tokens,
    branches: Iterable[BranchName] = GenerateOptions.branches,
    concepts: Sequence[str] = GenerateOptions.concepts,
    places: Places = GenerateOptions.places,
    reads: bool = GenerateOptions.reads,
    prompts: str | Sequence[str] | None = None,
    share_of: ShareOf = GenerateOptions.share_of,
    budget: bool = GenerateOptions.budget,
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
        places: pixels, boxes and masks, as in `generate`: what they read of the image
            (`Trace.place_maps`). The mask of a word is not known here.
        reads: as in `generate` (`HeatMaps.reads`, `Trace.text_attention`).
        prompts: if you call the pipeline with `prompt_embeds`: the texts they were encoded from.
            Without them, maps are labelled by token position.
        share_of: as in `generate`.
        budget: as in `generate`, for `Trace.budgets`.
        limit: the number of bytes that may be kept in all, 2 GiB by default; a run that would keep
            more is refused before its first step.
        edits: changes of the attention of every prompt, as in `generate`. The images then differ,
            and the maps are of the edited attention. Weights that are written into a prompt, as
            `(word:1.5)`, are not read here: pass `Reweight`.

    Returns:
        A context manager. `maps`, `negative_maps`, `concept_maps`, `place_maps` and `steps` can be
        read during and after the `with` block; and of reference images, such as Flux Kontext's,
        `reference_maps`. The probabilities are in `maps[0].recording`.

    Raises:
        ArgumentError: if an axis, a branch, the choice of tokens or an edit is not known, or a
            concept or a place is none, or cannot be recorded.
        ModelError: if the model has no text cross-attention.
    """
    options = GenerateOptions(
        keep=keep,
        tokens=tokens,
        branches=branches,
        concepts=concepts,
        places=places,
        reads=reads,
        share_of=share_of,
        budget=budget,
        limit=limit,
    )
    texts = [prompts] if isinstance(prompts, str) else as_ordered_list(prompts or [])
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f"prompts is {quoted(prompts)}: expected a list of texts")
    spec = RecordingSpec(options, None if prompts is None else tuple(texts))
    return Trace(pipe, spec, edits=checked_edits(edits))


def observe(
    pipe: Pipeline,
    observer: Observer,
    *,
    edits: Iterable[Edit] = (),
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
    spec = RecordingSpec(GenerateOptions(branches=()))
    return Trace(pipe, spec, edits=checked_edits(edits), observers=[observer])


@dataclass(eq=False, repr=False)
class Trace:
    """The recording that `trace` opens: a context manager, with one entry for each image.

    The entries are in the order of the images, over all calls of the pipeline so far. Maps that
    were not recorded raise a NothingRecordedError.

    A call of the pipeline is encoded (its text is known), then running (from its first pass on),
    then over: when the pipeline frees its models, when the next call begins, or at the end of the
    block. A call that an exception ends before its last step is dropped; one that is interrupted
    has the maps of the steps that ran.

    Attributes:
        pipe: the pipeline.
        spec: the axes, tokens, branches and concepts to record.
        edits: those of each prompt, made into rules once it is read.
        steering: edits that act before these.
        steered: the prompts that the steering is made for.
        after_step: called after every call of the scheduler.
        probe: ends the run when it has its numbers.
        observers: get each event after the recorder.
        guide: changes the latents before the model's pass of each step.
        controller: the edits, and their effect; None without edits.
    """

    pipe: Any
    spec: RecordingSpec = field(default_factory=RecordingSpec)
    edits: tuple[Edit, ...] = ()
    steering: Steering | None = None
    steered: Sequence[str] | None = None
    after_step: AfterStep | None = None
    probe: Probe | None = None
    observers: Sequence[Observer] = ()
    guide: LatentGuide | None = None

    def __post_init__(self) -> None:
        spec = self.spec
        self._family = registry.check_served(self.pipe)
        if spec.options.concepts and self._family.concepts_refusal:
            raise ArgumentError(self._family.concepts_refusal)
        self._check_places()
        self._predicted: Tensor | None = None
        self._observers_of_call: Sequence[Observer] = ()
        if self.edits and self.steering is None:
            self.steering = Steering({})
        self._pass = ModelPass()
        self.controller: AttentionController | None = None
        if self.steering is not None:
            self.controller = AttentionController(self.steering, self._pass)
        self._hooks = TraceHooks(self._family, self.controller, self._pass)
        several = len({*map(heads_of, self._hooks.layers.values())}) > 1
        if several and "head" in spec.keep and "layer" not in spec.keep:
            raise ArgumentError(
                "the layers have different numbers of heads, so that heads cannot be kept while "
                "layers are averaged: keep 'layer', too"
            )
        # Of the call that is encoded, and has not run the model yet.
        self._encodings: list[Encoding] = []
        self._frame: FrameType | None = None
        self._timesteps = TimestepReader(self.pipe)
        self._recorders: list[Recorder] = []  # of the calls that run or are over
        self._open = False

    def _check_places(self) -> None:
        """Raise an ArgumentError if the attention of places or words cannot be recorded."""
        family = self._family
        spec = self.spec
        places = spec.options.places
        if places and not (family.is_joint or family.image_layers()):
            raise ArgumentError(
                f"{type(self.pipe).__name__} has no attention of the image to itself with "
                "probabilities (that of Sana is linear), so that places have no maps: leave "
                "places out"
            )
        if spec.options.reads and not family.is_joint:
            raise ArgumentError(
                f"in the layers of {type(self.pipe).__name__} the image attends to the words, and "
                "the words to nothing: leave reads out, or take a model whose text and image share "
                "one softmax (as 'joint')"
            )
        words = [place for place in places if isinstance(place, str)]
        if words and not spec.masks:
            raise ArgumentError(
                f"the mask of {quoted(words[0])} is known only when the image is drawn: pass that "
                "of an earlier run, as places=[run.maps['house'].mask()], or call hm.generate"
            )

    # --- what was recorded ---

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """The probabilities of each image, at the axes that were kept (`HeatMaps.recording`)."""
        return self._recordings("conditional")

    @property
    def maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of each image."""
        maps = map(HeatMaps, self.recordings)
        if not self.spec.options.reads:
            return tuple(maps)
        pairs = zip(maps, self._recordings("reads"), strict=True)
        return tuple(replace(one, reading=reading) for one, reading in pairs)

    @property
    def text_attention(self) -> tuple[TextAttention, ...]:
        """The attention of the tokens of the prompt to each other, of each image."""
        return tuple(map(TextAttention, self._recordings("text")))

    @property
    def negative_maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of the negative prompt's words, of each image."""
        return tuple(map(HeatMaps, self._recordings("negative")))

    @property
    def concept_maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of the concepts, each one word, of each image."""
        return tuple(map(HeatMaps, self._recordings("concepts")))

    @property
    def place_maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of what places read of the image, each one word, of each image."""
        return tuple(map(HeatMaps, self._recordings("places")))

    @property
    def reference_maps(self) -> tuple[tuple[HeatMaps, ...], ...]:
        """The heat maps of the reference images of each image: where the words read these."""
        return self._of_references(int)

    @property
    def reference_place_maps(self) -> tuple[tuple[HeatMaps, ...], ...]:
        """The heat maps of what places read of the reference images of each image."""
        return self._of_references(tuple)

    def _of_references(self, kind: type) -> tuple[tuple[HeatMaps, ...], ...]:
        images: list[tuple[HeatMaps, ...]] = []
        for recorder in self._done():
            names: list[Any] = [
                name for name in recorder.records if isinstance(name, kind)
            ]
            for image in range(recorder.call.images):
                parts = [recorder.recording(name, image) for name in names]
                images.append(tuple(map(HeatMaps, parts)))
        return tuple(images)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budget of attention of each image."""
        return tuple(map(Budget, self._recordings("budget")))

    @property
    def steps(self) -> int:
        """The number of steps of the last call."""
        return self._done()[-1].call.schedule.count

    @property
    def guided(self) -> bool:
        """True if the last call used a negative prompt, also an empty one: with guidance."""
        return bool(self._recorders) and self._recorders[-1].call.guided

    def _done(self) -> list[Recorder]:
        """Return the recorders of the calls that drew something."""
        # A call that never called the scheduler drew nothing (a mask of DiffEdit's).
        done = [recorder for recorder in self._recorders if recorder.call.done]
        if not done:
            raise NothingRecordedError(
                "nothing was recorded: call the pipeline inside of the `with` block of the trace"
            )
        return done

    def _recordings(self, name: RecordName) -> tuple[Recording, ...]:
        done = self._done()
        if name not in done[-1].records:
            raise NothingRecordedError(
                f"no {name} of this call were recorded: pass branches, concepts, places or reads "
                "that have them"
            )
        return tuple(
            recorder.recording(name, image)
            for recorder in done
            for image in range(recorder.call.images)
        )

    # --- install and restore ---

    def __enter__(self) -> "Trace":
        if self._open:
            raise TraceError(
                "this trace is open already: open it once, or make another"
            )
        try:
            self._install()
        except BaseException:
            self._hooks.remove()
            raise
        self._open = True
        return self

    def _install(self) -> None:
        spec = self.spec
        hooks = self._hooks
        undo = hooks.undo.callback
        hooks.install(self._observe, self._before_pass, self._after_pass)
        if spec.options.concepts and isinstance(self._family, JointFamily):
            for name, block in self._family.blocks().items():
                after = partial(self._after_block, name)
                undo(block.register_forward_hook(after, with_kwargs=True).remove)
        if self.probe is not None:
            self.probe.attach(hooks.layers, undo)
        prompts.watch(
            self._family,
            spec.prompts,
            "negative" in spec.options.branches,
            self._begin,
            self._end,
            concepts=spec.options.concepts,
            is_sampling=self._is_sampling,
            undo=undo,
        )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
            elif self._running() is not None:
                self._recorders.pop()
        finally:
            self._open = False
            self._observers_of_call = ()
            self._hooks.remove()
        if kind is None and self.edits:
            for recorder in self._recorders:
                for name in recorder.records:
                    recorder.check(name)
                call = recorder.call
                warn_of_idle(self.edits, call.edited, call.sites)

    # --- the life of a call ---

    def _running(self) -> Call | None:
        """Return the call that runs; None if the last one is over."""
        call = self._recorders[-1].call if self._recorders else None
        return None if call is None or call.over else call

    def _is_sampling(self) -> bool:
        """Return whether the pipeline runs in the midst of the steps of the last call."""
        call = self._running()
        if call is None or call.is_drawn:
            return False
        return base.active_calls(self.pipe) == [call.frame]

    def _is_in_own_loop(self) -> bool:
        """Return whether the last call is a denoising loop of the user's own, between its steps."""
        call = self._running()
        if call is None or call.frame is not None:
            return False
        return call.done > 0 and not call.is_drawn

    def _begin(self, encoding: Encoding) -> None:
        """Take the text of a call that the pipeline has encoded."""
        running = base.active_calls(self.pipe)
        kind = type(self.pipe).__name__
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
        self._warn_of_unread(encoding)
        if not running and self._is_in_own_loop():
            # The next pass tells whether the run goes on.
            self._encodings.append(encoding)
            return
        if not self._encodings:
            self._finish()
        self._encodings.append(encoding)
        self._frame = running[0] if running else None
        self._listen()

    def _warn_of_unread(self, encoding: Encoding) -> None:
        branches = filter(None, (encoding.conditional, encoding.negative))
        tables = [table for branch in branches for table in branch.tables]
        warnings = [table.unread for table in tables]
        if not self.spec.weights_read:
            warnings += [unread_weights(table.prompt) for table in tables]
        for warning in filter(None, dict.fromkeys(warnings)):
            warn(warning)

    def _listen(self) -> None:
        """Listen to the scheduler of the call that begins."""
        shows_steps = self.after_step is not None and "step" in self.spec.keep
        before_step = self._before_scheduler if shows_steps else None
        guide = None if self.guide is None else self.guide.step
        self._hooks.begin_call(self._after_scheduler, before_step, guide)

    def _finish(self) -> None:
        """End the last call, if it has not said so; drop it if it failed.

        Some pipelines return latents without freeing their models, and a denoising loop of the
        user's own says nothing.
        """
        call = self._running()
        if call is None:
            return
        if call.is_drawn or call.frame is None:
            self._end()
        else:
            self._recorders.pop()

    def _end(self) -> None:
        """End the last call."""
        self._hooks.end_call()
        self._encodings = []
        self._frame = None
        if self._running() is None:
            return
        recorder = self._recorders[-1]
        try:
            recorder.end()
        except HeedmapError:
            self._recorders.pop()  # its maps would be wrong
            raise
        self._predicted = None
        self._pass.layout = CROSS_ATTENTION  # no row is edited any more
        for warning in recorder.omissions():
            warn(warning)

    # --- pass by pass ---

    def _before_pass(
        self,
        model: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        self._hooks.check()
        inputs = dict(zip(self._family.inputs, args, strict=False)) | kwargs
        sample, now, states = self._family.model_inputs(inputs)
        timesteps = torch.as_tensor(now).flatten()
        error = max(rounding_of(timesteps), self._family.timestep_error)
        call = self._running()
        timestep = self._timesteps.known(timesteps)
        if timestep is None and call is not None and not self._encodings:
            timestep = call.next_timestep(timesteps, error)
        if timestep is None:
            timestep = one_timestep(self.pipe, timesteps.tolist())
        is_inside = bool(self._encodings) and self._is_in_own_loop()
        if is_inside and call is not None and call.is_next(states, timestep, error):
            self._encodings = []  # the text of the run, encoded once more
        if self._encodings:
            call = self._start(sample, inputs, states, timestep, error)
        elif call is None:
            raise TraceError(
                "the model ran before the pipeline of this trace encoded a prompt: call that very "
                "pipeline, with the prompt as text, inside of the trace"
            )
        else:
            call.begin_pass(states, timestep, error)
        recorder = self._recorders[-1]
        recorder.begin_pass(self._family.repeats(inputs))
        self._pass.layout = call.layout
        self._pass.grids = call.grids
        self._pass.step = call.moment.step
        self._pass.steps = call.schedule.count
        self._pass.is_recorded = recorder.is_recording
        if self.guide is None:
            return None
        latents = self.guide.latents(model, inputs, self._guiding)
        if latents is None:
            return None
        if args:
            return (latents, *args[1:]), kwargs
        return (), {**kwargs, self._family.inputs[0]: latents}

    @contextmanager
    def _guiding(self, layout: Layout) -> Iterator[None]:
        """Let the guide alone observe passes within the block, whose rows have this layout."""
        recorder = self._recorders[-1]
        call = recorder.call
        before = call.layout, recorder.rows, self._observers_of_call
        call.layout = self._pass.layout = layout
        recorder.rows = {}
        self._observers_of_call = self._observers_of_call[-1:]
        self._pass.is_recorded = False
        try:
            yield
        finally:
            call.layout, recorder.rows, self._observers_of_call = before
            self._pass.layout = call.layout
            self._pass.is_recorded = recorder.is_recording

    @torch.no_grad()
    def _after_pass(self, *_: Any) -> None:
        self._recorders[-1].end_pass()
        if self.guide is not None:
            self.guide.end_pass()

    def _start(
        self,
        sample: Tensor,
        inputs: Arguments,
        states: Tensor,
        timestep: float,
        error: float,
    ) -> Call:
        """Begin to run the call that was encoded."""
        encodings = self._encodings
        self._encodings = []
        if self._is_in_own_loop():
            self._finish()
            self._listen()
        if not bool(sample.isfinite().all()):
            raise ArgumentError(
                "the latents hold NaN or Inf before the first step: expected finite numbers; look "
                "at the latents or the image that the pipeline was given"
            )
        encoding = prompts.encoding_of(encodings, states)
        self._check_text(encoding)
        hooks = self._hooks
        call = Call(
            self._family,
            encoding,
            schedule_of(self.pipe, timestep, error),
            self._family.latent(inputs),
            hooks.layers,
            branches=self.spec.options.branches,
            frame=self._frame,
            references=self._family.references(inputs),
        )
        call.check_images(states, sample)
        call.begin_pass(states, timestep, error)
        recorder = Recorder(call, self.spec, hooks.layers, hooks.self_layers)
        of_call: list[Observer] = [recorder]
        size = sum(one.nbytes for one in [*self._recorders, recorder])
        limit = self.spec.options.limit
        if size > limit:
            raise ArgumentError(
                f"the maps would take {format_bytes(size)}, and the limit is "
                f"{format_bytes(limit)}: keep fewer axes, or pass a higher limit"
            )
        if self.controller is not None and registry.control_reads_text(self.pipe):
            warn(
                "the ControlNet reads the whole prompt by attention of its own, where edits and "
                "weights do not act: give it less part in the image by a smaller "
                "controlnet_conditioning_scale, or leave a word out of the prompt"
            )
        self._make_rules(call, encoding)
        self._recorders.append(recorder)
        if self.probe is not None:
            of_call.append(partial(self.probe.record, recorder))
        of_call.extend(self.observers)
        if self.guide is not None:
            self.guide.begin(call)
            of_call.append(self.guide.observe)
        self._observers_of_call = of_call
        hooks.install_self_attention(
            recorder.propagating,
            recorder.observe_image,
            needs_all=bool(self.spec.options.places) and not self._family.is_joint,
        )
        return call

    def _check_text(self, encoding: Encoding) -> None:
        """Raise an error if edits would act on other tokens than those that they are made for."""
        if encoding.conditional.shifted and self.steered is not None:
            raise ArgumentError(
                f"{type(self.pipe).__name__} pads the prompts of a batch in front, which moves "
                "the tokens of the shorter ones, so that an edit would act on others: expected "
                "prompts that are as long, up to a multiple of 16 tokens"
            )
        texts = [table.prompt for table in encoding.conditional.tables]
        if self.steered not in (None, texts):
            raise ArgumentError(
                f"the weights and edits are for {quoted(self.steered)}, and the model reads "
                f"{quoted(texts)}: leave out what changes the prompt (such as prompt_2, "
                "caption_upsample_temperature, enable_prompt_rewrite and use_pe), or pass edits to "
                "hm.generate, which find words in what is read"
            )

    def _make_rules(self, call: Call, encoding: Encoding) -> None:
        """Make the rules of each prompt: those of the edits, and those of the steering."""
        steering = self.steering
        if steering is None or self.controller is None:
            return
        sites = call.select(steering.selection)
        rules: dict[int, list[Rule]] = {}
        edited: list[list[list[Rule]]] = []
        for image, table in enumerate(encoding.conditional.tables):
            of_image: Any = steering.rules.get(image, ())
            if image in steering.sources:
                of_image = within(of_image, sites)
            of_edits, by_edit = rules_of(self.edits, table, call.size, call.select)
            edited.append(by_edit)
            rules[image] = [*of_image, *of_edits]
        call.edited = edited
        self.controller.steering = replace(steering, rules=rules, sites=sites)

    def _observe(self, event: AttentionEvent) -> None:
        """Give the observers the event of a layer that attends to the text."""
        self._recorders[-1].call.check_shape(event)
        for observer in self._observers_of_call:
            observer(event)

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
        processor = self._hooks.installed[name]
        self._recorders[-1].record_concepts(block, arguments, processor)

    # --- step by step ---

    def _before_scheduler(self, *args: Any, **kwargs: Any) -> None:
        self._predicted = predicted(*args, **kwargs)

    def _after_scheduler(self, latents: Tensor) -> Tensor:
        call = self._running()
        if call is None or (self._encodings and not self._is_in_own_loop()):
            return latents
        if call.is_drawn:
            raise TraceError(
                f"the scheduler was called more often than the {call.done} times that this run "
                "has: expected one call for each of the model's passes"
            )
        if self.probe is not None:
            self.probe.leave()
        recorder = self._recorders[-1]
        if self.after_step is not None:
            state = StepState(
                call.moment,
                self._family.unpack(latents, call.latent),
                self._predicted,
                cache(recorder.current_maps),
            )
            latents = self._family.pack(self.after_step(state))
        call.done += 1
        return latents
