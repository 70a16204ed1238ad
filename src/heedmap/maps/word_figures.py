"""Figures of one word: over the steps, and by layer and head.

All panels of a figure share one scale, and the figure names it: the word's own, "shared" (by all
words of the prompt) or "raw" (0 to 1). Steps and heads count from 0.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from heedmap import checks
from heedmap.errors import SelectionError, plural
from heedmap.figures import layout, overlays
from heedmap.figures.animations import Animation
from heedmap.figures.blocks import Block, stack
from heedmap.figures.layout import Panel, ScaleBar
from heedmap.maps.heatmaps import HeatMap, HeatMaps, Scale
from heedmap.maps.recordings import Layer
from heedmap.maps.word_map import span_of
from heedmap.options import Axis

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

SIDE = 256  # px, the geometric mean of a panel's sides
_MOST_WORK = 60_000  # maps, of all words, that are made for one scale of all words


def heat_of(maps: HeatMaps, word: str | int, scale: Scale) -> HeatMap:
    """A word's map; only where all words share a scale are all of them made."""
    if scale != "shared":
        return maps.alone(word)
    return maps[word] if isinstance(word, str) else maps.at(word)


def of_layer(maps: HeatMaps, layer: Layer) -> HeatMaps:
    """The maps of one layer: that very one, whatever its name may mean as a pattern."""
    return maps.select(lambda one: one is layer)


def check_many(maps: HeatMaps, count: int, most: int, of: str, scale: Scale) -> None:
    """Raise a SelectionError if more maps are asked for than one can look at."""
    if count > most:
        few = {"steps": "steps=slice(0, 500)", "heads": "heads=[0, 1]"}.get(of, "layers='mid'")
        raise SelectionError(
            f"these are {count} {of}: expected at most {most} on a sheet; select some, as in "
            f"run.maps.select({few})"
        )
    if scale == "shared" and count * len(maps.words) > _MOST_WORK:
        raise SelectionError(
            f"a scale shared by {len(maps.words)} words in {count} maps takes too long: select "
            f"fewer {of}, or take the word's own scale, scale='word'"
        )


def shown_at(maps: HeatMaps, side: int) -> HeatMaps:
    """Maps over their picture at another size: the geometric mean of its sides is `side` pixels."""
    width, height = maps.recording.size
    root = (width / height) ** 0.5
    size = max(1, round(side * root)), max(1, round(side / root))
    image = maps.image
    if image is not None:
        image = overlays.to_rgb(image).resize(size, Image.Resampling.LANCZOS)
    return replace(maps, image=image, recording=replace(maps.recording, size=size))


def scale_bar(scale: Scale, heat: HeatMap, where: str, low: float, high: float) -> ScaleBar:
    """What the colours of a sheet mean; `where` says of what its one scale is."""
    said = {"word": f"one for the word {where}", "shared": f"one for all words {where}"}
    return ScaleBar(said.get(scale, "raw probability"), low, high, alone=heat.image is None)


def mean_of(maps: HeatMaps, *shown: Axis) -> str:
    """What each map is averaged over."""
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


MOST_PLACES = 1500
"""Maps in a table of layers and heads; SDXL's has 1400."""
MOST_PANELS = 128
"""Maps on a sheet of layers, or of heads."""


def layers_by_heads(
    maps: HeatMaps, word: str | int, *, axes: Collection[Axis] | None = None, scale: Scale = "word"
) -> "Sheet":
    """Draw a word's map in every layer (rows) and head (columns), nothing averaged over them.

    The pictures of SD 1.5 measure 160 pixels, those of SDXL's 70 × 20 about 30; select layers for
    larger ones. A layer with fewer heads than others leaves places blank. Of one axis alone it is
    a sheet of overlays, averaged over the other.

    Args:
        maps: of one image; a selection of it, where not all layers, heads or steps are wanted.
        word: a word or phrase of the prompt, or a word's number.
        axes: "layer", "head" or both; left out, those of the two that were kept.
        scale: "word", "shared" or "raw", over all that is shown.

    Raises:
        SelectionError: if an axis was averaged while recording, or both were, or there are more
            maps than a sheet holds.
        WordError: if the model did not read such a word.
    """
    kept = [axis for axis in ("layer", "head") if axis in maps.recording.keep]
    given = (kept or ["layer"]) if axes is None else axes
    wanted: set[Axis] = {*checks.any_of("axes", given, ("layer", "head"), least=1)}
    if "layer" in wanted:
        maps = maps.select("*")  # or the sentence that tells what was kept
    if len(wanted) > 1:
        return _both_axes(maps, word, scale)
    (axis,) = wanted
    places = maps.layers if axis == "layer" else maps.heads
    check_many(maps, len(places), MOST_PANELS, f"{axis}s", scale)
    maps = shown_at(maps, SIDE)
    if axis == "layer":
        cells = "{1}×{0} cells".format
        each = [(of_layer(maps, one), one.short, cells(*one.grid)) for one in maps.layers]
    else:
        each = [(maps.select(heads=head), f"head {head}", "") for head in maps.heads]
    heats = [heat_of(part, word, scale) for part, *_ in each]
    low, high = span_of(heats, scale)
    panels = [] if maps.image is None else [Panel("the picture", maps.image)]
    for heat, (_, caption, note) in zip(heats, each, strict=True):
        panels.append(Panel(caption, heat.drawn(low, high, short_side=1), note))
    return layout.framed(
        layout.in_rows(panels),
        title=f"By {axis}: {heats[0].label}",
        note=f"{plural(len(heats), axis)} · {mean_of(maps, axis)} · {maps.tokens.prompt}",
        bar=scale_bar(scale, heats[0], f"in all {axis}s shown", low, high),
    )


def _both_axes(maps: HeatMaps, word: str | int, scale: Scale) -> "Sheet":
    layers, heads = maps.layers, maps.heads
    check_many(maps, len(layers) * len(heads), MOST_PLACES, "layers by heads", scale)
    side = _side(len(layers), len(heads), maps.recording.size)
    image = shown_at(maps, max(side, 128)).image
    # Heat alone: at this size a picture below it would be no more than noise.
    maps = replace(shown_at(maps, side), image=None)
    found = [
        [
            heat_of(one.select(heads=head), word, scale) if head < layer.heads else None
            for head in heads
        ]
        for layer in layers
        for one in [of_layer(maps, layer)]
    ]
    heats = [heat for row in found for heat in row if heat is not None]
    low, high = span_of(heats, scale)
    rows = [
        (layer.short, ["" if one is None else one.drawn(low, high, short_side=1) for one in row])
        for layer, row in zip(layers, found, strict=True)
    ]
    columns = [f"head {head}" if side >= 64 else str(head) for head in heads]
    tables = [layout.table(rows, columns, side=side, least=side)]
    if image is not None:
        side = round((image.width * image.height) ** 0.5)
        tables.insert(0, layout.table([("", [image])], ["the picture"], side=side, least=side))
    said = f"{plural(len(layers), 'layer')} in rows, {plural(len(heads), 'head')} in columns"
    return layout.framed(
        stack(tables, gap=32),
        title=f"By layer and head: {heats[0].label}",
        note=f"{said} · {mean_of(maps, 'layer', 'head')} · {maps.tokens.prompt}",
        bar=scale_bar(scale, heats[0], "in all layers and heads shown", low, high),
    )


def _side(rows: int, columns: int, size: tuple[int, int]) -> int:
    """Choose the size of a table's pictures: as large as fits into a sheet."""
    root = (size[0] / size[1]) ** 0.5
    wide, high = (layout.MAX_WIDTH - 200) / columns, 2800 / rows
    return max(24, int(min(160, (wide - 12) / root, (high - 12) * root)))


FRAMES = 9
"""Steps on a timeline."""
MOVING = 60
"""Steps in an animation at most."""
MOVING_SIDE = 384
"""Pixels of the picture in an animation, the geometric mean of its sides."""
MOST_STEPS = 1000
"""Steps of which a timeline or an animation can be made."""
_DONE, _REST = (99, 99, 104), (225, 225, 229)  # the strip that shows how far a run is


def timeline(
    maps: HeatMaps, word: str | int, *, frames: int = FRAMES, scale: Scale = "word"
) -> "Sheet":
    """Draw a word's overlay at several steps, in reading order, and the picture they lead to.

    The frames are single steps, evenly chosen from the first to the last of the selection; between
    them nothing is averaged. The scale is one for all steps, those between the frames too, so that
    it is that of `animation`.

    Args:
        maps: of one image, with "step" kept; a selection of it, as a rule of layers or heads.
        word: a word or phrase of the prompt, or a word's number.
        frames: how many steps; all, where there are fewer.
        scale: "word", "shared" or "raw".

    Raises:
        SelectionError: if the steps were averaged while recording, or are more than 1000.
        WordError: if the model did not read such a word.
    """
    maps = shown_at(maps, SIDE)
    heats, low, high = _each_step(maps, word, scale, frames)
    timesteps = maps.recording.timesteps
    panels = [
        Panel(
            f"step {step}", heat.drawn(low, high, short_side=1), f"timestep {timesteps[step]:.4g}"
        )
        for step, heat in heats
    ]
    if maps.image is not None:
        panels.append(Panel("the picture", maps.image))
    heat, over = heats[0][1], "" if maps.image is None else ", over the finished picture"
    said = f"{len(heats)} of {plural(len(timesteps), 'step')}, each by itself{over}"
    return layout.framed(
        layout.in_rows(panels),
        title=f"Over the steps: {heat.label}",
        note=f"{said} · {mean_of(maps, 'step')} · {maps.tokens.prompt}",
        bar=scale_bar(scale, heat, "at all steps", low, high),
    )


def animation(maps: HeatMaps, word: str | int, *, scale: Scale = "word") -> Animation:
    """Draw a word's overlay step by step, each with its step's number, on one scale.

    Of more than `MOVING` steps, so many are shown, evenly chosen.

    Args:
        maps: as in `timeline`.
        word: a word or phrase of the prompt, or a word's number.
        scale: "word", "shared" or "raw", over all steps.

    Raises:
        SelectionError: if the steps were averaged while recording, or are more than 1000.
        WordError: if the model did not read such a word.
    """
    maps = shown_at(maps, MOVING_SIDE)
    heats, low, high = _each_step(maps, word, scale, MOVING)
    total = len(maps.recording.timesteps)
    bar = scale_bar(scale, heats[0][1], "at all steps", low, high)
    label = f"Over the steps: {heats[0][1].label}"
    drawn: list[Image.Image] = []
    for step, heat in heats:
        picture = Block.of(heat.drawn(low, high, short_side=1))
        strip = Image.new("RGB", (picture.width, 6), _REST)
        strip.paste(_DONE, (0, 0, max(1, round(picture.width * (step + 1) / total)), 6))
        body = stack([picture, Block.of(strip)], gap=6)
        note = f"step {step} of 0–{total - 1}"
        drawn.append(layout.framed(body, title=label, note=note, bar=bar).image())
    each = round(min(max(5000 / len(drawn), 80), 400) / 10) * 10  # GIFs count in hundredths
    return Animation(label, tuple(drawn), (*[each] * (len(drawn) - 1), max(1500, each)))


def _each_step(
    maps: HeatMaps, word: str | int, scale: Scale, frames: int
) -> tuple[list[tuple[int, HeatMap]], float, float]:
    """Some steps of a selection with a word's map there, and the scale of all of its steps."""
    steps = maps.steps
    count = min(len(steps), checks.whole("frames", frames, least=1))
    # Evenly: the last and, of two or more, the first too.
    chosen = set(np.linspace(len(steps) - 1, 0, count).round())
    check_many(maps, len(steps), MOST_STEPS, "steps", scale)
    heats: list[tuple[int, HeatMap]] = []
    spans: list[tuple[float, float]] = []
    for at, step in enumerate(steps):
        heat = heat_of(maps.select(steps=step), word, scale)
        spans.append(heat.span(scale))
        if at in chosen:  # of the others no more than their span is kept
            heats.append((step, heat))
    return heats, min(low for low, _ in spans), max(high for _, high in spans)
