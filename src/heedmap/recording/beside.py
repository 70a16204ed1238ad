"""Concepts beside the prompt of a call: the picture's own queries, other keys.

As in OVAM (Marcos-Manchón et al., arXiv 2403.14291): what a layer makes of another text takes the
place of its keys in the softmax, and of nothing else, so the picture is as it was. Their maps are
those of the keys that nobody changed, whatever the rules of a run do to its prompt.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from heedmap.backends.concept_states import ConceptStates
from heedmap.backends.encodings import Encoding
from heedmap.backends.processors import keys_of
from heedmap.backends.registry import family_of
from heedmap.errors import TraceError
from heedmap.mathematics.probabilities import Scores, scored
from heedmap.options import Axis
from heedmap.recording.calls import BranchRecord, Wanted
from heedmap.recording.tallies import Probabilities, Tally
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
        beside=Sought(layers, concepts, encoding.conditional.states, partial(family.within, model)),
    )
