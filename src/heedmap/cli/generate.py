"""`heedmap generate` and `heedmap locate`: an image, and where each word is read in it."""

from pathlib import Path
from typing import Annotated, Any

import typer

import heedmap as hm
from heedmap.cli.console import (
    EMBEDDED,
    OUTPUT,
    OUTPUTS,
    Prompt,
    Seed,
    Task,
    command,
    parsed,
    summary,
)
from heedmap.options import LOCATE_STEPS, GenerateOptions
from heedmap.parsing import parse_box

_CONFINE = "Keep a word inside a box, in pixels. May be repeated."
_EXCITE = (
    "Change the image so that a word is read strongly somewhere, to draw what is missing. May be "
    "repeated."
)
_INSIDE = (
    "Change the image so that a word is read inside a box, in pixels. May be repeated."
)


ExcitedWords = Annotated[list[str] | None, typer.Option(metavar="WORD", help=_EXCITE)]
InsideBoxes = Annotated[list[Any] | None, parsed(parse_box, "WORD=L,T,R,B", _INSIDE)]


def guides(excite: list[str] | None, inside: list[Any] | None) -> list[Any]:
    """Return the guides of the options `--excite` and `--inside`."""
    boxes = [hm.Inside(word, box) for word, box in inside or ()]
    return [*map(hm.Excite, excite or ()), *boxes]


@command(GenerateOptions, model=EMBEDDED, out=OUTPUTS)
def generate(
    task: Task,
    prompt: Prompt,
    *,
    seed: Seed = None,
    count: Annotated[
        int, typer.Option(min=1, help="Number of seeds, from --seed up.")
    ] = 1,
    confine: Annotated[
        list[Any] | None, parsed(parse_box, "WORD=L,T,R,B", _CONFINE)
    ] = None,
    excite: ExcitedWords = None,
    inside: InsideBoxes = None,
    **options: Any,
) -> None:
    """Generate an image of PROMPT and show where the model read each word.

    Saves the image, an overlay for each word, a sheet of them all, the maps and the settings.
    """
    from heedmap.results.grids import result_name

    edits = [hm.Confine(word, box) for word, box in confine or ()]
    place = task.place(several=count > 1)
    runs: dict[Path, hm.Run] = {}
    pipe = task.load()
    for _ in range(count):
        run = hm.generate(
            pipe,
            prompt,
            seed=seed,
            edits=edits,
            guide=guides(excite, inside),
            **options,
        )
        runs[place.put(run.save, result_name(run))] = run
        seed = run.settings.seed + 1
    _finish(task, runs)


@command(GenerateOptions, model=EMBEDDED, out=OUTPUT, without="guidance negative")
def locate(
    task: Task,
    image: Annotated[
        Path, typer.Argument(exists=True, help="An image: PNG, JPEG, WebP or BMP.")
    ],
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="What to find in it.")
    ],
    *,
    seed: Seed = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Number of noise levels to average over.")
    ] = LOCATE_STEPS,
    **options: Any,
) -> None:
    """Show where the model sees each word of PROMPT in IMAGE.

    No image is generated: noise is added to IMAGE at several levels, and the model's attention is
    averaged. Saves what `generate` saves; `heedmap segment` makes masks of it.
    """
    from heedmap.io.writing import slug
    from heedmap.results.grids import result_name

    place = task.place()
    run = hm.locate(task.load(), image, prompt, seed=seed, steps=steps, **options)
    name = f"{slug(image.stem, 24)}-{result_name(run)}"
    _finish(task, {place.put(run.save, name): run})


def _finish(task: Task, runs: dict[Path, "hm.Run"]) -> None:
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    for folder, run in runs.items():
        lines += summary(folder, run)
        data.append({"folder": str(folder), "settings": run.settings})
    task.finish({"runs": data}, [*runs], lines)
