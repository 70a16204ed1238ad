"""`heedmap grid`: a prompt's edits over several weights, windows, targets and seeds."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli.console import print_table, printable, progress_bar, say, warnings_told
from heedmap.cli.interrupts import kept_told
from heedmap.cli.options import (
    DrawFlags,
    EditFlags,
    LoadFlags,
    OutputFlags,
    PageFlags,
    SaveFlags,
    by_word,
    grouped,
)
from heedmap.cli.parsing import check_words, parse_strip, parse_windows
from heedmap.errors import UnknownWordError, plural, quoted
from heedmap.options import EditOptions

if TYPE_CHECKING:
    from heedmap.results.grids import Grid

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The prompt that is edited.")]
Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET",
        help="What it shall become. Left out: SOURCE with its weights, as (word:1.5).",
    ),
]


def check_prompts_of_edit(source: str, targets: Sequence[str] | None, changed: EditFlags) -> None:
    """Raise a HeedmapError if prompts are none, or have not the words of `--only`."""
    from heedmap.text.alignment import swap_of
    from heedmap.text.prompts import places, word_keys
    from heedmap.text.weights import parse_weights

    for what, texts in (("SOURCE", [source]), ("TARGET", targets or ())):
        for text in texts:
            instead = f"to edit a picture of yours pass it as --image {shlex.quote(text)}"
            check_words(what, text, instead)
    for target in targets or [source]:
        for swap in () if changed.only is None else swap_of(changed.only):
            for word, written in zip(swap, (source, target), strict=True):
                if not places(word_keys(parse_weights(written).text), word_keys(word)):
                    raise UnknownWordError(
                        f"{quoted(word)} is not in the prompt {quoted(written)}: expected one of "
                        "its words in --only"
                    )


@dataclass(frozen=True)
class GridEditFlags(EditFlags):
    """What the edits of a grid take from their source; several windows are drawn each."""

    cross: Annotated[
        Any,
        typer.Option(
            parser=parse_windows,
            metavar="A:B",
            help="While the source's cross-attention is taken, as parts of the run; B alone: from "
            "its start. Several, as 0,0.2,…,1, are drawn each. Left out: by the kind of edit.",
        ),
    ] = EditOptions.cross
    own: Annotated[
        Any,
        typer.Option(
            "--self", parser=parse_windows, metavar="A:B", help="The same of self-attention."
        ),
    ] = EditOptions.self_attention


@dataclass(frozen=True)
class VaryFlags:
    """What only a grid varies."""

    weight: Annotated[
        list[Any] | None,
        typer.Option(
            parser=parse_strip,
            metavar="WORD=A:B:N",
            help="N weights of a word from A to B, or a list, as red=0,1,3; may be repeated.",
        ),
    ] = None
    count: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="So many seeds, from --seed on.")
    ] = 1

    def weights(self) -> dict[str, list[float]]:
        """Those of each word."""
        return by_word(self.weight, "--weight")


@grouped
def grid(
    source: Source,
    targets: Targets = None,
    *,
    varied: VaryFlags,
    changed: GridEditFlags,
    loaded: LoadFlags,
    drawn: DrawFlags,
    saved: SaveFlags,
    shown: PageFlags,
    told: OutputFlags,
) -> None:
    """Draw many edits of SOURCE: weights, windows, targets, seeds.

    Every combination of them. Saves each as an edit, a contact sheet of all, a page and a table of
    figures.
    """
    check_prompts_of_edit(source, targets, changed)
    asked, weights = targets or [source], varied.weights()
    from heedmap.files import kinds
    from heedmap.files.writing import Destination, slug
    from heedmap.results.amounts import check_axes

    windows = [said for said in (changed.cross, changed.own) if said]
    axes = [*windows, asked, range(varied.count), *weights.values()]
    check_axes(axes)
    place = Destination(saved.out, kinds.GRID, force=saved.force)
    options = changed.options() | drawn.options()
    pipe = loaded.pipeline(hidden=told.hidden)
    from heedmap.drawing import editing

    first = drawn.first_seed()
    with (
        kept_told(place.places),
        warnings_told() as warned,
        progress_bar("Drawing", hidden=told.hidden) as advance,
    ):
        made = editing.grid(
            pipe,
            source,
            targets or None,
            cross=changed.cross,
            self_attention=changed.own,
            weights=weights,
            seeds=[first + number for number in range(varied.count)],
            progress=advance,
            **options,
        )
        folder = place.put(made.save, f"{slug(f'grid {asked[0]}', 48)}-{first}")
    about = about_grid(folder, made)
    told.tell({"grid": about, "warnings": warned}, [about["folder"]], lambda: print_grid(about))
    shown.open([about["folder"]])


def about_grid(folder: Path, grid: "Grid") -> dict[str, Any]:
    """What `grid --json` says of a grid."""
    from heedmap.files.notes import to_json

    about, back = to_json(grid.about), grid.cells[0].pair.about.reconstruction
    names = ("source", "seeds", "steps", "guidance", "size", "model", "batch", "sources_drawn")
    files = {"page": "index.html", "sheet": "grid.png", "table": "grid.csv", "figures": "grid.json"}
    return {
        "folder": str(folder),
        **{name: about[name] for name in names},
        "varies": grid.axes,
        **({} if back is None else {"reconstruction": to_json(back)}),
        "files": {name: str(folder / file) for name, file in files.items()},
        "cells": [row | {"file": str(folder / row["file"])} for row in grid.rows()],
    }


def print_grid(about: Mapping[str, Any]) -> None:
    """Print what was saved of a grid, and what each of its cells did."""
    from heedmap.files.reports import returned

    cells, seeds = about["cells"], about["seeds"]
    what = {
        "index.html": "the page of all: open it in a browser",
        "grid.png": "the contact sheet",
        "grid.csv": "the figures, a line a cell",
        "grid.json": "the same, and how to repeat it",
        "sources/": f"the {plural(len(seeds), 'source')}, each a run for `heedmap inspect`",
        "cells/": f"the {plural(len(cells), 'edit')}, the same",
    }
    print_table(("file", "what it is"), list(what.items()), title=about["folder"])
    varies = list(about["varies"])
    rows = [
        (
            str(cell["cell"]),
            *(_said(name, cell) for name in varies),
            f"{cell['moved']:.1%}",
            *("-" if cell[f"mse_{s}"] is None else f"{cell[f'mse_{s}']:.2g}" for s in _SIDES),
        )
        for cell in cells
    ]
    columns = ("cell", *varies, "moved", *(f"MSE {side}" for side in _SIDES))
    columns = tuple(_HEADS.get(name, name) for name in columns)
    print_table(columns, rows, right={column for column in columns if column != "target"})
    if "reconstruction" in about:
        say(f"Your picture {returned(about['reconstruction']['psnr_db'])}.")
    again = "once" if about["sources_drawn"] == 1 else plural(about["sources_drawn"], "time")
    say(
        f"{plural(len(cells), 'edit')} of “{printable(about['source'])}”, up to "
        f"{about['batch'] - 1} at once; its picture was computed {again}."
    )


_SIDES = ("inside", "outside")
_HEADS = {"self_attention": "self"}


def _said(axis: str, cell: Mapping[str, Any]) -> str:
    """Where a cell stands on an axis."""
    if axis in ("cross", "self_attention"):
        name = "cross" if axis == "cross" else "self"
        low, high = cell[f"{name}_from"], cell[f"{name}_to"]
        return f"{high:g}" if low == 0 else f"{low:g}:{high:g}"
    value = cell[axis]
    return f"{value:g}" if isinstance(value, float) else str(value)
