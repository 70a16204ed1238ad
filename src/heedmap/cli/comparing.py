"""`heedmap compare`: saved runs below one another on one sheet; no model is loaded."""

import itertools
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedmap.cli.console import print_json, print_lines, print_table
from heedmap.cli.options import Json
from heedmap.errors import ArgumentError, WordError

if TYPE_CHECKING:
    from heedmap.runs import Run


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="The folders of two or more saved runs."),
    ],
    word: Annotated[
        list[str] | None,
        typer.Option(
            "--word",
            "-w",
            metavar="WORD",
            help="A word or phrase; may be repeated. Left out: those that all prompts have.",
        ),
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"],
        typer.Option(
            help="Colours by one scale for all, by one for each word in all runs, or from 0 to 1."
        ),
    ] = "shared",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE.png", help="Left out: a new file in outputs/, by the runs."
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the file's name only.")
    ] = False,
    json: Json = False,
) -> None:
    """Compare saved runs: a row each, with its picture and where the words acted.

    No model is loaded. Saves one sheet, on one scale; what differs among the runs labels them.
    """
    from heedmap import comparisons, pictures, runs

    path = out or free_file([folder.resolve().name for folder in folders])
    if path.suffix.lower() != ".png" or path.is_dir():
        raise ArgumentError(f"{path} is no name for the sheet: expected a file that ends in .png.")
    loaded = [runs.Run.load(folder) for folder in folders]
    words = word or comparisons.common_words(loaded)
    sheet = comparisons.compare(loaded, words, scale=scale)
    about = {
        "file": str(path),
        "scale": scale,
        "words": list(dict.fromkeys(words)),
        "runs": [
            about_run(folder, run, label, words)
            for folder, run, label in zip(folders, loaded, comparisons.labels(loaded), strict=True)
        ],
    }
    write_whole(path, pictures.png(sheet))
    if json:
        print_json(about)
    elif quiet:
        print_lines([str(path)])
    else:
        print_comparison(about)


def about_run(folder: Path, run: "Run", label: str, words: Sequence[str]) -> dict[str, Any]:
    """What `compare --json` says of a run: how much each word drew, null where it is not read."""
    found: dict[str, Any] = {}
    for word in words:
        try:
            heat = run.maps[word]
        except WordError:
            found[word] = None
        else:
            found[word] = {
                "most": round(float(heat.values.max()), 6),
                "mean": round(float(heat.values.mean()), 6),
                "peak": list(heat.peak),
            }
    return {"run": str(folder), "label": label, "words": found}


def print_comparison(about: Mapping[str, Any]) -> None:
    """Print how much each word drew in each run, and where most."""
    rows = [
        (
            run["label"],
            word,
            *(
                (f"{drew['most']:.3f}", f"{drew['mean']:.3f}", "{}, {}".format(*drew["peak"]))
                if drew
                else ("-", "-", "-")
            ),
        )
        for run in about["runs"]
        for word, drew in run["words"].items()
    ]
    print_table(("run", "word", "most", "mean", "hottest at"), rows, title=about["file"])
    typer.echo("Shares of attention, averaged over all layers, heads and steps of a run.")


def free_file(names: Sequence[str], root: str | Path = "outputs") -> Path:
    """A file below `root` that is not there yet, named after the runs."""
    from heedmap.runs import slug

    stem = slug(f"compare {' '.join(names)}", 100)
    tries = itertools.chain([stem], (f"{stem}-{n}" for n in itertools.count(2)))
    return next(p for p in (Path(root) / f"{name}.png" for name in tries) if not p.exists())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that takes its place when all is written, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".heedmap.", dir=path.parent) as scratch:
        partial = Path(scratch) / path.name
        partial.write_bytes(data)
        os.replace(partial, path)
