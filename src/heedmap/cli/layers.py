"""`heedmap layers`: the shapes in every cross-attention layer of a model."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from heedmap.cli import console
from heedmap.cli import options as opt
from heedmap.errors import plural
from heedmap.options import LoadOptions

if TYPE_CHECKING:
    from heedmap.backends.processors import LayerShapes


def layers(
    model: opt.Model = None,
    size: opt.Size = None,
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer",
            "-l",
            help="Layers to follow from X to Y, as 'up', 'up 1.0' or a pattern with *. Default: "
            "the first.",
        ),
    ] = None,
    device: opt.Device = LoadOptions.device,
    dtype: opt.Dtype = LoadOptions.dtype,
    json: opt.Json = False,
) -> None:
    """Print the shapes of Q, K, V, the scores and the output in every cross-attention layer."""
    pipe = console.load_model(model, device, dtype, json)
    from heedmap.backends import loading, processors
    from heedmap.backends.registry import usual_size

    found = processors.layer_shapes(pipe, size=size)
    chosen = found[:1] if layer is None else processors.pick(found, layer)
    width, height = size or usual_size(pipe)
    name = loading.name_of(pipe)
    listed = found if layer is None else chosen
    data = {"model": name, "size": [width, height], "layers": [asdict(one) for one in listed]}
    count = plural(len(found), "cross-attention layer")
    title = f"{name}, {width}×{height} pixels: {count}"
    console.print_result(data, [], lambda: print_layers(title, found, chosen), json)


def print_layers(
    title: str, layers: "Sequence[LayerShapes]", followed: "Sequence[LayerShapes]"
) -> None:
    """Print the shapes of all layers, and the computation of some of them."""
    from heedmap.maps.recordings import short_names

    names = [layer.name for layer in layers]
    short = dict(zip(names, short_names(names), strict=True))
    columns = ("layer", "grid", "heads", "Q", "K, V", "scores", "output")
    rows = []
    for layer in layers:
        heads = (layer.heads, layer.head_dim)
        shapes = (layer.grid, heads, layer.query, layer.key, layer.scores, layer.output)
        rows.append((short[layer.name], *("{}×{}".format(*shape) for shape in shapes)))
    console.print_table(columns, rows, title, right=columns[1:])
    typer.echo("Heads: number × channels. Scores: of one head. Q, K, V and output: of all heads.")
    for layer in followed:
        lines = [(what, how, "{} × {}".format(*shape)) for what, how, shape in layer.chain()]
        typer.echo()
        heading = f"{short[layer.name]}: {layer.name}"
        console.print_table(("", "made of", "shape"), lines, heading, right=("shape",))
