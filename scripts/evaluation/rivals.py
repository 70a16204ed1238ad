"""What is heard of a run, brought to one grid, and the maps of words that others would make of it.

The mathematics is in `published`. What was free was chosen on 50 rendered scenes of
`truth.held_out(CHOSEN)`, which nothing is measured on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.nn.functional import interpolate

from evaluation import published
from evaluation.listening import Block, Heard

Grid = tuple[int, int]
GRID = (16, 16)
"""The finest grid of the embedded model's attention: what is carried is carried there."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """A run's blocks, and what several ways take of them; by the letters of `published`.

    Attributes:
        steps: of a run; what is "later" is the second half of them, where a picture has its shapes.
    """

    steps: Sequence[Mapping[str, Block]]

    @classmethod
    def of(cls, heard: Heard) -> "Gathered":
        """All that was heard."""
        return cls(tuple(heard.steps))

    @property
    def later(self) -> Sequence[Mapping[str, Block]]:
        """The second half of the steps; of one step that one."""
        return self.steps[len(self.steps) // 2 :]

    @cached_property
    def words(self) -> torch.Tensor:
        """The plain maps: the mean over heads, layers and steps, (Q, K)."""
        found = [block.words.mean(dim=0, keepdim=True) for _, block in _blocks(self.steps)]
        grids = [block.grid for _, block in _blocks(self.steps)]
        both = zip(found, grids, strict=True)
        return torch.cat([regridded(p, grid) for p, grid in both]).mean(dim=0)

    @cached_property
    def own(self) -> torch.Tensor:
        """Self-attention in the layers of the grid, the mean over the later steps, (Q, Q)."""
        return torch.stack([b.own for _, b in _blocks(self.later) if b.grid == GRID]).mean(dim=0)

    @cached_property
    def last(self) -> torch.Tensor:
        """The same of the last step alone, in the layers of the grid that go up again, (Q, Q)."""
        blocks = _blocks(self.steps[-1:])
        up = [b.own for name, b in blocks if name.startswith("up") and b.grid == GRID]
        return torch.stack(up).mean(dim=0)

    @cached_property
    def outputs(self) -> torch.Tensor:
        """What self-attention brought there, of all these layers and steps, (Q, ΣC)."""
        found = [block.outputs for _, block in _blocks(self.later) if block.grid == GRID]
        return torch.cat(found, dim=-1)

    @cached_property
    def graph(self) -> torch.Tensor:
        """A gated graph of these, (Q, Q)."""
        return published.gated(self.own, self.outputs, GATE, POWER)

    @cached_property
    def wide_graph(self) -> torch.Tensor:
        """The same where places need not be as alike."""
        return published.gated(self.own, self.outputs, GATE, ANCHOR_POWER)

    @cached_property
    def reduced(self) -> torch.Tensor:
        """The last step's attention, its entropy reduced, (Q, Q)."""
        return published.entropy_reduced(self.last, RATE)

    @cached_property
    def aggregated(self) -> torch.Tensor:
        """GoCA's maps of all tokens, the mean over the later steps, (Q, K)."""
        return torch.stack([_aggregated(step) for step in self.later]).mean(dim=0)


def regridded(p: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Maps (H, Q, K) of a grid on the common one, bilinear: (H, Q', K)."""
    if grid == GRID:
        return p
    planes = p.movedim(1, -1).unflatten(-1, grid)
    return interpolate(planes, size=GRID, mode="bilinear").flatten(2).movedim(-1, 1)


def _blocks(steps: Sequence[Mapping[str, Block]]) -> list[tuple[str, Block]]:
    return [item for step in steps for item in step.items()]


def _aggregated(step: Mapping[str, Block]) -> torch.Tensor:
    blocks = list(step.values())
    alike = published.affinity([b.queries for b in blocks if b.grid == GRID][-1])
    layers = published.layer_weights(
        [published.on_grid(b.own, b.grid, GRID) for b in blocks], alike
    )
    heads = [
        regridded(published.head_weights(b.brought)[..., None], b.grid)[..., 0] for b in blocks
    ]
    return published.aggregated([regridded(b.words, b.grid) for b in blocks], heads, layers)


# --- maps of words ----------------------------------------------------------------------------

CHOSEN = 50_000_000
"""How far beyond those of `truth` the layouts begin that all below was chosen on."""
GATE, POWER = 0.1, 16.0
"""Of `published.gated`; for a walk from an anchor, which has to go farther, the power 4."""
ANCHOR_POWER, ANCHOR_STEPS = 4.0, 3
RATE, TIMES = 0.8, 1
"""Of `published.entropy_reduced` and `repeated`. The paper repeats up to 10 times at most 0.09."""

Way = Callable[[Gathered, Sequence[int]], torch.Tensor]
"""From what was heard and the tokens of a word or phrase to its map (Q,)."""


def goca(heard: Gathered, tokens: Sequence[int]) -> torch.Tensor:
    """GoCA's aggregation, each place's sum 1 over all tokens."""
    return published.rescaled(heard.aggregated, tokens, range(heard.aggregated.shape[1]))


def goca_carried(heard: Gathered, tokens: Sequence[int]) -> torch.Tensor:
    """The same, carried twice along self-attention, as the paper has it."""
    return published.carried(heard.last, goca(heard, tokens), 2)


def iseg(heard: Gathered, tokens: Sequence[int]) -> torch.Tensor:
    """The plain map, repeated as iSeg does it, along the last step's attention."""
    return published.repeated(heard.reduced, plain(heard, tokens), TIMES)


def gated(heard: Gathered, tokens: Sequence[int]) -> torch.Tensor:
    """The plain map, one step over the gated graph: heedmap's reading."""
    return published.walked(heard.graph, plain(heard, tokens), 1, 0.0)


def anchored(heard: Gathered, tokens: Sequence[int]) -> torch.Tensor:
    """AnchorDiff's seed, the plain map's surest place alone, walked over a gated graph."""
    seed = published.anchor(plain(heard, tokens))
    return published.walked(heard.wide_graph, seed, ANCHOR_STEPS, 0.0)


def goca_gated(heard: Gathered, tokens: Sequence[int]) -> torch.Tensor:
    """GoCA's aggregation, one step over the gated graph: the two together."""
    return published.walked(heard.graph, goca(heard, tokens), 1, 0.0)


def plain(heard: Gathered, tokens: Sequence[int]) -> torch.Tensor:
    """The mean over heads, layers and steps, as `run.maps` has it."""
    return heard.words[:, list(tokens)].sum(dim=-1)


def as_map(values: torch.Tensor) -> np.ndarray:
    """A map (Q,) on the grid: float32 (h, w)."""
    return values.float().reshape(GRID).numpy()


@dataclass(frozen=True)
class Rival:
    """A row of the table.

    Attributes:
        way: how a map is made.
        phrase: whether of the whole phrase, else of the word alone.
        cut: where its mask is cut, between its least and greatest value.
    """

    way: Way
    phrase: bool
    cut: float


RIVALS: Mapping[str, Rival] = {
    "goca": Rival(goca, False, 0.3),
    "goca phrase": Rival(goca, True, 0.35),
    "goca phrase, carried": Rival(goca_carried, True, 0.5),
    "iseg": Rival(iseg, False, 0.35),
    "iseg phrase": Rival(iseg, True, 0.35),
    "gated": Rival(gated, False, 0.4),
    "gated phrase": Rival(gated, True, 0.4),
    "anchored phrase": Rival(anchored, True, 0.35),
    "goca phrase, gated": Rival(goca_gated, True, 0.35),
}
"""The ways of others, and two of them together."""
