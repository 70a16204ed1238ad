"""`heedmap generate`: an image, and where each word of its prompt acted."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli import console, inspect
from heedmap.cli import options as opt
from heedmap.errors import plural
from heedmap.options import GenerateOptions, LoadOptions
from heedmap.text import option_texts

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMaps
    from heedmap.results.runs import Run

KEEP = ",".join(GenerateOptions.keep)
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


def generate(
    prompt: opt.Prompt,
    *,
    model: opt.Model = None,
    device: opt.Device = LoadOptions.device,
    dtype: opt.Dtype = LoadOptions.dtype,
    seed: opt.Seed = None,
    steps: opt.Steps = None,
    guidance: opt.Guidance = None,
    size: opt.Size = None,
    negative: opt.Negative = None,
    keep: opt.Keep = KEEP,
    count: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of images; seeds count up from --seed.")
    ] = 1,
    confine: Annotated[
        list[Any] | None,
        typer.Option(
            parser=opt.reader(option_texts.box_in),
            metavar="WORD=L,T,R,B",
            help="Keep a word inside a box, in pixels. May be repeated.",
        ),
    ] = None,
    concept: opt.Concepts = None,
    out: opt.OutOfSeveral = None,
    open_: opt.Open = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Generate an image of PROMPT and show where each word acted.

    Saves the image, an overlay for each word, a sheet of them all, the maps and the settings.
    """
    from heedmap.io.writing import slug

    place = console.destination(out, several=count > 1)
    pipe = console.load_model(model, device, dtype, quiet or json)
    from heedmap.pipelines import generation
    from heedmap.recording.edits import Confine

    edits = [Confine(word, box) for word, box in confine or ()]
    runs: list[dict[str, Any]] = []
    with console.sampling("Sampling", quiet or json) as (warnings, advance):
        for number in range(count):

            def progress(step: int, total: int, before: int = number) -> None:
                advance(before * total + step, count * total)

            run = generation.generate(
                pipe,
                prompt,
                seed=seed,
                steps=steps,
                guidance=guidance,
                size=size,
                negative=negative,
                keep=keep,
                edits=edits,
                concepts=concept or (),
                progress=progress,
            )
            seed = run.settings.seed
            folder = place.put(run.save, f"{slug(prompt, 48)}-{seed}")
            runs.append(run_summary(folder, run))
            seed += 1

    def show() -> None:
        for run in runs:
            print_run(run)

    folders = [run["folder"] for run in runs]
    console.print_result({"runs": runs, "warnings": warnings}, folders, show, json, quiet)
    if open_:
        console.open_in_browser(Path(folders[0]) / "index.html")


def run_summary(folder: Path, run: "Run") -> dict[str, Any]:
    """Describe a saved run for `--json`."""
    from heedmap.results.runs import word_file

    names = ("prompt", "seed", "steps", "guidance", "size", "model")
    files = {name: folder / file for name, file in FILES.items() if (folder / file).exists()}

    def words(maps: "HeatMaps | None", key: str, prefix: str = "") -> list[dict[str, Any]]:
        return (
            [
                {
                    "number": word.number,
                    key: word.text,
                    "file": str(folder / word_file(word, prefix)),
                    **inspect.stability_of(maps.at(word.number), maps),
                }
                for word in maps.words
            ]
            if maps is not None
            else []
        )

    return {
        "folder": str(folder),
        **{name: getattr(run.settings, name) for name in names},
        "size": list(run.image.size),
        **{name: str(file) for name, file in files.items()},
        "words": words(run.maps, "word"),
        "concepts": words(run.concepts, "concept", "concept-"),
    }


def print_run(run: Mapping[str, Any]) -> None:
    """Print the words of a saved run and their files."""
    words = [*run["words"], *run["concepts"]]
    stability = inspect.stability_column(words)
    rows = [
        (one.get("word") or one["concept"], *more, one["file"])
        for one, more in zip(words, stability[1:], strict=True)
    ]
    size = "×".join(map(str, run["size"]))
    console.print_table(("word", *stability[0], "map"), rows, run["folder"])
    typer.echo(f"{run['image']}: {size}, seed {run['seed']}, {plural(run['steps'], 'step')}.")
    typer.echo(f"Open {run['page']}; all maps are in {run['sheet']}.")
