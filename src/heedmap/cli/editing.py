"""`heedmap edit`: a prompt and what it becomes, from one noise, with the evidence."""

import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedmap.cli.console import (
    loading,
    print_json,
    print_lines,
    print_table,
    printable,
    progress_bar,
    warnings_told,
)
from heedmap.cli.options import (
    Device,
    Dtype,
    Force,
    Guidance,
    Json,
    Keep,
    Model,
    Quiet,
    Seed,
    Size,
    Steps,
    parse_path,
    parse_strip,
    parse_windows,
    parse_word_window,
)
from heedmap.errors import ArgumentError, plural

if TYPE_CHECKING:
    from heedmap.results.grids import Grid
    from heedmap.results.pairs import Pair


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
            parser=parse_windows,
            metavar="A:B",
            help="While the source's cross-attention is taken, as parts of the run; B alone: from "
            "its start. With --grid: several, as 0,0.2,…,1.",
        ),
    ] = "0.8",
    own: Annotated[
        Any,
        typer.Option(
            "--self", parser=parse_windows, metavar="A:B", help="The same of self-attention."
        ),
    ] = "0.4",
    words: Annotated[
        list[Any] | None,
        typer.Option(
            parser=parse_word_window,
            metavar="WORD=A:B",
            help="Another --cross for a word of the target, as cat=0.3; may be repeated.",
        ),
    ] = None,
    renormalize: Annotated[
        bool, typer.Option("--renormalize", help="Let weighted attention sum to 1 again.")
    ] = False,
    kind: Annotated[
        Literal["auto", "replace", "refine"],
        typer.Option(help="Word for word, or with words that are new. auto: by aligning them."),
    ] = "auto",
    only: Annotated[
        str | None,
        typer.Option(
            metavar="A->B",
            help="Change the picture only where these words act, as 'cat->dog', with those of "
            "their phrase ('red cat'); '\"cat\"->\"dog\"' means the words alone.",
        ),
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD", help="With --only: nor where this word acts; may be repeated."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="X",
            help="With --only: how much a word must act at a place, from 0 to 1 (0.4).",
        ),
    ] = None,
    blend_from: Annotated[
        float | None,
        typer.Option(metavar="X", help="With --only: from which part of the run on (0.2)."),
    ] = None,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid",
            help="Draw every combination of the --weight, --cross, --self, seeds (--count) and "
            "targets given, as one contact sheet with a table of figures.",
        ),
    ] = False,
    weight: Annotated[
        list[Any] | None,
        typer.Option(
            parser=parse_strip,
            metavar="WORD=A:B:N",
            help="With --grid: N weights of a word from A to B, or a list, as red=0,1,3; may be "
            "repeated.",
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            min=1, max=10_000, metavar="N", help="With --grid: so many seeds, from --seed on."
        ),
    ] = 1,
    batch: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="So many pictures at once. Left out: as many as the memory holds.",
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
            help="A new or an empty one. Left out: a new one in outputs/. With several targets: "
            "the one that holds them.",
        ),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Draw SOURCE and what it becomes when words are changed.

    Both from one noise, and with the source's attention for the words that stay. Saves both
    pictures with their maps, their difference, a sheet of all and the figures.
    """
    strips = _by_word(weight, "--weight")
    asked = targets or [source]
    if grid:
        several = [cross, own, asked, range(count), *strips.values()]
        _check_grid(several)
    else:
        _check_single(cross, own, strips, count)
    from heedmap.files import kinds
    from heedmap.files.writing import Destination, slug

    many = len(asked) > 1 and not grid
    place = Destination(out, kinds.GRID if grid else kinds.PAIR, force=force, many=many)
    hidden = quiet or json or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap.drawing import editing
        from heedmap.models import pipelines
        from heedmap.results.grids import Grid

        pipe = pipelines.load(model, device=device, dtype=dtype)
    first = secrets.randbelow(2**31) if seed is None else seed
    options: dict[str, Any] = {
        "kind": None if kind == "auto" else kind,
        "words": _by_word(words, "--words"),
        "renormalize": renormalize,
        "only": only,
        "protect": protect or (),
        "steps": steps,
        "guidance": guidance,
        "size": size,
        "negative": negative,
        "keep": keep,
        "batch": batch,
    }
    blending = {"blend_from": blend_from, "threshold": threshold}
    options |= {name: value for name, value in blending.items() if value is not None}
    into: Any = asked if targets else None
    made: Grid | Pair | list[Pair]
    with warnings_told(), progress_bar("Drawing", hidden=hidden) as advance:
        options["progress"] = advance
        if grid:
            seeds = [first + number for number in range(count)]
            made = editing.grid(
                *(pipe, source, into),
                cross=cross,
                self_attention=own,
                weights=strips,
                seeds=seeds,
                **options,
            )
        else:
            made = editing.edit(
                *(pipe, source, into), cross=cross[0], self_attention=own[0], seed=first, **options
            )
    saved: list[dict[str, Any]] = []
    if isinstance(made, Grid):
        folder = place.put(made.save, f"{slug(f'grid {asked[0]}', 48)}-{first}")
        saved.append(about_grid(folder, made))
    else:
        for text, pair in zip(asked, made if isinstance(made, list) else [made], strict=True):
            folder = place.put(pair.save, f"{slug(text, 48)}-{first}")
            saved.append(about_pair(folder, pair))
    if json and grid:
        print_json({"grid": saved[0]})
    elif json:
        print_json({"edits": saved})
    elif quiet:
        print_lines(about["folder"] for about in saved)
    else:
        for about in saved:
            (print_grid if grid else print_pair)(about)


def _by_word(given: Sequence[tuple[str, Any]] | None, option: str) -> dict[str, Any]:
    """What was given for each word."""
    found: dict[str, Any] = {}
    for word, value in given or ():
        if word in found:
            raise ArgumentError(f"{option} has {word!r} twice: give all of a word at once")
        found[word] = value
    return found


def _check_grid(axes: Iterable[Sized]) -> None:
    """Raise if nothing varies."""
    if all(len(axis) == 1 for axis in axes):
        raise ArgumentError(
            "nothing varies in this grid: give several values, as with --weight red=-2:3:6, "
            "--cross 0,0.2,…,1, --self 0,0.4, --count 3, or several targets"
        )


def _check_single(
    cross: Sequence[Any], own: Sequence[Any], strips: Mapping[str, Any], count: int
) -> None:
    """Raise if something is asked for that only a grid can do."""
    for option, values in (("--cross", cross), ("--self", own)):
        if len(values) > 1:
            raise ArgumentError(
                f"{option} has {len(values)} values: add --grid to draw them all, or give one"
            )
    for word in strips:
        raise ArgumentError(
            f"--weight {word}=… is for a grid: add --grid, or write the weight into the prompt, as "
            f"in '({word}:1.5)'"
        )
    if count > 1:
        raise ArgumentError(f"--count {count} is for a grid: add --grid to draw {count} seeds")


def about_grid(folder: Path, grid: "Grid") -> dict[str, Any]:
    """What `edit --grid --json` says of a grid."""
    names = ("source", "seeds", "steps", "guidance", "size", "model", "batch", "sources_drawn")
    files = {"page": "index.html", "sheet": "grid.png", "table": "grid.csv", "figures": "grid.json"}
    return {
        "folder": str(folder),
        **{name: grid.about[name] for name in names},
        "varies": grid.axes,
        "files": {name: str(folder / file) for name, file in files.items()},
        "cells": [row | {"file": str(folder / row["file"])} for row in grid.rows()],
    }


def print_grid(about: Mapping[str, Any]) -> None:
    """Print what was saved of a grid, and what each of its cells did."""
    cells, seeds = about["cells"], about["seeds"]
    what = {
        "index.html": "the page of all: open it in a browser",
        "grid.png": "the contact sheet",
        "grid.csv": "the figures, a line a cell",
        "grid.json": "the same, and how to repeat it",
        "sources/": f"the {plural(len(seeds), 'source')}, each a run for `heedmap inspect`",
        "cells/": f"the {plural(len(cells), 'edit')}, the same",
    }
    print_table(("file", "what it is"), list(what.items()), title=about["folder"])
    varies = list(about["varies"])
    rows = [
        (
            str(cell["cell"]),
            *(_said(name, cell) for name in varies),
            f"{cell['moved']:.1%}",
            *("-" if cell[f"mse_{s}"] is None else f"{cell[f'mse_{s}']:.2g}" for s in _SIDES),
        )
        for cell in cells
    ]
    columns = ("cell", *varies, "moved", *(f"MSE {side}" for side in _SIDES))
    columns = tuple(_HEADS.get(name, name) for name in columns)
    print_table(columns, rows, right={column for column in columns if column != "target"})
    again = plural(about["sources_drawn"], "time")
    typer.echo(
        f"{plural(len(cells), 'edit')} of “{printable(about['source'])}”, up to "
        f"{about['batch'] - 1} at once; its picture was computed {again}."
    )


_SIDES = ("inside", "outside")
_HEADS = {"self_attention": "self"}


def _said(axis: str, cell: Mapping[str, Any]) -> str:
    """Where a cell stands on an axis."""
    if axis in ("cross", "self_attention"):
        name = "cross" if axis == "cross" else "self"
        low, high = cell[f"{name}_from"], cell[f"{name}_to"]
        return f"{high:g}" if low == 0 else f"{low:g}:{high:g}"
    value = cell[axis]
    return f"{value:g}" if isinstance(value, float) else str(value)


def about_pair(folder: Path, pair: "Pair") -> dict[str, Any]:
    """What `edit --json` says of a pair."""
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
        "source": pair.source.settings["prompt"],
        "edited": settings["prompt"],
        **{name: settings[name] for name in names},
        "size": list(pair.edited.image.size),
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
        "page": "the page, side by side: open it in a browser",
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
