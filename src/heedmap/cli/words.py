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
    from heedmap.text.weights import bracket_warning, parse_weights, token_weights

    parsed = parse_weights(prompt)
    with task.loading():
        from heedmap.backends import loading
        from heedmap.text.prompts import untaught, untaught_warnings

        table = loading.token_table(parsed.text, task.model)
    weights = token_weights(parsed.spans, table)
    with task.warnings_printed():
        unknown = untaught([parsed.text], loading.model_card(task.model).vocabulary)
        for warning in untaught_warnings(unknown or (), [parsed.text]):
            warn(warning)
        if brackets := bracket_warning(parsed):
            warn(brackets)
    data: dict[str, Any] = asdict(table)
    for word in data["words"]:
        word["weight"] = next(
            (weights[one] for one in word["tokens"] if one in weights), 1.0
        )
    if task.verbose:
        texts = {token.position: token.text for token in table.tokens}
        rows = [
            (
                str(word.number),
                word.text,
                " ".join(texts[position] for position in word.tokens) or "-",
                ", ".join(map(str, word.tokens)) or "-",
                "yes" if not word.missing else "in part" if word.tokens else "no",
                f"{one['weight']:g}" if parsed.spans else "",
            )
            for word, one in zip(table.words, data["words"], strict=True)
        ]
        print_table(("#", "word", "tokens", "positions", "read", "weight"), rows)
        counts = [
            f"{plural(count, 'token')} of the {most}" for count, most in table.loads
        ]
        typer.echo(f"{' and '.join(counts)} that the model can read.")
        if table.unread:
            typer.echo(as_sentence(table.unread))
    task.finish(data, [])


@command(
    GenerateOptions,
    model=EMBEDDED,
    without=f"{_SAMPLING} keep concepts share_of arguments",
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
    followed = shapes[:1] if layer is None else layer_shapes.pick(shapes, layer)
    width, height = options.get("size") or default_size(pipe)
    name = loading.name_of(pipe)
    if task.verbose:
        short = short_names({one.name: one.part for one in shapes})
        rows = []
        for one in shapes:
            heads = (one.heads, one.head_dim)
            keys = [one.key, *filter(None, [one.image_key])]
            cells = (one.grid, heads, one.query, *keys, one.scores, one.output)
            rows.append((short[one.name], *("{}×{}".format(*cell) for cell in cells)))
        joint = any(one.image_key for one in shapes)
        count = plural(len(shapes), f"{'joint' if joint else 'cross'}-attention layer")
        title = f"{name}, {width}×{height} pixels: {count}"
        keys = ("K, V: text", "image") if joint else ("K, V",)
        print_table(
            ("layer", "grid", "heads", "Q", *keys, "scores", "output"), rows, title
        )
        typer.echo(
            "heads: number × channels per head; scores: for one head; others: for all."
        )
        for one in followed:
            lines = [
                (what, how, "{} × {}".format(*shape))
                for what, how, shape in one.chain()
            ]
            typer.echo()
            print_table(
                ("", "made of", "shape"), lines, f"{short[one.name]}: {one.name}"
            )
    listed = shapes if layer is None else followed
    data = {
        "model": name,
        "size": [width, height],
        "layers": [asdict(one) for one in listed],
    }
    task.finish(data, [])
