"""Captions to be drawn: held-out ones, for edits with one thing changed. And pictures of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, islice
from random import Random
from typing import Any, Literal

import numpy as np

import heedmap
from evaluation import judge
from heedmap.backends import loading
from heedmap.pipelines import generation
from heedmap.pipelines.arguments import resolve_options
from heedmap.text.tokenization import tokenize
from world import captions, layouts, scenes

SwapKind = Literal["noun", "colour"]
FIRST = layouts.HELD_OUT_SEED + 100_000_000
"""Layouts of edits begin here; those of `obedience` lie before."""
ROOM = 10_000_000
BATCH = 16
"""Pictures that are drawn at once."""
Progress = Callable[[str, int, int], None]
"""Called with what is drawn, how much of it is done, and how much it is in all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A picture to be made: its layout, its caption and the seed of its noise."""

    layout: layouts.Layout
    caption: captions.Caption
    seed: int

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Colour and noun of each thing, sorted."""
        return sorted((thing.colour, thing.noun) for thing in self.layout.things)


def is_unseen(layout: layouts.Layout) -> bool:
    """Whether a colour and a noun stand together that training never shows together."""
    return any((thing.colour, thing.noun) in layouts.UNSEEN_PAIRS for thing in layout.things)


def as_array(run: heedmap.Run) -> np.ndarray:
    """A run's picture, uint8 (128, 128, 3).

    Raises:
        SystemExit: if it is of another size, which the judge does not know.
    """
    picture = np.asarray(run.image.convert("RGB"))
    if picture.shape[:2] != (scenes.SIZE, scenes.SIZE):
        raise SystemExit(f"the model draws {picture.shape[:2]}: the judge knows 128×128 only")
    return picture


def draw(
    pipe: Any, name: str, texts: Sequence[str], seeds: Sequence[int], eye: judge.Judge,
    progress: Progress, **how: Any,
) -> Iterator[tuple[heedmap.Run, judge.Judgement]]:  # fmt: skip
    """Make a picture of each text, in batches, with what the judge sees in it."""
    options, _ = resolve_options(generation.generate, pipe, None, how)
    for start in range(0, len(texts), BATCH):
        part = slice(start, start + BATCH)
        runs, _ = generation.generate_batch(pipe, texts[part], seeds[part], options)
        pictures = np.stack([as_array(run) for run in runs])
        yield from zip(runs, judge.detect(pictures, eye), strict=True)
        progress(name, start + len(runs), len(texts))


@dataclass(frozen=True, slots=True)
class Swap:
    """One thing's noun or colour swapped for another, in one wording and from one noise.

    Attributes:
        source: what is edited.
        target: what it shall become.
        thing: the number of the thing that changes.
        retokenized: whether the swap changes the number of the caption's tokens.
    """

    source: Plan
    target: Plan
    thing: int
    retokenized: bool

    @property
    def staying(self) -> frozenset[str]:
        """The nouns of the things that stay; never that of the thing that changes."""
        things = enumerate(self.source.layout.things)
        return frozenset(thing.noun for number, thing in things if number != self.thing)


def swaps(kind: SwapKind, n: int, seed: int = 0) -> list[Swap]:
    """The first n swaps of a kind; the noise is of `seed` too.

    Source and target are combinations that training never shows. One swap in three is of a scene of
    two things, of which one stays. One in three changes the number of tokens: the nouns
    "butterfly", "mushroom" and "cactus" have two, the colour "purple" three.
    """
    return list(islice(_swaps(kind, seed), n))


def singles(purpose: str, n: int, seed: int = 0, *, with_setting: bool = False) -> list[Plan]:
    """The first n captions of one thing for a purpose, which has layouts and noise of its own."""
    first = FIRST + ROOM * {"reweight": 2, "setting": 3, "confine": 4}[purpose]
    laid = (layouts.lay_out(k, 1, held_out=True) for k in count(first))
    fit = (
        layout for layout in laid
        if not is_unseen(layout) and not (with_setting and layout.setting == "none")
    )  # fmt: skip
    return [
        Plan(layout, told(layout), Random(f"{seed} {purpose} {index}").getrandbits(31))
        for index, layout in enumerate(islice(fit, n))
    ]


def told(layout: layouts.Layout) -> captions.Caption:
    """The caption of a layout; layouts of one seed get one wording."""
    return captions.object_caption(layout, Random(layout.seed))


def _swaps(kind: SwapKind, seed: int) -> Iterator[Swap]:
    number = 0
    for k in count(FIRST + ROOM * (kind == "colour")):
        things = 2 if number % 3 == 2 else 1
        retokenized = number // 3 % 3 == 2  # in turn with the number of things, so that both cross
        layout = layouts.lay_out(k, things, held_out=True)
        rng = Random(f"{seed} {kind} {k}")
        thing = rng.randrange(things)
        targets = [other for other in _changed(layout, thing, kind) if _is_fit(other)]
        tokens = _tokens(layout)
        targets = [other for other in targets if (_tokens(other) != tokens) is retokenized]
        if not _is_fit(layout) or not targets:
            continue
        noise = Random(f"{seed} {kind} {number}").getrandbits(31)
        source, target = (Plan(each, told(each), noise) for each in (layout, rng.choice(targets)))
        yield Swap(source, target, thing, retokenized)
        number += 1


def _changed(layout: layouts.Layout, thing: int, kind: SwapKind) -> Iterator[layouts.Layout]:
    things = layout.things
    for value in layouts.NOUNS if kind == "noun" else layouts.COLOURS:
        if getattr(things[thing], kind) != value:
            other = replace(things[thing], **{kind: value})
            yield replace(layout, things=(*things[:thing], other, *things[thing + 1 :]))


def _is_fit(layout: layouts.Layout) -> bool:
    """Whether it is held out by its combination alone, and its nouns tell its things apart."""
    nouns = {thing.noun for thing in layout.things}
    return (
        len(nouns) == len(layout.things) and layouts.is_held_out(layout) and not is_unseen(layout)
    )


def _tokens(layout: layouts.Layout) -> int:
    return len(tokenize(told(layout).text, _tokenizer()).positions())


@cache
def _tokenizer() -> Any:
    return loading.tokenizer()
