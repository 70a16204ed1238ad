"""Figures of one word: over the steps, and by layer and head.

All images of a figure share one scale, and the figure names it: the word's own, "shared" (by all
words of the prompt) or "raw" (0 to 1). Steps and heads count from 0.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from heedmap import checks
from heedmap.errors import SelectionError, plural
from heedmap.figures import overlays, plots
from heedmap.figures.animations import Animation
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.maps.heatmaps import SCALES, HeatMap, HeatMaps, Scale, common_range
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
MOST_STEPS = 1000
"""Steps of which a timeline or an animation can be made."""
MOST_CELLS = 1500
"""Maps in a table of layers and heads; SDXL's has 1400."""
MOST_PANELS = 128
"""Maps in a figure of layers, or of heads."""
_MOST_WORK = 60_000  # maps, of all words, that are made for one scale of all words


def timeline(
    maps: HeatMaps, word: str | int, *, frames: int = FRAMES, scale: Scale = "word"
) -> "Figure":
    """Draw a word's overlay at several single steps, and the finished image.

    Args:
        maps: of one image, with "step" kept; a selection of it, as a rule of layers or heads.
        word: a word or phrase of the prompt, or a word's number.
        frames: the number of steps, evenly chosen from the first to the last of the selection; all,
            where there are fewer.
        scale: "word", "shared" or "raw", over all steps, those between the frames too.

    Raises:
        SelectionError: if the steps were averaged while recording, or are more than 1000.
        WordError: if the model did not read such a word.
    """
    maps = resized(maps, SIDE)
    heats, low, high = _each_step(maps, word, scale, frames)
    timesteps = maps.recording.timesteps
    panels = [
        Panel(
            f"step {step}", heat.render(low, high, short_side=1), f"timestep {timesteps[step]:.4g}"
        )
        for step, heat in heats
    ]
    if maps.image is not None:
        panels.append(Panel("the picture", maps.image))
    heat, over = heats[0][1], "" if maps.image is None else ", over the finished picture"
    said = f"{len(heats)} of {plural(len(timesteps), 'step')}, each by itself{over}"
    return plots.draw_panels(
        panels,
        title=f"Over the steps: {heat.label}",
        note=f"{said} · {mean_of(maps, 'step')} · {maps.tokens.prompt}",
        bars=[_scale_bar(scale, heat, "at all steps", low, high)],
    )


def animation(maps: HeatMaps, word: str | int, *, scale: Scale = "word") -> Animation:
    """Draw a word's overlay step by step, of at most 60 steps, evenly chosen.

    The arguments and errors are those of `timeline`.
    """
    maps = resized(maps, ANIMATION_SIDE)
    heats, low, high = _each_step(maps, word, scale, MOST_FRAMES)
    last = len(maps.recording.timesteps) - 1
    label = f"Over the steps: {heats[0][1].label}"
    drawn = [(step, heat.render(low, high, short_side=1)) for step, heat in heats]
    bar = _scale_bar(scale, heats[0][1], "at all steps", low, high)
    panels = [Panel(f"step {last} of 0–{last}", drawn[0][1])]
    figure = plots.draw_panels(panels, title=label, bars=[bar])
    ax = figure.axes[0]
    frames: list[Image.Image] = []
    for step, image in drawn:
        ax.images[0].set_data(np.asarray(image))
        ax.xaxis.label.set_text(f"step {step} of 0–{last}")
        frames.append(plots.render(figure))
    each = round(min(max(5000 / len(frames), 80), 400) / 10) * 10  # GIFs count in hundredths
    return Animation(label, tuple(frames), (*[each] * (len(frames) - 1), max(1500, each)))


def layers_by_heads(
    maps: HeatMaps, word: str | int, *, axes: Collection[Axis] | None = None, scale: Scale = "word"
) -> "Figure":
    """Draw a word's map in every layer (rows) and head (columns), nothing averaged over them.

    A layer with fewer heads than others leaves places blank. Of one axis alone it is a figure of
    overlays, averaged over the other.

    Args:
        maps: of one image; a selection of it, where not all layers, heads or steps are wanted.
        word: a word or phrase of the prompt, or a word's number.
        axes: "layer", "head" or both; if None, those of the two that were kept.
        scale: "word", "shared" or "raw", over all that is shown.

    Raises:
        SelectionError: if an axis was averaged while recording, or both were, or there are more
            maps than a figure holds.
        WordError: if the model did not read such a word.
    """
    kept = [axis for axis in ("layer", "head") if axis in maps.recording.keep]
    given = (kept or ["layer"]) if axes is None else axes
    wanted: list[Axis] = [*dict.fromkeys(checks.any_of("axes", given, ("layer", "head"), least=1))]
    layers = maps.select("*").layers if "layer" in wanted else (None,)
    heads = maps.heads if "head" in wanted else (None,)
    both, names = len(wanted) > 1, " and ".join(f"{axis}s" for axis in wanted)
    count, most = len(layers) * len(heads), MOST_CELLS if len(wanted) > 1 else MOST_PANELS
    check_many(maps, count, most, names, scale)
    side = min(80, max(12, 1400 // len(layers) - 6))  # points, in a table
    maps = resized(maps, 2 * side if both else SIDE)
    image = maps.image
    if both:  # heat alone: at this size an image below it would be no more than noise
        maps = replace(maps, image=None)
    found = [[_in_part(maps, word, scale, layer, head) for head in heads] for layer in layers]
    heats = [heat for row in found for heat in row if heat is not None]
    low, high = common_range(heats, scale)
    title = f"By {' and '.join(wanted)}: {heats[0].label}"
    about = f"{mean_of(maps, *wanted)} · {maps.tokens.prompt}"
    bars = [_scale_bar(scale, heats[0], f"in all {names} shown", low, high)]
    if not both:
        panels = [] if image is None else [Panel("the picture", image)]
        captions = [(layer.short, "{1}×{0} cells".format(*layer.grid)) for layer in layers if layer]
        captions = captions or [(f"head {head}", "") for head in heads]
        for heat, (caption, said) in zip(heats, captions, strict=True):
            panels.append(Panel(caption, heat.render(low, high, short_side=1), said))
        note = f"{plural(count, wanted[0])} · {about}"
        return plots.draw_panels(panels, title=title, note=note, bars=bars)
    rows: list[tuple[str, list[Image.Image | str]]] = []
    if image is not None:
        rows.append(("the picture", [image, *[""] * (len(heads) - 1)]))
    for layer, row in zip(maps.layers, found, strict=True):
        cells = ["" if one is None else one.render(low, high, short_side=1) for one in row]
        rows.append((layer.short, cells))
    columns = [f"head {head}" if side >= 32 else f"{head}" for head in heads]
    said = f"{plural(len(layers), 'layer')} in rows, {plural(len(heads), 'head')} in columns"
    note = f"{said} · {about}"
    return plots.draw_table(rows, columns, title=title, note=note, bars=bars, side=side)


def _in_part(
    maps: HeatMaps, word: str | int, scale: Scale, layer: Layer | None, head: int | None
) -> HeatMap | None:
    """Return a word's map in one layer, if given, and head, if given; None if it has no such."""
    if layer is not None:
        if head is not None and head >= layer.heads:
            return None
        maps = maps.select(lambda one: one is layer)  # whatever its name may mean as a pattern
    return _map_of(maps if head is None else maps.select(heads=head), word, scale)


def _map_of(maps: HeatMaps, word: str | int, scale: Scale) -> HeatMap:
    """Return a word's map; only for a scale of all words are all of them made."""
    maps = maps if scale == "shared" else maps.without_shared_scale()
    return maps[word] if isinstance(word, str) else maps.at(word)


def check_many(maps: HeatMaps, count: int, most: int, of: str, scale: Scale) -> None:
    """Raise a SelectionError if a figure would have more maps than one can look at."""
    most = min(most, _MOST_WORK // max(1, len(maps.words))) if scale == "shared" else most
    if count > most:
        raise SelectionError(
            f"these are {count} maps of {of}: expected at most {most}, on this scale; select some, "
            "as in run.maps.select(layers='mid', steps=slice(0, 500), heads=[0, 1])"
        )


def resized(maps: HeatMaps, side: int) -> HeatMaps:
    """Return maps over their image at another size: the geometric mean of its sides is `side`."""
    width, height = maps.recording.size
    root = (width / height) ** 0.5
    size = max(1, round(side * root)), max(1, round(side / root))
    image = maps.image
    if image is not None:
        image = overlays.to_rgb(image).resize(size, Image.Resampling.LANCZOS)
    return replace(maps, image=image, recording=replace(maps.recording, size=size))


def mean_of(maps: HeatMaps, *shown: Axis) -> str:
    """Write the axes that each map of a figure is averaged over."""
    kept, total = maps.recording.keep, len(maps.recording.timesteps)
    said: list[str] = []
    if "layer" not in shown:
        said.append(plural(len(maps.layers), "layer") if "layer" in kept else "all layers")
    if "step" not in shown:
        some = len(maps.steps) if "step" in kept else total
        said.append(plural(total, "step") if some == total else f"{some} of {total} steps")
    if "head" not in shown:
        some = maps.heads if "head" in kept else ()
        few = some and len(some) < max(layer.heads for layer in maps.recording.layers)
        numbered = f"head{'s' * (len(some) > 1)} {', '.join(map(str, some))}"
        said.append(numbered if few else "all heads")
    return f"mean of {', '.join(said)}"


def _scale_bar(scale: Scale, heat: HeatMap, where: str, low: float, high: float) -> ScaleBar:
    name = {"word": f"one for the word {where}", "shared": f"one for all words {where}"}
    return ScaleBar(name.get(scale, SCALES["raw"]), (low, high), alone=heat.image is None)


def _each_step(
    maps: HeatMaps, word: str | int, scale: Scale, frames: int
) -> tuple[list[tuple[int, HeatMap]], float, float]:
    """Return some steps of a selection with a word's map there, and the scale of all its steps."""
    steps = maps.steps
    count = min(len(steps), checks.whole("frames", frames, least=1))
    # Evenly: the last and, of two or more, the first too.
    chosen = set(np.linspace(len(steps) - 1, 0, count).round())
    check_many(maps, len(steps), MOST_STEPS, "steps", scale)
    heats: list[tuple[int, HeatMap]] = []
    ranges: list[tuple[float, float]] = []
    for at, step in enumerate(steps):
        heat = _map_of(maps.select(steps=step), word, scale)
        ranges.append(heat.value_range(scale))
        if at in chosen:  # of the others only the range is kept
            heats.append((step, heat))
    return heats, min(low for low, _ in ranges), max(high for _, high in ranges)
