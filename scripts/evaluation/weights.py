"""A word weighted from -1 to 4: does what it names grow with its weight?

The caption itself is the source of `heedmap.edit` and the weight 1, the other weights are its
targets. For a colour the measure is how much of the thing's region has that colour, for a setting
how probable the judge finds it.

Weights above 1 are drawn with `renormalize=True`, those below without: a word that only adds to
what a place takes in leads beyond the colours that the model knows ("orange" turns red, "green"
black), and what a word no longer draws, handed to the others, goes to the noun that has taken up
its colour. The row "as_published" renormalises nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image

import heedmap
from evaluation import judge
from evaluation.cases import Plan, Progress, as_array, singles
from evaluation.measures import Figures, cells, colour_share, mean, pixels, rises, share
from heedmap.figures.plots import Panel

WEIGHTS = (-1.0, 0.0, 1.0, 2.0, 4.0)
LEAST = 0.02
"""A change of a measure (0 to 1) that does not count: at the top a share cannot rise, and it
flickers."""
WordKind = Literal["colour", "setting"]


@dataclass(frozen=True, slots=True)
class Weighted:
    """A caption drawn with a word at several weights.

    Attributes:
        plan: the caption, layout and noise.
        word: the word or phrase that was weighted.
        pictures: uint8 (128, 128, 3) by weight.
        values: the measure by weight, 0 to 1; empty if the caption as it is was drawn wrong, since
            then there is no place to measure.
    """

    plan: Plan
    word: str
    pictures: dict[float, np.ndarray]
    values: dict[float, float]

    def rises(self, tolerance: float = 0.0) -> bool:
        """Whether the measure rises from the least weight to the greatest."""
        return rises([self.values[weight] for weight in sorted(self.values)], tolerance)

    @property
    def verdict(self) -> str:
        """A line for people."""
        if not self.values:
            return "not judged: wrong at weight 1"
        shown = " ".join(f"{self.values[weight]:.2f}" for weight in sorted(self.values))
        return f"{'rises' if self.rises(LEAST) else 'DOES NOT RISE'}: {shown}"


def weigh(
    pipe: Any, plan: Plan, kind: WordKind, weights: Sequence[float], *, renormalize: bool = True,
    **how: Any,
) -> Weighted:  # fmt: skip
    """Draw a caption with its colour word, or its setting, at several weights; not yet measured.

    `renormalize`: whether weights above 1 are renormalised.
    """
    word = next(mention for mention in plan.caption.mentions if mention.kind == kind)
    text = plan.caption.text
    inside = text[word.start : word.end]
    below, above = ([w for w in weights if w < 1], [w for w in weights if w > 1])
    halves = ((below, False), (above, True)) if renormalize else ((below + above, False),)
    pictures: dict[float, np.ndarray] = {}
    for those, whole in halves:
        targets = [f"{text[: word.start]}({inside}:{w:g}){text[word.end :]}" for w in those]
        pairs = heedmap.edit(pipe, text, targets, seed=plan.seed, renormalize=whole, **how)
        pictures[1.0] = as_array(pairs[0].source)
        pictures |= {w: as_array(pair.edited) for w, pair in zip(those, pairs, strict=True)}
    return Weighted(plan, inside, dict(sorted(pictures.items())), {})


def measured(case: Weighted, kind: WordKind, eye: judge.Judge) -> Weighted:
    """The case with its values."""
    (said,) = judge.detect(case.pictures[1.0][None], eye)
    layout = case.plan.layout
    if said.kinds != case.plan.kinds or (kind == "setting" and said.setting != layout.setting):
        return case
    if kind == "setting":
        shares = judge.setting_shares(np.stack(list(case.pictures.values())), eye)
        column = judge.SETTINGS.index(layout.setting)
        values = dict(zip(case.pictures, map(float, shares[:, column]), strict=True))
    else:
        # Where the thing is at weight 1: at -1 it may be gone.
        where, (thing,) = pixels(cells(said.things)), layout.things
        values = {w: colour_share(p, where, thing.colour) for w, p in case.pictures.items()}
    return Weighted(case.plan, case.word, case.pictures, values)


def measure(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> tuple[Figures, list[Weighted]]:
    """The figures "reweight" and all that was drawn: of colours, and apart of settings.

    Returns:
        n: captions that were drawn right at weight 1.
        monotone: share in which the measure rises from the least weight to the greatest: a step
            down of at most `tolerance` does not count, and in all it must rise by more than that.
        strictly: share in which it is greater at every weight than at the one below; a share of
            the colour that is full at weight 1 cannot be.
        means: of the measure at each weight.
        as_published: the same of a quarter as many, nothing renormalised.
        setting: the same of an eighth as many settings.
    """
    rows: dict[str, tuple[str, WordKind, bool, float]] = {
        "colour": ("reweight", "colour", True, 1),
        "as_published": ("reweight", "colour", False, 4),
        "setting": ("setting", "setting", True, 8),
    }
    drawn: dict[str, list[Weighted]] = {}
    for name, (purpose, kind, whole, part) in rows.items():
        plans = singles(purpose, math.ceil(n / part), seed, with_setting=kind == "setting")
        cases = drawn[name] = []
        for plan in plans:
            case = weigh(pipe, plan, kind, WEIGHTS, renormalize=whole, **how)
            cases.append(measured(case, kind, eye))
            progress(f"reweight {name}", len(cases), len(plans))
    figures = {name: figures_of(cases) for name, cases in drawn.items()}
    return {**figures.pop("colour"), **figures}, [*drawn["colour"], *drawn["setting"]]


def figures_of(drawn: Sequence[Weighted]) -> Figures:
    """The figures of colours, or of settings."""
    told = [case for case in drawn if case.values]
    return {
        "n": len(told),
        "monotone": share([case.rises(LEAST) for case in told]),
        "strictly": share([case.rises() for case in told]),
        "tolerance": LEAST,
        "means": {f"{w:g}": mean([case.values[w] for case in told]) for w in WEIGHTS},
    }


def reweighting(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> Figures:
    """The row of `obey`: a colour word at 0 and at 3 beside the caption as it is.

    Returns:
        n: captions that were drawn right as they are.
        right: share of those in which there is more of the colour at 3 than at 0, by more than
            `margin`, and neither 0 shows more than 1 nor 3 less than 1 by more than that.
    """
    marks = []
    for done, plan in enumerate(singles("reweight", n, seed), 1):
        case = measured(weigh(pipe, plan, "colour", (0.0, 1.0, 3.0), **how), "colour", eye)
        marks += [case.rises(LEAST)] if case.values else []
        progress("reweighting", done, n)
    return {"n": len(marks), "right": share(marks), "margin": LEAST}


def panels(drawn: Sequence[Weighted], most: int = 10) -> list[Panel]:
    """The pictures of some captions, a row each: those that do not rise first, then the rest."""
    told = [case for case in drawn if case.values]
    chosen = sorted(told, key=lambda case: case.rises(LEAST))[:most]
    return [
        Panel(
            case.plan.caption.text if weight == WEIGHTS[0] else f"({case.word}:{weight:g})",
            Image.fromarray(case.pictures[weight]),
            case.verdict if weight == WEIGHTS[0] else f"{case.values[weight]:.2f}",
        )
        for case in chosen
        for weight in WEIGHTS
    ]
