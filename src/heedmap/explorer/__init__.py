"""The page of a run: one HTML file that shows which word acted where, and needs nothing else.

    Path("index.html").write_text(explorer.page(run), encoding="utf-8")

No server, no network, no framework: pictures, maps, style and script are in the file, and its
Content-Security-Policy forbids all else. What a user typed goes in as JSON and reaches the page as
text alone. The page computes maps and colours as `heedmap.maps` and `heedmap.figures` do, from
the tables of `explorer.packing`, whose docstring says how exact they are.
"""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heedmap.errors import ArgumentError, as_sentence
from heedmap.explorer import pictures, told
from heedmap.explorer.documents import as_script, document, page_part
from heedmap.explorer.packing import pack
from heedmap.explorer.repeating import nameless_option, repeat_edit, repeat_grid, repeat_run
from heedmap.explorer.shown import PairLike, RunLike
from heedmap.figures import overlays
from heedmap.files.reports import GridReport
from heedmap.maps.heatmaps import HeatMaps
from heedmap.options import MASK_THRESHOLD

__all__ = ["GridShown", "boards", "frame", "packing", "page", "pair_page", "pairs_page", "told"]

LIMIT, SMALL_LIMIT = 8_000_000, 3_000_000
"""Bytes of a page; the smaller where no picture has more pixels than `SMALL`."""
SMALL = 256 * 256
SANDBOX = "allow-scripts allow-downloads"
"""What a page may do in a frame: its own work, and nothing of what it is in."""
_OWN = 162_000  # bytes of a page beside its pictures and tables: script, style, settings
# In this order: what is computed, what is chosen, what is seen of it, and what begins it all.
_SCRIPTS = (
    *("resizing.js", "maps.js", "drawing.js", "outlines.js"),
    *("elements.js", "state.js", "underlay.js", "resting.js", "legend.js"),
    *("words.js", "pins.js", "pointing.js", "overview.js", "curves.js", "figures.js", "edits.js"),
    *("steps.js", "controls.js", "downloads.js", "repeating.js", "explaining.js", "about.js"),
    *("framed.js", "links.js", "start.js"),
)


def page(run: RunLike, *, limit: int | None = None) -> str:
    """The page of a run.

    Args:
        run: what to show.
        limit: bytes that the page may take. Left out: 3 MB for a picture of up to 256×256 pixels, 8
            MB for a larger one. Where the maps do not fit, steps are told apart in windows, or
            heads and steps each averaged over the other, and the page says so.
    """
    return _written([run], [], limit)


def pair_page(pair: PairLike, *, limit: int | None = None) -> str:
    """The page of an edit: source and target side by side, wipe, difference, blend mask."""
    return pairs_page([("", pair)], limit=limit)


@dataclass(frozen=True)
class GridShown:
    """How a page shows a grid of edits.

    Attributes:
        title: of the page.
        columns: what each column is.
        rows: what each row is, and its cells: the number of an edit, or None for its source.
        about: what the edits have in common.
        note: above it, how a picture of your own came back; "" where the source was drawn.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[int | None]]]
    about: GridReport
    note: str = ""


def pairs_page(
    labelled: Iterable[tuple[str, PairLike]],
    *,
    grid: GridShown | None = None,
    limit: int | None = None,
) -> str:
    """The page of several edits, with all of them to choose from.

    Args:
        labelled: each edit with what tells it from the others, such as "red ×2".
        grid: the rows and columns in which they stand; in a strip if None.
        limit: as in `page`, of the whole.
    """
    runs: list[RunLike] = []
    places: dict[int, int] = {}  # by identity: edits of one source share its run
    pairs: list[dict[str, Any]] = []
    for label, pair in labelled:
        if pair.source.image.size != pair.edited.image.size:
            sizes = f"{pair.source.image.size} and {pair.edited.image.size}"
            raise ArgumentError(f"the pictures of an edit are {sizes}: expected one size")
        for run in (pair.source, pair.edited):
            if id(run) not in places:
                places[id(run)] = len(runs)
                runs.append(run)
        matched = told.correspondence(pair)
        done = told.what_was_done(pair)
        pairs.append(
            {
                "label": label,
                "source": places[id(pair.source)],
                "edited": places[id(pair.edited)],
                **matched,
                "figures": told.figures(pair.about, blended=pair.blend is not None),
                "why": as_sentence(done) if done else "",
                "notes": [as_sentence(note) for note in pair.about.notes or ()],
                "weights": told.weighted(pair),
                "blend": None if pair.blend is None else pictures.blend_told(pair.blend),
            }
        )
    if not pairs:
        raise ArgumentError("the page has no edits: expected at least one")
    if grid is None:
        return _written(runs, pairs, limit)
    settings = runs[pairs[0]["edited"]].settings
    laid = {
        "columns": list(grid.columns),
        "rows": [[name, list(cells)] for name, cells in grid.rows],
        "repeat": repeat_grid(grid.about, settings),
        "note": as_sentence(grid.note) if grid.note else "",
    }
    return _written(runs, pairs, limit, title=grid.title, grid=laid)


def frame(text: str = "", *, address: str = "", height: int = 900) -> str:
    """A page, by its text or its address, within another: shut off from it but for downloads."""
    source = f'src="{address}"' if address else f'srcdoc="{html.escape(text, quote=True)}"'
    return (
        f'<iframe {source} sandbox="{SANDBOX}" allow="clipboard-write" title="heedmap" '
        f'style="width:100%;height:{height:d}px;border:0"></iframe>'
    )


# --- the data ---------------------------------------------------------------------------------


def _written(
    runs: Sequence[RunLike],
    pairs: list[dict[str, Any]],
    limit: int | None,
    *,
    title: str | None = None,
    grid: Mapping[str, Any] | None = None,
) -> str:
    """The page of runs and of how they belong together."""
    small = all(run.image.width * run.image.height <= SMALL for run in runs)
    limit = limit or (SMALL_LIMIT if small else LIMIT)
    shown = pictures.links([run.image for run in runs], limit // 2)
    steps = [pictures.steps_told(run.step_pictures, limit // 10 // len(runs)) for run in runs]
    views = sum(len(_views(run)) for run in runs)
    said = [
        {
            "settings": told.rows(run.settings),
            "repeat": _repeats(run),
            "nameless": nameless_option(run.settings),
            "untaught": told.untaught_said(run.settings),
            "own": told.own_picture(run.settings),
            "weights": told.written_weights(run),
        }
        for run in runs
    ]
    taken = sum(len(link) for link, _ in shown) + len(as_script({"said": said, "steps": steps}))
    budget = (limit - _OWN - taken) // views
    content = []
    for run, (link, exact), own, texts in zip(runs, shown, steps, said, strict=True):
        views = [
            {
                "name": name,
                "trust": told.trust(maps, run.trust if name == "prompt" else {}),
                **pack(maps.recording, budget, maps.image),
            }
            for name, maps in _views(run).items()
        ]
        content.append(
            {
                "picture": link,
                "exact": exact,
                "size": list(run.image.size),
                "steps": own,
                "views": views,
                **texts,
            }
        )
    data = {
        "runs": content,
        "pairs": pairs,
        "grid": grid,
        "look": {
            "colours": {name: _colours(name) for name in overlays.COLORMAPS},
            "colour": overlays.COLORMAP,
            "signed": _colours(overlays.SIGNED),
            "opacity": overlays.OPACITY,
            "threshold": MASK_THRESHOLD,
            "light": overlays.LIGHT,
            "grey": overlays.GREY,
            "grey_several": overlays.GREY_SEVERAL,
            "hues": overlays.HUES,
        },
    }
    return _assembled(title or runs[-1].settings.prompt, data)


def _views(run: RunLike) -> dict[str, HeatMaps]:
    """The maps of a run that a page shows, by what they are of."""
    every = {"prompt": run.maps, "negative": run.negative_maps, "concepts": run.concepts}
    return {name: maps for name, maps in every.items() if maps is not None}


def _colours(name: str) -> str:
    """The 256 colours of a colour map, as its bytes."""
    ramp = overlays.colour(np.linspace(0, 1, 256)[None], name)
    return base64.b64encode(ramp.tobytes()).decode("ascii")


def _repeats(run: RunLike) -> list[list[str]]:
    if run.settings.edit is None:
        return repeat_run(run.settings, negative=run.negative_maps is not None)
    return repeat_edit(run.settings)


def _assembled(title: str, data: Mapping[str, Any]) -> str:
    script = '"use strict";\n' + "\n".join(page_part(f"page/{name}") for name in _SCRIPTS)
    style, template = page_part("page/page.css"), page_part("page/page.html")
    return document(template, title, style, script, data=as_script(data))
