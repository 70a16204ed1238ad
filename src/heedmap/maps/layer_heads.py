"""One word of a run by layer and head: a table of both, or a sheet of one."""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from heedmap import checks
from heedmap.errors import plural
from heedmap.figures import layout
from heedmap.figures.blocks import stack
from heedmap.figures.layout import Panel
from heedmap.maps.heatmaps import HeatMaps, Scale
from heedmap.maps.word_map import span_of
from heedmap.maps.word_sheets import (
    SIDE,
    check_many,
    heat_of,
    mean_of,
    of_layer,
    scale_bar,
    shown_at,
)
from heedmap.options import Axis

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

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
