"""The scores of a layer as they are recorded: of the prompt, and of concepts beside it.

Concepts are read from a text of their own with the image's queries, as in OVAM (Marcos-Manchón et
al., arXiv 2403.14291). The image does not change.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from heedmap.backends.base import GridShape
from heedmap.backends.processors import keys_of
from heedmap.backends.prompts import ConceptStates, Encoding
from heedmap.backends.registry import check_places, family_of
from heedmap.errors import TraceError
from heedmap.mathematics.probabilities import Scores, scored
from heedmap.mathematics.rules import Site
from heedmap.options import Axis
from heedmap.recording.accumulation import (
    Probabilities,
    Refiner,
    Tally,
    averaged,
    carriers,
    carries,
    middle_grid,
    unedited,
)
from heedmap.recording.calls import BranchRecord, Call, Wanted
from heedmap.recording.steering import Steerer
from heedmap.text.concepts import concept_table

ROUNDED = 0.02
"""Largest distance of the keys that a layer made of the prompt from those that are made of it here,
as a share of their length: rounding of half types stays below it."""


class Sought:
    """The concepts of the images of a call, as its layers would see them.

    Args:
        layers: the cross-attention layers, by their path.
        concepts: of each image; images of one prompt share theirs.
        prompts: the text states (B, K, C) of the prompts.
        within: what the denoiser makes of text states before its layers are given them.
    """

    def __init__(
        self,
        layers: Mapping[str, Any],
        concepts: Sequence[ConceptStates],
        prompts: torch.Tensor,
        within: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self._layers = layers
        self._concepts = concepts
        self._prompts = prompts
        self._within = within
        self._texts: dict[ConceptStates, torch.Tensor] = {}
        self._checked: set[str] = set()

    def __call__(self, name: str, scores: Scores, first: int) -> Callable[[int], Probabilities]:
        """What a layer that has run would have seen of the concepts (`calls.Beside`).

        Raises:
            TraceError: if the layer makes its keys otherwise than layers do.
        """
        layer, key = self._layers[name], scores.key
        if not self._texts:  # not before: the model may be offloaded until it runs
            every = dict.fromkeys(self._concepts)
            self._texts = {one: self._within(one.states[None].to(self._prompts)) for one in every}
        if name not in self._checked:
            ours = keys_of(layer, self._within(self._prompts[:1]).to(key))
            self._check(name, ours, key[first : first + 1])
            self._checked.add(name)
        keys = {one: keys_of(layer, text.to(key)) for one, text in self._texts.items()}

        def image_of(image: int) -> Probabilities:
            mine, row = self._concepts[image], first + image
            made = scored(scores.query[row : row + 1], keys[mine], scores.scale)
            return _summed(made, mine)

        return image_of

    def _check(self, name: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
        """Raise a TraceError unless both are the keys of one text."""
        same = ours.shape == theirs.shape
        if not same or not (ours - theirs).float().norm() <= ROUNDED * theirs.float().norm():
            raise TraceError(
                f"{name} makes other keys of the prompt than its own linear map does (a "
                "processor with weights of its own?), so what it would make of a concept is "
                "not known: leave concepts out"
            )


def _summed(made: Scores, concepts: ConceptStates) -> Probabilities:
    """The probabilities of concepts: of each the sum of its tokens."""
    tokens = [token for places in concepts.places for token in places]
    counts = [len(places) for places in concepts.places]

    def of(heads: slice, wanted: Sequence[int]) -> torch.Tensor:
        each = made.of(0, heads, tokens).split(counts, dim=-1)
        return torch.stack([each[number].sum(dim=-1) for number in wanted], dim=-1)

    return of


def concept_side(
    encoding: Encoding, wanted: Wanted, layers: Mapping[str, Any], pipe: Any, keep: frozenset[Axis]
) -> BranchRecord | None:
    """The side of a call on which its concepts are recorded; None where it has none."""
    concepts = encoding.concepts
    if not concepts:
        return None
    family = family_of(pipe)
    model = family.denoiser(pipe)
    table = concept_table(wanted.concepts)
    numbers = tuple(range(len(wanted.concepts)))
    return BranchRecord(
        (table,) * len(concepts),
        Tally(keep, [numbers] * len(concepts), wanted.halves),
        beside=Sought(
            layers, concepts, encoding.conditional.states, partial(family.project_text, model)
        ),
    )


def hear(call: Call, name: str, scores: Scores, steerer: Steerer | None) -> None:
    """Take in what one cross-attention layer is made of, for all rows of the batch."""
    rows, heads, positions, _ = scores.query.shape
    if rows != call.rows:
        raise TraceError(
            f"{name} computed attention for {rows} rows where the model was given {call.rows}: "
            "heedmap cannot tell which image each row belongs to; switch off the tool that leaves "
            "out a part of the batch"
        )
    moment, device = call.moment, scores.query.device
    site = Site(name, moment.step, moment.steps, call.grids[name])
    where = (heads, call.mean_grid, device)
    check_places(name, positions, site.grid)
    for side in call.sides.values():
        if side.block is None:
            continue
        side.ran[name, moment.step] += 1
        first = side.block * call.images
        other = None if side.beside is None else side.beside(name, scores, first)
        for image in range(call.images):
            of = unedited(scores, first + image) if other is None else other(image)
            conditional = side is call.sides.get("conditional")
            if conditional and steerer is not None:
                of = steerer.probabilities(scores, image, name, of)
            p = side.tally.add(image, site, of, *where, call.passes)
            if side.refiner is not None:
                side.refiner.hear(image, p, site.grid, call.passes)
            if conditional and call.watch is not None and (tokens := call.watched[image]):
                p = averaged(of, tokens, heads, device)
                call.watch.hear(image, p, site.grid, call.passes)


def refine(call: Call, own: Mapping[str, GridShape]) -> Mapping[str, GridShape]:
    """Let a call refine its maps.

    Args:
        call: which has its sides already.
        own: the self-attention layers of the model, with their grids (h, w).

    Returns:
        Those that carry.
    """
    call.carriers = {name: own[name] for name in carriers(own, call.grids)}
    grid = next(iter(call.carriers.values()), None)
    for side in call.sides.values():
        side.refiner = None if grid is None else Refiner(grid)
    if any(call.watched):
        # Where none carries, plain maps of such a grid decide.
        drawn = call.grids.values()
        call.watch = Refiner(grid or middle_grid(drawn) or max(drawn))
    return call.carriers


def carry(call: Call, name: str, scores: Scores) -> None:
    """Carry the maps so far along one self-attention layer, where it is time to."""
    h, w = call.carriers.get(name, (0, 0))
    rows, _, places, _ = scores.query.shape
    if not carries(call.moment.step, call.steps):
        return
    # Tokens may be merged, or another image's keys may stand beside the image's own (StyleAligned).
    # Then nobody can tell which place is which, and the call has no refined maps.
    if not places == h * w == scores.key.shape[2] or scores.mask is not None:
        for side in call.sides.values():
            side.refiner = None
        return
    for side_name, side in call.sides.items():
        watch = call.watch if side_name == "conditional" else None
        for image in range(call.images if side.block is not None else 0):
            row = (side.block or 0) * call.images + image
            for refiner in (side.refiner, watch):
                if refiner is not None and row < rows:
                    refiner.carry(image, scores, row, call.passes)
