"""`heedmap compare`: saved runs on one sheet; no model is loaded."""

import functools
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import heedmap as hm
from heedmap.cli.console import Task, print_table
from heedmap.cli.inspect import COLUMNS, heat_cells, heat_summary
from heedmap.cli.options import command
from heedmap.errors import ArgumentError


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
    names = " ".join(["compare", *(folder.resolve().name for folder in folders)])
    path = out or Path("outputs") / f"{writing.slug(names, 100)}.{kind or 'png'}"
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in ([kind] if kind else ["png", "svg", "pdf"]) or path.is_dir():
        raise ArgumentError(
            f"{path} is no name of a figure: expected a file that ends in .{kind or 'png'}"
        )
    words = list(dict.fromkeys(word or common_words(runs)))
    sheet = encode(hm.compare(runs, words, scale=scale), suffix)
    save = functools.partial(writing.put_file, data=sheet)
    path = writing.put_counting(path, save) if out is None else save(path)
    found: list[dict[str, Any]] = []
    rows: list[tuple[str, ...]] = []
    for folder, run, label in zip(folders, runs, labels(runs), strict=True):
        heats = {word: run.maps[word] for word in words if word in run.maps}
        cells = {word: heat_cells(heat) for word, heat in heats.items()}
        rows += [(label, word, *cells.get(word, "---")) for word in words]
        numbers = {word: heat_summary(heat) for word, heat in heats.items()}
        numbers = dict.fromkeys(words) | numbers
        found.append({"run": str(folder), "label": label, "words": numbers})
    if task.verbose:
        print_table(("run", "word", *COLUMNS), rows, path)
        typer.echo("Shares of attention, averaged over all layers, heads and steps of a run.")
    data = {"file": str(path), "scale": scale, "words": words, "runs": found}
    task.finish(data, [path], path)
