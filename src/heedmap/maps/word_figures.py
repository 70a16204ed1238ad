"""Figures of one word: over the steps, and by layer and head.

All images of a figure share one scale, and the figure names it: the word's own, "shared" (by all
words of the prompt) or "raw" (0 to 1). Steps and heads count from 0.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from heedmap.checks import as_list, check_float, check_int, check_subset
from heedmap.errors import ArgumentError, plural, quoted
from heedmap.figures import overlays, plots
from heedmap.figures.overlays import Animation
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.maps.heatmaps import (
    SCALES,
    HeatMap,
    HeatMaps,
    Scale,
    common_range,
    scale_name,
)
from heedmap.maps.recordings import Layer
from heedmap.options import Axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 256
"""Pixels of an image, the geometric mean of its sides."""
FRAMES = 9
"""Steps on a timeline."""
MOST_FRAMES = 60
"""Steps in an animation."""
ANIMATION_SIDE = 384
"""Pixels of the image in an animation, the geometric mean of its sides."""


def timeline(
    maps: HeatMaps,
    word: str | int | Sequence[str | int],
    *,
    frames: int = FRAMES,
    scale: Scale = "word",
    width: float | None = None,
) -> "Figure":
    """Draw the figure of `Run.timeline`, for maps or a selection of them."""
    words = [word] if isinstance(word, str | int) else as_list(word)
    if not words:
        raise ArgumentError(
            f"word is {quoted(word)}: expected a word, or a list of words"
        )
    points = (
        None if width is None else 72 * check_float("width", width, least=2, most=100)
    )
    maps = resized(maps, SIDE)
    rows = [_each_step(maps, one, scale, frames) for one in words]
    heats, ends = rows[0]
    timesteps = maps.recording.timesteps
    note = f"{len(heats)} of {plural(len(timesteps), 'step')}, each by itself"
    note += "" if maps.image is None else ", over the finished image"
    labels = [next(iter(row.values())).label for row, _ in rows]
    about: dict[str, Any] = {
        "title": f"Over the steps: {', '.join(labels)}",
        "note": f"{note} · {mean_of(maps, 'step')} · {maps.tokens.prompt}",
        "width": points,
    }
    if len(rows) == 1:
        captions = [
            (f"step {step}", f"timestep {timesteps[step]:.4g}") for step in heats
        ]
        panels = _panels(maps, list(heats.values()), captions, ends)
        bars = [_scale_bar(maps, scale, "at all steps", ends)]
        return plots.draw_panels(panels, bars=bars, **about)
    bar = _scale_bar(maps, scale, "of a row", ends)
    if scale == "word":
        bar = replace(bar, ends=("least", "most"))
    else:
        ends = min(low for _, (low, _) in rows), max(high for _, (_, high) in rows)
        bar = _scale_bar(maps, scale, "at all steps", ends)
        rows = [(row, ends) for row, _ in rows]
    table: list[tuple[str, list[Image.Image | str]]] = []
    for label, (row, span) in zip(labels, rows, strict=True):
        cells: list[Image.Image | str] = [
            heat.render(*span, short_side=1) for heat in row.values()
        ]
        table.append((label, cells))
    columns = [f"step {step}" for step in heats]
    return plots.draw_table(table, columns, bars=[bar], **about)


def animation(maps: HeatMaps, word: str | int, *, scale: Scale = "word") -> Animation:
    """Draw the animation of `Run.animation`, for maps or a selection of them."""
    maps = resized(maps, ANIMATION_SIDE)
    heats, ends = _each_step(maps, word, scale, MOST_FRAMES)
    last = len(maps.recording.timesteps) - 1
    title = f"Over the steps: {next(iter(heats.values())).label}"
    images = {step: heat.render(*ends, short_side=1) for step, heat in heats.items()}
    panels = [Panel(f"step {last} of 0–{last}", next(iter(images.values())))]
    bars = [_scale_bar(maps, scale, "at all steps", ends)]
    figure = plots.draw_panels(panels, title=title, bars=bars)
    ax = figure.axes[0]
    frames: list[Image.Image] = []
    for step, image in images.items():
        ax.images[0].set_data(np.asarray(image))
        ax.xaxis.label.set_text(f"step {step} of 0–{last}")
        frames.append(plots.render(figure))
    # GIFs count in hundredths.
    each = round(min(max(5000 / len(frames), 80), 400) / 10) * 10
    return Animation(
        title, tuple(frames), (*[each] * (len(frames) - 1), max(1500, each))
    )


def layers_by_heads(
    maps: HeatMaps,
    word: str | int,
    *,
    axes: Collection[Axis] | None = None,
    scale: Scale = "word",
) -> "Figure":
    """Draw the figure of `Run.layers_by_heads`, for maps or a selection of them."""
    if axes is None:
        axes = [axis for axis in ("layer", "head") if axis in maps.recording.keep] or [
            "layer"
        ]
    axes = [*dict.fromkeys(check_subset("axes", axes, ("layer", "head"), least=1))]
    layers = maps.select("*").layers if "layer" in axes else (None,)
    heads = maps.heads if "head" in axes else (None,)
    is_table = len(axes) > 1
    side = min(80, max(12, 1400 // len(layers) - 6))  # points, in a table
    maps = resized(maps, 2 * side if is_table else SIDE)
    image = maps.image
    # Heat alone: at this size an image below it would be no more than noise.
    if is_table:
        maps = replace(maps, image=None)
    rows = [
        [_in_part(maps, word, scale, layer, head) for head in heads] for layer in layers
    ]
    heats = [heat for row in rows for heat in row if heat is not None]
    ends = common_range(heats, scale)
    title = f"By {' and '.join(axes)}: {heats[0].label}"
    note = f"{mean_of(maps, *axes)} · {maps.tokens.prompt}"
    where = f"in all {' and '.join(f'{axis}s' for axis in axes)} shown"
    bars = [_scale_bar(maps, scale, where, ends)]
    if not is_table:
        captions = [
            (layer.short, "{1}×{0} cells".format(*layer.grid))
            for layer in layers
            if layer
        ]
        captions = captions or [(f"head {head}", "") for head in heads]
        note = f"{plural(len(heats), axes[0])} · {note}"
        panels = _panels(maps, heats, captions, ends)
        return plots.draw_panels(panels, title=title, note=note, bars=bars)
    table: list[tuple[str, list[Image.Image | str]]] = []
    if image is not None:
        table.append(("the image", [image, *[""] * (len(heads) - 1)]))
    for layer, row in zip(maps.layers, rows, strict=True):
        cells = [
            "" if heat is None else heat.render(*ends, short_side=1) for heat in row
        ]
        table.append((layer.short, cells))
    columns = [f"head {head}" if side >= 32 else f"{head}" for head in heads]
    size = f"{plural(len(layers), 'layer')} in rows, {plural(len(heads), 'head')} in columns"
    note = f"{size} · {note}"
    return plots.draw_table(
        table, columns, title=title, note=note, bars=bars, side=side
    )


def _panels(
    maps: HeatMaps,
    heats: Sequence[HeatMap],
    captions: Sequence[tuple[str, str]],
    ends: tuple[float, float],
) -> list[Panel]:
    panels = [
        Panel(caption, heat.render(*ends, short_side=1), note)
        for heat, (caption, note) in zip(heats, captions, strict=True)
    ]
    return panels if maps.image is None else [*panels, Panel("the image", maps.image)]


def _in_part(
    maps: HeatMaps, word: str | int, scale: Scale, layer: Layer | None, head: int | None
) -> HeatMap | None:
    """Return a word's map in one layer or head or both; None if the layer has no such head."""
    if layer is not None:
        if head is not None and head >= layer.heads:
            return None
        # Whatever its name may mean as a pattern.
        maps = maps.select(lambda one: one is layer)
    return _map_of(maps if head is None else maps.select(heads=head), word, scale)


def _map_of(maps: HeatMaps, word: str | int, scale: Scale) -> HeatMap:
    """Return a word's map; the range of all words is computed only for their scale."""
    maps = maps if scale == "shared" else maps.without_shared_scale()
    return maps[word] if isinstance(word, str) else maps.at(word)


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
    keep = maps.recording.keep
    total = len(maps.recording.timesteps)
    parts: list[str] = []
    if "layer" not in axes:
        parts.append(
            plural(len(maps.layers), "layer") if "layer" in keep else "all layers"
        )
    if "step" not in axes:
        count = len(maps.steps) if "step" in keep else total
        parts.append(
            plural(total, "step") if count == total else f"{count} of {total} steps"
        )
    if "head" not in axes and maps.recording.share_of != "outputs":
        heads = maps.heads if "head" in keep else ()
        if not heads or len(heads) == max(
            layer.heads for layer in maps.recording.layers
        ):
            parts.append("all heads")
        else:
            parts.append(f"head{'s' * (len(heads) > 1)} {', '.join(map(str, heads))}")
    return f"mean of {', '.join(parts)}"


def _scale_bar(
    maps: HeatMaps, scale: Scale, where: str, ends: tuple[float, float]
) -> ScaleBar:
    names = {
        "word": f"one for the word {where}",
        "shared": f"one for all words {where}",
    }
    name = scale_name(names.get(scale, SCALES["raw"]), maps.recording.share_of)
    return ScaleBar(name, ends, alone=maps.image is None)


def _each_step(
    maps: HeatMaps, word: str | int, scale: Scale, frames: int
) -> tuple[dict[int, HeatMap], tuple[float, float]]:
    """Return a word's map at some steps of a selection, and the scale of all its steps."""
    steps = maps.steps
    count = min(len(steps), check_int("frames", frames, least=1))
    # Evenly: the last and, of two or more, the first too.
    chosen = {steps[int(at)] for at in np.linspace(len(steps) - 1, 0, count).round()}
    heats = {step: _map_of(maps.select(steps=step), word, scale) for step in steps}
    return {step: heats[step] for step in sorted(chosen)}, common_range(
        [*heats.values()], scale
    )
