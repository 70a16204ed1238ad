"""An open recording: what is installed in a pipeline, what it does as the pipeline runs.

It puts a processor of its own in front of the processor of every text cross-attention layer
(`installation`) and listens to what the pipeline encodes (`encodings`). From the queries and keys
that the picture is made with it computes the probabilities of the wanted tokens beside it, and
keeps their means over the axes that were not asked for.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np
import torch

from heedmap.backends import base, latents, loading, prompts, schedules
from heedmap.backends.base import GridShape, put
from heedmap.backends.processors import (
    Record,
    RecordingProcessor,
    install,
    run_uncompiled,
    uncompiled,
)
from heedmap.backends.prompts import Encoding
from heedmap.backends.registry import (
    check_served,
    cross_attention_layers,
    family_of,
    grids,
    guard,
    self_attention_layers,
)
from heedmap.backends.schedules import check_forwards, skipping_tools
from heedmap.errors import (
    ArgumentError,
    NothingRecordedError,
    TraceError,
    listed,
    quoted,
    size_text,
    warn,
)
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.mathematics.probabilities import Scores
from heedmap.mathematics.rules import Site
from heedmap.options import AXES, Axis
from heedmap.recording import concepts
from heedmap.recording.calls import Call, SideName, Wanted, sides
from heedmap.recording.concepts import concept_side
from heedmap.recording.edits import rules_of, warn_of_idle
from heedmap.recording.interventions import Intervention
from heedmap.recording.steering import Now, Steerer, Steering
from heedmap.text.weights import unread_weights

WARN = 256 * 2**20
"""Bytes from which on a trace says beforehand how much it will keep."""


def check_heads(heads: Collection[int], keep: Collection[Axis]) -> None:
    """Raise an ArgumentError if layers with different numbers of heads are to be averaged.

    Args:
        heads: the numbers of heads of the layers.
        keep: the axes to keep, among them "head" and not "layer".
    """
    if len(set(heads)) > 1:
        raise ArgumentError(
            "the layers have different numbers of heads: heads cannot be kept while layers are "
            f"averaged; take keep={quoted([one for one in AXES if one in {'layer', *keep}])}"
        )


def check_limit(calls: Sequence[Call], wanted: Wanted) -> None:
    """Raise if the last of these calls would keep more than may be kept in all; warn if it is much.

    Raises:
        ArgumentError: if it would.
    """
    kept, size = sum(call.size for call in calls), calls[-1].size
    if kept > wanted.limit:
        need, limit = size_text(kept), size_text(wanted.limit)
        raise ArgumentError(
            f"keep={quoted(sorted(wanted.keep))} would take {need}, and the limit is {limit}: keep "
            "fewer axes, or pass a higher limit"
        )
    if size > WARN:
        warn(
            f"keep={quoted(sorted(wanted.keep))} will take {size_text(size)} of memory: keep "
            "fewer axes if that is too much"
        )


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


class Trace:
    """An open recording; made by `trace`. `maps` has one entry an image, in the order of images."""

    def __init__(self, pipe: Any, wanted: Wanted, intervention: Intervention) -> None:
        check_served(pipe)
        self._pipe = pipe
        self._wanted = wanted
        self._intervention, self._probe = intervention, intervention.probe
        self._family = family_of(pipe)
        steering = Steering({}) if intervention.edits else intervention.steering
        self.steerer = Steerer(steering, self._now) if steering else None
        """What was changed, and how much; None without steering."""
        self.predicted: torch.Tensor | None = None
        """What the model takes the latents (B, C, h, w) to be without their noise, while
        `after_step` is called; None where that cannot be told, or was not asked for."""
        self._installation = Installation(pipe, self.steerer)
        self._layers = self._installation.layers
        if "head" in wanted.keep and "layer" not in wanted.keep:
            check_heads({layer.heads for layer in self._layers.values()}, wanted.keep)
        self._calls: list[Call] = []
        self._warnings: set[str] = set()
        self._open = False

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"<Trace of a {type(self._pipe).__name__}: {state}, calls: {len(self._calls)}>"

    # --- what was recorded ---

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """One recording an image, in the order of the images, over all calls so far."""
        return self._recordings("conditional")

    @property
    def negative_recordings(self) -> tuple[Recording, ...]:
        """The same of the negative branch, where it was asked for."""
        return self._recordings("negative")

    @property
    def maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of each image, in the order of the images, over all calls so far."""
        return tuple(HeatMaps(recording) for recording in self.recordings)

    @property
    def negative_maps(self) -> tuple[HeatMaps, ...]:
        """The same of the words of the negative prompt, where that branch was asked for."""
        return tuple(HeatMaps(recording) for recording in self.negative_recordings)

    @property
    def concept_recordings(self) -> tuple[Recording, ...]:
        """The same of the concepts, where some were asked for."""
        return self._recordings("concepts")

    @property
    def concept_maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of the concepts, each one word, where some were asked for."""
        return tuple(HeatMaps(recording) for recording in self.concept_recordings)

    def tell_halves(self) -> None:
        """Tell apart what both halves of the steps draw; before the first call."""
        self._wanted = replace(self._wanted, halves=True)

    def halves(self, name: SideName) -> Sequence[Mapping[GridShape, np.ndarray]]:
        """What both halves of the steps of the last call drew (`Halves.of`), of its first image."""
        halves = self._done()[-1].sides[name].tally.halves
        return () if halves is None else halves.of(0)

    @property
    def steps(self) -> int:
        """How many steps the last call has in all."""
        return self._done()[-1].steps

    @property
    def sites(self) -> list[Site]:
        """The layers of the last call at each of its steps."""
        return self._done()[-1].sites

    def so_far(self, image: int, tokens: Sequence[int]) -> np.ndarray:
        """Where watched tokens act, as far as the open run has come: (2, h, w), for a blend.

        The refined maps of the tokens (`refining`), added up whatever their signs, and the plain
        ones: the mean over layers, heads and steps that is carried. Before the later half of the
        run, in which there is a refined one, both are plain. What is kept for the maps plays no
        part in it.
        """
        return self._calls[-1].so_far(image, tokens)

    def _done(self) -> list[Call]:
        """The calls that drew something; of the last one what it has left while it runs."""
        # What ran the model and never called the scheduler drew nothing (a mask of DiffEdit's).
        found = [call for call in self._calls if call.started and call.done]
        if found and not self._open and not found[-1].over:
            found.pop()  # it failed
        if not found:
            raise NothingRecordedError(
                "nothing was recorded: call the pipeline inside of the `with` block of the trace"
            )
        return found

    def _recordings(self, name: SideName) -> tuple[Recording, ...]:
        done = self._done()
        if name == "concepts" and not self._wanted.concepts:
            raise NothingRecordedError(
                "no concepts were recorded: pass some to the trace, as in concepts=['sky']"
            )
        if name != "concepts" and name not in self._wanted.branches:
            raise NothingRecordedError(
                f"the {name} branch was not recorded: pass branches including '{name}' to the trace"
            )
        heads = {path: layer.heads for path, layer in self._layers.items()}
        side = self._family.cell_side(self._pipe)
        return tuple(
            call.recording(name, image, heads, side, self._wanted.keep)
            for call in done
            for image in range(call.images)
        )

    # --- install and restore ---

    def __enter__(self) -> "Trace":
        if self._open:
            raise TraceError("this trace is open already: open it once, or make another")
        try:
            self._install()
        except BaseException:
            self._restore()
            raise
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self._calls:
            self._settle(self._calls[-1])
        self._restore()
        if kind is None and self._intervention.edits:
            for call in self._calls:
                if call.started and call.over:
                    call.sides["conditional"].check(self._layers, call.skipping)
                    warn_of_idle(self._intervention.edits, call.edited, call.sites)

    @property
    def guided(self) -> bool:
        """Whether the last call read a negative prompt beside the prompt (an empty one, too)."""
        encoding = self._calls[-1].encoding if self._calls else None
        return encoding is not None and encoding.negative is not None

    def _install(self) -> None:
        silence = ExitStack()
        silence.enter_context(loading.silence_logs(self._pipe))
        self._installation.also(silence.close)
        self._installation.put(self._record, self._before_pass)
        if self._probe is not None:
            self._probe.attach(self._layers, self._installation.also)
        negative = "negative" in self._wanted.branches
        self._installation.also(
            prompts.watch(
                *(self._pipe, self._wanted.prompts, negative, self._begin, self._end),
                concepts=self._wanted.concepts,
            )
        )

    def _restore(self) -> None:
        self._open = False
        self._installation.take_off()

    # --- while it runs ---

    def _begin(self, encoding: Encoding) -> None:
        """A call of the pipeline begins: its prompts, as the text encoder read them."""
        if len(base.active_calls(self._pipe)) > 1:
            raise TraceError(
                f"{type(self._pipe).__name__} was called from within its own call, whose maps "
                "would be lost: call it after the other has ended"
            )
        several = len(encoding.conditional.tables) > 1
        if several and base.made_from(self._pipe, self._family.source_first):
            raise TraceError(
                f"{type(self._pipe).__name__} draws one picture a call, and was given "
                f"{len(encoding.conditional.tables)} prompts: call it once for each"
            )
        for branch in filter(None, (encoding.conditional, encoding.negative)):
            for table in branch.tables:
                weights = "" if self._wanted.weights_read else unread_weights(table.prompt)
                for said in filter(None, (table.unread, weights)):
                    if said not in self._warnings:
                        self._warnings.add(said)
                        warn(said)
        last = self._calls[-1] if self._calls else None
        if last is not None and not last.started and not last.over:
            last.read.append(encoding)
        else:
            if last is not None and not self._settle(last):
                self._calls.pop()  # it failed
            running = base.active_calls(self._pipe)
            self._calls.append(Call([encoding], frame=running[0] if running else None))
        asked = self._intervention.predicts
        self._installation.listen(self._after_call, self._before_call if asked else None)

    def _settle(self, call: Call) -> bool:
        """End a call that did not say that it ended; return whether it ended well.

        Some pipelines return latents without letting go of their models, and a denoising loop of
        the user's own says nothing.
        """
        if not call.over and call.started and (call.frame is None or base.returned(call.frame)):
            self._end()
        return call.over

    @uncompiled
    def _before_pass(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """The model is about to run: which step this is, and the latent's true size."""
        self._installation.follow()
        self._installation.check()
        if not self._calls or self._calls[-1].over:
            raise TraceError(
                "the model ran before the pipeline of this trace encoded a prompt: call that very "
                "pipeline, with the prompt as text, inside of the trace"
            )
        call = self._calls[-1]
        sample, now, states = self._family.passed(args, kwargs)
        timestep = torch.as_tensor(now).flatten()
        if bool((timestep != timestep[0]).any()):
            raise TraceError(
                f"{type(self._pipe).__name__} runs several timesteps in one batch, so the rows of "
                "its model are not the pictures: expected a pipeline that draws step by step"
            )
        if not call.started:
            try:
                self._start(call, sample, states, float(timestep[0]))
            except BaseException:
                self._calls.pop()  # refused: the next call is read anew
                raise
        call.enter(states, float(timestep[0]), self._pipe, self._family)
        if self._probe is not None:
            self._probe.enter(call)

    def _before_call(self, *args: Any, **kwargs: Any) -> None:
        """The scheduler is about to be given what the model made of the latents."""
        self.predicted = latents.predicted(*args, **kwargs)

    def _after_call(self, latents: torch.Tensor) -> torch.Tensor:
        """The scheduler made new latents."""
        call = self._calls[-1] if self._calls else None
        if call is None or call.over or not call.started:
            return latents
        schedule = call.schedule
        assert schedule is not None
        if call.done >= len(schedule.timesteps):
            raise TraceError(
                f"the scheduler was called more often than the {len(schedule.timesteps)} times "
                "that this run has: expected one call for each of the model's passes"
            )
        moment = call.moment
        if self._probe is not None:
            self._probe.leave()
        if self._intervention.after_step is not None:
            latents = self._intervention.after_step(self, moment, latents)
        call.leave()
        if call.done == len(schedule.timesteps) and not base.says_end(self._pipe):
            self._end()
        return latents

    def _end(self) -> None:
        """End the present call: the pipeline has finished."""
        self._installation.leave_own()
        if not self._calls:
            return
        call = self._calls[-1]
        call.end()
        side = call.sides.get("conditional")
        if call.skipping and side is not None and (skipped := side.incomplete(self._layers)):
            steps = {step for found in skipped.values() for step in found}
            warn(
                f"{listed(call.skipping, 'and')} skipped {len(skipped)} of {len(self._layers)} "
                f"layers at {len(steps)} of {len(side.passes)} steps: the map of each layer is its "
                "mean over the steps at which it ran"
            )

    def _now(self) -> Now | None:
        """Where the run is, for rules; None where no row reads the prompt."""
        call = self._calls[-1]
        if not call.blocks:
            return None
        rows = tuple(block * call.images for block in call.blocks)
        moment = call.moment
        return Now(rows, moment.step, moment.steps, call.grids)

    def _start(
        self, call: Call, sample: torch.Tensor, states: torch.Tensor, timestep: float
    ) -> None:
        """Before the first step of a call: the latent is sound, and what is kept fits."""
        if not bool(sample.isfinite().all()):
            raise ArgumentError(
                "the latents hold NaN or Inf before the first step: expected finite numbers; look "
                "at the latents or the picture that the pipeline was given"
            )
        call.choose(states)
        call.latent = (sample.shape[-2], sample.shape[-1])
        call.grids = grids(self._pipe, self._layers, call.latent)
        assert call.encoding is not None
        call.skipping = skipping_tools(self._family.denoiser(self._pipe), self._layers)
        # Layers that may be skipped are averaged when it is known at which steps each ran.
        layer: frozenset[Axis] = frozenset(("layer",))
        keep = self._wanted.keep | layer if call.skipping else self._wanted.keep
        call.sides = sides(call.encoding, self._wanted, keep)
        concept = concept_side(call.encoding, self._wanted, self._layers, self._pipe, keep)
        call.sides |= {} if concept is None else {"concepts": concept}
        watch = self._intervention.watch
        call.watched = [tuple(watch.get(image, ())) for image in range(call.images)]
        own = grids(self._pipe, self._installation.own, call.latent)
        self._installation.hear_own(concepts.refine(call, own), self._carry)
        schedule = schedules.announced(self._pipe, timestep)
        heads = {name: layer.heads for name, layer in self._layers.items()}
        call.size = call.bytes(keep, heads, schedule.count)
        check_limit(self._calls, self._wanted)
        call.schedule = schedule
        if self._intervention.edits and self.steerer is not None:
            h, w = call.latent
            side = self._family.cell_side(self._pipe)
            call.edited = [
                [rules_of(edit, table, (w * side, h * side)) for edit in self._intervention.edits]
                for table in call.encoding.conditional.tables
            ]
            rules = {n: [r for some in of for r in some] for n, of in enumerate(call.edited)}
            self.steerer.steering = Steering(rules)

    def _record(self, name: str, scores: Scores) -> None:
        """A cross-attention layer has run, for all rows of the batch."""
        concepts.hear(self._calls[-1], name, scores, self.steerer)
        if self._probe is not None:
            self._probe.hear(name, scores, self.steerer)
        if self.steerer is not None:
            self.steerer.forget()

    def _carry(self, name: str, scores: Scores) -> None:
        """A self-attention layer of a middle grid has run."""
        concepts.carry(self._calls[-1], name, scores)
