"""`heedmap segment`: masks of a saved run's phrases; no model is loaded."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import heedmap as hm
from heedmap.cli.console import Task, print_table
from heedmap.cli.inspect import folder_name, maps_of
from heedmap.cli.options import Format, OfConcepts, RunFolder, Words, command
from heedmap.options import MASK_THRESHOLD


@command(out="a new one in RUN/segment")
def segment(
    task: Task,
    run: RunFolder,
    *,
    word: Words = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Below it a pixel is background.")
    ] = MASK_THRESHOLD,
    concepts: OfConcepts = False,
    kind: Format = "png",
) -> None:
    """Save masks of the phrases of a saved run.

    No model is loaded. Each pixel belongs to one phrase or to the background: as an image of
    labels, in NumPy's format, as COCO, as a mask of each phrase, and on a sheet.
    """
    maps = maps_of(hm.Run.load(run), concepts)
    place = task.place(run / "segment")
    segments = maps.segment(word, threshold=threshold)
    flags: dict[str, Any] = {"concepts": concepts, "format": kind != "png" and kind}
    flags["threshold"] = threshold != MASK_THRESHOLD and threshold
    folder = place.put(partial(segments.save, run=run, kind=kind), folder_name(word, flags))
    data = json.loads((folder / "segment.json").read_text(encoding="utf-8"))
    if task.verbose:
        rows = [
            (
                str(one["label"]),
                one["name"],
                f"{100 * one['share']:.1f} %",
                "no pixel" if one["box"] is None else "{}, {}, {}×{}".format(*one["box"]),
                Path(one["file"]).relative_to(folder).as_posix(),
            )
            for one in data["phrases"]
        ]
        columns = ("#", "phrase", "share", "left, top, size", "mask")
        print_table(columns, rows, folder)
        rest = 100 * (1 - sum(segments.shares))
        typer.echo(f"Background: {abs(rest):.1f} %. All phrases: {data['sheet']}")
    task.finish(data, [folder], data["sheet"])
