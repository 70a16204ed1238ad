"""`heedmap inspect` and `segment`: the maps of a saved run; no model is loaded."""

import functools
import json
from typing import Annotated, Any, Literal

import typer

import heedmap as hm
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
from heedmap.errors import ArgumentError, RunError
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
_READS = "What each word reads of the image, and of the other words (joint attention)."
_OUTPUTS = "Maps of the run's concepts by the similarity of attention outputs."
_PLACES = "What a place of the run reads of the image. May be repeated."
_BUDGET = "Also print and draw the shares of all attention: words, padding, image."
_SCALE = "shared: one colour scale for all words. word: one for each. raw: 0 to 1."
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
    reads: Annotated[bool, typer.Option("--reads", help=_READS)] = False,
    budget: Annotated[bool, typer.Option("--budget", help=_BUDGET)] = False,
    over: Annotated[
        Literal["steps", "layers", "heads", "layers,heads"] | None,
        typer.Option(help="Show one --word over its steps, layers or heads."),
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"] | None,
        typer.Option(help=f"{_SCALE} Default: shared; with --over: word."),
    ] = None,
    kind: Format = "png",
) -> None:
    """Show the maps of a saved run, for some words, layers or steps.

    No model is loaded. Without options, only prints a table of the maps. With options, also saves
    overlays (words/) and a sheet; with --over, a sheet of a word over its steps, layers or heads.
    """
    from heedmap.io.places import check_places, place_label
    from heedmap.maps.word_figures import (
        layers_by_heads,
        mean_of,
        timeline,
    )

    saved: Any = hm.Run.load(run)
    if budget and (layers or steps or heads):
        raise ArgumentError(
            "--budget is of all layers, steps and heads: leave --layers, --steps and --heads out"
        )
    maps = saved.maps
    prompt = title = maps.tokens.prompt
    if concepts or outputs:
        maps = maps_of(saved, "concepts")
        title = f"{prompt} · concepts"
    if places:
        maps = maps_of(saved, "places")
        title = f"{prompt} · places"
        word = list(map(place_label, check_places(places)))
        scale = scale or "word"
    if outputs:
        maps = maps.outputs
    if reads:
        maps = maps.reads
    if refined:
        maps = maps.refined
    maps = maps.select(layers, steps, heads)
    share = SHARES[maps.recording.share_of] or "share of attention"
    values = f"{share}, {mean_of(maps)}"
    words = word or [one.number for one in maps.words]
    if over and len(words) != 1:
        raise ArgumentError("--over shows one word: name it with --word")
    heats = [maps[one] for one in words]
    rows = [
        {
            "word": heat.label,
            "most": round(heat.extremum, 6),
            "mean": round(float(heat.values.mean()), 6),
            "peak": heat.peak,
        }
        for heat in heats
    ]
    data: dict[str, Any] = {
        "run": str(run),
        "prompt": prompt,
        "layers": [layer.name for layer in maps.layers],
        "values": values,
        "words": rows,
    }
    if budget:
        data["budget"] = saved.budget.rows()
        data["sinks"] = saved.budget.sink_rows()
    part = (word, layers, steps, heads, refined, concepts, outputs, reads, budget)
    look = (over, scale, task.out, kind != "png")
    files: dict[str, Any] = {}
    folder = run
    page = "index.html"
    if any(part + look):
        from heedmap.figures.plots import encode
        from heedmap.io.writing import save_parts, slug

        place = task.place(run / "inspect")
        scales: Any = {"scale": scale} if scale else {}
        figure, overlays = maps.figure_and_overlays(heats, title=title, **scales)
        if places:
            saved.outline_places(figure)
        for number, (row, overlay) in enumerate(zip(rows, overlays, strict=True)):
            row["file"] = f"words/{number}-{slug(row['word'], 40)}.png"
            files[row["file"]] = overlay
        figures = {"sheet": figure}
        if reads:
            figures["text"] = saved.text_attention.figure()
        if budget:
            figures["budget"] = saved.budget.figure()
        if over == "steps":
            figures["timeline"] = timeline(maps, words[0], **scales)
        elif over:
            axes: Any = [axis.removesuffix("s") for axis in over.split(",")]
            name = over.replace(",", "-")
            figures[name] = layers_by_heads(maps, words[0], axes=axes, **scales)
        for name, figure in figures.items():
            files[f"{name}.{kind}"] = encode(figure, kind)
        save = functools.partial(save_parts, parts=files)
        folder = place.put(save, folder_name(word))
        page = f"budget.{kind}" if budget else f"sheet.{kind}"
    data |= {"folder": str(folder), "files": [*files]}
    if task.verbose:
        print_table(("word", "peak", "mean", "peak at"), map(_cells, rows))
        typer.echo(f"Values: {values}.")
        if budget:
            shares = data["budget"]
            print_table([*shares[0]], map(_cells, shares))
    task.finish(data, [folder], files, page)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        f"{value:.3g}" if isinstance(value, float) else str(value)
        for value in row.values()
    ]


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
    a NumPy array, a mask of each phrase and a sheet; `heedmap dataset RUN` saves COCO.
    """
    maps = maps_of(hm.Run.load(run), "concepts" if concepts else "maps")
    place = task.place(run / "segment")
    segments = maps.segment(word, threshold=threshold)
    save = functools.partial(segments.save, run=run, kind=kind)
    folder = place.put(save, folder_name(word))
    data = json.loads((folder / "segment.json").read_text(encoding="utf-8"))
    lines = [str(folder)]
    for name, share in zip(segments.names, segments.shares, strict=True):
        lines.append(f"{name}: {share:.1%}")
    task.finish(data, [folder], lines, f"sheet.{kind}")


def maps_of(run: "hm.Run", kind: Literal["maps", "concepts", "places"]) -> Any:
    """Return a run's maps of the prompt's words, of concepts or of places."""
    maps = getattr(run, kind)
    if maps is None:
        raise RunError(
            f"this run has no {kind}: generate it with them (`heedmap repeat` records places)"
        )
    return maps


def folder_name(words: list[Any] | None) -> str:
    """Name a folder by words."""
    from heedmap.io.writing import slug

    return slug(" ".join(map(str, words or ["all"])), 100)
