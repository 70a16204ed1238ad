"""Attention probabilities of a running model, their sums, and the maps made of them.

Axes: H head · Q position (Q = h·w, row-major) · K token.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from heedmap.backends.activations import keys_of
from heedmap.backends.base import GridShape
from heedmap.backends.prompts import ConceptStates, Encoding
from heedmap.errors import TraceError
from heedmap.mathematics.events import AttentionEvent, RowAttention
from heedmap.mathematics.probabilities import (
    fused,
    index_tensor,
    propagate,
)
from heedmap.mathematics.rules import Site, steps_within
from heedmap.options import Axis

CACHED = 2**18
"""The largest number of probabilities that a CPU computes for all heads at once: 1 MiB, which stay
in the cache."""


def max_together(device: str) -> int:
    """Return the largest number of probabilities that layers are computed together for."""
    return CACHED if device == "cpu" else 2**24


def shares_of_text(p: Tensor) -> Tensor:
    """Return probabilities (…, K) of all of the text's tokens by their sum.

    Those of negative weights count by their magnitude; where all are 0, the shares are 0.
    """
    total = p.abs().sum(dim=-1, keepdim=True)
    return p / total.clamp_min(torch.finfo(p.dtype).tiny)


def mean_over_heads(row: RowAttention, tokens: Sequence[int]) -> Tensor:
    """Return the mean over heads (1, Q, K') of probabilities of tokens."""
    heads, positions, _ = row.query.shape
    size = heads * positions * len(tokens)
    if row.query.device.type != "cpu" or size <= CACHED:
        return row.probabilities(tokens).mean(dim=0, keepdim=True)
    # One head after the other stays in the cache, and no (H, Q, K) tensor is made.
    total = row.probabilities(tokens, slice(0, 1))
    for head in range(1, heads):
        total += row.probabilities(tokens, slice(head, head + 1))
    return total.div_(heads)


MAX_KEY_ERROR = 0.02
"""Largest relative distance between a layer's keys of the prompt and those computed here. Rounding
of half-precision types stays below it."""


class ConceptKeys:
    """The keys that each layer makes of the concepts of a call's images.

    Concepts have a text of their own. The image's queries attend to it as in OVAM (Marcos-Manchón
    et al., arXiv 2403.14291), and the image does not change. `project` returns text states as the
    denoiser passes them to its layers.
    """

    def __init__(
        self,
        layers: Mapping[str, Any],
        encoding: Encoding,
        project: Callable[[Tensor], Tensor],
    ) -> None:
        self._layers, self._project = layers, project
        self._concepts, self._prompts = encoding.concepts, encoding.conditional.states
        self._texts: dict[ConceptStates, Tensor] = {}
        # By layer, once, on the device: whether its keys of the prompt are those computed here.
        self._is_exact: dict[str, Tensor] = {}

    def check(self) -> None:
        """Raise a TraceError if a layer does not make its keys with its own linear map."""
        names = list(self._is_exact)
        if not names:
            return
        exact = torch.stack(list(self._is_exact.values())).tolist()
        if not all(exact):
            raise TraceError(
                f"the keys of {names[exact.index(False)]} are not those of its own to_k layer (a "
                "processor with weights of its own?), so its keys of a concept cannot be "
                "computed: leave concepts out"
            )

    def probabilities(self, event: AttentionEvent, first: int) -> list[Tensor]:
        """Return each image's probabilities (H, Q, N) of its concepts in a layer that has just run.

        That of a concept is the sum over its tokens. Images are in the rows of the batch from
        `first` on.
        """
        name, key = event.layer, event.key
        layer = self._layers[name]
        if not self._texts:  # not earlier: the model may be offloaded until it runs
            every = dict.fromkeys(self._concepts)
            self._texts = {
                one: self._project(one.states[None].to(self._prompts)) for one in every
            }
        if name not in self._is_exact:
            prompt = self._project(self._prompts[:1]).to(key)
            self._is_exact[name] = _is_close(
                keys_of(layer, prompt), key[first : first + 1]
            )
        keys = {one: keys_of(layer, text.to(key)) for one, text in self._texts.items()}
        return [
            concept_probabilities(
                row_of(event.query[row], keys[one][0], event.scale), one
            )
            for row, one in enumerate(self._concepts, first)
        ]


def row_of(query: Tensor, key: Tensor, scale: float) -> RowAttention:
    """Return the attention of queries (H, Q, d) to keys (H, K, d), with a log-sum if known."""
    log_sum = None
    if query.device.type == "cpu":
        _, log_sums = fused(query[None], key[None], key[None], scale=scale)
        log_sum = None if log_sums is None else log_sums[0]
    return RowAttention(query, key, scale, log_sum=log_sum)


def _is_close(computed: Tensor, actual: Tensor) -> Tensor:
    """Return whether keys are equal but for rounding, as a tensor on their device."""
    if computed.shape != actual.shape:
        return torch.zeros((), dtype=torch.bool, device=actual.device)
    error = (computed - actual).float().norm()
    return error <= MAX_KEY_ERROR * actual.float().norm()


def concept_probabilities(row: RowAttention, concepts: ConceptStates) -> Tensor:
    """Return the probabilities (H, Q, N) of concepts, whose tokens are the text of a row."""
    counts = [len(places) for places in concepts.places]
    p = row.probabilities(list(chain(*concepts.places)))
    return torch.stack([part.sum(dim=-1) for part in p.split(counts, dim=-1)], dim=-1)


# --- sums -------------------------------------------------------------------------------------


class RunningMean:
    """A mean over steps; the passes of one step share its weight."""

    def __init__(self, total: Tensor | None = None, weight: float = 0.0) -> None:
        self.total = total
        self.weight = weight

    def add(self, part: Tensor, passes: int) -> None:
        """Add one of a step's passes. The tensor belongs to the mean from now on."""
        self.merge(part / passes if passes > 1 else part, 1 / passes)

    def merge(self, total: Tensor, weight: float) -> None:
        """Add a sum of parts with the sum of their weights. The tensor belongs to the mean."""
        self.total = total if self.total is None else self.total.add_(total)
        self.weight += weight

    def value(self) -> Tensor:
        """Return the mean, a new tensor; something must have been added."""
        assert self.total is not None
        return self.total / self.weight


class AttentionAccumulator:
    """Means of one branch's probabilities: one for each combination of the axes kept.

    Args:
        keep: the axes to keep; the others are averaged.
        mean_grid: (h, w) to which layers are resized where they are averaged.
    """

    def __init__(self, keep: frozenset[Axis], mean_grid: GridShape) -> None:
        self.keep = keep
        self.mean_grid = mean_grid
        # Means (L, H, Q, K) by image, layers and step (0 where steps are averaged).
        self._means: defaultdict[tuple[int, tuple[str, ...], int], RunningMean] = (
            defaultdict(RunningMean)
        )

    def add(
        self, image: int, sites: Sequence[Site], p: Tensor, passes: int = 1
    ) -> None:
        """Add an image's probabilities (L, H, Q, K) in layers of one grid, which it may change."""
        step = sites[0].step if "step" in self.keep else 0
        if "layer" in self.keep:
            names = tuple(site.layer for site in sites)
            self._means[image, names, step].add(p, passes)
            return
        total = p.sum(dim=0)
        total = regrid(total, sites[0].grid, self.mean_grid)[None]
        weight = len(p) / passes
        total = total / passes if passes > 1 else total
        self._means[image, ("",), step].merge(total, weight)

    def mean(self, image: int, layer: str, steps: Iterable[int]) -> Tensor:
        """Return the means (S, H, Q, K) of a layer ("" where layers are averaged) at these steps.

        A step at which the layer was skipped has the layer's mean over the other steps, so that
        the mean over all steps does not depend on whether steps are kept.
        """
        steps = tuple(steps)
        totals: dict[int, Tensor] = {}
        weights: defaultdict[int, float] = defaultdict(float)
        for (number, names, step), mean in self._means.items():
            if number == image and layer in names and step in steps:
                assert mean.total is not None
                part = mean.total[names.index(layer)]
                totals[step] = totals[step] + part if step in totals else part
                weights[step] += mean.weight
        means = {step: totals[step] / weights[step] for step in totals}
        if len(means) < len(steps):
            mean = torch.stack([*means.values()]).mean(dim=0)
            means = {step: means.get(step, mean) for step in steps}
        return torch.stack([means[step] for step in steps])


def regrid(p: Tensor, grid: GridShape, wanted: GridShape) -> Tensor:
    """Return (H, Q, K) on another grid; the tensor itself where the grids are equal."""
    if grid == wanted:
        return p
    heads, _, k = p.shape
    planes = p.permute(0, 2, 1).reshape(heads, k, *grid)
    planes = interpolate(planes, size=wanted, mode="bilinear", antialias=True)
    return planes.reshape(heads, k, -1).permute(0, 2, 1)


# --- refined maps -----------------------------------------------------------------------------

PROPAGATION_CELLS = (16, 48)
"""Cells on the short side of the self-attention layers along which maps are propagated: the
coarsest from 16 on, which tell things apart where finer ones tell textures, but none so fine that
it would cost as much as the model. Where there are none, the finest below."""
PROPAGATION_LAYERS = 6
"""The largest number of these layers, evenly taken of those with the grid."""
PROPAGATION_WINDOW = (0.5, 1.0)
"""The part of the run in which maps are propagated."""


def middle_grid(grids: Iterable[GridShape]) -> GridShape | None:
    """Return the grid (h, w), of these, on which maps are propagated; None if all are too fine."""
    least, most = PROPAGATION_CELLS
    coarse = sorted({grid for grid in grids if min(grid) <= most}, key=sorted)
    return next(
        (grid for grid in coarse if min(grid) >= least), coarse[-1] if coarse else None
    )


def propagation_layers(
    self_attention: Mapping[str, GridShape], cross_attention: Mapping[str, GridShape]
) -> tuple[str, ...]:
    """Return the self-attention layers, of these, along which maps are propagated.

    There are none where the cross-attention layers are finer, as in a model with self-attention in
    its middle alone: coarser maps would be no truer.
    """
    best = middle_grid(self_attention.values())
    finest = max(map(min, cross_attention.values()), default=0)
    if best is None or min(best) < min(PROPAGATION_CELLS[0], finest):
        return ()
    return evenly_chosen(
        [name for name, grid in self_attention.items() if grid == best]
    )


def evenly_chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Return at most `PROPAGATION_LAYERS` of these layers."""
    count = min(PROPAGATION_LAYERS, len(names))
    return tuple(names[(2 * i + 1) * len(names) // (2 * count)] for i in range(count))


def coarsened(grid: GridShape) -> GridShape:
    """Return a grid divided by the least whole number that makes it coarse enough, rounded up."""
    divisor = math.ceil(min(grid) / PROPAGATION_CELLS[1])
    return math.ceil(grid[0] / divisor), math.ceil(grid[1] / divisor)


def is_propagated(step: int, steps: int) -> bool:
    """Return whether maps are propagated at a step; always at the last one."""
    return step in steps_within(*PROPAGATION_WINDOW, steps) or step == steps - 1


class RefinedMaps:
    """The mean map of each image, and its means after propagation along self-attention.

    Args:
        grid: (h, w) on which maps are propagated: that of the layers, or a coarser one.
    """

    def __init__(self, grid: GridShape) -> None:
        self.grid = grid
        # (Q, K), by image.
        self._plain: defaultdict[int, RunningMean] = defaultdict(RunningMean)
        # Since maps were last asked for, by image and the layers' grid: resized when they are.
        self._recent: defaultdict[int, defaultdict[GridShape, RunningMean]] = (
            defaultdict(lambda: defaultdict(RunningMean))
        )
        self._refined: defaultdict[int, RunningMean] = defaultdict(RunningMean)

    def add(self, image: int, maps: Tensor, grid: GridShape, passes: int) -> None:
        """Add an image's maps (L, Q, K) in layers that attend to the text, of this grid."""
        total = maps.sum(dim=0)
        total = total / passes if passes > 1 else total
        self._recent[image][grid].merge(total, len(maps) / passes)

    def propagate(
        self,
        image: int,
        maps: Sequence[tuple[Tensor, GridShape]],
        order: Sequence[int],
        attention: Sequence[tuple[int, RowAttention, GridShape]],
        passes: int,
    ) -> None:
        """Add an image's maps, and propagate the mean so far along layers between them.

        Args:
            image: its number.
            maps: maps (L, Q, K) in layers that attend to the text, with their grid.
            order: the place of each of these layers among all, as they ran.
            attention: layers of the image's attention to itself, with their grid, each behind the
                number of those above that ran before it.
            passes: the number of the step's passes.
        """
        plain = self._plain_of(image) or RunningMean()
        parts = [regrid(part, grid, self.grid) for part, grid in maps]
        sums = [] if plain.total is None else [plain.total[None]]
        if parts:
            resized = torch.cat(parts) if len(parts) > 1 else parts[0]
            if list(order) != sorted(order):
                places = tuple(sorted(range(len(order)), key=order.__getitem__))
                index = index_tensor(places, resized.device)
                resized = resized.index_select(0, index)
            sums.append(resized / passes if passes > 1 else resized)
        if not sums:
            return
        sums = torch.cat(sums).cumsum(dim=0)
        begun = plain.total is not None
        layers: list[tuple[RowAttention, GridShape]] = []
        means: list[Tensor] = []
        weights: list[float] = []
        for count, row, grid in attention:
            if count or begun:
                layers.append((row, grid))
                means.append(sums[count - 1 + begun])
                weights.append(plain.weight + count / passes)
        if layers:
            scaled = torch.stack(list(torch._foreach_div(means, weights)))
            total = self._propagated(layers, scaled)
            total = total / passes if passes > 1 else total
            self._refined[image].merge(total, len(layers) / passes)
        plain = RunningMean(sums[-1].clone(), plain.weight + len(order) / passes)
        self._plain[image] = plain

    def _propagated(
        self, layers: Sequence[tuple[RowAttention, GridShape]], means: Tensor
    ) -> Tensor:
        """Return the sum (Q, K) of maps (L, Q, K) propagated along layers."""
        queries: list[Tensor] = []
        keys: list[Tensor] = []
        for row, grid in layers:
            query, key = row.query, row.image_keys
            if grid != self.grid:
                query, key = self._averaged(query, grid), self._averaged(key, grid)
            queries.append(query)
            keys.append(key)
        scales = {row.scale for row, _ in layers}
        shapes = {query.shape for query in queries}
        count = len(layers) * queries[0].shape[0] * queries[0].shape[1] ** 2
        together = len(scales) == len(shapes) == 1 and count <= max_together(
            queries[0].device.type
        )
        if not together:
            each = zip(queries, keys, means, layers, strict=True)
            parts = [propagate(q, k, m, scale=row.scale) for q, k, m, (row, _) in each]
            return torch.stack(parts).sum(dim=0)
        query, key = torch.stack(queries), torch.stack(keys)
        return propagate(query, key, means, scale=scales.pop()).sum(dim=0)

    def _plain_of(self, image: int) -> RunningMean | None:
        """Return the mean map of an image so far; None if there is none."""
        for grid, recent in self._recent.pop(image, {}).items():
            assert recent.total is not None
            resized = regrid(recent.total[None], grid, self.grid)[0]
            self._plain[image].merge(resized, recent.weight)
        return self._plain.get(image)

    def _averaged(self, states: Tensor, grid: GridShape) -> Tensor:
        """Return queries or keys (H, Q, d) on the maps' grid, float32."""
        planes = states.float().mT.unflatten(-1, grid)
        # Five times as fast.
        planes = planes.contiguous(memory_format=torch.channels_last)
        return adaptive_avg_pool2d(planes, self.grid).flatten(-2).mT

    def value(self, image: int) -> np.ndarray | None:
        """Return an image's refined maps (h, w, K), float32; None if none was propagated."""
        return self._map(self._refined[image]) if image in self._refined else None

    def current(self, image: int) -> np.ndarray:
        """Return an image's maps (2, h, w, K) so far: refined, and plain.

        Before maps are propagated both are plain.
        """
        mean = self._plain_of(image)
        assert mean is not None
        plain = self._map(mean)
        propagated = self.value(image)
        return np.stack([plain if propagated is None else propagated, plain])

    def _map(self, mean: RunningMean) -> np.ndarray:
        return mean.value().reshape(*self.grid, -1).cpu().numpy()
