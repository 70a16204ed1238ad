"""The recorder: an observer that sums the attention of one call, and makes its recordings."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from heedmap.backends.base import GridShape
from heedmap.backends.joint import JointFamily
from heedmap.backends.prompts import Encoding
from heedmap.backends.skipping import skipping_tools
from heedmap.backends.tap import RecordingProcessor
from heedmap.errors import ArgumentError, NothingRecordedError, TraceError, plural
from heedmap.io.places import Place, check_places, place_labels
from heedmap.io.word_edits import Mask
from heedmap.maps.recordings import AVERAGED, Layer, Recording, cells
from heedmap.mathematics.events import SELF_ATTENTION, AttentionEvent, take
from heedmap.mathematics.probabilities import index_tensor
from heedmap.mathematics.rules import Site
from heedmap.options import Axis, BranchName, GenerateOptions, Share, ShareOf, Tokens
from heedmap.recording.accumulation import (
    AttentionAccumulator,
    RunningMean,
    regrid,
)
from heedmap.recording.calls import Call
from heedmap.recording.concepts import ConceptKeys, ConceptStreams
from heedmap.recording.grouping import RecordSums, max_waiting
from heedmap.recording.places import PlaceQueries, sums_of_queries
from heedmap.recording.refining import (
    PROPAGATION_LAYERS,
    RefinedMaps,
    coarsened,
    evenly_chosen,
    middle_grid,
    propagation_layers,
    propagation_steps,
)
from heedmap.text.concepts import checked_concepts
from heedmap.text.words import TokenKind, TokenTable


@dataclass(frozen=True)
class RecordingSpec:
    """A choice of axes, tokens, branches and so on to record, as `trace` describes them.

    Attributes:
        masks: of each image those of the words among the places.
        weights_read: whether weights that are written in the prompts were read before.
    """

    keep: frozenset[Axis] = frozenset({"layer"})
    tokens: Tokens = GenerateOptions.tokens
    branches: frozenset[BranchName] = frozenset({"conditional"})
    concepts: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    masks: tuple[Mapping[str, Mask], ...] = ()
    reads: bool = False
    share_of: ShareOf = GenerateOptions.share_of
    budget: bool = GenerateOptions.budget
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
            "places": check_places(options.places),
            "reads": options.reads,
            "share_of": options.share_of,
            "budget": options.budget,
            "limit": options.limit,
        }
        return cls(**{**values, **more})

    def places_of(self, image: int) -> list[Place]:
        """Return the places of an image, with the masks of words."""
        masks = self.masks[image] if self.masks else {}
        return [
            masks[place] if isinstance(place, str) else place for place in self.places
        ]


RecordName = (
    BranchName
    | Literal["concepts", "outputs", "places", "reads"]
    | int
    | tuple[Literal["places"], int]
)
"""The records of a call: one for each branch of a guided run, one for the concepts, and one for the
similarities of outputs of two or more concepts, where attention is joint; by its number one for
each reference image, whose positions read the prompt as the image's do; one for the attention of
places to the image, and one for that to each reference image; one for that of words to it."""
_OTHER_RECORDS: tuple[RecordName, ...] = ("outputs", "places", "reads")


def _is_of_places(name: RecordName) -> bool:
    return name == "places" or isinstance(name, tuple)


@dataclass(eq=False)
class Record:
    """The attention, or the similarities, that were recorded so far under one name.

    Attributes:
        tables: the words of each image.
        sums: the sums of the probabilities.
        latent: (h, w) of the image's latent, or of a reference image's.
        layers: those that are recorded, by name.
        current: the sums of the maps that are asked for during the run; None without these.
        block: that of the model's batch which is recorded in this pass; None if none is.
        is_recorded: whether a pass was recorded since the scheduler was last called.
        timesteps: that of each step at which the branch ran.
        passes: the number of passes that were recorded at each step.
        ran: how often each layer ran in these, by layer and step.
    """

    tables: Sequence[TokenTable]
    sums: RecordSums
    latent: GridShape
    layers: Mapping[str, Layer]
    current: RecordSums | None = None
    block: int | None = None
    is_recorded: bool = False
    timesteps: dict[int, float] = field(default_factory=dict)
    passes: Counter[int] = field(default_factory=Counter)
    ran: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def all_sums(self) -> list[RecordSums]:
        """All sums that a pass adds to."""
        return [self.sums] if self.current is None else [self.sums, self.current]

    def incomplete(self, skippable: bool = False) -> dict[str, list[int]]:
        """Return, by layer, the steps at which it did not run exactly once in each pass.

        Where layers are skippable, a step at which a layer never ran is complete.
        """
        result: dict[str, list[int]] = {}
        for name in self.layers:
            for step, passes in self.passes.items():
                ran = self.ran[name, step]
                if ran != passes and (ran or not skippable):
                    result.setdefault(name, []).append(step)
        return result


class Recorder:
    """An observer of one call that sums attention probabilities.

    Args:
        call: the call.
        spec: the axes, tokens, branches and concepts to record.
        layers: the layers that attend to the text, by dotted path.
        self_layers: the self-attention layers.
        map_tokens: for some images the tokens of `current_maps`.

    Attributes:
        skipping: the tools that may skip layers at some steps.
        propagating: the layers along which maps are propagated, with their grids: self-attention
            layers, or joint ones, by the part of their softmax that the image's keys have.
        records: by name.
    """

    def __init__(
        self,
        call: Call,
        spec: RecordingSpec,
        layers: Mapping[str, Any],
        self_layers: Mapping[str, Any],
        map_tokens: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        family = call.family
        self.call = call
        self._spec = spec
        self._of_text = family.is_joint and spec.share_of == "text"
        self.skipping = skipping_tools(family.model, layers)
        self.propagating = _propagating(call, self_layers)
        self._place_layers = call.layers
        if not family.is_joint:
            self._place_layers = call.described(self_layers)
        self._places: PlaceQueries | None = None
        if spec.places:
            h, w = call.latent
            side = family.cell_side
            places = list(map(spec.places_of, range(call.images)))
            self._places = PlaceQueries(places, (w * side, h * side))
        tables = _tables(call, spec)
        grid = next(map(coarsened, self.propagating.values()), None)
        self.records: dict[RecordName, Record] = {
            name: self._record(name, tables[name], grid) for name in tables
        }
        map_tokens = {n: tokens for n, tokens in (map_tokens or {}).items() if tokens}
        if map_tokens and "conditional" in self.records:
            # Where no layer propagates maps, plain ones are asked for, on such a grid.
            grids = call.grids.values()
            grid = grid or middle_grid(grids) or max(grids)
            current = RecordSums(map_tokens, None, RefinedMaps(grid), self._of_text)
            self.records["conditional"].current = current
        # By image the attention (K, K) of its tokens to each other.
        self._text: defaultdict[int, RunningMean] = defaultdict(RunningMean)
        # Layers of the pass that ran, each with whether it attends to the text.
        self._waiting: list[tuple[AttentionEvent, bool]] = []
        self._bytes = 0  # of these
        self._streams: ConceptStreams | None = None
        self._concept_keys: ConceptKeys | None = None
        if "concepts" in tables:
            self._read_concepts(layers)

    def _record(
        self,
        name: RecordName,
        tables: Sequence[TokenTable],
        grid: GridShape | None,
    ) -> Record:
        kinds: list[TokenKind] = ["start", "text", "end"]
        if self._spec.tokens == "all":
            kinds.extend(("image", "pad"))
        positions = {n: table.positions(*kinds) for n, table in enumerate(tables)}
        keep = set(self._spec.keep)
        if self.skipping:  # they are averaged when it is known at which steps each ran
            keep.add("layer")
        refined = None if grid is None else RefinedMaps(grid)
        if name == "outputs":  # an output has all heads
            keep.discard("head")
        if name in _OTHER_RECORDS:
            refined = None
        latent = self.call.latent
        layers = self.call.layers
        reference = name
        if _is_of_places(name):
            layers = self._place_layers
        if isinstance(name, tuple):
            reference = name[1]
        if isinstance(reference, int):
            grid = self.call.references[reference]
            layers = {one: replace(layers[one], grid=grid) for one in layers}
            side = self.call.family.latent_multiple
            latent = (side * grid[0], side * grid[1])
            refined = None
        # On the latent's grid layers would be resized twice.
        w, h = cells(latent)
        means = AttentionAccumulator(frozenset(keep), (h, w))
        sums = RecordSums(positions, means, refined, self._of_text)
        return Record(tables, sums, latent, layers)

    def _read_concepts(self, layers: Mapping[str, Any]) -> None:
        family = self.call.family
        encoding = self.call.encoding
        assert encoding is not None
        if not isinstance(family, JointFamily):
            self._concept_keys = ConceptKeys(layers, encoding, family.project_text)
            return
        if self.skipping:
            raise TraceError(
                f"{' and '.join(self.skipping)} may skip layers, and concepts need each block "
                "to run once more: switch it off, or leave concepts out"
            )
        self._streams = ConceptStreams(family, encoding.concepts)

    @property
    def nbytes(self) -> int:
        """The number of bytes that it keeps when the call is over."""
        size = 0
        for record in self.records.values():
            sums = record.sums.sums
            assert sums is not None
            by_layer = "layer" in sums.keep
            of_layer: list[int] = []
            for layer in record.layers.values():
                grid = layer.grid if by_layer else sums.mean_grid
                heads = layer.heads if "head" in sums.keep else 1
                of_layer.append(math.prod(grid) * heads)
            steps = self.call.schedule.count if "step" in sums.keep else 1
            tokens = sum(map(len, record.sums.tokens.values()))
            layers = sum(of_layer) if by_layer else max(of_layer)
            size += 4 * layers * steps * tokens
        return size

    @property
    def is_recording(self) -> bool:
        """True if this pass is recorded in the rows of the prompt."""
        record = self.records.get("conditional")
        return record is not None and record.block is not None

    # --- pass by pass ---

    def begin_pass(self, repeats: bool = False) -> None:
        """Find the rows that are recorded in the pass that the call has begun.

        A pass that `repeats` is a further one of its step, which is not recorded.

        Raises:
            TraceError: if the model ran before in this step, and that is not known of the pipeline.
        """
        call = self.call
        if "reads" in self.records and call.layout.keys is not None:
            raise ArgumentError(
                f"the words of {type(call.family.pipe).__name__} attend apart from the image and "
                "do not read it: leave reads out"
            )
        step = call.moment.step
        repeats = repeats or call.family.has_quirk("repeats_passes")
        passes = call.schedule.steps.count(step)
        if self._streams is not None:
            self._streams.begin()
        for name, record in self.records.items():
            for sums in record.all_sums:
                sums.begin_pass(passes)
            branch = "negative" if name == "negative" else "conditional"
            record.block = next(iter(call.blocks.get(branch, ())), None)
            if record.block is None:
                continue
            if record.is_recorded and not repeats:
                raise TraceError(
                    f"{type(call.family.pipe).__name__} ran its model twice on this prompt before "
                    "the scheduler went on, and heedmap cannot tell which of the two draws the "
                    "image: expected one pass a step (another pipeline on the same model? an "
                    "optimisation of the latents?)"
                )
            if record.is_recorded:
                record.block = None
                continue
            record.is_recorded = True
            record.timesteps.setdefault(step, call.schedule.timesteps[call.done])
            record.passes[step] += 1

    def __call__(self, event: AttentionEvent) -> None:
        """Add the attention of a layer that attends to the text, in all rows."""
        if self._streams is not None and self.records["concepts"].block is not None:
            self._streams.keep(event)
        self._wait(event, True)

    def _wait(self, event: AttentionEvent, reads_text: bool) -> None:
        """Keep a layer until the pass ends: between two layers, code is slower than in a loop."""
        self._waiting.append((event, reads_text))
        self._bytes += event.nbytes
        if event.edited or self._bytes > max_waiting(event.query.device.type):
            self._add_waiting()

    @torch.no_grad()
    def _add_waiting(self) -> None:
        """Add the layers that wait, in running order."""
        waiting = self._waiting
        self._waiting = []
        self._bytes = 0
        for event, reads_text in waiting:
            if reads_text:
                self._add_layer(event)
            if event.layer in self.propagating:
                self._propagate(event)
            self._add_places(event)

    def _add_layer(self, event: AttentionEvent) -> None:
        for name, record in self.records.items():
            if (
                record.block is None
                or name in _OTHER_RECORDS
                or isinstance(name, tuple)
            ):
                continue
            first = record.block * self.call.images
            if name != "concepts":
                record.ran[event.layer, event.site.step] += 1
                part = event
                if isinstance(name, int):
                    part = event.of_reference(name, record.layers[event.layer].grid)
                for sums in record.all_sums:
                    for image in sums.tokens:
                        sums.add(image, part, first + image)
            elif self._concept_keys is not None:
                p = self._concept_keys.probabilities(event, first)
                self._add_parts(record, event.site, p)
        self._add_reads(event)

    def _add_reads(self, event: AttentionEvent) -> None:
        """Add the attention of the tokens of each image's text to the image, and to each other."""
        record = self.records.get("reads")
        if record is None or record.block is None:
            return
        first = record.block * self.call.images
        passes = record.sums.passes
        of_image: list[Tensor] = []
        for image, tokens in record.sums.tokens.items():
            row = event.of_text().row(first + image, values=False)
            queries = index_tensor(tuple(tokens), row.query.device)
            identity = torch.eye(len(tokens), device=queries.device)
            p = sums_of_queries(row, queries, identity)
            layout = event.layout.row(first + image)
            of_image.append(take(p, layout.position_keys))
            of_text = take(take(p, layout.tokens), queries).mean(dim=0).mT
            self._text[image].merge(of_text / passes, 1 / passes)
        self._add_parts(record, event.site, of_image)

    def _add_places(self, event: AttentionEvent) -> None:
        """Add the attention of the places of each image in a layer of the image's attention."""
        places = self._places
        layer = self._place_layers.get(event.layer)
        if places is None or layer is None or self.records["places"].block is None:
            return
        images = range(self.call.images)
        first = self.records["places"].block * len(images)
        _check_positions(event, layer.grid, first + len(images))
        parts = [
            places.probabilities(event, image, first + image, layer.grid)
            for image in images
        ]
        for name in filter(_is_of_places, self.records):
            record = self.records[name]
            of_keys: list[Tensor] = []
            for row, p in enumerate(parts, first):
                layout = event.layout.row(row)
                keys = layout.position_keys
                if isinstance(name, tuple):
                    keys = layout.references[name[1]]
                of_keys.append(take(p, keys))
            site = replace(event.site, grid=record.layers[event.layer].grid)
            self._add_parts(record, site, of_keys)

    def record_concepts(
        self,
        name: str,
        block: Any,
        arguments: Mapping[str, Any],
        processor: RecordingProcessor,
    ) -> None:
        """Add the attention to the concepts in a joint block that has just run, by its layer."""
        call = self.call
        record = self.records["concepts"]
        if self._streams is None or record.block is None:
            return
        self._add_waiting()
        p, similarities = self._streams.run(
            block,
            arguments,
            processor,
            grids=[call.grids[name], *call.references],
            first=record.block * call.images,
            of_text=self._of_text,
        )
        self._add_parts(record, processor.site, p)
        if similarities:
            self._add_parts(self.records["outputs"], processor.site, similarities)

    def _add_parts(self, record: Record, site: Site, parts: Sequence[Tensor]) -> None:
        """Add the probabilities of each image in a layer to a record."""
        record.ran[site.layer, site.step] += 1
        for image, p in enumerate(parts):
            record.sums.add_probabilities(image, site, p)

    def observe_image(self, event: AttentionEvent) -> None:
        """Propagate maps, and add the attention of places, in a self-attention layer."""
        if event.layer in self.propagating or self._places is not None:
            self._wait(event, False)

    def _propagate(self, event: AttentionEvent) -> None:
        """Propagate the maps so far along a layer of the image's attention to itself."""
        name = event.layer
        if event.site.step not in propagation_steps(event.site.steps):
            return
        grid = self.propagating[name]
        rows, _, queries, _ = event.query.shape
        is_known = event.layout.joint and name in self.call.grids
        if not is_known:
            # Tokens may be merged, or another image's keys may stand beside the image's own
            # (StyleAligned): then positions are unknown, and the call has no refined maps.
            is_known = queries == math.prod(grid) == event.key.shape[2]
            is_known = is_known and event.mask is None
        if not is_known:
            for record in self.records.values():
                record.sums.refined = None
            return
        for record in self.records.values():
            if record.block is None:
                continue
            first = record.block * self.call.images
            for sums in record.all_sums:
                for image in sums.tokens:
                    if first + image < rows:
                        sums.propagate(image, event, first + image, grid)

    def end_pass(self) -> None:
        """End a pass."""
        self._add_waiting()
        for record in self.records.values():
            for sums in record.all_sums:
                sums.end_pass()

    def end_step(self) -> None:
        """Begin to record again: the scheduler was called."""
        for record in self.records.values():
            record.is_recorded = False

    def current_maps(self) -> dict[int, dict[int, np.ndarray]]:
        """Return by image and token, of `map_tokens`, the maps so far (2, h, w).

        They are refined and plain; both are plain before maps are propagated.
        """
        record = self.records.get("conditional")
        current = None if record is None else record.current
        if current is None or current.refined is None:
            return {}
        current.compute()
        maps: dict[int, dict[int, np.ndarray]] = {}
        for image, tokens in current.tokens.items():
            planes = np.moveaxis(current.refined.current(image), -1, 0)
            maps[image] = dict(zip(tokens, planes, strict=True))
        return maps

    # --- the result ---

    def end(self) -> None:
        """End the call, and release the text states."""
        self.call.end()
        for record in self.records.values():
            for sums in record.all_sums:
                sums.compute()
        keys = self._concept_keys
        self._concept_keys = self._streams = None
        self.call.check_timesteps()
        if keys is not None:
            keys.check()

    def check(self, name: RecordName) -> None:
        """Raise a TraceError unless every layer was recorded at every step that ran."""
        record = self.records[name]
        layers = record.layers
        odd = record.incomplete(bool(self.skipping))
        if odd:
            layer, steps = next(iter(odd.items()))
            raise TraceError(
                f"{plural(len(odd), 'layer')} of {len(layers)} did not run exactly once in "
                f"each pass of the model: {layer} at step {', '.join(map(str, steps))}; the maps "
                "would be wrong. A cache or a tool that skips or replaces attention is in use: "
                "switch it off"
            )

    def omissions(self) -> Iterator[str]:
        """Yield a warning if no pass read the prompt, or a branch skipped layers, at some steps."""
        steps = {*self.call.schedule.steps[: self.call.done]}
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
            skipped = record.incomplete() if self.skipping else {}
            if skipped:
                count = len({*chain(*skipped.values())})
                yield (
                    f"{' and '.join(self.skipping)} skipped {len(skipped)} of "
                    f"{len(record.layers)} "
                    f"layers of the {name} branch at {count} of {len(record.passes)} steps: the "
                    "map of each layer is its mean over the steps at which it ran"
                )

    def recording(self, name: RecordName, image: int) -> Recording:
        """Return the recording of one image.

        Raises:
            NothingRecordedError: if the branch, or none of its layers, ran.
            TraceError: if its attention holds NaN or Inf, or layers are missing.
        """
        call = self.call
        record = self.records[name]
        self.check(name)
        if not record.ran:
            why = "guidance was off throughout"
            if record.timesteps:
                why = f"{' and '.join(self.skipping)} skipped all of its layers: switch it off"
            raise NothingRecordedError(
                f"nothing of the {name} branch was recorded: {why}"
            )
        record.sums.compute()
        layers, arrays = self._means(record, image)
        refined = record.sums.refined
        h, w = record.latent
        side = call.family.cell_side
        similar = self.records.get("outputs") if name == "concepts" else None
        outputs: tuple[np.ndarray, ...] = ()
        if similar is not None and similar.ran:
            outputs = self.recording("outputs", image).arrays
        share_of: Share | None = self._spec.share_of if call.family.is_joint else None
        if _is_of_places(name):
            share_of = "places"
        elif name == "reads":
            share_of = "reads"
        return Recording(
            layers=layers,
            arrays=tuple(arrays),
            keep=self._spec.keep,
            timesteps=tuple(record.timesteps.values()),
            positions=tuple(record.sums.tokens[image]),
            table=record.tables[image],
            latent=record.latent,
            size=(w * side, h * side),
            refined=None if refined is None else refined.value(image),
            share_of=share_of,
            outputs=outputs,
        )

    def text_recording(self, image: int) -> Recording:
        """Return the attention of an image's tokens to each other, as `TextAttention` has it."""
        values = self._text[image].value().cpu().numpy()
        return replace(
            self.recording("reads", image),
            layers=(Layer(AVERAGED, 1, (1, len(values))),),
            arrays=(values[None, None],),
            keep=frozenset(),
        )

    def _means(
        self,
        record: Record,
        image: int,
    ) -> tuple[tuple[Layer, ...], list[np.ndarray]]:
        """Return the layers of an image's recording, and their means as arrays."""
        keep = self._spec.keep
        sums = record.sums.sums
        assert sums is not None
        steps = tuple(record.timesteps) if "step" in keep else (0,)
        names = [""]
        if "layer" in sums.keep:
            ran = {layer for layer, _ in record.ran}
            names = [layer for layer in record.layers if layer in ran]
        tensors: list[Tensor] = []
        for layer in names:
            means = sums.mean(image, layer, steps)
            if layer and "layer" not in keep:
                grid = record.layers[layer].grid
                flat = regrid(means.flatten(0, 1), grid, sums.mean_grid)
                means = flat.unflatten(0, means.shape[:2])
            tensors.append(means)
        arrays = copied(tensors)
        for layer, array in zip(names, arrays, strict=True):
            if not np.isfinite(array).all():
                raise TraceError(
                    f"the attention of {layer or 'the model'} holds NaN or Inf, probably because "
                    "the latents do: load the model with dtype 'float32' if it overflows"
                )
        if "layer" in keep:
            return tuple(record.layers[name] for name in names), arrays
        mean = np.mean(arrays, axis=0) if len(arrays) > 1 else arrays[0]
        heads = max(layer.heads for layer in record.layers.values())
        return (Layer(AVERAGED, heads, sums.mean_grid),), [mean]


def _tables(call: Call, spec: RecordingSpec) -> dict[RecordName, Sequence[TokenTable]]:
    """Return the words of each image by the records that are made of a call."""
    encoding = call.encoding
    assert isinstance(encoding, Encoding)
    tables: dict[RecordName, Sequence[TokenTable]] = {}
    if "conditional" in spec.branches:
        tables["conditional"] = encoding.conditional.tables
        if spec.reads:
            tables["reads"] = encoding.conditional.tables
        if call.family.maps_references:
            for number in range(len(call.references)):
                tables[number] = encoding.conditional.tables
    if "negative" in spec.branches:
        if encoding.negative is None:
            raise TraceError(
                "the negative branch was asked for, but this call has none (guidance is off, "
                f"or embedded in the model): pass {call.family.negative_guidance} above "
                f"{call.family.guidance_off:g}, or leave it out"
            )
        tables["negative"] = encoding.negative.tables
    if spec.places:
        labels = place_labels(spec.places)
        tables["places"] = [TokenTable.of_texts(labels, " · ")] * call.images
        if call.family.maps_references:
            for number in range(len(call.references)):
                tables["places", number] = tables["places"]
    if encoding.concepts:
        tables["concepts"] = [TokenTable.of_texts(spec.concepts)] * call.images
        if call.family.is_joint and len(spec.concepts) > 1:
            tables["outputs"] = tables["concepts"]
    return tables


def _check_positions(event: AttentionEvent, grid: GridShape, rows: int) -> None:
    """Raise a TraceError unless a layer attends from all of the image to all of it."""
    count, _, queries, _ = event.query.shape
    is_whole = queries == event.key.shape[2] == math.prod(grid)
    if event.layout is SELF_ATTENTION and not (is_whole and count >= rows):
        raise TraceError(
            f"{event.layer} attends from {queries} to {event.key.shape[2]} positions in {count} "
            f"rows of the batch, and its grid is {grid[0]}×{grid[1]}: expected all positions of "
            "each image; leave places out, or remove what merges tokens or shares self-attention"
        )


def _propagating(call: Call, self_layers: Collection[str]) -> dict[str, GridShape]:
    """Return the layers along which maps are propagated, with their grids."""
    family = call.family
    if family.is_joint:
        chosen = evenly_chosen([*call.grids], PROPAGATION_LAYERS)
        return {name: call.grids[name] for name in chosen}
    grids = {name: family.grid(name, call.latent) for name in self_layers}
    return {name: grids[name] for name in propagation_layers(grids, call.grids)}


def copied(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Return tensors as arrays of the host, by one copy from their device."""
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu().numpy()
    ends = np.cumsum([tensor.numel() for tensor in tensors])[:-1]
    parts = np.split(flat, ends)
    return [part.reshape(one.shape) for part, one in zip(parts, tensors, strict=True)]
