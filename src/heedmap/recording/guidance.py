"""Guides: latents that are changed before a step, against a loss of the attention of words.

Before the model's pass of a step, `LatentGuide` runs the model on the rows that read the prompt,
with gradients, and moves their latents. The pass of the pipeline and the scheduler then go on from
the moved latents. Nothing of the further passes is recorded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from heedmap.backends.base import Arguments
from heedmap.errors import ArgumentError, ModelError, TraceError, quoted, reason
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


class GuideMaps:
    """The maps of the words of an image in one pass, as tensors with their graph.

        maps["cat"]                     # (h, w)
        maps.select("up")["cat"]        # in some layers

    They are means over layers and heads, at the largest grid of the layers.

    Args:
        events: the attention of each layer, by dotted path; log-sums are added.
        row: the row of the batch that reads the image's prompt.
        table: the words and tokens of the prompt.
        names: returns the layers of a selection.

    Attributes:
        size: the (width, height) of the image in pixels.
    """

    def __init__(
        self,
        events: dict[str, AttentionEvent],
        row: int,
        table: TokenTable,
        size: tuple[int, int],
        names: Callable[[Part | None], Sequence[str]],
    ) -> None:
        self._events = events
        self._layers = list(events)
        self._row = row
        self._names = names
        self.tokens = table
        self.size = size

    def select(self, layers: Part | None) -> "GuideMaps":
        """Return the maps of some layers, as `HeatMaps.select` takes them, but for a function."""
        maps = copy(self)
        maps._layers = [name for name in self._names(layers) if name in self._events]
        return maps

    @property
    def grids(self) -> dict[str, tuple[int, int]]:
        """The grid (h, w) of each layer."""
        return {name: self._events[name].site.grid for name in self._layers}

    def __getitem__(self, word: str) -> Tensor:
        """Return the map (h, w) of a word or phrase."""
        return self.of_tokens(self.tokens.find(word)).sum(dim=0)

    @property
    def of_text(self) -> Tensor:
        """The sum of the maps (h, w) of all words."""
        return self.of_tokens(self.tokens.positions("text")).sum(dim=0)

    def of_tokens(self, tokens: Sequence[int]) -> Tensor:
        """Return the maps (K', h, w) of tokens, by their positions on the K axis."""
        grid = max(self.grids.values())
        maps: list[Tensor] = []
        for name in self._layers:
            event = self._events[name] = self._events[name].with_log_sum()
            one = event.token_maps(self._row, tokens)[None]
            maps.append(interpolate(one, grid, mode="bilinear")[0])
        return torch.stack(maps).mean(dim=0)


NO_GUIDE = Guide(step_size=0, iterations=0, target=1)
"""The options of a guide that does not act."""
Loss = Callable[[GuideMaps, int], Tensor]
"""A function of the maps of an image and the step, from 0, that returns a scalar."""
AnyGuide = Guide | Loss


def loss_of(guide: AnyGuide) -> Loss:
    """Return the loss of a guide."""
    if not isinstance(guide, Guide):
        return guide

    def loss(maps: GuideMaps, step: int) -> Tensor:
        if guide.layers is not None:
            maps = maps.select(guide.layers)
        first = maps[guide.words[0]]
        if isinstance(guide, Excite):
            return absence(first, maps.of_text)
        if isinstance(guide, Inside):
            where: Any = guide.where
            coverage = region_coverage(where, *maps.size, quoted(guide.word))
            return outside(first, torch.from_numpy(coverage).to(first.device))
        distance = divergence(first, maps[guide.words[1]])
        return distance if isinstance(guide, Bind) else 1 - distance

    return loss


class LatentGuide:
    """The guides of one call of a pipeline.

    Args:
        guides: those of each image.
        default: the options of losses of the user's own.
        first: the number of the first image that is guided.

    Attributes:
        passes: the number of further passes of the model.
    """

    _call: Call
    _tables: Sequence[TokenTable]
    _latents: Tensor  # of the pass, before they were changed

    def __init__(
        self,
        guides: Sequence[AnyGuide],
        default: Guide,
        first: int = 0,
    ) -> None:
        self._first = first
        self._losses = list(map(loss_of, guides))
        self._options = [one if isinstance(one, Guide) else default for one in guides]
        self.passes = 0
        self._events: dict[str, AttentionEvent] = {}
        self._shift: Tensor | None = (
            None  # of the latents, in this call of the scheduler
        )
        self._before: dict[int, Tensor] = {}
        self._after: dict[int, Tensor] = {}

    def begin(self, call: Call, tables: Sequence[TokenTable]) -> None:
        """Begin a call, whose images read these words."""
        self._call = call
        self._tables = tables

    def _names(self, layers: Part | None) -> Sequence[str]:
        sites = self._call.select((layers, None, None))
        names = [*self._call.layers]
        return names if sites is None else [n for n in names if n in sites.layers]

    # --- a pass of the pipeline ---

    def inputs(
        self,
        model: Any,
        inputs: Arguments,
        alone: Callable[[Layout], AbstractContextManager[None]],
    ) -> dict[str, Any] | None:
        """Return the arguments of a pass with changed latents; None if they are not changed.

        Args:
            model: the denoiser.
            inputs: its arguments.
            alone: a context in which the guide alone observes passes on rows of a layout.
        """
        call = self._call
        name = call.family.inputs[0]
        step = call.moment.step
        blocks = call.blocks.get("conditional", ())
        is_first = call.schedule.steps.index(step) == call.done
        if is_first and blocks and step not in self._before:
            rows = self._rows(blocks)
            layout = call.layout
            count = len(layout.rows)
            chosen = inputs
            if count > call.images:
                is_listed = isinstance(inputs[name], list)
                chosen = _rows_of({**inputs}, rows, count, is_listed)
            layout = replace(layout, rows=layout.rows[rows.start : rows.stop])
            self._latents = _stacked(chosen[name])
            with alone(layout), _frozen(model), torch.enable_grad():
                self._shift = self._find_shift(model, chosen)
            self._events = {}
        if self._shift is None:
            return None
        images = [row.image for row in call.layout.rows]
        latents = _stacked(inputs[name]) + self._shift[images]
        return {**inputs, name: _like(latents, inputs[name])}

    def _rows(self, blocks: Sequence[int]) -> range:
        """Return the rows of the images in the first block that reads the prompt."""
        first = blocks[0] * self._call.images
        return range(first, first + self._call.images)

    def _find_shift(self, model: Any, inputs: Arguments) -> Tensor | None:
        """Return the change of the latents (B, …) of the images; None without one."""
        start = self._latents.float()
        step = self._call.moment.step
        count = self._call.schedule.count
        acting = [
            one if step in steps_within(one.start, one.end or 1.0, count) else NO_GUIDE
            for one in self._options
        ]
        counts = _column([one.iterations for one in acting], start)
        targets = _column([one.target for one in acting], start)
        sizes = _column([one.step_size for one in acting], start)
        size = sizes.max().clamp_min(1e-12)
        latents = start
        for iteration in range(int(counts.max())):
            latents, losses = self._run(model, inputs, latents)
            is_open = (losses > targets) & (iteration < counts)
            if not bool(is_open.any()):
                break
            loss = (losses * is_open * sizes / size).sum()
            gradient = self._gradient(loss, latents)
            # An edit takes attention of its source, whose latents stay.
            gradient[: self._first] = 0
            axes = tuple(range(1, gradient.ndim))
            length = gradient.square().mean(dim=axes, keepdim=True).sqrt()
            latents = latents - size * gradient / length.clamp_min(1e-12)
        return None if latents is start else (latents - start).detach()

    def _run(
        self,
        model: Any,
        inputs: Arguments,
        latents: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Run the model on latents (B, …); return them, with a gradient, and the losses (G, B)."""
        name = self._call.family.inputs[0]
        latents = latents.detach().requires_grad_()
        self._events = {}
        model.forward(**{**inputs, name: _like(latents, inputs[name])})
        self.passes += 1
        losses = self._losses_now(first_row=0)
        self._before.setdefault(self._call.moment.step, losses.detach())
        return latents, losses

    def _gradient(self, loss: Tensor, latents: Tensor) -> Tensor:
        """Return the gradient of a loss by the latents; ModelError if there is none."""
        try:
            return torch.autograd.grad(loss * _FACTOR, latents)[0] / _FACTOR
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise ModelError(
                f"the {type(self._call.family.model).__name__} gives no gradient of the loss by "
                f"the latents ({reason(error)}), which a guide needs: load the model without "
                "quantisation, or leave guide out"
            ) from error

    def observe(self, event: AttentionEvent) -> None:
        """Keep the queries and keys of a layer until the pass is over."""
        self._events[event.layer] = replace(event, value=None, output=None)

    def _losses_now(self, first_row: int) -> Tensor:
        """Return the losses (G, B) of the pass that was observed."""
        call = self._call
        h, w = (call.family.cell_side * side for side in call.latent)
        by_image: list[Tensor] = []
        for image in range(self._first, len(self._tables)):
            maps = GuideMaps(
                self._events,
                first_row + image,
                self._tables[image],
                (w, h),
                names=self._names,
            )
            losses = [_scalar(loss(maps, call.moment.step)) for loss in self._losses]
            by_image.append(torch.stack(losses))
        unguided = [torch.zeros_like(by_image[0])] * self._first
        return torch.stack([*unguided, *by_image], dim=1)

    def end_pass(self) -> None:
        """Take the losses of a pass of the pipeline."""
        step = self._call.moment.step
        blocks = self._call.blocks.get("conditional", ())
        if blocks and step not in self._after:
            losses = self._losses_now(self._rows(blocks).start)
            self._after[step] = losses
            self._before.setdefault(step, losses)
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
            f"{type(self._call.family.pipe).__name__} gives its model other latents than its "
            "scheduler, so that a guide cannot change them: leave guide out"
        )

    def report(self, image: int) -> GuideReport:
        """Return the losses of the guides of an image at each step, and the passes."""
        sides: list[Any] = []
        for losses in (self._before, self._after):
            values = torch.stack([losses[step][:, image] for step in sorted(losses)])
            sides.append(tuple(map(tuple, values.T.tolist())))
        return GuideReport(before=sides[0], after=sides[1], passes=self.passes)


def _column(values: Sequence[float | None], like: Tensor) -> Tensor:
    """Return numbers of guides as (G, 1)."""
    return like.new_tensor(values)[:, None]


def _scalar(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise ArgumentError(
            f"the loss of a guide is {quoted(value)}: expected a tensor with one number"
        )
    return value.reshape(())


@contextmanager
def _frozen(model: Any) -> Iterator[None]:
    """Compute no gradients of a model's parameters within the block."""
    tracked = [one for one in model.parameters() if one.requires_grad]
    for parameter in tracked:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in tracked:
            parameter.requires_grad_(True)


def _rows_of(value: Any, rows: range, count: int, is_listed: bool) -> Any:
    """Return some rows of the arguments of a pass on `count` rows.

    Where the latents are a list of those of each row (`is_listed`), so are the texts.
    """
    if isinstance(value, Mapping):
        return {
            name: _rows_of(one, rows, count, is_listed) for name, one in value.items()
        }
    if isinstance(value, Tensor) and value.ndim and len(value) == count:
        return value[rows.start : rows.stop]
    if not isinstance(value, list | tuple):
        return value
    if is_listed and len(value) == count:
        return value[rows.start : rows.stop]
    return type(value)(_rows_of(one, rows, count, is_listed) for one in value)


def _stacked(latents: Any) -> Tensor:
    """Return the latents of a pass as one tensor (B, …)."""
    return latents if isinstance(latents, Tensor) else torch.stack([*latents])


def _like(latents: Tensor, others: Any) -> Any:
    """Return latents (B, …) in the type of those of a pass, and as a list where these are one."""
    if isinstance(others, Tensor):
        return latents.to(others)
    return [one.to(other) for one, other in zip(latents, others, strict=True)]
