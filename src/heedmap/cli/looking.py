"""`heedmap inspect`, `words`, `layers`: look at what is there; nothing is drawn by a model."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedmap.cli.console import (
    dumps,
    loading,
    print_json,
    print_lines,
    print_table,
    printable,
    progress_bar,
)
from heedmap.cli.options import Device, Dtype, Force, Format, Json, Model, Prompt, Quiet, Size
from heedmap.cli.reading import (
    parse_names,
    parse_numbers,
    parse_over,
    parse_path,
    parse_range,
    show_range,
)
from heedmap.errors import ArgumentError, RunError, plural, quoted

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMap, HeatMaps, Scale
    from heedmap.models.dimensions import LayerShapes
    from heedmap.text.words import TokenTable

SELECTABLE = ("layers", "steps", "heads")


def inspect(
    run: Annotated[
        Path, typer.Argument(parser=parse_path, metavar="RUN", help="The folder of a saved run.")
    ],
    word: Annotated[
        list[str] | None,
        typer.Option(
            "--word",
            "-w",
            metavar="WORD",
            help="A word, a phrase, or #N for word N; may be repeated. Left out: every word.",
        ),
    ] = None,
    layers: Annotated[
        Any,
        typer.Option(
            parser=parse_names,
            metavar="NAMES",
            help="down, mid, up, a layer, or a pattern with *; commas between.",
        ),
    ] = None,
    steps: Annotated[
        Any, typer.Option(parser=parse_range, metavar="A:B", help="Steps A up to B, as 0:10.")
    ] = None,
    heads: Annotated[
        Any, typer.Option(parser=parse_numbers, metavar="N,N", help="Attention heads, as 0,2.")
    ] = None,
    over: Annotated[
        Any,
        typer.Option(
            parser=parse_over,
            metavar="AXES",
            help="Show one --word over its steps, layers, heads, or layers,heads; steps move too.",
        ),
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"] | None,
        typer.Option(
            help="Colours by one scale for all words, by each word's own, or from 0 to 1. Left "
            "out: shared; with --over: word."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=parse_path,
            metavar="FOLDER",
            help="A new or an empty one. Left out: a new one in RUN/inspect, by selection.",
        ),
    ] = None,
    kind: Format = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Look at other words, layers, steps or heads of a saved run.

    No model is loaded. Saves overlays and a sheet of what was selected; with --over, sheets of a
    word over the steps (timeline.png, timeline.gif), layers or heads too.
    """
    from heedmap.figures import formats
    from heedmap.files import writing
    from heedmap.results import runs

    whole = runs.Run.load(run)
    root = run / "inspect"
    if out is None and root.is_symlink():  # otherwise whoever sent the run could say where to write
        raise RunError(f"{root} is a link: name a folder with --out, or take the link away")
    place = writing.Destination(out, writing.kinds.SELECTION, force=force, root=root)
    maps = whole.maps
    if not (layers is steps is heads is None):
        maps = maps.select(layers=layers, steps=steps, heads=heads)
    chosen = look_up(maps, word)
    usual = "shared" if over is None else "word"
    scale = scale or usual
    kind = kind or "png"
    drawn = {} if over is None else draw_over(maps, word, over, scale, kind)
    selection = {
        "words": word,
        "layers": layers,
        "steps": None if steps is None else show_range(steps),
        "heads": heads,
        "over": None if over is None else ",".join(over),
        "scale": scale,
        "format": None if kind == "png" else kind,
    }

    def about(folder: Path) -> dict[str, Any]:
        return {
            "run": str(run),
            "folder": str(folder),
            "prompt": maps.tokens.prompt,
            "selection": {name: value for name, value in selection.items() if value is not None},
            "layers": [layer.name for layer in maps.layers],
            "sheet": str(folder / f"sheet.{kind}"),
            **({"over": [str(folder / file) for file in drawn]} if drawn else {}),
            "words": [
                {
                    "word": heat.label,
                    "most": round(float(heat.values.max()), 6),
                    "mean": round(float(heat.values.mean()), 6),
                    "peak": list(heat.peak),
                    "file": str(folder / file),
                }
                for file, heat in chosen.items()
            ],
        }

    def save(folder: Path, *, force: bool) -> None:
        with writing.whole_folder(folder, writing.kinds.SELECTION, force=force) as partial:
            sheet = maps.figure(list(chosen.values()), scale=scale)
            (partial / f"sheet.{kind}").write_bytes(sheet.data(kind))
            for file, data in drawn.items():
                (partial / file).write_bytes(data)
            (partial / "words").mkdir()
            for file, heat in chosen.items():
                (partial / file).write_bytes(formats.png(heat.overlay(scale=scale)))
            text = dumps(about(folder)) + "\n"
            (partial / "inspect.json").write_text(text, encoding="utf-8")

    folder = place.put(save, selection_name(selection, usual))
    if json:
        print_json(about(folder))
    elif quiet:
        print_lines([str(folder)])
    else:
        print_inspection(folder, about(folder))


def words(prompt: Prompt, model: Model = None, json: Json = False) -> None:
    """Print the tokens that each word of PROMPT becomes.

    And which words are past what the model reads.
    """
    hidden = json or model is None or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap.models import pipelines

        table = pipelines.table(prompt, model)
    if json:
        print_json(table.to_dict())
    else:
        print_tokens(table)


def layers(
    model: Model = None,
    size: Size = None,
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer",
            "-l",
            metavar="NAME",
            help="Which to follow from X to Y: down, mid, up, a layer, or a pattern with *. "
            "Left out: the first.",
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json: Json = False,
) -> None:
    """Print the shapes in every cross-attention layer of a model.

    Of Q, K, V, the scores and the output: measured while the model takes one step.
    """
    hidden = json or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap.models import dimensions, pipelines

        pipe = pipelines.load(model, device=device, dtype=dtype)
    pipe.set_progress_bar_config(disable=True)
    with progress_bar("Taking one step", hidden=hidden):
        found = dimensions.layer_shapes(pipe, size=size)
    chosen = found[:1] if layer is None else dimensions.pick(found, layer)
    drawn = size or pipelines.own_size(pipe)
    if json:
        listed = found if layer is None else chosen
        about = {"model": pipelines.name_of(pipe), "size": drawn}
        print_json({**about, "layers": [one.to_dict() for one in listed]})
    else:
        print_layers(
            f"{pipelines.name_of(pipe)}, {'{}×{}'.format(*drawn)} pixels: "
            f"{plural(len(found), 'layer')} of cross-attention",
            found,
            chosen,
        )


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


def numbered(query: str) -> str | int:
    """The number of a word in `#N`; a word or phrase as it is."""
    if not query.startswith("#"):
        return query
    number = query[1:].strip()
    if not (number.isdecimal() and len(number) <= 9):
        raise ArgumentError(f"'#' is followed by the number of a word; got {quoted(query)}.")
    return int(number)


def draw_over(
    maps: "HeatMaps", queries: Sequence[str] | None, over: Sequence[str], scale: "Scale", kind: str
) -> dict[str, bytes]:
    """The sheets of one word over the given axes: the content of each file, by its name."""
    from heedmap.maps import timelines

    asked = dict.fromkeys(queries or [f"#{word.number}" for word in maps.words])
    if len(asked) != 1:
        raise ArgumentError(f"--over shows one word; got {len(asked)}: name one with --word.")
    (query,) = asked
    word = numbered(query)
    if list(over) == ["steps"]:
        still = timelines.timeline(maps, word, scale=scale)
        moving = timelines.animation(maps, word, scale=scale)
        return {f"timeline.{kind}": still.data(kind), "timeline.gif": moving.gif()}
    axes: list[Any] = [axis.removesuffix("s") for axis in over]
    sheet = timelines.layers_by_heads(maps, word, axes=axes, scale=scale)
    return {f"{'-'.join(over)}.{kind}": sheet.data(kind)}


def selection_name(selection: Mapping[str, Any], usual: str = "shared") -> str:
    """The name of the folder for a selection: whatever is not the default."""
    from heedmap.files.writing import slug

    parts = [*(selection["words"] or ["all"])]
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
    rows = [
        (
            word["word"],
            f"{word['most']:.3f}",
            f"{word['mean']:.3f}",
            "{}, {}".format(*word["peak"]),
            Path(word["file"]).relative_to(folder).as_posix(),
        )
        for word in about["words"]
    ]
    print_table(("word", "most", "mean", "hottest at", "file"), rows, title=str(folder))
    chosen = [
        f"{axis} {value if isinstance(value, str) else ', '.join(map(str, value))}"
        for axis, value in about["selection"].items()
        if axis in SELECTABLE
    ]
    typer.echo(
        f"Shares of attention, averaged over {plural(len(about['layers']), 'layer')}"
        f"{printable('; '.join(['', *chosen]))}. The words together: {Path(about['sheet']).name}"
    )
    if over := [Path(file).name for file in about.get("over", ())]:
        typer.echo(f"Over its {about['selection']['over']}: {', '.join(over)}")


def print_layers(
    title: str, layers: "Sequence[LayerShapes]", followed: "Sequence[LayerShapes]"
) -> None:
    """Print the shapes of all layers, and some of them line by line."""
    from heedmap.models.dimensions import short_names

    columns = {
        "grid": [layer.grid for layer in layers],
        "heads": [(layer.heads, layer.head_query[1]) for layer in layers],
        "Q": [layer.query for layer in layers],
        "K, V": [layer.key for layer in layers],
        "scores": [layer.scores for layer in layers],
        "output": [layer.output for layer in layers],
    }
    if columns["Q"] == columns["output"]:  # as in all known models: then the table is narrower
        columns = {"Q, output" if name == "Q" else name: columns[name] for name in columns}
        del columns["output"]
    names = [layer.name for layer in layers]
    shapes = [
        ["{}×{}".format(*pair) for pair in row] for row in zip(*columns.values(), strict=True)
    ]
    rows, shorter = (
        [(name, *row) for name, row in zip(column, shapes, strict=True)]
        for column in (names, short_names(names))
    )
    print_table(("layer", *columns), rows, title, right=columns, shorter=shorter)
    typer.echo("Heads: number × channels. Scores: of one head. Q, K, V and output: of all.")
    for layer in followed:
        chain = layer.chain()
        left, right = (max(len(str(shape[side])) for *_, shape in chain) for side in (0, 1))
        lines = [(what, how, f"{n:{left}} × {m:<{right}}") for what, how, (n, m) in chain]
        typer.echo()
        print_table(("", "made of", "shape"), lines, layer.name)


def print_tokens(table: "TokenTable") -> None:
    """Print the words of a prompt and the tokens the model reads of them."""
    texts = {token.position: token.text for token in table.tokens}
    rows = [
        (
            str(word.number),
            word.text,
            " ".join(texts[position] for position in word.tokens) or "-",
            ", ".join(map(str, word.tokens)) or "-",
            "yes" if not word.missing else "in part" if word.tokens else "no",
        )
        for word in table.words
    ]
    print_table(("#", "word", "tokens", "positions", "read"), rows)
    count, room = len(table.positions("text")), len(table.positions("text", "pad"))
    typer.echo(f"{plural(count, 'token')} of the {room} that the model can read.")
    print_unread(table)


def print_unread(table: "TokenTable") -> None:
    """Print the part of a prompt that the model did not read, if there is one."""
    if table.missing:
        since = f": all from {table.cut.text!r} (word {table.cut.number}) on" if table.cut else ""
        more = plural(table.missing, "more token")
        typer.echo(f"{more} {'are' if table.missing > 1 else 'is'} not read{printable(since)}.")
