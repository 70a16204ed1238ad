"""`heedmap repeat`: a saved result generated again, and whether it is the same."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli import console
from heedmap.cli import options as opt
from heedmap.errors import ArgumentError
from heedmap.options import LoadOptions

if TYPE_CHECKING:
    from heedmap.pipelines.repeating import Repetition


def repeat(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a saved run, edit or grid.")
    ],
    *,
    model: opt.RunModel = None,
    device: opt.Device = LoadOptions.device,
    dtype: opt.Dtype = LoadOptions.dtype,
    out: Annotated[Path | None, opt.out_option("nothing is saved")] = None,
    open_: opt.Open = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Generate RUN again from its settings: is it the same, to the byte?

    The exit code is 0 if it is, 1 if it differs, and 2 after an error. The scheduler is the run's;
    other differences (versions, device, threads, LoRAs) are printed.
    """
    from heedmap.results import grids

    if open_ and out is None:
        raise ArgumentError("--open opens what is saved: name a folder with --out")
    place = None if out is None else console.destination(out)
    saved = grids.load_result(run)
    pipe = console.load_model(model, device, dtype, quiet or json, saved)
    from heedmap.pipelines import repeating

    with console.sampling("Sampling", quiet or json) as (warnings, advance):
        found = repeating.repeat(pipe, saved, progress=advance)
    folder = None if place is None else place.put(found.run.save, run.name)
    where = None if folder is None else str(folder)
    data = {"run": str(run), **found.to_dict(), "folder": where, "warnings": warnings}
    names = [folder] if folder else []
    console.print_result(data, names, lambda: print_repetition(run, found, where), json, quiet)
    if open_ and folder is not None:
        console.open_in_browser(folder / "index.html")
    if not found.same:
        raise typer.Exit(1)


def print_repetition(run: Path, found: "Repetition", folder: str | None) -> None:
    """Print whether a result is the same, and which settings differ."""
    text = str(found)
    typer.echo(f"{run}: {text[0].lower()}{text[1:]}")
    for name, (then, now) in found.changed.items():
        typer.echo(f"  {name}: {shortened(then)}, here {shortened(now)}")
    if folder:
        typer.echo(f"  saved in {folder}")


def shortened(value: Any) -> str:
    """Format a setting in at most 60 characters."""
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"
