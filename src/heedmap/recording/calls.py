"""One call of a pipeline within a trace: its position in the schedule, and its records."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, get_args

import numpy as np
import torch

from heedmap import checks
from heedmap.backends.base import Family, GridShape, made_from
from heedmap.backends.prompts import Encoding
from heedmap.backends.registry import check_places
from heedmap.backends.schedules import Moment, Schedule, matches
from heedmap.errors import ArgumentError, NothingRecordedError, TraceError, plural, quoted
from heedmap.io.schemas import MAX_WHOLE
from heedmap.maps.recordings import AVERAGED, Layer, Recording
from heedmap.mathematics.probabilities import Scores
from heedmap.mathematics.rules import Rule, Site
from heedmap.options import AXES, Axis, BranchName, GenerateOptions, Keep, Tokens
from heedmap.recording.accumulation import (
    AttentionAccumulator,
    ConceptKeys,
    RefinedMaps,
    is_propagated,
    regrid,
    row_probabilities,
)
from heedmap.recording.steering import AttentionController, RunPosition
from heedmap.text.concepts import checked_concepts
from heedmap.text.words import TokenTable


@dataclass(frozen=True)
class RecordingSpec:
    """A choice of axes, tokens, branches and so on to record, as `trace` describes them."""

    keep: frozenset[Axis] = frozenset({"layer"})
    tokens: Tokens = GenerateOptions.tokens
    branches: frozenset[BranchName] = frozenset({"conditional"})
    concepts: tuple[str, ...] = ()
    limit: int = GenerateOptions.limit
    prompts: tuple[str, ...] | None = None
    split_halves: bool = False  # sum up the even and the odd steps, too
    weights_read: bool = False  # whether weights written in the prompts were read before

    @classmethod
    def checked(
        cls,
        keep: Keep,
        tokens: Tokens,
        branches: Iterable[BranchName],
        concepts: Sequence[str],
        limit: int,
        prompts: str | Sequence[str] | None = None,
    ) -> "RecordingSpec":
        """Return the spec of a user's arguments; ArgumentError if one is not valid."""
        axes = frozenset(checks.any_of("keep", keep, AXES))
        checks.one_of("tokens", tokens, get_args(Tokens))
        names = frozenset(checks.any_of("branches", branches, get_args(BranchName), least=1))
        checks.whole("limit", limit, least=1, most=MAX_WHOLE)
        texts = [prompts] if isinstance(prompts, str) else checks.in_order(prompts or [])
        if texts is None or not all(isinstance(text, str) for text in texts):
            raise ArgumentError(f"prompts is {quoted(prompts)}: expected a list of texts")
        rest = checked_concepts(concepts), limit, None if prompts is None else tuple(texts)
        return cls(axes, tokens, names, *rest)


RecordName = BranchName | Literal["concepts"]
"""The records of a call: one for each branch of a guided run, and one for the concepts."""


@dataclass(eq=False)
class BranchRecord:
    """The attention recorded so far of one branch of a call, or of the concepts."""

    tables: tuple[TokenTable, ...]  # for each image its words
    accumulator: AttentionAccumulator
    refined: RefinedMaps | None = None  # None where no layer propagates maps
    concept_keys: ConceptKeys | None = None  # None for a branch
    block: int | None = None  # of the model's batch, recorded in this pass; None if none is
    recorded: bool = False  # since the scheduler was last called
    timesteps: dict[int, float] = field(default_factory=dict)  # of each step at which it ran
    passes: Counter[int] = field(default_factory=Counter)  # of the model, recorded at each step
    ran: Counter[tuple[str, int]] = field(default_factory=Counter)  # of these, by layer and step

    def incomplete(self, layers: Collection[str], skippable: bool = False) -> dict[str, list[int]]:
        """Return, by layer, the steps at which it did not run exactly once in each pass.

        Where layers are skippable, a step at which a layer never ran is complete.
        """
        odd = {
            name: [
                step
                for step, passes in self.passes.items()
                if (ran := self.ran[name, step]) != passes and (ran or not skippable)
            ]
            for name in layers
        }
        return {name: steps for name, steps in odd.items() if steps}

    def check(self, layers: Collection[str], skippable: bool) -> None:
        """Raise a TraceError unless every layer was recorded at every step that ran."""
        odd = self.incomplete(layers, skippable)
        if odd:
            name, steps = next(iter(odd.items()))
            raise TraceError(
                f"{plural(len(odd), 'layer')} of {len(layers)} did not run exactly once in each "
                f"pass of the model: {name} at step {', '.join(map(str, steps))}; the maps would "
                "be wrong. A cache or a tool that skips or replaces attention is in use: switch it "
                "off"
            )


@dataclass(eq=False)
class Call:
    """One call of the pipeline, from its first pass on: its position, and its records so far.

    Mappings by name are by the dotted path of a layer, grids are (h, w).
    """

    pipe: Any
    family: Family
    encoding: Encoding
    schedule: Schedule
    latent: GridShape
    mean_grid: GridShape  # to which layers are resized where they are averaged
    keep: frozenset[Axis]
    heads: Mapping[str, int]  # of each cross-attention layer, in the order of the model
    grids: Mapping[str, GridShape]
    skipping: tuple[str, ...] = ()  # tools that may skip layers at some steps
    records: dict[RecordName, BranchRecord] = field(default_factory=dict)
    propagating: Mapping[str, GridShape] = field(default_factory=dict)  # self-attention layers
    map_tokens: Mapping[int, Sequence[int]] = field(default_factory=dict)  # for each image
    token_maps: RefinedMaps | None = None  # of these; what is kept does not change them
    edited: Sequence[Sequence[Sequence[Rule]]] = ()  # for each image, the rules of each edit
    frame: FrameType | None = None  # None where the user wrote the denoising loop
    done: int = 0  # calls of the scheduler
    over: bool = False  # the pipeline has finished
    blocks: Sequence[int] = ()  # of the model's batch that read the prompt in this pass
    rows: int = 0  # of the batch of this pass

    @property
    def images(self) -> int:
        """The number of images that it draws."""
        return len(self.encoding.conditional.tables)

    @property
    def sites(self) -> list[Site]:
        """Its layers at each of its steps."""
        steps = self.schedule.count
        every = [(name, grid, step) for name, grid in self.grids.items() for step in range(steps)]
        return [Site(name, step, steps, grid) for name, grid, step in every]

    @property
    def moment(self) -> Moment:
        """The next call of the scheduler."""
        return self.schedule.moment(self.done)

    @property
    def position(self) -> RunPosition | None:
        """The position of the run for rules; None where no row reads the prompt."""
        rows = tuple(block * self.images for block in self.blocks)
        step = self.moment.step
        return RunPosition(rows, step, self.schedule.count, self.grids) if rows else None

    @property
    def nbytes(self) -> int:
        """The number of bytes that it keeps when it is over."""
        size = 0
        for sums in (record.accumulator for record in self.records.values()):
            each = [
                math.prod(self.grids[name] if "layer" in sums.keep else sums.mean_grid)
                * (count if "head" in sums.keep else 1)
                for name, count in self.heads.items()
            ]
            cells = sum(each) if "layer" in sums.keep else max(each)
            steps = self.schedule.count if "step" in sums.keep else 1
            size += 4 * cells * steps * sum(map(len, sums.positions))
        return size

    # --- pass by pass ---

    def enter(self, states: torch.Tensor, timestep: float) -> None:
        """Begin a pass of the model on text states (n·B, K, C): find the rows of each branch.

        Raises:
            TraceError: if it is not a pass of this call on the image's own latents.
        """
        pipe, family = type(self.pipe).__name__, self.family
        # Compared by value in every pass: a callback may change the text states in place.
        blocks = self.encoding.blocks_in(states)
        self.rows = len(states)
        count = self.rows // self.images
        if "conditional" not in blocks and len(blocks.get("negative", ())) < count:
            raise _foreign(states)  # none of the prompt, and some that nobody encoded
        if not matches(self.schedule, self.done, timestep):
            raise TraceError(
                f"the model ran at timestep {timestep:g}, which is not that of call "
                f"{self.done + 1} of {len(self.schedule.timesteps)} of this run's scheduler: "
                "expected the passes of this image alone (another pipeline on the same model? or "
                f"does {pipe} draw several views, or change its schedule on the way?)"
            )
        self.blocks = blocks.get("conditional", [])
        source_first = made_from(self.pipe, family.source_first)
        if source_first:
            self.blocks = self.blocks[-1:]
        step = self.moment.step
        for name, record in self.records.items():
            candidates = blocks.get(name, []) if name == "negative" else self.blocks
            record.block = candidates[-1 if source_first else 0] if candidates else None
            if record.block is None:
                continue
            if record.recorded and not made_from(self.pipe, family.repeats_passes):
                raise TraceError(
                    f"{pipe} ran its model twice on this prompt before the scheduler went on, and "
                    "heedmap cannot tell which of the two draws the image: expected one pass a "
                    "step (another pipeline on the same model? an optimisation of the latents?)"
                )
            if record.recorded:
                record.block = None
                continue
            record.recorded = True
            record.timesteps.setdefault(step, timestep)
            record.passes[step] += 1

    def record(self, name: str, scores: Scores, controller: AttentionController | None) -> None:
        """Add the attention of a cross-attention layer that has just run, in all rows.

        Raises:
            TraceError: if it ran for other rows or positions than were expected.
        """
        rows, _, positions, _ = scores.query.shape
        if rows != self.rows:
            raise TraceError(
                f"{name} computed attention for {rows} rows where the model was given {self.rows}: "
                "heedmap cannot tell which image each row belongs to; switch off the tool that "
                "leaves out a part of the batch"
            )
        step = self.moment.step
        passes = self.schedule.steps.count(step)
        site = Site(name, step, self.schedule.count, self.grids[name])
        check_places(name, positions, site.grid)
        for branch, record in self.records.items():
            if record.block is None:
                continue
            record.ran[name, step] += 1
            first = record.block * self.images
            if record.concept_keys is not None:
                every = record.concept_keys.probabilities(name, scores, first)
            else:
                every = [row_probabilities(scores, first + image) for image in range(self.images)]
            for image, p in enumerate(every):
                if branch == "conditional" and controller is not None:
                    p = controller.probabilities(scores, image, name, p)
                recorded = record.accumulator.add(image, site, p, passes)
                if record.refined is not None:
                    record.refined.add(image, recorded, site.grid, passes)
                if branch == "conditional" and self.token_maps and image in self.map_tokens:
                    mean = p.mean(self.map_tokens[image])
                    self.token_maps.add(image, mean, site.grid, passes)

    def propagate(self, name: str, scores: Scores) -> None:
        """Propagate the maps so far along a self-attention layer that has just run."""
        step = self.moment.step
        if name not in self.propagating or not is_propagated(step, self.schedule.count):
            return
        h, w = self.propagating[name]
        rows, _, positions, _ = scores.query.shape
        # Tokens may be merged, or another image's keys may stand beside the image's own
        # (StyleAligned): then positions are unknown, and the call has no refined maps.
        if not positions == h * w == scores.key.shape[2] or scores.mask is not None:
            for record in self.records.values():
                record.refined = None
            return
        passes = self.schedule.steps.count(step)
        for branch, record in self.records.items():
            if record.block is None:
                continue
            token_maps = self.token_maps if branch == "conditional" else None
            for image in range(self.images):
                row = record.block * self.images + image
                for maps in (record.refined, token_maps):
                    if maps is not None and row < rows:
                        maps.propagate(image, scores, row, passes)

    def current_maps(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return the maps so far of the `map_tokens` of each image (`RefinedMaps.current`)."""
        maps = self.token_maps
        return {} if maps is None else {image: maps.current(image) for image in self.map_tokens}

    def leave(self) -> None:
        """End a pass: the scheduler was called."""
        self.done += 1
        for record in self.records.values():
            record.recorded = False

    # --- the result ---

    def recording(self, name: RecordName, image: int) -> Recording:
        """Return the recording of one image.

        Raises:
            NothingRecordedError: if the branch did not run.
            TraceError: if its attention holds NaN or Inf, or layers are missing.
        """
        record, keep = self.records[name], self.keep
        if not record.timesteps:
            raise NothingRecordedError(
                "the negative branch did not run: guidance was off throughout"
            )
        record.check(self.heads, bool(self.skipping))
        ran = {layer for layer, _ in record.ran}
        summed = "layer" in record.accumulator.keep
        names = [layer for layer in self.heads if layer in ran] if summed else [""]
        steps = tuple(record.timesteps) if "step" in keep else (0,)
        arrays = []
        for layer in names:
            means = record.accumulator.mean(image, layer, steps)
            if not bool(means.isfinite().all()):
                raise TraceError(
                    f"the attention of {layer or 'the model'} holds NaN or Inf, so the latents "
                    "did: no map can be made; load the model with dtype 'float32' if it overflows"
                )
            if layer and "layer" not in keep:
                flat = regrid(means.flatten(0, 1), self.grids[layer], self.mean_grid)
                means = flat.unflatten(0, means.shape[:2])
            arrays.append(means.cpu().numpy())
        if "layer" not in keep:
            arrays, names = [np.mean(arrays, axis=0) if len(arrays) > 1 else arrays[0]], [""]
        layers = tuple(Layer(n, self.heads[n], self.grids[n]) for n in names if n)
        (h, w), side = self.latent, self.family.cell_side(self.pipe)
        return Recording(
            layers or (Layer(AVERAGED, max(self.heads.values()), self.mean_grid),),
            tuple(arrays),
            keep,
            tuple(record.timesteps.values()),
            record.accumulator.positions[image],
            record.tables[image],
            self.latent,
            (w * side, h * side),
            None if record.refined is None else record.refined.value(image),
        )


def encoding_read(encodings: Sequence[Encoding], states: torch.Tensor) -> Encoding:
    """Return the encoding that a model's text states (B, K, C) are made of.

    There may be others, encoded by hand before or by a call that failed.

    Raises:
        TraceError: if there is none.
    """
    fitting = []
    for number, encoding in enumerate(encodings):
        blocks = encoding.blocks_in(states)
        if blocks:
            last = max(blocks.get("conditional", [-1]))
            fitting.append((len(encoding.conditional.tables), last, number))
    if not fitting:
        raise _foreign(states)
    return encodings[max(fitting)[2]]


def _foreign(states: torch.Tensor) -> TraceError:
    return TraceError(
        f"the model was given text states of shape {tuple(states.shape)} that are not those of the "
        "prompt: expected the pipeline of this trace to run with what it encoded (another pipeline "
        "on the same model? states changed by a callback?)"
    )
