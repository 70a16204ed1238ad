"""The sums of one record. Layers of one shape are computed together, those of several passes, too.

A small batch on a GPU waits for the host, so that few large operations cost less than many small
ones. Queries and keys are held until then, of at most `MAX_PASSES` passes and `MAX_HELD` bytes. On
a CPU, layers of more probabilities than stay in its cache are computed one after the other, as
they run.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedmap.mathematics.events import AttentionEvent, RowAttention
from heedmap.mathematics.probabilities import columns
from heedmap.mathematics.rules import Site
from heedmap.recording.accumulation import (
    CACHED,
    AttentionAccumulator,
    max_together,
    mean_over_heads,
    shares_of_text,
)
from heedmap.recording.refining import RefinedMaps

MAX_HELD = 2**28
"""Bytes of queries and keys that are held by reference."""
MAX_PASSES = 4
"""Passes of the model whose queries and keys are held."""


@dataclass(frozen=True, eq=False)
class _Layer:
    """One image's attention in a layer, which is not computed yet.

    Attributes:
        site: the layer at a step; None of an attention along which maps are propagated.
        grid: (h, w) of the layer.
        row: the attention.
        model_pass: the number of the pass among those that are held.
    """

    site: Site | None
    grid: tuple[int, int]
    row: RowAttention
    model_pass: int


class RecordSums:
    """The sums of the attention to some tokens of each image.

    Args:
        tokens: for each image the tokens; an image may be missing.
        sums: the means that are recorded; None if only maps are asked for.
        refined: the maps that are propagated; None without these.
        of_text: whether probabilities are shares of the text alone.

    Attributes:
        passes: the number of the passes of the present step, which share its weight.
    """

    def __init__(
        self,
        tokens: Mapping[int, Sequence[int]],
        sums: AttentionAccumulator | None,
        refined: RefinedMaps | None,
        of_text: bool = False,
    ) -> None:
        self.tokens = tokens
        self.sums = sums
        self.refined = refined
        self._held: defaultdict[int, list[_Layer]] = defaultdict(list)
        self._bytes: defaultdict[int, int] = defaultdict(int)
        self._passes_held = 0
        self._is_full = False
        self._of_text = of_text
        self.passes = 1

    @property
    def _keeps_heads(self) -> bool:
        return self.sums is not None and "head" in self.sums.keep

    def begin_pass(self, passes: int) -> None:
        """Begin one of the `passes` of a step."""
        if passes != self.passes:
            self.compute()
        self.passes = passes

    def end_pass(self) -> None:
        """End a pass; compute the layers that wait, if those of the next one may be too many."""
        self._passes_held += 1
        largest = max(self._bytes.values(), default=0)
        is_next_too_large = largest * (1 + 1 / self._passes_held) > MAX_HELD
        if self._is_full or is_next_too_large or self._passes_held == MAX_PASSES:
            self.compute()

    def add(self, image: int, event: AttentionEvent, number: int) -> None:
        """Add an image's attention in a layer, in one row of the batch, with its edits."""
        if number in event.edited:
            _, p = event.edited[number].pair()
            if self._of_text:
                text = p[..., :-1] if event.layout.joint else p
                p = shares_of_text(text)
            self.add_probabilities(image, event.site, columns(p, self.tokens[image]))
            return
        row = event.row(number, values=False)
        if self._of_text and row.joint:
            row = row.text_alone()
        if row.log_sum is None and (row.joint or row.visible is not None):
            self.compute(image)
            p = self._row_probabilities(row, self.tokens[image])
            self._add_now(image, event.site, p)
            return
        layer = _Layer(event.site, event.site.grid, row, self._passes_held)
        self._hold(image, layer, event)
        heads, positions, _ = row.query.shape
        size = heads * positions * len(self.tokens[image])
        if size > CACHED and row.query.device.type == "cpu":
            self.compute(image)

    def _hold(self, image: int, layer: _Layer, event: AttentionEvent) -> None:
        self._held[image].append(layer)
        # A row is a view, which keeps those of all rows.
        self._bytes[image] += event.query.nbytes + event.key.nbytes
        if self._bytes[image] > MAX_HELD:
            self.compute(image)
            self._is_full = True

    def add_probabilities(self, image: int, site: Site, p: Tensor) -> None:
        """Add an image's probabilities (H, Q, K) of its tokens in a layer at once."""
        self.compute(image)
        self._add_now(image, site, p if self._keeps_heads else p.mean(0, keepdim=True))

    def _add_now(self, image: int, site: Site, p: Tensor) -> None:
        if self.sums is not None:
            self.sums.add(image, [[site]], p[None], self.passes)
        if self.refined is not None:
            maps = _mean_of_heads(p[None])
            self.refined.add(image, maps, site.grid, self.passes)

    def propagate(
        self,
        image: int,
        event: AttentionEvent,
        number: int,
        grid: tuple[int, int],
    ) -> None:
        """Propagate an image's mean map so far along a layer of its attention to itself."""
        if self.refined is None:
            return
        row = event.row(number, values=False)
        self._hold(image, _Layer(None, grid, row, self._passes_held), event)

    @torch.no_grad()
    def compute(self, image: int | None = None) -> None:
        """Compute the layers that wait, of an image or of all images."""
        if image is None:
            self._passes_held = 0
            self._is_full = False
        for number in [*self._held] if image is None else [image]:
            layers = self._held.pop(number, [])
            self._bytes.pop(number, None)
            if layers:
                self._compute(number, layers)

    def _compute(self, image: int, layers: Sequence[_Layer]) -> None:
        device = layers[0].row.query.device.type
        if torch.is_autocast_enabled(device):  # it would use half precision here
            with torch.autocast(device, enabled=False):
                self._compute(image, layers)
            return
        tokens = self.tokens[image]
        text = [layer for layer in layers if layer.site is not None]
        order: list[int] = []
        maps: list[tuple[Tensor, tuple[int, int]]] = []
        for numbers in _groups(text, len(tokens)):
            group = [text[number] for number in numbers]
            p = self._probabilities([layer.row for layer in group], tokens)
            self._record(image, group, p)
            order.extend(numbers)
            maps.append((_mean_of_heads(p), group[0].grid))
        if self.refined is None:
            return
        if len(text) == len(layers):
            for part, grid in maps:
                self.refined.add(image, part, grid, self.passes)
            return
        attention: list[tuple[int, RowAttention, tuple[int, int]]] = []
        before = 0
        for layer in layers:
            if layer.site is None:
                attention.append((before, layer.row, layer.grid))
            else:
                before += 1
        self.refined.propagate(image, maps, order, attention, self.passes)

    def _probabilities(
        self,
        rows: Sequence[RowAttention],
        tokens: Sequence[int],
    ) -> Tensor:
        """Return the probabilities (L, H, Q, K) in layers of one shape, H = 1 for their mean."""
        first = rows[0]
        if len(rows) == 1:
            return self._row_probabilities(first, tokens)[None]
        log_sum = None
        if first.log_sum is not None:
            log_sum = torch.cat([row.log_sums() for row in rows])
        heads_of_layers = RowAttention(
            query=torch.cat([row.query for row in rows]),
            keys=torch.cat([row.text_keys for row in rows]),
            scale=first.scale,
            joint=first.joint,
            visible=None if first.visible is None else _text_masks(rows),
            log_sum=log_sum,
        )
        p = heads_of_layers.probabilities(tokens).unflatten(0, (len(rows), -1))
        return p if self._keeps_heads else p.mean(dim=1, keepdim=True)

    def _row_probabilities(self, row: RowAttention, tokens: Sequence[int]) -> Tensor:
        """Return the probabilities (H, Q, K) in a layer, H = 1 for their mean."""
        if self._keeps_heads:
            return row.probabilities(tokens)
        return mean_over_heads(row, tokens)

    def _record(self, image: int, layers: Sequence[_Layer], p: Tensor) -> None:
        """Add probabilities (L, H, Q, K) to the means, pass by pass."""
        if self.sums is None:
            return
        sites: defaultdict[int, list[Site]] = defaultdict(list)
        for layer in layers:
            assert layer.site is not None
            sites[layer.model_pass].append(layer.site)
        self.sums.add(image, [*sites.values()], p, self.passes)


def _text_masks(rows: Sequence[RowAttention]) -> Tensor:
    """Return the masks (L·H, Q, K) of the text in layers; Q = 1 if they are alike for all."""
    masks: list[Tensor] = []
    for row in rows:
        mask = row.text_mask
        assert mask is not None
        masks.append(mask)
    if all(mask.stride(1) == 0 for mask in masks):
        masks = [mask[:, :1] for mask in masks]
    return torch.cat(masks)


def _mean_of_heads(p: Tensor) -> Tensor:
    """Return maps (L, Q, K) of probabilities (L, H, Q, K)."""
    return p[:, 0] if p.shape[1] == 1 else p.mean(dim=1)


def _groups(layers: Sequence[_Layer], tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of layers to compute together: of one shape, and whole passes if they fit.

    So the layers of each group are the same in every pass.
    """
    passes: defaultdict[tuple[object, ...], defaultdict[int, list[int]]]
    passes = defaultdict(lambda: defaultdict(list))
    for number, layer in enumerate(layers):
        passes[_shape(layer)][layer.model_pass].append(number)
    for of_shape in passes.values():
        first = layers[next(iter(of_shape.values()))[0]].row
        most = max(1, max_together(first.query.device.type) // _size(first, tokens))
        group: list[int] = []
        for numbers in of_shape.values():
            if group and len(group) + len(numbers) > most:
                yield group
                group = []
            group = [*group, *numbers]
            while len(group) > most:
                yield group[:most]
                group = group[most:]
        yield group


def _size(row: RowAttention, tokens: int) -> int:
    heads, positions, _ = row.query.shape
    count = row.text_keys.shape[1] if row.log_sum is None else tokens
    return heads * positions * max(count, 1)


def _shape(layer: _Layer) -> tuple[object, ...]:
    """Return what layers that are computed together have in common."""
    row = layer.row
    return (
        layer.grid,
        row.query.shape,
        row.keys.shape,
        row.scale,
        row.query.dtype,
        row.query.device,
        row.log_sum is None,
        row.visible is None,
    )
