"""An open recording: what is installed in a pipeline, what it does as the pipeline runs.

It puts a processor of its own in front of the processor of every text cross-attention layer
(`processors`) and listens to what the pipeline encodes (`encodings`). From the queries and keys
that the picture is made with it computes the probabilities of the wanted tokens beside it, and
keeps their means over the axes that were not asked for.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch

from heedmap.attention.probabilities import Scores
from heedmap.attention.rules import Site
from heedmap.errors import ArgumentError, HeedmapWarning, NothingRecordedError, TraceError
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.options import Axis, BranchName, Tokens
from heedmap.recording.calls import Call, middle, sides
from heedmap.recording.edits import Edit, changed_nothing, idle, rules_of
from heedmap.recording.steering import Now, Steerer, Steering
from heedmap.recording.tallies import Tally, plain
from heedmap.wiring import encodings, frames, schedules
from heedmap.wiring.encodings import Encoding
from heedmap.wiring.families import (
    check_places,
    cross_attention_layers,
    family_of,
    grids,
    guard,
    self_attention_layers,
    served,
)
from heedmap.wiring.processors import RecordingProcessor, install, run_uncompiled, uncompiled
from heedmap.wiring.schedules import Moment

WARN = 256 * 2**20
"""Bytes from which on a trace says beforehand how much it will keep."""
AfterStep = Callable[["Trace", Moment, torch.Tensor], torch.Tensor]
"""Called after every call of the scheduler, with the latents; gives those to go on with."""


class Trace:
    """An open recording; made by `trace`. `maps` has one entry an image, in the order of images."""

    def __init__(
        self,
        pipe: Any,
        keep: frozenset[Axis],
        tokens: Tokens,
        branches: frozenset[BranchName],
        prompts: tuple[str, ...] | None,
        limit: int,
        steering: Steering | None,
        watch: Mapping[int, Sequence[int]] | None,
        after_step: AfterStep | None,
        edits: tuple[Edit, ...],
    ) -> None:
        served(pipe)
        self._pipe = pipe
        self._keep = keep
        self._tokens: Tokens = tokens
        self._branches = branches
        self._prompts = prompts
        self._limit = limit
        self._family = family_of(pipe)
        self._layers = cross_attention_layers(pipe)
        self._own = self_attention_layers(pipe) if steering and steering.sources else {}
        self._edits = edits
        steering = Steering({}) if edits else steering
        self.steerer = Steerer(steering, self._now) if steering else None
        """What was changed, and how much; None without steering."""
        self._watch = watch or {}
        self._after_step = after_step
        self._calls: list[Call] = []
        self._installed: dict[str, RecordingProcessor] = {}
        self._in_front: dict[str, list[RecordingProcessor]] = {}  # of self-attention layers
        self._schedulers: list[Any] = []  # that are listened to
        self._undo: list[Callable[[], None]] = []
        self._open = False

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
    def steps(self) -> int:
        """How many steps the last call has in all."""
        schedule = self._done()[-1].schedule
        assert schedule is not None
        return schedule.count

    def so_far(self, image: int, tokens: Sequence[int]) -> torch.Tensor:
        """Where watched tokens act, as far as the open run has come: (h, w), for a blend.

        The mean over steps, heads and the layers of middle resolution (16 to 32 cells on the short
        side; where there are none, the finest), of the summed probabilities of the tokens. What is
        kept for the maps plays no part in it.
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

    def _recordings(self, name: BranchName) -> tuple[Recording, ...]:
        done = self._done()
        if name not in self._branches:
            raise NothingRecordedError(
                f"the {name} branch was not recorded: pass branches including '{name}' to the trace"
            )
        heads = {path: layer.heads for path, layer in self._layers.items()}
        factor = int(getattr(self._pipe, "vae_scale_factor", 8))
        return tuple(
            call.recording(name, image, heads, factor)
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
        self._restore()
        if kind is None:
            self._tell_idle()

    @property
    def guided(self) -> bool:
        """Whether the last call read a negative prompt beside the prompt (an empty one, too)."""
        encoding = self._calls[-1].encoding if self._calls else None
        return encoding is not None and encoding.negative is not None

    def _install(self) -> None:
        steerer = self.steerer
        self._installed = install(
            self._layers, self._record, self._undo.append, steerer and steerer.cross
        )
        self._follow()
        model = self._family.part(self._pipe)
        run_uncompiled(model, self._undo.append)
        handle = model.register_forward_pre_hook(self._before_pass, with_kwargs=True)
        self._undo.append(handle.remove)
        guard(self._pipe, self._undo.append)
        self._undo.append(
            encodings.watch(
                self._pipe, self._prompts, "negative" in self._branches, self._begin, self._end
            )
        )

    def _follow(self) -> None:
        """Stand in front of self-attention too, also where the pipeline has just replaced it.

        Perturbed-attention guidance puts its own processors there for the time of a call.
        """
        if self.steerer is None:
            return
        bare = {
            name: layer
            for name, layer in self._own.items()
            if layer.processor not in self._in_front.get(name, ())
        }
        for name, recorder in install(bare, _ignore, self._undo.append, self.steerer.own).items():
            self._in_front.setdefault(name, []).append(recorder)

    def _restore(self) -> None:
        self._open = False
        self._installed.clear()
        self._in_front.clear()
        self._schedulers.clear()
        first: BaseException | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except BaseException as error:  # the rest must be undone all the same
                first = first or error
        if first is not None:
            raise first

    # --- while it runs ---

    def _begin(self, encoding: Encoding) -> None:
        """A call of the pipeline begins: its prompts, as the text encoder read them."""
        if len(frames.running(self._pipe)) > 1:
            raise TraceError(
                f"{type(self._pipe).__name__} was called from within its own call, whose maps "
                "would be lost: call it after the other has ended"
            )
        last = self._calls[-1] if self._calls else None
        if last is not None and not last.started and not last.over:
            last.read.append(encoding)
        else:
            if last is not None and not last.over:
                self._calls.pop()  # it failed, or was left
            self._calls.append(Call([encoding]))
        if all(self._pipe.scheduler is not other for other in self._schedulers):
            self._schedulers.append(self._pipe.scheduler)
            self._undo.append(schedules.listen(self._pipe.scheduler, self._after_call))

    @uncompiled
    def _before_pass(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """The model is about to run: which step this is, and the latent's true size."""
        self._follow()
        for name, layer in self._layers.items():
            if layer.processor is not self._installed[name]:
                raise TraceError(
                    f"the attention processor of {name} was replaced while the trace was open "
                    "(attention slicing, fused projections, xformers and load_ip_adapter do that): "
                    "do it before the trace is opened"
                )
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
        call.enter(states, float(timestep[0]), self._pipe)

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
        if self._after_step is not None:
            latents = self._after_step(self, moment, latents)
        call.leave()
        if call.done == len(schedule.timesteps) and not frames.says_end(self._pipe):
            call.end()
        return latents

    def _end(self) -> None:
        """The pipeline has finished a call."""
        if self._calls:
            self._calls[-1].end()

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
        call.sides = sides(call.encoding, self._branches, self._tokens == "all", self._keep)
        schedule = schedules.announced(self._pipe, timestep)
        heads = {name: layer.heads for name, layer in self._layers.items()}
        call.size = call.bytes(self._keep, heads, schedule.count)
        kept = sum(other.size for other in self._calls)
        if kept > self._limit:
            raise ArgumentError(
                f"keep={sorted(self._keep)} would take {kept / 2**20:,.0f} MiB, and the limit is "
                f"{self._limit / 2**20:,.0f} MiB: keep fewer axes, or pass a higher limit"
            )
        if call.size > WARN:
            warnings.warn(
                f"keep={sorted(self._keep)} will take {call.size / 2**20:,.0f} MiB of memory",
                HeedmapWarning,
                stacklevel=2,
            )
        if self._watch:
            positions = [tuple(self._watch.get(image, ())) for image in range(call.images)]
            call.watch = Tally(frozenset({"layer"}), positions)
            call.watched = middle(call.grids)
        call.schedule = schedule
        if self._edits and self.steerer is not None:
            h, w = call.latent
            factor = int(getattr(self._pipe, "vae_scale_factor", 8))
            call.edited = [
                [rules_of(edit, table, (w * factor, h * factor)) for edit in self._edits]
                for table in call.encoding.conditional.tables
            ]
            rules = {n: [r for some in of for r in some] for n, of in enumerate(call.edited)}
            self.steerer.steering = Steering(rules)

    def _tell_idle(self) -> None:
        """Warn of edits that did nothing in a call."""
        for call in self._calls:
            if call.schedule is None or not call.over:
                continue
            steps = call.schedule.count
            for number, edit in enumerate(self._edits):
                sites = [
                    Site(name, step, steps, grid)
                    for name, grid in call.grids.items()
                    for step in range(steps)
                ]
                if any(idle(of[number], sites) for of in call.edited):
                    warnings.warn(changed_nothing(edit, steps), HeedmapWarning, stacklevel=3)

    def _record(self, name: str, scores: Scores) -> None:
        """Take in what one layer's attention is made of, for all rows of the batch."""
        call = self._calls[-1]
        _, heads, positions, _ = scores.query.shape
        grid, device = call.grids[name], scores.query.device
        check_places(name, positions, grid)
        step = call.moment.step
        for side in call.sides.values():
            if side.block is None:
                continue
            for image in range(call.images):
                of = plain(scores, side.block * call.images + image)
                conditional = side is call.sides.get("conditional")
                if conditional and self.steerer is not None:
                    of = self.steerer.probabilities(scores, image, name, of)
                side.tally.add(image, name, step, of, heads, grid, call.latent, device)
                watch = call.watch if conditional and name in call.watched else None
                if watch is not None and watch.positions[image]:
                    watch.add(image, name, step, of, heads, grid, call.latent, device)
        if self.steerer is not None:
            self.steerer.forget()


def _ignore(name: str, scores: Scores) -> None:
    """What self-attention is made of is not recorded."""
