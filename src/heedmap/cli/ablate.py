"""`heedmap ablate`: a saved run without a word, and whether its map predicted the change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from heedmap.cli import console
from heedmap.cli import options as opt
from heedmap.options import LoadOptions


def ablate(
    run: opt.RunFolder,
    word: Annotated[
        str, typer.Argument(metavar="WORD", help="A word or phrase of its prompt, at all places.")
    ],
    *,
    model: opt.RunModel = None,
    device: opt.Device = LoadOptions.device,
    dtype: opt.Dtype = LoadOptions.dtype,
    out: Annotated[Path | None, opt.out_option("a new one in RUN/ablate")] = None,
    open_: opt.Open = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Generate a saved run without a word: does its map predict the change?

    From the same noise, in two ways: with nothing attending to the word, and with the prompt read
    without it. Saves the three runs, the changes between them (columns.npy, unread.npy, from 0 to
    1, and as images), a sheet of all beside the map, and how far map and change agree
    (ablate.json).
    """
    from heedmap.io.writing import slug
    from heedmap.results.ablations import check_ablatable
    from heedmap.results.grids import load_result

    saved = check_ablatable(load_result(run), word, str(run))
    place = console.destination(out, root=run / "ablate")
    pipe = console.load_model(model, device, dtype, quiet or json, saved)
    from heedmap.pipelines import ablating

    with console.sampling("Sampling", quiet or json) as (warnings, advance):
        found = ablating.ablate(pipe, saved, word, progress=advance)
    folder = place.put(found.save, slug(found.word, 100))
    sheet, summary = folder / "sheet.png", found.summary()
    data = {
        "run": str(run),
        "folder": str(folder),
        "sheet": str(sheet),
        **summary,
        "warnings": warnings,
    }
    console.print_result(data, [folder], lambda: print_ablation(folder, summary), json, quiet)
    if open_:
        console.open_in_browser(sheet)


def print_ablation(folder: Path, summary: Mapping[str, Any]) -> None:
    """Print the change of each way, and how well the word's maps predicted it."""
    ways = {"columns": "nothing attends to it", "unread": "it is not read"}
    maps = ("heat", "refined", "mask")
    rows = []
    for way, text in ways.items():
        trust = summary["trust"][way]
        figures = [(trust[name] or {}).get(figure) for name in maps for figure in ("rank", "auc")]
        cells = ["-" if figure is None else f"{figure:z.2f}" for figure in figures]
        rows.append((text, f"{100 * trust['mean']:.1f} %", f"{100 * trust['most']:.0f} %", *cells))
    agreement = [f"{name}: {figure}" for name in maps for figure in ("rank", "AUC")]
    columns = (f"without {summary['word']}", "change", "up to", *agreement)
    console.print_table(columns, rows, folder, right=columns[1:])
    typer.echo("rank: rank correlation of map and change; AUC: of the region that changed.")
