"""Change the attention of some images of a batch by rules, and only theirs.

`Steering` says what is to be done and does it with the tensors of one layer; `Steerer` does it
while a pipeline runs, and notes where a rule acted and how much attention it moved. Nothing that
was recorded is an alias of what is changed here: every function makes new tensors, but for the
output of the attention, which is fresh from the kernel.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.nn.functional import scaled_dot_product_attention

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
from heedmap.recording.accumulation import Probabilities


@dataclass(frozen=True, eq=False)
class Steering:
    """What is to be changed in a call of a pipeline.

    Attributes:
        rules: for each image that is edited (by its number in the batch) its rules, in order;
            biases act first, since they come before the softmax.
        sources: for each image that takes from another the number of that one.
        self_windows: for each image with a source the fractions of the run, from and up to which it
            also takes the source's self-attention (its queries and keys, with its own values);
            an image without an entry takes none.
        self_cells: the largest grid, in cells, at which they do.
    """

    rules: Mapping[int, Sequence[Rule]]
    sources: Mapping[int, int] = field(default_factory=dict)
    self_windows: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    self_cells: int = EditOptions.self_cells

    def probabilities(
        self, scores: Scores, first: int, image: int, site: Site, heads: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One image's probabilities (H', Q, K) as they are, and edited by its rules' definition.

        Args:
            scores: of the whole batch.
            first: the row of the first image of the branch.
            image: the number of the image.
            site: the layer and step.
            heads: which; a rule of a user's own always sees all of them.
        """
        rules = self.ordered(image)
        source = self.sources.get(image)
        every = range(scores.key.shape[2])
        wide = heads if self.by_head(image) else slice(None)
        p = scores.of(first + image, wide, every)
        there = None if source is None else scores.of(first + source, wide, every)
        edited = apply(rules, p, replace(site, source=there))
        return (p, edited) if wide is heads else (p[heads], edited[heads])

    def by_head(self, image: int) -> bool:
        """Whether the rules of an image can be computed for some heads alone."""
        return linear(rule for rule in self.ordered(image) if not is_biased(rule))

    def ordered(self, image: int) -> list[Rule]:
        """The rules of an image in the order in which they act."""
        return sorted(self.rules.get(image, ()), key=lambda rule: not is_biased(rule))

    def output(
        self, scores: Scores, value: torch.Tensor, first: int, image: int, site: Site
    ) -> torch.Tensor | None:
        """One image's edited output (H, Q, d) by linear rules; None if none does anything.

        Args:
            scores: of the whole batch.
            value: (B, H, K, d).
            first: the row of the first image of the branch.
            image: the number of the image.
            site: the layer and step.
        """
        rules = self.ordered(image)
        biases = [rule.bias(site) for rule in rules if is_biased(rule)]
        bias = _padded([b for b in biases if b is not None], scores)
        row = first + image
        mix = mixture([rule for rule in rules if not is_biased(rule)], site)
        if mix is None and bias is None:
            return None
        own = value[row] if mix is None else mix.own.to(value) @ value[row]
        edited = _attend(scores, row, own, bias)
        if mix is not None and mix.source is not None:
            if image not in self.sources:
                raise no_source()
            there = mix.source.to(value) @ value[row]
            edited = edited + _attend(scores, first + self.sources[image], there, None)
        return edited

    def sharing(self, cells: int, step: int, steps: int) -> list[int]:
        """The images that take their source's self-attention at a step, on a grid of so many cells.

        None of them outside of its window, or on too large a grid.
        """
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
        """Queries and keys of self-attention (B, H, Q, d), the sources' in the images' place."""
        rows = torch.arange(query.shape[0], device=query.device)
        for image in images:
            rows[first + image] = first + self.sources[image]
        return query[rows], key[rows]


@dataclass(frozen=True)
class Now:
    """Where a run is.

    Attributes:
        rows: the rows of the batch at which the blocks begin that read the prompt; the first is
            the one that is recorded.
        step: from 0.
        steps: of the whole run.
        grids: (h, w) of each layer.
    """

    rows: tuple[int, ...]
    step: int
    steps: int
    grids: Mapping[str, tuple[int, int]]


class Steerer:
    """A steering at work.

    Attributes:
        steering: what is to be done.
        moved: for each image, at each pass of a layer at which a rule could act, the share of
            attention that went elsewhere: half of Σ |P' − P| over the tokens, averaged over places
            and heads (0 to 1; more where large weights made rows of far more than 1).
    """

    def __init__(self, steering: Steering, now: Callable[[], Now | None]) -> None:
        self.steering = steering
        self.moved: dict[int, list[float]] = defaultdict(list)
        self._now = now
        self._acted: dict[int, set[tuple[str, int]]] = defaultdict(set)
        self._shared: dict[int, set[tuple[str, int]]] = defaultdict(set)
        # By image what a user's rule made of the recorded rows' probabilities in this layer.
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def acted(self) -> dict[int, int]:
        """For each image at how many sites (a layer at a step) a rule did something."""
        return {image: len(sites) for image, sites in self._acted.items()}

    @property
    def shared(self) -> dict[int, int]:
        """For each image at how many sites it took the source's self-attention."""
        return {image: len(sites) for image, sites in self._shared.items()}

    def cross(self, name: str) -> Changes:
        """The changes of a cross-attention layer."""

        def output(scores: Scores, value: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
            now = self._now()
            if now is None:
                return plain
            site = _site(name, now)
            for image in self.steering.rules:
                for first in now.rows:
                    if self.steering.by_head(image):
                        edited = self.steering.output(scores, value, first, image, site)
                    else:
                        _, p = self._edited(scores, first, image, site)
                        edited = p @ value[first + image].float()
                    if edited is not None:
                        plain[first + image] = edited.to(plain)
                        self._acted[image].add((name, now.step))
            return plain

        def weights(scores: Scores, p: torch.Tensor) -> torch.Tensor:
            now = self._now()
            if now is None:
                return p
            edited, site = p.clone(), _site(name, now)
            for image in self.steering.rules:
                for first in now.rows:
                    before, after = self._edited(scores, first, image, site)
                    if not torch.equal(before, after):
                        edited[first + image] = after.to(p)
                        self._acted[image].add((name, now.step))
            return edited

        return Changes(lambda query, key: None, output, weights)

    def own(self, name: str) -> Changes:
        """The changes of a self-attention layer."""

        def inputs(
            query: torch.Tensor, key: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor] | None:
            now = self._now()
            if now is None:
                return None
            images = self.steering.sharing(query.shape[2], now.step, now.steps)
            for image in images:
                self._shared[image].add((name, now.step))
            for first in now.rows:
                # Perturbed-attention guidance attends in the first rows of the batch alone.
                if images and first + max(images) < query.shape[0]:
                    query, key = self.steering.shared(query, key, first, images)
            return (query, key) if images else None

        return Changes(inputs, lambda scores, value, output: output, lambda scores, p: p)

    def probabilities(
        self, scores: Scores, image: int, name: str, plain: Probabilities
    ) -> Probabilities:
        """The probabilities of an image as they acted; how much was moved is noted.

        They are those of the recorded rows. What a rule of a user's own made is taken as it was
        used: asked again, it might say something else.
        """
        now = self._now()
        if now is None or not self.steering.rules.get(image):
            return plain
        first, site = now.rows[0], _site(name, now)
        made = self._made.get(image)
        apart = self.steering.by_head(image) and made is None
        if not apart and made is None:
            made = self._edited(scores, first, image, site)
        moved, at, count = self.moved[image], len(self.moved[image]), scores.query.shape[1]
        moved.append(0.0)
        unseen = set(range(count))  # heads, which may be asked for one by one and more than once

        def of(heads: slice, tokens: Sequence[int]) -> torch.Tensor:
            if made is None:
                before, after = self.steering.probabilities(scores, first, image, site, heads)
            else:
                before, after = made[0][heads], made[1][heads]
            given = range(count)[heads]
            fresh = [n for n, head in enumerate(given) if head in unseen]
            if fresh:
                unseen.difference_update(given)
                change = (after - before).abs()[fresh].sum(dim=-1)
                moved[at] += float(change.mean(dim=-1).sum()) / (2 * count)
            return after[..., list(tokens)]

        return of

    def both(
        self, scores: Scores, image: int, name: str
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """P (H, Q, K) of an image in the recorded rows, as it is and as its rules made it.

        None where the image has no rules.
        """
        now = self._now()
        if now is None or not self.steering.rules.get(image):
            return None
        made = self._made.get(image)
        return made or self._edited(scores, now.rows[0], image, _site(name, now))

    def forget(self) -> None:
        """A layer has been recorded: what a rule made in it is used no more."""
        self._made.clear()

    def _edited(
        self, scores: Scores, first: int, image: int, site: Site
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """P (H, Q, K) of an image in one block, plain and edited."""
        made = self.steering.probabilities(scores, first, image, site, slice(None))
        now = self._now()
        if now is not None and first == now.rows[0]:
            self._made[image] = made
        return made


def _site(name: str, now: Now) -> Site:
    return Site(name, now.step, now.steps, now.grids[name])


def _attend(
    scores: Scores, row: int, value: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """(H, Q, d): one row's attention with other values, and a bias on its scores."""
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


def _padded(biases: list[torch.Tensor], scores: Scores) -> torch.Tensor | None:
    """The sum of biases (Q, K') of different widths, as (Q, K)."""
    if not biases:
        return None
    whole = torch.zeros(scores.query.shape[2], scores.key.shape[2], device=scores.query.device)
    for bias in biases:
        if bias.ndim != 2 or len(bias) != len(whole) or bias.shape[1] > whole.shape[1]:
            raise ArgumentError(
                f"a rule has a bias of shape {tuple(bias.shape)}: expected (Q, K) = "
                f"{tuple(whole.shape)}, or fewer tokens"
            )
        whole[:, : bias.shape[1]] += bias.to(whole)
    return whole
