"""`heedmap layers`: the shapes in every cross-attention layer of a model."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from heedmap.cli.console import loading, print_json, print_table, progress_bar, say
from heedmap.cli.options import DeviceFlag, DtypeFlag, Json, Model, Size
from heedmap.errors import plural
from heedmap.options import LoadOptions

if TYPE_CHECKING:
    from heedmap.models.dimensions import LayerShapes


def layers(
    model: Model = None,
    size: Size = None,
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer",
            "-l",
            metavar="NAME",
            help="Which to follow from X to Y: down, mid, up, a layer as 'up 1.0', or a "
            "pattern with *. Left out: the first.",
        ),
    ] = None,
    device: DeviceFlag = LoadOptions.device,
    dtype: DtypeFlag = LoadOptions.dtype,
    json: Json = False,
) -> None:
    """Print the shapes in every cross-attention layer of a model.

    Of Q, K, V, the scores and the output: measured while the model takes one step.
    """
    hidden = json or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap.models import dimensions, pipelines
        from heedmap.wiring.registry import usual_size

        pipe = pipelines.load(model, device=device, dtype=dtype)
    pipe.set_progress_bar_config(disable=True)
    with progress_bar("Taking one step", hidden=hidden):
        found = dimensions.layer_shapes(pipe, size=size)
    chosen = found[:1] if layer is None else dimensions.pick(found, layer)
    drawn = size or usual_size(pipe)
    if json:
        listed = found if layer is None else chosen
        about = {"model": pipelines.name_of(pipe), "size": drawn}
        print_json({**about, "layers": [asdict(one) for one in listed]})
    else:
        print_layers(
            f"{pipelines.name_of(pipe)}, {'{}×{}'.format(*drawn)} pixels: "
            f"{plural(len(found), 'layer')} of cross-attention",
            found,
            chosen,
        )


def print_layers(
    title: str, layers: "Sequence[LayerShapes]", followed: "Sequence[LayerShapes]"
) -> None:
    """Print the shapes of all layers, and some of them line by line."""
    from heedmap.maps.layer_names import short_names

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
    shapes = [
        ["{}×{}".format(*pair) for pair in row] for row in zip(*columns.values(), strict=True)
    ]
    names = [layer.name for layer in layers]
    called = dict(zip(names, short_names(names), strict=True))
    shorter = [(short, *row) for short, row in zip(called.values(), shapes, strict=True)]
    rows = [(*row, name) for name, row in zip(names, shorter, strict=True)]
    heads = ("layer", *columns, "its name in the model")
    print_table(heads, rows, title, right=columns, shorter=shorter)
    say("Heads: number × channels. Scores: of one head. Q, K, V and output: of all.")
    for layer in followed:
        chain = layer.chain()
        left, right = (max(len(str(shape[side])) for *_, shape in chain) for side in (0, 1))
        lines = [(what, how, f"{n:{left}} × {m:<{right}}") for what, how, (n, m) in chain]
        typer.echo()
        print_table(("", "made of", "shape"), lines, f"{called[layer.name]}: {layer.name}")
