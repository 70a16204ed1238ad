"""Edits of attention: of words, and by rules.

`generate` takes edits as `edits=[…]`. `Reweight` and `Confine` (`io.word_edits`) name a word of the
prompt; rules of `mathematics` are made of them once the prompt is read. Any callable
`rule(P, site) -> P'` is an edit, too.
"""

import inspect
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from heedmap.checks import as_list
from heedmap.errors import ArgumentError, join_words, quoted, warn
from heedmap.io.schemas import MAX_EDITS
from heedmap.io.word_edits import Confine, Reweight, SavedRule, WordEdit
from heedmap.maps.masks import region_coverage
from heedmap.mathematics.rules import (
    OwnRule,
    Region,
    Renormalize,
    Rule,
    Site,
    Sites,
    Weights,
    Within,
    acts,
    checked_result,
    rule_name,
)
from heedmap.text.prompts import describes
from heedmap.text.words import TokenTable


def confining_rules(
    confined: Sequence[tuple[Confine, Region, Sites | None]],
    table: TokenTable,
) -> list[Rule]:
    """Return the rules of all confined words of a prompt.

    Those of one token are a single rule, unless they act at different sites. The tail is hidden
    where a word is that hides it.

    Args:
        confined: the edits, with their regions, still without tokens, and their sites.
        table: the words of the prompt.
    """
    named = [
        {n for word in (edit.word, *(edit.along or ())) for n in table.find(word)}
        for edit, *_ in confined
    ]
    edits_of: dict[int, tuple[int, ...]] = {}  # the numbers of a token's edits
    for number, (edit, *_) in enumerate(confined):
        tokens = named[number]
        if edit.along is None:
            tokens = tokens.union(_describing(table, edit.word, set().union(*named)))
        for token in tokens:
            edits_of[token] = (*edits_of.get(token, ()), number)
    rules: list[Rule] = []
    tail = table.positions("end", "pad")
    shown: list[torch.Tensor] = []  # where each word's edits leave the tail visible
    for numbers in dict.fromkeys(edits_of.values()):
        tokens = tuple(
            sorted(token for token in edits_of if edits_of[token] == numbers)
        )
        for chosen in dict.fromkeys(confined[n][2] for n in numbers):
            group = [confined[n] for n in numbers if confined[n][2] == chosen]
            first, *others = (region for _, region, _ in group)
            of_tokens = [replace(first, tokens=tokens, others=tuple(others))]
            if tail and any(edit.tail for edit, *_ in group):
                first, *others = (replace(one, strength=0.0) for _, one, _ in group)
                of_tokens.append(replace(first, tokens=tail, others=tuple(others)))
                parts = torch.stack([region.region for _, region, _ in group])
                shown.append(parts.amax(dim=0))
            rules.extend(within(of_tokens, chosen))
    if len(shown) > 1 and not torch.stack(shown).amin(dim=0).any():
        _warn_of_hidden_tail([edit for edit, *_ in confined if edit.tail])
    return rules


def _warn_of_hidden_tail(edits: Sequence[Confine]) -> None:
    """Warn if the end of the text is hidden everywhere, where all edits act at the same time."""
    if max(edit.start for edit in edits) < min(edit.end for edit in edits):
        words = join_words([quoted(edit.word) for edit in edits], "and")
        warn(
            f"the regions of {words} do not meet, so that the end of the text and the padding are "
            "hidden everywhere: pass tail=False to all but one of them"
        )


def _region(
    edit: Confine,
    size: tuple[int, int],
) -> Region:
    """Return the region of a confined word in an image's (width, height), without tokens."""
    where: Any = edit.where
    coverage = region_coverage(where, *size, quoted(edit.word))
    region = torch.from_numpy(coverage)
    return Region((), region, edit.strength, edit.start, edit.end)


Select = Callable[[Any], Sites | None]
"""Return the sites of layers, heads and steps; None for all (`Call.select`)."""
Edit = WordEdit | Rule
"""An edit as `generate` takes it."""


@dataclass(eq=False)
class CountedRule:
    """A user's own rule, and the number of sites at which it changed something."""

    rule: Rule
    changed: int = 0

    def __call__(self, p: Tensor, site: Site) -> Tensor:
        """P' (H, Q, K)."""
        copy = p.clone()  # it may work in place
        edited = checked_result(self.rule, self.rule(copy, site), p)
        if torch.equal(edited, p):
            return p
        self.changed += 1
        return edited


def checked_edits(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Return the edits of a list; ArgumentError if it is not a list of edits."""
    expected = "Reweight(word, weight), Confine(word, where) or callables rule(p, site)"
    checked = check_functions("edits", edits, WordEdit, expected)
    for edit in checked:
        if not isinstance(edit, WordEdit):
            _check_arguments(edit)
    return checked


def check_functions(
    name: str,
    values: object,
    kinds: Any,
    expected: str,
) -> tuple[Any, ...]:
    """Return the values of a list of some kinds and of functions of the user's own."""

    def is_known(one: object) -> bool:
        return isinstance(one, kinds) or (callable(one) and not isinstance(one, type))

    items = as_list(values)
    if items is None or len(items) > MAX_EDITS or not all(map(is_known, items)):
        raise ArgumentError(
            f"{name} is {quoted(values)}: expected a list (of at most {MAX_EDITS}) of {expected}"
        )
    return tuple(items)


def _check_arguments(rule: Any) -> None:
    try:
        inspect.signature(rule).bind("p", "site")
    except ValueError:  # a function that is not written in Python
        return
    except TypeError as error:
        raise ArgumentError(
            f"the rule {rule_name(rule)} does not take the probabilities and the site ({error}): "
            "expected a function of these two, as in def rule(p, site)"
        ) from error


def rules_of(
    edits: Sequence[Edit],
    table: TokenTable,
    size: tuple[int, int],
    select: Select,
) -> tuple[list[Rule], list[list[Rule]]]:
    """Return the rules of edits for a prompt and an image's (width, height).

    Those of each edit follow, which tell whether it acts; confined words have rules in common.
    """
    rules: list[Rule] = []
    by_edit: list[list[Rule]] = []
    confined: list[tuple[Confine, Region, Sites | None]] = []
    for edit in edits:
        own: list[Any]
        sites = select(edit.selection) if isinstance(edit, WordEdit) else None
        if isinstance(edit, Confine):
            region = _region(edit, size)
            confined.append((edit, region, sites))
            by_edit.append(within([region], sites))
            continue
        if isinstance(edit, Reweight):
            weights = dict.fromkeys(table.find(edit.word), edit.weight)
            weighting: list[OwnRule] = [weights_rule(weights, table)]
            if edit.renormalize:
                weighting.append(Renormalize())
            own = within(weighting, sites)
        else:
            # Our own tell where they do nothing.
            own = [edit if isinstance(edit, OwnRule) else CountedRule(edit)]
        by_edit.append(own)
        rules.extend(own)
    rules.extend(confining_rules(confined, table))
    return rules, by_edit


def within(
    rules: Iterable[OwnRule],
    sites: Sites | None,
) -> list[Any]:
    """Return rules that act at some sites alone; the rules themselves for None."""
    return [rule if sites is None else Within(rule, sites) for rule in rules]


def saved_edits(edits: Iterable[Any]) -> tuple[Any, ...]:
    """Return edits or guides as settings have them: of a function of the user's, its name."""
    return tuple(
        one if isinstance(one, Struct) else SavedRule(rule_name(one)) for one in edits
    )


def warn_of_idle(
    edits: Sequence[Edit],
    rules_by_image: Iterable[Sequence[Sequence[Rule]]],
    sites: Sequence[Site],
) -> None:
    """Warn of each edit that changed nothing in an image, by its rules for each image."""
    for edit, *of_images in zip(edits, *rules_by_image, strict=True):
        if all(any(_acts(rule, sites) for rule in rules) for rules in of_images):
            continue
        name = quoted(edit.word if isinstance(edit, WordEdit) else rule_name(edit))
        warn(
            f"the edit of {name} changed nothing in a run of {sites[0].steps} steps: widen its "
            "window, give another weight, or use more steps"
        )


def _acts(rule: Rule, sites: Sequence[Site]) -> bool:
    if isinstance(rule, CountedRule):
        return rule.changed > 0
    return any(acts(rule, site) for site in sites)


def weights_rule(weights: Mapping[int, float], table: TokenTable) -> Weights:
    """Return the rule that multiplies the attention of these positions on a prompt's K axis."""
    every = torch.ones(len(table.tokens))
    for position, weight in weights.items():
        every[position] = weight
    return Weights(every)


def _describing(table: TokenTable, query: str, named: Collection[int]) -> Iterator[int]:
    """Yield the positions of the up to two words before a word that describe it.

    Words whose tokens are `named` by an edit, and those before them, do not.
    """
    for place in table.matches(query):
        first = place[0]
        for word in reversed(table.words[max(first.number - 2, 0) : first.number]):
            is_apart = table.prompt[word.end : first.start].strip()
            if (
                is_apart
                or not describes(word.text)
                or not set(word.tokens).isdisjoint(named)
            ):
                break
            yield from word.tokens
            first = word
