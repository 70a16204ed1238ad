"""Take one place of one layer, at one pass of one step, out of a run: all that is computed there.

A probe is hung into a trace. It listens to the layers that are meant, takes what the model had when
the pass comes (Q, K, V and M of every head, P as it was and as an edit made it, what went into W_O
and what came out), and ends the run after that pass, between two of the model's.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from heedmap.backends import insides
from heedmap.backends.insides import Ending, Insides
from heedmap.errors import SelectionError, TraceError, quoted
from heedmap.maps.aims import Aim, number_of, worth
from heedmap.mathematics.probabilities import Scores
from heedmap.options import BranchName
from heedmap.recording.calls import Call
from heedmap.recording.steering import AttentionController
from heedmap.text.words import TokenTable


class Reached(BaseException):
    """The run has come to where it was to be looked at, and need not go on.

    Not an error: nobody who turns errors into sentences stops it.
    """


@dataclass(frozen=True, eq=False)
class Taken:
    """What a model had at one place, float32. Axes: H head · K token · d · C channels.

    Attributes:
        layer: its dotted path.
        grid: its (h, w).
        head: the one that is meant.
        query: (H, d).
        key: (H, K, d).
        value: (H, K, d).
        mask: (H, K), added to the scaled scores, -inf for what is hidden; None without.
        scale: what QKᵀ is multiplied by.
        edited: (H, K), P as a rule made it; None where none acted.
        joined: (H·d), what went into W_O.
        hidden: (C), what the layer was given.
        output: (C), what it gave.
        ending: how it puts its heads together.
        timestep: at which the model ran.
        passes: the number of this pass within the step, from 0, and how many there are.
        table: what the branch reads.
    """

    layer: str
    grid: tuple[int, int]
    head: int
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    mask: np.ndarray | None
    scale: float
    edited: np.ndarray | None
    joined: np.ndarray
    hidden: np.ndarray
    output: np.ndarray
    ending: Ending
    timestep: float
    passes: tuple[int, int]
    table: TokenTable


@dataclass(frozen=True, eq=False)
class _Seen:
    """What a layer's attention was made of, until the layer is done."""

    scores: Scores
    row: int
    place: int
    head: int
    edited: torch.Tensor | None


class Probe:
    """What is to be looked at, and what was found there.

    Args:
        aim: the word and the place; its layer, or any.
        image: the number of the picture in its batch.
        branch: of a guided run.
        number: which of the passes of the step, from 0; negative ones count from the end.
    """

    def __init__(self, aim: Aim, image: int, branch: BranchName, number: int) -> None:
        self.aim, self.image, self.number = aim, image, number
        self.branch: BranchName = branch
        self.found: Taken | None = None
        self._layers: Mapping[str, Any] = {}
        self._call: Call | None = None  # while the pass that is meant goes on
        self._passes = 0
        self._seen: dict[str, _Seen] = {}
        self._best = -float("inf")

    def attach(
        self, layers: Mapping[str, Any], undo: Callable[[Callable[[], None]], object]
    ) -> None:
        """Listen to the layers that are meant, of those of a model."""
        aim = self.aim
        self._layers = {n: layer for n, layer in layers.items() if aim.layer in (None, n)}
        for name, layer in self._layers.items():
            if aim.head is not None and aim.layer is not None:
                number_of("head", aim.head, layer.heads, name)
            insides.overhear(layer, self._hearing(name), undo)

    def enter(self, call: Call) -> None:
        """A pass of the model begins."""
        schedule = call.schedule
        first = schedule.steps.index(call.moment.step)
        if call.moment.step == self.aim.step:
            self._passes = schedule.steps.count(self.aim.step)
            self.number = number_of("pass", self.number, self._passes, f"step {self.aim.step}")
        meant = call.moment.step == self.aim.step and call.done - first == self.number
        side = call.records[self.branch]
        # Where a pass is repeated on other latents, the first is the picture's.
        self._call = call if meant and side.block is not None and self.found is None else None
        if meant and side.block is None and self.found is None:
            raise TraceError(
                f"the {self.branch} branch did not run at step {self.aim.step}: choose another step"
            )

    def hear(self, name: str, scores: Scores, controller: AttentionController | None) -> None:
        """A layer's attention was computed, for all rows of the batch."""
        call = self._call
        if call is None or name not in self._layers:
            return
        side = call.records[self.branch]
        assert side.block is not None
        grid = call.grids[name]
        row, column = self.aim.place(grid)
        place, number = row * grid[1] + column, side.block * call.images + self.image
        edited = None
        if self.branch == "conditional" and controller is not None:
            both = controller.both(scores, self.image, name)
            before, after = (None, None) if both is None else (p[:, place] for p in both)
            acts = before is not None and after is not None and not torch.equal(before, after)
            edited = after if acts else None
        p = edited
        if p is None:
            p = scores.of(number, slice(None), range(scores.key.shape[2]))[:, place]
        drawn = worth(p[:, list(self.aim.tokens)].sum(dim=-1))  # (H)
        head = int(drawn.argmax()) if self.aim.head is None else self.aim.head
        if head < len(drawn) and float(drawn[head]) > self._best:
            self._best = float(drawn[head])
            self._seen = {name: _Seen(scores, number, place, head, edited)}

    def leave(self) -> None:
        """The pass is over, and the scheduler was called; `Reached` if all is seen."""
        if self.found is not None:
            raise Reached
        if self._call is not None:
            raise SelectionError(
                f"head is {quoted(self.aim.head)}, and no layer has it: take a smaller one, or none"
            )

    def _hearing(self, name: str) -> Callable[[Insides], None]:
        def heard(now: Insides) -> None:
            seen = self._seen.pop(name, None)
            if seen is not None and self._call is not None:
                self.found = self._taken(name, seen, now, self._call)

        return heard

    def _taken(self, name: str, seen: _Seen, now: Insides, call: Call) -> Taken:
        row, place, scores = seen.row, seen.place, seen.scores
        heads = scores.query.shape[1]
        side = call.records[self.branch]
        value = now.value[row].unflatten(-1, (heads, -1)).transpose(0, 1)
        return Taken(
            layer=name,
            grid=call.grids[name],
            head=seen.head,
            query=_numbers(scores.query[row, :, place]),
            key=_numbers(scores.key[row]),
            value=_numbers(value),
            mask=_added(scores, row, place),
            scale=float(scores.scale),
            edited=None if seen.edited is None else _numbers(seen.edited),
            joined=_numbers(now.joined[row, place]),
            hidden=_numbers(now.hidden[row, place]),
            output=_numbers(now.output[row, place]),
            ending=insides.ending(self._layers[name], now.joined),
            timestep=call.schedule.timesteps[call.done],
            passes=(self.number, self._passes),
            table=side.tables[self.image],
        )


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    """A copy in float32."""
    return tensor.detach().float().cpu().numpy().copy()


def _added(scores: Scores, row: int, place: int) -> np.ndarray | None:
    """The mask of one row at one place (H, K), as it is added; None without one."""
    mask = scores.mask
    if mask is None:
        return None
    batch, heads, places, _ = scores.query.shape
    mine = mask.expand(batch, heads, -1, -1)[row].expand(-1, places, -1)[:, place]
    if mine.dtype == torch.bool:
        mine = torch.zeros(mine.shape, device=mine.device).masked_fill(~mine, -torch.inf)
    return _numbers(mine)


def branches_of(given: Iterable[BranchName], probe: "Probe | None") -> set[BranchName]:
    """The branches that a trace records: those that are wanted, and the one that is looked at."""
    found: set[BranchName] = {"conditional", *given}
    return found if probe is None else {*found, probe.branch}
