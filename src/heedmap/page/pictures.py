"""Images of a page as data URLs, within a budget."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from heedmap.figures import overlays
from heedmap.figures.step_pictures import StepPictures, tiles
from heedmap.page.documents import link

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
