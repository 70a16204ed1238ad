"""`heedmap words`: which tokens each word of a prompt becomes."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from heedmap.cli.console import loading, print_json, print_table, printable, warnings_told
from heedmap.cli.options import Json, Model
from heedmap.errors import plural, warn
from heedmap.text.vocabulary import said_of, untaught
from heedmap.text.weights import parse_weights

if TYPE_CHECKING:
    from heedmap.text.words import TokenTable


def words(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What a model is to read.")],
    model: Model = None,
    json: Json = False,
) -> None:
    """Print the tokens that each word of PROMPT becomes.

    And which words are past what the model reads.
    """
    hidden = json or model is None or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap.models import cards, pipelines

        table = pipelines.token_table(prompt, model)
    with warnings_told() as warned:
        if strange := untaught([parse_weights(prompt).text], cards.taught_words(model)):
            warn(said_of(strange))
    if json:
        print_json({**asdict(table), "warnings": warned})
    else:
        print_tokens(table)


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
