"""Edits of the attention of some images of a batch by rules.

`Steering` says what to edit and computes it for one layer; `AttentionController` does so while a
pipeline runs, and counts where rules acted. All functions make new tensors, so that nothing that is
recorded changes; only the output of the attention, fresh from the kernel, is changed in place.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.nn.functional import scaled_dot_product_attention

from heedmap.backends.family import GridShape
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
        """Return the rules of an image in the order in which they act."""
        return sorted(self.rules.get(image, ()), key=lambda rule: not is_biased(rule))

    def by_head(self, image: int) -> bool:
        """Return whether the rules of an image can be computed for some heads alone."""
        return linear(rule for rule in self.ordered(image) if not is_biased(rule))

    def probabilities(
        self, scores: Scores, first: int, image: int, site: Site, heads: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one image's probabilities (H', Q, K), unedited and as its rules define them.

        Args:
            scores: of the whole batch.
            first: the row of the first image of the branch.
            image: the number of the image.
            site: the layer and step.
            heads: which to return; a user's own rule always gets all.
        """
        source = self.sources.get(image)
        every = range(scores.key.shape[2])
        by_head = self.by_head(image)
        given = heads if by_head else slice(None)
        p = scores.of(first + image, given, every)
        there = None if source is None else scores.of(first + source, given, every)
        edited = apply(self.ordered(image), p, replace(site, source=there))
        return (p, edited) if by_head else (p[heads], edited[heads])

    def output(
        self, scores: Scores, value: torch.Tensor, first: int, image: int, site: Site
    ) -> torch.Tensor | None:
        """Return one image's output (H, Q, d) edited by linear rules; None if none acts here.

        Args:
            scores: of the whole batch.
            value: (B, H, K, d).
            first: the row of the first image of the branch.
            image: the number of the image.
            site: the layer and step.
        """
        rules = self.ordered(image)
        bias = _bias_sum([rule.bias(site) for rule in rules if is_biased(rule)], scores)
        mix = mixture([rule for rule in rules if not is_biased(rule)], site)
        if mix is None and bias is None:
            return None
        row = first + image
        own = value[row] if mix is None else mix.own.to(value) @ value[row]
        edited = _attend(scores, row, own, bias)
        if mix is not None and mix.source is not None:
            if image not in self.sources:
                raise no_source()
            there = mix.source.to(value) @ value[row]
            edited = edited + _attend(scores, first + self.sources[image], there, None)
        return edited

    def sharing(self, cells: int, step: int, steps: int) -> list[int]:
        """Return the images that take their source's self-attention at a step, on such a grid."""
        if cells > self.self_cells:
            return []
        return [
            image
            for image, (start, end) in self.self_windows.items()
            if image in self.sources and step in steps_within(start, end, steps)
        ]

    def shared(
        self, query: torch.Tensor, key: torch.Tensor, first: int, images: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries and keys (B, H, Q, d) with the sources' in the place of the images'."""
        rows = torch.arange(query.shape[0], device=query.device)
        for image in images:
            rows[first + image] = first + self.sources[image]
        return query[rows], key[rows]


@dataclass(frozen=True)
class RunPosition:
    """The position of a run in its schedule, and the rows that read the prompt.

    Attributes:
        rows: the first row of each block of the batch that reads the prompt; the first block is the
            one that is recorded.
        step: from 0.
        steps: of the whole run.
        grids: (h, w) of each cross-attention layer.
    """

    rows: tuple[int, ...]
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
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def acted(self) -> dict[int, int]:
        """The number of sites (a layer at a step) at which a rule acted, by image."""
        return {image: len(sites) for image, sites in self._acted.items()}

    @property
    def shared(self) -> dict[int, int]:
        """The number of sites at which an image took the source's self-attention, by image."""
        return {image: len(sites) for image, sites in self._shared.items()}

    def cross(self, layer: str) -> Changes:
        """Return the changes of a cross-attention layer."""

        def output(scores: Scores, value: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
            self._made.clear()
            position = self.position
            if position is None:
                return plain
            for image in self.steering.rules:
                for first in position.rows:
                    if self.steering.by_head(image):
                        site = position.site(layer)
                        edited = self.steering.output(scores, value, first, image, site)
                    else:
                        _, p = self._edited(scores, first, image, layer)
                        edited = p @ value[first + image].float()
                    if edited is not None:
                        plain[first + image] = edited.to(plain)
                        self._acted[image].add((layer, position.step))
            return plain

        def weights(scores: Scores, p: torch.Tensor) -> torch.Tensor:
            self._made.clear()
            position = self.position
            if position is None:
                return p
            p = p.clone()
            for image in self.steering.rules:
                for first in position.rows:
                    before, after = self._edited(scores, first, image, layer)
                    if not torch.equal(before, after):
                        p[first + image] = after.to(p)
                        self._acted[image].add((layer, position.step))
            return p

        return Changes(lambda query, key: None, output, weights)

    def own(self, layer: str) -> Changes:
        """Return the changes of a self-attention layer."""

        def inputs(
            query: torch.Tensor, key: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor] | None:
            position = self.position
            if position is None:
                return None
            images = self.steering.sharing(query.shape[2], position.step, position.steps)
            for image in images:
                self._shared[image].add((layer, position.step))
            for first in position.rows:
                # Perturbed-attention guidance attends in the first rows of the batch alone.
                if images and first + max(images) < query.shape[0]:
                    query, key = self.steering.shared(query, key, first, images)
            return (query, key) if images else None

        return Changes(inputs, lambda scores, value, output: output, lambda scores, p: p)

    def probabilities(
        self, scores: Scores, image: int, layer: str, plain: SiteProbabilities
    ) -> SiteProbabilities:
        """Return an image's probabilities in the recorded rows as they acted.

        How much attention moved is noted as they are computed.
        """
        position = self.position
        if position is None or not self.steering.rules.get(image):
            return plain
        first, site = position.rows[0], position.site(layer)
        made = self._made.get(image)
        if made is None and not self.steering.by_head(image):
            made = self._edited(scores, first, image, layer)
        moved, at = self.moved[image], len(self.moved[image])
        moved.append(0.0)
        unseen = set(range(plain.heads))  # heads may be asked for one by one, and more than once

        def of(heads: slice, tokens: Sequence[int]) -> torch.Tensor:
            if made is None:
                before, after = self.steering.probabilities(scores, first, image, site, heads)
            else:
                before, after = made[0][heads], made[1][heads]
            given = range(plain.heads)[heads]
            fresh = [n for n, head in enumerate(given) if head in unseen]
            if fresh:
                unseen.difference_update(given)
                change = (after - before).abs()[fresh].sum(dim=-1)
                moved[at] += float(change.mean(dim=-1).sum()) / (2 * plain.heads)
            return after[..., list(tokens)]

        return SiteProbabilities(of, plain.heads, plain.device)

    def both(
        self, scores: Scores, image: int, layer: str
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return P and P' (H, Q, K) of an image in the recorded rows; None if it has no rules."""
        if self.position is None or not self.steering.rules.get(image):
            return None
        made = self._made.get(image)
        return made or self._edited(scores, self.position.rows[0], image, layer)

    def _edited(
        self, scores: Scores, first: int, image: int, layer: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        position = self.position
        assert position is not None
        site = position.site(layer)
        made = self.steering.probabilities(scores, first, image, site, slice(None))
        if first == position.rows[0]:
            self._made[image] = made
        return made


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
