"""Records: means of attention that layers of one shape are computed together for.

A small batch on a GPU waits for the host, so that few large operations cost less than many small
ones. On a CPU, layers of more probabilities than stay in its cache are computed one by one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from heedmap.backends.base import GridShape
from heedmap.maps.recordings import Layer
from heedmap.mathematics.events import (
    EditedRow,
    Layout,
    merged,
)
from heedmap.mathematics.probabilities import columns
from heedmap.mathematics.rules import Site
from heedmap.options import BranchName, Share
from heedmap.recording.accumulation import (
    CACHED,
    AttentionAccumulator,
    head_mean,
    mean_over_heads,
    shares_of_text,
)
from heedmap.recording.refining import RefinedMaps
from heedmap.text.words import TokenTable


class LayerRow(Struct, gc=False):
    """One image's attention in a layer.

    Attributes:
        site: the layer at a step.
        model_pass: the number of the pass among those that are computed together.
        event: that of the layer; None if only the probabilities are held.
        number: the row of the batch.
        p: the probabilities (H, Q, K), H = 1 for their mean; None if they are not known yet.
    """

    site: Site
    model_pass: int
    event: Any
    number: int
    p: Tensor | None = None


@dataclass(eq=False)
class BranchPasses:
    """The passes of the model on a branch that were recorded.

    Attributes:
        timesteps: that of each step at which the branch ran.
        counts: the number of passes at each step.
        last: the number of calls of the scheduler before the last one.
    """

    timesteps: dict[int, float] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)
    last: int = -1


@dataclass(eq=False)
class Record:
    """The means of a quantity with an axis of tokens, of each image, in layers at steps.

    Attributes:
        tables: the words of each image.
        tokens: for each image the positions of the tokens.
        layers: those that are recorded, by name.
        latent: (h, w) of the image's latent, or of a reference image's.
        means: the means.
        passes: the passes of its branch.
        branch: the branch whose rows are recorded.
        share_of: as in `Recording`.
        is_text: whether it holds the attention to the text, which is computed here.
        reference: the number of the reference image whose attention it is.
        of_text: whether probabilities are shares of the text alone.
        refined: the maps that are propagated; None without these.
        ran: how often each layer ran, by layer and step.
        held: of each image the layers that are not computed yet, as they ran.
    """

    tables: Sequence[TokenTable]
    tokens: Sequence[Sequence[int]]
    layers: Mapping[str, Layer]
    latent: GridShape
    means: AttentionAccumulator
    passes: BranchPasses
    branch: BranchName
    share_of: Share | None
    is_text: bool
    reference: int | None
    of_text: bool
    refined: RefinedMaps | None
    ran: Counter[tuple[str, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.held: list[list[LayerRow]] = [[] for _ in self.tables]
        # By layer, row of the batch, and layout.
        self._shapes: dict[tuple[str, int, Layout], tuple[object, ...]] = {}

    def incomplete(self, skippable: bool = False) -> dict[str, list[int]]:
        """Return, by layer, the steps at which it did not run exactly once in each pass.

        Where layers are skippable, a step at which a layer never ran is complete.
        """
        result: dict[str, list[int]] = {}
        for name in self.layers:
            for step, count in self.passes.counts.items():
                ran = self.ran[name, step]
                if ran != count and (ran or not skippable):
                    result.setdefault(name, []).append(step)
        return result

    @torch.no_grad()
    def edited(self, edits: EditedRow, image: int) -> Tensor:
        """Return an image's probabilities (H, Q, K) in a layer with edits, H = 1 for their mean."""
        p = edits.after
        if self.of_text:
            p = shares_of_text(p[..., :-1])
        p = columns(p, self.tokens[image])
        return p if "head" in self.means.keep else head_mean(p)

    def compute(self, passes: int) -> None:
        """Compute the layers that are held, of steps of `passes` passes."""
        held = self.held
        self.held = [[] for _ in held]
        for image, rows in enumerate(held):
            if rows:
                self._add(image, rows, passes)

    def _add(self, image: int, rows: Sequence[LayerRow], passes: int) -> None:
        if image == 0:
            self.ran.update((row.site.layer, row.site.step) for row in rows)
        tokens = self.tokens[image]
        for numbers in self._groups(rows, len(tokens)):
            group = [rows[number] for number in numbers]
            p = self._probabilities(group, tokens)
            sites: defaultdict[int, list[Site]] = defaultdict(list)
            for row in group:
                sites[row.model_pass].append(row.site)
            self.means.add(image, [*sites.values()], p, passes)
            if self.refined is not None:
                mean = p if p.shape[1] == 1 else head_mean(p)
                grid = group[0].site.grid
                self.refined.add_maps(image, grid, mean[:, 0], passes)

    def _groups(
        self,
        rows: Sequence[LayerRow],
        tokens: int,
    ) -> Iterator[Sequence[int]]:
        """Yield the numbers of layers of one kind to compute together.

        Whole passes are, if they fit, so that the layers of each group are the same in every pass.
        """
        kinds: defaultdict[tuple[object, ...], defaultdict[int, list[int]]]
        kinds = defaultdict(lambda: defaultdict(list))
        for number, row in enumerate(rows):
            kinds[self._kind(row)][row.model_pass].append(number)
        for of_kind in kinds.values():
            passes = [*of_kind.values()]
            first = rows[passes[0][0]]
            held = first.event.query if first.p is None else first.p
            most = CACHED if held.device.type == "cpu" else 2**24
            most = max(1, most // _size(first, tokens))
            together = max(1, most // len(passes[0]))
            for start in range(0, len(passes), together):
                numbers = [*chain(*passes[start : start + together])]
                for at in range(0, len(numbers), most):
                    yield numbers[at : at + most]

    def _kind(self, row: LayerRow) -> tuple[object, ...]:
        """Return what layers that are computed together have in common."""
        event = row.event
        if row.p is not None:
            return (row.site.grid, row.p.shape)
        has_mask = event.mask is not None
        has_sum = event.log_sum is not None
        is_alone = not has_sum and (has_mask or event.layout.joint)
        if self.of_text:
            is_alone = has_mask
        if is_alone:
            return (event,)
        # In a layout a layer has one shape at all steps.
        key = (event.layer, row.number, event.layout)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = (
                row.site.grid,
                row.number,
                event.layout,
                event.query.shape,
                event.key.shape,
                event.scale,
                event.query.dtype,
                event.query.device,
            )
        return (has_sum, has_mask, shape)

    def _probabilities(
        self,
        rows: Sequence[LayerRow],
        tokens: Sequence[int],
    ) -> Tensor:
        """Return the probabilities (L, H, Q, K) in layers of one kind, H = 1 for their mean."""
        known = [row.p for row in rows if row.p is not None]
        if known:
            return torch.stack(known)
        # The softmax over the text alone needs all of it.
        stop = None if self.of_text else max(tokens, default=0) + 1
        row = merged([row.event for row in rows], rows[0].number, stop)
        if self.of_text:
            row = row.text_alone()
        if len(rows) == 1 and "head" not in self.means.keep:
            return mean_over_heads(row, tokens)[None]
        p = row.probabilities(tokens).unflatten(0, (len(rows), -1))
        return p if "head" in self.means.keep else head_mean(p)


def _size(row: LayerRow, tokens: int) -> int:
    """Return the number of probabilities that are computed for a layer."""
    if row.p is not None:
        return row.p.numel()
    event = row.event
    h, w = row.site.grid
    count = event.key.shape[2] if event.log_sum is None else tokens
    return event.query.shape[1] * h * w * max(count, 1)
