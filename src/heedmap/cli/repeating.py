"""`heedmap repeat`: a saved run drawn again, and whether it is the same to the byte."""

import json as writing
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli.console import fail, loading, print_json, print_lines, printable, progress_bar
from heedmap.cli.options import Device, Dtype, Force, Json, Quiet
from heedmap.cli.reading import parse_path
from heedmap.errors import ArgumentError, HeedmapError

if TYPE_CHECKING:
    from heedmap.drawing.repeats import Repetition

_LONGEST = 60  # characters of a setting that are printed


def repeat(
    run: Annotated[
        Path,
        typer.Argument(
            parser=parse_path, metavar="RUN", help="The folder of a saved run, edit or grid."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A folder or a hub id. Left out: the model that the run's settings name.",
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=parse_path,
            metavar="FOLDER",
            help="Save what is drawn, in a new or an empty folder. Left out: nothing is.",
        ),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Draw RUN again from its settings, and say whether it is the same to the byte.

    The exit code is 0 if it is, 1 if it differs, and 2 after a mistake. The scheduler is that of
    the run; what else is not as it was (versions, device, threads, LoRAs) is told.
    """
    try:
        same = _repeated(run, model, device, dtype, out, force, quiet, json)
    except (HeedmapError, OSError, MemoryError, typer.Exit, typer.Abort):
        raise
    except Exception as error:  # otherwise it would look as if the pictures differed
        if "out of memory" in str(error).lower():
            raise
        fail(f"{run} could not be drawn again ({type(error).__name__}: {error})")
    if not same:
        raise typer.Exit(1)


def _repeated(
    run: Path,
    model: str | None,
    device: str,
    dtype: str,
    out: Path | None,
    force: bool,
    quiet: bool,
    json: bool,
) -> bool:
    """Draw a saved run again, and say whether it is the same."""
    from heedmap.files import kinds
    from heedmap.files.writing import Destination
    from heedmap.results import folders

    if force and out is None:
        raise ArgumentError(
            "--force replaces a folder, and none is named: name it with --out, or leave --force out"
        )
    mark = folders.kind_of(run)
    kind = next(kind for kind in (kinds.RUN, kinds.PAIR, kinds.GRID) if kind.mark == mark)
    place = None if out is None else Destination(out, kind, force=force)
    saved = folders.opened(run)  # before a model is loaded
    hidden = quiet or json or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap.drawing import repeats

        pipe = repeats.load_for(saved, model, device=device, dtype=dtype)
    with progress_bar("Drawing", hidden=hidden) as advance:
        found = repeats.repeat(pipe, saved, progress=advance)
    folder = None if place is None else str(place.put(found.run.save, run.name))
    if json:
        print_json({"run": str(run), **found.to_dict(), "folder": folder})
    elif quiet:
        print_lines([folder] if folder else [])
    else:
        print_repetition(str(run), found, folder)
    return found.same


def print_repetition(run: str, found: "Repetition", folder: str | None) -> None:
    """Print whether it is the same, what is not as it was, and where it was saved."""
    typer.echo(printable(f"{run}: {str(found)[0].lower()}{str(found)[1:]}"))
    for name, (noted, now) in found.changed.items():
        what = "set up as noted" if name.startswith("schedulers.") else "not as noted"
        typer.echo(printable(f"  {name}: {_short(noted)}, here {_short(now)} ({what})"))
    if found.unknown:
        told = ", ".join(found.unknown)
        typer.echo(printable(f"  not noted, since an older version wrote this run: {told}"))
    if folder:
        typer.echo(printable(f"  saved in {folder}"))


def _short(value: Any) -> str:
    text = "nothing" if value is None else value
    text = text if isinstance(text, str) else writing.dumps(text, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
