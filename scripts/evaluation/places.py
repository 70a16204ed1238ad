"""A thing confined to one half of the picture: does it end up there?"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from PIL import Image

import heedmap
from evaluation import judge
from evaluation.cases import Plan, Progress, as_array, singles
from evaluation.measures import Figures, share
from heedmap.figures.plots import Panel
from world import scenes

MIDDLE, SIDE = scenes.SIZE // 2, scenes.SIZE
HALVES = {
    "left": (0, 0, MIDDLE, SIDE),
    "right": (MIDDLE, 0, SIDE, SIDE),
    "top": (0, 0, SIDE, MIDDLE),
    "bottom": (0, MIDDLE, SIDE, SIDE),
}
"""Boxes (left, top, right, bottom) in pixels."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A caption drawn as it is ("plain") and confined ("confined"), with what the judge saw."""

    plan: Plan
    half: str
    pictures: dict[str, np.ndarray]
    said: dict[str, judge.Judgement]

    def right(self, name: str) -> bool:
        """Whether the thing of the caption is there, alone and in its colour."""
        return self.said[name].kinds == self.plan.kinds

    def inside(self, name: str) -> bool:
        """Whether the centre of the thing (by its noun; the largest) lies in the half."""
        (told,) = self.plan.layout.things
        found = [thing for thing in self.said[name].things if thing.noun == told.noun]
        if not found:
            return False
        x, y = (scenes.SIZE * part for part in found[0].centre)
        left, top, right, bottom = HALVES[self.half]
        return left <= x < right and top <= y < bottom

    @property
    def verdict(self) -> str:
        """A line for people."""
        where = f"in the {self.half}" if self.inside("confined") else f"NOT in the {self.half}"
        return where if self.right("confined") else f"{where}; wrong"


def measure(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> tuple[Figures, list[Placed]]:
    """The figures "confine" and all that was drawn.

    Returns:
        n: captions; each of one thing, and of a half that chance chose.
        inside: share in which the thing's centre lies in that half; where there is no thing, it
            does not.
        right: share in which the thing is there, alone and in its colour.
        plain: both of the same captions and noise without the edit.
    """
    drawn = []
    for plan in singles("confine", n, seed):
        half = Random(f"{plan.seed} half").choice(list(HALVES))
        (thing,) = plan.layout.things
        edit = heedmap.Confine(thing.noun, HALVES[half])
        text, runs = plan.caption.text, {}
        runs["plain"] = heedmap.generate(pipe, text, seed=plan.seed, **how)
        runs["confined"] = heedmap.generate(pipe, text, seed=plan.seed, edits=[edit], **how)
        pictures = {name: as_array(run) for name, run in runs.items()}
        said = judge.detect(np.stack(list(pictures.values())), eye)
        drawn.append(Placed(plan, half, pictures, dict(zip(pictures, said, strict=True))))
        progress("confine", len(drawn), n)
    return figures_of(drawn), drawn


def figures_of(drawn: Sequence[Placed]) -> Figures:
    """The figures, see `measure`."""

    def shares(name: str) -> Figures:
        return {
            "inside": share([case.inside(name) for case in drawn]),
            "right": share([case.right(name) for case in drawn]),
        }

    return {"n": len(drawn), **shares("confined"), "plain": shares("plain")}


def panels(drawn: Sequence[Placed], most: int = 12) -> list[Panel]:
    """Plain and confined picture of some captions: what went wrong first, then the rest."""
    chosen = sorted(drawn, key=lambda case: (case.inside("confined"), case.right("confined")))
    return [
        panel
        for case in chosen[:most]
        for panel in (
            Panel(case.plan.caption.text, Image.fromarray(case.pictures["plain"]), "plain"),
            Panel("confined", Image.fromarray(case.pictures["confined"]), case.verdict),
        )
    ]
