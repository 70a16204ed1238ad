r"""Weights in a prompt: `(word:1.5)`, `(two words:0.3)`, `(word:-1)`.

Pure text, standard library only. What is read:

- A bracket whose last colon is followed by a number is a weight; the model reads what stands before
  the colon, without the bracket. Brackets may be nested: their weights multiply.
- All other brackets are text, as in "a cat (cute)" or "(a:b)". So are "[cat]" and "((cat))", which
  AUTOMATIC1111 reads as weights; `bracket_warning` says so.
- `\(`, `\)`, `\[`, `\]` and `\:` are text without the backslash, and no warning is given for
  them: "(16\:9)" is "(16:9)", not 16 times nine.
  Before one of these signs two backslashes stand for one: `\\(` is a backslash and a bracket. Any
  other backslash is text.
- What only looks like a weight is refused, not read as text: "(cat:1,5)", "(cat:2x)", "(cat:nan)",
  "(cat:)"; "(at 10:30 am)" and "(a:b)" do not look like one.
- In a prompt with weights all brackets have to balance.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import isfinite

from heedmap import checks
from heedmap.errors import ArgumentError, TruncatedWordError, quoted
from heedmap.text.words import MOVE_IT, TokenTable, Word

Span = tuple[int, int, float]
MOST_WEIGHT = 1e6
"""The largest weight of a word, of either sign: larger ones would leave no finite picture."""

# Possessive: a prompt of 100,000 backslashes or digits must stay linear.
_SIGNS = re.compile(r"\\++[():\[\]]?|[():\[\]]")
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_STARTS_AS_NUMBER = re.compile(r"[-+−]?[.,]?\d")
_LOOKS_LIKE_NUMBER = re.compile(r"[-+−]?(?:[.,]?\d\S*+|nan|inf(?:inity)?)|", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WeightedPrompt:
    """A prompt and the weights that were written into it.

    Attributes:
        text: what the model reads: no weights, no brackets of weights, no escapes.
        spans: `(start, end, weight)` of each bracket with a weight, in characters of `text`, in the
            order in which the brackets open. Spans may be nested, but do not overlap otherwise; a
            weight is that of its bracket alone.
        bracket: the first pair of brackets that is text without a backslash, and what it encloses.
    """

    text: str
    spans: tuple[Span, ...]
    bracket: str = field(default="", compare=False)


def unchanged(source: str, target: str) -> ArgumentError:
    """Return the error of an edit that would change nothing."""
    return ArgumentError(
        f"the prompt {quoted(source)} and its edit {quoted(target)} have the same words and the "
        "same weights, so the edit would change nothing: change a word, or weight one as in "
        "'(word:1.5)'"
    )


def check_changed(source: str, target: str | None) -> None:
    """Check that an edit changes a word or a weight.

    Args:
        source: a prompt with its weights.
        target: another. None edits the source by its own weights.

    Raises:
        ArgumentError: if it changes nothing.
    """
    before = parse_weights(source)
    if not before.spans if target is None else before == parse_weights(target):
        raise unchanged(before.text, source if target is None else target)


def bracket_warning(prompt: WeightedPrompt) -> str:
    """Return a warning for brackets that AUTOMATIC1111 reads as weights; "" if there are none."""
    if not prompt.bracket:
        return ""
    return (
        f"{quoted(prompt.bracket)} is read as text, not as a weight: write a weight as in "
        f"'(word:1.3)', or '\\{prompt.bracket[0]}' and '\\{prompt.bracket[-1]}' for text"
    )


def unread_weights(text: str) -> str:
    """Return a warning for a text with weights that nothing reads; "" if it has none."""
    try:
        if not parse_weights(text).spans:
            return ""
    except ArgumentError:  # it only looks like a weight
        return ""
    return (
        f"the weights in {quoted(text)} are read as plain text: only the prompt of hm.generate and "
        "hm.edit takes weights; in hm.trace pass edits, as in edits=[hm.Reweight('word', 1.3)]"
    )


def escape(text: str) -> str:
    """Return the prompt that `parse_weights` reads as this text, without weights."""

    def escaped(sign: re.Match[str]) -> str:
        slashes, mark = sign[0].rstrip("():[]"), sign[0].lstrip("\\")
        return slashes * (2 if mark else 1) + "\\" * (mark in tuple("()[]")) + mark

    return _SIGNS.sub(escaped, text)


@dataclass(slots=True)
class _Open:
    """A bracket that is open: where, its last colon so far, and its first colon with a number."""

    place: int
    colon: int = -1
    number: int = -1


def parse_weights(prompt: str) -> WeightedPrompt:
    """Read the weights that are written into a prompt; this module says how they are written.

    Args:
        prompt: the text as a user wrote it. The time is linear in its length, apart from a sort.

    Raises:
        ArgumentError: if a weight is not a number, or beyond `MOST_WEIGHT`, or a bracket around a
            weight has no partner. Messages count the characters of the prompt from 1.
    """
    checks.text("the prompt", prompt)
    cuts: list[tuple[int, int]] = []  # what the model does not read
    spans: list[Span] = []
    outside = _Open(-1)
    opened = [outside]
    squares: list[int] = []
    plain = (len(prompt), 0)  # the first pair of brackets that is text
    stray = -1
    for sign in _SIGNS.finditer(prompt):
        mark, place = sign[0][-1], sign.end() - 1
        if mark == "\\":
            continue
        slashes = place - sign.start()
        if slashes:
            cuts.append((sign.start(), sign.start() + (slashes + 1) // 2))
        if slashes % 2:
            continue
        here = opened[-1]
        if mark == "[":
            squares.append(place)
        elif mark == "]":
            if squares:
                plain = min(plain, (squares.pop(), place + 1))
        elif mark == ":":
            here.colon = place
            if here.number < 0 and _STARTS_AS_NUMBER.match(prompt, place + 1):
                here.number = place
        elif mark == "(":
            here.colon = -1
            opened.append(_Open(place))
        elif here is outside:
            if here.colon >= 0 and _NUMBER.fullmatch(prompt, here.colon + 1, place):
                raise _unbalanced(prompt, place)
            here.colon = -1
            stray = stray if stray >= 0 else place
        else:
            opened.pop()
            weight = _weight(prompt, here.colon, place) if here.colon >= 0 else None
            if weight is not None:
                cuts += [(here.place, here.place + 1), (here.colon, place + 1)]
                spans.append((here.place + 1, here.colon, weight))
            else:
                plain = min(plain, (here.place, place + 1))
    for bracket in opened[1:]:
        if spans or bracket.number >= 0:
            raise _unbalanced(prompt, bracket.place)
    if spans and stray >= 0:
        raise _unbalanced(prompt, stray)
    read = _without(prompt, sorted(cuts), sorted(spans))
    return replace(read, bracket=prompt[slice(*plain)])


def _weight(prompt: str, colon: int, close: int) -> float | None:
    """The number between a colon and the bracket's end; None if it is text."""
    text = prompt[colon + 1 : close].strip()
    if not _LOOKS_LIKE_NUMBER.fullmatch(text):
        return None
    ascii_text = text.replace("−", "-")
    weight = checks.one_zero(float(ascii_text)) if _NUMBER.fullmatch(ascii_text) else float("nan")
    if not isfinite(weight):
        raise ArgumentError(
            f"the weight {quoted(text)} at character {colon + 2} of the prompt is not a number: "
            r"write it as in '(word:1.5)', or '\:' where the colon is text"
        )
    if abs(weight) > MOST_WEIGHT:
        raise ArgumentError(
            f"the weight {quoted(text)} at character {colon + 2} of the prompt is out of range: "
            f"expected −{MOST_WEIGHT:g} to {MOST_WEIGHT:g}; −2 to 3 is useful"
        )
    return weight


def _unbalanced(prompt: str, place: int) -> ArgumentError:
    mark = prompt[place]
    what = "is not closed" if mark == "(" else "closes nothing"
    partner = "a ')' after the weight" if mark == "(" else "a '(' before the word"
    return ArgumentError(
        f"the bracket '{mark}' at character {place + 1} of the prompt {what}, and the prompt has "
        f"weights: add {partner}, or write '\\{mark}' where the bracket is text"
    )


def _without(
    prompt: str, cuts: list[tuple[int, int]], spans: Iterable[tuple[int, int, float]]
) -> WeightedPrompt:
    """The prompt without what was cut out of it, and the spans in its characters."""
    starts = [start for start, _ in cuts]
    gone = [0, *accumulate(end - start for start, end in cuts)]

    def moved(place: int) -> int:
        return place - gone[bisect_left(starts, place)]

    edges = [0, *(edge for cut in cuts for edge in cut), len(prompt)]
    kept = zip(edges[::2], edges[1::2], strict=True)
    text = "".join(prompt[start:end] for start, end in kept)
    return WeightedPrompt(text, tuple((moved(a), moved(b), weight) for a, b, weight in spans))


def token_weights(spans: Iterable[Span], table: TokenTable) -> dict[int, float]:
    """Return the weight of each token whose word is weighted.

    A weight covers whole words, with all their tokens, even where its bracket covers only some
    letters of one; punctuation in the bracket has none. The weight of a word is the product of all
    brackets that cover any of it.

    Args:
        spans: those of a `WeightedPrompt`.
        table: what the model reads of its `text`.

    Returns:
        position on the `K` axis to weight, for the words in a span that were read, ascending.

    Raises:
        ArgumentError: if a span lies outside of the prompt or covers no word, or if a product is
            above `MOST_WEIGHT`.
        TruncatedWordError: if the model reads no word of a span.
    """
    words = _Spans(table.words)
    read = _Spans(table.read_words)
    weights: dict[int, float] = {}
    for start, end, weight in spans:
        if not 0 <= start <= end <= len(table.prompt):
            raise ArgumentError(
                f"a weight of the characters {start} to {end} does not fit the prompt "
                f"{quoted(table.prompt)}, which has {len(table.prompt)}: parse that very prompt"
            )
        covered = quoted(table.prompt[start:end])
        if not words.within(start, end):
            raise ArgumentError(
                f"the weight {weight:g} covers no word, only {covered}: put a word of the prompt "
                "into its bracket"
            )
        found = read.within(start, end)
        if not found:
            raise TruncatedWordError(
                f"the weight {weight:g} of {covered} has no effect: the model reads "
                f"{table.room} tokens of a prompt, and none of this; {MOVE_IT}"
            )
        for word in found:
            for position in word.tokens:
                weights[position] = weights.get(position, 1.0) * weight
                if not abs(weights[position]) <= MOST_WEIGHT:
                    raise ArgumentError(
                        f"the weights of {quoted(word.text)} multiply to more than "
                        f"{MOST_WEIGHT:g}: give smaller ones"
                    )
    return dict(sorted(weights.items()))


class _Spans:
    """Words in order, to be found by characters."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        self.starts = [word.start for word in words]
        self.ends = [word.end for word in words]

    def within(self, start: int, end: int) -> Sequence[Word]:
        """The words that share a character with these."""
        if start == end:
            return ()
        return self.words[bisect_right(self.ends, start) : bisect_left(self.starts, end)]


def weighed(
    prompt: WeightedPrompt, table: TokenTable, weights: Mapping[str, float]
) -> tuple[Span, ...]:
    """The spans of a prompt with those of more words: "a red house" with red at 2 has one of "red".

    Args:
        prompt: which may have weights of other words already.
        table: what the model reads of its text.
        weights: by word or phrase; all places of a phrase are meant.

    Raises:
        ArgumentError: if a weight is not a number from -1e6 to 1e6, or a word is weighted twice.
        UnknownWordError: if a word is not in the prompt.
        TruncatedWordError: if the model does not read it.
    """
    written = f"in {quoted(spelled(prompt.text, prompt.spans))}" if weights else ""
    taken = dict.fromkeys(token_weights(prompt.spans, table), written)
    added: list[Span] = []
    for word, weight in weights.items():
        what = f"the weight of {quoted(word)}"
        weight = checks.finite(what, weight, least=-MOST_WEIGHT, most=MOST_WEIGHT)
        tokens = table.find(word)
        twice = next((taken[token] for token in tokens if token in taken), None)
        if twice is not None:
            raise ArgumentError(
                f"{quoted(word)} is to be weighted, but has a weight already, {twice}: take one of "
                "the two away"
            )
        taken |= dict.fromkeys(tokens, f"with {quoted(word)}")
        added += [
            (place[0].start, place[-1].end, weight)
            for place in table.matches(word)
            if all(word.tokens for word in place)
        ]
    return (*prompt.spans, *added)


def spelled(text: str, spans: Sequence[Span]) -> str:
    """The prompt that `parse_weights` reads as this text with these spans; no number is rounded."""
    opening: dict[int, list[Span]] = {}
    closing: dict[int, list[Span]] = {}
    for span in spans:
        opening.setdefault(span[0], []).append(span)
        closing.setdefault(span[1], []).append(span)
    edges = sorted({0, len(text), *opening, *closing})
    marks: list[str] = []
    for edge in edges:
        # Inner brackets close first; of two around the same words the one written first is outside.
        ends = sorted(closing.get(edge, [])[::-1], key=lambda span: -span[0])
        marks.append(
            "".join(f":{_number(w)})" for _, _, w in ends) + "(" * len(opening.get(edge, ()))
        )
    said = marks[0]
    for (start, end), mark in zip(pairwise(edges), marks[1:], strict=True):
        said += _escaped(text[start:end], mark) + mark
    return said


def _escaped(text: str, mark: str) -> str:
    """Text before a sign that is not a text: its last backslashes must not reach that sign."""
    bare = text.rstrip("\\")
    return escape(bare) + (text[len(bare) :] * (2 if mark else 1))


def _number(value: float) -> str:
    """A weight as short as it can be written without another being read."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def leave_out(prompt: WeightedPrompt, table: TokenTable, query: str) -> str:
    """What is written without a word or phrase, at all of its places, those past the limit too.

    Its characters go, and with them the spaces before it where spaces follow, or nothing. All else
    stays: articles, punctuation, hyphens and the weights of other words. "a red house, at night"
    without "house" is "a red , at night".

    Args:
        prompt: the prompt, with the weights that it was written with.
        table: what the model reads of its text.
        query: a word or phrase of it.

    Returns:
        as `parse_weights` reads it; empty where nothing is left.

    Raises:
        UnknownWordError: if the word is not in the prompt.
    """
    text, places = prompt.text, table.matches(query)
    gone: set[int] = set()
    for place in places:
        start, end = place[0].start, place[-1].end
        if not text[end : end + 1].strip():
            start = len(text[:start].rstrip())
        gone.update(range(start, end))
    kept = [at for at in range(len(text)) if at not in gone]
    left = "".join(text[at] for at in kept)
    numbers = {word.number for place in places for word in place}
    stays = [word for word in table.words if word.number not in numbers]
    ends = [word.end for word in stays]
    spans: list[Span] = []
    for start, end, weight in prompt.spans:
        following = bisect_right(ends, start)
        if following < len(stays) and stays[following].start < end:  # else it goes with its word
            inner = slice(bisect_left(kept, start), bisect_left(kept, end))
            first = inner.start + len(left[inner]) - len(left[inner].lstrip())
            spans.append((first, first + len(left[inner].strip()), weight))
    return spelled(left, spans).strip()
