"""`heedmap generate`: a prompt's picture, and where each word acted."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli.console import print_files, progress_bar, warnings_told
from heedmap.cli.interrupts import kept_told
from heedmap.cli.options import (
    Concepts,
    DrawFlags,
    LoadFlags,
    OutputFlags,
    PageFlags,
    SaveFlags,
    grouped,
)
from heedmap.cli.parsing import check_words, parse_box
from heedmap.errors import ArgumentError, plural

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMaps
    from heedmap.results.runs import Run
    from heedmap.text.words import Word


@grouped
def generate(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to draw.")],
    *,
    loaded: LoadFlags,
    drawn: DrawFlags,
    count: Annotated[
        int,
        typer.Option(
            min=1, max=10_000, metavar="N", help="So many pictures, of the seeds from --seed on."
        ),
    ] = 1,
    confine: Annotated[
        list[Any] | None,
        typer.Option(
            parser=parse_box,
            metavar="WORD=L,T,R,B",
            help="Keep what the word names inside of a box (left, top, right, bottom), in pixels; "
            "may be repeated.",
        ),
    ] = None,
    concept: Concepts = None,
    saved: SaveFlags,
    shown: PageFlags,
    told: OutputFlags,
) -> None:
    """Draw PROMPT and show where each word acted.

    Saves the picture, an overlay for each word, a sheet of them all, the maps and the settings.
    """
    from heedmap.files.writing import Destination, slug
    from heedmap.text.concepts import checked_concepts

    instead = "`heedmap locate` looks at a picture of yours, and `heedmap edit --image` edits one"
    check_words("PROMPT", prompt, instead)
    place = Destination(saved.out, many=count > 1)
    concepts = checked_concepts(concept or ())  # before a model is loaded
    abouts: list[dict[str, Any]] = []
    pipe = loaded.pipeline(hidden=told.hidden)
    from heedmap.drawing import generation
    from heedmap.files.values import MAX_WHOLE
    from heedmap.recording.edits import Confine

    edits = [Confine(word, box) for word, box in confine or ()]
    asked = {"edits": edits, "concepts": concepts, **drawn.options()}
    with (
        kept_told(place.saved),
        warnings_told() as warned,
        progress_bar("Drawing", hidden=told.hidden) as advance,
    ):
        first = drawn.first_seed()
        if first + count - 1 > MAX_WHOLE:
            raise ArgumentError(
                f"--count {count} from seed {first} on leads beyond the largest seed, 2**63 - 1: "
                "lower one of them"
            )
        for number in range(count):  # one by one: the pictures are those of the seeds alone

            def report(step: int, total: int, before: int = number) -> None:
                advance(before * total + step, count * total)

            seed = first + number
            run = generation.generate(pipe, prompt, seed=seed, progress=report, **asked)
            folder = place.put(run.save, f"{slug(prompt, 48)}-{seed}")
            abouts.append(about_run(folder, run))

    def show() -> None:
        for about in abouts:
            print_run(about)

    folders = [about["folder"] for about in abouts]
    told.tell({"runs": abouts, "warnings": warned}, folders, show)
    shown.open(folders)


def about_run(folder: Path, run: "Run") -> dict[str, Any]:
    """What `generate --json` says of a run."""
    from heedmap.results.runs import concept_file, word_file

    told = ("prompt", "seed", "steps", "guidance", "size", "model")
    files = {
        "image": "image.png",
        "page": "index.html",
        "sheet": "sheet.png",
        "maps": "maps.safetensors",
        "settings": "run.json",
    }
    beside = {
        "step_pictures": ("steps.png", run.step_pictures),
        "concept_sheet": ("concepts.png", run.concepts),
        "concept_maps": ("concepts.safetensors", run.concepts),
    }
    files |= {name: file for name, (file, there) in beside.items() if there is not None}
    return {
        "folder": str(folder),
        **{name: getattr(run.settings, name) for name in told},
        "size": list(run.image.size),
        **{name: str(folder / file) for name, file in files.items()},
        "words": [
            {
                "number": word.number,
                "word": word.text,
                "file": str(folder / word_file(word)),
                **_stable(run.maps, word),
            }
            for word in run.maps.words
        ],
        "concepts": [
            {
                "concept": word.text,
                "file": str(folder / concept_file(word)),
                **_stable(run.concepts, word),
            }
            for word in (() if run.concepts is None else run.concepts.words)
        ],
    }


def _stable(maps: "HeatMaps | None", word: "Word") -> dict[str, float]:
    """How stable a word's map is over noises, where that is known."""
    known = {} if maps is None else maps.stability or {}
    return {"stability": known[word.number]} if word.number in known else {}


def files_beside(about: Mapping[str, Any]) -> dict[str, str]:
    """What lies in a run's folder beside what each has: by its file, what it is."""
    said = {
        "step_pictures": "the picture at each step, small, row by row",
        "concept_sheet": "what was looked for beside the prompt, on one scale",
        "concept_maps": "the maps of that",
    }
    return {about[name]: what for name, what in said.items() if name in about}


def print_run(about: Mapping[str, Any]) -> None:
    """Print what was saved: each file and what it is."""
    size = "×".join(map(str, about["size"]))
    steps = plural(about["steps"], "step")
    files = {
        about["image"]: f"the picture: {size}, seed {about['seed']}, {steps}",
        about["page"]: "the page: point at words and places; open it in a browser",
        about["sheet"]: "the picture and where each word acted, on one scale",
        **{word["file"]: f"where “{word['word']}” acted" for word in about["words"]},
        **{one["file"]: f"where “{one['concept']}” would act" for one in about["concepts"]},
        about["maps"]: "the maps, for `heedmap inspect`",
        **files_beside(about),
        about["settings"]: "all that is needed to draw it again",
    }
    print_files(about["folder"], files)
