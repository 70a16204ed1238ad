"""Texts of options, as the command line and the app read them: windows, weights, pixels.

Each reader returns the value, or raises a ValueError that says what was expected.
"""

from collections.abc import Callable
from math import isclose, isfinite
from typing import Any

_MOST = 1000  # values of one list


def _numbers(text: str, kind: Callable[[str], Any], expected: str, count: int = 0) -> list[Any]:
    """Read finite numbers with commas between them, `count` of them if it is not 0."""
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or len(numbers) != (count or len(numbers)) or not all(map(isfinite, numbers)):
        raise ValueError(f"{text!r}: expected {expected}")
    return numbers


def names_in(text: str) -> list[str]:
    """Read names with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers_in(text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    return _numbers(text, int, "whole numbers, such as 7, 8")


def pixel_in(text: str) -> tuple[int, int]:
    """Read `X,Y`, a pixel."""
    x, y = _numbers(text, int, "X,Y in whole pixels, such as 40,72", 2)
    return x, y


def size_in(text: str) -> tuple[int, int]:
    """Read `WxH`, in pixels, or one number for a square."""
    sides = text.lower().replace("×", "x").split("x")
    expected = "WxH, such as 512x768, or 512 for a square"
    width, height = _numbers(",".join(sides * (3 - len(sides))), int, expected, 2)
    return width, height


def word_in(text: str) -> str | int:
    """Read the number of a word from `#N`; any other text is a word or phrase."""
    return _numbers(text[1:], int, "a number after '#'", 1)[0] if text.startswith("#") else text


def box_in(text: str) -> tuple[str, tuple[float, ...]]:
    """Read `WORD=LEFT,TOP,RIGHT,BOTTOM`, in pixels."""
    word, box = assigned(text, "a word and its box", "cat=0,0,64,128")
    sides = _numbers(box, float, "LEFT,TOP,RIGHT,BOTTOM in pixels, such as 0,0,64,128", 4)
    return word, tuple(sides)


def window_in(text: str) -> tuple[float, float]:
    """Read `A:B`, fractions of a run, or its end `B`."""
    first, colon, last = text.partition(":")
    expected = "a part of the run: its end, such as 0.8, or A:B, both from 0 to 1"
    low, high = _numbers(f"{first},{last}" if colon else f"0,{text}", float, expected, 2)
    if not 0 <= low <= high <= 1:
        raise ValueError(f"{text!r}: expected {expected}")
    return low, high


def windows_in(text: str) -> list[tuple[float, float]]:
    """Read windows as `window_in` does, with commas between them: `0,0.2,…,1`."""
    return [window_in(part) for part in _filled(text)]


def strip_in(text: str) -> tuple[str, list[float]]:
    """Read `WORD=WEIGHTS`: `A:B:N` (N from A to B, evenly), or numbers with commas between."""
    word, weights = assigned(text, "a word and its weights", "red=-2:3:6")
    expected = "A:B:N, such as -2:3:6 for six from -2 to 3, or a list such as 0,1,3"
    if ":" not in weights:
        return word, _numbers(",".join(_filled(weights)), float, expected)
    start, end, count = _numbers(weights.replace(":", ","), float, expected, 3)
    if count not in range(2, _MOST + 1) or start == end:
        raise ValueError(f"{weights!r}: expected {expected}")
    step = (end - start) / (count - 1)
    return word, [round(start + step * k, 6) for k in range(int(count))]


def assigned(text: str, expected: str, example: str) -> tuple[str, str]:
    """Read `WORD=VALUE`."""
    word, sign, value = text.rpartition("=")
    if not (sign and word.strip() and value.strip()):
        raise ValueError(f"{text!r}: expected {expected}, as in {example}")
    return word.strip(), value.strip()


def _filled(text: str) -> list[str]:
    """Split a text at commas; `…` or `...` continues with the step of the two numbers before it."""
    parts = [part.strip() for part in text.replace("…", "...").split(",")]
    values: list[str] = []
    for place, part in enumerate(parts):
        if part != "...":
            values.append(part)
            continue
        try:
            first, second, last = float(values[-2]), float(values[-1]), float(parts[place + 1])
            step = second - first
            count = round((last - second) / step)
            if not 1 <= count <= _MOST or not isclose(second + count * step, last, abs_tol=1e-6):
                raise ValueError
        except (IndexError, ValueError, ArithmeticError):
            expected = "two numbers before the dots and one after that their step meets"
            raise ValueError(f"{text!r}: expected {expected}, such as 0,0.2,…,1") from None
        values += [f"{round(second + step * k, 9):.12g}" for k in range(1, count)]
    return values
