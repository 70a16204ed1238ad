"""The sums of one record. Layers of one shape are computed together when a pass of the model ends.

A small batch on a GPU waits for the host, so that few large operations cost less than many small
ones. Queries and keys of the pass are held until then, up to `MAX_HELD` bytes. On a CPU, layers of
more probabilities than stay in its cache are computed one after the other, as they run.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
"""Bytes of queries and keys of one image that are held by reference within a pass."""


@dataclass(frozen=True, eq=False)
class _Layer:
    """One image's attention in a layer, which is not computed yet.

    Attributes:
        site: the layer at a step; None of an attention along which maps are propagated.
        grid: (h, w) of the layer.
        row: the attention.
    """

    site: Site | None
    grid: tuple[int, int]
    row: RowAttention


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
        self._of_text = of_text
        self.passes = 1

    @property
    def _keeps_heads(self) -> bool:
        return self.sums is not None and "head" in self.sums.keep

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
        if row.visible is not None or (row.joint and row.log_sum is None):
            self.compute(image)
            p = self._row_probabilities(row, self.tokens[image])
            self._add_now(image, event.site, p)
            return
        self._held[image].append(_Layer(event.site, event.site.grid, row))
        size = row.query.shape[0] * row.query.shape[1] * len(self.tokens[image])
        self._bytes[image] += event.query.nbytes + event.key.nbytes
        on_cpu = row.query.device.type == "cpu"
        if (on_cpu and size > CACHED) or self._bytes[image] > MAX_HELD:
            self.compute(image)

    def add_probabilities(self, image: int, site: Site, p: Tensor) -> None:
        """Add an image's probabilities (H, Q, K) of its tokens in a layer at once."""
        self.compute(image)
        self._add_now(image, site, p if self._keeps_heads else p.mean(0, keepdim=True))

    def _add_now(self, image: int, site: Site, p: Tensor) -> None:
        maps = self._record(image, [site], p[None])
        if self.refined is not None:
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
        self._held[image].append(_Layer(None, grid, row))
        self._bytes[image] += row.query.nbytes + row.keys.nbytes
        if self._bytes[image] > MAX_HELD:
            self.compute(image)

    def compute(self, image: int | None = None) -> None:
        """Compute the layers that wait, of an image or of all images."""
        for number in [*self._held] if image is None else [image]:
            layers = self._held.pop(number, [])
            self._bytes.pop(number, None)
            if layers:
                self._compute(number, layers)

    def _compute(self, image: int, held: Sequence[_Layer]) -> None:
        device = held[0].row.query.device.type
        if torch.is_autocast_enabled(device):  # it would use half precision here
            with torch.autocast(device, enabled=False):
                self._compute(image, held)
            return
        tokens = self.tokens[image]
        groups: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        text = [layer for layer in held if layer.site is not None]
        for number, layer in enumerate(text):
            groups[_shape(layer)].append(number)
        order: list[int] = []
        maps: list[tuple[Tensor, tuple[int, int]]] = []
        for numbers in groups.values():
            size = _size(text[numbers[0]].row, len(tokens))
            count = max(1, max_together(device) // size)
            for at in range(0, len(numbers), count):
                part = numbers[at : at + count]
                layers = [text[number] for number in part]
                p = self._probabilities([layer.row for layer in layers], tokens)
                sites = [layer.site for layer in layers if layer.site is not None]
                order.extend(part)
                maps.append((self._record(image, sites, p), layers[0].grid))
        if self.refined is None:
            return
        if len(text) == len(held):
            for part, grid in maps:
                self.refined.add(image, part, grid, self.passes)
            return
        attention: list[tuple[int, RowAttention, tuple[int, int]]] = []
        before = 0
        for layer in held:
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
            log_sum=log_sum,
        )
        p = heads_of_layers.probabilities(tokens).unflatten(0, (len(rows), -1))
        return p if self._keeps_heads else p.mean(dim=1, keepdim=True)

    def _row_probabilities(self, row: RowAttention, tokens: Sequence[int]) -> Tensor:
        """Return the probabilities (H, Q, K) in a layer, H = 1 for their mean."""
        if self._keeps_heads:
            return row.probabilities(tokens)
        return mean_over_heads(row, tokens)

    def _record(self, image: int, sites: Sequence[Site], p: Tensor) -> Tensor:
        """Add probabilities (L, H, Q, K) to the means; return the maps (L, Q, K)."""
        maps = p[:, 0] if p.shape[1] == 1 else p.mean(dim=1)
        if self.sums is not None:
            self.sums.add(image, sites, p, self.passes)
        return maps


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
    )
