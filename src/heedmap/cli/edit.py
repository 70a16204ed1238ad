"""`heedmap edit` and `heedmap grid`: an image and its edits, from one noise."""

from pathlib import Path
from typing import Annotated, Any

import heedmap as hm
from heedmap.cli.console import (
    EMBEDDED,
    OUTPUT,
    OUTPUTS,
    Seed,
    Source,
    Targets,
    Task,
    command,
    parsed,
    summary,
)
from heedmap.cli.generate import ExcitedWords, InsideBoxes, guides
from heedmap.errors import plural
from heedmap.options import EditOptions, GenerateOptions
from heedmap.parsing import by_word, parse_integers, parse_windows, parse_word_weights

_WEIGHTS = "One or more weights of a word, as red=0,1,3. May be repeated."
_SEEDS = "Random seeds, with commas between. Default: one at random (printed)."
_WINDOWS = "One or more windows, as in `heedmap edit`, with commas between: 0,0.5,1."
_Windows = Annotated[Any, parsed(parse_windows, "A:B,…", _WINDOWS)]


@command(
    GenerateOptions,
    EditOptions,
    model=EMBEDDED,
    out=OUTPUTS,
    without="concepts budget places reads",
)
def edit(
    task: Task,
    source: Source,
    target: Targets = None,
    *,
    seed: Seed = None,
    excite: ExcitedWords = None,
    inside: InsideBoxes = None,
    **options: Any,
) -> None:
    """Generate SOURCE and its edit to each TARGET from the same noise.

    Unchanged words reuse the source's attention. With --image, edits an image of yours. Saves both
    images with their maps, their difference, a sheet and the measurements (edit.json).
    """
    from heedmap.results.grids import result_name

    place = task.place(several=len(target or ()) > 1)
    result: Any = hm.edit(
        task.load(),
        source,
        target,
        seed=seed,
        guide=guides(excite, inside),
        **options,
    )
    pairs: dict[Path, hm.EditResult] = {}
    for pair in result if target else [result]:
        pairs[place.put(pair.save, result_name(pair))] = pair
    lines: list[str] = []
    edits: list[dict[str, Any]] = []
    for folder, pair in pairs.items():
        run = pair.edited
        report = pair.report
        lines += [*summary(folder, run), f"{report.why}."]
        edits.append(
            {"folder": str(folder), "settings": run.settings, "report": report}
        )
    task.finish({"edits": edits}, [*pairs], lines)


@command(
    GenerateOptions,
    EditOptions,
    model=EMBEDDED,
    out=OUTPUT,
    without="concepts budget places reads",
)
def grid(
    task: Task,
    source: Source,
    target: Targets = None,
    *,
    weights: Annotated[
        list[Any] | None, parsed(parse_word_weights, "WORD=X,…", _WEIGHTS)
    ] = None,
    seeds: Annotated[Any, parsed(parse_integers, "N,…", _SEEDS)] = None,
    cross_replace: _Windows = None,
    self_replace: _Windows = None,
    **options: Any,
) -> None:
    """Generate many edits of SOURCE, and one sheet of them.

    All combinations of weights, windows, targets and seeds are generated. Saves each run, and a
    contact sheet, a page and a table of all.
    """
    from heedmap.results.grids import result_name

    place = task.place()
    result = hm.grid(
        task.load(),
        source,
        target,
        weights=by_word(weights or ()),
        seeds=seeds,
        cross_replace=cross_replace,
        self_replace=self_replace,
        **options,
    )
    folder = place.put(result.save, result_name(result))
    lines = [
        str(folder),
        f"{plural(len(result), 'edit')} over {', '.join(result.axes)}.",
    ]
    data = {"folder": str(folder), "report": result.report, "cells": result.rows()}
    task.finish({"grid": data}, [folder], lines)
