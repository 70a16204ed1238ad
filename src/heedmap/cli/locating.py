"""`heedmap locate`: where the model sees each word of a prompt in a picture that one has."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from heedmap.cli.console import print_files, progress_bar, say, warnings_told
from heedmap.cli.generating import about_run, files_beside
from heedmap.cli.interrupts import kept_told
from heedmap.cli.options import (
    Concepts,
    Keep,
    LoadFlags,
    OutputFlags,
    PageFlags,
    SaveFlags,
    Seed,
    Size,
    grouped,
)
from heedmap.cli.parsing import check_words, parse_path
from heedmap.errors import plural
from heedmap.options import LocateOptions

_KEEP = ",".join(LocateOptions.keep)  # as a user writes it


@dataclass(frozen=True)
class LookFlags:
    """How the model looks."""

    seed: Seed = None
    steps: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="How often it looks, each time with other noise."),
    ] = LocateOptions.steps
    size: Size = LocateOptions.size
    keep: Keep = _KEEP

    def options(self) -> dict[str, Any]:
        """By their names in Python."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@grouped
def locate(
    image: Annotated[
        Path,
        typer.Argument(
            parser=parse_path, metavar="IMAGE", help="A picture: PNG, JPEG, WebP or BMP."
        ),
    ],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What is to be found in it.")],
    *,
    loaded: LoadFlags,
    looked: LookFlags,
    concept: Concepts = None,
    saved: SaveFlags,
    shown: PageFlags,
    told: OutputFlags,
) -> None:
    """Show where the model sees each word of PROMPT in IMAGE.

    Nothing is drawn: the model is shown the picture with noise, several times. Saves what
    `generate` saves; `heedmap segment` makes masks of it.
    """
    from heedmap.files import kinds, reading
    from heedmap.files.writing import Destination, slug
    from heedmap.text.concepts import checked_concepts

    check_words("PROMPT", prompt, "name the picture first, and then what is to be found in it")
    place = Destination(saved.out, kinds.RUN, force=saved.force)
    concepts = checked_concepts(concept or ())  # before a model is loaded
    picture = reading.read_photograph(image)
    pipe = loaded.pipeline(hidden=told.hidden)
    from heedmap.drawing import locating

    with (
        kept_told(place.places),
        warnings_told() as warned,
        progress_bar("Looking", hidden=told.hidden) as advance,
    ):
        asked = {"concepts": concepts, **looked.options()}
        run = locating.locate(pipe, picture, prompt, progress=advance, **asked)
        name = f"{slug(image.stem, 24)}-{slug(prompt, 48)}-{run.settings.seed}"
        folder = place.put(run.save, name)
        about = about_run(folder, run)
    told.tell({"runs": [about], "warnings": warned}, [str(folder)], lambda: print_located(about))
    shown.open([str(folder)])


def print_located(about: Mapping[str, Any]) -> None:
    """Print what was saved: each file and what it is."""
    from heedmap.maps.stability import stability_said

    def seen_at(word: str, one: Mapping[str, Any]) -> str:
        held = one.get("stability")
        return f"where “{word}” is seen" + (f", {stability_said(held)}" if held is not None else "")

    size = "×".join(map(str, about["size"]))
    seen = f"{size}, seed {about['seed']}, {plural(about['steps'], 'look')}"
    print_files(
        about["folder"],
        {
            about["image"]: f"the picture as the model saw it: {seen}",
            about["page"]: "the page: point at words and places; open it in a browser",
            about["sheet"]: "the picture and where each word is seen, on one scale",
            **{word["file"]: seen_at(word["word"], word) for word in about["words"]},
            **{one["file"]: seen_at(one["concept"], one) for one in about["concepts"]},
            about["maps"]: "the maps, for `heedmap inspect` and `heedmap segment`",
            **files_beside(about),
            about["settings"]: "all that is needed to look again",
        },
    )
    if about["steps"] == 1:
        say(
            "One look has no other to be held against: from --steps 2 on it is told how stable the "
            "maps are."
        )
