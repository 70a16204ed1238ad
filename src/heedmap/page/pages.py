"""The page of a result: one HTML file that shows which word acted where.

The file needs no server, network or framework. Its Content-Security-Policy forbids everything that
is not in the file. Text of a user is stored as JSON and shown as text. The page computes maps and
colours as `heedmap.maps` and `heedmap.figures` do, from the tables of `page.packing`.
"""

import base64
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from heedmap.figures import overlays
from heedmap.figures.overlays import StepPictures, tiles
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.options import MASK_THRESHOLD
from heedmap.page import summaries
from heedmap.page.documents import as_script, document, link, page_part
from heedmap.page.packing import pack

if TYPE_CHECKING:
    from heedmap.results.pairs import Pair
    from heedmap.results.runs import Run

LIMIT, SMALL_LIMIT = 8_000_000, 3_000_000
"""Bytes of a page; the smaller limit holds if no image has more than 256×256 pixels."""
MASK_SIDE = 256  # the most pixels on the short side
_SCRIPTS = ("dom", "maps", "drawing", "model", "words", "pictures", "overview", "controls", "page")


def run_page(run: "Run", *, limit: int | None = None) -> str:
    """Return the page of a run.

    Args:
        run: the run.
        limit: the most bytes of the page. Default: by the size of the images. If the maps do not
            fit, the page shows windows of steps, or the mean over heads or steps, and says so.
    """
    return _page([run], [], limit, run.settings.prompt)


def pairs_page(
    pairs: Iterable[tuple[str, "Pair"]],
    *,
    title: str = "",
    grid: Mapping[str, Any] | None = None,
    limit: int | None = None,
) -> str:
    """Return the page of edits: source and target side by side, wipe, difference, blend mask.

    Args:
        pairs: the label of each edit, such as "red ×2", and the edit.
        title: the title of the page. Default: the prompt of the last edit.
        grid: the labels of `columns`; `rows`, each a label and its cells, which are the numbers of
            edits, or None for the source; and a `note` above the grid.
        limit: as in `run_page`.
    """
    runs: dict[int, Run] = {}  # by identity: edits of one source share its run
    edits: list[dict[str, Any]] = []
    for label, pair in pairs:
        sides = {"source": pair.source, "edited": pair.edited}
        runs |= {id(run): run for run in sides.values()}
        edits.append(
            {
                "label": label,
                **{name: [*runs].index(id(run)) for name, run in sides.items()},
                "blend": None if pair.blend is None else link(Image.fromarray(pair.blend), "png"),
                **summaries.edit_summary(pair),
            }
        )
    every = [*runs.values()]
    return _page(every, edits, limit, title or every[-1].settings.prompt, grid)


def frame(text: str, *, height: int = 900) -> str:
    """Return a sandboxed frame that shows a page."""
    return (
        f'<iframe srcdoc="{html.escape(text)}" sandbox="allow-scripts allow-downloads" '
        f'allow="clipboard-write" title="heedmap" style="width:100%;height:{height}px;border:0">'
        "</iframe>"
    )


def preview(result: object, sheet: Image.Image, limit: int = 190_000) -> str:
    """Return HTML of a result's sheet for a notebook, in at most about `limit` characters."""
    side = 1600
    while len(shown := link(overlays.shrunk(sheet, side), "webp", quality=80)) > limit:
        side = side * 3 // 4
    return (
        f'<img alt="{html.escape(repr(result))}" src="{shown}" style="max-width:100%"><br>'
        'Interactive page: <code>.save("folder")</code> writes <code>folder/index.html</code>.'
    )


def _page(
    runs: Sequence["Run"],
    edits: list[dict[str, Any]],
    limit: int | None,
    title: str,
    grid: Mapping[str, Any] | None = None,
) -> str:
    pixels = max(math.prod(run.image.size) for run in runs)
    limit = limit or (LIMIT if pixels > 256 * 256 else SMALL_LIMIT)
    share = limit // len(runs)
    data: dict[str, Any] = {
        "runs": [
            {
                "size": run.image.size,
                "masks": masks_data(run.maps, share // 10),
                "steps": steps_data(run.step_pictures, share // 10),
                **picture_data(run.image, share // 2),
                **summaries.run_summary(run),
            }
            for run in runs
        ],
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
    script = "".join(page_part(f"assets/{name}.js") for name in _SCRIPTS)
    style = page_part("assets/base.css") + page_part("assets/page.css")
    template = page_part("assets/page.html")
    used = len((template + style + script).encode()) + len(as_script(data)) + 1000
    data["maps"] = pack([*map(_recordings, runs)], limit - used)
    return document(template, title, style, script, data=as_script(data))


def _recordings(run: "Run") -> dict[str, Recording]:
    """Return the recordings of a run's prompts that have the layers and steps of the first."""
    first = run.maps.recording
    every = {"prompt": run.maps, "negative": run.negative_maps, "concepts": run.concepts}
    found = {name: maps.recording for name, maps in every.items() if maps is not None}
    like = (first.layers, first.timesteps)  # a negative prompt has fewer if guidance was off
    return {name: one for name, one in found.items() if (one.layers, one.timesteps) == like}


def picture_data(image: Image.Image, budget: int) -> dict[str, Any]:
    """Return an image as a data URL, and whether it is exact: it is if it fits into the budget."""
    opaque = overlays.to_rgb(image)
    exact = link(opaque, "png", optimize=True)
    if len(exact) <= budget:
        return {"picture": exact, "exact": True}
    return {"picture": link(opaque, "webp", quality=90, method=4), "exact": False}


def masks_data(maps: HeatMaps, budget: int) -> list[dict[str, Any]]:
    """Return the soft mask of each phrase as an image, with the numbers of the phrase's words.

    There are none without refined maps, or if they do not fit into the budget.
    """
    part = min(1.0, MASK_SIDE / min(maps.recording.size))
    w, h = (round(part * side) for side in maps.recording.size)
    masks: list[dict[str, Any]] = []
    for words in maps.tokens.phrases if maps.recording.refined is not None else ():
        mask = overlays.resize_map(maps.at(words[0].number).soft_mask(), (w, h))
        image = Image.fromarray(np.rint(mask * 255).astype(np.uint8))
        numbers = [word.number for word in words]
        masks.append({"words": numbers, "picture": link(image, "png", optimize=True)})
    return masks if sum(len(one["picture"]) for one in masks) <= budget else []


def steps_data(steps: StepPictures | None, budget: int) -> dict[str, Any] | None:
    """Return a mosaic of the images of a run's steps, halved until its URL fits the budget."""
    while steps is not None:
        picture = link(steps.mosaic(), "webp", quality=85, method=4)
        if len(picture) <= budget or min(steps.size) < 16:
            across, _ = tiles(len(steps.frames))
            return {"picture": picture, "across": across, "size": steps.size, "shows": steps.shows}
        steps = StepPictures(tuple(frame.reduce(2) for frame in steps.frames), steps.shows)
    return None


def _colours(name: str) -> str:
    """Return the 256 colours of a colour map as base64."""
    ramp = overlays.colour(np.linspace(0, 1, 256)[None], name)
    return base64.b64encode(ramp.tobytes()).decode("ascii")
