"""Attention probabilities of a running model, their sums, and the maps made of them.

Axes: H head · Q position (Q = h·w, row-major) · K token.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from heedmap.backends.base import GridShape
from heedmap.backends.processors import keys_of
from heedmap.backends.prompts import ConceptStates, Encoding
from heedmap.errors import TraceError
from heedmap.mathematics.probabilities import Scores, columns, propagate, scored
from heedmap.mathematics.rules import Site, steps_within
from heedmap.options import Axis

CACHED = 2**17
"""The largest number of probabilities that a CPU computes for all heads at once: 512 KB, which stay
in the cache."""


@dataclass(frozen=True, eq=False)
class SiteProbabilities:
    """The probabilities of one image at one site, computed when they are asked for.

    Attributes:
        of: returns the probabilities (H', Q, K') of some heads and tokens, a new float32 tensor.
        heads: the number of heads of the layer.
        positions: the number of its positions, Q.
        device: where they are computed.
    """

    of: Callable[[slice, Sequence[int]], Tensor]
    heads: int
    positions: int
    device: torch.device

    def mean(self, tokens: Sequence[int]) -> Tensor:
        """Return the mean over heads (1, Q, K')."""
        size = self.heads * self.positions * len(tokens)
        if self.device.type != "cpu" or size <= CACHED:
            return self.of(slice(None), tokens).mean(dim=0, keepdim=True)
        # One head after the other stays in the cache, and no (H, Q, K) tensor is made.
        p = self.of(slice(0, 1), tokens)
        for head in range(1, self.heads):
            p += self.of(slice(head, head + 1), tokens)
        return p.div_(self.heads)


def row_probabilities(scores: Scores, row: int) -> SiteProbabilities:
    """Return the unedited probabilities of one row of the batch."""
    _, heads, positions, _ = scores.query.shape
    of = partial(scores.of, row)
    return SiteProbabilities(of, heads, positions, scores.query.device)


def shares_of_text(p: SiteProbabilities, tokens: int) -> SiteProbabilities:
    """Return probabilities of a joint softmax by their sum over the text, which has `tokens`.

    Those of negative weights count by their magnitude; where all are 0, the shares are 0.
    """

    def of(heads: slice, some: Sequence[int]) -> Tensor:
        every = p.of(heads, range(tokens))
        total = every.abs().sum(dim=-1, keepdim=True)
        return columns(every, some) / total.clamp_min(torch.finfo(every.dtype).tiny)

    return replace(p, of=of)


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

    def probabilities(
        self, name: str, scores: Scores, first: int
    ) -> list[SiteProbabilities]:
        """Return each image's probabilities of its concepts in a layer that has just run.

        That of a concept is the sum over its tokens. Images are in the rows of the batch from
        `first` on.
        """
        layer, key = self._layers[name], scores.key
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
                scored(scores.query[[row]], keys[one], scores.scale), one
            )
            for row, one in enumerate(self._concepts, first)
        ]


def _is_close(computed: Tensor, actual: Tensor) -> Tensor:
    """Return whether keys are equal but for rounding, as a tensor on their device."""
    if computed.shape != actual.shape:
        return torch.zeros((), dtype=torch.bool, device=actual.device)
    error = (computed - actual).float().norm()
    return error <= MAX_KEY_ERROR * actual.float().norm()


def concept_probabilities(scores: Scores, concepts: ConceptStates) -> SiteProbabilities:
    """Return the probabilities of concepts, whose tokens are the keys of one row of scores."""
    p, counts = (
        row_probabilities(scores, 0),
        [len(places) for places in concepts.places],
    )
    tokens = list(chain(*concepts.places))

    def of(heads: slice, numbers: Sequence[int]) -> Tensor:
        each = p.of(heads, tokens).split(counts, dim=-1)
        return torch.stack([each[number].sum(dim=-1) for number in numbers], dim=-1)

    return replace(p, of=of)


# --- sums -------------------------------------------------------------------------------------


class RunningMean:
    """A mean over steps; the passes of one step share its weight."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.weight = 0.0

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
        positions: for each image the tokens to record.
        mean_grid: (h, w) to which layers are resized where they are averaged.
    """

    def __init__(
        self,
        keep: frozenset[Axis],
        positions: Iterable[tuple[int, ...]],
        mean_grid: GridShape,
    ) -> None:
        self.keep = keep
        self.positions = tuple(positions)
        self.mean_grid = mean_grid
        # By image, layer and step ("" and 0 where these axes are averaged).
        self._means: defaultdict[tuple[int, str, int], RunningMean] = defaultdict(
            RunningMean
        )

    def add(
        self, image: int, site: Site, p: SiteProbabilities, passes: int = 1
    ) -> Tensor:
        """Add one image's probabilities at one site, in one of the step's `passes`.

        Returns:
            The recorded probabilities (H, Q, K) on the layer's own grid, or their mean over heads.
        """
        tokens = self.positions[image]
        recorded = p.of(slice(None), tokens) if "head" in self.keep else p.mean(tokens)
        by_layer = "layer" in self.keep
        part = recorded if by_layer else regrid(recorded, site.grid, self.mean_grid)
        slot = (
            image,
            site.layer if by_layer else "",
            site.step if "step" in self.keep else 0,
        )
        self._means[slot].add(part, passes)
        return recorded

    def mean(self, image: int, layer: str, steps: Iterable[int]) -> Tensor:
        """Return the means (S, H, Q, K) of a layer ("" where layers are averaged) at these steps.

        A step at which the layer was skipped has the layer's mean over the other steps, so that
        the mean over all steps does not depend on whether steps are kept.
        """
        slots = [(image, layer, step) for step in steps]
        means = {
            slot: self._means[slot].value() for slot in slots if slot in self._means
        }
        if len(means) < len(slots):
            mean = torch.stack([*means.values()]).mean(dim=0)
            means |= {slot: mean for slot in slots if slot not in means}
        return torch.stack([means[slot] for slot in slots])


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
        self._plain: defaultdict[int, RunningMean] = defaultdict(
            RunningMean
        )  # (Q, K), by image
        # Since maps were last asked for, by image and the layers' grid: resized when they are.
        self._recent: defaultdict[int, dict[GridShape, RunningMean]] = defaultdict(dict)
        self._refined: defaultdict[int, RunningMean] = defaultdict(RunningMean)

    def add(self, image: int, p: Tensor, grid: GridShape, passes: int) -> None:
        """Add an image's probabilities (H, Q, K) in a cross-attention layer of this grid."""
        part = p[0] if len(p) == 1 else p.mean(dim=0)
        recent = self._recent[image]
        if grid not in recent:
            recent[grid] = RunningMean()
            part = part.clone()
        recent[grid].add(part, passes)

    def propagate(
        self, image: int, scores: Scores, row: int, grid: GridShape, passes: int
    ) -> None:
        """Propagate an image's mean map so far along a self-attention layer of this grid.

        If it is finer than the maps', the queries and keys of neighbours are averaged.
        """
        plain = self._plain_of(image)
        if plain is not None:
            query, key = scores.query[row], scores.key[row]
            if grid != self.grid:
                query, key = (self._averaged(part, grid) for part in (query, key))
            propagated = propagate(query, key, plain.value(), scale=scores.scale)
            self._refined[image].add(propagated, passes)

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
        planes = planes.contiguous(
            memory_format=torch.channels_last
        )  # five times as fast
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
