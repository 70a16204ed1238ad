"""A probe, which copies the numbers of a layer at one position of the image, and ends the run.

A trace passes each layer's attention to the probe. At the pass of the model that is probed, it
keeps Q, K, V, the mask, P after the edits, and the input and output of W_O. If the layer or head is
open, it keeps those with the highest `selection_score`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heedmap.backends.base import Undo
from heedmap.backends.processors import LayerActivations, output_projection, record_activations
from heedmap.checks import check_int
from heedmap.errors import SelectionError, TraceError, plural, quoted
from heedmap.mathematics.by_hand import LayerInputs
from heedmap.mathematics.probabilities import Scores
from heedmap.options import BranchName
from heedmap.recording.calls import Call
from heedmap.recording.edits import AttentionController
from heedmap.text.words import TokenTable

HALF = 0.5
"""The largest probability of a word that is selected, unless all are larger."""


class Reached(BaseException):
    """Ends a run whose probe has found its numbers.

    It is not an Exception, so that no handler of errors stops it.
    """


@dataclass(frozen=True)
class ProbeTarget:
    """The attention to probe.

    Attributes:
        tokens: the positions of a word's tokens on the K axis.
        at: (x, y), a pixel of the image, from the upper left, from 0.
        size: (width, height) of the image.
        image: the number of the image in its batch.
        branch: of a guided run.
        step: from 0.
        pass_: the model's pass within the step; negative numbers count from the end.
        layer: its dotted path. Default: any layer.
        head: from 0. Default: any head.
    """

    tokens: tuple[int, ...]
    at: tuple[int, int]
    size: tuple[int, int]
    image: int
    branch: BranchName
    step: int
    pass_: int = 0
    layer: str | None = None
    head: int | None = None

    def place(self, grid: tuple[int, int]) -> tuple[int, int]:
        """Return (row, column) of the position of a grid (h, w) that holds the pixel."""
        return self.at[1] * grid[0] // self.size[1], self.at[0] * grid[1] // self.size[0]


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """The numbers that a probe found.

    Attributes:
        layer: its dotted path, and its `grid` (h, w).
        given: the inputs of the layer, without the attention to an image prompt.
        joined: (H·d), the input of W_O.
        image_prompt: True if the layer also attends to an image prompt.
        timestep: the model's.
        passes: the pass within the step, from 0, and the number of passes.
        table: the text that the branch reads.
    """

    layer: str
    grid: tuple[int, int]
    head: int
    given: LayerInputs
    joined: np.ndarray
    image_prompt: bool
    timestep: float
    passes: tuple[int, int]
    table: TokenTable


class Probe:
    """A probe of one run.

    Attributes:
        result: the numbers at the target; None until the run has reached it.
    """

    def __init__(self, target: ProbeTarget) -> None:
        self.target = target
        self.result: ProbeResult | None = None
        self._layers: Mapping[str, Any] = {}
        self._call: Call | None = None  # while the probed pass runs
        self._passes = (0, 1)
        self._best_score = -float("inf")
        # The best attention so far, until its layer has run to the end: its scores, row, place,
        # head and edited probabilities.
        self._best: tuple[Scores, int, int, int, Tensor | None] | None = None

    def attach(self, layers: Mapping[str, Any], undo: Undo) -> None:
        """Install hooks on the layers that may be probed, until undone."""
        self._layers = {n: one for n, one in layers.items() if self.target.layer in (None, n)}
        for name, layer in self._layers.items():
            record_activations(layer, partial(self._finish, name), undo)

    def enter(self, call: Call) -> None:
        """Begin a pass of the model."""
        schedule, target = call.schedule, self.target
        self._call = None
        if call.moment.step != target.step or self.result is not None:
            return  # a pass repeated on other latents: the first is that of the image
        count = schedule.steps.count(target.step)
        number = check_index("pass_", target.pass_, count, f"step {target.step}", "pass")
        if call.done - schedule.steps.index(target.step) != number:
            return
        if call.records[target.branch].block is None:
            raise TraceError(
                f"the {target.branch} branch did not run at step {target.step}: choose another step"
            )
        self._call, self._passes = call, (number, count)

    def record(self, name: str, scores: Scores, controller: AttentionController | None) -> None:
        """Look at a layer's attention, for all rows of the batch."""
        call, target = self._call, self.target
        if call is None or name not in self._layers:
            return
        block, grid = call.records[target.branch].block, call.grids[name]
        assert block is not None
        row, column = target.place(grid)
        place, number = row * grid[1] + column, block * call.images + target.image
        pair = None
        if target.branch == "conditional" and controller is not None:
            pair = controller.recorded(scores, target.image, name)
        if pair is None:
            p, edited = scores.of(number, slice(None), range(scores.key.shape[2]))[:, place], None
        else:
            before, p = (one[:, place] for one in pair)  # (H, K)
            edited = None if torch.equal(before, p) else p
        score = selection_score(p[:, list(target.tokens)].sum(dim=-1))  # (H)
        head = int(score.argmax()) if target.head is None else target.head
        if head < len(score) and float(score[head]) > self._best_score:
            self._best_score = float(score[head])
            self._best = (scores, number, place, head, edited)

    def leave(self) -> None:
        """End a pass of the model; `Reached` if the numbers are found."""
        if self.result is not None:
            raise Reached

    def _finish(self, name: str, computed: LayerActivations) -> None:
        call = self._call
        if self._best is None or call is None:
            return
        (scores, row, place, head, edited), self._best = self._best, None
        weight, bias = output_projection(self._layers[name], computed.joined)
        residual, mask = computed.residual, scores.mask_of(row)
        value = computed.value[row].unflatten(-1, (scores.query.shape[1], -1)).transpose(0, 1)
        self.result = ProbeResult(
            layer=name,
            grid=call.grids[name],
            head=head,
            given=LayerInputs(
                query=_numbers(scores.query[row, :, place]),
                key=_numbers(scores.key[row]),
                value=_numbers(value),
                mask=None if mask is None else _numbers(mask[:, place]),
                scale=float(scores.scale),
                edited=_numbers(edited),
                added=None,
                weight=_numbers(weight),
                bias=_numbers(bias),
                residual=None if residual is None else _numbers(residual[row, place]),
                factor=computed.factor,
                output=_numbers(computed.output[row, place]),
            ),
            joined=_numbers(computed.joined[row, place]),
            image_prompt=computed.adapted,
            timestep=call.schedule.timesteps[call.done],
            passes=self._passes,
            table=call.records[self.target.branch].tables[self.target.image],
        )


def selection_score(p: Tensor) -> Tensor:
    """Return the scores of layers and heads; the highest wins.

    The word's probability is largest there without exceeding `HALF`: if one token has nearly all
    of a softmax, the others show nothing. If all are larger, the smallest wins. Probabilities
    of a negative weight count by their magnitude.
    """
    size = p.abs()
    return size * (1 - 2 * (size > HALF))


def check_index(name: str, value: object, count: int, owner: str, unit: str) -> int:
    """Check the number of a step, head or pass, and return it counted from 0.

    Raises:
        ArgumentError: if it is not a whole number.
        SelectionError: if there is no such one; negative numbers count from the end.
    """
    number = check_int(name, value)
    if not -count <= number < count:
        nearest = 0 if number < 0 else count - 1
        raise SelectionError(
            f"{name} is {quoted(number)}, and {owner} has {plural(count, unit)}: the nearest is "
            f"{nearest}"
        )
    return number % count


def _numbers(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.detach().float().cpu().double().numpy()
