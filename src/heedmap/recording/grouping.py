"""The sums of one record. Layers of one shape are computed together, those of several passes, too.

A small batch on a GPU waits for the host, so that few large operations cost less than many small
ones. Events are held until then, of at most `MAX_PASSES` passes and `MAX_HELD` bytes. On a CPU,
layers of more probabilities than stay in its cache are computed one after the other, as they run.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from heedmap.mathematics.events import (
    AttentionEvent,
    RowAttention,
    RowLayout,
    merged,
)
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
"""Bytes of the tensors of events that are held by reference."""
MAX_ON_CPU = 2**22
"""The same of the layers of a pass on a CPU, in whose cache they stay."""
MAX_PASSES = 4
"""Passes of the model whose events are held."""


def max_waiting(device: str) -> int:
    """Return the largest number of bytes of events that wait for the end of a pass."""
    return MAX_ON_CPU if device == "cpu" else MAX_HELD


@dataclass(frozen=True, eq=False)
class _Layer:
    """One image's attention in a layer, which is not computed yet.

    Attributes:
        event: that of the layer.
        number: the row of the batch.
        grid: (h, w) of the layer.
        model_pass: the number of the pass among those that are held.
        propagates: whether maps are propagated along it.
    """

    event: AttentionEvent
    number: int
    grid: tuple[int, int]
    model_pass: int
    propagates: bool = False


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
        if not self._may_wait(event):
            self.compute(image)
            p = self._row_probabilities(event, number, self.tokens[image])
            self._add_now(image, event.site, p)
            return
        h, w = event.site.grid
        self._hold(image, _Layer(event, number, (h, w), self._passes_held))
        size = event.query.shape[1] * h * w * len(self.tokens[image])
        if size > CACHED and event.query.device.type == "cpu":
            self.compute(image)

    def _may_wait(self, event: AttentionEvent) -> bool:
        """Return whether a layer's probabilities can be computed with those of others."""
        joint = event.layout.joint
        if self._of_text and joint:
            return event.mask is None
        return event.log_sum is not None or (event.mask is None and not joint)

    def _hold(self, image: int, layer: _Layer) -> None:
        # Nothing else is done between two layers, where code is slower than in a loop.
        self._held[image].append(layer)
        self._bytes[image] += layer.event.nbytes
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
        layer = _Layer(event, number, grid, self._passes_held, propagates=True)
        self._hold(image, layer)

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
        device = layers[0].event.query.device.type
        if torch.is_autocast_enabled(device):  # it would use half precision here
            with torch.autocast(device, enabled=False):
                self._compute(image, layers)
            return
        tokens = self.tokens[image]
        text = [layer for layer in layers if not layer.propagates]
        order: list[int] = []
        maps: list[tuple[Tensor, tuple[int, int]]] = []
        for numbers in _groups(text, len(tokens)):
            group = [text[number] for number in numbers]
            p = self._probabilities(group, tokens)
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
            if layer.propagates:
                row = layer.event.row(layer.number, values=False)
                attention.append((before, row, layer.grid))
            else:
                before += 1
        self.refined.propagate(image, maps, order, attention, self.passes)

    def _probabilities(
        self,
        layers: Sequence[_Layer],
        tokens: Sequence[int],
    ) -> Tensor:
        """Return the probabilities (L, H, Q, K) in layers of one shape, H = 1 for their mean."""
        first = layers[0]
        if len(layers) == 1:
            return self._row_probabilities(first.event, first.number, tokens)[None]
        row = merged([layer.event for layer in layers], first.number)
        if self._of_text:
            row = row.text_alone()
        if first.event.mask is not None:
            row = replace(
                row,
                keys=row.text_keys,
                layout=RowLayout(),
                visible=_text_masks(layers),
            )
        p = row.probabilities(tokens).unflatten(0, (len(layers), -1))
        return p if self._keeps_heads else p.mean(dim=1, keepdim=True)

    def _row_probabilities(
        self,
        event: AttentionEvent,
        number: int,
        tokens: Sequence[int],
    ) -> Tensor:
        """Return the probabilities (H, Q, K) in a layer, H = 1 for their mean."""
        row = event.row(number, values=False)
        if self._of_text and row.joint:
            row = row.text_alone()
        if self._keeps_heads:
            return row.probabilities(tokens)
        return mean_over_heads(row, tokens)

    def _record(self, image: int, layers: Sequence[_Layer], p: Tensor) -> None:
        """Add probabilities (L, H, Q, K) to the means, pass by pass."""
        if self.sums is None:
            return
        sites: defaultdict[int, list[Site]] = defaultdict(list)
        for layer in layers:
            sites[layer.model_pass].append(layer.event.site)
        self.sums.add(image, [*sites.values()], p, self.passes)


def _text_masks(layers: Sequence[_Layer]) -> Tensor:
    """Return the masks (L·H, Q, K) of the text in layers; Q = 1 if they are alike for all."""
    masks: list[Tensor] = []
    for layer in layers:
        mask = layer.event.row(layer.number, values=False).text_mask
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
        first = layers[next(iter(of_shape.values()))[0]]
        device = first.event.query.device.type
        most = max(1, max_together(device) // _size(first, tokens))
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


def _size(layer: _Layer, tokens: int) -> int:
    """Return the number of probabilities that are computed for a layer."""
    event = layer.event
    h, w = layer.grid
    count = event.key.shape[2] if event.log_sum is None else tokens
    return event.query.shape[1] * h * w * max(count, 1)


def _shape(layer: _Layer) -> tuple[object, ...]:
    """Return what layers that are computed together have in common."""
    event = layer.event
    return (
        layer.grid,
        layer.number,
        event.layout,
        event.query.shape,
        event.key.shape,
        event.scale,
        event.query.dtype,
        event.query.device,
        event.log_sum is None,
        event.mask is None,
    )
