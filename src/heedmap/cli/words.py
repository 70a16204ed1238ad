"""`heedmap words` and `heedmap layers`: the tokens of a prompt, and the layers of a model."""

from dataclasses import asdict
from typing import Any

import typer

import heedmap as hm
from heedmap.cli.console import EMBEDDED, Prompt, Task, command, print_table
from heedmap.errors import as_sentence, plural, warn
from heedmap.options import GenerateOptions

_SAMPLING = "steps guidance negative"


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
        texts = {token.position: token.text for token in table.tokens}
        rows: list[tuple[str, ...]] = []
        for word in table.words:
            weight = f"{weights.get(word.tokens[0], 1):g}" if word.tokens else ""
            rows.append(
                (
                    str(word.number),
                    word.text,
                    " ".join(texts[position] for position in word.tokens),
                    ", ".join(map(str, word.tokens)),
                    weight,
                )
            )
        print_table(("#", "word", "tokens", "positions", "weight"), rows)
    lines = [
        f"{plural(count, 'token')} of the {most} that the model can read."
        for count, most in table.loads
    ]
    if table.unread:
        lines.append(as_sentence(table.unread))
    task.finish({**asdict(table), "weights": weights}, lines=lines)


@command(
    GenerateOptions,
    model=EMBEDDED,
    without=f"{_SAMPLING} keep concepts places reads share_of budget arguments",
)
def layers(task: Task, **options: Any) -> None:
    """Print the shapes of Q, K, V, scores and output in each layer.

    The layers are those that read the text.
    """
    pipe = task.load()
    from heedmap.backends import loading
    from heedmap.backends.registry import default_size
    from heedmap.maps.recordings import short_names

    shapes = hm.layer_shapes(pipe, **options)
    width, height = options.get("size") or default_size(pipe)
    name = loading.name_of(pipe)
    if task.verbose:
        short = short_names({one.name: one.part for one in shapes})
        rows: list[list[str]] = []
        for one in shapes:
            sizes = (one.grid, (one.heads, one.head_dim), one.query, one.key)
            cells = [short[one.name], *("{}×{}".format(*size) for size in sizes)]
            if one.image_key is not None:
                cells[-1] += " + {}×{}".format(*one.image_key)
            cells += ["{}×{}".format(*size) for size in (one.scores, one.output)]
            rows.append(cells)
        columns = ("layer", "grid", "heads", "Q", "K, V", "scores", "output")
        typer.echo(f"{name}, {width}×{height} pixels: {plural(len(rows), 'layer')}")
        print_table(columns, rows)
    note = (
        "heads: number × channels per head; K, V: of the text + of the image; scores: for one "
        "head; others: for all."
    )
    data = {
        "model": name,
        "size": [width, height],
        "layers": [asdict(one) for one in shapes],
    }
    task.finish(data, lines=[note])
