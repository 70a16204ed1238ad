"""`heedmap compare`: saved runs on one sheet; no model is loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedmap.cli import console, inspect
from heedmap.cli import options as opt
from heedmap.errors import ArgumentError, WordError

if TYPE_CHECKING:
    from heedmap.results.runs import Run


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="The folders of two or more saved runs.")
    ],
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
    *,
    kind: Annotated[
        Literal["png", "svg", "pdf"] | None,
        typer.Option("--format", help="Of the file. Default: by its name, or png."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .png, .svg or .pdf file. Default: one in outputs/."),
    ] = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Compare the maps of saved runs on one sheet.

    No model is loaded. The rows are labelled by what differs among the runs.
    """
    from heedmap.figures.plots import encode
    from heedmap.io import writing
    from heedmap.results import runs

    loaded = [runs.Run.load(folder) for folder in folders]
    path = out or default_file(folders, kind or "png")
    found = path.suffix.lower().removeprefix(".")
    if found not in ([kind] if kind else ["png", "svg", "pdf"]) or path.is_dir():
        raise ArgumentError(
            f"{path} is no name of a figure: expected a file that ends in .{kind or 'png'}"
        )
    words = word or runs.common_words(loaded)
    data = encode(runs.compare(loaded, words, scale=scale), found)
    if out is None:
        path = writing.put_counting(path, lambda free: writing.put_file(free, data))
    else:
        writing.put_file(path, data)
    labels = runs.labels(loaded)
    summary = {
        "file": str(path),
        "scale": scale,
        "words": list(dict.fromkeys(words)),
        "runs": [
            {"run": str(folder), "label": label, "words": word_summaries(run, words)}
            for folder, run, label in zip(folders, loaded, labels, strict=True)
        ],
    }
    console.print_result(summary, [path], lambda: print_comparison(summary), json, quiet)


def word_summaries(run: "Run", words: Sequence[str]) -> dict[str, Any]:
    """Describe the maps of words; None for a word that the run did not read."""
    found: dict[str, Any] = {}
    for word in words:
        try:
            found[word] = inspect.heat_summary(run.maps[word])
        except WordError:
            found[word] = None
    return found


def print_comparison(summary: Mapping[str, Any]) -> None:
    """Print the figures of each word in each run."""
    rows = [
        (run["label"], word, *(inspect.heat_cells(heat) if heat else ("-", "-", "-")))
        for run in summary["runs"]
        for word, heat in run["words"].items()
    ]
    console.print_table(("run", "word", *inspect.COLUMNS), rows, summary["file"])
    typer.echo("Shares of attention, averaged over all layers, heads and steps of a run.")


def default_file(folders: Sequence[Path], kind: str) -> Path:
    """Name a file in outputs/ after runs; a side of an edit also by the edit."""
    from heedmap.io.writing import slug

    paths = [folder.resolve() for folder in folders]
    sides = ("source", "edited")
    names = [f"{one.parent.name} {one.name}" if one.name in sides else one.name for one in paths]
    return Path("outputs") / f"{slug(' '.join(['compare', *names]), 100)}.{kind}"
