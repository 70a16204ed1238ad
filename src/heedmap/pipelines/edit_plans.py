"""Plan edits of one source before anything is drawn: what each takes from it, and while.

A plan is an edited prompt with its windows, made into rules on probabilities. Whatever does not fit
the prompts is found here, in one sentence, before the first step of a run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch

from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of
from heedmap.errors import ArgumentError, TruncatedWordError, quoted
from heedmap.mathematics.rules import Inject, Renormalize, Rule, Site, steps_within
from heedmap.options import USUAL, EditOptions, EditPurpose
from heedmap.recording.edits import weights_rule
from heedmap.text.alignment import (
    WordAlignment,
    pair_words,
    purpose_of,
    refinement,
    replacement,
    swap_of,
)
from heedmap.text.weights import parse_weights, spelled, token_weights, weighed
from heedmap.text.words import MOVE_IT, TokenTable, Word


@dataclass(frozen=True, eq=False)
class EditBase:
    """What all edits of one source have in common.

    Attributes:
        pipe: the pipeline that reads the prompts.
        written: the source prompt as the user wrote it, with weights.
        table: what the model reads of it.
        weights: of the source's own picture, by position on the K axis.
        options: of the edits; `cross` and `self_attention` are those of each plan.
        arguments: those of the pipeline that may change what it reads of a prompt.
    """

    pipe: Any
    written: str
    table: TokenTable
    weights: Mapping[int, float]
    options: EditOptions = field(default_factory=EditOptions)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def windows(self) -> Mapping[str, tuple[float, float]]:
        """The windows of single words or phrases of the target, as (start, end)."""
        return cast(Any, self.options.words)

    def check(self) -> None:
        """Raise an ArgumentError if the model cannot blend, or a protected word is missing."""
        if self.options.only is None:
            return
        why = family_of(self.pipe).why_unblended()
        if why is not None:
            raise ArgumentError(f"{type(self.pipe).__name__} {why}")
        for word in self.options.protect:
            self.table.find(word)

    def about(self) -> dict[str, Any]:
        """Return the options that hold for all its edits, as `EditTerms` has them."""
        options = self.options
        return {
            "renormalize": options.renormalize,
            "only": options.only,
            "self_cells": options.self_cells,
            "protect": options.protect,
            "blend_from": options.blend_from,
            "threshold": options.threshold,
        }


@dataclass(frozen=True, eq=False)
class Plan:
    """One edited prompt, ready to be drawn.

    Attributes:
        base: what it shares with others.
        written: the edited prompt, with its weights.
        table: what the model reads of it.
        alignment: how its words correspond to the source's.
        weights: by position on the K axis.
        swaps: positions on the K axis of the source, and of the target, where the edit is blended.
        named: words whose weights are tried out, and that count as changed at a weight of 1 too.
        columns: (K source, K), what each token takes from the source.
        starts: (K,), from when on tokens take it; NaN where the cross window says.
        ends: (K,), up to when; NaN where the cross window says, 0 where a token takes nothing.
        cross: while the source's cross-attention is taken.
        own: while its self-attention is.
    """

    base: EditBase
    written: str
    table: TokenTable
    alignment: WordAlignment
    weights: Mapping[int, float]
    swaps: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    named: tuple[str, ...]
    columns: torch.Tensor
    starts: torch.Tensor
    ends: torch.Tensor
    cross: tuple[float, float] = (0.0, 0.0)
    own: tuple[float, float] = (0.0, 0.0)

    @property
    def kind(self) -> str:
        """What it is called in `Pair.about`."""
        return self.alignment.kind if _text_changed(self) else "reweight"

    @property
    def purpose(self) -> EditPurpose | None:
        """What it is for; None where only weights, signs or articles and the like change."""
        return purpose_of(self.alignment)

    @property
    def acts(self) -> bool:
        """Whether a word, a sign or a weight differs from the source's."""
        return _text_changed(self) or bool(self._reweighted())

    @property
    def injection(self) -> Inject:
        """What it takes from the source's cross-attention.

        That is the source's plain attention, without the weights that stand in the source: the
        weights written in a prompt hold for that prompt's picture. "a (red:3) house" -> "a (red:3)
        sea" so takes what acted in the source (three times the plain attention, not nine times),
        and "a (red:3) house" -> "a red house" takes the weight away.
        """
        low, high = (torch.full_like(self.ends, bound) for bound in self.cross)
        starts = torch.where(self.starts.isnan(), low, self.starts)
        return Inject(self.columns, starts, torch.where(self.ends.isnan(), high, self.ends))

    def rules(self) -> tuple[Rule, ...]:
        """What is done to the probabilities of the edited prompt."""
        rules: list[Rule] = [self.injection]
        if self.weights:
            rules.append(weights_rule(self.weights, self.table))
            rules += [Renormalize()] * self.base.options.renormalize
        return tuple(rules)

    def changed(self) -> tuple[list[int], list[int]]:
        """The numbers of the words of the source, and of the target, that the edit is about."""
        before = {a.number for a, _ in self.alignment.swapped}
        before |= {word.number for word in self.alignment.dropped}
        after = {b.number for _, b in self.alignment.swapped}
        after |= {word.number for word in self.alignment.added}
        places = [place for word in self.named for place in self.table.matches(word)]
        tried = {word.number for place in places for word in place}
        pairs = self._reweighted()
        pairs += [(a, b) for a, b in self.alignment.pairs if b is not None and b.number in tried]
        for a, b in pairs:
            before |= {a.number} if a is not None else set()
            after |= {b.number} if b is not None else set()
        tables = (self.base.table, self.table)
        source, edited = ({word.number for word in table.read_words} for table in tables)
        return sorted(before & source), sorted(after & edited)

    def idle(self, steps: int, shared: int, cells: int) -> list[str]:
        """What was asked for and did nothing in a run of so many steps, in sentences.

        Args:
            steps: of the run.
            shared: at how many sites self-attention was taken from the source.
            cells: the largest grid at which it may be.
        """
        troubles, missed = [], "no step of {} lies in {:g} to {:g} of the run".format
        inject = self.injection
        for what, (low, high) in {"cross": self.cross, **self.base.windows}.items():
            if not low < high or len(steps_within(low, high, steps)):
                continue
            if what == "cross" and any(
                inject.mix(Site("", s, steps, (1, 1))) for s in range(steps)
            ):
                continue  # every word has a window of its own
            window = "its window" if what == "cross" else f"the window of {quoted(what)}"
            troubles.append(
                f"the edit {quoted(self.table.prompt)} took no cross-attention from its source in "
                f"{window}: {missed(steps, low, high)}; widen it, or use more steps"
            )
        if self.own[0] < self.own[1] and not shared:
            troubles.append(
                f"the edit {quoted(self.table.prompt)} took no self-attention from its source in "
                f"its window: {missed(steps, *self.own)}, or no layer has at most {cells} cells; "
                "widen it, or use more steps"
            )
        return troubles

    def _reweighted(self) -> list[tuple[Word | None, Word | None]]:
        """The pairs of words whose weights differ."""

        def weight(word: Word | None, weights: Mapping[int, float]) -> float:
            return weights.get(word.tokens[0], 1.0) if word is not None and word.tokens else 1.0

        before, after = self.base.weights, self.weights
        return [(a, b) for a, b in self.alignment.pairs if weight(a, before) != weight(b, after)]


def _text_changed(plan: Plan) -> bool:
    """Whether the model reads another text: other words, or other signs around them."""
    texts = ([token.id for token in table.tokens] for table in (plan.base.table, plan.table))
    alignment = plan.alignment  # words may differ past the limit, and `unread` tells of that
    words = alignment.swapped or alignment.added or alignment.dropped
    return bool(words) or len(set(map(tuple, texts))) > 1


class Planner:
    """Makes the plans of one source; prompts that differ in weights alone are aligned once."""

    def __init__(self, base: EditBase) -> None:
        self.base = base
        self._read: dict[str, Plan] = {}

    def plan(
        self, written: str, weights: Mapping[str, float] | None = None, named: Iterable[str] = ()
    ) -> Plan:
        """Plan the edit of a prompt, with the windows of the options or of its purpose.

        Args:
            written: the prompt, with its weights.
            weights: of more words or phrases of it, which count as changed even where the weight is
                that of the source.
            named: others that do.

        Raises:
            ArgumentError: if a weight is none, or the words do not correspond as `kind` asks.
            UnknownWordError: if a word of a window or of a swap is not in its prompt.
            TruncatedWordError: if the model does not read a word that is changed.
        """
        parsed = parse_weights(written)
        plain = self._read.get(parsed.text)
        if plain is None:
            plain = self._read[parsed.text] = _aligned(self.base, parsed.text)
        tried = weights or {}
        spans = weighed(parsed, plain.table, tried)
        plan = replace(
            plain,
            written=spelled(parsed.text, spans) if tried else written,
            weights=token_weights(spans, plain.table),
            named=(*tried, *named),
        )
        usual, options = USUAL[plan.purpose], self.base.options
        cross, own = options.cross or (0.0, usual[0]), options.self_attention or (0.0, usual[1])
        return replace(plan, cross=cross, own=own)

    def refusal(self, written: str) -> ArgumentError:
        """The error of an edit that would change nothing."""
        return ArgumentError(
            f"the prompt {quoted(self.base.table.prompt)} and its edit {quoted(written)} have the "
            "same words and weights, so the edit would change nothing: change a word, or weight "
            "one as in '(word:1.5)'"
        )


def _aligned(base: EditBase, text: str) -> Plan:
    """The plan of a prompt without weights."""
    source = target = base.table
    if text != source.prompt:
        target = prompt_table(base.pipe, text, base.arguments)
    alignment = pair_words(source, target, base.options.kind)
    if alignment.unread:
        raise TruncatedWordError(
            f"{quoted(alignment.unread[0].text)} is changed, but stands past the {target.room} "
            f"tokens that the model reads: {MOVE_IT}"
        )
    words = () if base.options.only is None else swap_of(base.options.only)
    swaps = tuple((source.phrase(before), target.phrase(after)) for before, after in words)
    columns = torch.zeros(len(source.tokens), len(target.tokens))
    starts = torch.full((len(target.tokens),), float("nan"))
    ends = starts.clone()
    if alignment.kind == "replace":
        for w, n, share in replacement(source, target, alignment):
            columns[w, n] = share
    else:
        for n, w in enumerate(refinement(source, target)):
            if w is None:
                ends[n] = 0.0
            else:
                columns[w, n] = 1.0
    for word, (low, high) in base.windows.items():
        taking = [n for n in target.find(word) if bool(columns[:, n].any())]
        if not taking:
            raise ArgumentError(
                f"{quoted(word)} is new in {quoted(target.prompt)} and takes no attention from "
                "the source, so it has no window: leave it out of words"
            )
        starts[taking], ends[taking] = low, high
    return Plan(base, text, target, alignment, {}, swaps, (), columns, starts, ends)
