"""`heedmap inspect`: other words, layers, steps or heads of a saved run; no model is loaded."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedmap.cli.console import dumps, print_table, printable, say
from heedmap.cli.heats import HEAT_COLUMNS, about_heat, about_stability, heat_cells, stability_cells
from heedmap.cli.interrupts import kept_told
from heedmap.cli.options import (
    Format,
    OfConcepts,
    OutputFlags,
    SaveFlags,
    grouped,
    maps_of,
    out_option,
)
from heedmap.cli.parsing import (
    numbered,
    parse_names,
    parse_numbers,
    parse_over,
    parse_path,
    parse_range,
    show_range,
)
from heedmap.errors import ArgumentError, RunError, plural
from heedmap.models.imports import uncollected

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMap, HeatMaps, Scale

SELECTABLE = ("layers", "steps", "heads")


@dataclass(frozen=True)
class SelectFlags:
    """What of the maps is looked at."""

    word: Annotated[
        list[str] | None,
        typer.Option(
            "--word",
            "-w",
            metavar="WORD",
            help="A word, a phrase, or #N for word N; may be repeated. Left out: every word.",
        ),
    ] = None
    layers: Annotated[
        Any,
        typer.Option(
            parser=parse_names,
            metavar="NAMES",
            help="down, mid, up, a layer as 'up 1.0', or a pattern with *; commas between.",
        ),
    ] = None
    steps: Annotated[
        Any, typer.Option(parser=parse_range, metavar="A:B", help="Steps A up to B, as 0:10.")
    ] = None
    heads: Annotated[
        Any, typer.Option(parser=parse_numbers, metavar="N,N", help="Attention heads, as 0,2.")
    ] = None

    refined: Annotated[
        bool,
        typer.Option(
            "--refined", help="The maps refined by self-attention: of all layers, steps and heads."
        ),
    ] = False
    concepts: OfConcepts = False

    def of(self, maps: "HeatMaps", *, over: bool = False) -> "HeatMaps":
        """Those maps, of all words; `over` is whether they shall be shown over an axis."""
        if self.refined:
            parts = {axis: getattr(self, axis) is not None for axis in SELECTABLE}
            given = [axis for axis, is_given in {**parts, "over": over}.items() if is_given]
            if given:
                raise ArgumentError(
                    f"--{given[0]} is given with --refined: expected one of them, since refined "
                    "maps are of all layers, steps and heads"
                )
            return maps.refined
        if self.layers is self.steps is self.heads is None:
            return maps
        return maps.select(layers=self.layers, steps=self.steps, heads=self.heads)

    def steps_of(self, count: int) -> str | None:
        """Which of a run's steps they are: ":" and negative ones as numbers, none past the last."""
        return None if self.steps is None else show_range(slice(*self.steps.indices(count)[:2]))


@dataclass(frozen=True)
class FigureFlags:
    """How it is drawn."""

    over: Annotated[
        Any,
        typer.Option(
            parser=parse_over,
            metavar="AXES",
            help="Show one --word over its steps, layers, heads, or layers,heads; steps move too.",
        ),
    ] = None
    scale: Annotated[
        Literal["shared", "word", "raw"] | None,
        typer.Option(
            help="Colours by one scale for all words, by each word's own, or from 0 to 1. Left "
            "out: shared; with --over: word."
        ),
    ] = None
    kind: Format = None

    @property
    def usual(self) -> "Scale":
        """The scale where none is named."""
        return "shared" if self.over is None else "word"


@dataclass(frozen=True)
class BesideFlags(SaveFlags):
    """Where the selection goes: beside the run, unless something else is said."""

    out: Annotated[
        Path | None,
        out_option(
            "FOLDER", "A new or an empty one. Left out: a new one in RUN/inspect, by selection."
        ),
    ] = None


@grouped
def inspect(
    run: Annotated[
        Path, typer.Argument(parser=parse_path, metavar="RUN", help="The folder of a saved run.")
    ],
    *,
    selected: SelectFlags,
    shown: FigureFlags,
    saved: BesideFlags,
    told: OutputFlags,
) -> None:
    """Look at other words, layers, steps or heads of a saved run.

    No model is loaded. Saves overlays and a sheet of what was selected; with --over, sheets of a
    word over the steps (timeline.png, timeline.gif), layers or heads too.
    """
    with uncollected():
        from heedmap.files import writing
        from heedmap.results import runs

    whole = runs.Run.load(run)
    root = folder_beside(run, "inspect", saved.out)
    place = writing.Destination(saved.out, root=root)
    own = maps_of(whole, concepts=selected.concepts)
    maps = selected.of(own, over=shown.over is not None)
    found = Inspection(
        run, maps, look_up(maps, selected.word), shown.scale or shown.usual, shown.kind or "png"
    )
    if shown.over is not None:
        over = draw_over(maps, selected.word, shown.over, found.scale, found.kind)
        found = replace(found, over=over)
    selection = {
        "words": selected.word,
        "refined": selected.refined or None,
        "concepts": selected.concepts or None,
        "layers": selected.layers,
        "steps": selected.steps_of(len(whole.maps.recording.timesteps)),
        "heads": selected.heads,
        "over": None if shown.over is None else ",".join(shown.over),
        "scale": found.scale,
        "format": None if found.kind == "png" else found.kind,
    }

    def save(folder: Path) -> None:
        with writing.whole_folder(folder) as partial:
            found.write(partial)
            text = dumps(found.about(folder, selection)) + "\n"
            (partial / "inspect.json").write_text(text, encoding="utf-8")

    with kept_told(place.saved):
        folder = place.put(save, selection_name(selection, shown.usual))
    about = found.about(folder, selection)
    told.tell(about, [str(folder)], lambda: print_inspection(folder, about))


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was looked at.

    Attributes:
        run: its folder.
        maps: those that were selected.
        chosen: those that are drawn, by the name of their file.
        scale: of their colours.
        kind: of the figures' files.
        over: the figures of one word over the axes, by the name of their file.
    """

    run: Path
    maps: "HeatMaps"
    chosen: "Mapping[str, HeatMap]"
    scale: "Scale"
    kind: Literal["png", "svg", "pdf"]
    over: Mapping[str, bytes] = field(default_factory=dict)

    def about(self, folder: Path, selection: Mapping[str, Any]) -> dict[str, Any]:
        """What `inspect --json` says of it."""
        return {
            "run": str(self.run),
            "folder": str(folder),
            "prompt": self.maps.tokens.prompt,
            "selection": {name: value for name, value in selection.items() if value is not None},
            "layers": [layer.name for layer in self.maps.layers],
            "sheet": str(folder / f"sheet.{self.kind}"),
            **({"over": [str(folder / file) for file in self.over]} if self.over else {}),
            "words": [
                {
                    "word": heat.label,
                    **about_heat(heat),
                    **about_stability(heat, self.maps),
                    "file": str(folder / file),
                }
                for file, heat in self.chosen.items()
            ],
        }

    def write(self, folder: Path) -> None:
        """Write its pictures into a folder."""
        from heedmap.figures import formats

        for file, data in self.over.items():
            (folder / file).write_bytes(data)
        (folder / "words").mkdir()
        sheet, drawn = self.maps.laid_out(list(self.chosen.values()), scale=self.scale)
        with ThreadPoolExecutor(1) as aside:  # what packs a picture lets others work meanwhile
            if self.kind == "png":
                packed = aside.submit(formats.png, sheet.image())
            else:
                packed = aside.submit(sheet.figure().data, self.kind)
            for file, overlay in zip(self.chosen, drawn, strict=True):
                (folder / file).write_bytes(formats.png(overlay))
            (folder / f"sheet.{self.kind}").write_bytes(packed.result())


def folder_beside(run: Path, name: str, out: Path | None) -> Path:
    """The folder of that name within a run's, where new ones are made unless one was named.

    Raises:
        RunError: if it is a link: whoever sent the run could say where to write.
    """
    root = run / name
    if out is None and root.is_symlink():
        raise RunError(f"{root} is a link: name a folder with --out, or take the link away")
    return root


def look_up(maps: "HeatMaps", queries: Sequence[str] | None) -> "dict[str, HeatMap]":
    """The maps that were asked for, by the name of their file; by default those of every word."""
    from heedmap.files.writing import slug
    from heedmap.results.runs import word_file

    if not queries:
        return {word_file(word): maps.at(word.number) for word in maps.words}
    chosen: dict[str, HeatMap] = {}
    for query in dict.fromkeys(queries):
        wanted = numbered(query)
        if isinstance(wanted, int):
            word = maps.tokens.at(wanted)
            chosen[word_file(word)] = maps.at(word.number)
        else:
            name = f"words/{slug(query, 40)}"
            while f"{name}.png" in chosen:  # without letters it has no name of its own
                name += "-"
            chosen[f"{name}.png"] = maps[query]
    return chosen


def draw_over(
    maps: "HeatMaps", queries: Sequence[str] | None, over: Sequence[str], scale: "Scale", kind: str
) -> dict[str, bytes]:
    """The sheets of one word over the given axes: the content of each file, by its name."""
    from heedmap.maps import layer_heads, timelines

    asked = dict.fromkeys(queries or [f"#{word.number}" for word in maps.words])
    if len(asked) != 1:
        raise ArgumentError(f"--over shows one word, not {len(asked)}: name one with --word")
    (query,) = asked
    word = numbered(query)
    if list(over) == ["steps"]:
        still = timelines.timeline(maps, word, scale=scale)
        moving = timelines.animation(maps, word, scale=scale)
        return {f"timeline.{kind}": still.data(kind), "timeline.gif": moving.gif()}
    axes: list[Any] = [axis.removesuffix("s") for axis in over]
    sheet = layer_heads.layers_by_heads(maps, word, axes=axes, scale=scale)
    return {f"{'-'.join(over)}.{kind}": sheet.data(kind)}


def selection_name(selection: Mapping[str, Any], usual: str) -> str:
    """The name of the folder for a selection: whatever is not as `usual`, the scale included."""
    from heedmap.files.writing import slug

    parts = [*(selection["words"] or ["all"])]
    parts += [name for name in ("concepts", "refined") if selection[name]]
    for axis in SELECTABLE:
        value = selection[axis]
        if value is not None:
            parts.append(f"{axis} {value if isinstance(value, str) else ' '.join(map(str, value))}")
    if selection["over"]:
        parts.append(f"over {selection['over']}")
    if selection["scale"] != usual:
        parts.append(f"{selection['scale']} scale")
    if selection["format"]:
        parts.append(selection["format"])
    return slug(" ".join(parts), 100)


def print_inspection(folder: Path, about: Mapping[str, Any]) -> None:
    """Print what `inspect` found: how much each word drew, and where most."""
    from heedmap.maps.recordings import AVERAGED
    from heedmap.maps.word_map import REFINED_BY

    held = stability_cells(about["words"])
    rows = [
        (word["word"], *heat_cells(word), *more, Path(word["file"]).relative_to(folder).as_posix())
        for word, more in zip(about["words"], held[1:], strict=True)
    ]
    print_table(("word", *HEAT_COLUMNS, *held[0], "file"), rows, title=str(folder))
    chosen = [
        f"{axis} {value if isinstance(value, str) else ', '.join(map(str, value))}"
        for axis, value in about["selection"].items()
        if axis in SELECTABLE
    ]
    found = about["layers"]
    layers = "all layers" if found == [AVERAGED] else plural(len(found), "layer")
    of = f"averaged over {layers}{printable('; '.join(['', *chosen]))}"
    if about["selection"].get("refined"):
        of = f"of all layers, steps and heads, {REFINED_BY}"
    say(f"Shares of attention, {of}. The words together: {Path(about['sheet']).name}")
    if over := [Path(file).name for file in about.get("over", ())]:
        say(f"Over its {about['selection']['over']}: {', '.join(over)}")
