"""An edit kept to the places where its words act: does the mask fit the thing?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

import heedmap
from evaluation import judge
from evaluation.cases import Progress, Swap, as_array, swaps
from evaluation.measures import Figures, cells, mean, overlap, pixels, share
from heedmap.figures.plots import Panel


@dataclass(frozen=True, slots=True)
class Blended:
    """A swap of nouns drawn with `only="cat->dog"`.

    Attributes:
        swap: what was swapped.
        source: its picture, uint8 (128, 128, 3).
        edited: the same of the edit.
        mask: bool (128, 128), where the edit was let in.
        thing: bool (128, 128), where the judge sees the thing that changes, before or after.
        right: whether the edit shows just what the target's caption says.
    """

    swap: Swap
    source: np.ndarray
    edited: np.ndarray
    mask: np.ndarray
    thing: np.ndarray
    right: bool

    @property
    def verdict(self) -> str:
        """A line for people."""
        fit = f"overlap {overlap(self.mask, self.thing):.2f}, let in {self.mask.mean():.2f}"
        return f"{'right' if self.right else 'WRONG'}; {fit}"


def measure(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> tuple[Figures, list[Blended]]:
    """The figures "blend" and all that was drawn.

    Returns:
        n: swaps of nouns.
        success: share of the pictures that show the target.
        overlap: mean intersection by union of the mask and the thing before and after.
        let_in: mean share of the picture that the mask lets in.
        covered: mean share of the thing that the mask lets in.
        thing: mean share of the picture that the thing has.
    """
    drawn = []
    for swap in swaps("noun", n, seed):
        plans = swap.source, swap.target
        texts = [plan.caption.text for plan in plans]
        only = "->".join(plan.layout.things[swap.thing].noun for plan in plans)
        pair = heedmap.edit(pipe, *texts, seed=swap.source.seed, only=only, **how)
        assert pair.blend is not None
        source, edited = as_array(pair.source), as_array(pair.edited)
        said = judge.detect(np.stack([source, edited]), eye)
        things = [thing for each in said for thing in each.things]
        thing = pixels(cells(thing for thing in things if thing.noun not in swap.staying))
        right = said[1].kinds == swap.target.kinds
        drawn.append(Blended(swap, source, edited, pair.blend, thing, right))
        progress("blend", len(drawn), n)
    return figures_of(drawn), drawn


def figures_of(drawn: Sequence[Blended]) -> Figures:
    """The figures, see `measure`; where the judge sees no thing, there is no place to compare."""
    told = [case for case in drawn if case.thing.any()]
    return {
        "n": len(drawn),
        "success": share([case.right for case in drawn]),
        "overlap": mean([overlap(case.mask, case.thing) for case in told]),
        "let_in": mean([float(case.mask.mean()) for case in told]),
        "covered": mean([float(case.mask[case.thing].mean()) for case in told]),
        "thing": mean([float(case.thing.mean()) for case in told]),
    }


def panels(drawn: Sequence[Blended], most: int = 16) -> list[Panel]:
    """Source, edit and mask of some swaps: those whose mask fits worst first."""
    chosen = sorted(drawn, key=lambda case: (case.right, overlap(case.mask, case.thing)))[:most]
    return [
        panel
        for case in chosen
        for panel in (
            Panel(case.swap.source.caption.text, Image.fromarray(case.source), "source"),
            Panel(case.swap.target.caption.text, Image.fromarray(case.edited), case.verdict),
            Panel("let in", Image.fromarray(case.mask).convert("RGB")),
        )
    ]
