"""Figures of one word: over the steps, and by layer and head.

All images of a figure share one scale, and the figure names it: the word's own, "shared" (by all
words of the prompt) or "raw" (0 to 1). Steps and heads count from 0.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from heedmap.checks import as_list, check_int, check_subset
from heedmap.errors import ArgumentError, plural, quoted
from heedmap.figures import overlays, plots
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.maps.heatmaps import (
    SCALES,
    HeatMap,
    HeatMaps,
    Scale,
    colour_ranges,
    scale_name,
)
from heedmap.options import Axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 256
"""Pixels of an image, the geometric mean of its sides."""
FRAMES = 9
"""Steps on a timeline."""


def timeline(
    maps: HeatMaps,
    word: str | int | Sequence[str | int],
    *,
    frames: int = FRAMES,
    scale: Scale = "word",
) -> "Figure":
    """Draw the figure of `Run.timeline`, for maps or a selection of them."""
    words = [word] if isinstance(word, str | int) else as_list(word)
    if not words:
        raise ArgumentError(
            f"word is {quoted(word)}: expected a word, or a list of words"
        )
    maps = resized(maps, SIDE)
    steps = maps.steps
    parts = [maps.select(steps=step) for step in steps]
    rows = [[part[one] for part in parts] for one in words]
    is_shared = scale != "word" or len(rows) == 1
    ranges, ends = colour_ranges(rows, scale, shared=is_shared)
    where = "at all steps" if is_shared else "of a row"
    chosen = _spread(len(steps), frames)
    timesteps = maps.recording.timesteps
    note = f"{len(chosen)} of {plural(len(timesteps), 'step')}, each by itself"
    labels = [row[0].label for row in rows]
    about: dict[str, Any] = {
        "title": f"Over the steps: {', '.join(labels)}",
        "note": f"{note} · {mean_of(maps, 'step')} · {maps.tokens.prompt}",
        "bars": [_scale_bar(maps, scale, where, ends)],
    }
    columns = [f"step {steps[number]}" for number in chosen]
    images = [
        _images([row[number] for number in chosen], span)
        for row, span in zip(rows, ranges, strict=True)
    ]
    if len(rows) > 1:
        return plots.draw_table([*zip(labels, images, strict=True)], columns, **about)
    notes = [f"timestep {timesteps[steps[number]]:.4g}" for number in chosen]
    return plots.draw_panels(_panels(maps, columns, images[0], notes), **about)


def layers_by_heads(
    maps: HeatMaps,
    word: str | int,
    *,
    axes: Collection[Axis] | None = None,
    scale: Scale = "word",
) -> "Figure":
    """Draw the figure of `Run.layers_by_heads`, for maps or a selection of them."""
    if axes is None:
        axes = maps.recording.keep - {"step"} or {"layer"}
    checked = check_subset("axes", axes, ("layer", "head"), least=1)
    names: list[Axis] = [axis for axis in ("layer", "head") if axis in checked]
    is_table = len(names) > 1
    side = min(80, max(12, 1400 // len(maps.layers) - 6))  # points, in a table
    maps = resized(maps, 2 * side if is_table else SIDE)
    image = maps.image
    if is_table:
        # Heat alone: at this size an image below it would be no more than noise.
        maps = replace(maps, image=None)
    parts = [maps]
    layers = [layer.short for layer in maps.layers]
    if "layer" in names:
        parts = [maps.select(layer.name) for layer in maps.layers]
    rows = [[part[word]] for part in parts]
    heads: list[str] = []
    if "head" in names:
        heads = [f"head {head}" for head in maps.heads]
        rows = [
            [part.select(heads=head)[word] for head in part.heads] for part in parts
        ]
    (span,), ends = colour_ranges([[*chain(*rows)]], scale, shared=True)
    where = f"in all {' and '.join(f'{name}s' for name in names)} shown"
    about: dict[str, Any] = {
        "title": f"By {' and '.join(names)}: {rows[0][0].label}",
        "note": f"{mean_of(maps, *names)} · {maps.tokens.prompt}",
        "bars": [_scale_bar(maps, scale, where, ends)],
    }
    images = [_images(row, span) for row in rows]
    if not is_table:
        notes = [""] * len(heads)
        if "layer" in names:
            notes = ["{1}×{0} cells".format(*layer.grid) for layer in maps.layers]
        panels = _panels(maps, heads or layers, [*chain(*images)], notes)
        return plots.draw_panels(panels, **about)
    if side < 32:
        heads = list(map(str, maps.heads))
    table = [*zip(layers, images, strict=True)]
    if image is not None:
        table.insert(0, ("the image", [image]))
    return plots.draw_table(table, heads, side=side, **about)


def _panels(
    maps: HeatMaps,
    captions: Sequence[str],
    images: Sequence[Image.Image],
    notes: Sequence[str],
) -> list[Panel]:
    panels = list(map(Panel, captions, images, notes))
    if maps.image is not None:
        panels.append(Panel("the image", maps.image))
    return panels


def _images(heats: Iterable[HeatMap], ends: tuple[float, float]) -> list[Image.Image]:
    return [heat.render(*ends, short_side=1) for heat in heats]


def _spread(count: int, frames: int) -> list[int]:
    """Return some of `count` numbers, evenly: the last and, of two or more, the first too."""
    most = min(count, check_int("frames", frames, least=1))
    return np.linspace(count - 1, 0, most).round().astype(int).tolist()[::-1]


def resized(maps: HeatMaps, side: int) -> HeatMaps:
    """Return maps over their image at another size: the geometric mean of its sides is `side`."""
    width, height = maps.recording.size
    root = (width / height) ** 0.5
    size = max(1, round(side * root)), max(1, round(side / root))
    image = maps.image
    if image is not None:
        image = overlays.to_rgb(image).resize(size, Image.Resampling.LANCZOS)
    return replace(maps, image=image, recording=replace(maps.recording, size=size))


def mean_of(maps: HeatMaps, *axes: Axis) -> str:
    """Write the axes that each map of a figure is averaged over: all but `axes`."""
    recording = maps.recording
    texts = {
        "layer": "all layers",
        "step": plural(len(recording.timesteps), "step"),
        "head": "all heads",
    }
    if "layer" in recording.keep:
        texts["layer"] = plural(len(recording.layers), "layer")
    part = maps.part
    for axis, numbers in (
        ("layer", part.layers),
        ("step", part.steps),
        ("head", part.heads),
    ):
        if numbers is not None:
            texts[axis] = f"{len(numbers)} of {texts[axis]}"
    if recording.share_of == "outputs":
        del texts["head"]
    parts = [text for axis, text in texts.items() if axis not in axes]
    return f"mean of {', '.join(parts)}"


def _scale_bar(
    maps: HeatMaps,
    scale: Scale,
    where: str,
    ends: tuple[float, float] | tuple[str, str],
) -> ScaleBar:
    names = {
        "word": f"one for the word {where}",
        "shared": f"one for all words {where}",
        "raw": SCALES["raw"],
    }
    name = scale_name(names[scale], maps.recording.share_of)
    return ScaleBar(name, ends, alone=maps.image is None)
