"""`heedmap edit`: a prompt and what it becomes, from one noise, with the evidence."""

import secrets
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedmap.cli.console import (
    loading,
    plural,
    print_json,
    print_lines,
    print_table,
    printable,
    progress_bar,
)
from heedmap.cli.drawing import check_writable
from heedmap.cli.options import (
    Device,
    Dtype,
    Guidance,
    Json,
    Model,
    Quiet,
    Seed,
    Size,
    Steps,
    parse_window,
)

if TYPE_CHECKING:
    from heedmap.pairs import Pair


def edit(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The prompt that is edited.")],
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="What it shall become. Left out: SOURCE with its weights, as (word:1.5).",
        ),
    ] = None,
    model: Model = None,
    seed: Seed = None,
    steps: Steps = None,
    guidance: Guidance = None,
    size: Size = None,
    negative: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the pictures should not show.")
    ] = None,
    cross: Annotated[
        Any,
        typer.Option(
            parser=parse_window,
            metavar="A:B",
            help="While the source's cross-attention is taken, as parts of the run; B alone: from "
            "its start.",
        ),
    ] = "0.8",
    own: Annotated[
        Any,
        typer.Option(
            "--self", parser=parse_window, metavar="A:B", help="The same of self-attention."
        ),
    ] = "0.4",
    kind: Annotated[
        Literal["auto", "replace", "refine"],
        typer.Option(help="Word for word, or with words that are new. auto: by aligning them."),
    ] = "auto",
    only: Annotated[
        str | None,
        typer.Option(
            metavar="A->B", help="Change the picture only where these words act, as 'cat->dog'."
        ),
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD", help="With --only: nor where this word acts; may be repeated."
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Left out: a new one in outputs/. With several targets: the one that holds them.",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Draw SOURCE and what it becomes when words are changed.

    Both from one noise, and with the source's attention for the words that stay. Saves both
    pictures with their maps, their difference, a sheet of all and the figures.
    """
    asked = targets or [source]
    fixed = out if len(asked) == 1 else None  # the pair's own folder, where one was named
    root = out if out is not None and fixed is None else Path("outputs")
    check_writable(fixed or root, holds_runs=fixed is None, mark="pair.json", what="an edit")
    hidden = quiet or json or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap import editing, models, runs

        pipe = models.load(model, device=device, dtype=dtype)
    first = secrets.randbelow(2**31) if seed is None else seed
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", message="the edit ", category=UserWarning)
        with progress_bar("Drawing", hidden=hidden) as advance:
            pairs = editing.edit(
                pipe,
                source,
                asked if targets else None,
                kind=None if kind == "auto" else kind,
                cross=cross,
                self_attention=own,
                only=only,
                protect=protect or (),
                seed=first,
                steps=steps,
                guidance=guidance,
                size=size,
                negative=negative,
                progress=advance,
            )
    saved: list[dict[str, Any]] = []
    for text, pair in zip(asked, pairs if isinstance(pairs, list) else [pairs], strict=True):
        folder = fixed or runs.default_folder(text, first, root)
        saved.append(about_pair(pair.save(folder), pair))
    for warning in told:
        typer.echo(f"Warning: {printable(str(warning.message))}", err=True)
    if json:
        print_json({"edits": saved})
    elif quiet:
        print_lines(about["folder"] for about in saved)
    else:
        for about in saved:
            print_pair(about)


def about_pair(folder: Path, pair: "Pair") -> dict[str, Any]:
    """What `edit --json` says of a pair."""
    settings, names = pair.edited.settings, ("seed", "steps", "guidance", "size", "model")
    files = {
        "source_image": "source/image.png",
        "edited_image": "edited/image.png",
        "sheet": "sheet.png",
        "difference": "difference.png",
        **({} if pair.blend is None else {"blend": "blend.png"}),
        "figures": "pair.json",
    }
    return {
        "folder": str(folder),
        "source": pair.source.settings["prompt"],
        "edited": settings["prompt"],
        **{name: settings[name] for name in names},
        "files": {name: str(folder / file) for name, file in files.items()},
        "about": pair.about,
    }


def print_pair(about: Mapping[str, Any]) -> None:
    """Print what was saved of an edit, what it was, and how much it changed."""
    size = "×".join(map(str, about["size"]))
    drawn = f"{size}, seed {about['seed']}, {about['steps']} steps"
    what = {
        "source_image": f"“{about['source']}”: {drawn}",
        "edited_image": f"“{about['edited']}”, from the same noise",
        "sheet": "both, their difference, and where the changed words acted",
        "difference": "how much each pixel changed",
        "blend": "where the edit was let in",
        "figures": "the figures, and how it was edited",
    }
    rows = [
        (Path(file).relative_to(about["folder"]).as_posix(), what[name])
        for name, file in about["files"].items()
    ]
    print_table(("file", "what it is"), rows, title=about["folder"])
    found, where = about["about"], "the mask" if about["about"]["only"] else "the changed words"
    figures = [
        (
            f"{side} of {where}",
            f"{change['share']:.0%}",
            *(
                "-" if change[name] is None else f"{change[name]:{form}}"
                for name, form in (("mse", ".2g"), ("psnr_db", ".1f"), ("ssim", ".2f"))
            ),
        )
        for side, change in found["change"].items()
    ]
    columns = ("change", "of the picture", "MSE", "PSNR (dB)", "SSIM")
    print_table(columns, figures, right=columns[1:])
    kind, sites = found["kind"].capitalize(), plural(found["sites"], "site")
    typer.echo(f"{kind}: {printable(found['why'])}.")
    typer.echo(
        f"The rules acted at {sites} and moved {found['moved']:.1%} of the attention; "
        f"self-attention was the source's at {found['self_sites']}."
    )
