"""`heedmap compare`: saved runs below one another on one sheet; no model is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedmap.cli.console import print_table, say
from heedmap.cli.heats import HEAT_COLUMNS, about_heat, heat_cells
from heedmap.cli.options import Format, OutputFlags, grouped, out_option
from heedmap.cli.parsing import parse_path
from heedmap.errors import ArgumentError, WordError

if TYPE_CHECKING:
    from heedmap.results.runs import Run


@dataclass(frozen=True)
class SheetFileFlags:
    """Where the sheet goes: one file, and no folder."""

    out: Annotated[
        Path | None,
        out_option(
            "FILE",
            "A file, .png, .svg or .pdf; replaced if it exists. Left out: one in outputs/, by the "
            "runs.",
        ),
    ] = None
    kind: Format = None


@dataclass(frozen=True)
class SheetOutputFlags(OutputFlags):
    """What is printed of it."""

    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the file's name only.")] = (
        False
    )


@grouped
def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(
            parser=parse_path, metavar="RUN", help="The folders of two or more saved runs."
        ),
    ],
    word: Annotated[
        list[str] | None,
        typer.Option(
            "--word",
            "-w",
            metavar="WORD",
            help="A word or phrase; may be repeated. Left out: those that all prompts have, but "
            "for articles and the like.",
        ),
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"],
        typer.Option(
            help="Colours by one scale for all, by one for each word in all runs, or from 0 to 1."
        ),
    ] = "shared",
    *,
    saved: SheetFileFlags,
    told: SheetOutputFlags,
) -> None:
    """Compare saved runs on one sheet: where did the words act?

    No model is loaded. Saves one sheet, on one scale; what differs among the runs labels them.
    """
    from heedmap.figures import formats
    from heedmap.files import writing
    from heedmap.results import comparisons, runs

    out, kind = saved.out, saved.kind
    # First, since only what is there can be resolved: links may go round in circles.
    loaded = [runs.Run.load(folder) for folder in folders]
    path = out or default_file([folder.resolve() for folder in folders], kind or "png")
    writing.check_place(path.parent)
    found = formats.format_of(path)
    if path.is_dir() or (kind or found) != found:
        wanted = f"a file that ends in .{kind}" if kind else "a file, and this is a folder"
        raise ArgumentError(f"{path} is not a name for the figure: expected {wanted}")
    words = word or comparisons.common_words(loaded)
    sheet = comparisons.compare(loaded, words, scale=scale)
    data = sheet.data(found)
    if out is None:
        path = writing.put_counting(path, lambda free: writing.put_file(free, data))
    else:
        writing.put_file(out, data)
    about = {
        "file": str(path),
        "scale": scale,
        "words": list(dict.fromkeys(words)),
        "runs": [
            about_compared(folder, run, label, words)
            for folder, run, label in zip(folders, loaded, comparisons.labels(loaded), strict=True)
        ],
    }
    told.tell(about, [str(path)], lambda: print_comparison(about))


def about_compared(folder: Path, run: "Run", label: str, words: Sequence[str]) -> dict[str, Any]:
    """What `compare --json` says of a run: how much each word drew, null where it was not read."""
    found: dict[str, Any] = {}
    for word in words:
        try:
            found[word] = about_heat(run.maps[word])
        except WordError:
            found[word] = None
    return {"run": str(folder), "label": label, "words": found}


def print_comparison(about: Mapping[str, Any]) -> None:
    """Print how much each word drew in each run, and where most."""
    rows = [
        (run["label"], word, *(heat_cells(drew) if drew else ("-", "-", "-")))
        for run in about["runs"]
        for word, drew in run["words"].items()
    ]
    print_table(("run", "word", *HEAT_COLUMNS), rows, title=about["file"])
    say("Shares of attention, averaged over all layers, heads and steps of a run.")


def default_file(folders: Sequence[Path], kind: str) -> Path:
    """A file in outputs/, named after the runs; "edited" alone would not say of which edit."""
    from heedmap.files.writing import slug

    sides = ("source", "edited")
    names = [f"{one.parent.name} {one.name}" if one.name in sides else one.name for one in folders]
    return Path("outputs") / f"{slug(' '.join(['compare', *names]), 100)}.{kind}"
