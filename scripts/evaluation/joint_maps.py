"""Maps of joint attention beside the exact masks of rendered scenes.

The model is shown pictures of held-out scenes and their captions, as in `truth`, whose scores and
groups these are. Each picture is shown twice, from the same noise: once for shares of all
attention, and once for shares of the attention to the text. The concepts are the phrases of the
caption's things, and the background.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from random import Random
from typing import Any

from PIL import Image

import heedmap
from evaluation import truth
from evaluation.cases import Progress
from evaluation.measures import Figures
from evaluation.truth import METHODS, Asked, Map, Score, half_way
from heedmap.maps.heatmaps import HeatMaps
from world import captions, scenes

BACKGROUND = "plain background"
OF_EACH_SCALE = ("mean", "phrase", "refined", "refined phrase", "contested", "mask")
"""Methods of `truth` that are measured of both scales."""
MARKS = {"all": "", "text": ", of the text"}
THIRDS = ("early", "middle", "late")
NAMES = {
    "mean": 'a plain map, `found.maps["house"]`',
    "phrase": 'the plain map of its phrase ("red house")',
    "refined": "refined",
    "refined phrase": "refined, of its phrase",
    "contested": "refined, of its phrase, lowered where another phrase is stronger",
    "mask": '**lowered and aligned: the mask, `found.maps["house"].mask()`**',
    "concept": "the phrase as a concept beside the caption",
    "outputs": "similarity of attention outputs (Helbling et al., arXiv 2502.04320)",
    "truth at 8×8": "the exact mask on 8×8 cells, this model's grid",
    "truth at 16×16": "the exact mask on 16×16 cells, the UNet's grid",
}
"""The names of methods in the table; others have those of the figures."""


def concepts_of(asked: list[Asked], maps: HeatMaps) -> dict[tuple[int, ...], str]:
    """Return the text of each phrase that is asked for, by the numbers of its words."""
    return {one.phrase: " ".join(maps.words[number].text for number in one.phrase) for one in asked}


def made(runs: Mapping[str, heedmap.Run], asked: Asked, concept: str) -> Iterator[tuple[str, Map]]:
    """Make the map of every row, from the runs of both scales."""
    for share_of, mark in MARKS.items():
        for name in OF_EACH_SCALE:
            yield f"{name}{mark}", METHODS[name](runs[share_of].maps, asked)
    every, concepts = runs["all"].maps, runs["all"].concepts
    for number, layer in enumerate(every.layers):
        yield f"block {number}", METHODS["mean"](every.select(layers=layer.name), asked)
    for group in THIRDS:
        yield f"mean, {group} blocks", METHODS["mean"](every.select(layers=group), asked)
    assert concepts is not None
    yield "concept", half_way(concepts[concept].values)
    yield "outputs", half_way(concepts.outputs[concept].values)
    for group in THIRDS:
        third = concepts.outputs.select(layers=group)
        yield f"outputs, {group} blocks", half_way(third[concept].values)
    for side in (8, 16):
        yield f"truth at {side}×{side}", truth.ceiling(every, asked, side)


def scores_of(
    pipe: Any, n: int, seed: int, progress: Progress, steps: int, first: int = truth.FIRST
) -> Iterator[tuple[str, Score]]:
    """Score all methods over the first n scenes, or over n others from `first`."""
    for number, (name, layout) in enumerate(islice(truth.held_out(first), n)):
        scene = scenes.render(layout)
        caption = captions.object_caption(layout, Random(layout.seed))
        how: dict[str, Any] = {"seed": seed + number, "steps": steps, "keep": {"layer"}}
        image = Image.fromarray(scene.image)
        runs = {"text": heedmap.locate(pipe, image, caption.text, share_of="text", **how)}
        asked = truth.asked_of(name, scene.masks, caption, runs["text"].maps)
        phrases = concepts_of(asked, runs["text"].maps)
        how["concepts"] = [*dict.fromkeys([*phrases.values(), BACKGROUND])]
        runs["all"] = heedmap.locate(pipe, image, caption.text, **how)
        for one in asked:
            for method, found in made(runs, one, phrases[one.phrase]):
                yield method, truth.score(found, one, number)
        progress("scenes", number + 1, n)


def measure(pipe: Any, n: int, seed: int, progress: Progress, steps: int = truth.STEPS) -> Figures:
    """Compare all methods over the first n scenes, as `truth.compared` does."""
    return truth.compared(scores_of(pipe, n, seed, progress, steps), seed)


def table(figures: Figures) -> str:
    """Return the figures as a table of a page."""
    lines = [
        "| | precision | as shipped | at best | maximum inside |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, found in figures["methods"].items():
        first, _, rest = name.partition(", ")
        label = ", ".join(filter(None, (NAMES.get(first, first), rest)))
        cells = [_with_interval(found, of) for of in ("ap", "iou_shipped")]
        cells += [f"{100 * found[of]:.1f}" for of in ("iou_best", "point")]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _with_interval(found: Figures, of: str) -> str:
    low, high = found["interval"][of]
    return f"{100 * found[of]:.1f} ({100 * low:.1f} to {100 * high:.1f})"
