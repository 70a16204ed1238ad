"""`heedmap repeat`: a saved result generated again, and whether it is the same."""

from pathlib import Path
from typing import Annotated

import typer

import heedmap as hm
from heedmap.cli.console import Task
from heedmap.cli.options import SAVED, command
from heedmap.errors import ArgumentError, quoted


@command(model=SAVED, out="nothing is saved")
def repeat(
    task: Task,
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a saved run, edit or grid.")
    ],
) -> None:
    """Generate RUN again from its settings: is it the same, to the byte?

    The exit code is 0 if it is, 1 if it differs, and 2 after an error. The scheduler is the run's;
    other differences (versions, device, threads, LoRAs) are printed.
    """
    from heedmap.results.grids import load_result

    if task.open_ and task.out is None:
        raise ArgumentError("--open opens what is saved: name a folder with --out")
    place = None if task.out is None else task.place()
    saved = load_result(run)
    with task.sampling(saved) as (pipe, progress):
        found = hm.repeat(pipe, saved, progress=progress)
    folder = None if place is None else place.put(found.run.save, run.name)
    if task.verbose:
        text = str(found)
        typer.echo(f"{run}: {text[0].lower()}{text[1:]}")
        for name, (then, now) in found.changed.items():
            typer.echo(f"  {name}: {quoted(then)}, here {quoted(now)}")
        if folder:
            typer.echo(f"  saved in {folder}")
    data = {"run": str(run), **found.to_dict(), "folder": folder and str(folder)}
    task.finish(data, [folder] if folder else [], f"{folder}/index.html")
    if not found.same:
        raise typer.Exit(1)
