"""Words that the model was never told: does it still draw something, and heed the rest?

The drawn world has no giraffe. What a model draws for one is up to the model, but an empty scene is
of no use to anybody, and neither is one that forgets its colour or its setting over the unknown
word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from evaluation import judge
from evaluation.cases import Progress, draw
from evaluation.measures import Figures, share
from heedmap import Run
from heedmap.errors import record_warnings
from heedmap.figures.plots import Panel
from world import layouts

NOUNS = (
    *("giraffe", "unicorn", "robot", "elephant", "lion", "horse", "bird", "monkey", "dragon"),
    *("snake", "frog", "bear", "rabbit", "whale", "king", "queen", "child", "woman", "wizard"),
    *("piano", "guitar", "chair", "table", "bicycle", "train", "castle", "bridge", "mountain"),
    *("apple", "pizza"),
)
PLACES = ("in space", "in the kitchen", "on the moon", "in the city", "in the jungle")
"""Nouns and places outside of the drawn world."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A caption of a thing outside of the world.

    `colour` and `setting` are None where it tells none; `place` is how it says where, or "".
    """

    noun: str
    colour: str | None
    setting: str | None
    place: str
    seed: int

    @property
    def text(self) -> str:
        """The caption: "a blue giraffe at night"."""
        words = [word for word in (self.colour, self.noun) if word]
        article = "an" if words[0][0] in "aeio" else "a"  # "a unicorn"
        return " ".join([article, *words, self.place]).strip()


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a caption became."""

    told: Stranger
    run: Run
    said: judge.Judgement

    @property
    def verdict(self) -> str:
        """A line for people."""
        return ", ".join(f"{t.colour} {t.noun}" for t in self.said.things[:3]) or "NOTHING"


def strangers(n: int, seed: int = 0) -> list[Stranger]:
    """The first n captions: in thirds bare, in a setting of the world, and in a place outside.

    About half of them tell a colour.
    """
    return [_stranger(Random(f"{seed} stranger {index}"), index % 3) for index in range(n)]


def _stranger(rng: Random, third: int) -> Stranger:
    colour = rng.choice(tuple(layouts.COLOURS)) if rng.random() < 0.5 else None
    setting = rng.choice(tuple(layouts.SETTINGS)[1:])
    place = ("", rng.choice(layouts.SETTINGS[setting]), rng.choice(PLACES))[third]
    noun, seed = rng.choice(NOUNS), rng.getrandbits(31)
    return Stranger(noun, colour, setting if third == 1 else None, place, seed)


def measure(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> tuple[Figures, list[Drawn]]:
    """The row "unknown_words" and all that was drawn, see `figures_of`."""
    todo = strangers(n, seed)
    texts, seeds = [each.text for each in todo], [each.seed for each in todo]
    with record_warnings():  # that the model was not taught these words is what is asked about
        pictures = list(draw(pipe, "unknown_words", texts, seeds, eye, progress, **how))
    drawn = [Drawn(told, *each) for told, each in zip(todo, pictures, strict=True)]
    return figures_of(drawn), drawn


def figures_of(drawn: Sequence[Drawn]) -> Figures:
    """The figures.

    Returns:
        n: captions.
        something: share in which there is at least one thing.
        one_thing: share in which there is exactly one.
        colour: where a colour is told, share in which the largest thing has it.
        setting: where a setting of the world is told, share in which it is there.
    """
    largest = [(d.told.colour, d.said.things[0].colour if d.said.things else "") for d in drawn]
    return {
        "n": len(drawn),
        "something": share([bool(d.said.things) for d in drawn]),
        "one_thing": share([len(d.said.things) == 1 for d in drawn]),
        "colour": share([told == seen for told, seen in largest if told]),
        "setting": share([d.told.setting == d.said.setting for d in drawn if d.told.setting]),
    }


def panels(drawn: Sequence[Drawn], most: int = 40) -> list[Panel]:
    """The pictures, with what the judge took them for."""
    return [Panel(d.told.text, d.run.image, d.verdict) for d in drawn[:most]]
