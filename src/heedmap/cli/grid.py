"""`heedmap grid`: the edits of a prompt over weights, windows, targets and seeds."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli import console
from heedmap.cli import options as opt
from heedmap.cli.generate import KEEP
from heedmap.errors import plural
from heedmap.options import EditOptions, LoadOptions
from heedmap.text import option_texts

if TYPE_CHECKING:
    from heedmap.results.grids import Grid


def grid(
    source: opt.Source,
    targets: opt.Targets = None,
    *,
    weight: Annotated[
        list[Any] | None,
        typer.Option(
            parser=opt.reader(option_texts.strip_in),
            metavar="WORD=A:B:N",
            help="N weights of a word from A to B, or a list, as red=0,1,3. May be repeated.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of seeds, from --seed up.")
    ] = 1,
    model: opt.Model = None,
    device: opt.Device = LoadOptions.device,
    dtype: opt.Dtype = LoadOptions.dtype,
    seed: opt.Seed = None,
    steps: opt.Steps = None,
    guidance: opt.Guidance = None,
    size: opt.Size = None,
    negative: opt.Negative = None,
    keep: opt.Keep = KEEP,
    cross: opt.CrossWindows = None,
    self_attention: opt.SelfWindows = None,
    words: opt.WordWindows = None,
    renormalize: opt.Renormalize = EditOptions.renormalize,
    kind: opt.Kind = "auto",
    only: opt.Only = None,
    protect: opt.Protect = None,
    threshold: opt.Threshold = EditOptions.threshold,
    blend_from: opt.BlendFrom = EditOptions.blend_from,
    image: opt.SourceImage = None,
    batch: opt.Batch = None,
    out: opt.Out = None,
    open_: opt.Open = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Generate the edits of SOURCE for all combinations of weights, windows, targets and seeds.

    Saves each as an edit, and a contact sheet, a page and a table of all.
    """
    import secrets

    from heedmap.io.writing import slug

    weights = opt.by_word(weight, "weight")
    word_windows = opt.by_word(words, "words")
    place = console.destination(out)
    pipe = console.load_model(model, device, dtype, quiet or json)
    from heedmap.pipelines import editing

    first = secrets.randbelow(2**31) if seed is None else seed
    with console.sampling("Sampling", quiet or json) as (warnings, advance):
        made = editing.grid(
            pipe,
            source,
            targets or None,
            weights=weights,
            seeds=[first + number for number in range(count)],
            steps=steps,
            guidance=guidance,
            size=size,
            negative=negative,
            keep=keep,
            cross=cross,
            self_attention=self_attention,
            words=word_windows,
            renormalize=renormalize,
            kind=None if kind == "auto" else kind,
            only=only,
            protect=protect or (),
            threshold=threshold,
            blend_from=blend_from,
            image=image,
            batch=batch,
            progress=advance,
        )
        folder = place.put(made.save, f"{slug(f'grid {(targets or [source])[0]}', 48)}-{first}")
    found = grid_summary(folder, made)
    data = {"grid": found, "warnings": warnings}
    console.print_result(data, [folder], lambda: print_grid(found), json, quiet)
    if open_:
        console.open_in_browser(folder / "index.html")


def grid_summary(folder: Path, grid: "Grid") -> dict[str, Any]:
    """Describe a saved grid for `--json`."""
    from heedmap.io.schemas import to_json

    report, back = grid.about, grid.cells[0].pair.about.reconstruction
    settings = grid.cells[0].pair.source.settings
    files = {"page": "index.html", "sheet": "grid.png", "table": "grid.csv", "figures": "grid.json"}
    return {
        "folder": str(folder),
        **{name: getattr(report, name) for name in ("source", "batch", "sources_drawn")},
        **{name: getattr(settings, name) for name in ("steps", "guidance", "size", "model")},
        "seeds": report.seeds,
        "varies": grid.axes,
        **({} if back is None else {"reconstruction": to_json(back)}),
        "files": {name: str(folder / file) for name, file in files.items()},
        "cells": [row | {"file": str(folder / row["file"])} for row in grid.rows()],
    }


def print_grid(grid: Mapping[str, Any]) -> None:
    """Print the figures of each cell."""
    from heedmap.io.schemas import returned

    cells, varies = grid["cells"], list(grid["varies"])
    sides = ("inside", "outside")
    rows = [
        (
            str(cell["cell"]),
            *(cell_text(name, cell) for name in varies),
            f"{cell['moved']:.1%}",
            *(
                "-" if cell[f"mse_{side}"] is None else f"{cell[f'mse_{side}']:.2g}"
                for side in sides
            ),
        )
        for cell in cells
    ]
    columns = ("cell", *varies, "moved", *(f"MSE {side}" for side in sides))
    console.print_table(columns, rows, grid["folder"], right={*columns} - {"target"})
    typer.echo(f"{plural(len(cells), 'edit')}. Open {grid['files']['page']}.")
    if "reconstruction" in grid:
        typer.echo(f"Your image {returned(grid['reconstruction']['psnr_db'])}.")


def cell_text(axis: str, cell: Mapping[str, Any]) -> str:
    """Format a cell's value on an axis."""
    if axis in ("cross", "self_attention"):
        name = axis.partition("_")[0]
        low, high = cell[f"{name}_from"], cell[f"{name}_to"]
        return f"{high:g}" if low == 0 else f"{low:g}:{high:g}"
    value = cell[axis]
    return f"{value:g}" if isinstance(value, float) else str(value)
