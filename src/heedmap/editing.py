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
from heedmap.edits import Inject, Renormalize, Rule, Site, blend, blend_mask
from heedmap.encodings import prompt_table
from heedmap.errors import ArgumentError, TruncatedWordError, quoted
from heedmap.pairs import Pair, compare
from heedmap.recordings import Axis
from heedmap.runs import Run
from heedmap.steering import Steering
from heedmap.studio import Progress
from heedmap.tracing import LIMIT, Trace
from heedmap.weights import parse_weights, token_weights
from heedmap.words import TokenTable, Word

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
        source: the prompt that is edited; weights in it hold for the edit where no target is given,
            else for the source's own picture.
        target: what it shall become, or several; None where weights are all that changes.
        kind: "replace" where the words correspond one to one, "refine" where some were added;
            chosen by aligning the words if None (`Pair.about` says which and why).
        cross: while the source's cross-attention is taken (0 to 1, of the run).
        words: other windows for single words or phrases of the target that take from the source.
        self_attention: while the source's self-attention is taken.
        self_cells: the largest grid, in cells, at which it is (16 × 16 or 32 × 32 as a rule).
        renormalize: whether weighted rows are made to sum to 1 again.
        only: "cat->dog": outside of where these words act the source's latents stay (LocalBlend).
        protect: a word of the source, or several, whose places stay, with `only`.
        blend_from: fraction of the run from which latents are blended, below 1.
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
    asked = [source] if target is None else [target] if isinstance(target, str) else list(target)
    if not asked:
        raise ArgumentError("no target was given: expected a prompt, or several")
    seed = studio.drawn_seed() if seed is None else seed
    studio.check_prompts([source, *asked], [seed] * (len(asked) + 1))
    first = parse_weights(source)
    table = prompt_table(pipe, first.text)
    weighted = {} if target is None else token_weights(first.spans, table)
    ground = _Ground(table, weighted, kind, _window(cross, "cross"), _windows(words), only)
    plans = [_plan(pipe, ground, text, renormalize) for text in asked]
    own = _window(self_attention, "self_attention")
    if not (_is_number(blend_from) and 0 <= blend_from < 1):
        raise ArgumentError(
            f"blend_from is {blend_from!r}: expected a fraction of the run, from 0 to below 1"
        )
    if not (_is_number(threshold) and 0 <= threshold <= 1):
        raise ArgumentError(f"threshold is {threshold!r}: expected a number from 0 to 1")
    kept = (protect,) if isinstance(protect, str) else tuple(protect)
    if kept and only is None:
        raise ArgumentError(
            f"protect is {', '.join(map(repr, kept))}, but nothing is blended: pass only as well, "
            "as in only='cat->dog'"
        )
    blending = None if only is None else _Blending(table, plans, kept, blend_from, threshold)
    rules = {number: plan.rules for number, plan in enumerate(plans, 1)}
    sources = dict.fromkeys(rules, 0)
    if weighted:
        rules = {0: (studio.weights_rule(weighted, table),), **rules}
    steering = Steering(rules, sources, own, self_cells)
    runs, recorder = studio.draw(
        pipe, [first.text, *(plan.text for plan in plans)],
        written=[first.text if target is None else source, *asked],
        seeds=[seed] * (len(plans) + 1),
        steps=steps, guidance=guidance, size=size, negative=negative, keep=keep, tokens="prompt",
        branches=("conditional",), limit=limit, progress=progress, arguments=arguments,
        steering=steering, after_step=blending,
    )  # fmt: skip
    pairs = []
    for number, plan in enumerate(plans, 1):
        about = {
            "kind": plan.kind,
            "why": plan.alignment.why,
            "cross": list(ground.cross),
            "windows": {word: list(window) for word, window in ground.windows.items()},
            "self": list(own),
            "self_cells": self_cells,
            "weights": {str(position): weight for position, weight in plan.weights.items()},
            "renormalize": renormalize,
            "only": only,
            "protect": list(kept),
            "blend_from": blend_from,
            "threshold": threshold,
        }
        mask = None if blending is None else blending.mask(number)
        pairs.append(_pair(runs[0], runs[number], plan, about, recorder, number, mask))
    return pairs if several else pairs[0]


@dataclass(frozen=True, eq=False)
class _Ground:
    """What all edits of one source have in common."""

    table: TokenTable
    weights: Mapping[int, float]
    """Of the source's own picture, by position."""
    kind: EditKind | None
    cross: tuple[float, float]
    windows: Mapping[str, tuple[float, float]]
    only: str | None


@dataclass(frozen=True, eq=False)
class _Plan:
    """One edited prompt, ready to be drawn."""

    ground: _Ground
    text: str
    table: TokenTable
    alignment: WordAlignment
    rules: tuple[Rule, ...]
    weights: Mapping[int, float]
    swaps: tuple[tuple[str, str], ...]

    @property
    def kind(self) -> str:
        """What it is called in `Pair.about`."""
        return self.alignment.kind if _words_changed(self.alignment) else "reweight"

    def changed(self) -> tuple[list[int], list[int]]:
        """The numbers of the words of the source, and of the target, that the edit is about."""
        before = {a.number for a, _ in self.alignment.swapped}
        before |= {word.number for word in self.alignment.dropped}
        after = {b.number for _, b in self.alignment.swapped}
        after |= {word.number for word in self.alignment.added}
        for a, b in _reweighted(self.alignment, self.ground.weights, self.weights):
            before |= {a.number} if a is not None else set()
            after |= {b.number} if b is not None else set()
        tables = (self.ground.table, self.table)
        source, edited = ({word.number for word in table.read_words} for table in tables)
        return sorted(before & source), sorted(after & edited)


def _words_changed(alignment: WordAlignment) -> bool:
    return bool(alignment.swapped or alignment.added or alignment.dropped)


def _reweighted(
    alignment: WordAlignment, before: Mapping[int, float], after: Mapping[int, float]
) -> list[tuple[Word | None, Word | None]]:
    """The pairs of words whose weights differ."""

    def weight(word: Word | None, weights: Mapping[int, float]) -> float:
        return weights.get(word.tokens[0], 1.0) if word is not None and word.tokens else 1.0

    return [(a, b) for a, b in alignment.pairs if weight(a, before) != weight(b, after)]


def _plan(pipe: Any, ground: _Ground, text: str, renormalize: bool) -> _Plan:
    source, cross = ground.table, ground.cross
    parsed = parse_weights(text)
    target = prompt_table(pipe, parsed.text)
    alignment = pair_words(source, target, ground.kind)
    if alignment.unread:
        raise TruncatedWordError(
            f"{quoted(alignment.unread[0].text)} is changed, but stands past the {target.limit} "
            "tokens that the model reads: shorten the prompt, or move the word towards its start"
        )
    weights = token_weights(parsed.spans, target)
    swaps = () if ground.only is None else swap_of(ground.only)
    for before, after in swaps:
        source.find(before)
        target.find(after)
    if not _words_changed(alignment) and not _reweighted(alignment, ground.weights, weights):
        raise ArgumentError(
            f"the prompt {quoted(source.prompt)} and its edit {quoted(text)} have the same words "
            "and the same weights, so the edit would change nothing: change a word, or weight one "
            "as in '(word:1.5)'"
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
    for word, (low, high) in ground.windows.items():
        taking = [n for n in target.find(word) if bool(columns[:, n].any())]
        if not taking:
            raise ArgumentError(
                f"{quoted(word)} is new in {quoted(target.prompt)} and takes no attention from the "
                "source, so it has no window: leave it out of words"
            )
        start[taking], end[taking] = low, high
    rules: list[Rule] = [Inject(columns, start, end)]
    if weights:
        rules.append(studio.weights_rule(weights, target))
        rules += [Renormalize()] * renormalize
    return _Plan(ground, parsed.text, target, alignment, tuple(rules), weights, swaps)


def _windows(words: Mapping[str, Window] | None) -> dict[str, tuple[float, float]]:
    return {word: _window(window, f"the window of {word!r}") for word, window in _items(words)}


def _items(words: Mapping[str, Window] | None) -> Iterable[tuple[str, Window]]:
    if words is not None and not isinstance(words, Mapping):
        raise ArgumentError(f"words is {words!r}: expected windows by word, as in {{'cat': 0.3}}")
    return () if words is None else words.items()


def _window(window: Window, what: str) -> tuple[float, float]:
    bounds = tuple(window) if isinstance(window, tuple | list) else (0.0, window)
    sound = len(bounds) == 2 and all(map(_is_number, bounds))
    if not sound or not 0 <= bounds[0] <= bounds[1] <= 1:  # NaN is refused too
        raise ArgumentError(
            f"{what} is {window!r}: expected a fraction of the run from 0 to 1, or two, the first "
            "not above the second"
        )
    return float(bounds[0]), float(bounds[1])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
        nowhere = np.zeros(source.image.size[::-1], dtype=bool)
        inside = np.logical_or.reduce([nowhere, *masks])
    moved = steerer.moved.get(number)
    about |= {
        "words": {"source": before, "edited": after},
        "sites": steerer.acted[number],
        "self_sites": steerer.shared,
        "moved": sum(moved) / len(moved) if moved else 0.0,
        "change": compare(source.image, edited.image, inside),
    }
    for trouble in _idle(about, plan, source.settings["steps"]):
        warnings.warn(trouble, stacklevel=3)
    if np.abs(np.asarray(source.image, float) - np.asarray(edited.image, float)).max() <= 1:
        warnings.warn(
            f"the edit {quoted(edited.settings['prompt'])} changed nothing in the picture above "
            f"rounding ({about['sites']} sites acted): try a smaller cross window, or another seed",
            stacklevel=3,
        )
    return Pair(source, edited, about, mask)


def _idle(about: Mapping[str, Any], plan: _Plan, steps: int) -> list[str]:
    """What was asked for and did nothing in a run of so many steps."""
    troubles = []
    inject = plan.rules[0]
    assert isinstance(inject, Inject)
    windows = [plan.ground.cross, *plan.ground.windows.values()]
    if any(low < high for low, high in windows) and not any(
        inject.mix(Site("", step, steps, (1, 1))) for step in range(steps)
    ):
        troubles.append(
            f"the edit {quoted(plan.text)} took no cross-attention from its source: no step of "
            f"{steps} lies in cross={tuple(about['cross'])}; widen it, or use more steps"
        )
    low, high = about["self"]
    if low < high and not about["self_sites"]:
        troubles.append(
            f"the edit {quoted(plan.text)} took no self-attention from its source: no step of "
            f"{steps} lies in self_attention={(low, high)}, or no layer has at most "
            f"{about['self_cells']} cells; widen it, or use more steps"
        )
    return troubles
