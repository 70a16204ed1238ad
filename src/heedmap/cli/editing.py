"""`heedmap edit`: a prompt and what it becomes, from one noise, with the evidence."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli.console import print_files, print_table, printable, progress_bar, warnings_told
from heedmap.cli.grids import Source, Targets, VaryFlags, draw_grid
from heedmap.cli.options import DrawFlags, EditFlags, LoadFlags, OutputFlags, SaveFlags, grouped
from heedmap.errors import ArgumentError, plural

if TYPE_CHECKING:
    from heedmap.results.pairs import Pair


@grouped
def edit(
    source: Source,
    targets: Targets = None,
    *,
    loaded: LoadFlags,
    drawn: DrawFlags,
    changed: EditFlags,
    grid: Annotated[
        bool, typer.Option("--grid", help="The same as `heedmap grid`; goes with the next release.")
    ] = False,
    varied: VaryFlags,
    saved: SaveFlags,
    told: OutputFlags,
) -> None:
    """Draw SOURCE and what it becomes when words are changed.

    Both from one noise, and with the source's attention for the words that stay. Saves both
    pictures with their maps, their difference, a sheet of all and the figures.
    """
    if grid:
        typer.echo("Note: `heedmap edit --grid` is `heedmap grid` now.", err=True)
        draw_grid(source, targets, varied, changed, loaded, drawn, saved, told)
        return
    _check_single(changed, varied)
    from heedmap.files import kinds
    from heedmap.files.writing import Destination, slug

    asked = targets or [source]
    place = Destination(saved.out, kinds.PAIR, force=saved.force, many=len(asked) > 1)
    options = changed.options() | drawn.options()
    pipe = loaded.pipeline(hidden=told.hidden)
    from heedmap.drawing import editing

    seed = drawn.first_seed()
    cross, own = ((said or [None])[0] for said in (changed.cross, changed.own))
    with warnings_told() as warned, progress_bar("Drawing", hidden=told.hidden) as advance:
        options |= {"cross": cross, "self_attention": own, "seed": seed, "progress": advance}
        made = (
            editing.edit(pipe, source, list(targets), **options)
            if targets
            else [editing.edit(pipe, source, **options)]
        )
    abouts = [
        about_pair(place.put(pair.save, f"{slug(text, 48)}-{seed}"), pair)
        for text, pair in zip(asked, made, strict=True)
    ]

    def show() -> None:
        for about in abouts:
            print_pair(about)

    told.tell({"edits": abouts, "warnings": warned}, [about["folder"] for about in abouts], show)


def _check_single(changed: EditFlags, varied: VaryFlags) -> None:
    """Raise if something is asked for that only a grid can do."""
    for option, values in (("--cross", changed.cross), ("--self", changed.own)):
        if len(values or ()) > 1:
            raise ArgumentError(
                f"{option} has {len(values)} values: draw them all with `heedmap grid`, or give one"
            )
    for word in varied.weights():
        raise ArgumentError(
            f"--weight {word}=… is for `heedmap grid`: draw that, or write the weight into the "
            f"prompt, as in '({word}:1.5)'"
        )
    if (count := varied.count) > 1:
        raise ArgumentError(f"--count {count} is for `heedmap grid`: draw that, or give one --seed")


def about_pair(folder: Path, pair: "Pair") -> dict[str, Any]:
    """What `edit --json` says of a pair."""
    from heedmap.files.notes import to_json

    settings, names = pair.edited.settings, ("seed", "steps", "guidance", "size", "model")
    files = {
        "source_image": "source/image.png",
        "edited_image": "edited/image.png",
        "page": "index.html",
        "sheet": "sheet.png",
        "difference": "difference.png",
        **({} if pair.blend is None else {"blend": "blend.png"}),
        "figures": "pair.json",
    }
    return {
        "folder": str(folder),
        "source": pair.source.settings.prompt,
        "edited": settings.prompt,
        **{name: getattr(settings, name) for name in names},
        "size": list(pair.edited.image.size),
        "files": {name: str(folder / file) for name, file in files.items()},
        "about": to_json(pair.about),
    }


def print_pair(about: Mapping[str, Any]) -> None:
    """Print what was saved of an edit, what it was, and how much it changed."""
    size = "×".join(map(str, about["size"]))
    drawn = f"{size}, seed {about['seed']}, {plural(about['steps'], 'step')}"
    what = {
        "source_image": f"“{about['source']}”: {drawn}",
        "edited_image": f"“{about['edited']}”, from the same noise",
        "page": "the page, side by side: open it in a browser",
        "sheet": "both, their difference, and where the changed words acted",
        "difference": "how much each pixel changed",
        "blend": "where the edit was let in",
        "figures": "the figures, and how it was edited",
    }
    print_files(about["folder"], {file: what[name] for name, file in about["files"].items()})
    found, where = about["about"], "the mask" if "blend" in about["files"] else "the changed words"
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
    if "masked_by" in found:
        typer.echo(f"The mask is where these act: {printable(found['masked_by'])}.")
    typer.echo(
        f"The rules acted at {sites} and moved {found['moved']:.1%} of the attention; "
        f"self-attention was the source's at {found['self_sites']}."
    )
