"""`heedmap inspect`: other words, layers, steps or heads of a saved run; no model is loaded."""

from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import heedmap as hm
from heedmap.cli.console import Task, print_table
from heedmap.cli.options import Format, OfConcepts, RunFolder, Words, command, parsed
from heedmap.errors import ArgumentError, RunError
from heedmap.options import parse_integers, parse_names, parse_range


@command(out="a new one in RUN/inspect")
def inspect(
    task: Task,
    run: RunFolder,
    *,
    word: Words = None,
    layers: Annotated[
        Any,
        parsed(
            parse_names, "NAMES", "As down, mid, up, 'up 1.0' or a pattern with *; commas between."
        ),
    ] = None,
    steps: Annotated[Any, parsed(parse_range, "A:B", "As 0:10.")] = None,
    heads: Annotated[Any, parsed(parse_integers, "N,N", "As 0,2.")] = None,
    refined: Annotated[
        bool, typer.Option("--refined", help="The refined maps, of all layers, steps and heads.")
    ] = False,
    concepts: OfConcepts = False,
    over: Annotated[
        Literal["steps", "layers", "heads", "layers,heads"] | None,
        typer.Option(help="Show one --word over its steps (also as a GIF), layers or heads."),
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"] | None,
        typer.Option(
            help="One colour scale for all words, one for each, or from 0 to 1. Default: shared; "
            "with --over: word."
        ),
    ] = None,
    kind: Format = "png",
) -> None:
    """Show other words, layers, steps or heads of a saved run.

    No model is loaded. Saves overlays and a sheet of what was selected; with --over, also a sheet
    of a word over its steps (timeline.png, timeline.gif), layers or heads.
    """
    from heedmap.figures.overlays import png
    from heedmap.figures.plots import encode
    from heedmap.io.writing import slug, whole_folder
    from heedmap.maps.heatmaps import REFINED_BY
    from heedmap.maps.word_figures import mean_of

    saved = hm.Run.load(run)
    place = task.place(run / "inspect")
    maps = maps_of(saved, concepts)
    parts = {"layers": layers, "steps": steps, "heads": heads}
    parts = {axis: part for axis, part in parts.items() if part is not None}
    maps = maps.refined if refined else maps
    maps = maps.select(**parts) if parts else maps
    if steps is not None:
        first, last, _ = steps.indices(len(saved.maps.recording.timesteps))
        parts["steps"] = f"{first}:{last}"
    flags = {"refined": refined, "concepts": concepts, **parts, "over": over, "scale": scale}
    flags |= {"format": kind != "png" and kind}
    name = folder_name(word, flags)
    scale = scale or ("word" if over else "shared")
    selection = {"words": word, **flags, "scale": scale}

    words = list(dict.fromkeys(word or [one.number for one in maps.words]))
    heats = [maps[one] if isinstance(one, str) else maps.at(one) for one in words]
    images = [f"words/{n}-{slug(heat.label, 40)}.png" for n, heat in enumerate(heats)]
    of_axes = _draw_over(maps, words, over, scale, kind) if over else {}
    figure, overlays = maps.figure_and_overlays(heats, scale=scale)
    files = {f"sheet.{kind}": encode(figure, kind), **of_axes}
    files |= zip(images, map(png, overlays), strict=True)

    data: dict[str, Any] = {
        "run": str(run),
        "prompt": maps.tokens.prompt,
        "selection": {name: value for name, value in selection.items() if value},
        "layers": [layer.name for layer in maps.layers],
    }

    def save(folder: Path) -> None:
        words = zip(heats, images, strict=True)
        data["words"] = [
            {"word": heat.label, **heat_summary(heat), "file": str(folder / file)}
            for heat, file in words
        ]
        data["over"] = [str(folder / file) for file in of_axes]
        data.update(folder=str(folder), sheet=str(folder / f"sheet.{kind}"))
        with whole_folder(folder) as partial:
            (partial / "words").mkdir()
            for file, content in files.items():
                (partial / file).write_bytes(content)
            (partial / "inspect.json").write_text(dumps(data) + "\n", encoding="utf-8")

    folder = place.put(save, name)
    if task.verbose:
        rows = [
            (heat.label, *heat_cells(heat), file) for file, heat in zip(images, heats, strict=True)
        ]
        print_table(("word", *COLUMNS, "file"), rows, folder)
        how = f", {REFINED_BY}" if refined else ""
        typer.echo(f"Shares of attention, {mean_of(maps)}{how}.")
        for file in (data["sheet"], *data["over"]):
            typer.echo(file)
    task.finish(data, [folder], data["sheet"])


COLUMNS = ("most", "mean", "hottest at")


def heat_summary(heat: "hm.HeatMap") -> dict[str, Any]:
    """Return the extremum, the mean and the peak of a map (None if it is 0)."""
    most, mean = (round(float(value), 6) for value in (heat.extremum, heat.values.mean()))
    peak = list(heat.peak) if heat.values.any() else None
    return {"most": most, "mean": mean, "peak": peak}


def heat_cells(heat: "hm.HeatMap") -> tuple[str, str, str]:
    """Format the numbers of a map for the `COLUMNS` of a table."""
    peak = "{}, {}".format(*heat.peak) if heat.values.any() else "nowhere"
    return f"{heat.extremum:.3f}", f"{heat.values.mean():.3f}", peak


def maps_of(run: "hm.Run", concepts: bool) -> "hm.HeatMaps":
    """Return the maps of a run's prompt, or of its concepts."""
    maps = run.concepts if concepts else run.maps
    if maps is None:
        raise RunError("this run has no concepts: make one with --concept, or omit --concepts")
    return maps


def folder_name(words: list[Any] | None, flags: Mapping[str, Any]) -> str:
    """Name a folder by words and by the flags that are set."""
    from heedmap.io.writing import slug

    parts = [*(words or ["all"])]
    for name, value in flags.items():
        if value is not None and value is not False:
            values = value if isinstance(value, list) else [value]
            parts += [name, *(one for one in values if one is not True)]
    return slug(" ".join(map(str, parts)), 100)


def _draw_over(
    maps: "hm.HeatMaps", words: Sequence[str | int], over: str, scale: Any, kind: str
) -> dict[str, bytes]:
    from heedmap.figures.plots import encode
    from heedmap.maps import word_figures

    if len(words) != 1:
        raise ArgumentError(f"over shows one word, not {len(words)}: name one with --word")
    (word,) = words
    if over == "steps":
        return {
            f"timeline.{kind}": encode(word_figures.timeline(maps, word, scale=scale), kind),
            "timeline.gif": word_figures.animation(maps, word, scale=scale).gif(),
        }
    axes: list[Any] = [axis.removesuffix("s") for axis in over.split(",")]
    figure = word_figures.layers_by_heads(maps, word, axes=axes, scale=scale)
    return {f"{over.replace(',', '-')}.{kind}": encode(figure, kind)}
