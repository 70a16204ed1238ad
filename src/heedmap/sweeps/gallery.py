"""The gallery of a sweep: one static page of all results, filtered and sorted in the browser."""

import os
from pathlib import Path
from statistics import fmean

from heedmap.errors import RunError, reason
from heedmap.io.reading import path_of
from heedmap.io.writing import put_file
from heedmap.page.packing import as_script
from heedmap.page.pages import assemble
from heedmap.sweeps import TABLE

_SORTS = {
    "line": "job",
    "prompt": "prompt",
    "seed": "seed",
    "moved": "attention changed",
    "mse_inside": "change inside (MSE)",
    "mse_outside": "change outside (MSE)",
    "iou": "overlap with truth (IoU)",
    "seconds": "seconds",
}
_COLUMNS = ("task", "model", "source", "steps", "width", "height", "image")


def gallery(folder: str | Path) -> Path:
    """Write the page of all results of a sweep, `index.html` in its folder, and return its path.

    Each image links to the page of its result; images load as one scrolls to them.

    Raises:
        RunError: if the folder has no table of a sweep, or cannot be written.
    """
    from pyarrow import ArrowException, parquet

    place = path_of(folder)
    names = [*(_SORTS.keys() - {"iou"}), *_COLUMNS, "folder", "truths"]
    try:
        runs = parquet.read_table(place / TABLE, columns=names).to_pylist()
    except (OSError, ArrowException) as error:
        raise RunError(
            f"{place} has no table: run the sweep ({reason(error)})"
        ) from error
    for run in runs:
        page = f"{run.pop('folder')}/index.html"
        ious = [one["iou"] for one in run.pop("truths")]
        run["page"] = page if os.path.exists(place / page) else run["image"]
        run["iou"] = fmean(ious) if ious else None
    sorts = [
        item for item in _SORTS.items() if any(run[item[0]] is not None for run in runs)
    ]
    page = assemble(
        "gallery/gallery",
        place.resolve().name,
        images="'self' file:",
        data=as_script({"runs": runs, "sorts": sorts}),
    )
    return put_file(place / "index.html", page.encode())
