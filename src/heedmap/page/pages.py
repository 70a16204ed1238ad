"""The page of a result: one HTML file that shows which word acted where.

    Path("index.html").write_text(run_page(run), encoding="utf-8")

The file needs no server, network or framework. Its Content-Security-Policy forbids everything that
is not in the file. Text of a user is stored as JSON and shown as text. The page computes maps and
colours as `heedmap.maps` and `heedmap.figures` do, from the tables of `page.packing`.
"""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from heedmap.errors import ArgumentError, as_sentence
from heedmap.figures import overlays
from heedmap.figures.animations import StepPictures, tiles
from heedmap.maps.heatmaps import HeatMaps
from heedmap.options import MASK_THRESHOLD
from heedmap.page import summaries
from heedmap.page.packing import as_script, document, link, pack, page_part

if TYPE_CHECKING:
    from heedmap.results.pairs import Pair
    from heedmap.results.runs import Run

_WEBP = 16_383  # the most pixels on a side of a WebP


def links(images: Sequence[Image.Image], budget: int) -> list[tuple[str, bool]]:
    """Return each image as a data URL: exact if all fit into the budget, else compressed.

    Returns:
        The URL of each image, and whether it is exact.
    """
    opaque = [overlays.enlarge(image, short_side=1) for image in images]
    exact = [link(image, "png", optimize=True) for image in opaque]
    if sum(map(len, exact)) <= budget:
        return [(one, True) for one in exact]
    for image in opaque:
        image.thumbnail((_WEBP, _WEBP))
    return [(link(image, "webp", quality=90, method=4), False) for image in opaque]


def preview(result: object, sheet: Image.Image, limit: int = 190_000) -> str:
    """Return HTML of a result's sheet for a notebook, in at most about `limit` characters."""
    side = 1600
    while len(shown := link(overlays.shrunk(sheet, side), "webp", quality=80)) > limit:
        side = side * 3 // 4
    return (
        f'<img alt="{html.escape(repr(result))}" src="{shown}" style="max-width:100%"><br>'
        'Interactive page: <code>.save("folder")</code> writes <code>folder/index.html</code>.'
    )


def mask_data(mask: np.ndarray) -> dict[str, Any]:
    """Return the mask of a blend as an image, and its share of the picture."""
    image = Image.fromarray(np.asarray(mask, dtype=bool))
    return {"picture": link(image, "png", optimize=True), "share": float(np.mean(mask))}


def steps_data(steps: StepPictures | None, budget: int) -> dict[str, Any] | None:
    """Return the images of a run's steps as one image, halved until its URL fits the budget.

    Returns:
        The mosaic (`picture`), its columns (`across`), the `size` (w, h) of an image and what the
        images show (`shows`); None if there are none.
    """
    if steps is None:
        return None
    frames = steps.frames
    while True:
        small = StepPictures(frames, steps.shows)
        shown = link(small.mosaic(), "webp", quality=85, method=4)
        w, h = small.size
        if len(shown) <= budget or min(w, h) < 16:
            break
        half = (w // 2, h // 2)
        frames = tuple(frame.resize(half, Image.Resampling.BOX) for frame in frames)
    across, _ = tiles(len(frames))
    return {"picture": shown, "across": across, "size": [w, h], "shows": steps.shows}


LIMIT, SMALL_LIMIT = 8_000_000, 3_000_000
"""Bytes of a page; the smaller limit holds if no image has more than `SMALL` pixels."""
SMALL = 256 * 256
SANDBOX = "allow-scripts allow-downloads"
"""The permissions of a page in a frame."""
_OWN = 155_000  # bytes of script, style and settings
# In this order: computation, state, view, controls.
_SCRIPTS = (
    *("resizing.js", "maps.js", "drawing.js", "outlines.js"),
    *("elements.js", "state.js", "underlay.js", "resting.js", "legend.js"),
    *("words.js", "pins.js", "pointing.js", "overview.js", "curves.js", "figures.js", "edits.js"),
    *("steps.js", "controls.js", "downloads.js", "explaining.js", "about.js"),
    *("framed.js", "links.js", "start.js"),
)


def run_page(run: "Run", *, limit: int | None = None) -> str:
    """Return the page of a run.

    Args:
        run: the run.
        limit: the most bytes of the page. Default: 3 MB for an image of up to 256×256 pixels, else
            8 MB. If the maps do not fit, the page shows windows of steps, or the mean over heads
            or steps, and says so.
    """
    return _page([run], [], limit)


def pair_page(pair: "Pair", *, limit: int | None = None) -> str:
    """Return the page of an edit: source and target side by side, wipe, difference, blend mask."""
    return pairs_page([("", pair)], limit=limit)


@dataclass(frozen=True)
class GridLayout:
    """The rows and columns of a grid of edits.

    Attributes:
        title: the title of the page.
        columns: the label of each column.
        rows: the label and the cells of each row; a cell is the number of an edit, or None for the
            source.
        note: a line above the grid.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[int | None]]]
    note: str = ""


def pairs_page(
    pairs: Iterable[tuple[str, "Pair"]], *, grid: GridLayout | None = None, limit: int | None = None
) -> str:
    """Return the page of several edits.

    Args:
        pairs: the label of each edit, such as "red ×2", and the edit.
        grid: the layout of a grid; a strip of edits if None.
        limit: as in `page`.
    """
    runs: list[Run] = []
    places: dict[int, int] = {}  # by identity: edits of one source share its run
    edits: list[dict[str, Any]] = []
    for label, pair in pairs:
        if pair.source.image.size != pair.edited.image.size:
            sizes = f"{pair.source.image.size} and {pair.edited.image.size}"
            raise ArgumentError(f"the images of an edit are {sizes}: expected one size")
        for run in (pair.source, pair.edited):
            if id(run) not in places:
                places[id(run)] = len(runs)
                runs.append(run)
        why = summaries.edit_summary(pair)
        blended = pair.blend is not None
        edits.append(
            {
                "label": label,
                "source": places[id(pair.source)],
                "edited": places[id(pair.edited)],
                **summaries.matching_words(pair),
                "figures": summaries.edit_tables(pair.about, blended=blended),
                "why": as_sentence(why) if why else "",
                "notes": [as_sentence(note) for note in pair.about.notes or ()],
                "weights": summaries.edit_weights(pair),
                "blend": None if pair.blend is None else mask_data(pair.blend),
            }
        )
    if not edits:
        raise ArgumentError("the page has no edits: expected at least one")
    if grid is None:
        return _page(runs, edits, limit)
    layout = {
        "columns": list(grid.columns),
        "rows": [[name, list(cells)] for name, cells in grid.rows],
        "note": as_sentence(grid.note) if grid.note else "",
    }
    return _page(runs, edits, limit, title=grid.title, grid=layout)


def frame(text: str = "", *, address: str = "", height: int = 900) -> str:
    """Return a sandboxed frame that shows a page, given by its text or its address."""
    source = f'src="{address}"' if address else f'srcdoc="{html.escape(text, quote=True)}"'
    return (
        f'<iframe {source} sandbox="{SANDBOX}" allow="clipboard-write" title="heedmap" '
        f'style="width:100%;height:{height:d}px;border:0"></iframe>'
    )


# --- the data ---------------------------------------------------------------------------------


def _page(
    runs: Sequence["Run"],
    edits: list[dict[str, Any]],
    limit: int | None,
    *,
    title: str | None = None,
    grid: Mapping[str, Any] | None = None,
) -> str:
    small = all(run.image.width * run.image.height <= SMALL for run in runs)
    limit = limit or (SMALL_LIMIT if small else LIMIT)
    images = links([run.image for run in runs], limit // 2)
    steps = [steps_data(run.step_pictures, limit // 10 // len(runs)) for run in runs]
    texts = [
        {
            "settings": summaries.settings_rows(run.settings),
            "model": summaries.model_option(run.settings),
            "untaught": summaries.image_warnings(run.settings),
            "own": summaries.picture_use(run.settings),
            "weights": summaries.prompt_weights(run),
        }
        for run in runs
    ]
    used = sum(len(link) for link, _ in images) + len(as_script({"texts": texts, "steps": steps}))
    budget = (limit - _OWN - used) // sum(len(_views(run)) for run in runs)
    content = []
    for run, (image, exact), own_steps, text in zip(runs, images, steps, texts, strict=True):
        views = [
            {
                "name": name,
                "trust": summaries.stability_notes(maps),
                **pack(maps.recording, budget, maps.image),
            }
            for name, maps in _views(run).items()
        ]
        content.append(
            {
                "picture": image,
                "exact": exact,
                "size": list(run.image.size),
                "steps": own_steps,
                "views": views,
                **text,
            }
        )
    data = {
        "runs": content,
        "pairs": edits,
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
    script = '"use strict";\n' + "\n".join(page_part(f"assets/{name}") for name in _SCRIPTS)
    style, template = page_part("assets/page.css"), page_part("assets/page.html")
    heading = title or runs[-1].settings.prompt
    return document(template, heading, style, script, data=as_script(data))


def _views(run: "Run") -> dict[str, HeatMaps]:
    """Return the maps of a run that it has, by their name on the page."""
    every = {"prompt": run.maps, "negative": run.negative_maps, "concepts": run.concepts}
    return {name: maps for name, maps in every.items() if maps is not None}


def _colours(name: str) -> str:
    """Return the 256 colours of a colour map as base64."""
    ramp = overlays.colour(np.linspace(0, 1, 256)[None], name)
    return base64.b64encode(ramp.tobytes()).decode("ascii")
