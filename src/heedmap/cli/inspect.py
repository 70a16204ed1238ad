"""`heedmap inspect`: other words, layers, steps or heads of a saved run; no model is loaded."""

from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedmap.cli import console
from heedmap.cli import options as opt
from heedmap.errors import ArgumentError, plural
from heedmap.text import option_texts

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMap, HeatMaps, Scale

COLUMNS = ("most", "mean", "hottest at")


def heat_summary(heat: "HeatMap") -> dict[str, Any]:
    """Give the extremum, the mean and the place of the extremum, None for a map of zeros."""
    most, mean = (round(float(value), 6) for value in (heat.extremum, heat.values.mean()))
    return {"most": most, "mean": mean, "peak": list(heat.peak) if heat.values.any() else None}


def heat_cells(summary: Mapping[str, Any]) -> tuple[str, str, str]:
    """Format a summary for the `COLUMNS` of a table."""
    peak = summary["peak"]
    place = "nowhere" if peak is None else "{}, {}".format(*peak)
    return f"{summary['most']:.3f}", f"{summary['mean']:.3f}", place


def stability_of(heat: "HeatMap", maps: "HeatMaps") -> dict[str, float]:
    """Give the stability of a map, of a phrase that of its least stable word, if it is known."""
    from heedmap.maps.selections import least_stability

    found = least_stability(maps.stability, maps.words, heat.tokens)
    return {} if found is None else {"stability": found}


def stability_column(summaries: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Make a column for a table, its heading first; of no width if no stability is known."""
    from heedmap.maps.selections import stability_said

    found = [summary.get("stability") for summary in summaries]
    if all(one is None for one in found):
        return [()] * (len(found) + 1)
    texts = ["-" if one is None else stability_said(one) for one in found]
    return [("stability",), *((text.removeprefix("stability "),) for text in texts)]


OVER = (("steps",), ("layers",), ("heads",), ("layers", "heads"))


def parse_over(text: str) -> tuple[str, ...]:
    """Read the axes of a sheet."""
    for axes in OVER:
        if sorted(option_texts.names_in(text)) == sorted(axes):
            return axes
    raise ArgumentError(f"{text!r}: expected steps, layers, heads or layers,heads")


def inspect(
    run: opt.RunFolder,
    *,
    word: opt.Words = None,
    layers: Annotated[
        Any,
        typer.Option(
            parser=option_texts.names_in,
            metavar="NAMES",
            help="As down, mid, up, 'up 1.0' or a pattern with *; commas between.",
        ),
    ] = None,
    steps: Annotated[
        Any, typer.Option(parser=opt.reader(opt.parse_range), metavar="A:B", help="As 0:10.")
    ] = None,
    heads: Annotated[
        Any, typer.Option(parser=opt.reader(option_texts.numbers_in), metavar="N,N", help="As 0,2.")
    ] = None,
    refined: Annotated[
        bool, typer.Option("--refined", help="The refined maps, of all layers, steps and heads.")
    ] = False,
    concepts: opt.OfConcepts = False,
    over: Annotated[
        Any,
        typer.Option(
            parser=opt.reader(parse_over),
            metavar="AXES",
            help="Show one --word over its steps (also as a GIF), layers, heads, or layers,heads.",
        ),
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"] | None,
        typer.Option(
            help="One colour scale for all words, one for each, or from 0 to 1. Default: shared; "
            "with --over: word."
        ),
    ] = None,
    kind: opt.Format = "png",
    out: Annotated[Path | None, opt.out_option("a new one in RUN/inspect")] = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Show other words, layers, steps or heads of a saved run.

    No model is loaded. Saves overlays and a sheet of what was selected; with --over, also a sheet
    of a word over its steps (timeline.png, timeline.gif), layers or heads.
    """
    from heedmap.io import writing
    from heedmap.results import runs

    saved = runs.Run.load(run)
    place = console.destination(out, root=run / "inspect")
    maps = console.maps_of(saved, concepts)
    parts = {"layers": layers, "steps": steps, "heads": heads}
    given = {axis: part for axis, part in parts.items() if part is not None}
    if refined and (given or over):
        raise ArgumentError(
            "refined maps are of all layers, steps and heads: omit --layers, --steps, --heads and "
            "--over, or --refined"
        )
    maps = maps.refined if refined else maps.select(**given) if given else maps
    if steps is not None:
        first, last, _ = steps.indices(len(saved.maps.recording.timesteps))
        given["steps"] = f"{first}:{last}"
    usual = "shared" if over is None else "word"
    scale = scale or usual
    every = {
        "words": word,
        "refined": refined,
        "concepts": concepts,
        **given,
        "over": over and ",".join(over),
        "scale": scale,
        "format": None if kind == "png" else kind,
    }
    selection = {name: value for name, value in every.items() if value}
    chosen = chosen_maps(maps, word)
    over_files = draw_over(maps, word, over, scale, kind) if over else {}
    files = draw_sheet(maps, chosen, scale, kind) | over_files

    def summary(folder: Path) -> dict[str, Any]:
        return {
            "run": str(run),
            "folder": str(folder),
            "prompt": maps.tokens.prompt,
            "selection": selection,
            "layers": [layer.name for layer in maps.layers],
            "sheet": str(folder / f"sheet.{kind}"),
            **({"over": [str(folder / file) for file in over_files]} if over else {}),
            "words": [
                {
                    "word": heat.label,
                    **heat_summary(heat),
                    **stability_of(heat, maps),
                    "file": str(folder / file),
                }
                for file, heat in chosen.items()
            ],
        }

    def save(folder: Path) -> None:
        with writing.whole_folder(folder) as partial:
            (partial / "words").mkdir()
            for file, data in files.items():
                (partial / file).write_bytes(data)
            text = dumps(summary(folder)) + "\n"
            (partial / "inspect.json").write_text(text, encoding="utf-8")

    folder = place.put(save, selection_name(selection, usual))
    found = summary(folder)
    console.print_result(found, [folder], lambda: print_inspection(folder, found), json, quiet)


def chosen_maps(maps: "HeatMaps", words: Sequence[str] | None) -> "dict[str, HeatMap]":
    """Give the maps of some words, or of all, by the names of their files."""
    from heedmap.io.writing import slug
    from heedmap.results.runs import word_file

    if not words:
        return {word_file(word): maps.at(word.number) for word in maps.words}
    chosen: dict[str, HeatMap] = {}
    for text in dict.fromkeys(words):
        wanted = opt.word_or_number(text)
        if isinstance(wanted, int):
            chosen[word_file(maps.tokens.at(wanted))] = maps.at(wanted)
        else:
            name = slug(text, 40)
            while f"words/{name}.png" in chosen:  # words may differ in signs alone
                name += "-"
            chosen[f"words/{name}.png"] = maps[text]
    return chosen


def draw_sheet(
    maps: "HeatMaps", chosen: "Mapping[str, HeatMap]", scale: "Scale", kind: str
) -> dict[str, bytes]:
    """Draw a sheet of maps and their overlays: the contents of files by name."""
    from heedmap.figures.overlays import png
    from heedmap.figures.plots import encode

    figure, overlays = maps.figure_and_overlays(list(chosen.values()), scale=scale)
    files = zip(chosen, map(png, overlays), strict=True)
    return {f"sheet.{kind}": encode(figure, kind), **dict(files)}


def draw_over(
    maps: "HeatMaps", words: Sequence[str] | None, over: Sequence[str], scale: "Scale", kind: str
) -> dict[str, bytes]:
    """Draw one word over its steps, layers or heads: the contents of files by name."""
    from heedmap.figures.plots import encode
    from heedmap.maps import word_figures

    asked = dict.fromkeys(words or [f"#{word.number}" for word in maps.words])
    if len(asked) != 1:
        raise ArgumentError(f"over shows one word, not {len(asked)}: name one with --word")
    word = opt.word_or_number(next(iter(asked)))
    if tuple(over) == ("steps",):
        return {
            f"timeline.{kind}": encode(word_figures.timeline(maps, word, scale=scale), kind),
            "timeline.gif": word_figures.animation(maps, word, scale=scale).gif(),
        }
    axes: list[Any] = [axis.removesuffix("s") for axis in over]
    figure = word_figures.layers_by_heads(maps, word, axes=axes, scale=scale)
    return {f"{'-'.join(over)}.{kind}": encode(figure, kind)}


def selection_name(selection: Mapping[str, Any], usual: str) -> str:
    """Name the folder of a selection, by all that is not usual."""
    from heedmap.io.writing import slug

    parts = [*selection.get("words", ["all"])]
    for name, value in selection.items():
        if name != "words" and (name, value) != ("scale", usual):
            text = " ".join(map(str, value)) if isinstance(value, list) else value
            parts.append(name if value is True else f"{name} {text}")
    return slug(" ".join(parts), 100)


def print_inspection(folder: Path, found: Mapping[str, Any]) -> None:
    """Print the figures and files of a selection."""
    from heedmap.maps.heatmaps import REFINED_BY
    from heedmap.maps.recordings import AVERAGED

    stability = stability_column(found["words"])
    rows = [
        (word["word"], *heat_cells(word), *more, Path(word["file"]).relative_to(folder).as_posix())
        for word, more in zip(found["words"], stability[1:], strict=True)
    ]
    columns = ("word", *COLUMNS, *stability[0], "file")
    console.print_table(columns, rows, folder)
    layers = found["layers"]
    of = "all layers" if layers == [AVERAGED] else plural(len(layers), "layer")
    if found["selection"].get("refined"):
        of = f"all layers, steps and heads, {REFINED_BY}"
    typer.echo(f"Shares of attention, averaged over {of}; together in {found['sheet']}.")
    for file in found.get("over", ()):
        typer.echo(f"Over its {found['selection']['over']}: {file}")
