"""Where the attention goes: the shares of words, special tokens, padding and image.

Pictures of held-out captions of two things are drawn, and `Run.budget` of all of them averaged, by
layer. A sink is the key with the largest share in a layer of one picture.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import heedmap
from evaluation import obedience
from evaluation.cases import Progress
from evaluation.measures import Figures, mean

ALL = "all layers"


def measure(pipe: Any, n: int, seed: int, progress: Progress, **how: Any) -> Figures:
    """By layer, and of all layers, the mean shares and entropy, and the sinks."""
    budgets: list[heedmap.Budget] = []
    for plan in obedience.plans("two_objects", n, seed):
        run = heedmap.generate(pipe, plan.caption.text, seed=plan.seed, budget=True, **how)
        budgets.append(run.budget)
        progress("budget", len(budgets), n)
    figures = {}
    orders: list[Any] = [[], ["layer"]]
    for by in orders:
        rows = [(row.pop("layer", ALL), row) for one in budgets for row in one.rows(by)]
        sinks = [(sink.get("layer", ALL), sink) for one in budgets for sink in largest(one, by)]
        for name in dict.fromkeys(layer for layer, _ in rows):
            of_layer = [row for layer, row in rows if layer == name]
            found = [sink for layer, sink in sinks if layer == name]
            figures[name] = {
                **{group: mean([row[group] for row in of_layer]) for group in of_layer[0]},
                "sinks": dict(Counter(map(kind_of, found)).most_common(2)),
                "times": statistics.median(sink["times"] for sink in found),
            }
    return figures


def largest(budget: heedmap.Budget, by: Sequence[Any]) -> list[dict[str, Any]]:
    """The key with the largest share in each layer."""
    sinks = budget.sink_rows(0, by)  # the largest first
    return list({sink.get("layer"): sink for sink in reversed(sinks)}.values())


def kind_of(sink: dict[str, Any]) -> str:
    """What a key is; of padding also the position of the token."""
    if sink["group"] == "padding":
        return f"padding {sink['key']}"
    return {"words": "a word", "image": "the image"}.get(sink["group"], "a special token")


def table(figures: Figures) -> str:
    """The figures as a table of a page."""
    groups = [name for name in figures[ALL] if name not in ("entropy", "sinks", "times")]
    lines = [f"| layer | {' | '.join(groups)} | entropy | largest share of a key |"]
    lines.append("| --- " * (len(groups) + 3) + "|")
    for name, row in figures.items():
        cells = [f"{100 * row[group]:.1f} %" for group in groups]
        sinks = ", ".join(f"{kind} ({count})" for kind, count in row["sinks"].items())
        cells += [f"{row['entropy']:.2f}", f"{row['times']:.1f} times the mean: {sinks}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
