"""A sheet of heat maps: the picture, then an overlay for each, with the scale that was used."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from PIL import Image

from heedmap import checks
from heedmap.errors import ArgumentError, quoted, signed
from heedmap.figures import layout, overlays
from heedmap.figures.layout import Panel
from heedmap.maps.stability import stability_said
from heedmap.maps.word_map import REFINED_BY, SCALES, HeatMap, Scale, span_of

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet


def checked_maps(chosen: object) -> list[HeatMap]:
    """The maps that were chosen for a sheet.

    Raises:
        ArgumentError: if they are no list of maps.
    """
    maps = checks.several(chosen)
    if maps is None or not all(isinstance(one, HeatMap) for one in maps):
        raise ArgumentError(
            f"chosen is {quoted(chosen)}: expected a list of maps, as in [maps['house']]"
        )
    return maps


def sheet_of(
    heats: Sequence[HeatMap], image: Image.Image | None, title: str, scale: Scale, *, note: str = ""
) -> tuple["Sheet", Iterator[Image.Image]]:
    """The sheet, and what each of its maps has as `overlay`; neither is drawn twice.

    Args:
        heats: what to show. Without any the sheet is the picture.
        image: the picture; None to show the heat alone.
        title: above all.
        scale: as in `HeatMap.span`.
        note: below the title.
    """
    panels: list[Panel] = []
    if not heats:
        if image is not None:
            panels.append(Panel("", overlays.enlarge(image), "the picture"))
        return layout.framed(layout.in_rows(panels), title=title, note=note), iter(())
    # No panel is wider: what is shrunk afterwards need not be drawn first.
    most = layout.MAX_WIDTH // 2
    small = None if image is None else overlays.shrunk(image, most)
    if small is not None:
        panels.append(Panel("", overlays.enlarge(small), "the picture"))
    wholes: list[Image.Image | None] = []
    refined = [heat.refined for heat in heats]
    one = None if scale == "word" else span_of(heats, scale)
    spans = [heat.span(scale) if one is None else one for heat in heats]
    for heat, span in zip(heats, spans, strict=True):
        own = heat.image
        if own is not None:
            own = small if own is image else overlays.shrunk(own, most)
        drawn = replace(heat, image=own).drawn(*span)
        wholes.append(drawn if own is heat.image else None)  # else the sheet's is smaller
        way = "down" if heat.most < 0 else "up"
        only = ", refined" if heat.refined and not all(refined) else ""
        held = "" if heat.stability is None else f" · {stability_said(heat.stability)}"
        panels.append(Panel(heat.label, drawn, f"{way} to {signed(heat.most, '.2g')}{only}{held}"))
    ends = ("−most" if min(spans)[0] < 0 else "least", "most") if one is None else one
    said = SCALES[scale] + (f" · {REFINED_BY}" if all(refined) else "")
    bar = layout.ScaleBar(said, *ends, alone=image is None)
    each = (
        heat.drawn(*span) if whole is None else whole
        for heat, span, whole in zip(heats, spans, wholes, strict=True)
    )
    return layout.framed(layout.in_rows(panels), title=title, note=note, bar=bar), each
