"""`heedmap segment`: the masks of a saved run's phrases; no model is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from heedmap.cli.console import open_in_browser, print_table, printable, say
from heedmap.cli.heats import stability_cells
from heedmap.cli.inspecting import folder_beside
from heedmap.cli.interrupts import kept_told
from heedmap.cli.options import (
    Format,
    OfConcepts,
    OutputFlags,
    SaveFlags,
    grouped,
    maps_of,
    out_option,
)
from heedmap.cli.parsing import numbered, parse_path
from heedmap.options import MASK_THRESHOLD


@dataclass(frozen=True)
class PhraseFlags:
    """Which phrases are told apart, and how."""

    word: Annotated[
        list[str] | None,
        typer.Option(
            "--word",
            "-w",
            metavar="PHRASE",
            help="A word or phrase, or #N for word N, with the words of its phrase; may be "
            "repeated. Left out: every phrase.",
        ),
    ] = None
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="X",
            help="How surely a pixel must show a phrase, from 0 to 1; else it is background. Left "
            f"out: {MASK_THRESHOLD:g}.",
        ),
    ] = None
    concepts: OfConcepts = False
    kind: Format = None


@dataclass(frozen=True)
class MaskFlags(SaveFlags):
    """Where the masks go: beside the run, unless something else is said."""

    out: Annotated[
        Path | None,
        out_option(
            "FOLDER", "A new or an empty one. Left out: a new one in RUN/segment, by phrases."
        ),
    ] = None
    browser: Annotated[bool, typer.Option("--open", help="Open the sheet in the browser.")] = False


@grouped
def segment(
    run: Annotated[
        Path, typer.Argument(parser=parse_path, metavar="RUN", help="The folder of a saved run.")
    ],
    *,
    asked: PhraseFlags,
    saved: MaskFlags,
    told: OutputFlags,
) -> None:
    """Save masks of what a saved run's picture shows, phrase by phrase.

    No model is loaded. Each pixel is of one phrase or of the background: as a picture of labels,
    as numbers (NumPy), as COCO, as a mask of each phrase, and on a sheet.
    """
    from heedmap.files.writing import Destination, slug
    from heedmap.results.runs import Run

    maps = maps_of(Run.load(run), concepts=asked.concepts)
    root = folder_beside(run, "segment", saved.out)
    place = Destination(saved.out, root=root)
    words = None if not asked.word else [numbered(query) for query in asked.word]
    found = maps.segment(
        words, threshold=MASK_THRESHOLD if asked.threshold is None else asked.threshold
    )
    kind = asked.kind or "png"
    parts = [
        *(asked.word or ["all"]),
        *(["concepts"] if asked.concepts else []),
        *([] if found.threshold == MASK_THRESHOLD else [f"from {found.threshold:g}"]),
    ]
    name = slug(" ".join([*parts, *([] if kind == "png" else [kind])]), 100)
    with kept_told(place.saved):
        folder = place.put(partial(found.save, run=run, kind=kind), name)
    about = found.about(folder, run=run, kind=kind)
    told.tell(about, [str(folder)], lambda: print_segments(folder, about))
    if saved.browser:
        open_in_browser(Path(about["sheet"]).resolve().as_uri(), about["sheet"])


def print_segments(folder: Path, about: Mapping[str, Any]) -> None:
    """Print how much of the picture each phrase has, and where; and how stable, where known."""
    held = stability_cells(about["phrases"])
    rows = [
        (
            str(one["label"]),
            one["name"],
            f"{100 * one['share']:.1f} %",
            "no pixel" if one["box"] is None else "{}, {}, {}×{}".format(*one["box"]),
            *more,
            Path(one["file"]).relative_to(folder).as_posix(),
        )
        for one, more in zip(about["phrases"], held[1:], strict=True)
    ]
    columns = ("#", "phrase", "share", "left, top, size", *held[0], "mask")
    print_table(columns, rows, title=str(folder), right=("#", "share"))
    rest = 100 * (1 - sum(one["share"] for one in about["phrases"]))
    empty = [one["name"] for one in about["phrases"] if one["box"] is None]
    none = f" Nothing of the picture is of {', '.join(empty)}." if empty else ""
    say(
        printable(
            f"The rest, {abs(rest):.1f} %, is background.{none} The phrases together: "
            f"{Path(about['sheet']).name}, labels.png, labels.npy, coco.json"
        )
    )
