"""`heedmap words`: which tokens each word of a prompt becomes."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from heedmap.cli.console import loading, print_json, print_table, printable, say, warnings_told
from heedmap.cli.options import Json, Model
from heedmap.errors import as_sentence, plural, warn

if TYPE_CHECKING:
    from heedmap.text.words import TokenTable


def words(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What a model is to read.")],
    model: Model = None,
    json: Json = False,
) -> None:
    """Print the tokens that each word of PROMPT becomes.

    And which words are past what the model reads, and the weights of words, as in "a (red:1.5)
    house".
    """
    from heedmap.text.weights import bracket_warning, parse_weights, token_weights

    asked = parse_weights(prompt)
    hidden = json or model is None or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap.models import cards, pipelines
        from heedmap.text.vocabulary import said_of, untaught

        table = pipelines.token_table(asked.text, model)
    by_position = token_weights(asked.spans, table)
    weights = [by_position.get(word.tokens[0], 1.0) if word.tokens else 1.0 for word in table.words]
    with warnings_told() as warned:
        if strange := untaught([asked.text], cards.taught_words(model)):
            warn(said_of(strange))
        if said := bracket_warning(asked):
            warn(said)
    if json:
        about = asdict(table)
        for word, weight in zip(about["words"], weights, strict=True):
            word["weight"] = weight
        print_json({**about, "warnings": warned})
    else:
        print_tokens(table, weights if asked.spans else [])


def print_tokens(table: "TokenTable", weights: Sequence[float]) -> None:
    """Print the words of a prompt and the tokens the model reads of them; weights if it has any."""
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
    print_table(columns, rows, right=("#", "weight"))
    count = len(table.positions("text"))
    say(f"{plural(count, 'token')} of the {table.room} that the model can read.")
    if table.unread:
        say(printable(as_sentence(table.unread)))
