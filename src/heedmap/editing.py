"""Edit a prompt and keep the picture: swap, refine, reweight, blend.

Prompt-to-prompt (Hertz et al., 2022, arXiv 2208.01626): source and targets are drawn in one batch
from one noise; for a part of the run the targets take the source's cross-attention, word by word,
and its self-attention.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from diffusers import DiffusionPipeline

from heedmap import pictures, studio
from heedmap.alignment import (
    EditKind,
    WordAlignment,
    pair_words,
    refinement,
    replacement,
    swap_of,
)
from heedmap.edits import Inject, Renormalize, Rule, Weights, blend, blend_mask
from heedmap.encodings import prompt_table
from heedmap.errors import ArgumentError
from heedmap.pairs import Pair, compare
from heedmap.recordings import Axis
from heedmap.runs import Run
from heedmap.steering import Steering
from heedmap.studio import Progress
from heedmap.tracing import LIMIT, Trace
from heedmap.weights import parse_weights, token_weights
from heedmap.words import TokenTable

Window = float | tuple[float, float]
"""A fraction of the run up to which, or two from and up to which, something is done."""


@overload
def edit(
    pipe: DiffusionPipeline, source: str, target: str | None = None, **options: Any
) -> Pair: ...
@overload
def edit(
    pipe: DiffusionPipeline, source: str, target: Sequence[str], **options: Any
) -> list[Pair]: ...
def edit(
    pipe: DiffusionPipeline,
    source: str,
    target: str | Sequence[str] | None = None,
    *,
    kind: EditKind | None = None,
    cross: Window = 0.8,
    words: Mapping[str, Window] | None = None,
    self_attention: Window = 0.4,
    self_cells: int = 32 * 32,
    renormalize: bool = False,
    only: str | None = None,
    protect: Iterable[str] = (),
    blend_from: float = 0.2,
    threshold: float = 0.3,
    seed: int | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    size: tuple[int, int] | None = None,
    negative: str | None = None,
    keep: Iterable[Axis] = ("layer",),
    limit: int = LIMIT,
    progress: Progress | None = None,
    **arguments: Any,
) -> Pair | list[Pair]:
    """Draw a prompt and its edits from one noise, so that what was not edited stays.

        pair = heedmap.edit(pipe, "a red house", "a blue house", seed=7)
        pair = heedmap.edit(pipe, "a (fluffy:2.5) cat", seed=7)
        pair = heedmap.edit(pipe, "a cat on grass", "a dog on grass", seed=7, only="cat->dog")

    Weights in brackets, `(word:1.5)`, multiply the attention that a word draws; `heedmap.weights`
    says how they are written.

    Args:
        pipe: a pipeline, as `load` gives it.
        source: the prompt that is edited; weights in it hold for the edit where no target is given.
        target: what it shall become, or several; None where weights are all that changes.
        kind: "replace" where the words correspond one to one, "refine" where some were added;
            chosen by aligning the words if None (`Pair.about` says which and why).
        cross: while the source's cross-attention is taken (0 to 1, of the run).
        words: other windows for single words or phrases of the target.
        self_attention: while the source's self-attention is taken.
        self_cells: the largest grid, in cells, at which it is (16 × 16 or 32 × 32 as a rule).
        renormalize: whether weighted rows are made to sum to 1 again.
        only: "cat->dog": outside of where these words act the source's latents stay (LocalBlend).
        protect: words of the source whose places stay, with `only`.
        blend_from: fraction of the run from which latents are blended.
        threshold: of the maximum, above which a word is taken to act at a place.
        seed: of the one noise that all start from; drawn, and noted, if None.
        steps: as in `generate`.
        guidance: as in `generate`.
        size: (width, height), as in `generate`.
        negative: as in `generate`, for all prompts.
        keep: as in `generate`.
        limit: as in `generate`.
        progress: as in `generate`.
        arguments: any other argument of the pipeline, passed on.

    Returns:
        A pair, or for several targets a list of pairs with one source.

    Raises:
        ArgumentError: if the edit would change nothing, or an argument is out of range.
        UnknownWordError: if a word is not in its prompt.
        TraceError: if the edit could not act.
    """
    several = target is not None and not isinstance(target, str)
    asked = [None] if target is None else [target] if isinstance(target, str) else list(target)
    if not asked:
        raise ArgumentError("no target was given: expected a prompt, or several")
    first = parse_weights(source)
    table = prompt_table(pipe, first.text)
    windows = {word: _window(w, f"the window of {word!r}") for word, w in (words or {}).items()}
    plans = [
        _plan(
            pipe, table, source if text is None else text, kind, _window(cross, "cross"), windows,
            renormalize, only,
        )
        for text in asked
    ]  # fmt: skip
    own = _window(self_attention, "self_attention")
    if not 0 <= blend_from <= 1 or not 0 <= threshold <= 1:
        raise ArgumentError(
            f"blend_from={blend_from!r}, threshold={threshold!r}: expected numbers from 0 to 1"
        )
    steering = Steering(
        {number: plan.rules for number, plan in enumerate(plans, 1)},
        dict.fromkeys(range(1, len(plans) + 1), 0), own, self_cells,
    )  # fmt: skip
    weighted = token_weights(first.spans, table) if target is not None else {}
    if weighted:
        steering = Steering(
            {0: [_weights(weighted, table)], **steering.rules}, steering.sources, own, self_cells
        )
    blending = _Blending(table, plans, tuple(protect), blend_from, threshold) if only else None
    seed = studio.drawn_seed() if seed is None else seed
    runs, recorder = studio.draw(
        pipe, [first.text, *(plan.text for plan in plans)], seeds=[seed] * (len(plans) + 1),
        steps=steps, guidance=guidance, size=size, negative=negative, keep=keep, tokens="prompt",
        branches=("conditional",), limit=limit, progress=progress, arguments=arguments,
        steering=steering, after_step=blending,
    )  # fmt: skip
    pairs = []
    for number, plan in enumerate(plans, 1):
        about = {
            "kind": plan.kind,
            "why": plan.alignment.why,
            "cross": list(_window(cross, "cross")),
            "self": list(own),
            "weights": {str(position): weight for position, weight in plan.weights.items()},
            "only": only,
        }
        mask = None if blending is None else blending.mask(number)
        pairs.append(_pair(runs[0], runs[number], plan, about, recorder, number, mask))
    return pairs if several else pairs[0]


@dataclass(frozen=True, eq=False)
class _Plan:
    """One edited prompt, ready to be drawn."""

    text: str
    table: TokenTable
    alignment: WordAlignment
    rules: tuple[Rule, ...]
    weights: Mapping[int, float]
    swaps: tuple[tuple[str, str], ...]

    @property
    def kind(self) -> str:
        changed = self.alignment.swapped or self.alignment.added or self.alignment.dropped
        return self.alignment.kind if changed or not self.weights else "reweight"

    def changed(self) -> tuple[list[int], list[int]]:
        """The numbers of the words of the source, and of the target, that the edit is about."""
        before = {a.number for a, _ in self.alignment.swapped}
        before |= {word.number for word in self.alignment.dropped}
        after = {b.number for _, b in self.alignment.swapped}
        after |= {word.number for word in self.alignment.added}
        for a, b in self.alignment.pairs:
            if b is not None and set(b.tokens) & set(self.weights):
                after.add(b.number)
                before |= {a.number} if a is not None else set()
        read = {word.number for word in self.table.read_words}
        return sorted(before), sorted(after & read)


def _plan(
    pipe: Any, source: TokenTable, text: str, kind: EditKind | None,
    cross: tuple[float, float], windows: Mapping[str, tuple[float, float]], renormalize: bool,
    only: str | None,
) -> _Plan:  # fmt: skip
    parsed = parse_weights(text)
    target = prompt_table(pipe, parsed.text)
    alignment = pair_words(source, target, kind)
    if alignment.unread:
        source.find(alignment.unread[0].text) if alignment.dropped else None
        lost = alignment.unread[0].text
        raise ArgumentError(
            f"{lost!r} is changed, but stands past the {target.limit} tokens that the model reads: "
            "shorten the prompt"
        )
    weights = token_weights(parsed.spans, target)
    swaps = () if only is None else swap_of(only)
    for before, after in swaps:
        source.find(before)
        target.find(after)
    same = not (alignment.swapped or alignment.added or alignment.dropped)
    if same and all(weight == 1 for weight in weights.values()):
        raise ArgumentError(
            f"the prompt {source.prompt!r} and its edit {text!r} have the same words and no "
            "weights, so the edit would change nothing: change a word, or weight one as in "
            "'(word:1.5)'"
        )
    columns = torch.zeros(len(source.tokens), len(target.tokens))
    end = torch.full((len(target.tokens),), cross[1])
    if alignment.kind == "replace":
        for w, n, share in replacement(source, target, alignment):
            columns[w, n] = share
    else:
        for n, w in enumerate(refinement(source, target)):
            if w is None:
                end[n] = 0.0
            else:
                columns[w, n] = 1.0
    start = torch.full_like(end, cross[0])
    for word, (low, high) in windows.items():
        tokens = list(target.find(word))
        start[tokens], end[tokens] = low, high
    rules: list[Rule] = [Inject(columns, start, end)]
    if weights:
        rules.append(_weights(weights, target))
        rules += [Renormalize()] * renormalize
    return _Plan(parsed.text, target, alignment, tuple(rules), weights, swaps)


def _weights(weights: Mapping[int, float], table: TokenTable) -> Weights:
    every = torch.ones(len(table.tokens))
    for position, weight in weights.items():
        every[position] = weight
    return Weights(every)


def _window(window: Window, what: str) -> tuple[float, float]:
    low, high = window if isinstance(window, tuple) else (0.0, window)
    if not (0 <= low <= high <= 1):  # NaN is refused too
        raise ArgumentError(
            f"{what} is {window!r}: expected a fraction of the run from 0 to 1, or two, the first "
            "not above the second"
        )
    return float(low), float(high)


class _Blending:
    """LocalBlend: after each step, the source's latents where the words do not act."""

    def __init__(
        self, source: TokenTable, plans: Sequence[_Plan], protect: tuple[str, ...],
        begin: float, threshold: float,
    ) -> None:  # fmt: skip
        self.source, self.plans = source, plans
        self.protected = [source.find(word) for word in protect]
        self.begin, self.threshold = begin, threshold
        self._masks: dict[int, torch.Tensor] = {}

    def __call__(self, recorder: Trace, step: int, latents: torch.Tensor) -> torch.Tensor:
        """The latents (B, C, h, w) to go on with."""
        if step < self.begin * recorder.steps:
            return latents
        blended = latents.clone()
        for number, plan in enumerate(self.plans, 1):
            mask = torch.zeros(latents.shape[-2:], dtype=torch.bool)
            for before, after in plan.swaps:
                mask |= self._acts(recorder, 0, self.source.find(before), latents)
                mask |= self._acts(recorder, number, plan.table.find(after), latents)
            for tokens in self.protected:
                mask &= ~self._acts(recorder, 0, tokens, latents)
            self._masks[number] = mask
            blended[number] = blend(latents[0], latents[number], mask.to(latents.device))
        return blended

    def mask(self, number: int) -> torch.Tensor | None:
        """The last mask of an image, bool (h, w) of the latent."""
        return self._masks.get(number)

    def _acts(
        self, recorder: Trace, image: int, tokens: Sequence[int], latents: torch.Tensor
    ) -> torch.Tensor:
        size = (latents.shape[-2], latents.shape[-1])
        return blend_mask(recorder.so_far(image, tokens), size, self.threshold)


def _pair(
    source: Run, edited: Run, plan: _Plan, about: dict[str, Any], recorder: Trace, number: int,
    blended: torch.Tensor | None,
) -> Pair:  # fmt: skip
    """The pair with its evidence."""
    steerer = recorder.steerer
    assert steerer is not None
    before, after = plan.changed()
    mask = None
    if blended is not None:
        mask = pictures.resize_map(blended.float().numpy(), source.image.size) > 0.5
        inside = mask
    else:
        masks = [source.maps.at(n).mask() for n in before]
        masks += [edited.maps.at(n).mask() for n in after]
        inside = np.logical_or.reduce(masks)
    moved = steerer.moved.get(number)
    about |= {
        "words": {"source": before, "edited": after},
        "sites": steerer.acted[number],
        "self_sites": steerer.shared,
        "moved": sum(moved) / len(moved) if moved else 0.0,
        "change": compare(source.image, edited.image, inside),
    }
    if np.abs(np.asarray(source.image, float) - np.asarray(edited.image, float)).max() <= 1:
        warnings.warn(
            f"the edit {edited.settings['prompt']!r} changed nothing in the picture above rounding "
            f"({about['sites']} sites acted): try a smaller cross window, or another seed",
            stacklevel=4,
        )
    return Pair(source, edited, about, mask)
