"""One call of a pipeline within a trace: its position in the schedule, and its records."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from heedmap.backends.base import Family, GridShape
from heedmap.backends.joint import JointFamily
from heedmap.backends.prompts import Encoding, foreign_states
from heedmap.backends.schedules import SAME, Moment, Schedule, matches
from heedmap.backends.skipping import skipping_tools
from heedmap.backends.tap import RecordingProcessor
from heedmap.errors import NothingRecordedError, TraceError, plural
from heedmap.maps.recordings import AVERAGED, Layer, Recording, cells
from heedmap.mathematics.events import AttentionEvent, Layout
from heedmap.mathematics.probabilities import columns
from heedmap.mathematics.rules import Rule, Site
from heedmap.options import Axis, BranchName, GenerateOptions, ShareOf, Tokens
from heedmap.recording.accumulation import (
    AttentionAccumulator,
    ConceptKeys,
    RefinedMaps,
    coarsened,
    evenly_chosen,
    is_propagated,
    middle_grid,
    propagation_layers,
    regrid,
    shares_of_text,
)
from heedmap.recording.concepts import ConceptStreams
from heedmap.recording.controller import RunPosition
from heedmap.recording.grouping import RecordSums
from heedmap.text.concepts import checked_concepts
from heedmap.text.words import TokenTable


@dataclass(frozen=True)
class RecordingSpec:
    """A choice of axes, tokens, branches and so on to record, as `trace` describes them.

    Attributes:
        weights_read: whether weights that are written in the prompts were read before.
    """

    keep: frozenset[Axis] = frozenset({"layer"})
    tokens: Tokens = GenerateOptions.tokens
    branches: frozenset[BranchName] = frozenset({"conditional"})
    concepts: tuple[str, ...] = ()
    share_of: ShareOf = GenerateOptions.share_of
    limit: int = GenerateOptions.limit
    prompts: tuple[str, ...] | None = None
    weights_read: bool = False

    @classmethod
    def of(cls, options: GenerateOptions, **more: Any) -> "RecordingSpec":
        """Return the spec of the options of a call, with more of its attributes."""
        values = {
            "keep": frozenset(options.keep),
            "tokens": options.tokens,
            "branches": frozenset(options.branches),
            "concepts": checked_concepts(options.concepts),
            "share_of": options.share_of,
            "limit": options.limit,
        }
        return cls(**{**values, **more})


RecordName = BranchName | Literal["concepts", "outputs"]
"""The records of a call: one for each branch of a guided run, one for the concepts, and one for the
similarities of outputs of two or more concepts, where attention is joint."""


@dataclass(eq=False)
class BranchRecord:
    """The attention, or the similarities, recorded so far by one of a call's records.

    Attributes:
        tables: the words of each image.
        sums: the sums of the probabilities.
        keep: the axes that are not averaged during the run.
        concept_keys: of the concepts, where the text has a softmax of its own.
        concept_streams: of the concepts, where attention is joint.
        block: that of the model's batch which is recorded in this pass; None if none is.
        recorded: whether a pass was recorded since the scheduler was last called.
        timesteps: that of each step at which the branch ran.
        passes: the number of passes that were recorded at each step.
        ran: how often each layer ran in these, by layer and step.
    """

    tables: tuple[TokenTable, ...]
    sums: RecordSums
    keep: frozenset[Axis]
    concept_keys: ConceptKeys | None = None
    concept_streams: ConceptStreams | None = None
    block: int | None = None
    recorded: bool = False
    timesteps: dict[int, float] = field(default_factory=dict)
    passes: Counter[int] = field(default_factory=Counter)
    ran: Counter[tuple[str, int]] = field(default_factory=Counter)

    def incomplete(
        self, layers: Collection[str], skippable: bool = False
    ) -> dict[str, list[int]]:
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


class Call:
    """One call of the pipeline, from its first pass on: its position, and its records so far.

    Mappings by name are by the dotted path of a layer, grids are (h, w).

    Args:
        map_tokens: for some images the tokens of `current_maps`.
        frame: that of the pipeline's method; None where the user wrote the denoising loop.

    Attributes:
        images: the number of images.
        guided: whether it reads a negative prompt beside the prompt.
        grids: those of the cross-attention layers.
        skipping: the tools that may skip layers at some steps.
        propagating: the layers along which maps are propagated, with their grids: self-attention
            layers, or joint ones, by the part of their softmax that the image's keys have.
        edited: for each image the rules of each edit.
        done: the number of calls of the scheduler.
        over: whether the pipeline has finished.
    """

    def __init__(
        self,
        family: Family,
        spec: RecordingSpec,
        encoding: Encoding,
        schedule: Schedule,
        latent: GridShape,
        layers: Mapping[str, Any],
        self_layers: Iterable[str],
        *,
        map_tokens: Mapping[int, Sequence[int]] | None = None,
        frame: FrameType | None = None,
    ) -> None:
        self.family, self.spec, self.schedule = family, spec, schedule
        self.latent, self.frame = latent, frame
        self.encoding: Encoding | None = encoding  # until it is over
        self.images, self.guided = (
            len(encoding.conditional.tables),
            encoding.negative is not None,
        )
        negative_apart = encoding.negative if family.runs_negative_apart else None
        if negative_apart and torch.equal(
            encoding.conditional.states, negative_apart.states
        ):
            raise TraceError(
                "the prompt and the negative prompt have the same text states (they are the same "
                "text, or differ past the last token that is read), so that their passes cannot be "
                "told apart: change what is read of one of them, or switch guidance off with "
                f"{family.negative_guidance}=1"
            )
        self.heads = {name: layer.heads for name, layer in layers.items()}
        self.grids = {name: family.grid(name, latent) for name in layers}
        self.skipping = skipping_tools(family.model, layers)
        self_grids = {name: family.grid(name, latent) for name in self_layers}
        if family.is_joint:
            self.propagating = {
                name: self.grids[name] for name in evenly_chosen([*self.grids])
            }
        else:
            names = propagation_layers(self_grids, self.grids)
            self.propagating = {name: self_grids[name] for name in names}
        self.edited: Sequence[Sequence[Sequence[Rule]]] = ()
        self.done, self.over = 0, False
        # Of the model's batch that read the prompt in this pass.
        self.blocks: Sequence[int] = ()
        self.layout = Layout()  # of this pass
        self._rows = self._tokens = 0  # of the batch and of the text of this pass
        self._passes = 1  # of this step
        # Text states that were compared, with their version and the blocks in them.
        self._compared: list[tuple[torch.Tensor, int, dict[str, list[int]]]] = []
        self._groups = family.groups(list(layers))
        self._of_text = spec.share_of == "text"
        w, h = cells(latent)  # on the latent's grid layers would be resized twice
        # Layers that may be skipped are averaged when it is known at which steps each ran.
        layer: frozenset[Axis] = frozenset({"layer"} if self.skipping else ())
        grid = next(map(coarsened, self.propagating.values()), None)

        tables: dict[RecordName, Sequence[TokenTable]] = {}
        if "conditional" in spec.branches:
            tables["conditional"] = encoding.conditional.tables
        if "negative" in spec.branches:
            if encoding.negative is None:
                raise TraceError(
                    "the negative branch was asked for, but this call has none (guidance is off, "
                    f"or embedded in the model): pass {family.negative_guidance} above 1, or leave "
                    "it out"
                )
            tables["negative"] = encoding.negative.tables
        if encoding.concepts:
            tables["concepts"] = [TokenTable.of_texts(spec.concepts)] * self.images
            if family.is_joint and len(spec.concepts) > 1:
                tables["outputs"] = tables["concepts"]
        padding = ("pad",) if spec.tokens == "all" else ()
        self.records: dict[RecordName, BranchRecord] = {}
        for name, each in tables.items():
            positions = [
                table.positions("start", "text", "end", *padding) for table in each
            ]
            dropped = {"head"} if name == "outputs" else ()  # an output has them all
            keep = (spec.keep | layer).difference(dropped)
            means = AttentionAccumulator(keep, (h, w))
            refined = None if grid is None or name == "outputs" else RefinedMaps(grid)
            sums = RecordSums(dict(enumerate(positions)), means, refined)
            self.records[name] = BranchRecord(tuple(each), sums, keep)
        if encoding.concepts and isinstance(family, JointFamily):
            if self.skipping:
                raise TraceError(
                    f"{' and '.join(self.skipping)} may skip layers, and concepts need each block "
                    "to run once more: switch it off, or leave concepts out"
                )
            streams = ConceptStreams(family, encoding.concepts)
            for name in tables.keys() & {"concepts", "outputs"}:
                self.records[name].concept_streams = streams
        elif encoding.concepts:
            keys = ConceptKeys(layers, encoding, family.project_text)
            self.records["concepts"].concept_keys = keys
        some = {n: tokens for n, tokens in (map_tokens or {}).items() if tokens}
        # The sums of their maps, which do not depend on what is kept.
        self._current: RecordSums | None = None
        if some:
            # Where no layer propagates maps, plain ones are asked for, on such a grid.
            grid = grid or middle_grid(self.grids.values()) or max(self.grids.values())
            self._current = RecordSums(some, None, RefinedMaps(grid))

    @property
    def sites(self) -> list[Site]:
        """Its layers at each of its steps."""
        steps = self.schedule.count
        every = [
            (name, grid, step)
            for name, grid in self.grids.items()
            for step in range(steps)
        ]
        return [Site(name, step, steps, grid) for name, grid, step in every]

    @property
    def is_drawn(self) -> bool:
        """Whether its last step is over."""
        return self.done == len(self.schedule.timesteps)

    @property
    def moment(self) -> Moment:
        """The next call of the scheduler."""
        return self.schedule.moment(self.done)

    @property
    def position(self) -> RunPosition | None:
        """The position of the run for rules; None where no row reads the prompt."""
        rows = tuple(block * self.images for block in self.blocks)
        if not rows:
            return None
        record = self.records.get("conditional")
        is_recorded = record is not None and record.block is not None
        return RunPosition(rows, self.moment.step, self.schedule.count, is_recorded)

    @property
    def nbytes(self) -> int:
        """The number of bytes that it keeps when it is over."""
        size = 0
        for record in self.records.values():
            by_layer, by_head = "layer" in record.keep, "head" in record.keep
            mean_grid = cells(self.latent)[::-1]
            each = [
                math.prod(self.grids[name] if by_layer else mean_grid)
                * (count if by_head else 1)
                for name, count in self.heads.items()
            ]
            steps = self.schedule.count if "step" in record.keep else 1
            tokens = sum(map(len, record.sums.tokens.values()))
            size += 4 * (sum(each) if by_layer else max(each)) * steps * tokens
        return size

    def layer(self, name: str) -> Layer:
        """Return the description of a layer."""
        return Layer(
            name, self.heads[name], self.grids[name], self._groups.get(name, "")
        )

    # --- pass by pass ---

    def enter(
        self,
        states: torch.Tensor,
        timestep: float,
        repeats: bool = False,
        error: float = SAME,
    ) -> None:
        """Begin a pass of the model on text states (n·B, K, C): find the rows of each branch.

        A pass that `repeats` is a further one of its step, which is not recorded. The timestep has
        a relative `error`, by its rounding.

        Raises:
            TraceError: if it is not a pass of this call on the image's own latents.
        """
        assert self.encoding is not None
        pipe = type(self.family.pipe).__name__
        blocks = self._blocks_in(states)
        self._rows, self._tokens = states.shape[:2]
        is_foreign = self._rows > self.images * len({*chain(*blocks.values())})
        needed = {"conditional", *self.records} & {"conditional", "negative"}
        if is_foreign and needed - blocks.keys():
            raise foreign_states(
                states
            )  # none of a branch, and some that nobody encoded
        if not matches(self.schedule, self.done, timestep, error):
            raise TraceError(
                f"the model ran at timestep {timestep:g}, which is not that of call "
                f"{self.done + 1} of {len(self.schedule.timesteps)} of this run's scheduler: "
                "expected the passes of this image alone (another pipeline on the same model? or "
                f"does {pipe} draw several views, or change its schedule on the way?)"
            )
        self.blocks = blocks.get("conditional", [])
        source_first = self.family.has_quirk("source_first")
        if source_first:
            self.blocks = self.blocks[-1:]
        self.layout = self._layout_of(blocks)
        step = self.moment.step
        self._passes = self.schedule.steps.count(step)
        for name, record in self.records.items():
            candidates = blocks.get(name, []) if name == "negative" else self.blocks
            record.block = candidates[-1 if source_first else 0] if candidates else None
            if record.block is None:
                continue
            if record.concept_streams is not None:
                record.concept_streams.begin()
            if record.recorded:
                if not (repeats or self.family.has_quirk("repeats_passes")):
                    raise TraceError(
                        f"{pipe} ran its model twice on this prompt before the scheduler went on, "
                        "and heedmap cannot tell which of the two draws the image: expected one "
                        "pass a step (another pipeline on the same model? an optimisation of the "
                        "latents?)"
                    )
                record.block = None
                continue
            record.recorded = True
            record.timesteps.setdefault(step, self.schedule.timesteps[self.done])
            record.passes[step] += 1

    def _layout_of(self, blocks: Mapping[str, Sequence[int]]) -> Layout:
        """Return the layout of this pass, with the image and the branch of each row."""
        positions = math.prod(next(iter(self.grids.values())))
        layout = self.family.layout(self._rows, self._tokens, positions)
        branches = {block: name for name, some in blocks.items() for block in some}
        rows = [
            replace(
                row, image=n % self.images, branch=branches.get(n // self.images, "")
            )
            for n, row in enumerate(layout.rows)
        ]
        return replace(layout, rows=tuple(rows))

    def is_next(self, states: torch.Tensor, timestep: float, error: float) -> bool:
        """Return whether a pass on these text states at this timestep continues the call."""
        if not matches(self.schedule, self.done, timestep, error):
            return False
        return bool(self._blocks_in(states))

    def _blocks_in(self, states: torch.Tensor) -> dict[str, list[int]]:
        """Return the blocks of each branch in text states, which are compared by value.

        A tensor that nobody has written to since it was compared is not compared again, since the
        host would wait for the device.
        """
        assert self.encoding is not None
        version = -1 if states.is_inference() else states._version
        for known, its_version, blocks in self._compared:
            if known is states and its_version == version >= 0:
                return blocks
        blocks = self.encoding.blocks_in(states)
        self._compared = [*self._compared[-3:], (states, version, blocks)]
        return blocks

    def record(self, event: AttentionEvent) -> None:
        """Add the attention of a layer that attends to the text, in all rows.

        Raises:
            TraceError: if it ran for other rows or positions than were expected.
        """
        name = event.layer
        self._check_shape(event)
        for branch, record in self.records.items():
            if record.block is None:
                continue
            first = record.block * self.images
            if record.concept_streams is not None:
                record.concept_streams.keep(event)
            elif record.concept_keys is not None:
                each = record.concept_keys.probabilities(event, first)
                self._add(record, event.site, each)
            else:
                record.ran[name, event.site.step] += 1
                for image in range(self.images):
                    self._add_row(record.sums, image, event, first + image)
                if branch == "conditional" and self._current is not None:
                    for image in self._current.tokens:
                        self._add_row(self._current, image, event, first + image)
        if event.layout.joint:
            self.propagate(event)

    def _check_shape(self, event: AttentionEvent) -> None:
        name = event.layer
        h, w = event.site.grid
        rows, _, queries, _ = event.query.shape
        keys = event.key.shape[2]
        positions = queries
        if event.layout.joint:
            if queries != keys:
                raise TraceError(
                    f"{type(self.family.pipe).__name__} computes attention of {queries} queries to "
                    f"{keys} keys: expected those of text and image"
                )
            positions = keys - self._tokens
        if rows != self._rows:
            raise TraceError(
                f"{name} computed attention for {rows} rows where the model was given "
                f"{self._rows}: heedmap cannot tell which image each row belongs to; switch off "
                "the tool that leaves out a part of the batch"
            )
        if positions != h * w:
            raise TraceError(
                f"{name} ran on {positions} positions, but its grid is {h}×{w} = {h * w}: remove "
                "what merges tokens or rescales the layer's input"
            )

    def _add_row(
        self, sums: RecordSums, image: int, event: AttentionEvent, number: int
    ) -> None:
        """Add one row of an event, with its edits."""
        passes = self._passes
        edited = event.edited.get(number)
        if edited is None:
            row = event.row(number, values=False)
            sums.add(image, event, row, passes, of_text=self._of_text)
            return
        _, p = edited.pair()
        if self._of_text:
            p = shares_of_text(p[..., : self._tokens])
        p = columns(p, sums.tokens[image])
        sums.add_probabilities(image, event.site, p, passes)

    def record_concepts(
        self,
        name: str,
        block: Any,
        arguments: Mapping[str, Any],
        recorder: RecordingProcessor,
    ) -> None:
        """Add the attention to the concepts in a joint block that has just run, by its layer."""
        record = self.records["concepts"]
        if record.concept_streams is not None and record.block is not None:
            first, positions = record.block * self.images, math.prod(self.grids[name])
            site = Site(name, self.moment.step, self.schedule.count, self.grids[name])
            streams = record.concept_streams
            every, similarities = streams.run(
                block, arguments, recorder, positions, first, self._of_text
            )
            self._add(record, site, every)
            if similarities:
                self._add(self.records["outputs"], site, similarities)

    def _add(self, record: BranchRecord, site: Site, each: Sequence[Tensor]) -> None:
        """Add the probabilities of each image in a layer to a record."""
        record.ran[site.layer, site.step] += 1
        for image, p in enumerate(each):
            record.sums.add_probabilities(image, site, p, self._passes)

    def propagate(self, event: AttentionEvent) -> None:
        """Propagate the maps so far along a layer of the image's attention that has just run."""
        name, step = event.layer, self.moment.step
        if name not in self.propagating or not is_propagated(step, self.schedule.count):
            return
        grid = self.propagating[name]
        rows, _, queries, _ = event.query.shape
        is_known = event.layout.joint and name in self.grids
        if not is_known:
            # Tokens may be merged, or another image's keys may stand beside the image's own
            # (StyleAligned): then positions are unknown, and the call has no refined maps.
            is_known = queries == math.prod(grid) == event.key.shape[2]
            is_known = is_known and event.mask is None
        if not is_known:
            for record in self.records.values():
                record.sums.refined = None
            return
        for branch, record in self.records.items():
            if record.block is None:
                continue
            current = self._current if branch == "conditional" else None
            for image in range(self.images):
                number = record.block * self.images + image
                for sums in (record.sums, current):
                    if sums is not None and number < rows:
                        row = event.row(number, values=False)
                        sums.propagate(image, row, grid, self._passes)

    def current_maps(self) -> dict[int, dict[int, np.ndarray]]:
        """Return by image and token, of `map_tokens`, the maps so far (2, h, w).

        They are refined and plain; both are plain before maps are propagated.
        """
        current = self._current
        if current is None or current.refined is None:
            return {}
        maps: dict[int, dict[int, np.ndarray]] = {}
        for image, tokens in current.tokens.items():
            planes = np.moveaxis(current.refined.current(image), -1, 0)
            maps[image] = dict(zip(tokens, planes, strict=True))
        return maps

    def compute(self) -> None:
        """Compute what the pass that has ended holds."""
        for record in self.records.values():
            record.sums.compute()
        if self._current is not None:
            self._current.compute()

    def leave(self) -> None:
        """End a pass: the scheduler was called."""
        self.done += 1
        for record in self.records.values():
            record.recorded = False

    # --- the result ---

    def end(self) -> None:
        """End the call, and release the text states."""
        self.over, self.frame, self.encoding = True, None, None
        self._compared = []
        keys = (
            self.records["concepts"].concept_keys
            if "concepts" in self.records
            else None
        )
        for record in self.records.values():
            record.concept_keys = record.concept_streams = None
        if keys is not None:
            keys.check()

    def check(self, name: RecordName) -> None:
        """Raise a TraceError unless every layer was recorded at every step that ran."""
        odd = self.records[name].incomplete(self.heads, bool(self.skipping))
        if odd:
            layer, steps = next(iter(odd.items()))
            raise TraceError(
                f"{plural(len(odd), 'layer')} of {len(self.heads)} did not run exactly once in "
                f"each pass of the model: {layer} at step {', '.join(map(str, steps))}; the maps "
                "would be wrong. A cache or a tool that skips or replaces attention is in use: "
                "switch it off"
            )

    def omissions(self) -> Iterator[str]:
        """Yield a warning if no pass read the prompt, or a branch skipped layers, at some steps."""
        steps = {*self.schedule.steps[: self.done]}
        for name in ("conditional", "negative"):
            record = self.records.get(name)
            if record is None or not record.ran:
                continue
            # Guidance may be off at some steps, and then the negative branch does not run.
            if name == "conditional" and steps - record.passes.keys():
                yield (
                    f"the model read the prompt at {len(record.passes)} of {len(steps)} steps: the "
                    "maps are means over these"
                )
            skipped = record.incomplete(self.heads) if self.skipping else {}
            if skipped:
                count = len({*chain(*skipped.values())})
                yield (
                    f"{' and '.join(self.skipping)} skipped {len(skipped)} of {len(self.heads)} "
                    f"layers of the {name} branch at {count} of {len(record.passes)} steps: the "
                    "map of each layer is its mean over the steps at which it ran"
                )

    def recording(self, name: RecordName, image: int) -> Recording:
        """Return the recording of one image.

        Raises:
            NothingRecordedError: if the branch, or none of its layers, ran.
            TraceError: if its attention holds NaN or Inf, or layers are missing.
        """
        record, keep = self.records[name], self.spec.keep
        sums, refined = record.sums.sums, record.sums.refined
        assert sums is not None
        self.check(name)
        if not record.ran:
            why = "guidance was off throughout"
            if record.timesteps:
                why = f"{' and '.join(self.skipping)} skipped all of its layers: switch it off"
            raise NothingRecordedError(
                f"nothing of the {name} branch was recorded: {why}"
            )
        ran = {layer for layer, _ in record.ran}
        names = (
            [layer for layer in self.heads if layer in ran]
            if "layer" in sums.keep
            else [""]
        )
        steps = tuple(record.timesteps) if "step" in keep else (0,)
        tensors: list[torch.Tensor] = []
        for layer in names:
            means = sums.mean(image, layer, steps)
            if layer and "layer" not in keep:
                flat = regrid(means.flatten(0, 1), self.grids[layer], sums.mean_grid)
                means = flat.unflatten(0, means.shape[:2])
            tensors.append(means)
        arrays = copied(tensors)
        for layer, array in zip(names, arrays, strict=True):
            if not np.isfinite(array).all():
                raise TraceError(
                    f"the attention of {layer or 'the model'} holds NaN or Inf, probably because "
                    "the latents do: load the model with dtype 'float32' if it overflows"
                )
        layers = tuple(self.layer(layer) for layer in names if layer)
        if "layer" not in keep:
            arrays = [np.mean(arrays, axis=0) if len(arrays) > 1 else arrays[0]]
            layers = (Layer(AVERAGED, max(self.heads.values()), sums.mean_grid),)
        (h, w), side = self.latent, self.family.cell_side
        similar = self.records.get("outputs") if name == "concepts" else None
        outputs = (
            self.recording("outputs", image).arrays if similar and similar.ran else ()
        )
        return Recording(
            layers,
            tuple(arrays),
            keep,
            tuple(record.timesteps.values()),
            tuple(record.sums.tokens[image]),
            record.tables[image],
            self.latent,
            (w * side, h * side),
            None if refined is None else refined.value(image),
            self.spec.share_of if self.family.is_joint else None,
            outputs,
        )


def copied(tensors: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """Return tensors as arrays of the host, by one copy from their device."""
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu().numpy()
    ends = np.cumsum([tensor.numel() for tensor in tensors])[:-1]
    parts = np.split(flat, ends)
    return [part.reshape(one.shape) for part, one in zip(parts, tensors, strict=True)]
