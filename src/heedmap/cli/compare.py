"""`heedmap compare`: saved runs on one sheet; no model is loaded."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import heedmap as hm
from heedmap.cli.console import Task, print_table
from heedmap.cli.inspect import COLUMNS, heat_cells, heat_summary
from heedmap.cli.options import command
from heedmap.errors import ArgumentError, WordError

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMap
    from heedmap.results.runs import Run


@command(out="one in outputs/")
def compare(
    task: Task,
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="The folders of two or more saved runs.")
    ],
    *,
    word: Annotated[
        list[str] | None,
        typer.Option(
            "--word",
            "-w",
            help="A word or phrase. May be repeated. Default: the words that all prompts share.",
        ),
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"],
        typer.Option(help="One colour scale for all, one for each word, or from 0 to 1."),
    ] = "shared",
    kind: Annotated[
        Literal["png", "svg", "pdf"] | None,
        typer.Option("--format", help="Of the file. Default: by its name, or png."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .png, .svg or .pdf file. Default: one in outputs/."),
    ] = None,
) -> None:
    """Compare the maps of saved runs on one sheet.

    No model is loaded. The rows are labelled by what differs among the runs.
    """
    from heedmap.figures.plots import encode
    from heedmap.io import writing
    from heedmap.results.runs import common_words, labels

    runs = [hm.Run.load(folder) for folder in folders]
    path = out or default_file(folders, kind or "png")
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in ([kind] if kind else ["png", "svg", "pdf"]) or path.is_dir():
        raise ArgumentError(
            f"{path} is no name of a figure: expected a file that ends in .{kind or 'png'}"
        )
    words = list(dict.fromkeys(word or common_words(runs)))
    data = encode(hm.compare(runs, words, scale=scale), suffix)
    if out is None:
        path = writing.put_counting(path, lambda free: writing.put_file(free, data))
    else:
        writing.put_file(path, data)
    heats = [{word: map_of(run, word) for word in words} for run in runs]
    names = labels(runs)
    if task.verbose:
        rows = [
            (label, word, *(heat_cells(heat) if heat else "---"))
            for label, of_words in zip(names, heats, strict=True)
            for word, heat in of_words.items()
        ]
        print_table(("run", "word", *COLUMNS), rows, path)
        typer.echo("Shares of attention, averaged over all layers, heads and steps of a run.")
    found = [
        {word: heat and heat_summary(heat) for word, heat in of_words.items()} for of_words in heats
    ]
    summary = {
        "file": str(path),
        "scale": scale,
        "words": words,
        "runs": [
            {"run": str(folder), "label": label, "words": of_words}
            for folder, label, of_words in zip(folders, names, found, strict=True)
        ],
    }
    task.finish(summary, [path], path)


def map_of(run: "Run", word: str) -> "HeatMap | None":
    """Return the map of a word; None if the run did not read it."""
    try:
        return run.maps[word]
    except WordError:
        return None


def default_file(folders: list[Path], kind: str) -> Path:
    """Name a file in outputs/ after runs; a side of an edit also by the edit."""
    from heedmap.io.writing import slug

    paths = [folder.resolve() for folder in folders]
    sides = ("source", "edited")
    names = [f"{one.parent.name} {one.name}" if one.name in sides else one.name for one in paths]
    return Path("outputs") / f"{slug(' '.join(['compare', *names]), 100)}.{kind}"
