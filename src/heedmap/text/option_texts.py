"""How the texts of options are read, for the command line and the app: windows, weights, pixels.

Each reader gives the value, or raises an `Unreadable` whose two parts end a sentence that begins
with the name of the option.
"""

import math

_MOST = 1000  # values of one list: more is a slip


class Unreadable(ValueError):
    """A text that is none of what was expected.

    Attributes:
        text: it, or the part of it that is meant.
        expected: what was.
    """

    def __init__(self, text: str, expected: str) -> None:
        super().__init__(f"{text!r}: expected {expected}")
        self.text, self.expected = text, expected


def window_in(text: str) -> tuple[float, float]:
    """Read `a:b`, fractions of a run, or one: up to which."""
    first, colon, last = text.partition(":")
    try:
        low, high = (float(first), float(last)) if colon else (0.0, float(first))
    except ValueError:
        low = high = math.nan
    if not 0 <= low <= high <= 1:
        expected = "a part of the run: its end, such as 0.8, or A:B, both from 0 to 1"
        raise Unreadable(text, expected)
    return low, high


def windows_in(text: str) -> list[tuple[float, float]]:
    """Read windows as `window_in` does, with commas between them: `0,0.2,…,1`."""
    return [window_in(part) for part in _listed(text)]


def strip_in(text: str) -> tuple[str, list[float]]:
    """Read `WORD=WEIGHTS`: `A:B:N` (N from A to B, evenly), or numbers with commas between."""
    word, said = assigned(text, "a word and its weights", "red=-2:3:6")
    try:
        if ":" in said:
            first, last, count = said.split(":")
            start, end, steps = float(first), float(last), int(count)
            if not (2 <= steps <= _MOST and start != end):
                raise ValueError
            weights = [round(start + (end - start) * k / (steps - 1), 6) for k in range(steps)]
        else:
            weights = [float(part) for part in _listed(said)]
    except Unreadable:
        raise
    except ValueError:
        weights = [math.nan]
    if not all(map(math.isfinite, weights)):
        expected = "A:B:N, such as -2:3:6 for six from -2 to 3, or a list such as 0,1,3"
        raise Unreadable(said, expected)
    return word, weights


def sides_in(text: str) -> tuple[float, ...]:
    """Read `LEFT,TOP,RIGHT,BOTTOM`, in pixels."""
    try:
        sides = tuple(float(part) for part in text.split(","))
    except ValueError:
        sides = ()
    if len(sides) != 4 or not all(map(math.isfinite, sides)):
        raise Unreadable(text, "LEFT,TOP,RIGHT,BOTTOM in pixels, such as 0,0,64,128")
    return sides


def box_in(text: str) -> tuple[str, tuple[float, ...]]:
    """Read `WORD=LEFT,TOP,RIGHT,BOTTOM`, in pixels."""
    word, box = assigned(text, "a word and its box", "cat=0,0,64,128")
    return word, sides_in(box)


def numbers_in(text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise Unreadable(text, "whole numbers, such as 7, 8") from None


def names_in(text: str) -> list[str]:
    """Read names with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def size_in(text: str) -> tuple[int, int]:
    """Read `WxH`, in pixels, or one number for a square."""
    try:
        sides = [int(side) for side in text.lower().replace("×", "x").split("x")]
        width, height = sides * 2 if len(sides) == 1 else sides
    except ValueError:
        raise Unreadable(text, "WxH, such as 512x768, or 512 for a square") from None
    return width, height


def pixel_in(text: str) -> tuple[int, int]:
    """Read `X,Y`, a pixel."""
    try:
        x, y = (int(part) for part in text.split(","))
    except ValueError:
        raise Unreadable(text, "X,Y in whole pixels, such as 40,72") from None
    return x, y


def word_in(text: str) -> str | int:
    """Read the number of a word from `#N`; a word or phrase as it is."""
    if not text.startswith("#"):
        return text
    number = text[1:].strip()
    if not (number.isascii() and number.isdecimal() and len(number) <= 9):
        raise Unreadable(text, "'#' and its number, as in #2")
    return int(number)


def assigned(text: str, what: str, such: str) -> tuple[str, str]:
    """Read `WORD=VALUE`; what that is, and an example of it."""
    word, sign, value = text.rpartition("=")
    if not (sign and word.strip() and value.strip()):
        raise Unreadable(text, f"{what}, as in {such}")
    return word.strip(), value.strip()


def _listed(text: str) -> list[str]:
    """Texts with commas between them; `…` or `...` goes on as the two numbers before it do."""
    parts = [part.strip() for part in text.replace("…", "...").split(",")]
    values: list[str] = []
    for place, part in enumerate(parts):
        if part != "...":
            values.append(part)
            continue
        try:
            first, second, last = (float(values[-2]), float(values[-1]), float(parts[place + 1]))
            steps = (last - second) / (second - first)
            if not (0.5 < steps <= _MOST and abs(steps - round(steps)) < 1e-6):
                raise ValueError
        except (IndexError, ValueError, ZeroDivisionError):
            expected = "two numbers before the dots and one after that their step meets"
            raise Unreadable(text, f"{expected}, such as 0,0.2,…,1") from None
        step = second - first
        values += [f"{round(second + step * k, 9):.12g}" for k in range(1, round(steps))]
    return values
