"""The numbers that a visitor types; an ArgumentError of one sentence for what is none."""

import math
from typing import TypeVar

from heedmap.checks import typed
from heedmap.errors import ArgumentError, Is

_Number = TypeVar("_Number", int, float)
_MOST = 100  # signs; of a longer one no part is read


def whole_number(text: object, name: str) -> int | None:
    """What a field for a whole number holds; None where it was left empty."""
    return _read(text, int, name, "a whole number")


def real_number(text: object, name: str) -> float | None:
    """What a field for a number holds; None where it was left empty."""
    return _read(text, float, name, "a number")


def _read(text: object, kind: type[_Number], name: str, expected: str) -> _Number | None:
    """A field's number; what a browser sends need not be one only because it should be."""
    try:
        said = "" if text is None else str(text).strip()  # of 4300 digits Python writes none
        number = typed(said, kind) if said else None
        if len(said) <= _MOST and (number is None or math.isfinite(number)):
            return number
    except ValueError:
        pass  # told below
    raise ArgumentError(Is(name, text), f": expected {expected}")
