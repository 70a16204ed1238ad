"""One word of a run in pictures: over the steps, still and moving, and by layer and head.

Every sheet is a matplotlib Figure with one scale for all that it shows, and says which: of the word
(from the least to the greatest value that it could show), "shared" (of all the prompt's words) or
"raw" (0 to 1). Steps, heads and layers are averaged as `HeatMaps.select` does, and named as on a
run's page: steps and heads count from 1 there, so `select(steps=0)` is step 1.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from heedmap import checks
from heedmap.errors import SelectionError, plural
from heedmap.figures import layout, overlays
from heedmap.figures.animations import Animation
from heedmap.figures.blocks import Block, beside
from heedmap.figures.layout import Panel, ScaleBar
from heedmap.files.reading import MAX_SIDE
from heedmap.maps.heatmaps import HeatMap, HeatMaps, Scale
from heedmap.maps.recordings import Layer
from heedmap.options import Axis

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

FRAMES = 9
"""Steps on a timeline."""
MOVING = 60
"""Steps in an animation at most."""
MOST_STEPS = 1000
"""Steps of which a timeline or an animation can be made."""
MOST_PLACES = 1500
"""Maps in a table of layers and heads; SDXL's has 1400."""
MOST_PANELS = 128
"""Maps on a sheet of layers, or of heads."""
_MOST_WORK = 60_000  # maps, of all words, that are made for one scale of all words
SIDE = 256  # px, the geometric mean of a panel's sides
_DONE, _REST = (99, 99, 104), (225, 225, 229)  # the strip that shows how far a run is


# --- over the steps ---------------------------------------------------------------------------


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
            f"step {step + 1}",
            heat.drawn(low, high, short_side=1),
            f"timestep {timesteps[step]:.4g}",
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
        note=f"{said} · {_mean_of(maps, 'step')} · {maps.tokens.prompt}",
        bar=_bar(scale, heat, "at all steps", low, high),
    )


def animation(
    maps: HeatMaps, word: str | int, *, frames: int = MOVING, scale: Scale = "word", side: int = 384
) -> Animation:
    """Draw a word's overlay step by step, each with its step's number, on one scale.

    Args:
        maps: as in `timeline`.
        word: a word or phrase of the prompt, or a word's number.
        frames: how many steps at most, evenly chosen; every step, where there are no more.
        scale: "word", "shared" or "raw", over all steps.
        side: pixels of the picture in it, the geometric mean of its sides.

    Raises:
        SelectionError: if the steps were averaged while recording, or are more than 1000.
        WordError: if the model did not read such a word.
    """
    maps = shown_at(maps, checks.whole("side", side, least=1, most=MAX_SIDE))
    heats, low, high = _each_step(maps, word, scale, frames)
    total = len(maps.recording.timesteps)
    bar = _bar(scale, heats[0][1], "at all steps", low, high)
    label = f"Over the steps: {heats[0][1].label}"
    drawn = [
        layout.framed(
            Block.of(_with_strip(heat.drawn(low, high, short_side=1), (step + 1) / total)),
            title=label,
            note=f"step {step + 1} of {total}",
            bar=bar,
        ).image()
        for step, heat in heats
    ]
    each = round(min(max(5000 / len(drawn), 80), 400) / 10) * 10  # GIFs count in hundredths
    return Animation(label, tuple(drawn), (*[each] * (len(drawn) - 1), max(1500, each)))


def _each_step(
    maps: HeatMaps, word: str | int, scale: Scale, frames: int
) -> tuple[list[tuple[int, HeatMap]], float, float]:
    """Some steps of a selection with a word's map there, and the scale of all of its steps."""
    steps = maps.steps
    chosen = set(_evenly(len(steps), checks.whole("frames", frames, least=1)))
    _check_many(maps, len(steps), MOST_STEPS, "steps", scale)
    heats: list[tuple[int, HeatMap]] = []
    spans: list[tuple[float, float]] = []
    for at, step in enumerate(steps):
        heat = _of(maps.select(steps=step), word, scale)
        spans.append(heat.span(scale))
        if at in chosen:  # of the others no more than their span is kept
            heats.append((step, heat))
    return heats, min(low for low, _ in spans), max(high for _, high in spans)


def _with_strip(picture: Image.Image, done: float) -> Image.Image:
    """A picture with a strip below that shows how far the run is."""
    width, height = picture.size
    paper = Image.new("RGB", (width, height + 12), "white")
    paper.paste(picture)
    canvas = ImageDraw.Draw(paper)
    canvas.rectangle((0, height + 6, width - 1, height + 11), _REST)
    canvas.rectangle((0, height + 6, max(1, round(width * done)) - 1, height + 11), _DONE)
    return paper


# --- by layer and head ------------------------------------------------------------------------


def layers_by_heads(
    maps: HeatMaps, word: str | int, *, axes: Collection[Axis] | None = None, scale: Scale = "word"
) -> "Sheet":
    """Draw a word's map in every layer (rows) and head (columns), nothing averaged over them.

    Tall tables go on in a second block beside the first: the pictures of SD 1.5 measure about 130
    pixels, those of SDXL's 70 × 20 about 40; select layers for larger ones. A layer with fewer
    heads than others leaves places blank. Of one axis alone it is a sheet of overlays, averaged
    over the other.

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
    wanted = set(
        kept or ("layer",)
        if axes is None
        else checks.any_of("axes", axes, ("layer", "head"), least=1)
    )
    if "layer" in wanted:
        maps = maps.select("*")  # or the sentence that tells what was kept
    if wanted == {"layer"}:
        _check_many(maps, len(maps.layers), MOST_PANELS, "layers", scale)
        maps = shown_at(maps, SIDE)
        parts = [
            (one.short, "{1}×{0} cells".format(*one.grid), _in(maps, one)) for one in maps.layers
        ]
        return _one_axis(maps, word, "layer", parts, scale)
    if wanted == {"head"}:
        _check_many(maps, len(maps.heads), MOST_PANELS, "heads", scale)
        maps = shown_at(maps, SIDE)
        parts = [(f"head {head + 1}", "", maps.select(heads=head)) for head in maps.heads]
        return _one_axis(maps, word, "head", parts, scale)
    return _both_axes(maps, word, scale)


def _one_axis(
    maps: HeatMaps,
    word: str | int,
    axis: Axis,
    parts: Sequence[tuple[str, str, HeatMaps]],
    scale: Scale,
) -> "Sheet":
    heats = [_of(part, word, scale) for _, _, part in parts]
    low, high = span_of(heats, scale)
    panels = [
        Panel(caption, heat.drawn(low, high, short_side=1), note)
        for (caption, note, _), heat in zip(parts, heats, strict=True)
    ]
    if maps.image is not None:
        panels.insert(0, Panel("the picture", maps.image))
    heat = heats[0]
    return layout.framed(
        layout.in_rows(panels),
        title=f"By {axis}: {heat.label}",
        note=f"{plural(len(heats), axis)} · {_mean_of(maps, axis)} · {maps.tokens.prompt}",
        bar=_bar(scale, heat, f"in all {axis}s shown", low, high),
    )


def _both_axes(maps: HeatMaps, word: str | int, scale: Scale) -> "Sheet":
    layers, heads = maps.layers, maps.heads
    _check_many(maps, len(layers) * len(heads), MOST_PLACES, "layers by heads", scale)
    blocks, side = _blocks(len(layers), len(heads), maps.recording.size)
    image = shown_at(maps, max(side, 128)).image
    # Heat alone: at this size a picture below it would be no more than noise.
    maps = replace(shown_at(maps, side), image=None)
    found = [
        [_of(one.select(heads=head), word, scale) if head < layer.heads else None for head in heads]
        for layer in layers
        for one in [_in(maps, layer)]
    ]
    heats = [heat for row in found for heat in row if heat is not None]
    low, high = span_of(heats, scale)
    rows = [
        (layer.short, ["" if one is None else one.drawn(low, high, short_side=1) for one in row])
        for layer, row in zip(layers, found, strict=True)
    ]
    each = math.ceil(len(rows) / blocks)
    columns = [f"head {head + 1}" if side >= 64 else str(head + 1) for head in heads]
    tables = [
        layout.table(rows[start : start + each], columns, side=side, least=side)
        for start in range(0, len(rows), each)
    ]
    if image is not None:
        side = round((image.width * image.height) ** 0.5)
        tables.insert(0, layout.table([("", [image])], ["the picture"], side=side, least=side))
    said = f"{plural(len(layers), 'layer')} in rows, {plural(len(heads), 'head')} in columns"
    return layout.framed(
        beside(tables, across=True),
        title=f"By layer and head: {heats[0].label}",
        note=f"{said} · {_mean_of(maps, 'layer', 'head')} · {maps.tokens.prompt}",
        bar=_bar(scale, heats[0], "in all layers and heads shown", low, high),
    )


def _blocks(rows: int, columns: int, size: tuple[int, int]) -> tuple[int, int]:
    """Into how many blocks a table is cut, and what its pictures measure: as large as fits."""
    root = (size[0] / size[1]) ** 0.5
    best = (1, 24)
    for blocks in range(1, 5):
        aside = 224 + blocks * 130  # margins, the picture, labels
        wide = (layout.MAX_WIDTH - aside) / (blocks * columns)
        high = 2300 / math.ceil(rows / blocks)
        for gap, least in ((12, 112), (4, 0)):  # as in `layout.table`
            side = int(min(160, (wide - gap) / root, (high - gap) * root))
            if side >= least and side > best[1]:
                best = blocks, side
    return best


# --- what all sheets have ---------------------------------------------------------------------


def _of(maps: HeatMaps, word: str | int, scale: Scale) -> HeatMap:
    if scale != "shared":
        return maps.alone(word)
    return maps[word] if isinstance(word, str) else maps.at(word)


def _in(maps: HeatMaps, layer: Layer) -> HeatMaps:
    """The maps of one layer: that very one, whatever its name may mean as a pattern."""
    return maps.select(lambda one: one is layer)


def _check_many(maps: HeatMaps, count: int, most: int, of: str, scale: Scale) -> None:
    """Raise a SelectionError if more maps are asked for than one can look at."""
    if count > most:
        verb, example, option = {
            "steps": ("timeline", "steps=slice(0, 500)", "steps"),
            "heads": ("layers_by_heads", "heads=[0, 1]", "heads"),
        }.get(of, ("layers_by_heads", 'layers="mid"', "layers"))
        raise SelectionError(
            f"these are {count} {of}: expected at most {most} on a sheet; select some, as in "
            f"timelines.{verb}(run.maps.select({example}), word), or with inspect --{option}"
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


def span_of(heats: Sequence[HeatMap], scale: Scale) -> tuple[float, float]:
    """The lowest and the highest value of one scale for several maps, see `HeatMap.span`."""
    spans = [heat.span(scale) for heat in heats]
    return min(low for low, _ in spans), max(high for _, high in spans)


def _bar(scale: Scale, heat: HeatMap, where: str, low: float, high: float) -> ScaleBar:
    said = {"word": f"one for the word {where}", "shared": f"one for all words {where}"}
    return ScaleBar(said.get(scale, "raw probability"), low, high, alone=heat.image is None)


def _evenly(total: int, count: int) -> list[int]:
    """At most `count` of `total` places, evenly: the last and, of two or more, the first too."""
    count = min(count, total)
    if count == 1:
        return [total - 1]
    return [round(at * (total - 1) / (count - 1)) for at in range(count)]


def _mean_of(maps: HeatMaps, *shown: Axis) -> str:
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
        said.append(f"heads {', '.join(str(h + 1) for h in some)}" if few else "all heads")
    return f"mean of {', '.join(said)}"
