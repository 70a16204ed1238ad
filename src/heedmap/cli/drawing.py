"""`heedmap generate`: a prompt's picture, and where each word acted."""

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli.console import (
    loading,
    print_json,
    print_lines,
    print_table,
    progress_bar,
    warnings_told,
)
from heedmap.cli.looking import print_unread
from heedmap.cli.options import (
    Device,
    Dtype,
    Force,
    Guidance,
    Json,
    Keep,
    Model,
    Prompt,
    Quiet,
    Seed,
    Size,
    Steps,
    parse_box,
    parse_path,
)

if TYPE_CHECKING:
    from heedmap.results.runs import Run
    from heedmap.text.words import TokenTable


def generate(
    prompt: Prompt,
    model: Model = None,
    seed: Seed = None,
    steps: Steps = None,
    guidance: Guidance = None,
    size: Size = None,
    negative: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the picture should not show.")
    ] = None,
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
    keep: Keep = "layer",
    device: Device = "auto",
    dtype: Dtype = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=parse_path,
            metavar="FOLDER",
            help="A new or an empty one. Left out: a new one in outputs/. With --count: the one "
            "that holds the runs.",
        ),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Draw PROMPT and show where each word acted.

    Saves the picture, an overlay for each word, a sheet of them all, the maps and the settings.
    """
    from heedmap.files import kinds
    from heedmap.files.writing import Destination, slug

    place = Destination(out, kinds.RUN, force=force, many=count > 1)
    saved: list[tuple[dict[str, Any], TokenTable]] = []
    hidden = quiet or json or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap.drawing import generation
        from heedmap.drawing.word_rules import Confine
        from heedmap.models import pipelines

        pipe = pipelines.load(model, device=device, dtype=dtype)
    edits = [Confine(word, box) for word, box in confine or ()]
    with warnings_told(), progress_bar("Drawing", hidden=hidden) as advance:
        first = secrets.randbelow(2**31) if seed is None else seed
        for number in range(count):  # one by one: the pictures are those of the seeds alone

            def report(step: int, total: int, before: int = number) -> None:
                advance(before * total + step, count * total)

            run = generation.generate(
                pipe,
                prompt,
                seed=first + number,
                steps=steps,
                guidance=guidance,
                size=size,
                negative=negative,
                keep=keep,
                edits=edits,
                progress=report,
            )
            folder = place.put(run.save, f"{slug(prompt, 48)}-{first + number}")
            saved.append((about_run(folder, run), run.maps.tokens))
    if json:
        print_json({"runs": [about for about, _ in saved]})
    elif quiet:
        print_lines(about["folder"] for about, _ in saved)
    else:
        for about, tokens in saved:
            print_run(about)
            print_unread(tokens)


def about_run(folder: Path, run: "Run") -> dict[str, Any]:
    """What `generate --json` says of a run."""
    from heedmap.results.runs import word_file

    told = ("prompt", "seed", "steps", "guidance", "size", "model")
    files = {
        "image": "image.png",
        "page": "index.html",
        "sheet": "sheet.png",
        "maps": "maps.safetensors",
        "settings": "run.json",
    }
    return {
        "folder": str(folder),
        **{name: run.settings[name] for name in told},
        "size": list(run.image.size),
        **{name: str(folder / file) for name, file in files.items()},
        "words": [
            {"number": word.number, "word": word.text, "file": str(folder / word_file(word))}
            for word in run.maps.words
        ],
    }


def print_run(about: Mapping[str, Any]) -> None:
    """Print what was saved: each file and what it is."""
    size = "×".join(map(str, about["size"]))
    files = {
        about["image"]: f"the picture: {size}, seed {about['seed']}, {about['steps']} steps",
        about["page"]: "the page: point at words and places; open it in a browser",
        about["sheet"]: "the picture and where each word acted, on one scale",
        **{word["file"]: f"where “{word['word']}” acted" for word in about["words"]},
        about["maps"]: "the maps, for `heedmap inspect`",
        about["settings"]: "all that is needed to draw it again",
    }
    rows = [(Path(file).relative_to(about["folder"]).as_posix(), files[file]) for file in files]
    print_table(("file", "what it is"), rows, title=about["folder"])
