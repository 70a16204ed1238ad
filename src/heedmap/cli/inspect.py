"""`heedmap inspect`, `segment` and `compare`: the maps of saved runs; no model is loaded."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import heedmap as hm
from heedmap.checks import check_one_of
from heedmap.cli.console import (
    PLACE,
    Format,
    OfConcepts,
    RunFolder,
    Task,
    Words,
    command,
    parsed,
    print_table,
)
from heedmap.errors import ArgumentError, RunError, join_words
from heedmap.options import MASK_THRESHOLD, SHARES
from heedmap.parsing import (
    parse_integers,
    parse_names,
    parse_place,
    parse_range,
)

_LAYERS = "As down, mid, up, early, 'up 1.0' or a pattern with *; commas between."
_STEPS = "Steps from A up to, but not including, B, from 0; or one step."
_REFINED = "Maps refined by self-attention, over all layers, steps and heads."
_OUTPUTS = "Maps of the run's concepts by the similarity of attention outputs."
_PLACES = "What a place of the run reads of the image. May be repeated."
_BUDGET = "Also the shares of all attention: words, special tokens, padding, image."
_THRESHOLD = "Pixels whose mask value is below this are background."


@command(out="a new one in RUN/inspect")
def inspect(
    task: Task,
    run: RunFolder,
    *,
    word: Words = None,
    layers: Annotated[Any, parsed(parse_names, "NAME,…", _LAYERS)] = None,
    steps: Annotated[Any, parsed(parse_range, "A:B", _STEPS)] = None,
    heads: Annotated[Any, parsed(parse_integers, "N,…", "As 0,2.")] = None,
    refined: Annotated[bool, typer.Option("--refined", help=_REFINED)] = False,
    places: Annotated[
        list[Any] | None, parsed(parse_place, PLACE, _PLACES, "--place")
    ] = None,
    concepts: OfConcepts = False,
    outputs: Annotated[bool, typer.Option("--outputs", help=_OUTPUTS)] = False,
    budget: Annotated[bool, typer.Option("--budget", help=_BUDGET)] = False,
    over: Annotated[
        Literal["steps", "layers", "heads", "layers,heads"] | None,
        typer.Option(
            help="Show one --word over its steps (also as a GIF), layers or heads."
        ),
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"] | None,
        typer.Option(
            help="shared: one colour scale for all words. word: one for each. raw: 0 to 1. "
            "Default: shared; with --over: word."
        ),
    ] = None,
    kind: Format = "png",
) -> None:
    """Show the maps of a saved run, for some words, layers or steps.

    No model is loaded. Without options, only prints a table of the maps. With options, also saves
    overlays (words/) and a sheet; with --over, a sheet of a word over its steps (timeline.png,
    timeline.gif), layers or heads.
    """
    from heedmap.maps.budgets import SINK
    from heedmap.maps.heatmaps import REFINED_BY
    from heedmap.maps.word_figures import mean_of

    saved = hm.Run.load(run)
    maps = maps_of(saved, concepts or outputs)
    if places:
        maps, word = _of_places(saved, run, places)
    if outputs:
        maps = maps.outputs
    if refined:
        maps = maps.refined
    axes = {"layers": layers, "steps": steps, "heads": heads}
    parts = {axis: part for axis, part in axes.items() if part is not None}
    if parts:
        maps = maps.select(**parts)
    share = SHARES[maps.recording.share_of] or "share of attention"
    values = f"{share}, {mean_of(maps)}"
    if refined:
        values += f", {REFINED_BY}"
    words = list(dict.fromkeys(word or [one.number for one in maps.words]))
    heats = [maps[one] if isinstance(one, str) else maps.at(one) for one in words]
    data: dict[str, Any] = {
        "run": str(run),
        "prompt": maps.tokens.prompt,
        "layers": [layer.name for layer in maps.layers],
        "values": values,
        "words": [
            {
                "word": heat.label,
                "most": round(heat.extremum, 6),
                "mean": round(float(heat.values.mean()), 6),
                "peak": heat.peak if heat.values.any() else None,
            }
            for heat in heats
        ],
    }
    folder = run
    page = run / "index.html"
    if budget and parts:
        raise ArgumentError(
            "--budget is of all layers, steps and heads: leave --layers, --steps and --heads out, "
            "or use run.budget(by=…) in Python"
        )
    if budget:
        data["budget"] = saved.budget.rows()
        data["sinks"] = saved.budget.sink_rows()
    choices = (
        word,
        places,
        parts,
        refined,
        concepts,
        outputs,
        budget,
        over,
        scale,
        task.out,
    )
    if any(choices) or kind != "png":
        from heedmap.figures.plots import encode
        from heedmap.io.writing import save_parts, slug

        place = task.place(run / "inspect")
        title = None
        if places:
            title = f"{saved.settings.prompt} · what places read"
            scale = scale or "word"
        figure, overlays = maps.figure_and_overlays(
            heats, title=title, scale=scale or "shared"
        )
        files: dict[str, Any] = {f"sheet.{kind}": encode(figure, kind)}
        for number, (one, overlay) in enumerate(
            zip(data["words"], overlays, strict=True)
        ):
            one["file"] = f"words/{number}-{slug(one['word'], 40)}.png"
            files[one["file"]] = overlay
        if budget:
            files[f"budget.{kind}"] = encode(saved.budget.figure(), kind)
        if over:
            files |= _draw_over(maps, words, over, scale or "word", kind)
        data["files"] = [*files]
        files["inspect.json"] = f"{json.dumps(data)}\n".encode()
        save = functools.partial(save_parts, parts=files)
        folder = place.put(save, folder_name(word))
        page = folder / f"sheet.{kind}"
    data["folder"] = str(folder)
    if task.verbose:
        rows = [
            (one["word"], str(one["most"]), str(one["mean"]), str(one["peak"] or "-"))
            for one in data["words"]
        ]
        print_table(("word", "peak", "mean", "peak at"), rows, folder)
        typer.echo(f"Values: {values}.")
        if budget:
            typer.echo("Shares of all attention, and its entropy:")
            print_rows(data["budget"])
            typer.echo(
                f"Keys with more than {SINK:g} times the mean share: "
                f"{len(data['sinks']) or 'none'}."
            )
        if data.get("sinks"):
            print_rows(data["sinks"])
        for file in data.get("files", ()):
            typer.echo(file)
    task.finish(data, [folder], page)


@command(out="a new one in RUN/segment")
def segment(
    task: Task,
    run: RunFolder,
    *,
    word: Words = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help=_THRESHOLD)
    ] = MASK_THRESHOLD,
    concepts: OfConcepts = False,
    kind: Format = "png",
) -> None:
    """Save masks of the phrases of a saved run.

    No model is loaded. Assigns each pixel to one phrase or to the background. Saves a label image,
    a NumPy array, COCO annotations, a mask of each phrase and a sheet.
    """
    maps = maps_of(hm.Run.load(run), concepts)
    place = task.place(run / "segment")
    segments = maps.segment(word, threshold=threshold)
    save = functools.partial(segments.save, run=run, kind=kind)
    folder = place.put(save, folder_name(word))
    data = json.loads((folder / "segment.json").read_text(encoding="utf-8"))
    if task.verbose:
        shares = zip(segments.names, segments.shares, strict=True)
        rows = [(name, f"{share:.1%}") for name, share in shares]
        print_table(("phrase", "share"), rows, folder)
        typer.echo(f"All phrases: {data['sheet']}")
    task.finish(data, [folder], data["sheet"])


@command(out="one in outputs/")
def compare(
    task: Task,
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="The folders of two or more saved runs."),
    ],
    *,
    word: Annotated[
        list[str] | None,
        typer.Option(
            "--word",
            "-w",
            metavar="WORD",
            help="A word or phrase. May be repeated. Default: the content words of all prompts.",
        ),
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"],
        typer.Option(
            help="shared: one colour scale for all. word: one for each word. raw: 0 to 1."
        ),
    ] = "shared",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A .png, .svg or .pdf file. Default: one in outputs/."
        ),
    ] = None,
) -> None:
    """Compare the maps of saved runs on one sheet.

    No model is loaded. The rows are labelled by what differs among the runs.
    """
    from heedmap.figures.plots import encode
    from heedmap.io import writing
    from heedmap.results.runs import common_words, labels

    runs = [hm.Run.load(folder) for folder in folders]
    names = " ".join(["compare", *(folder.resolve().name for folder in folders)])
    path = out or Path("outputs") / f"{writing.slug(names, 100)}.png"
    suffix = path.suffix.lower().removeprefix(".")
    check_one_of(f"the ending of {path}", suffix, ("png", "svg", "pdf"))
    words = list(dict.fromkeys(word or common_words(runs)))
    sheet = encode(hm.compare(runs, words, scale=scale), suffix)
    save = functools.partial(writing.put_file, data=sheet)
    if out is None:
        path = writing.put_counting(path, save)
    else:
        save(path)
    entries = [
        {"run": str(folder), "label": label}
        for folder, label in zip(folders, labels(runs), strict=True)
    ]
    data = {"file": str(path), "scale": scale, "words": words, "runs": entries}
    task.finish(data, [path], path, [f"{path}: {', '.join(words)}"])


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows of named values as a table."""
    cells = [
        [f"{one:.3g}" if isinstance(one, float) else str(one) for one in row.values()]
        for row in rows
    ]
    print_table([*rows[0]], cells)


def maps_of(run: "hm.Run", concepts: bool) -> "hm.HeatMaps":
    """Return the maps of a run's prompt, or of its concepts."""
    maps = run.concepts if concepts else run.maps
    if maps is None:
        raise RunError("this run has no concept maps: generate it with --concepts")
    return maps


def _of_places(
    run: "hm.Run",
    folder: Path,
    places: Sequence[Any],
) -> tuple["hm.HeatMaps", list[Any]]:
    """Return the maps of a run's places, and the names of some of them."""
    from heedmap.io.places import check_places, place_label, place_labels

    maps = run.places
    labels = list(map(place_label, check_places(places)))
    for label in labels:
        if maps is None or label not in maps:
            places = place_labels(run.settings.places)
            raise RunError(
                f"this run has no place {label} (it has {join_words(places) or 'none'}): record it "
                f"with `heedmap repeat {folder} --place '{label}' --out FOLDER`, and inspect that"
            )
    assert maps is not None
    return maps, labels


def folder_name(words: list[Any] | None) -> str:
    """Name a folder by words."""
    from heedmap.io.writing import slug

    return slug(" ".join(map(str, words or ["all"])), 100)


def _draw_over(
    maps: "hm.HeatMaps",
    words: Sequence[str | int],
    over: str,
    scale: Any,
    kind: str,
) -> dict[str, bytes]:
    from heedmap.figures.plots import encode
    from heedmap.maps import word_figures

    if len(words) != 1:
        raise ArgumentError("--over shows one word: name it with --word")
    (word,) = words
    if over == "steps":
        figure = word_figures.timeline(maps, word, scale=scale)
        moving = word_figures.animation(maps, word, scale=scale)
        return {
            f"timeline.{kind}": encode(figure, kind),
            "timeline.gif": moving.gif(),
        }
    axes: list[Any] = [axis.removesuffix("s") for axis in over.split(",")]
    figure = word_figures.layers_by_heads(maps, word, axes=axes, scale=scale)
    return {f"{over.replace(',', '-')}.{kind}": encode(figure, kind)}
