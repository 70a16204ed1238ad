"""Concepts beside the prompt: texts of their own that the image's queries are compared with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod
from typing import Any

import torch
from torch import Tensor

from heedmap.backends.activations import keys_of
from heedmap.backends.base import GridShape
from heedmap.backends.joint import JointFamily
from heedmap.backends.prompts import ConceptStates, Encoding
from heedmap.backends.tap import RecordingProcessor
from heedmap.errors import TraceError
from heedmap.mathematics.events import AttentionEvent, RowAttention, take
from heedmap.mathematics.probabilities import (
    columns,
    index_tensor,
    log_sums,
    probabilities,
)

MAX_KEY_ERROR = 0.02
"""Largest relative distance between a layer's keys of the prompt and those computed here. Rounding
of half-precision types stays below it."""


@dataclass(eq=False)
class ConceptKeys:
    """The keys that each layer makes of the concepts of a call's images.

    Concepts have a text of their own. The image's queries attend to it as in OVAM (Marcos-Manchón
    et al., arXiv 2403.14291), and the image does not change. `project` returns text states as the
    denoiser passes them to its layers.
    """

    layers: Mapping[str, Any]
    encoding: Encoding
    project: Callable[[Tensor], Tensor]
    _texts: dict[ConceptStates, Tensor] = field(default_factory=dict)
    # By layer, once, on the device: whether its keys of the prompt are those computed here.
    _is_exact: dict[str, Tensor] = field(default_factory=dict)

    def check(self) -> None:
        """Raise a TraceError if a layer does not make its keys with its own linear map."""
        names = list(self._is_exact)
        if not names:
            return
        exact = torch.stack(list(self._is_exact.values())).tolist()
        if not all(exact):
            raise TraceError(
                f"the keys of {names[exact.index(False)]} are not those of its own to_k layer (a "
                "processor with weights of its own?), so its keys of a concept cannot be "
                "computed: leave concepts out"
            )

    def probabilities(self, event: AttentionEvent, first: int) -> list[Tensor]:
        """Return each image's probabilities (H, Q, N) of its concepts in a layer that has just run.

        That of a concept is the sum over its tokens. Images are in the rows of the batch from
        `first` on.
        """
        name = event.layer
        key = event.key
        layer = self.layers[name]
        concepts = self.encoding.concepts
        prompts = self.encoding.conditional.states
        if not self._texts:  # not earlier: the model may be offloaded until it runs
            for one in {*concepts}:
                self._texts[one] = self.project(one.states[None].to(prompts))
        if name not in self._is_exact:
            computed = keys_of(layer, self.project(prompts[:1]).to(key))
            self._is_exact[name] = _is_close(computed, key[first : first + 1])
        keys = {one: keys_of(layer, text.to(key)) for one, text in self._texts.items()}
        rows = [
            RowAttention(event.query[row], keys[one][0], event.scale)
            for row, one in enumerate(concepts, first)
        ]
        return list(map(concept_probabilities, rows, concepts))


def _is_close(computed: Tensor, actual: Tensor) -> Tensor:
    """Return whether keys are equal but for rounding, as a tensor on their device."""
    if computed.shape != actual.shape:
        return torch.zeros((), dtype=torch.bool, device=actual.device)
    error = (computed - actual).float().norm()
    return error <= MAX_KEY_ERROR * actual.float().norm()


def concept_probabilities(row: RowAttention, concepts: ConceptStates) -> Tensor:
    """Return the probabilities (H, Q, N) of concepts, whose tokens are the text of a row."""
    counts = [len(places) for places in concepts.places]
    p = row.probabilities(list(chain(*concepts.places)))
    return torch.stack([part.sum(dim=-1) for part in p.split(counts, dim=-1)], dim=-1)


class ConceptStreams:
    """The text states of the concepts of a call's images, on their way through the blocks.

    The tokens of an image's concepts pass through each block as a prompt does, and attend to
    themselves and to the image, which does not attend to them (ConceptAttention: Helbling et al.,
    2025, arXiv 2502.04320). A concept's probability is the share that its tokens would have beside
    the prompt: of the softmax over the keys of the text, of the image and of all concepts. Two or
    more concepts also have the similarities of their outputs (`output_similarities`).

    A block runs once more for each image; the image's states that come out are discarded.

    Attributes:
        event: that of the layer whose block runs.
    """

    event: AttentionEvent

    def __init__(self, family: JointFamily, concepts: Sequence[ConceptStates]) -> None:
        self._family = family
        self._whole = concepts
        self._concepts = [_selected(one) for one in concepts]
        # Of each image (1, K, C): those before the first block, and those of this pass.
        self._first: list[Tensor] = []
        self._texts: list[Tensor] = []

    def begin(self) -> None:
        """Begin a pass of the model."""
        self._texts = [*self._first]

    @torch.no_grad()
    def run(
        self,
        block: Any,
        arguments: Mapping[str, Any],
        recorder: RecordingProcessor,
        grids: Sequence[GridShape],
        first: int,
        of_text: bool,
    ) -> Iterator[tuple[str, int, Tensor]]:
        """Yield each image's probabilities of its concepts in a block that has just run.

        That of a concept is the sum over its tokens. Images are in the rows of the batch from
        `first` on. The grids are those of the image and of reference images. Similarities of
        outputs follow those of each image; there are none of a single concept, or if the outputs
        are not known.
        """
        if not self._texts:  # not earlier: the model may be offloaded until it runs
            states = arguments[self._family.block_input]
            for whole in self._whole:
                text = self._family.project_text(whole.states[None].to(states))
                selected = _selected(replace(whole, states=text[0]))
                self._texts.append(selected.states[None])
            self._first = [*self._texts]
        positions, *references = map(prod, grids)
        for image, concepts in enumerate(self._concepts):
            row = first + image
            text = self._texts[image]
            inputs = self._family.with_text(
                arguments, text, row, positions + sum(references)
            )
            recorded = list[AttentionEvent]()
            layout = self._family.layout(text.shape[1], positions, references)
            layout = replace(layout, keys=None)  # the concepts' tokens are queries, too
            with recorder.redirected(recorded.append, layout):
                # Not as a call: the hooks of the block belong to the pass of the image.
                output = block.forward(**inputs)
            self._texts[image] = self._family.text_after(output, text.shape[1])
            prompt = self.event.row(row)
            concept = recorded[0].row(0)
            if of_text:
                prompt = prompt.text_alone()
            # Autocast would use half precision here.
            with torch.autocast(prompt.query.device.type, enabled=False):
                log_sum = log_sums(prompt.query, concept.text_keys, concept.scale)
                log_sum = log_sum.logaddexp(prompt.log_sums())
                scored = RowAttention(
                    query=prompt.query,
                    keys=concept.keys,
                    scale=concept.scale,
                    layout=concept.layout,
                    joint=True,
                    log_sum=log_sum,
                )
                p = concept_probabilities(scored, concepts)
                output = recorded[0].output
                similar = None
                whole = self.event.output
                several = len(concepts.places) > 1
                if several and whole is not None and output is not None:
                    text = take(output[0], concept.layout.tokens)
                    of_image = take(whole[row], self.event.layout.row(row).positions)
                    similar = output_similarities(of_image, text, concepts)
            yield "concepts", image, p
            if similar is not None:
                yield "outputs", image, similar


def output_similarities(image: Tensor, text: Tensor, concepts: ConceptStates) -> Tensor:
    """Return the similarities (1, Q, N) of attention outputs, from 0 to 1.

    At each position they are the softmax over the concepts of the inner products of the image's
    output and theirs. An output has all heads side by side, before the output projection; that of a
    concept is the mean over its tokens. The outputs of the image are (H, Q, d), of the text
    (H, K, d).
    """
    outputs, tokens = (one.float().transpose(0, 1).flatten(1) for one in (image, text))
    means = torch.stack(
        [columns(tokens.mT, place).mean(dim=-1) for place in concepts.places]
    )
    return probabilities(outputs, means, scale=1.0)[None]


def _selected(concepts: ConceptStates) -> ConceptStates:
    """Return the states of the concepts' tokens alone, without other words and padding."""
    tokens = sorted({*chain(*concepts.places)})
    index = index_tensor(tokens, concepts.states.device)
    return ConceptStates(
        places=tuple(tuple(map(tokens.index, place)) for place in concepts.places),
        states=concepts.states.index_select(0, index),
    )
