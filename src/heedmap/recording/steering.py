"""Edits of the attention of some images of a batch by rules.

`Steering` says what to edit and computes it for one layer; `AttentionController` does so while a
pipeline runs, and counts where rules acted. All functions make new tensors, so that nothing that is
recorded changes; only the output of the attention, fresh from the kernel, is changed in place.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.nn.functional import scaled_dot_product_attention

from heedmap.backends.base import GridShape
from heedmap.backends.processors import Changes
from heedmap.errors import ArgumentError
from heedmap.mathematics.probabilities import Scores
from heedmap.mathematics.rules import (
    Rule,
    Site,
    apply,
    is_biased,
    linear,
    mixture,
    no_source,
    steps_within,
)
from heedmap.options import EditOptions
from heedmap.recording.accumulation import SiteProbabilities


@dataclass(frozen=True, eq=False)
class Steering:
    """The edits of one call of a pipeline.

    Attributes:
        rules: for each edited image (by its number in the batch) its rules, in order; biases act
            first, since they come before the softmax.
        sources: for each image that takes attention from another the number of that one.
        self_windows: for each image with a source the fractions of the run, from and up to which it
            also takes the source's self-attention (queries and keys, with its own values).
        self_cells: the largest grid, in cells, at which it does.
    """

    rules: Mapping[int, Sequence[Rule]]
    sources: Mapping[int, int] = field(default_factory=dict)
    self_windows: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    self_cells: int = EditOptions.self_cells

    def ordered(self, image: int) -> list[Rule]:
        """Return the rules of an image, biases first."""
        return sorted(self.rules.get(image, ()), key=lambda rule: not is_biased(rule))

    def is_linear(self, image: int) -> bool:
        """Return whether `output` can compute the rules of an image."""
        return linear(rule for rule in self.ordered(image) if not is_biased(rule))

    def probabilities(
        self, scores: Scores, first: int, image: int, site: Site
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one image's probabilities (H, Q, K), unedited and as its rules define them.

        The branch's images are in the rows of the batch from `first` on.
        """
        every, source = range(scores.key.shape[2]), self.sources.get(image)
        p = scores.of(first + image, slice(None), every)
        source_p = None if source is None else scores.of(first + source, slice(None), every)
        return p, apply(self.ordered(image), p, replace(site, source=source_p))

    def output(
        self, scores: Scores, value: torch.Tensor, first: int, image: int, site: Site
    ) -> torch.Tensor | None:
        """Return one image's output (H, Q, d) edited by linear rules; None if none acts here."""
        rules = self.ordered(image)
        bias = _bias_sum([rule.bias(site) for rule in rules if is_biased(rule)], scores)
        mix = mixture([rule for rule in rules if not is_biased(rule)], site)
        if mix is None and bias is None:
            return None
        row = first + image
        values = value[row] if mix is None else mix.own.to(value) @ value[row]
        edited = _attend(scores, row, values, bias)
        if mix is not None and mix.source is not None:
            if image not in self.sources:
                raise no_source()
            source_values = mix.source.to(value) @ value[row]
            edited = edited + _attend(scores, first + self.sources[image], source_values, None)
        return edited


@dataclass(frozen=True)
class RunPosition:
    """The position of a run in its schedule, and the rows that read the prompt."""

    rows: tuple[int, ...]  # the first of each block that reads it; the first block is recorded
    step: int
    steps: int
    grids: Mapping[str, GridShape]

    def site(self, layer: str) -> Site:
        """Return the site of a layer."""
        return Site(layer, self.step, self.steps, self.grids[layer])


class AttentionController:
    """The edits of a running pipeline.

    Attributes:
        steering: the edits.
        position: set before each pass of the model; None where no row reads the prompt.
        moved: for each image, at each pass of a layer where a rule could act, the share of
            attention that moved: half of Σ |P' − P| over the tokens, averaged over positions and
            heads (0 to 1; more where large weights make rows of far more than 1).
    """

    def __init__(self, steering: Steering) -> None:
        self.steering = steering
        self.position: RunPosition | None = None
        self.moved: defaultdict[int, list[float]] = defaultdict(list)
        self._acted: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
        self._shared: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
        # By image, P and P' of the recorded rows in the present layer. A user's own rule is asked
        # once, since it may draw lots.
        self._pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def acted(self) -> dict[int, int]:
        """The number of sites (a layer at a step) at which a rule acted, by image."""
        return {image: len(sites) for image, sites in self._acted.items()}

    @property
    def shared(self) -> dict[int, int]:
        """The number of sites at which an image took the source's self-attention, by image."""
        return {image: len(sites) for image, sites in self._shared.items()}

    def cross_attention(self, layer: str) -> Changes:
        """Return the changes of a cross-attention layer."""

        def edits() -> Iterator[tuple[int, int, Site]]:
            """Yield each edited image, with the first row of each of its blocks, and the site."""
            self._pairs.clear()
            if (position := self.position) is not None:
                site = position.site(layer)
                yield from ((n, row, site) for n in self.steering.rules for row in position.rows)

        def output(scores: Scores, value: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
            for image, first, site in edits():
                if self.steering.is_linear(image):
                    edited = self.steering.output(scores, value, first, image, site)
                else:
                    edited = (
                        self._edited(scores, first, image, site)[1] @ value[first + image].float()
                    )
                if edited is not None:
                    plain[first + image] = edited.to(plain)
                    self._acted[image].add((layer, site.step))
            return plain

        def weights(scores: Scores, p: torch.Tensor) -> torch.Tensor:
            p = p.clone()
            for image, first, site in edits():
                before, after = self._edited(scores, first, image, site)
                if not torch.equal(before, after):
                    p[first + image] = after.to(p)
                    self._acted[image].add((layer, site.step))
            return p

        return Changes(lambda query, key: None, output, weights)

    def self_attention(self, layer: str) -> Changes:
        """Return the changes of a self-attention layer."""

        def inputs(
            query: torch.Tensor, key: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor] | None:
            position, steering, count = self.position, self.steering, query.shape[0]
            if position is None or query.shape[2] > steering.self_cells:
                return None
            images = [
                image
                for image, (start, end) in steering.self_windows.items()
                if image in steering.sources
                and position.step in steps_within(start, end, position.steps)
            ]
            rows = torch.arange(count, device=query.device)
            for image in images:
                self._shared[image].add((layer, position.step))
                for first in position.rows:
                    # Perturbed-attention guidance attends in the first rows of the batch alone.
                    if first + max(images) < count:
                        rows[first + image] = first + steering.sources[image]
            return (query[rows], key[rows]) if images else None

        return Changes(inputs, lambda scores, value, output: output, lambda scores, p: p)

    def probabilities(
        self, scores: Scores, image: int, layer: str, plain: SiteProbabilities
    ) -> SiteProbabilities:
        """Return an image's probabilities in the recorded rows as they acted; note what moved."""
        both = self.both(scores, image, layer)
        if both is None:
            return plain
        before, after = both
        self.moved[image].append(float((after - before).abs().sum(dim=-1).mean()) / 2)
        return replace(plain, of=lambda heads, tokens: after[heads][..., list(tokens)])

    def both(
        self, scores: Scores, image: int, layer: str
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return P and P' (H, Q, K) of an image in the recorded rows; None if it has no rules."""
        position = self.position
        if position is None or not self.steering.rules.get(image):
            return None
        if image not in self._pairs:
            self._edited(scores, position.rows[0], image, position.site(layer))
        return self._pairs[image]

    def _edited(
        self, scores: Scores, first: int, image: int, site: Site
    ) -> tuple[torch.Tensor, torch.Tensor]:
        pair = self.steering.probabilities(scores, first, image, site)
        if self.position is not None and first == self.position.rows[0]:
            self._pairs[image] = pair
        return pair


def _attend(
    scores: Scores, row: int, value: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Return one row's attention (H, Q, d) to other values, with a bias on its scores."""
    mask = scores.mask
    if mask is not None:
        mask = mask.expand(scores.query.shape[0], -1, -1, -1)[row]
    if bias is not None:
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=bias.dtype).masked_fill(~mask, float("-inf"))
        mask = bias if mask is None else mask + bias
        mask = mask.to(scores.query.dtype)
    return scaled_dot_product_attention(
        scores.query[row], scores.key[row], value, attn_mask=mask, scale=scores.scale
    )


def _bias_sum(biases: Sequence[torch.Tensor | None], scores: Scores) -> torch.Tensor | None:
    """Return the sum (Q, K) of biases (Q, K') of different widths; None if there is none."""
    acting = [bias for bias in biases if bias is not None]
    if not acting:
        return None
    whole = torch.zeros(scores.query.shape[2], scores.key.shape[2], device=scores.query.device)
    for bias in acting:
        if bias.ndim != 2 or len(bias) != len(whole) or bias.shape[1] > whole.shape[1]:
            raise ArgumentError(
                f"a rule has a bias of shape {tuple(bias.shape)}: expected (Q, K) = "
                f"{tuple(whole.shape)}, or fewer tokens"
            )
        whole[:, : bias.shape[1]] += bias.to(whole)
    return whole
