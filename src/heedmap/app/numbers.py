"""The numbers that a visitor types; an ArgumentError of one sentence for what is none."""

import math
import re

from heedmap.checks import typed
from heedmap.errors import ArgumentError, quoted


def whole_number(text: object, name: str) -> int | None:
    """What a field for a whole number holds; None where it was left empty."""
    said = _said(text)
    if said and not re.fullmatch(r"[+-]?[0-9]{1,20}", said):
        raise ArgumentError(f"{name} is {quoted(text)}: expected a whole number")
    return int(said) if said else None


def real_number(text: object, name: str) -> float | None:
    """What a field for a number holds; None where it was left empty."""
    said = _said(text)
    try:
        number = typed(said or "0", float)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError(f"{name} is {quoted(text)}: expected a number")
    return number if said else None


def _said(text: object) -> str:
    """A field as text; what a browser sends need not be a number only because it should be."""
    try:
        said = "" if text is None else str(text).strip()
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "?"
    return said if len(said) <= 100 else "?"  # never a part of a number
