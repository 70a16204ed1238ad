"""`heedmap edit` and `heedmap grid`: an image and its edits, from one noise."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import heedmap as hm
from heedmap.cli.console import Task, print_table
from heedmap.cli.options import EMBEDDED, OUTPUTS, Seed, Source, Targets, command, parsed
from heedmap.errors import plural
from heedmap.options import EditOptions, GenerateOptions, by_word, parse_windows, parse_word_weights

if TYPE_CHECKING:
    from heedmap.results.grids import Grid
    from heedmap.results.pairs import Pair

FILES = {
    "source_image": "source/image.png",
    "edited_image": "edited/image.png",
    "given_image": "source/given.png",
    "page": "index.html",
    "sheet": "sheet.png",
    "difference": "difference.png",
    "blend": "blend.png",
    "figures": "pair.json",
}
_WINDOWS = "Windows as of `heedmap edit`. Several, as 0,0.5,1, are each drawn."


@command(
    *(GenerateOptions, EditOptions),
    model=EMBEDDED,
    out=f"{OUTPUTS}. Of several results, the folder around them",
    without="concepts",
)
def edit(
    task: Task, source: Source, target: Targets = None, *, seed: Seed = None, **options: Any
) -> None:
    """Generate SOURCE and its edit to each TARGET from one noise.

    The words that stay keep the attention of the source. With --image, edits an image of yours.
    Saves both images with their maps, their difference, a sheet and the figures.
    """
    from heedmap.io.writing import slug

    place = task.place(several=len(target or ()) > 1)
    with task.sampling() as (pipe, progress):
        made: Any = hm.edit(pipe, source, target, seed=seed, progress=progress, **options)
        pairs: list[Pair] = made if target else [made]
        folders = [
            place.put(pair.save, f"{slug(text, 48)}-{pair.edited.settings.seed}")
            for text, pair in zip(target or [source], pairs, strict=True)
        ]
    found: list[dict[str, Any]] = []
    for folder, pair in zip(folders, pairs, strict=True):
        found.append(_pair_json(folder, pair))
        if task.verbose:
            _print_pair(folder, pair)
    task.finish({"edits": found}, folders, folders[0] / "index.html")


def _pair_json(folder: Path, pair: "Pair") -> dict[str, Any]:
    from heedmap.io.schemas import to_json

    settings, names = pair.edited.settings, ("seed", "steps", "guidance", "model")
    files = {name: folder / file for name, file in FILES.items() if (folder / file).exists()}
    return {
        "folder": str(folder),
        "source": pair.source.settings.prompt,
        "edited": settings.prompt,
        **{name: getattr(settings, name) for name in names},
        "size": list(pair.edited.image.size),
        "files": {name: str(file) for name, file in files.items()},
        "about": to_json(pair.about),
    }


def _print_pair(folder: Path, pair: "Pair") -> None:
    from heedmap.io.schemas import returned

    report, settings = pair.about, pair.edited.settings
    region = "changed words" if pair.blend is None else "mask"
    rows = [
        (
            f"{side} the {region}",
            f"{change.share:.0%}",
            _number(change.mse, ".2g"),
            _number(change.psnr_db, ".1f"),
            _number(change.ssim, "z.2f"),
        )
        for side, change in (("inside", report.change.inside), ("outside", report.change.outside))
    ]
    print_table(("change", "of the image", "MSE", "PSNR (dB)", "SSIM"), rows, folder)
    if report.reconstruction is not None:
        typer.echo(f"Your image {returned(report.reconstruction.psnr_db)}.")
    typer.echo(f"{report.kind.capitalize()}: {report.why}.")
    if report.masked_by:
        typer.echo(f"Mask: the region of {report.masked_by}.")
    size, steps = "{}×{}".format(*pair.edited.image.size), plural(report.steps, "step")
    typer.echo(f"{size}, seed {settings.seed}, {steps}. Open {folder / 'index.html'}.")
    typer.echo(
        f"The edit moved {report.moved:.1%} of the attention. It acted "
        f"{plural(report.sites, 'time')} (layers × steps), and replaced self-attention "
        f"{plural(report.self_sites, 'time')}."
    )


@command(GenerateOptions, EditOptions, model=EMBEDDED, out=OUTPUTS, without="concepts")
def grid(
    task: Task,
    source: Source,
    target: Targets = None,
    *,
    weight: Annotated[
        list[Any] | None,
        parsed(
            parse_word_weights,
            "WORD=A:B:N",
            "N weights of a word from A to B, or a list, as red=0,1,3. May be repeated.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of seeds, from --seed up.")
    ] = 1,
    seed: Seed = None,
    cross: Annotated[Any, parsed(parse_windows, "A:B,…", _WINDOWS)] = None,
    self_attention: Annotated[
        Any, parsed(parse_windows, "A:B,…", _WINDOWS, "--self-attention", "--self")
    ] = None,
    **options: Any,
) -> None:
    """Generate the edits of SOURCE for all combinations of weights, windows, targets and seeds.

    Saves each as an edit, and a contact sheet, a page and a table of all.
    """
    import secrets

    from heedmap.io.schemas import returned
    from heedmap.io.writing import slug
    from heedmap.results.grids import label

    place, weights = task.place(), by_word(weight or ())
    seed = secrets.randbelow(2**31) if seed is None else seed
    with task.sampling() as (pipe, progress):
        made = hm.grid(
            pipe,
            source,
            target,
            weights=weights,
            seeds=list(range(seed, seed + count)),
            cross=cross,
            self_attention=self_attention,
            progress=progress,
            **options,
        )
        folder = place.put(made.save, f"{slug(f'grid {(target or [source])[0]}', 48)}-{seed}")
    if task.verbose:
        rows = []
        for cell in made:
            at, change = cell.place(), cell.pair.about.change
            edited = " · ".join(label(name, at[name]) for name in made.axes)
            errors = [_number(side.mse, ".2g") for side in (change.inside, change.outside)]
            rows.append((str(cell.number), edited, f"{cell.pair.about.moved:.1%}", *errors))
        print_table(("cell", "edit", "moved", "MSE inside", "MSE outside"), rows, folder)
        typer.echo(f"{plural(len(made), 'edit')}. Open {folder / 'index.html'}.")
        back = made.cells[0].pair.about.reconstruction
        if back is not None:
            typer.echo(f"Your image {returned(back.psnr_db)}.")
    task.finish({"grid": _grid_json(folder, made)}, [folder], folder / "index.html")


def _grid_json(folder: Path, grid: "Grid") -> dict[str, Any]:
    from heedmap.io.schemas import to_json

    files = {"page": "index.html", "sheet": "grid.png", "table": "grid.csv", "figures": "grid.json"}
    report, back = grid.about, grid.cells[0].pair.about.reconstruction
    settings = grid.cells[0].pair.source.settings
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


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
