"""Edits by name: what a person asks for in words and pixels, made into rules on probabilities.

`generate` takes them as `edits=[…]`. `Reweight` and `Confine` name a word of the prompt and are
made into the rules of `mathematics` once the prompt is read; a rule of a user's own, any callable
`rule(P, site) -> P'`, stands beside them as it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from PIL import Image

from heedmap import checks
from heedmap.errors import ArgumentError, quoted, warn
from heedmap.io.settings import Confined, Mask, Reweighted, Ruled, WordEditNoted
from heedmap.io.values import MAX_EDITS, to_json
from heedmap.maps import masks
from heedmap.mathematics.rules import (
    Region,
    Renormalize,
    Rule,
    Site,
    Weights,
    checked_result,
    is_biased,
    is_linear,
)
from heedmap.options import ConfineOptions
from heedmap.text.prompts import describes
from heedmap.text.weights import MOST_WEIGHT
from heedmap.text.words import TokenTable


@dataclass(frozen=True)
class Reweight:
    """Multiply the attention that a word or phrase draws; `(word:3)` in the prompt does the same.

        heedmap.generate(pipe, "a red house", edits=[heedmap.Reweight("red", 3)])

    Attributes:
        word: a word or phrase of the prompt; all its places are meant.
        weight: 1 leaves it as it is, 0 takes it away, negative ones work against it; −2 to 3 is
            useful.
        renormalize: whether the probabilities are made to sum to 1 again, so that what the word
            gains the other tokens lose.

    Raises:
        ArgumentError: if the weight is not a number from -1e6 to 1e6.
    """

    word: str
    weight: float
    renormalize: bool = False

    def __post_init__(self) -> None:
        name = quoted(checks.text("the word to weight", self.word, "red"))
        checks.finite(f"the weight of {name}", self.weight, least=-MOST_WEIGHT, most=MOST_WEIGHT)
        checks.flag(f"renormalize of {name}", self.renormalize)

    def rules(self, table: TokenTable, size: tuple[int, int]) -> list[Rule]:
        """As rules on the probabilities of a prompt; `size` plays no part.

        Raises:
            UnknownWordError: if the word is not in the prompt.
            TruncatedWordError: if the model does not read it.
        """
        weights = weights_rule(dict.fromkeys(table.find(self.word), float(self.weight)), table)
        return [weights, Renormalize()] if self.renormalize else [weights]

    def noted(self) -> Reweighted:
        """What was asked for, as settings note it."""
        weight, renormalize = float(self.weight), bool(self.renormalize)
        return Reweighted(word=self.word, weight=weight, renormalize=renormalize)

    def about(self) -> dict[str, Any]:
        """What was asked for, in plain JSON types."""
        return to_json(self.noted())


Where = Sequence[float] | Sequence[Sequence[bool]] | np.ndarray | torch.Tensor | Image.Image
"""A box or a mask, as `Confine` takes it."""


@dataclass(frozen=True, eq=False)
class Confine:
    """Keep a word's attention inside of a region of the picture, and so place what it names.

        half = (0, 0, 64, 128)
        heedmap.generate(pipe, "a red cat in the snow", edits=[heedmap.Confine("cat", half)])

    Outside of the region no place sees the word, inside its attention is raised, in the first part
    of the run, which settles where things are (`mathematics.rules.Region`). The words that describe
    it are kept with it, else they would draw their thing elsewhere: naming "cat" is enough. The end
    of the text and the padding have read it too, so outside they are not seen either, which leaves
    the other words and the start; with several words confined, they are seen where the regions
    meet.

    Attributes:
        word: a word or phrase of the prompt; all its places are meant.
        where: a box (left, top, right, bottom) in pixels of the picture, from its top left corner,
            as PIL has it, right and bottom excluded; or a mask of the picture's size, True inside:
            what numpy reads as bool (H, W), or a PIL image of mode "1" or "L" (128 and above is
            inside).
        strength: added to the scores inside, in natural logarithms: 1 multiplies the odds by e.
        start: fraction of the run from which it holds.
        end: fraction up to which it holds.
        along: the words of the prompt that are kept with it. If None, those that describe it: up to
            two, back to the article, number, preposition, conjunction, "-ing" or sign before them
            (of English; in other languages name them).
        tail: whether the end and the padding are hidden outside. Where they carry much of the rest
            of the picture, False may draw it better, and place the word less surely.

    Raises:
        ArgumentError: if `where` is neither a box nor a mask, or a number is out of range.
    """

    word: str
    where: Where
    strength: float = ConfineOptions.strength
    start: float = ConfineOptions.start
    end: float = ConfineOptions.end
    along: Sequence[str] | None = ConfineOptions.along
    tail: bool = ConfineOptions.tail
    _place: tuple[float, ...] | np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        name = quoted(checks.text("the word to confine", self.word, "cat"))
        checks.finite(f"the strength of {name}", self.strength, least=-1e6, most=1e6)
        for what, bound in (("start", self.start), ("end", self.end)):
            checks.finite(f"the {what} of {name}", bound)
        checks.flag(f"tail of {name}", self.tail)
        if not 0 <= self.start <= self.end <= 1:
            raise ArgumentError(
                f"{name} is confined from {self.start} to {self.end}: expected fractions of the "
                "run from 0 to 1, the start not above the end"
            )
        along = [] if self.along is None else checks.several(self.along)
        if along is None or not all(isinstance(word, str) for word in along):
            raise ArgumentError(
                f"along of {name} is {quoted(self.along)}: expected a list of words, as in ['red']"
            )
        object.__setattr__(self, "_place", masks.place(self.where, name))

    def rules(self, table: TokenTable, size: tuple[int, int]) -> list[Rule]:
        """As rules on the probabilities of a prompt.

        Args:
            table: what the model reads of the prompt.
            size: (width, height) of the picture in pixels.

        Raises:
            UnknownWordError: if the word, or one that is kept with it, is not in the prompt.
            TruncatedWordError: if the model does not read it.
            ArgumentError: if the box does not lie in the picture, or the mask is not of its size
                or has nothing inside.
        """
        region = torch.from_numpy(masks.region(self._place, *size, quoted(self.word)))
        strength, start, end = map(float, (self.strength, self.start, self.end))
        tokens = set(table.find(self.word))
        if self.along is None:
            tokens.update(_describing(table, self.word))
        for other in self.along or ():
            tokens.update(table.find(other))
        rules: list[Rule] = [Region(tuple(sorted(tokens)), region, strength, start, end)]
        tail = table.positions("end", "pad")
        if self.tail and tail:
            rules.append(Region(tail, region, 0.0, start, end))
        return rules

    def noted(self) -> Confined:
        """What was asked for, as settings note it; a mask is packed (`edit_from` reads it back)."""
        place: Any = self._place
        return Confined(
            word=self.word,
            where=place if isinstance(place, tuple) else masks.packed(place),
            strength=float(self.strength),
            start=float(self.start),
            end=float(self.end),
            along=None if self.along is None else tuple(self.along),
            tail=bool(self.tail),
        )

    def about(self) -> dict[str, Any]:
        """What was asked for, in plain JSON types."""
        return to_json(self.noted())


WordEdit = Reweight | Confine
Edit = WordEdit | Rule
"""What `generate` takes in its list of edits."""


@dataclass(eq=False)
class Watched:
    """A rule of a user's own, and at how many sites it changed something."""

    rule: Rule
    changed: int = 0

    def __call__(self, p: torch.Tensor, site: Site) -> torch.Tensor:
        """P' (H, Q, K)."""
        given = p.clone()  # it may work in place
        edited = checked_result(self.rule, self.rule(given, site), p, site)
        self.changed += not torch.equal(edited, p)
        return edited

    def __repr__(self) -> str:
        return _name(self.rule)


def checked_edits(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits of a list, of which each is one.

    Raises:
        ArgumentError: if it is not a list, or something in it is not an edit.
    """
    found = checks.several(edits)
    if found is None:
        raise ArgumentError(
            f"edits is {quoted(edits)}: expected a list of edits, as in [Reweight('red', 3)]"
        )
    if len(found) > MAX_EDITS:
        raise ArgumentError(f"{len(found)} edits are given: expected at most {MAX_EDITS}")
    for edit in found:
        if isinstance(edit, type) or not (isinstance(edit, WordEdit) or callable(edit)):
            raise ArgumentError(
                f"{quoted(edit)} is not an edit: expected Reweight(word, weight), "
                "Confine(word, where), or a callable rule(p, site)"
            )
    return tuple(found)


def rules_of(edit: Edit, table: TokenTable, size: tuple[int, int]) -> list[Rule]:
    """The rules that an edit makes of a prompt and a picture's (width, height).

    Raises:
        HeedmapError: if it does not fit them; `Reweight.rules` and `Confine.rules` say how.
    """
    if isinstance(edit, WordEdit):
        return edit.rules(table, size)
    knows = is_linear(edit) or is_biased(edit)  # where it does nothing
    return [cast(Rule, edit) if knows else Watched(cast(Rule, edit))]


def note_of(edit: Edit) -> WordEditNoted:
    """What was asked for, as settings note it; a rule of a user's own by its name."""
    return edit.noted() if isinstance(edit, WordEdit) else Ruled(name=_name(edit))


def edit_from(about: WordEditNoted) -> WordEdit | None:
    """The edit that was noted, as a file has it; None where the file does not hold it.

    That is a rule of a user's own, or a mask that was too large for the file.

    Raises:
        ArgumentError: if it is one that `Reweight` or `Confine` refuses.
    """
    if isinstance(about, Ruled):
        return None
    if isinstance(about, Reweighted):
        return Reweight(about.word, about.weight, about.renormalize)
    where = about.where
    if isinstance(where, Mask):
        where = masks.unpacked(where, quoted(about.word))
    if where is None:
        return None
    numbers = about.strength, about.start, about.end
    return Confine(about.word, where, *numbers, along=about.along, tail=about.tail)


def warn_of_idle(
    edits: Sequence[Edit], made: Iterable[Sequence[Sequence[Rule]]], sites: Sequence[Site]
) -> None:
    """Warn of each edit that did nothing in one of the pictures of a call.

    Args:
        edits: what was asked for.
        made: for each picture the rules of each edit.
        sites: those of the run.
    """
    pictures = list(made)
    for number, edit in enumerate(edits):
        if any(_is_idle(rules[number], sites) for rules in pictures):
            warn(
                f"the edit {_called(edit)} changed nothing in a run of {sites[0].steps} steps: "
                "widen its window, give another weight, or use more steps"
            )


def _called(edit: Edit) -> str:
    """An edit, short, as it was written."""
    word = quoted(getattr(edit, "word", ""))
    if isinstance(edit, Reweight):
        return f"Reweight({word}, {edit.weight:g})"
    if isinstance(edit, Confine):
        return f"Confine({word}, …)"
    return quoted(_name(edit))


def _is_idle(rules: Sequence[Rule], sites: Sequence[Site]) -> bool:
    """Whether none of these rules did anything at these sites."""
    for rule in rules:  # `Renormalize` is of neither kind: it does nothing alone
        if isinstance(rule, Watched):
            acted = rule.changed > 0
        elif is_linear(rule):
            acted = any(rule.mix(site) is not None for site in sites)
        else:
            acted = is_biased(rule) and any(rule.bias(site) is not None for site in sites)
        if acted:
            return False
    return True


def weights_rule(weights: Mapping[int, float], table: TokenTable) -> Weights:
    """The rule that multiplies the attention of these positions on the K axis of a prompt."""
    every = torch.ones(len(table.tokens))
    for position, weight in weights.items():
        every[position] = weight
    return Weights(every)


_MOST = 2


def _describing(table: TokenTable, query: str) -> Iterator[int]:
    """Positions on the K axis of the words that stand before a word and describe it."""
    for place in table.matches(query):
        first = place[0]
        for word in reversed(table.words[max(first.number - _MOST, 0) : first.number]):
            if table.prompt[word.end : first.start].strip() or not describes(word.text):
                break
            yield from word.tokens
            first = word


def _name(rule: Rule) -> str:
    return getattr(rule, "__name__", type(rule).__name__)
