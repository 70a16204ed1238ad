r"""Weights in a prompt: `(word:1.5)`, `(two words:0.3)`, `(word:-1)`.

- A bracket whose last colon is followed by a number is a weight. The model reads the text before
  the colon, without the bracket. The weights of nested brackets multiply.
- All other brackets are text: "a cat (cute)", "(a:b)", and also "[cat]" and "((cat))", which
  AUTOMATIC1111 reads as weights (`bracket_warning` says so).
- A backslash before one of `\()[]:` makes it text: "(16\:9)" is "(16:9)". Any other backslash is
  text.
- A number above 4, or behind another number, is no weight but a time, a ratio or a year:
  "(12:30)", "(4:3)" and "(year:1990)" are text, with a warning. Write such a weight with its sign,
  "(word:+30)".
- A bracket that only looks like a weight is text, too: "(cat:1,5)", "(cat:2x)", "(cat:)".
  "cat:1.5)" without its first bracket is an error.
- In a prompt with weights all brackets have to balance.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from heedmap.checks import check_float, check_text
from heedmap.errors import ArgumentError, TruncatedWordError, quoted
from heedmap.options import MAX_WEIGHT
from heedmap.text.search import NUMBERED
from heedmap.text.words import MOVE_IT, TokenTable, Word

Span = tuple[int, int, float]
PLAUSIBLE_WEIGHT = 4.0
"""The largest weight in a prompt without a sign: a larger number is a time, a ratio or a year."""

# An escape; the end of a bracket, with what stands behind its last colon; another bracket.
_SIGNS = re.compile(r"\\[\\()\[\]:]|(?::([^()\[\]:\\]*+))?\)|[(\[\]]")
_ESCAPED = re.compile(r"[()\[\]]|\\(?=[\\()\[\]:]|\Z)")
# Possessive, so that the time is linear in the length of the prompt.
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_WEIGHT_BEGINS = re.compile(r"(?<!\\):(?!\d\d+(?![\d.eE]))[-+−]?[.,]?\d")


@dataclass(frozen=True, slots=True)
class WeightedPrompt:
    """A prompt and the weights that were written into it.

    Attributes:
        text: the text that the model reads, without weights and escapes.
        spans: `(start, end, weight)` of each bracket with a weight, in characters of `text`, by
            the place of the opening brackets. Spans are nested or apart; each has the weight of its
            bracket alone.
        bracket: the first pair of unescaped brackets that is text, with its content.
    """

    text: str
    spans: tuple[Span, ...]
    bracket: str = field(default="", compare=False)


def parse_weights(prompt: str) -> WeightedPrompt:
    """Read the weights in a prompt; the module's docstring has the syntax.

    ArgumentError if a weight is beyond `MAX_WEIGHT`, or a bracket around a weight has no partner.
    Messages count the characters of the prompt from 1.
    """
    check_text("the prompt", prompt)
    hidden: set[int] = set()  # characters that the model does not read
    spans: list[Span] = []
    plain: list[tuple[int, int]] = []  # brackets that are text
    unpaired: list[int] = []
    squares: list[int] = []
    opened: list[int] = []
    for sign in _SIGNS.finditer(prompt):
        start, end = sign.span()
        mark = sign[0]
        if mark[0] == "\\":
            hidden.add(start)
        elif mark == "(":
            opened.append(start)
        elif mark == "[":
            squares.append(start)
        elif mark == "]":
            if squares:
                plain.append((squares.pop(), end))
        elif opened:
            bracket = opened.pop()
            weight = _weight(prompt, bracket, sign)
            if weight is None:
                plain.append((bracket, end))
            else:
                hidden.update((bracket, *range(start, end)))
                spans.append((bracket + 1, start, weight))
        elif _is_weight(prompt[:start], sign[1]):
            raise _unbalanced(prompt, end - 1)
        else:
            unpaired.append(end - 1)
    if opened and (spans or _WEIGHT_BEGINS.search(prompt, opened[0])):
        raise _unbalanced(prompt, opened[0])
    if spans and unpaired:
        raise _unbalanced(prompt, unpaired[0])
    text, moved = _without(prompt, hidden, sorted(spans))
    bracket = prompt[slice(*min(plain))] if plain else ""
    return WeightedPrompt(text, tuple(moved), bracket)


def _without(
    text: str,
    hidden: set[int],
    spans: Iterable[Span],
) -> tuple[str, list[Span]]:
    """Return a text without some characters, and its spans."""
    rest = [at for at in range(len(text)) if at not in hidden]
    moved = [(bisect_left(rest, a), bisect_left(rest, b), w) for a, b, w in spans]
    return "".join(text[at] for at in rest), moved


def _weight(prompt: str, bracket: int, end: re.Match[str]) -> float | None:
    """Return the weight at the end of a bracket; None for text."""
    number = (end[1] or "").strip().replace("−", "-")
    if not _is_weight(prompt[bracket + 1 : end.start()], number):
        return None
    weight = float(number)
    if abs(weight) > MAX_WEIGHT:
        raise ArgumentError(
            f"the weight {quoted(number)} at character {end.start() + 2} of the prompt is not from "
            f"−{MAX_WEIGHT:g} to {MAX_WEIGHT:g}: write a smaller one, or '\\:' where the colon is "
            "text"
        )
    return weight + 0.0  # no -0


def _is_weight(text: str, number: str | None) -> bool:
    """Return whether a number behind a text may be its weight: with a sign, or a plausible one."""
    if number is None or not _NUMBER.fullmatch(number):
        return False
    if number.startswith(("+", "-")):
        return True
    return float(number) <= PLAUSIBLE_WEIGHT and not text.strip().isdecimal()


def _unbalanced(prompt: str, place: int) -> ArgumentError:
    mark = prompt[place]
    return ArgumentError(
        f"the bracket '{mark}' at character {place + 1} of the prompt has no partner, and the "
        f"prompt has weights: add the other bracket, or write '\\{mark}' where it is text"
    )


def escape(text: str) -> str:
    """Return the prompt that `parse_weights` reads as this text, without weights."""
    return _ESCAPED.sub(r"\\\g<0>", text)


def spelled(text: str, spans: Sequence[Span]) -> str:
    """Return the prompt that `parse_weights` reads as this text with these spans."""
    marks: defaultdict[int, str] = defaultdict(str)
    # Inner brackets close first; of two around the same words the later one is the inner one.
    for start, end, weight in sorted(reversed(spans), key=lambda span: -span[0]):
        number = f"{weight:.16g}"
        sign = "" if _is_weight(text[start:end], number) else "+"
        marks[end] += f":{sign}{number})"
    for start, _, _ in spans:
        marks[start] += "("
    edges = sorted({0, len(text), *marks})
    return marks[0] + "".join(escape(text[a:b]) + marks[b] for a, b in pairwise(edges))


# --- warnings ---------------------------------------------------------------------------------


def bracket_warning(prompt: WeightedPrompt) -> str:
    """Return a warning for brackets that are read in another way than others do; "" if none are.

    AUTOMATIC1111 reads more of them as weights; "cat#2" in brackets is text.
    """
    for start, end, _ in prompt.spans:
        match = NUMBERED.fullmatch(prompt.text[start:end])
        if match is not None:
            return (
                f"{quoted(match[0])} in brackets is text of the prompt: put the brackets around "
                f"the very {quoted(match[1])} that is meant"
            )
    if not prompt.bracket:
        return ""
    return (
        f"{quoted(prompt.bracket)} is read as text, not as a weight; write a weight as in "
        f"'(word:1.3)' or '(word:+30)', or '\\{prompt.bracket[0]}' and "
        f"'\\{prompt.bracket[-1]}' for text"
    )


def unread_weights(text: str) -> str:
    """Return a warning for a text whose weights have no effect; "" if it has none."""
    try:
        if not parse_weights(text).spans:
            return ""
    except ArgumentError:
        return ""
    return (
        f"the weights in {quoted(text)} are read as plain text: only the prompt of hm.generate and "
        "hm.edit takes weights; in hm.trace pass edits, as in edits=[hm.Reweight('word', 1.3)]"
    )


# --- weights of tokens and words ----------------------------------------------------------------


def token_weights(spans: Iterable[Span], table: TokenTable) -> dict[int, float]:
    """Return the weights of tokens, by their position on the `K` axis, ascending.

    A weight covers whole words with all their tokens, even if its bracket covers only some of the
    letters; punctuation has none. The weight of a word is the product over all brackets around it.
    A weight of no word, of an unread word, or beyond `MAX_WEIGHT` is an error.
    """
    weights: dict[int, float] = {}
    for start, end, weight in spans:
        covered = quoted(table.prompt[start:end])
        words = _words_within(table, start, end)
        if not words:
            raise ArgumentError(
                f"the weight {weight:g} covers no word, only {covered}: put a word of the prompt "
                "into its bracket"
            )
        if not any(word.tokens for word in words):
            raise TruncatedWordError(
                f"the weight {weight:g} of {covered} has no effect: the model reads "
                f"{table.room} tokens of a prompt, and none of this; {MOVE_IT}"
            )
        for word in words:
            for position in word.tokens:
                weights[position] = weights.get(position, 1.0) * weight
                if not abs(weights[position]) <= MAX_WEIGHT:
                    raise ArgumentError(
                        f"the weights of {quoted(word.text)} multiply to more than "
                        f"{MAX_WEIGHT:g}: give smaller ones"
                    )
    return dict(sorted(weights.items()))


def _words_within(table: TokenTable, start: int, end: int) -> list[Word]:
    """Return the words that have some of these characters."""
    return [word for word in table.words if max(word.start, start) < min(word.end, end)]


def weighed(
    prompt: WeightedPrompt,
    table: TokenTable,
    weights: Mapping[str, float],
) -> tuple[Span, ...]:
    """Return the spans of a prompt, and those of the words and phrases in `weights`.

    Each of these holds for all its places that the model reads. A word weighted twice is an error.
    """
    spans = [*prompt.spans]
    weighted = set(token_weights(spans, table))
    for word, weight in weights.items():
        what = f"the weight of {quoted(word)}"
        weight = check_float(what, weight, least=-MAX_WEIGHT, most=MAX_WEIGHT)
        tokens = table.find(word)
        if not weighted.isdisjoint(tokens):
            raise ArgumentError(
                f"{quoted(word)} is weighted twice: take one of the weights away"
            )
        weighted |= set(tokens)
        for place in table.matches(word):
            if all(one.tokens for one in place):
                spans.append((place[0].start, place[-1].end, weight))
    return tuple(spans)


def leave_out(prompt: WeightedPrompt, table: TokenTable, query: str) -> str:
    """Return a prompt without a word or phrase, at all of its places, past the limit too.

    The characters of the word go, and the spaces before it if a space or nothing follows. All else
    stays: articles, punctuation and the weights of other words. "a red house, at night" without
    "house" is "a red , at night".
    """
    gone: set[Word] = set()
    hidden: set[int] = set()
    for place in table.matches(query):
        gone.update(place)
        start = place[0].start
        end = place[-1].end
        if not prompt.text[end : end + 1].strip():
            start = len(prompt.text[:start].rstrip())
        hidden.update(range(start, end))
    text, spans = _without(prompt.text, hidden, prompt.spans)
    trimmed: list[Span] = []
    for (start, end, _), (first, last, weight) in zip(prompt.spans, spans, strict=True):
        if not gone.issuperset(_words_within(table, start, end)):
            part = text[first:last]
            first += len(part) - len(part.lstrip())
            trimmed.append((first, first + len(part.strip()), weight))
    return spelled(text, trimmed).strip()
