"""`heedmap repeat`: a saved run drawn again, and whether it is the same to the byte."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli.console import fail, loading, printable, progress_bar, say, warnings_told
from heedmap.cli.interrupts import kept_told
from heedmap.cli.options import LoadFlags, OutputFlags, PageFlags, SaveFlags, grouped, out_option
from heedmap.cli.parsing import parse_model, parse_path
from heedmap.errors import ArgumentError, HeedmapError

if TYPE_CHECKING:
    from heedmap.drawing.repeating import Repetition

_LONGEST = 60  # characters of a setting that are printed


@dataclass(frozen=True)
class ReloadFlags(LoadFlags):
    """Which model draws again, and where."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            parser=parse_model,
            metavar="MODEL",
            help="A folder or a hub id. Left out: the model that the run's settings name.",
        ),
    ] = None


@dataclass(frozen=True)
class SaveIfNamedFlags(SaveFlags):
    """Where what is drawn goes, if anywhere."""

    out: Annotated[
        Path | None,
        out_option(
            "FOLDER", "Save what is drawn, in a new or an empty folder. Left out: nothing is."
        ),
    ] = None


@grouped
def repeat(
    run: Annotated[
        Path,
        typer.Argument(
            parser=parse_path, metavar="RUN", help="The folder of a saved run, edit or grid."
        ),
    ],
    *,
    loaded: ReloadFlags,
    saved: SaveIfNamedFlags,
    shown: PageFlags,
    told: OutputFlags,
) -> None:
    """Draw RUN again from its settings: is it the same?

    To the byte. The exit code is 0 if it is, 1 if it differs, and 2 after a mistake. The scheduler
    is that of the run; what else is not as it was (versions, device, threads, LoRAs) is told.
    """
    try:
        same = _repeated(run, loaded, saved, shown, told)
    except (HeedmapError, OSError, MemoryError, typer.Exit, typer.Abort):
        raise
    except Exception as error:  # otherwise it would look as if the pictures differed
        if "out of memory" in str(error).lower():
            raise
        fail(f"{run} could not be drawn again ({type(error).__name__}: {error})")
    if not same:
        raise typer.Exit(1)


def _repeated(
    run: Path, loaded: ReloadFlags, saved: SaveIfNamedFlags, shown: PageFlags, told: OutputFlags
) -> bool:
    """Draw a saved run again, and say whether it is the same."""
    from heedmap.files.writing import Destination
    from heedmap.results import folders

    if shown.browser and saved.out is None:
        raise ArgumentError("--open opens what is saved, and nothing is: name a folder with --out")
    place = None if saved.out is None else Destination(saved.out)
    former = folders.load_result(run)  # before a model is loaded
    with loading(loaded.model, hidden=told.hidden):
        from heedmap.drawing import repeating

        pipe = repeating.load_for(former, loaded.model, device=loaded.device, dtype=loaded.dtype)
    with (
        kept_told(place.saved if place else []),
        warnings_told() as warned,
        progress_bar("Drawing", hidden=told.hidden) as advance,
    ):
        found = repeating.repeat(pipe, former, progress=advance)
        folder = None if place is None else str(place.put(found.run.save, run.name))
    told.tell(
        {"run": str(run), **found.to_dict(), "folder": folder, "warnings": warned},
        [folder] if folder else [],
        lambda: print_repetition(str(run), found, folder),
    )
    shown.open([folder] if folder else [])
    return found.same


def print_repetition(run: str, found: "Repetition", folder: str | None) -> None:
    """Print whether it is the same, what is not as it was, and where it was saved."""
    say(printable(f"{run}: {str(found)[0].lower()}{str(found)[1:]}"))
    for name, (noted, now) in found.changed.items():
        what = "set up as noted" if name.startswith("schedulers.") else "not as noted"
        say(printable(f"  {name}: {_short(noted)}, here {_short(now)} ({what})"))
    if folder:
        say(printable(f"  saved in {folder}"))


def _short(value: Any) -> str:
    text = "nothing" if value is None else value
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
