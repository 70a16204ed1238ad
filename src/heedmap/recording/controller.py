"""The controller: it applies edits to the attention of each layer while a pipeline runs.

All functions make new tensors, so that nothing that is recorded changes; only the output of the
attention, fresh from the kernel, is changed in place (a copy of it where gradients are tracked).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from msgspec import structs
from torch import Tensor
from torch.nn.functional import pad

from heedmap.backends.tap import ModelPass
from heedmap.mathematics.events import (
    AttentionEvent,
    EditedRow,
    Layout,
    RowAttention,
    put,
    take,
)
from heedmap.mathematics.probabilities import on_device
from heedmap.mathematics.rules import (
    Rule,
    Site,
    Sites,
    Within,
    acts,
    apply,
    is_biased,
    steps_within,
)
from heedmap.options import EditOptions


@dataclass(frozen=True, eq=False)
class Steering:
    """The edits of one call of a pipeline.

    Attributes:
        rules: for each edited image (by its number in the batch) its rules, in order; biases act
            first, since they come before the softmax.
        sources: for each image that takes attention from another the number of that one.
        self_windows: for each image with a source the fractions of the run, from and up to which it
            also takes the source's self-attention (queries and keys, with its own values). In a
            joint softmax these are the image's queries and keys, so that its queries also meet the
            prompt's own keys, and the text's queries the source's image (after Shin et al., 2025,
            arXiv 2508.07519).
        max_self_cells: the largest grid, in cells, at which it does.
        selection: the layers, heads and steps at which images take from their sources and have
            their weights (`Call.select`).
        sites: the same in the call that runs; None for all.
    """

    rules: Mapping[int, Sequence[Rule]]
    sources: Mapping[int, int] = field(default_factory=dict)
    self_windows: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    max_self_cells: int = EditOptions.max_self_cells
    selection: tuple[Any, Any, Any] = (None, None, None)
    sites: Sites | None = None


def edit_row(
    rules: Sequence[Rule],
    row: RowAttention,
    source: RowAttention | None,
    site: Site,
) -> EditedRow:
    """Return the attention of an image at one site with its rules.

    Args:
        rules: the rules of the image.
        row: its attention.
        source: the attention of the image that it takes from, if there is one.
        site: the layer at a step.
    """
    site = structs.replace(site, source=None if source is None else source.whole())
    p = edited = row.whole()
    bias = _bias(rules, row, site)
    if bias is not None:
        # Added to P itself, it would leave nothing of a row where P is 1 on a hidden token.
        edited = row.whole(bias)
    others = [rule for rule in rules if not is_biased(rule)]
    return EditedRow(row, p, apply(others, edited, site, joint=row.joint))


def _bias(
    rules: Sequence[Rule],
    row: RowAttention,
    site: Site,
) -> Tensor | None:
    """Return the sum of the biases of rules; None if there is none.

    It is (Q, K), or (H, Q, K) if it differs by head.
    """
    total: Tensor | None = None
    query = row.query
    count = row.text_keys.shape[1]
    biased: list[Any] = [rule for rule in rules if is_biased(rule)]
    for rule in biased:
        bias = rule.bias(site)
        if bias is None:
            continue
        bias = on_device(bias, query.device, bias.dtype)
        bias = pad(bias, (0, count - bias.shape[1]))
        if isinstance(rule, Within):
            bias = rule.sites.choose(bias, bias.new_zeros(len(query), 1, 1))
        total = bias if total is None else total + bias
    return total


class AttentionController:
    """The edits of a running pipeline, in the rows that read the prompt.

    Attributes:
        steering: the edits.
        acted: for each image the sites (a layer at a step) at which a rule acted.
        shared: for each image those at which it took the source's self-attention.
        moved: for each image, at each pass of a layer where a rule could act, the share of
            attention that moved, on the device: half of Σ |P' − P| over the tokens, averaged over
            positions and heads (0 to 1; more where large weights make rows of far more than 1).
    """

    def __init__(
        self,
        steering: Steering,
        model_pass: ModelPass,
    ) -> None:
        self.steering = steering
        self._pass = model_pass
        self.moved: defaultdict[int, list[Tensor]] = defaultdict(list)
        self.acted: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
        self.shared: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)

    def output(self, event: AttentionEvent) -> AttentionEvent:
        """Return the event of a layer that attends to the text with its edits."""
        output = event.output
        assert output is not None
        if output.requires_grad:  # the kernel's needs its own
            output = output.clone()
        edited = self._edits(event)
        for number, edits in edited.items():
            if edits.changes:
                positions = event.layout.row(number).positions
                put(output[number], positions, edits.output().to(output))
        return structs.replace(event, output=output, edited=edited)

    def weights(
        self,
        event: AttentionEvent,
        p: Tensor,
    ) -> tuple[Tensor, Mapping[int, EditedRow]]:
        """Return the probabilities (B, H, Q, K) of cross-attention with the edits, and these."""
        edited = self._edits(event)
        p = p.clone()
        for number, edits in edited.items():
            if edits.changes:
                p[number] = edits.after.to(p)
        return p, edited

    def inputs(
        self,
        site: Site,
        layout: Layout,
        query: Tensor,
        key: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the queries and keys (B, H, …) of a layer, the image's of some the sources'."""
        sites = self.steering.sites
        sources = self._sources(site, layout, query)
        if not sources:
            return query, key
        queries = query.clone()
        keys = key.clone()
        for number, other in sources.items():
            row = layout.row(number)
            source = layout.row(other)
            put(queries[number], row.positions, take(query[other], source.positions))
            put(keys[number], row.position_keys, take(key[other], source.position_keys))
            if sites is not None:
                queries[number] = sites.choose(queries[number], query[number])
                keys[number] = sites.choose(keys[number], key[number])
        return queries, keys

    def _sources(
        self,
        site: Site,
        layout: Layout,
        query: Tensor,
    ) -> dict[int, int]:
        """Return for each row whose image's queries and keys are another's the row of that one."""
        steering = self.steering
        cells = take(query[0], layout.row(0).positions).shape[1]
        sites = steering.sites
        is_outside = sites is not None and site not in sites
        if is_outside or cells > steering.max_self_cells:
            return {}
        sources: dict[int, int] = {}
        for image, window in steering.self_windows.items():
            source = steering.sources.get(image)
            if source is None or site.step not in steps_within(*window, site.steps):
                continue
            pairs = zip(self._rows(image), self._rows(source), strict=True)
            # Perturbed-attention guidance attends in the first rows of the batch alone.
            inside = {row: other for row, other in pairs if row < len(query)}
            if self._rows(image):
                self.shared[image].add((site.layer, site.step))
            sources.update(inside)
        return sources

    def _rows(self, image: int) -> Sequence[int]:
        """Return the rows of an image that read the prompt; the first one is recorded."""
        return self._pass.layout.rows_of(image, "conditional")

    def _edits(self, event: AttentionEvent) -> dict[int, EditedRow]:
        """Return the edits of each row whose image has a rule that acts, and measure them."""
        edited: dict[int, EditedRow] = {}
        for image, rules in self.steering.rules.items():
            rows = self._rows(image)
            if any(acts(rule, event.site) for rule in rules):
                source = self.steering.sources.get(image, image)
                for number, other in zip(rows, self._rows(source), strict=True):
                    source_row = None if source == image else event.row(other)
                    row = event.row(number)
                    edits = edit_row(rules, row, source_row, event.site)
                    edited[number] = edits
                    if edits.changes:
                        self.acted[image].add((event.layer, event.site.step))
            if self._pass.is_recorded and rules and rows:
                moved = torch.zeros((), device=event.query.device)
                if rows[0] in edited:
                    first = edited[rows[0]]
                    change = (first.after - first.before).detach()
                    moved = change.abs().sum(dim=-1).mean() / 2
                self.moved[image].append(moved)
        return edited
