"""Token tables from files, which are never trusted."""

from heedmap import checks
from heedmap.errors import RunError, quoted
from heedmap.text.words import LABELS, TokenTable


def check_table(table: TokenTable) -> None:
    """Check a table that was read from a file; its types and bounds are right.

    Raises:
        RunError: if it contradicts itself.
    """
    prompt, limit = table.prompt, table.limit
    _demand(checks.is_unicode(prompt), "its prompt is not text")
    _demand(len(table.tokens) == limit, f"{len(table.tokens)} tokens do not make its limit {limit}")
    _demand(len(table.words) <= len(prompt), f"{len(table.words)} words do not fit in the prompt")
    for position, token in enumerate(table.tokens):
        label = LABELS.get(token.kind)
        _demand(
            token.position == position
            and 0 <= token.start <= token.end <= (0 if label else len(prompt))
            and token.text == (label or prompt[token.start : token.end]),
            f"token {position} contradicts its place, its kind or the prompt",
        )
    _check_words(table)
    unread = sum(word.missing for word in table.words)
    _demand(unread <= table.missing, f"its words miss {unread} tokens, of {table.missing} in all")


def _check_words(table: TokenTable) -> None:
    tokens, prompt = table.tokens, table.prompt
    free, past = set(table.positions()), 0
    for index, word in enumerate(table.words):
        _demand(
            word.number == index
            and past <= word.start < word.end <= len(prompt)
            and word.text == prompt[word.start : word.end]
            and len(word.tokens) + word.missing > 0,
            f"word {index} contradicts its place or the prompt",
        )
        for position in word.tokens:
            _demand(
                position in free
                and tokens[position].start < word.end
                and word.start < tokens[position].end,
                f"word {index} claims a token that is not its own, {quoted(position)}",
            )
            free.remove(position)
        ordered = word.tokens == (*sorted(word.tokens),)
        _demand(ordered, f"word {index} has its tokens out of order")
        past = word.end


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise RunError(f"the token table is broken: {what}; make the run again")
