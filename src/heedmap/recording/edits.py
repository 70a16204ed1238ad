"""Edits of attention: of words, and by rules.

`generate` takes edits as `edits=[…]`. `Reweight` and `Confine` name a word of the prompt, and make
rules of `mathematics` once the prompt is read. Any callable `rule(P, site) -> P'` is an edit, too.
"""

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from msgspec import structs
from PIL import Image
from torch import Tensor

from heedmap.checks import as_list, check_bool, check_float, check_text
from heedmap.errors import ArgumentError, quoted, warn
from heedmap.io.schemas import (
    MAX_EDITS,
    Confined,
    Mask,
    Reweighted,
    Ruled,
    WordEditNoted,
)
from heedmap.maps import masks
from heedmap.mathematics.rules import (
    OwnRule,
    Region,
    Renormalize,
    Rule,
    Site,
    Weights,
    acts,
    checked_result,
    is_biased,
    rule_name,
    steps_within,
)
from heedmap.options import check_window
from heedmap.text.prompts import describes
from heedmap.text.weights import MOST_WEIGHT
from heedmap.text.words import TokenTable


@dataclass(frozen=True)
class Reweight:
    """The attention of a word or phrase times a weight, as `(word:3)` in a prompt.

        heedmap.generate(pipe, "a red house", edits=[heedmap.Reweight("red", 3)])

    Attributes:
        word: a word or phrase of the prompt, at all its places.
        weight: 1 changes nothing, 0 removes the word's attention, negative weights work against it;
            −2 to 3 is useful. In a joint softmax (SD 3, Flux) the image's attention to itself
            stays as it is, so that the sum of a row changes.
        renormalize: if True, the probabilities are scaled to sum to 1 again, so that the other
            tokens lose as much as the word gains.

    Raises:
        ArgumentError: if the weight is not a number from -1e6 to 1e6.
    """

    word: str
    weight: float
    renormalize: bool = False

    def __post_init__(self) -> None:
        name, most = (
            quoted(check_text("the word to weight", self.word, "red")),
            MOST_WEIGHT,
        )
        vars(self).update(
            weight=check_float(
                f"the weight of {name}", self.weight, least=-most, most=most
            ),
            renormalize=check_bool(f"renormalize of {name}", self.renormalize),
        )

    def rules(self, table: TokenTable, size: tuple[int, int]) -> list[Rule]:
        """Return the rules for a prompt; HeedmapError if the model does not read the word."""
        weights = weights_rule(dict.fromkeys(table.find(self.word), self.weight), table)
        return [weights, Renormalize()] if self.renormalize else [weights]


@dataclass(frozen=True, eq=False)
class Confine:
    """The attention of a word kept inside of a region of the image, which places its object.

        half = (0, 0, 64, 128)
        heedmap.generate(pipe, "a red cat in the snow", edits=[heedmap.Confine("cat", half)])

    The word is hidden from all positions outside of the region, and its attention is raised inside,
    in the first part of the run, which settles where things are (`mathematics.rules.Region`). The
    words that describe it are confined with it. The end of the text and the padding have read the
    word, so they are hidden outside as well; with several words confined, they are seen where the
    regions meet. In a joint softmax (SD 3, Flux) the image gets the share of the hidden words; a
    position from which the whole prompt is hidden reads nothing.

    Several regions of one word, as in `[Confine("cats", left), Confine("cats", right)]`, are
    united: it is seen in each, and raised by the sum of the strengths where they overlap.

    Attributes:
        word: a word or phrase of the prompt, at all its places.
        where: a box (left, top, right, bottom) in pixels of the image, from its top left corner,
            as PIL has it, right and bottom excluded (fractions of the image are to be multiplied
            by its width and height); or a mask of the image's size: a numpy array of bool (H, W),
            True inside, or a PIL image of mode "1" or "L" (128 and above is inside).
        strength: added to the scores inside, in natural logarithms: 1 multiplies the odds by e.
        start: fraction of the run from which it acts, 0 to 1.
        end: fraction up to which it acts, 0 to 1.
        along: the words of the prompt that are confined with it. If None, those that describe it:
            up to two, back to the article, number, preposition, conjunction, "-ing" or sign before
            them (of English; in other languages name them), or to a word that another `Confine` of
            the run names.
        tail: if True, the end and the padding are hidden outside. Where they carry much of the rest
            of the image, False may draw it better, and place the word less surely.

    Raises:
        ArgumentError: if `where` is neither a box nor a mask, or a number is out of range.

    After Paint-with-Words (eDiff-I: Balaji et al., 2022, arXiv 2211.01324, section 4.4).
    """

    word: str
    where: Sequence[float] | np.ndarray | Image.Image
    strength: float = 3.0
    start: float = 0.0
    end: float = 0.6
    along: Sequence[str] | None = None
    tail: bool = True

    def __post_init__(self) -> None:
        name = quoted(check_text("the word to confine", self.word, "cat"))
        along = [] if self.along is None else as_list(self.along)
        if along is None or not all(isinstance(word, str) for word in along):
            raise ArgumentError(
                f"along of {name} is {quoted(self.along)}: expected a list of words, as in ['red']"
            )
        start, end = check_window(f"the window of {name}", (self.start, self.end))
        vars(self).update(
            where=masks.place(self.where, name),
            strength=check_float(
                f"the strength of {name}", self.strength, least=-1e6, most=1e6
            ),
            start=start,
            end=end,
            along=None if self.along is None else tuple(along),
            tail=check_bool(f"tail of {name}", self.tail),
        )

    def rules(self, table: TokenTable, size: tuple[int, int]) -> list[Rule]:
        """Return the rules for a prompt and an image's (width, height), as of the only `Confine`.

        Raises:
            HeedmapError: if the model does not read a word, or the image has no such region.
        """
        return confining_rules([self], table, size)


def confining_rules(
    edits: Sequence[Confine], table: TokenTable, size: tuple[int, int]
) -> list[Rule]:
    """Return the rules of all confined words of a prompt; those of one token are a single rule.

    The image's size is (width, height). The tail is hidden where a word is that hides it.
    """
    places: list[Region] = []
    named: list[set[int]] = []
    for edit in edits:
        inside: Any = edit.where  # as `masks.place` returns it
        region = torch.from_numpy(masks.region(inside, *size, quoted(edit.word)))
        places.append(Region((), region, edit.strength, edit.start, edit.end))
        named.append(
            {n for word in (edit.word, *(edit.along or ())) for n in table.find(word)}
        )
    edits_of: dict[int, tuple[int, ...]] = {}  # the numbers of a token's edits
    for number, edit in enumerate(edits):
        tokens = named[number]
        if edit.along is None:
            tokens = tokens.union(_describing(table, edit.word, set().union(*named)))
        for token in tokens:
            edits_of[token] = (*edits_of.get(token, ()), number)
    rules: list[Rule] = []
    tail = table.positions("end", "pad")
    for numbers in dict.fromkeys(edits_of.values()):
        tokens = tuple(
            sorted(token for token in edits_of if edits_of[token] == numbers)
        )
        first, *others = (places[n] for n in numbers)
        rules.append(replace(first, tokens=tokens, others=tuple(others)))
        if tail and any(edits[n].tail for n in numbers):
            first, *others = (replace(places[n], strength=0.0) for n in numbers)
            rules.append(replace(first, tokens=tail, others=tuple(others)))
    return rules


WordEdit = Reweight | Confine
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
        edited = checked_result(self.rule, self.rule(copy, site), p, site)
        if torch.equal(edited, p):
            return p
        self.changed += 1
        return edited


def checked_edits(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Return the edits of a list; ArgumentError if it is not a list of edits."""
    every = as_list(edits)
    if every is None or len(every) > MAX_EDITS:
        raise ArgumentError(
            f"edits is {quoted(edits)}: expected a list of edits (at most {MAX_EDITS}), "
            "as in [Reweight('red', 3)]"
        )
    for edit in every:
        if isinstance(edit, type) or not (isinstance(edit, WordEdit) or callable(edit)):
            raise ArgumentError(
                f"{quoted(edit)} is not an edit: expected Reweight(word, weight), "
                "Confine(word, where), or a callable rule(p, site)"
            )
        if not isinstance(edit, WordEdit):
            _check_arguments(edit)
    return tuple(every)


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
    edits: Sequence[Edit], table: TokenTable, size: tuple[int, int]
) -> list[list[Rule]]:
    """Return the rules of each edit for a prompt and an image's (width, height).

    Those of every `Confine` follow at the end, since words may have several regions.
    """
    rules: list[list[Rule]] = []
    for edit in edits:
        if isinstance(edit, Reweight):
            rules.append(edit.rules(table, size))
        elif isinstance(edit, Confine):
            rules.append([])
        else:
            # Our own, and rules with a bias, tell where they do nothing.
            tells = isinstance(edit, OwnRule) or is_biased(edit)
            rules.append([edit if tells else CountedRule(edit)])
    confined = [edit for edit in edits if isinstance(edit, Confine)]
    return [*rules, confining_rules(confined, table, size)]


def note_of(edit: Edit) -> WordEditNoted:
    """Return an edit as settings save it; a user's own rule is saved by name."""
    if isinstance(edit, Reweight):
        return Reweighted(**vars(edit))
    if not isinstance(edit, Confine):
        return Ruled(name=rule_name(edit))
    values: dict[str, Any] = {**vars(edit)}
    if isinstance(edit.where, np.ndarray):
        values["where"] = masks.packed(edit.where)
    return Confined(**values)


def edit_from(note: WordEditNoted) -> WordEdit | None:
    """Return the edit that was saved; None for a user's own rule, or a mask that was too large."""
    if isinstance(note, Ruled):
        return None
    values = structs.asdict(note)
    if isinstance(note, Reweighted):
        return Reweight(**values)
    if isinstance(note.where, Mask):
        values["where"] = masks.unpacked(note.where, quoted(note.word))
    return None if values["where"] is None else Confine(**values)


def warn_of_idle(
    edits: Sequence[Edit],
    rules_by_image: Iterable[Sequence[Sequence[Rule]]],
    sites: Sequence[Site],
) -> None:
    """Warn of each edit that changed nothing in an image, by its rules for each image."""
    for edit, *rules in zip(edits, *rules_by_image, strict=False):
        if isinstance(edit, Confine):
            acts = any(
                s.step in steps_within(edit.start, edit.end, s.steps) for s in sites
            )
        else:
            acts = all(any(_acts(rule, sites) for rule in image) for image in rules)
        if acts:
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
