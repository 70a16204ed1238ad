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
- A bracket that only looks like a weight is an error: "(cat:1,5)", "(cat:2x)", "(cat:)". So is
  "cat:1.5)" without its first bracket; " :3)" is a face.
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
from heedmap.text.words import MOVE_IT, TokenTable

Span = tuple[int, int, float]
PLAUSIBLE_WEIGHT = 4.0
"""The largest weight in a prompt without a sign: a larger number is a time, a ratio or a year."""

_SIGNS = re.compile(r"\\[\\()\[\]:]|[()\[\]:]")
_ESCAPED = re.compile(r"[()\[\]]|\\(?=[\\()\[\]:]|\Z)")
# Possessive, so that the time is linear in the length of the prompt.
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_LOOKS_LIKE_NUMBER = re.compile(
    r"[-+−]?(?:[.,]?\d\S*+|nan|inf(?:inity)?)|", re.IGNORECASE
)
_WEIGHT_BEGINS = re.compile(r"(?<!\\):(?!\d\d+(?![\d.eE]))[-+−]?[.,]?\d")
_FACE = re.compile(r"\s:\d\)")


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

    ArgumentError if a weight is not a number or beyond `MAX_WEIGHT`, or a bracket around a weight
    has no partner. Messages count the characters of the prompt from 1.
    """
    check_text("the prompt", prompt)
    cut: set[int] = set()  # characters that the model does not read
    spans: list[Span] = []
    plain: list[tuple[int, int]] = []  # brackets that are text
    unpaired: list[int] = []
    squares: list[int] = []
    # The start and the last colon of each open bracket, and of the whole.
    opened = [[-1, -1]]
    for sign in _SIGNS.finditer(prompt):
        mark, place = sign[0], sign.start()
        if len(mark) == 2:
            cut.add(place)
        elif mark == "[":
            squares.append(place)
        elif mark == "]" and squares:
            plain.append((squares.pop(), place + 1))
        elif mark == ":":
            opened[-1][1] = place
        elif mark == "(":
            opened[-1][1] = -1
            opened.append([place, -1])
        elif mark == ")" and len(opened) == 1:
            colon = opened[0][1]
            opened[0][1] = -1
            if colon > 0 and _FACE.match(prompt, colon - 1):
                continue
            if colon >= 0 and _is_weight(prompt[:colon], prompt[colon + 1 : place]):
                raise _unbalanced(prompt, place)
            unpaired.append(place)
        elif mark == ")":
            start, colon = opened.pop()
            weight = None if colon < 0 else _weight(prompt, start + 1, colon, place)
            if weight is None:
                plain.append((start, place + 1))
            else:
                cut.update((start, *range(colon, place + 1)))
                spans.append((start + 1, colon, weight))
    for start, _ in opened[1:2]:
        if spans or _WEIGHT_BEGINS.search(prompt, start):
            raise _unbalanced(prompt, start)
    if spans and unpaired:
        raise _unbalanced(prompt, unpaired[0])
    rest = [at for at in range(len(prompt)) if at not in cut]
    text = "".join(prompt[at] for at in rest)
    spans = [
        (bisect_left(rest, a), bisect_left(rest, b), w) for a, b, w in sorted(spans)
    ]
    return WeightedPrompt(
        text, tuple(spans), prompt[slice(*min(plain))] if plain else ""
    )


def _weight(prompt: str, start: int, colon: int, close: int) -> float | None:
    """Return the number between a colon and the end of its bracket; None for text."""
    text = prompt[colon + 1 : close].strip()
    if not _LOOKS_LIKE_NUMBER.fullmatch(text):
        return None
    number = text.replace("−", "-")
    if _NUMBER.fullmatch(number) and not _is_weight(prompt[start:colon], number):
        return None
    weight = float(number) if _NUMBER.fullmatch(number) else float("nan")
    if not abs(weight) <= MAX_WEIGHT:  # refuses NaN, too
        raise ArgumentError(
            f"the weight {quoted(text)} at character {colon + 2} of the prompt is no number from "
            f"−{MAX_WEIGHT:g} to {MAX_WEIGHT:g}: write it as in '(word:1.5)', or '\\:' where "
            "the colon is text"
        )
    return weight + 0.0  # no -0


def _is_weight(text: str, number: str) -> bool:
    """Return whether a number behind a text may be its weight: with a sign, or a plausible one."""
    if not _NUMBER.fullmatch(number):
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
        short = f"{weight:g}"
        sign = "" if _is_weight(text[start:end], short) else "+"
        marks[end] += f":{sign}{short if float(short) == weight else repr(weight)})"
    for start, _, _ in spans:
        marks[start] += "("
    edges = sorted({0, len(text), *marks})
    return marks[0] + "".join(escape(text[a:b]) + marks[b] for a, b in pairwise(edges))


# --- warnings ---------------------------------------------------------------------------------


def bracket_warning(prompt: WeightedPrompt) -> str:
    """Return a warning for brackets that AUTOMATIC1111 reads as weights; "" if there are none."""
    if not prompt.bracket:
        return ""
    is_large = re.search(r":\s*\d[\d.]*\s*\)$", prompt.bracket)
    why = f": a number above {PLAUSIBLE_WEIGHT:g} is text" if is_large else ""
    return (
        f"{quoted(prompt.bracket)} is read as text, not as a weight{why}; write a weight as in "
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
        words = [
            word for word in table.words if max(word.start, start) < min(word.end, end)
        ]
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


def weighed(
    prompt: WeightedPrompt, table: TokenTable, weights: Mapping[str, float]
) -> tuple[Span, ...]:
    """Return the spans of a prompt, and those of the words and phrases in `weights`.

    Each of these holds for all its places that the model reads. A word weighted twice is an error.
    """
    spans, weighted = [*prompt.spans], set(token_weights(prompt.spans, table))
    for word, weight in weights.items():
        what = f"the weight of {quoted(word)}"
        weight = check_float(what, weight, least=-MAX_WEIGHT, most=MAX_WEIGHT)
        tokens = table.find(word)
        if not weighted.isdisjoint(tokens):
            raise ArgumentError(
                f"{quoted(word)} is weighted twice: take one of the weights away"
            )
        weighted |= set(tokens)
        spans += [
            (place[0].start, place[-1].end, weight)
            for place in table.matches(word)
            if all(one.tokens for one in place)
        ]
    return tuple(spans)


def leave_out(prompt: WeightedPrompt, table: TokenTable, query: str) -> str:
    """Return a prompt without a word or phrase, at all of its places, past the limit too.

    The characters of the word go, and the spaces before it if a space or nothing follows. All else
    stays: articles, punctuation and the weights of other words. "a red house, at night" without
    "house" is "a red , at night".
    """
    text, places = prompt.text, table.matches(query)
    gone: set[int] = set()
    for place in places:
        start, end = place[0].start, place[-1].end
        if not text[end : end + 1].strip():
            start = len(text[:start].rstrip())
        gone.update(range(start, end))
    rest = [at for at in range(len(text)) if at not in gone]
    short = "".join(text[at] for at in rest)
    words = {*table.words} - {word for place in places for word in place}
    spans: list[Span] = []
    for start, end, weight in prompt.spans:
        if any(max(word.start, start) < min(word.end, end) for word in words):
            first, last = bisect_left(rest, start), bisect_left(rest, end)
            first += len(short[first:last]) - len(short[first:last].lstrip())
            spans.append((first, first + len(short[first:last].strip()), weight))
    return spelled(short, spans).strip()
