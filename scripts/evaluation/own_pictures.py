"""A noun or a colour swapped in a picture that the model did not draw.

The swaps are those of `swaps`, but what is edited is the scene as it is rendered, by
`heedmap.edit(…, image=)`. Beside each edit stand the same without a blend, what plain generation
shows of the target, and the edit of a picture that the model draws itself. How far the rest of the
picture changes is held against the rendered picture as it comes back from the autoencoder.
"""

from typing import Any

import numpy as np
from PIL import Image

import heedmap
from evaluation import judge
from evaluation.cases import Progress, Swap, SwapKind, as_array, swaps
from evaluation.measures import Figures, mean, share
from evaluation.swaps import Drawn, figures_of
from world import scenes

KINDS: tuple[SwapKind, ...] = ("noun", "colour")
WAYS = ("edit", "without_blend")
"""Blended where the phrase of the changed word acts, and in the whole picture."""


def edited(
    pipe: Any, swap: Swap, kind: SwapKind, eye: judge.Judge, **how: Any
) -> tuple[Drawn, float]:
    """The pictures of a swap, and how near the rendered one came back, in dB (PSNR)."""
    texts, seed = (swap.source.caption.text, swap.target.caption.text), swap.source.seed
    things = [plan.layout.things[swap.thing] for plan in (swap.source, swap.target)]
    only = "->".join(thing.noun if kind == "noun" else thing.colour for thing in things)
    given = Image.fromarray(scenes.render(swap.source.layout).image)

    def pair(**more: Any) -> heedmap.EditResult:
        return heedmap.edit(pipe, *texts, seed=seed, **more, **how)

    blended, whole = pair(image=given, only=only), pair(image=given)
    drawn = pair(only=only)
    pictures = {
        "source": as_array(blended.source),
        "edit": as_array(blended.edited),
        "without_blend": as_array(whole.edited),
        "plain": as_array(heedmap.generate(pipe, texts[1], seed=seed, **how)),
        "drawn": as_array(drawn.edited),
    }
    said = judge.detect(np.stack(list(pictures.values())), eye)
    back = blended.report.reconstruction
    assert back is not None and back.psnr_db is not None
    return Drawn(swap, pictures, dict(zip(pictures, said, strict=True))), back.psnr_db


def measure(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> tuple[Figures, list[Drawn]]:
    """By kind of swap the figures of `swaps.figures_of` for each of `WAYS`, and all pictures.

    Beside them "drawn", the share of the edits of pictures that the model drew which show the
    target, and "psnr_db", how near rendered pictures came back: the mean, and the least.
    """
    figures: Figures = {}
    every: list[Drawn] = []
    for kind in KINDS:
        found: list[tuple[Drawn, float]] = []
        for swap in swaps(kind, n, seed):
            found.append(edited(pipe, swap, kind, eye, **how))
            progress(f"{kind}_own", len(found), n)
        drawn, backs = [one for one, _ in found], [back for _, back in found]
        figures[f"{kind}_swap"] = {
            **{way: figures_of(drawn, way) for way in WAYS},
            "drawn": share([one.right("drawn") for one in drawn]),
            "psnr_db": {"mean": mean(backs), "least": min(backs)},
        }
        every += drawn
    return figures, every


def table(figures: Figures) -> str:
    """The rows of a page's table."""
    rows = [
        "| | nouns: done | changed elsewhere | colours: done | changed elsewhere |",
        "| --- | --- | --- | --- | --- |",
    ]
    kinds = [figures[f"{kind}_swap"] for kind in KINDS]
    for name, way in (("with `only=`", "edit"), ("without `only=`", "without_blend")):
        told = [(one[way]["success"], one[way]["outside_mse_ratio"]) for one in kinds]
        rows.append(
            f"| {name} | " + " | ".join(f"{100 * a:.1f} % | {b:.3f}" for a, b in told) + " |"
        )
    drawn = " | ".join(f"{100 * one['drawn']:.1f} % |" for one in kinds)
    rows.append(f"| for comparison: images that the model generated, with `only=` | {drawn} |")
    return "\n".join(rows)
