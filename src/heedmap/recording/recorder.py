"""The recorder: an observer that sums the attention of one call, and makes its recordings.

Events are held by reference until the end of a pass or of a few passes, and computed together.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from msgspec import structs
from torch import Tensor

from heedmap.backends.base import GridShape
from heedmap.backends.joint import JointFamily
from heedmap.backends.skipping import skipping_tools
from heedmap.backends.tap import RecordingProcessor
from heedmap.errors import ArgumentError, NothingRecordedError, TraceError, plural
from heedmap.io.places import check_places, place_labels
from heedmap.io.word_edits import Mask
from heedmap.maps.recordings import AVERAGED, Layer, Recording, Selection, cells
from heedmap.mathematics.events import SELF_ATTENTION, AttentionEvent, nth, take
from heedmap.mathematics.probabilities import columns, index_tensor
from heedmap.options import Axis, BranchName, GenerateOptions, Share
from heedmap.recording.accumulation import (
    AttentionAccumulator,
    head_mean,
)
from heedmap.recording.budget import budget_keys
from heedmap.recording.calls import Call
from heedmap.recording.concepts import ConceptKeys, ConceptStreams
from heedmap.recording.places import PlaceQueries
from heedmap.recording.records import BranchPasses, LayerRow, Record
from heedmap.recording.refining import (
    PROPAGATION_LAYERS,
    RefinedMaps,
    evenly_chosen,
    propagation_layers,
    propagation_steps,
)
from heedmap.text.concepts import checked_concepts
from heedmap.text.words import TokenKind, TokenTable

MAX_HELD = 2**28
"""Bytes of the queries and keys that are held by reference."""
MAX_ON_CPU = 2**21
"""A CPU computes a layer with more bytes of them at once, while they are in its cache."""
MAX_PASSES = 8
"""Passes of the model whose events are held."""


@dataclass(frozen=True)
class RecordingSpec:
    """A choice of axes, tokens, branches and so on to record, as `trace` describes them.

    Attributes:
        options: the options of a call.
        prompts: the texts of the prompt embeddings that the pipeline is called with.
        masks: of each image those of the words among the places.
        weights_read: whether weights that are written in the prompts were read before.
    """

    options: GenerateOptions = field(default_factory=GenerateOptions)
    prompts: tuple[str, ...] | None = None
    masks: tuple[Mapping[str, Mask], ...] = ()
    weights_read: bool = False

    def __post_init__(self) -> None:
        options = self.options
        concepts = checked_concepts(options.concepts)
        places = check_places(options.places)
        checked = replace(options, concepts=concepts, places=places)
        vars(self).update(options=checked)

    @property
    def keep(self) -> frozenset[Axis]:
        """The axes to keep."""
        axes: Any = self.options.keep
        return frozenset(axes)


RecordName = str | int | tuple[str, int]
"""The records of a call: "conditional" and "negative"; "concepts", and "outputs" for the
similarities of outputs of two or more concepts, where attention is joint; by its number that of
each reference image, whose positions read the prompt as the image's do; "places" for their
attention to the image, and ("places", number) for that to a reference image; "reads" for the
attention of words to it, and "text" for that of words to each other; "budget" for the shares of all
keys."""
Measure = Callable[[AttentionEvent, int], None]
"""A function of the event of a layer, and of the row of the first image that reads the prompt."""


class Recorder:
    """An observer of one call that sums attention probabilities.

    Args:
        call: the call, whose first pass has begun.
        spec: the axes, tokens, branches and concepts to record.
        layers: the layers that attend to the text, by dotted path.
        self_layers: the self-attention layers.

    Attributes:
        skipping: the tools that may skip layers at some steps.
        propagating: the layers along which maps are propagated, with their grids: self-attention
            layers, or joint ones, by the part of their softmax that the image's keys have.
        records: by name.
        rows: by branch the row of the first image that is recorded in the pass that runs.
    """

    def __init__(
        self,
        call: Call,
        spec: RecordingSpec,
        layers: Mapping[str, Any],
        self_layers: Mapping[str, Any],
    ) -> None:
        self.call = call
        self._spec = spec
        self.skipping = skipping_tools(call.family.modules, layers)
        self.propagating = _propagating(call, self_layers)
        self.records: dict[RecordName, Record] = {}
        self._passes: dict[BranchName, BranchPasses] = {}
        # With the layers whose events each is a function of.
        self._measures: list[tuple[Collection[str], Measure]] = []
        self._concept_keys: ConceptKeys | None = None
        self._streams: ConceptStreams | None = None
        self._device = "cpu"
        self._bytes = 0  # of the layers that are held
        self._passes_held = 0
        self._passes_of_step = 1
        self._is_full = False
        self.rows: Mapping[BranchName, int] = {}
        self._add_text()
        if spec.options.places:
            self._add_places(self_layers)
        if spec.options.concepts:
            self._add_concepts(layers)

    def _add(
        self,
        name: RecordName,
        tables: Sequence[TokenTable],
        *,
        share_of: Share | None = None,
        branch: BranchName = "conditional",
        layers: Mapping[str, Layer] | None = None,
        reference: int | None = None,
        is_text: bool = False,
        is_map: bool = True,
    ) -> None:
        """Add a record; one that `is_map` has a value for each position of the layers' grids."""
        call = self.call
        kinds: list[TokenKind] = ["start", "text", "end"]
        if self._spec.options.tokens == "all":
            kinds.extend(("image", "pad"))
        latent = call.latent
        layers = layers or call.layers
        grid = None if is_map else (1, 1)
        if reference is not None:
            grid = call.references[reference]
            side = call.family.latent_multiple
            latent = (side * grid[0], side * grid[1])
        if grid is not None:
            layers = {n: replace(layer, grid=grid) for n, layer in layers.items()}
        keep = set(self._spec.keep)
        if self.skipping:  # layers have means over other steps
            keep.add("layer")
        if name == "outputs":  # an output has all heads
            keep.discard("head")
        if name == "text":
            keep.clear()
        # On the latent's grid layers would be resized twice.
        w, h = cells(latent) if is_map else (1, 1)
        refined = None
        if name in ("conditional", "negative", "concepts") and self.propagating:
            refined = RefinedMaps(next(iter(self.propagating.values())))
        self.records[name] = Record(
            tables=tables,
            tokens=[table.positions(*kinds) for table in tables],
            layers=layers,
            latent=latent,
            means=AttentionAccumulator(frozenset(keep), (h, w)),
            passes=self._passes.setdefault(branch, BranchPasses()),
            branch=branch,
            share_of=share_of,
            is_text=is_text,
            reference=reference,
            of_text=share_of == "text",
            refined=refined,
        )

    def _add_text(self) -> None:
        """Add the records of the prompts' words, of what words read, and of all keys."""
        call = self.call
        options = self._spec.options
        encoding = call.encoding
        assert encoding is not None
        prompts = encoding.conditional.tables
        share_of = options.share_of if call.family.is_joint else None
        add = partial(self._add, share_of=share_of, is_text=True)
        if "conditional" in options.branches:
            add("conditional", prompts)
            for number in self._references:
                add(number, prompts, reference=number)
        if "negative" in options.branches:
            if encoding.negative is None:
                raise TraceError(
                    "the negative branch was asked for, but this call has none (guidance is off, "
                    f"or embedded in the model): pass {call.family.negative_guidance} above "
                    f"{call.family.guidance_off:g}, or leave it out"
                )
            add("negative", encoding.negative.tables, branch="negative")
        if options.reads:
            if call.layout.keys is not None:
                raise ArgumentError(
                    f"the words of {type(call.family.pipe).__name__} attend apart from the image "
                    "and do not read it: leave reads out"
                )
            self._add("reads", prompts, share_of="reads")
            self._add("text", prompts, share_of="reads", is_map=False)
            self._measures.append((call.layers, self._reads))
        if options.budget:
            keys = [budget_keys(table, call) for table in prompts]
            self._add("budget", keys, is_map=False)
            self._measures.append((call.layers, self._budget))

    @property
    def _references(self) -> range:
        """The numbers of the reference images that have maps."""
        call = self.call
        return range(len(call.references) if call.family.maps_references else 0)

    def _add_places(self, self_layers: Mapping[str, Any]) -> None:
        call = self.call
        places = self._spec.options.places
        layers = call.layers
        if not call.family.is_joint:
            layers = call.described(self_layers)
        labels = place_labels(places)
        tables = [TokenTable.of_texts(labels, " · ")] * call.images
        add = partial(self._add, tables=tables, share_of="places", layers=layers)
        add("places")
        for number in self._references:
            add(("places", number), reference=number)
        masks = self._spec.masks or [{}] * call.images
        of_images = [[words.get(one, one) for one in places] for words in masks]
        queries = PlaceQueries(of_images, call.size)
        self._measures.append((layers, partial(self._read_by_places, queries)))

    def _add_concepts(self, layers: Mapping[str, Any]) -> None:
        call = self.call
        family = call.family
        encoding = call.encoding
        assert encoding is not None
        concepts = self._spec.options.concepts
        tables = [TokenTable.of_texts(concepts)] * call.images
        share_of = self._spec.options.share_of if family.is_joint else None
        self._add("concepts", tables, share_of=share_of)
        if not isinstance(family, JointFamily):
            keys = ConceptKeys(layers, encoding, family.project_text)
            self._concept_keys = keys
            attend = partial(self._attend_to_concepts, keys)
            self._measures.append((call.layers, attend))
            return
        if self.skipping:
            raise TraceError(
                f"{' and '.join(self.skipping)} may skip layers, and concepts need each block "
                "to run once more: switch it off, or leave concepts out"
            )
        if len(concepts) > 1:
            self._add("outputs", tables)
        self._streams = ConceptStreams(family, encoding.concepts)

    @property
    def nbytes(self) -> int:
        """The number of bytes that it keeps when the call is over."""
        size = 0
        for record in self.records.values():
            keep = record.means.keep
            of_layers: list[int] = []
            for layer in record.layers.values():
                grid = layer.grid if "layer" in keep else record.means.mean_grid
                heads = layer.heads if "head" in keep else 1
                of_layers.append(math.prod(grid) * heads)
            steps = self.call.schedule.count if "step" in keep else 1
            tokens = sum(map(len, record.tokens))
            layers = sum(of_layers) if "layer" in keep else max(of_layers)
            size += 4 * layers * steps * tokens
        return size

    @property
    def is_recording(self) -> bool:
        """True if this pass is recorded in the rows of the prompt."""
        return "conditional" in self.rows

    # --- pass by pass ---

    def begin_pass(self, repeats: bool = False) -> None:
        """Find the rows that are recorded in the pass that the call has begun.

        A pass that `repeats` is a further one of its step, which is not recorded.

        Raises:
            TraceError: if the model ran before in this step, and that is not known of the pipeline.
        """
        call = self.call
        step = call.moment.step
        repeats = repeats or call.family.has_quirk("repeats_passes")
        passes = call.schedule.steps.count(step)
        if passes != self._passes_of_step:
            self._compute()
        self._passes_of_step = passes
        if self._streams is not None:
            self._streams.begin()
        rows: dict[BranchName, int] = {}
        for branch, known in self._passes.items():
            blocks = call.blocks.get(branch)
            if not blocks:
                continue
            if known.last != call.done:
                rows[branch] = blocks[0] * call.images
                known.last = call.done
                known.timesteps.setdefault(step, call.schedule.timesteps[call.done])
                known.counts[step] += 1
            elif not repeats:
                raise TraceError(
                    f"{type(call.family.pipe).__name__} ran its model twice on this prompt before "
                    "the scheduler went on, and heedmap cannot tell which of the two draws the "
                    "image: expected one pass a step (another pipeline on the same model? an "
                    "optimisation of the latents?)"
                )
        self.rows = rows

    def __call__(self, event: AttentionEvent) -> None:
        """Add the attention of a layer that attends to the text, in all rows."""
        if self._streams is not None:
            self._streams.event = event
        if not self.rows:
            return
        edited = event.edited
        inputs = event.inputs()
        for record in self.records.values():
            first = self.rows.get(record.branch)
            if first is None or not record.is_text:
                continue
            part = inputs
            if record.reference is not None:
                grid = record.layers[event.layer].grid
                part = inputs.of_reference(record.reference, grid)
            for image, held in enumerate(record.held):
                number = first + image
                p = None
                if number in edited and part is inputs:
                    p = record.edited(edited[number], image)
                row = LayerRow(part.site, self._passes_held, part, number, p)
                held.append(row)
        self.observe_image(event)
        self._count(event.query, event.key)

    def observe_image(self, event: AttentionEvent) -> None:
        """Add a self-attention layer, and the attention of places in it."""
        if self.rows:
            self._measure(event)
            self._add_self_attention(event)

    def _measure(self, event: AttentionEvent) -> None:
        """Measure the quantities that are computed layer by layer."""
        first = self.rows.get("conditional")
        if first is None:
            return
        for layers, measure in self._measures:
            if event.layer in layers:
                with torch.no_grad():
                    measure(event, first)

    def _count(self, *held: Tensor) -> None:
        """Add to the bytes that are held; compute the layers if they are too many."""
        self._device = held[0].device.type
        size = sum(x.nbytes for x in held)
        self._bytes += size
        is_large = self._device == "cpu" and size > MAX_ON_CPU
        if is_large or self._bytes > MAX_HELD:
            self._compute()
            self._is_full = True

    def end_pass(self) -> None:
        """End a pass; compute the layers that are held, if those of the next may be too many."""
        if not self.rows:
            return
        self._passes_held += 1
        with_next = self._bytes * (1 + 1 / self._passes_held)
        if self._is_full or with_next > MAX_HELD or self._passes_held == MAX_PASSES:
            self._compute()

    @torch.no_grad()
    def _compute(self) -> None:
        """Compute the layers that are held, in running order."""
        self._bytes = 0
        self._passes_held = 0
        self._is_full = False
        with torch.autocast(self._device, enabled=False):  # it would use half precision
            for record in self.records.values():
                record.compute(self._passes_of_step)

    def _add_self_attention(self, event: AttentionEvent) -> None:
        """Add a layer of the image's attention to itself, along which maps are propagated.

        Tokens may be merged, or another image's keys may stand beside the image's own
        (StyleAligned): then positions are unknown, and the call has no refined maps.
        """
        name = event.layer
        site = event.site
        if name not in self.propagating:
            return
        if site.step not in propagation_steps(site.steps):
            return
        grid = self.propagating[name]
        is_known = name in self.call.grids
        if not is_known:
            is_known = event.mask is None and _is_whole(event, grid)
        for record in self.records.values():
            if not is_known:
                record.refined = None
            first = self.rows.get(record.branch)
            if record.refined is None or first is None:
                continue
            # Guidance that perturbs attention may compute fewer rows.
            count = max(0, len(event.query) - first)
            with torch.no_grad():
                for image in range(min(count, len(record.held))):
                    row = event.row(first + image)
                    record.refined.add_attention(image, row, self._passes_of_step)

    # --- what is measured in a layer that runs ---

    def _put(
        self,
        name: RecordName,
        image: int,
        event: AttentionEvent,
        p: Tensor,
    ) -> None:
        """Put an image's probabilities (H, Q, K) in a layer to those of other layers."""
        record = self.records[name]
        if "head" not in record.means.keep:
            p = head_mean(p)
        grid = record.layers[event.layer].grid
        site = structs.replace(event.site, grid=grid)
        record.held[image].append(LayerRow(site, self._passes_held, None, 0, p))
        self._count(p)

    def _reads(self, event: AttentionEvent, first: int) -> None:
        """Add the attention of the tokens of the text to the image, and to each other."""
        for image, tokens in enumerate(self.records["reads"].tokens):
            row = first + image
            layout = event.layout.row(row)
            queries = nth(layout.tokens, index_tensor(tokens, event.query.device))
            p = event.probabilities(row, queries, slice(None))
            self._put("reads", image, event, take(p, layout.position_keys, -1).mT)
            text = take(p, layout.tokens, -1)
            self._put("text", image, event, columns(text, tokens))

    def _budget(self, event: AttentionEvent, first: int) -> None:
        """Add the mean shares of all keys, and the mean entropy."""
        for image in range(self.call.images):
            shares = event.row(first + image).key_shares()
            self._put("budget", image, event, shares[:, None])

    def _attend_to_concepts(
        self,
        keys: ConceptKeys,
        event: AttentionEvent,
        first: int,
    ) -> None:
        """Add the attention to the concepts."""
        for image, p in enumerate(keys.probabilities(event, first)):
            self._put("concepts", image, event, p)

    def _read_by_places(
        self,
        places: PlaceQueries,
        event: AttentionEvent,
        first: int,
    ) -> None:
        """Add the attention of places to the image, and to reference images."""
        grid = self.records["places"].layers[event.layer].grid
        rows, _, queries, _ = event.query.shape
        has_rows = rows >= first + self.call.images
        is_whole = has_rows and _is_whole(event, grid)
        if event.layout is SELF_ATTENTION and not is_whole:
            raise TraceError(
                f"{event.layer} attends from {queries} to {event.key.shape[2]} positions in {rows} "
                f"rows of the batch, and its grid is {grid[0]}×{grid[1]}: expected all positions "
                "of each image; leave places out, or remove what merges tokens or shares "
                "self-attention"
            )
        for image in range(self.call.images):
            p = places.probabilities(event, image, first + image, grid)
            layout = event.layout.row(first + image)
            self._put("places", image, event, take(p, layout.position_keys))
            for number in self._references:
                of_reference = take(p, layout.references[number])
                self._put(("places", number), image, event, of_reference)

    def record_concepts(
        self,
        block: Any,
        arguments: Mapping[str, Any],
        processor: RecordingProcessor,
    ) -> None:
        """Add the attention to the concepts in a joint block that has just run."""
        call = self.call
        first = self.rows.get("conditional")
        if self._streams is None or first is None:
            return
        parts = self._streams.run(
            block,
            arguments,
            processor,
            grids=[call.grids[processor.name], *call.references],
            first=first,
            of_text=self.records["concepts"].of_text,
        )
        for name, image, p in parts:
            self._put(name, image, self._streams.event, p)

    def current_maps(self, image: int) -> dict[int, np.ndarray]:
        """Return by token the maps (2, h, w) of an image so far: refined, and plain.

        Both are plain before maps are propagated.
        """
        self._compute()
        record = self.records["conditional"]
        tokens = record.tokens[image]
        if record.refined is not None:
            planes = np.moveaxis(record.refined.current(image), -1, 0)
            return dict(zip(tokens, planes, strict=True))
        plain = Selection(self.recording("conditional", image))
        return {token: np.stack([plain.mean_of([token])] * 2) for token in tokens}

    # --- the result ---

    def end(self) -> None:
        """End the call, and release the text states."""
        self.call.end()
        self._compute()
        keys = self._concept_keys
        self._concept_keys = self._streams = None
        self._measures = []
        self.call.check_timesteps()
        if keys is not None:
            keys.check()

    def check(self, name: RecordName) -> None:
        """Raise a TraceError unless every layer was recorded at every step that ran."""
        self._compute()
        record = self.records[name]
        odd = record.incomplete(bool(self.skipping))
        if odd:
            layer, steps = next(iter(odd.items()))
            raise TraceError(
                f"{plural(len(odd), 'layer')} of {len(record.layers)} did not run exactly once in "
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
            ran = record.passes.counts
            # Guidance may be off at some steps, and then the negative branch does not run.
            if name == "conditional" and steps - ran.keys():
                yield (
                    f"the model read the prompt at {len(ran)} of {len(steps)} steps: the maps are "
                    "means over these"
                )
            skipped = record.incomplete() if self.skipping else {}
            if skipped:
                count = len({*chain(*skipped.values())})
                yield (
                    f"{' and '.join(self.skipping)} skipped {len(skipped)} of "
                    f"{len(record.layers)} layers of the {name} branch at {count} of {len(ran)} "
                    "steps: the map of each layer is its mean over the steps at which it ran"
                )

    def recording(self, name: RecordName, image: int) -> Recording:
        """Return the recording of one image.

        Raises:
            NothingRecordedError: if the branch, or none of its layers, ran.
            TraceError: if its attention holds NaN or Inf, or layers are missing.
        """
        self.check(name)
        record = self.records[name]
        if not record.ran:
            why = "guidance was off throughout"
            if record.passes.counts:
                why = f"{' and '.join(self.skipping)} skipped all of its layers: switch it off"
            raise NothingRecordedError(
                f"nothing of the {name} branch was recorded: {why}"
            )
        layers, arrays = self._means(record, image)
        h, w = record.latent
        side = self.call.family.cell_side
        similar = self.records.get("outputs") if name == "concepts" else None
        outputs: tuple[np.ndarray, ...] = ()
        if similar is not None and similar.ran:
            outputs = self.recording("outputs", image).arrays
        refined = record.refined
        return Recording(
            layers=layers,
            arrays=tuple(arrays),
            keep=record.means.keep,
            timesteps=tuple(record.passes.timesteps.values()),
            positions=tuple(record.tokens[image]),
            table=record.tables[image],
            latent=record.latent,
            size=(w * side, h * side),
            refined=None if refined is None else refined.value(image),
            share_of=record.share_of,
            outputs=outputs,
        )

    def _means(
        self,
        record: Record,
        image: int,
    ) -> tuple[tuple[Layer, ...], list[np.ndarray]]:
        """Return the layers of an image's recording, and their means as arrays."""
        sums = record.means
        steps = tuple(record.passes.timesteps) if "step" in sums.keep else (0,)
        heads = max(layer.heads for layer in record.layers.values())
        grid = sums.mean_grid
        if record is self.records.get("text"):
            grid = (1, len(record.tokens[image]))
        layers = (Layer(AVERAGED, heads, grid),)
        names = [""]
        if "layer" in sums.keep:
            ran = {name for name, _ in record.ran}
            names = [name for name in record.layers if name in ran]
            layers = tuple(record.layers[name] for name in names)
        arrays = _copied([sums.mean(image, name, steps) for name in names])
        for layer, array in zip(layers, arrays, strict=True):
            if not np.isfinite(array).all():
                raise TraceError(
                    f"the attention of {layer.name} holds NaN or Inf, probably from the latents or "
                    "from a rule of your own: load the model with dtype 'float32' if it overflows"
                )
        return layers, arrays


def _is_whole(event: AttentionEvent, grid: GridShape) -> bool:
    """Return whether self-attention is from all positions of a grid to all of them."""
    return event.query.shape[2] == event.key.shape[2] == math.prod(grid)


def _propagating(call: Call, self_layers: Collection[str]) -> dict[str, GridShape]:
    """Return the layers along which maps are propagated, with their grids."""
    family = call.family
    if family.is_joint:
        chosen = evenly_chosen([*call.grids], PROPAGATION_LAYERS)
        return {name: call.grids[name] for name in chosen}
    grids = {name: family.grid(name, call.latent) for name in self_layers}
    return {name: grids[name] for name in propagation_layers(grids, call.grids)}


def _copied(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Return tensors as arrays of the host, by one copy from their device."""
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu().numpy()
    ends = np.cumsum([tensor.numel() for tensor in tensors])[:-1]
    parts = np.split(flat, ends)
    return [part.reshape(one.shape) for part, one in zip(parts, tensors, strict=True)]
