"""`heedmap segment`: masks of a saved run's phrases; no model is loaded."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from heedmap.cli import console, inspect
from heedmap.cli import options as opt
from heedmap.options import MASK_THRESHOLD


def segment(
    run: opt.RunFolder,
    *,
    word: opt.Words = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Below it a pixel is background.")
    ] = MASK_THRESHOLD,
    concepts: opt.OfConcepts = False,
    kind: opt.Format = "png",
    out: Annotated[Path | None, opt.out_option("a new one in RUN/segment")] = None,
    open_: opt.Open = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Save masks of the phrases of a saved run.

    No model is loaded. Each pixel belongs to one phrase or to the background: as an image of
    labels, in NumPy's format, as COCO, as a mask of each phrase, and on a sheet.
    """
    from json import loads

    from heedmap.io.writing import slug
    from heedmap.results.runs import Run

    maps = console.maps_of(Run.load(run), concepts)
    place = console.destination(out, root=run / "segment")
    words = [opt.word_or_number(text) for text in word] if word else None
    found = maps.segment(words, threshold=threshold)
    parts = [
        *(word or ["all"]),
        *(["concepts"] if concepts else []),
        *([] if threshold == MASK_THRESHOLD else [f"from {threshold:g}"]),
        *([] if kind == "png" else [kind]),
    ]
    folder = place.put(partial(found.save, run=run, kind=kind), slug(" ".join(parts), 100))
    data = loads((folder / "segment.json").read_text(encoding="utf-8"))
    console.print_result(data, [folder], lambda: print_segments(folder, data), json, quiet)
    if open_:
        console.open_in_browser(Path(data["sheet"]))


def print_segments(folder: Path, found: Mapping[str, Any]) -> None:
    """Print the share, the box and the mask of each phrase."""
    stability = inspect.stability_column(found["phrases"])
    rows = [
        (
            str(one["label"]),
            one["name"],
            f"{100 * one['share']:.1f} %",
            "no pixel" if one["box"] is None else "{}, {}, {}×{}".format(*one["box"]),
            *more,
            Path(one["file"]).relative_to(folder).as_posix(),
        )
        for one, more in zip(found["phrases"], stability[1:], strict=True)
    ]
    columns = ("#", "phrase", "share", "left, top, size", *stability[0], "mask")
    console.print_table(columns, rows, folder, right=("#", "share"))
    rest = 100 * (1 - sum(one["share"] for one in found["phrases"]))
    typer.echo(f"Background: {abs(rest):.1f} %. All phrases: {found['sheet']}")
