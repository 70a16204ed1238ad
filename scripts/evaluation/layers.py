"""Do the layers that `heedmap.rank` ranks first draw the word, in other pictures, too?

The pictures are those of `evaluation.trust`, each with the noun of one of its things. In the first
half, layers are ranked by the mean loss inside of the noun's mask, each left out by itself. In the
second half, the first fifth of them is left out together, then the last fifth, then all.
"""

from collections import defaultdict
from math import ceil
from statistics import mean
from typing import Any

import heedmap
from evaluation import trust
from evaluation.cases import Plan, Progress
from evaluation.measures import Figures
from heedmap.results.edits import pixel_change


def noun_of(plan: Plan) -> str:
    """The noun of one of the things of a picture."""
    return trust.words_of(plan)[0].text


def measure(pipe: Any, n: int, seed: int, progress: Progress, **how: Any) -> Figures:
    """By part of the ranking its layers, and the mean change inside and outside of the mask."""
    plans = trust.plans(n, seed)
    losses: dict[tuple[str, str], list[float]] = defaultdict(list)
    for done, plan in enumerate(plans[: n // 2], 1):
        run = heedmap.generate(pipe, plan.caption.text, seed=plan.seed, **how)
        for one in heedmap.rank(pipe, run, noun_of(plan)).removals:
            losses[one.layer, one.name].append(one.inside)
        progress("ranked", done, n // 2)
    order = sorted(losses, key=lambda layer: -mean(losses[layer]))
    fifth = ceil(len(order) / 5)
    parts = {"first fifth": order[:fifth], "last fifth": order[-fifth:], "all": order}
    changes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for done, plan in enumerate(plans[n // 2 :], 1):
        run = heedmap.generate(pipe, plan.caption.text, seed=plan.seed, **how)
        mask = run.maps[noun_of(plan)].mask()
        for name, layers in parts.items():
            edit = heedmap.Reweight(noun_of(plan), 0, layers=[path for path, _ in layers])
            other = heedmap.generate(pipe, plan.caption.text, seed=plan.seed, edits=[edit], **how)
            change = pixel_change(run.image, other.image)
            changes[name].append((float(change[mask].mean()), float(change[~mask].mean())))
        progress("left out", done, n - n // 2)
    return {
        name: {
            "layers": [short for _, short in parts[name]],
            "inside": round(mean(inside for inside, _ in found), 4),
            "outside": round(mean(outside for _, outside in found), 4),
            "n": len(found),
        }
        for name, found in changes.items()
    }


def table(figures: Figures) -> str:
    """The figures as a table of a page."""
    rows = ["| left out | layers | change inside | outside |", "| --- | --- | --- | --- |"]
    for name, row in figures.items():
        values = f"{100 * row['inside']:.1f} % | {100 * row['outside']:.1f} %"
        rows.append(f"| {name} | {', '.join(row['layers'])} | {values} |")
    return "\n".join(rows)
