"""What a folder holds: a run, an edit or a grid."""

import os
from pathlib import Path

from heedmap.errors import RunError
from heedmap.io import reading
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

MARKS = {"grid.json": "a grid", "pair.json": "an edit", "run.json": "a run"}
"""The file that tells a folder of each kind, and what it is called."""


def kind_of(folder: str | Path) -> str:
    """Find the file that tells what a folder is, one of `MARKS`.

    Raises:
        RunError: if there is none.
    """
    folder = reading.path_of(folder)
    for mark in MARKS:
        if os.path.isfile(folder / mark):
            return mark
    raise RunError(
        f"{folder} is not a run, edit or grid: expected a folder with run.json, pair.json or "
        "grid.json"
    )


def load_result(folder: str | Path) -> Run | Pair | Grid:
    """Load the result in a folder; no model and no torch is loaded.

    Raises:
        RunError: if there is none, or something in it is broken.
    """
    read = {"grid.json": Grid.load, "pair.json": Pair.load, "run.json": Run.load}
    return read[kind_of(folder)](folder)


def first_run(saved: object) -> Run | None:
    """A run itself, the source of an edit or of a grid's first cell; None of anything else."""
    if isinstance(saved, Grid):
        saved = saved.cells[0].pair
    if isinstance(saved, Pair):
        saved = saved.source
    return saved if isinstance(saved, Run) else None
