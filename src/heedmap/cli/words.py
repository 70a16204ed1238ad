"""`heedmap words` and `heedmap layers`: the tokens of a prompt, and the layers of a model."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

import heedmap as hm
from heedmap.cli.console import EMBEDDED, Prompt, Task, command, print_table
from heedmap.errors import as_sentence, plural, warn
from heedmap.options import GenerateOptions

_SAMPLING = "steps guidance negative"
_LAYER = (
    "Layers whose computation is also written as matrix products: 'up', 'single', 'up 1.0' or a "
    "pattern with *. Default: the first."
)


@command(model=EMBEDDED, without="device dtype")
def words(task: Task, prompt: Prompt) -> None:
    """Print the tokens of each word of PROMPT.

    Also the words past the model's limit, and the weights of words, as in "a (red:1.5) house".
    """
    from heedmap.backends import loading
    from heedmap.text.prompts import untaught, untaught_warning
    from heedmap.text.weights import bracket_warning, parse_weights, token_weights

    parsed = parse_weights(prompt)
    table = loading.token_table(parsed.text, task.model)
    weights = token_weights(parsed.spans, table)
    unknown = untaught([parsed.text], loading.model_card(task.model).vocabulary)
    for warning in (untaught_warning(unknown or ()), bracket_warning(parsed)):
        if warning:
            warn(warning)
    if task.verbose:
        columns = ["#", "word", "tokens", "positions", "read"]
        if parsed.spans:
            columns.append("weight")
        texts = {token.position: token.text for token in table.tokens}
        rows: list[list[str]] = []
        for word in table.words:
            tokens = " ".join(texts[position] for position in word.tokens)
            positions = ", ".join(map(str, word.tokens))
            read = "no"
            if word.tokens:
                read = "in part" if word.missing else "yes"
            weight = weights.get(word.tokens[0], 1.0) if word.tokens else 1.0
            row = [str(word.number), word.text, tokens, positions, read, f"{weight:g}"]
            rows.append(row[: len(columns)])
        print_table(columns, rows)
        counts = [
            f"{plural(count, 'token')} of the {most}" for count, most in table.loads
        ]
        typer.echo(f"{' and '.join(counts)} that the model can read.")
        if table.unread:
            typer.echo(as_sentence(table.unread))
    task.finish({**asdict(table), "weights": weights}, [])


@command(
    GenerateOptions,
    model=EMBEDDED,
    without=f"{_SAMPLING} keep concepts places reads share_of budget arguments",
)
def layers(
    task: Task,
    *,
    layer: Annotated[str | None, typer.Option("--layer", "-l", help=_LAYER)] = None,
    **options: Any,
) -> None:
    """Print the shapes of Q, K, V, scores and output in each layer.

    The layers are those that read the text.
    """
    pipe = task.load()
    from heedmap.backends import layer_shapes, loading
    from heedmap.backends.registry import default_size
    from heedmap.maps.recordings import short_names

    shapes = hm.layer_shapes(pipe, **options)
    if layer is None:
        listed = shapes
        followed = shapes[:1]
    else:
        listed = followed = layer_shapes.pick(shapes, layer)
    width, height = options.get("size") or default_size(pipe)
    name = loading.name_of(pipe)
    if task.verbose:
        kind = "cross"
        short = short_names({one.name: one.part for one in shapes})
        rows: list[list[str]] = []
        for one in shapes:
            sizes = (one.grid, (one.heads, one.head_dim), one.query, one.key)
            cells = [short[one.name], *("{}×{}".format(*size) for size in sizes)]
            if one.image_key is not None:
                kind = "joint"
                cells[-1] += " + {}×{}".format(*one.image_key)
            cells += ["{}×{}".format(*size) for size in (one.scores, one.output)]
            rows.append(cells)
        count = plural(len(shapes), f"{kind}-attention layer")
        columns = ("layer", "grid", "heads", "Q", "K, V", "scores", "output")
        print_table(columns, rows, f"{name}, {width}×{height} pixels: {count}")
        typer.echo(
            "heads: number × channels per head; K, V: of the text + of the image; scores: for one "
            "head; others: for all."
        )
        for one in followed:
            lines = [
                (part, source, "{} × {}".format(*shape))
                for part, source, shape in one.chain()
            ]
            typer.echo()
            title = f"{short[one.name]}: {one.name}"
            print_table(("", "made of", "shape"), lines, title)
    data = {
        "model": name,
        "size": [width, height],
        "layers": [asdict(one) for one in listed],
    }
    task.finish(data, [])
