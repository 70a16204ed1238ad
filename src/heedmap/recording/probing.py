"""A probe, which copies the numbers of a layer at one position of the image, and ends the run.

A trace passes each layer's attention to the probe. In the pass of the model that is probed, it
copies Q, K, V, the mask, P after the edits, and the input and output of W_O. Of several layers and
heads it takes those with the highest `selection_score`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from heedmap.backends.activations import (
    LayerActivations,
    output_projection,
    record_activations,
)
from heedmap.backends.base import Undo
from heedmap.checks import check_int
from heedmap.errors import SelectionError, TraceError, quoted
from heedmap.maps.recordings import Layer
from heedmap.mathematics.by_hand import LayerInputs
from heedmap.mathematics.events import AttentionEvent, RowAttention, nth, take
from heedmap.mathematics.probabilities import log_sums
from heedmap.recording.recorder import Recorder
from heedmap.text.words import TokenTable


class StopRun(BaseException):
    """Ends a run whose probe has its numbers. No handler of an `Exception` stops it."""


@dataclass(frozen=True, eq=False)
class ProbeSite:
    """The layer and head that a probe took, at its position.

    Attributes:
        layer: the layer, with its number of heads and its grid.
        place: (row, column) of the position of the grid that holds the pixel.
        probabilities: (H, K), P of all heads after the edits. In a joint softmax there is one more
            column, the last: the image's share.
        passes: the pass within the step, from 0, and the number of passes.
        table: the text that the model reads.
    """

    layer: Layer
    head: int
    place: tuple[int, int]
    probabilities: np.ndarray
    timestep: float
    passes: tuple[int, int]
    table: TokenTable


@dataclass(eq=False)
class Probe:
    """A probe of one run: its target and, after the run, its site and the numbers there.

    Attributes:
        tokens: the positions of a word's tokens on the K axis.
        at: (x, y), a pixel of the image, from the upper left, from 0.
        size: (width, height) of the image.
        image: the number of the image in its batch.
        layers: the dotted paths of the layers to choose from.
        head: from 0; None to choose from all.
        joint: whether text and image share one softmax.
        site: None until the run has reached the target.
        inputs: the inputs of the layer there, and its output.
    """

    tokens: tuple[int, ...]
    at: tuple[int, int]
    size: tuple[int, int]
    image: int
    step: int
    layers: Collection[str]
    head: int | None
    joint: bool = False
    site: ProbeSite | None = None
    inputs: LayerInputs | None = None
    _highest: float = -math.inf  # score
    # Until the layer has run: its site, its attention, the row of the batch, whether P was edited.
    _pending: tuple[ProbeSite, RowAttention, int, bool] | None = None

    def place(self, grid: tuple[int, int]) -> tuple[int, int]:
        """Return (row, column) of the position of a grid (h, w) that holds the pixel."""
        width, height = self.size
        x, y = self.at
        return y * grid[0] // height, x * grid[1] // width

    def attach(self, layers: Mapping[str, Any], undo: Undo) -> None:
        """Install hooks on the layers to choose from, until undone."""
        for name in self.layers:
            finish = partial(self._finish, layers[name])
            record_activations(layers[name], finish, undo, self.joint)

    @torch.no_grad()
    def record(self, recorder: Recorder, event: AttentionEvent) -> None:
        """Look at a layer's attention, for all rows of the batch."""
        call = recorder.call
        steps = call.schedule.steps
        name = event.layer
        if name not in self.layers or call.moment.step != self.step:
            return
        # Of several passes of a step, the first is explained.
        if call.done != steps.index(self.step):
            return
        grid = call.grids[name]
        first = recorder.rows.get("conditional")
        if first is None:  # repeated on other latents
            return
        number_of_row = first + self.image
        place = self.place(grid)
        row = event.row(number_of_row)
        edits = event.edited.get(number_of_row)
        p = row.whole() if edits is None else edits.after
        p = p[:, place[0] * grid[1] + place[1]]
        score = selection_score(p[:, list(self.tokens)].sum(dim=-1))  # (H)
        head = int(score.argmax()) if self.head is None else self.head
        if head < len(score) and float(score[head]) > self._highest:
            self._highest = float(score[head])
            site = ProbeSite(
                layer=call.layers[name],
                head=head,
                place=place,
                probabilities=_array(p),
                timestep=call.schedule.timesteps[call.done],
                passes=(0, steps.count(self.step)),
                table=recorder.records["conditional"].tables[self.image],
            )
            is_edited = edits is not None and edits.changes
            self._pending = site, row, number_of_row, is_edited

    def leave(self) -> None:
        """End a pass of the model; `StopRun` if the numbers are found."""
        if self.inputs is not None:
            raise StopRun

    def _finish(self, layer: Any, computed: LayerActivations) -> None:
        """Copy the numbers of a layer that has just run, if it is the site."""
        if self._pending is None:
            return
        site, row, number, edited = self._pending
        self._pending = None
        place = site.place[0] * site.layer.grid[1] + site.place[1]
        weight, bias = output_projection(layer, computed.joined)
        residual = computed.residual
        mask = None if row.text_mask is None else row.text_mask[:, place]
        key, value = row.text_keys, computed.value
        among = place
        if value is None:
            key, value = _image_as_one(row, place)
            mask = None if mask is None else pad(mask, (0, 1))
            count = row.keys.shape[1]
            if computed.output.shape[1] == count:  # text and image are joined
                index = torch.tensor(place, device=row.keys.device)
                among = int(nth(row.layout.position_keys, index))
        else:
            value = value[number].unflatten(-1, (site.layer.heads, -1)).transpose(0, 1)
        position = (number, among)
        if computed.gate is not None:
            weight = weight * computed.gate[position].float()
        value = _array(value)
        joined = np.einsum("hk,hkd->hd", site.probabilities, value).reshape(-1)
        self.site = site
        self.inputs = LayerInputs(
            query=_array(row.query[:, place]),
            key=_array(key),
            value=value,
            mask=None if mask is None else _array(mask),
            scale=float(row.scale),
            edited=site.probabilities if edited else None,
            added=_array(computed.joined[position]) - joined
            if computed.adapted
            else None,
            weight=_array(weight),
            bias=None if bias is None else _array(bias),
            residual=None if residual is None else _array(residual[position]),
            factor=computed.factor,
            output=_array(computed.output[position]),
        )


def _image_as_one(row: RowAttention, place: int) -> tuple[Tensor, Tensor]:
    """Return the keys and values (H, K + 1, d) of a joint softmax for the query at a place.

    The last ones stand for the image, with reference images: the key along the query whose scaled
    score is the logarithm of Σ exp over their keys, and the mean of their values by their
    attention.
    """
    if row.values is None:
        raise TraceError(
            "the layer computes its probabilities by get_attention_scores, where its values are "
            "not known: load the model again, and keep the processors that it is loaded with"
        )
    query, values = row.query[:, [place]].float(), row.values.float()
    others, of_others = row.other_keys.float(), row.other_values.float()
    mask = row.other_mask  # Chroma's is of the image, too
    mask = None if mask is None else mask[:, [place]]
    score = log_sums(query, others, row.scale, mask)[..., None] / row.scale
    mean = scaled_dot_product_attention(query, others, of_others, mask, scale=row.scale)
    along = score * query / query.square().sum(-1, keepdim=True)
    key = torch.cat([row.text_keys, along], dim=1)
    return key, torch.cat([take(values, row.layout.tokens), mean], dim=1)


def selection_score(p: Tensor) -> Tensor:
    """Return the scores of layers and heads; the highest wins.

    It is the largest probability up to a half: where one token has nearly all of a softmax, it
    shows nothing of the others. If all are larger, the smallest wins. Probabilities
    of a negative weight count by their magnitude.
    """
    size = p.abs()
    return size * (1 - 2 * (size > 0.5))


def check_index(name: str, value: object, count: int) -> int:
    """Return the number of a step, head or pass from 0; negative numbers count from the end.

    An ArgumentError if it is not whole, a SelectionError if there are only `count`.
    """
    number = check_int(name, value)
    if not -count <= number < count:
        raise SelectionError(f"{name} is {quoted(number)}: expected 0 to {count - 1}")
    return number % count


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().double().numpy()
