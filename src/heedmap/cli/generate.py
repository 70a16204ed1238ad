"""`heedmap generate` and `heedmap locate`: an image, and where each word is read in it."""

from pathlib import Path
from typing import Annotated, Any

import typer

import heedmap as hm
from heedmap.cli.console import (
    EMBEDDED,
    OUTPUT,
    OUTPUTS,
    Count,
    Prompt,
    Seed,
    Task,
    command,
    parsed,
    print_table,
    whole,
)
from heedmap.errors import plural
from heedmap.options import LOCATE_STEPS, GenerateOptions
from heedmap.parsing import parse_box

MOST_ROWS = 20
"""Words that are listed."""
FILES = {
    "image": "image.png",
    "page": "index.html",
    "sheet": "sheet.png",
    "maps": "maps.safetensors",
    "settings": "run.json",
    "step_pictures": "steps.png",
    "concept_sheet": "concepts.png",
    "concept_maps": "concepts.safetensors",
}


@command(GenerateOptions, model=EMBEDDED, out=OUTPUTS)
def generate(
    task: Task,
    prompt: Prompt,
    *,
    seed: Seed = None,
    count: Count = 1,
    confine: Annotated[
        list[Any] | None,
        parsed(
            parse_box,
            "WORD=L,T,R,B",
            "Keep a word inside a box, in pixels. May be repeated.",
        ),
    ] = None,
    **options: Any,
) -> None:
    """Generate an image of PROMPT and show where the model read each word.

    Saves the image, an overlay for each word, a sheet of them all, the maps and the settings.
    """
    from heedmap.io.writing import slug

    place = task.place(several=count > 1)
    runs: list[dict[str, Any]] = []
    with task.sampling() as (pipe, advance):
        from heedmap.pipelines.generation import sub_progress

        edits = [hm.Confine(word, box) for word, box in confine or ()]
        for number in range(count):
            progress = sub_progress(advance, number, count)
            run = hm.generate(
                pipe, prompt, seed=seed, edits=edits, progress=progress, **options
            )
            seed = run.settings.seed
            folder = place.put(run.save, f"{slug(prompt, 48)}-{seed}")
            runs.append(_run_json(folder, run))
            seed += 1
    _finish(task, runs)


@command(GenerateOptions, model=EMBEDDED, out=OUTPUT, without="guidance negative")
def locate(
    task: Task,
    image: Annotated[
        Path, typer.Argument(metavar="IMAGE", help="An image: PNG, JPEG, WebP or BMP.")
    ],
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="What to find in it.")
    ],
    *,
    seed: Seed = None,
    steps: Annotated[
        Any, whole("steps", "Number of noise levels to average over.", 1)
    ] = LOCATE_STEPS,
    **options: Any,
) -> None:
    """Show where the model sees each word of PROMPT in IMAGE.

    No image is generated: noise is added to IMAGE at several levels, and the model's attention is
    averaged. Saves what `generate` saves; `heedmap segment` makes masks of it.
    """
    from heedmap.io.writing import slug

    place = task.place()
    with task.sampling() as (pipe, progress):
        run = hm.locate(
            pipe, image, prompt, seed=seed, steps=steps, progress=progress, **options
        )
        name = f"{slug(image.stem, 24)}-{slug(prompt, 48)}-{run.settings.seed}"
        folder = place.put(run.save, name)
    _finish(task, [_run_json(folder, run)])


def _finish(task: Task, runs: list[dict[str, Any]]) -> None:
    if task.verbose:
        for run in runs:
            rows = [
                (one.get("word") or one["concept"], one["file"])
                for one in (*run["words"], *run["concepts"])
            ]
            print_table(("word", "map"), rows[:MOST_ROWS], run["folder"])
            if len(rows) > MOST_ROWS:
                typer.echo(f"and {plural(len(rows) - MOST_ROWS, 'more word')}")
            size = "×".join(map(str, run["size"]))
            steps = plural(run["steps"], "step")
            typer.echo(f"{run['image']}: {size}, seed {run['seed']}, {steps}.")
            typer.echo(f"Open {run['page']}; all maps are in {run['sheet']}.")
    task.finish({"runs": runs}, [run["folder"] for run in runs], runs[0]["page"])


def _run_json(folder: Path, run: "hm.Run") -> dict[str, Any]:
    from heedmap.results.runs import word_file

    names = ("prompt", "seed", "steps", "guidance", "model")
    data = {name: getattr(run.settings, name) for name in names}
    data |= {"folder": str(folder), "size": list(run.image.size)}
    data |= {
        name: str(folder / file)
        for name, file in FILES.items()
        if (folder / file).exists()
    }
    for kind, maps, prefix in (
        ("word", run.maps, ""),
        ("concept", run.concepts, "concept-"),
    ):
        data[f"{kind}s"] = [
            {
                "number": word.number,
                kind: word.text,
                "file": str(folder / word_file(word, prefix)),
            }
            for word in (maps.words if maps else ())
        ]
    return data
