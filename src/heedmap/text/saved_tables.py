"""Token tables from files, which are never trusted."""

from collections.abc import Sequence

from heedmap import checks
from heedmap.errors import RunError, quoted
from heedmap.files import schemas
from heedmap.text.words import LABELS, Token, TokenTable, Word


def checked_table(table: schemas.Table) -> TokenTable:
    """A table that was read from a file.

    Raises:
        RunError: if it contradicts itself.
    """
    prompt, limit = table.prompt, table.limit
    _demand(checks.is_unicode(prompt), "its prompt is not text")
    _demand(len(table.tokens) == limit, f"{len(table.tokens)} tokens do not make its limit {limit}")
    _demand(len(table.words) <= len(prompt), f"{len(table.words)} words do not fit in the prompt")
    tokens: list[Token] = []
    for position, row in enumerate(table.tokens):
        label = LABELS.get(row.kind)
        _demand(
            row.position == position
            and 0 <= row.start <= row.end <= (0 if label else len(prompt))
            and row.text == (label or prompt[row.start : row.end]),
            f"token {position} contradicts its place, its kind or the prompt",
        )
        tokens.append(Token(position, row.id, row.text, row.start, row.end, row.kind))
    words = _parsed_words(table.words, tokens, prompt)
    unread = sum(word.missing for word in words)
    _demand(unread <= table.missing, f"its words miss {unread} tokens, of {table.missing} in all")
    return TokenTable(prompt, tuple(tokens), tuple(words), limit, table.missing)


def _parsed_words(
    rows: Sequence[schemas.WordRow], tokens: Sequence[Token], prompt: str
) -> list[Word]:
    words: list[Word] = []
    free = {token.position for token in tokens if token.kind == "text"}
    for index, row in enumerate(rows):
        _demand(
            row.number == index
            and (words[-1].end if words else 0) <= row.start < row.end <= len(prompt)
            and row.text == prompt[row.start : row.end]
            and len(row.tokens) + row.missing > 0,
            f"word {index} contradicts its place or the prompt",
        )
        for position in row.tokens:
            _demand(
                position in free
                and tokens[position].start < row.end
                and row.start < tokens[position].end,
                f"word {index} claims a token that is not its own, {quoted(position)}",
            )
            free.remove(position)
        _demand(row.tokens == sorted(row.tokens), f"word {index} has its tokens out of order")
        words.append(Word(index, row.text, row.start, row.end, tuple(row.tokens), row.missing))
    return words


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise RunError(f"the token table is broken: {what}; make the run again")
