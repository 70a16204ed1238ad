"""Guides: latents that are changed before a step, against a loss of the attention of words.

Before the model's pass of a step, `LatentGuide` runs the model on the rows that read the prompt,
with gradients, and moves their latents. The pass of the pipeline and the scheduler then go on from
the moved latents. Nothing of the further passes is recorded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils._pytree import tree_map

from heedmap.backends.base import Arguments
from heedmap.errors import ArgumentError, ModelError, TraceError, quoted
from heedmap.io.guides import Bind, Excite, Guide, Inside
from heedmap.io.schemas import GuideReport
from heedmap.maps.masks import region_coverage
from heedmap.mathematics.events import AttentionEvent, Layout
from heedmap.mathematics.losses import absence, divergence, outside
from heedmap.mathematics.rules import steps_within
from heedmap.options import Part
from heedmap.recording.calls import Call
from heedmap.text.words import TokenTable

_FACTOR = 2**10
"""The factor of a loss while its gradient is computed, which half precision would make 0."""
_ROUNDING = 0.02
"""The relative error of latents in half precision."""


@dataclass(frozen=True, eq=False)
class GuideMaps:
    """The maps of the words of an image in one pass, as tensors with their graph.

        maps["cat"]                     # (h, w)
        maps.select("up")["cat"]        # in some layers

    They are means over layers and heads, at the largest grid of the layers.

    Attributes:
        events: the attention of each layer, by dotted path; log-sums are added.
        row: the row of the batch that reads the image's prompt.
        tokens: the words and tokens of the prompt.
        call: the call that runs.
    """

    events: dict[str, AttentionEvent]
    row: int
    tokens: TokenTable
    call: Call

    def select(self, layers: Part | None) -> "GuideMaps":
        """Return the maps of some layers, as `HeatMaps.select` takes them, but for a function."""
        sites = self.call.select((layers, None, None))
        names = self.events if sites is None else sites.layers
        events = {name: self.events[name] for name in self.events if name in names}
        return replace(self, events=events)

    def __getitem__(self, word: str) -> Tensor:
        """Return the map (h, w) of a word or phrase."""
        return self.of_tokens(self.tokens.find(word)).sum(dim=0)

    def of_tokens(self, tokens: Sequence[int]) -> Tensor:
        """Return the maps (K', h, w) of tokens, by their positions on the K axis."""
        grid = max(event.site.grid for event in self.events.values())
        maps: list[Tensor] = []
        for name, event in self.events.items():
            event = self.events[name] = event.with_log_sum()
            one = event.token_maps(self.row, tokens)[None]
            maps.append(interpolate(one, grid, mode="bilinear")[0])
        return torch.stack(maps).mean(dim=0)


AnyGuide = Guide | Callable[[GuideMaps, int], Tensor]
"""A guide, or a function of the maps of an image and the step, from 0, that returns a scalar."""


def loss_of(
    guide: AnyGuide,
    maps: GuideMaps,
    step: int,
) -> Tensor:
    """Return the loss of a guide at a step, a scalar."""
    if not isinstance(guide, Guide):
        loss: Any = guide(maps, step)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise ArgumentError(
                f"the loss of a guide is {quoted(loss)}: expected a tensor with one number"
            )
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise ArgumentError(
                "the loss of a guide has no gradient: compute it from the maps without detach, "
                "item and comparisons"
            )
        return loss.reshape(())
    maps = maps.select(guide.layers)
    first = maps[guide.words[0]]
    if isinstance(guide, Excite):
        words = maps.of_tokens(maps.tokens.positions("text"))
        return absence(first, words.sum(dim=0))
    if isinstance(guide, Inside):
        where: Any = guide.where
        coverage = region_coverage(where, *maps.call.size, quoted(guide.word))
        return outside(first, torch.from_numpy(coverage).to(first.device))
    distance = divergence(first, maps[guide.words[1]])
    return distance if isinstance(guide, Bind) else 1 - distance


class LatentGuide:
    """The guides of one call of a pipeline.

    Args:
        guides: those of each image.
        default: the options of losses of the user's own.
        first: the number of the first image that is guided.

    Attributes:
        call: the call, once it has begun.
        passes: the number of further passes of the model.
        acted: (G,) of each guide, whether it has changed the latents.
    """

    call: Call
    _latents: Tensor  # of the pass, before they were changed

    def __init__(
        self,
        guides: Sequence[AnyGuide],
        default: Guide,
        first: int = 0,
    ) -> None:
        self._first = first
        self._guides = guides
        self._options = [one if isinstance(one, Guide) else default for one in guides]
        self.passes = 0
        self.acted = torch.zeros(len(guides), dtype=torch.bool)
        self._events: dict[str, AttentionEvent] = {}
        # Of the latents, in this call of the scheduler.
        self._shift: Tensor | None = None
        self._before: dict[int, Tensor] = {}
        self._after: dict[int, Tensor] = {}

    def begin(self, call: Call) -> None:
        """Begin a call; raise an error if its model has no such layers, or its images no region."""
        self.call = call
        for guide in self._guides:
            if isinstance(guide, Guide):
                call.select((guide.layers, None, None))
            if isinstance(guide, Inside):
                where: Any = guide.where
                region_coverage(where, *call.size, quoted(guide.word))

    # --- a pass of the pipeline ---

    def latents(
        self,
        model: Any,
        inputs: Arguments,
        alone: Callable[[Layout], AbstractContextManager[None]],
    ) -> Any:
        """Return the changed latents of a pass, or a list of them; None if they are not changed.

        Args:
            model: the denoiser.
            inputs: its arguments.
            alone: a context in which the guide alone observes passes on rows of a layout.
        """
        call = self.call
        layout = call.layout
        name = call.family.inputs[0]
        rows = self._rows()
        if rows is not None and call.moment.step not in self._before:
            chosen = _rows_of(inputs, name, rows, len(layout.rows))
            self._latents = _stacked(chosen[name])
            own = replace(layout, rows=layout.rows[rows])
            with alone(own), _frozen(model), torch.enable_grad():
                self._shift = self._find_shift(model, chosen)
            self._events = {}
        if self._shift is None:
            return None
        images = [row.image for row in layout.rows]
        latents = _stacked(inputs[name]) + self._shift[images]
        return _like(latents, inputs[name])

    def _rows(self) -> slice | None:
        """Return the rows of the images in the first block that reads the prompt, if one does."""
        blocks = self.call.blocks.get("conditional")
        if not blocks:
            return None
        first = blocks[0] * self.call.images
        return slice(first, first + self.call.images)

    def _find_shift(self, model: Any, inputs: Arguments) -> Tensor | None:
        """Return the change of the latents (B, …) of the images; None without one."""
        start = self._latents.float()
        step = self.call.moment.step
        table: list[tuple[Any, ...]] = []
        for one in self._options:
            acts = step in steps_within(one.start, one.end, self.call.schedule.count)
            table.append((acts * one.iterations, one.target, one.step_size))
        counts, targets, sizes = start.new_tensor(table).T[..., None]  # (G, 1)
        moved = start
        for iteration in range(int(counts.max())):
            latents, losses = self._run(model, inputs, moved)
            is_open = (losses > targets) & (iteration < counts) & (sizes > 0)
            if not bool(is_open.any()):
                break
            self.acted |= is_open.any(dim=1).cpu()
            open_sizes = is_open * sizes
            loss = (losses * open_sizes / sizes.max()).sum()
            gradient = self._gradient(loss, latents)
            # An edit takes attention of its source, whose latents stay.
            gradient[: self._first] = 0
            axes = tuple(range(1, gradient.ndim))
            length = gradient.square().mean(dim=axes, keepdim=True).sqrt()
            size = open_sizes.amax(dim=0).reshape(-1, *[1] * len(axes))  # by image
            moved = moved - size * gradient / length.clamp_min(1e-12)
        return None if moved is start else moved - start

    def _run(
        self,
        model: Any,
        inputs: Arguments,
        latents: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Run the model on latents (B, …); return them, with a gradient, and the losses (G, B)."""
        name = self.call.family.inputs[0]
        latents = latents.detach().requires_grad_()
        self._events = {}
        model.forward(**{**inputs, name: _like(latents, inputs[name])})
        self.passes += 1
        losses = self._losses(first_row=0)
        self._check_finite(losses)
        self._before.setdefault(self.call.moment.step, losses.detach())
        return latents, losses

    def _check_finite(self, numbers: Tensor) -> None:
        """Raise an ArgumentError if losses, or their gradient, hold NaN or Inf."""
        if not bool(numbers.isfinite().all()):
            raise ArgumentError(
                f"the loss of a guide, or its gradient, is NaN or Inf at step "
                f"{self.call.moment.step}: keep the loss finite, or leave guide out"
            )

    def _gradient(
        self,
        loss: Tensor,
        latents: Tensor,
    ) -> Tensor:
        """Return the gradient of a loss by the latents; ModelError if there is none."""
        if not loss.requires_grad:
            raise ModelError(
                f"the {type(self.call.family.model).__name__} gives no gradient of the loss by the "
                "latents, which a guide needs: load it without quantisation, or leave guide out"
            )
        gradient = torch.autograd.grad(loss * _FACTOR, latents)[0] / _FACTOR
        self._check_finite(gradient)
        return gradient

    def observe(self, event: AttentionEvent) -> None:
        """Keep the queries and keys of a layer until the pass is over."""
        self._events[event.layer] = event.inputs()

    def _losses(self, first_row: int) -> Tensor:
        """Return the losses (G, B) of the pass that was observed."""
        encoding = self.call.encoding
        assert encoding is not None
        step = self.call.moment.step
        by_image: list[Tensor] = []
        for image, table in enumerate(encoding.conditional.tables):
            if image < self._first:
                continue
            maps = GuideMaps(self._events, first_row + image, table, self.call)
            losses = [loss_of(guide, maps, step) for guide in self._guides]
            by_image.append(torch.stack(losses))
        unguided = [torch.zeros_like(by_image[0])] * self._first
        return torch.stack([*unguided, *by_image], dim=1)

    def end_pass(self) -> None:
        """Take the losses of a pass of the pipeline."""
        step = self.call.moment.step
        rows = self._rows()
        if rows is not None and step not in self._after:
            self._after[step] = self._losses(rows.start)
            self._before.setdefault(step, self._after[step])
        self._events = {}

    # --- a call of the scheduler ---

    def step(
        self,
        step: Callable[..., Any],
        model_output: Any,
        timestep: Any,
        sample: Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Call a scheduler's method `step` with the latents that were changed."""
        if self._shift is not None:
            sample = self._changed(sample, self._shift)
            self._shift = None
        return step(model_output, timestep, sample, *args, **kwargs)

    def _changed(self, sample: Tensor, shift: Tensor) -> Tensor:
        """Return the scheduler's latents (B, …), changed as those of the model were.

        The scheduler may have scaled the model's, so the factor is found by comparing them.
        """
        latents = self._latents
        if latents.numel() == sample.numel():
            latents = latents.float().reshape(sample.shape)
            plain = sample.float()
            factor = (latents * plain).sum() / plain.square().sum()
            if bool((latents - factor * plain).norm() <= _ROUNDING * latents.norm()):
                return (plain + shift.reshape(sample.shape) / factor).to(sample)
        raise TraceError(
            f"{type(self.call.family.pipe).__name__} gives its model other latents than its "
            "scheduler, so that a guide cannot change them: leave guide out"
        )

    def report(self, image: int) -> GuideReport:
        """Return the losses of the guides of an image at each step, and the passes."""
        sides: list[Any] = []
        for losses in (self._before, self._after):
            values = torch.stack([losses[step][:, image] for step in sorted(losses)])
            sides.append(tuple(map(tuple, values.T.tolist())))
        return GuideReport(before=sides[0], after=sides[1], passes=self.passes)


@contextmanager
def _frozen(model: Any) -> Iterator[None]:
    """Compute no gradients of a model's parameters within the block."""
    tracked = [one for one in model.parameters() if one.requires_grad]
    model.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in tracked:
            parameter.requires_grad_(True)


def _rows_of(
    inputs: Arguments,
    name: str,
    rows: slice,
    count: int,
) -> dict[str, Any]:
    """Return some rows of the arguments of a pass on `count` rows of latents, by name.

    Where the latents of the rows are a list, so are the texts.
    """
    is_listed = isinstance(inputs[name], list)

    def select(value: Any) -> Any:
        has_rows = isinstance(value, list) or (isinstance(value, Tensor) and value.ndim)
        return value[rows] if has_rows and len(value) == count else value

    def is_leaf(value: Any) -> bool:
        return is_listed and isinstance(value, list)

    return tree_map(select, {**inputs}, is_leaf=is_leaf)


def _stacked(latents: Any) -> Tensor:
    """Return the latents of a pass as one tensor (B, …), in the order of its memory."""
    return latents if isinstance(latents, Tensor) else torch.stack(latents)


def _like(latents: Tensor, others: Any) -> Any:
    """Return latents (B, …) in the type of those of a pass, and as a list where these are one."""
    latents = latents.to(others[0])
    return [*latents] if isinstance(others, list) else latents
