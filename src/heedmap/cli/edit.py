"""`heedmap edit` and `heedmap grid`: an image and its edits, from one noise."""

from pathlib import Path
from typing import Annotated, Any

import typer

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
    print_table,
)
from heedmap.errors import plural
from heedmap.options import EditOptions, GenerateOptions
from heedmap.parsing import by_word, parse_integers, parse_windows, parse_word_weights

FILES = {
    "source_image": "source/image.png",
    "edited_image": "edited/image.png",
    "input_image": "source/input.png",
    "page": "index.html",
    "sheet": "sheet.png",
    "difference": "difference.png",
    "blend": "blend.png",
    "figures": "edit.json",
}
_WEIGHTS = "N weights of a word from A to B, or a list, as red=0,1,3. May be repeated."
_SEEDS = "Random seeds, with commas between. Default: one at random (printed)."
_WINDOWS = "One or more windows, as in `heedmap edit`, with commas between: 0,0.5,1."


@command(GenerateOptions, EditOptions, model=EMBEDDED, out=OUTPUTS, without="concepts")
def edit(
    task: Task,
    source: Source,
    target: Targets = None,
    *,
    seed: Seed = None,
    **options: Any,
) -> None:
    """Generate SOURCE and its edit to each TARGET from the same noise.

    Unchanged words reuse the source's attention. With --image, edits an image of yours. Saves both
    images with their maps, their difference, a sheet and the measurements (edit.json).
    """
    from heedmap.io.writing import slug

    place = task.place(several=len(target or ()) > 1)
    with task.sampling() as (pipe, progress):
        result: Any = hm.edit(
            pipe, source, target, seed=seed, progress=progress, **options
        )
        pairs: dict[Path, hm.EditResult] = {}
        for text, pair in zip(
            target or [source], result if target else [result], strict=True
        ):
            name = f"{slug(text, 48)}-{pair.edited.settings.seed}"
            pairs[place.put(pair.save, name)] = pair
    if task.verbose:
        for folder, pair in pairs.items():
            _print_pair(folder, pair)
    edits = [_pair_json(folder, pair) for folder, pair in pairs.items()]
    task.finish({"edits": edits}, pairs, next(iter(pairs)) / "index.html")


def _pair_json(folder: Path, pair: "hm.EditResult") -> dict[str, Any]:
    from heedmap.io.schemas import to_json

    settings = pair.edited.settings
    names = ("seed", "steps", "guidance", "model")
    files = {
        name: folder / file for name, file in FILES.items() if (folder / file).exists()
    }
    return {
        "folder": str(folder),
        "source": pair.source.settings.prompt,
        "edited": settings.prompt,
        **{name: getattr(settings, name) for name in names},
        "size": list(pair.edited.image.size),
        "files": {name: str(file) for name, file in files.items()},
        "report": to_json(pair.report),
    }


def _print_pair(folder: Path, pair: "hm.EditResult") -> None:
    from heedmap.page.pages import edit_summary

    summary = edit_summary(pair)
    tables = summary["figures"]
    print_table(
        ("region", "share of image", "MSE", "PSNR (dB)", "SSIM"),
        tables["change"],
        folder,
    )
    print_table(("edit", "value"), tables["attention"])
    typer.echo(summary["why"])
    size = "{}×{}".format(*pair.edited.image.size)
    steps = plural(pair.report.steps, "step")
    seed = pair.edited.settings.seed
    typer.echo(f"{size}, seed {seed}, {steps}. Open {folder / 'index.html'}.")


@command(GenerateOptions, EditOptions, model=EMBEDDED, out=OUTPUT, without="concepts")
def grid(
    task: Task,
    source: Source,
    target: Targets = None,
    *,
    weights: Annotated[
        list[Any] | None, parsed(parse_word_weights, "WORD=A:B:N", _WEIGHTS)
    ] = None,
    seeds: Annotated[Any, parsed(parse_integers, "N,…", _SEEDS)] = None,
    cross_replace: Annotated[Any, parsed(parse_windows, "A:B,…", _WINDOWS)] = None,
    self_replace: Annotated[
        Any, parsed(parse_windows, "A:B,…", _WINDOWS, "--self-replace")
    ] = None,
    **options: Any,
) -> None:
    """Generate many edits of SOURCE, and one sheet of them.

    All combinations of weights, windows, targets and seeds are generated. Saves each as an edit,
    and a contact sheet, a page and a table of all.
    """
    from heedmap.io.schemas import returned
    from heedmap.io.writing import slug
    from heedmap.results.grids import label

    place = task.place()
    with task.sampling() as (pipe, progress):
        result = hm.grid(
            pipe,
            source,
            target,
            weights=by_word(weights or ()),
            seeds=seeds,
            cross_replace=cross_replace,
            self_replace=self_replace,
            progress=progress,
            **options,
        )
        seed = result.cells[0].result.edited.settings.seed
        folder = place.put(
            result.save, f"{slug(f'grid {(target or [source])[0]}', 48)}-{seed}"
        )
    if task.verbose:
        rows = []
        for cell, row in zip(result, result.rows(), strict=True):
            edited = " · ".join(label(name, cell.place()[name]) for name in result.axes)
            errors = (row["mse_inside"], row["mse_outside"])
            errors = ["-" if one is None else f"{one:.2g}" for one in errors]
            rows.append((str(cell.number), edited, f"{row['moved']:.1%}", *errors))
        print_table(
            ("cell", "edit", "attention changed", "MSE inside", "MSE outside"),
            rows,
            folder,
        )
        typer.echo(f"{plural(len(result), 'edit')}. Open {folder / 'index.html'}.")
        back = result.cells[0].result.report.reconstruction
        if back is not None:
            typer.echo(f"Your image {returned(back.psnr_db)}.")
    task.finish({"grid": _grid_json(folder, result)}, [folder], folder / "index.html")


def _grid_json(folder: Path, grid: "hm.Grid") -> dict[str, Any]:
    from heedmap.io.schemas import to_json

    files = {
        "page": "index.html",
        "sheet": "grid.png",
        "table": "grid.csv",
        "figures": "grid.json",
    }
    report = grid.report
    back = grid.cells[0].result.report.reconstruction
    settings = grid.cells[0].result.source.settings
    return {
        "folder": str(folder),
        **{
            name: getattr(report, name) for name in ("source", "batch", "sources_drawn")
        },
        **{
            name: getattr(settings, name)
            for name in ("steps", "guidance", "size", "model")
        },
        "seeds": report.seeds,
        "varies": grid.axes,
        **({} if back is None else {"reconstruction": to_json(back)}),
        "files": {name: str(folder / file) for name, file in files.items()},
        "cells": [row | {"file": str(folder / row["file"])} for row in grid.rows()],
    }
