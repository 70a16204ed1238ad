"""Texts of the command line and of the app's fields, read as values.

`READERS` has the reader of each type of option.
"""

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import Any

from heedmap.checks import check_subset
from heedmap.errors import ArgumentError, quoted
from heedmap.options import AXES, Keep, Part, Places, Window, check_window


def _numbers(
    text: str,
    kind: Callable[[str], Any],
    expected: str,
    count: int | None = None,
    separator: str = ",",
) -> Any:
    """Read the finite numbers between the separators of a text: `count` of them, None for any.

    `expected` is the end of the error's sentence.
    """
    with suppress(ValueError):
        numbers = tuple(map(kind, text.split(separator)))
        if all(map(isfinite, numbers)) and count in (None, len(numbers)):
            return numbers
    raise ArgumentError(f"{text!r}: expected {expected}")


def parse_integer(text: str) -> int:
    """Read a whole number."""
    return _numbers(text, int, "a whole number", 1)[0]


def parse_integers(text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    return [*_numbers(text, int, "whole numbers, such as 7, 8")]


def parse_number(text: str) -> float:
    """Read a number."""
    return _numbers(text, float, "a number", 1)[0]


def parse_names(text: str) -> list[str]:
    """Read names with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_keep(text: str) -> Keep:
    """Read the axes that a recording keeps, or `all`."""
    return check_subset("keep", text if text == "all" else parse_names(text), AXES)


def parse_pixel(text: str) -> tuple[int, int]:
    """Read `X,Y`, a pixel."""
    return _numbers(text, int, "X,Y in whole pixels, such as 40,72", 2)


def parse_place(text: str) -> str | tuple[float, ...]:
    """Read a pixel `X,Y` or a box `LEFT,TOP,RIGHT,BOTTOM`; any other text is a word or phrase."""
    if set(text) - set("0123456789.,-x×() "):
        return text
    if text.count(",") == 1:
        return parse_pixel(text)
    expected = "X,Y or LEFT,TOP,RIGHT,BOTTOM in pixels, or a word"
    return _numbers(text, float, expected, 4)


def parse_size(text: str) -> tuple[int, int]:
    """Read `WxH`, in pixels, or one number for a square."""
    sides = text.lower().replace("×", "x")
    if "x" not in sides:
        sides = f"{sides}x{sides}"
    expected = "WxH, such as 512x768, or 512 for a square"
    return _numbers(sides, int, expected, count=2, separator="x")


def parse_word(text: str) -> str | int:
    """Read the number of a word from `#N`; any other text is a word or phrase."""
    return parse_integer(text[1:]) if text.startswith("#") else text


def parse_part(text: str) -> Part:
    """Read names or whole numbers with commas between them, or a range `A:B`."""
    if ":" in text:
        return parse_range(text)
    with suppress(ArgumentError):
        return parse_integers(text)
    return parse_names(text)


def parse_shard(text: str) -> tuple[int, int]:
    """Read `I/N`: part I of N, from 1."""
    return _numbers(text, int, "I/N, such as 3/16", count=2, separator="/")


def parse_range(text: str) -> slice:
    """Read `A:B` (from A up to, not including, B), `A:`, `:B`, or one number."""
    if ":" not in text:
        number = parse_integer(text)
        return slice(number, number + 1 or None)
    bounds = [parse_integer(part) if part else None for part in text.split(":")]
    if len(bounds) != 2 or bounds == [None, None]:
        raise ArgumentError(f"{text!r}: expected a range A:B, as 0:10, or one number")
    return slice(*bounds)


def parse_window(text: str) -> tuple[float, float]:
    """Read `A:B`, fractions of a run, or its end `B`."""
    bounds = text if ":" in text else f"0:{text}"
    expected = "B or A:B, fractions of the run with 0 ≤ A ≤ B ≤ 1"
    window = _numbers(bounds, float, expected, count=2, separator=":")
    return check_window("the window", window)


def parse_windows(text: str) -> list[tuple[float, float]]:
    """Read windows as `parse_window` does, with commas between them."""
    return [parse_window(part) for part in text.split(",")]


def parse_box(text: str) -> tuple[str, tuple[float, ...]]:
    """Read `WORD=LEFT,TOP,RIGHT,BOTTOM`, in pixels."""
    word, box = _assigned(text, "a word and its box", "cat=0,0,64,128")
    expected = "LEFT,TOP,RIGHT,BOTTOM in pixels, such as 0,0,64,128"
    return word, _numbers(box, float, expected, 4)


def parse_word_weights(text: str) -> tuple[str, list[float]]:
    """Read `WORD=WEIGHTS`: numbers with commas between."""
    word, weights = _assigned(text, "a word and its weights", "red=0,1,3")
    return word, [*_numbers(weights, float, "numbers, such as 0,1,3")]


def parse_value(text: str) -> Any:
    """Read a value of JSON or Python, such as 0.5, true, None or [1, 2]; return another text."""
    for decode in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError):
            return decode(text)
    return text


def parse_argument(text: str) -> tuple[str, Any]:
    """Read `NAME=VALUE`, an argument of the pipeline."""
    name, sign, value = text.partition("=")
    if not (sign and name.isidentifier()):
        raise ArgumentError(
            f"{text!r}: expected an argument and its value, as in eta=0.5"
        )
    return name, parse_value(value)


def by_word(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values of words by word; ArgumentError if a word has two."""
    values: dict[str, Any] = {}
    for word, value in pairs:
        if word in values:
            raise ArgumentError(f"{quoted(word)} is given twice: name it once")
        values[word] = value
    return values


def _assigned(text: str, expected: str, example: str) -> tuple[str, str]:
    word, sign, value = text.rpartition("=")
    if not (sign and word.strip() and value.strip()):
        raise ArgumentError(f"{text!r}: expected {expected}, as in {example}")
    return word.strip(), value.strip()


@dataclass(frozen=True)
class Reader:
    """A reader of texts.

    Attributes:
        parse: reads a value from a text.
        metavar: the form of the text in the help of the command line, which ends with ",…" for a
            list with commas.
        collect: makes the option of the values of several texts; None for an option of one text.
    """

    parse: Callable[[str], Any]
    metavar: str
    collect: Callable[[list[Any]], Any] | None = None

    def __call__(self, text: str) -> Any:
        """Read the option from one text."""
        value = self.parse(text)
        return value if self.collect is None else self.collect([value])


READERS: Mapping[Any, Reader] = {
    int: Reader(parse_integer, "N"),
    int | None: Reader(parse_integer, "N"),
    float: Reader(parse_number, "X"),
    float | None: Reader(parse_number, "X"),
    tuple[int, int] | None: Reader(parse_size, "WxH"),
    Keep: Reader(parse_keep, "AXIS,…"),
    Window | None: Reader(parse_window, "A:B"),
    Places: Reader(parse_place, "X,Y|L,T,R,B|WORD", list),
    Part | None: Reader(parse_part, "PART,…"),
    Sequence[str]: Reader(str, "WORD,…", lambda texts: parse_names(",".join(texts))),
    Mapping[str, Any]: Reader(parse_argument, "NAME=VALUE", by_word),
}
"""The reader of an option by its type. Typer reads the other types itself."""
