"""A sheet of heat maps: the picture, then an overlay for each, with the scale that was used."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from PIL import Image

from heedmap.figures import layout, overlays
from heedmap.figures.layout import Laid, Panel
from heedmap.maps.word_map import SCALES, HeatMap, Scale

__all__ = ["sheet_of"]


def sheet_of(
    heats: Sequence[HeatMap], image: Image.Image | None, title: str, scale: Scale, *, note: str = ""
) -> tuple[Laid, Iterator[Image.Image]]:
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
        return layout.laid_out(layout.in_rows(panels), title=title, note=note), iter(())
    # No panel is wider: what is shrunk afterwards need not be drawn first.
    most = layout.MAX_WIDTH // 2
    small = None if image is None else overlays.shrunk(image, most)
    if small is not None:
        panels.append(Panel("", overlays.enlarge(small), "the picture"))
    wholes: list[Image.Image | None] = []
    for heat in heats:
        own = heat.image
        if own is not None:
            own = small if own is image else overlays.shrunk(own, most)
        drawn = replace(heat, image=own).drawn(*heat.span(scale))
        wholes.append(drawn if own is heat.image else None)  # else the sheet's is smaller
        way = "down" if heat.most < 0 else "up"
        panels.append(Panel(heat.label, drawn, f"{way} to {heat.most:.2g}"))
    ends = ("least", "most") if scale == "word" else heats[0].span(scale)
    bar = layout.ScaleBar(SCALES[scale], *ends, alone=image is None)
    each = (
        heat.overlay(scale=scale) if whole is None else whole
        for heat, whole in zip(heats, wholes, strict=True)
    )
    return layout.laid_out(layout.in_rows(panels), title=title, note=note, bar=bar), each
