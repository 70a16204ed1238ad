"""`heedmap words`: the tokens of each word of a prompt."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from heedmap.cli import console
from heedmap.cli import options as opt
from heedmap.errors import as_sentence, plural, warn

if TYPE_CHECKING:
    from heedmap.text.words import TokenTable


def words(prompt: opt.Prompt, model: opt.Model = None, json: opt.Json = False) -> None:
    """Print the tokens of each word of PROMPT.

    Also the words past the model's limit, and the weights of words, as in "a (red:1.5) house".
    """
    from heedmap.text.weights import bracket_warning, parse_weights, token_weights

    parsed = parse_weights(prompt)
    with console.loading_bar(model, json or model is None):
        from heedmap.backends import loading
        from heedmap.text.prompts import said_of, untaught

        table = loading.token_table(parsed.text, model)
    by_position = token_weights(parsed.spans, table)
    weights = [by_position.get(word.tokens[0], 1.0) if word.tokens else 1.0 for word in table.words]
    with console.warnings_printed() as warnings:
        if unknown := untaught([parsed.text], loading.model_card(model).vocabulary):
            warn(said_of(unknown))
        if brackets := bracket_warning(parsed):
            warn(brackets)
    data = {**asdict(table), "warnings": warnings}
    for word, weight in zip(data["words"], weights, strict=True):
        word["weight"] = weight
    show = weights if parsed.spans else []
    console.print_result(data, [], lambda: print_tokens(table, show), json)


def print_tokens(table: "TokenTable", weights: Sequence[float]) -> None:
    """Print the words of a prompt and their tokens, with weights if there are any."""
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
    columns = ("#", "word", "tokens", "positions", "read")
    if weights:
        columns = (*columns, "weight")
        rows = [(*row, f"{weight:g}") for row, weight in zip(rows, weights, strict=True)]
    console.print_table(columns, rows, right=("#", "weight"))
    count = len(table.positions("text"))
    typer.echo(f"{plural(count, 'token')} of the {table.room} that the model can read.")
    if table.unread:
        typer.echo(as_sentence(table.unread))
