"""`heedmap dataset`: the masks of many saved runs as one data set; no model is loaded."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import heedmap as hm
from heedmap.cli.console import Task, command, parsed
from heedmap.parsing import parse_names

_FOLDER = "A folder of saved runs, such as that of a sweep or a grid."
_FORMAT = (
    "coco: annotations.json. voc: images with a palette. png: grey levels are classes."
)
_WORDS = "Words or phrases, which name the classes. Default: all phrases."
_CLASSES = "Name a class by its phrase, 'red house', or its noun, 'house'."


@command(out="a new one in DIR/dataset", without="open_")
def dataset(
    task: Task,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help=_FOLDER)],
    *,
    format: Annotated[
        Literal["coco", "voc", "png"], typer.Option(help=_FORMAT)
    ] = "coco",
    words: Annotated[Any, parsed(parse_names, "WORD,…", _WORDS)] = None,
    classes: Annotated[
        Literal["phrase", "noun"], typer.Option(help=_CLASSES)
    ] = "phrase",
) -> None:
    """Save the masks of all runs in a folder as one data set.

    No model is loaded. Runs are looked for in all folders below DIR. A class has the same number in
    all images; 0 is the background.
    """
    save = partial(
        hm.dataset,
        folder,
        format=format,
        words=words,
        classes=classes,
        show_progress=task.bars,
    )
    saved = task.place(folder / "dataset").put(save, format)
    task.finish({"folder": str(saved)}, [saved], page="")
