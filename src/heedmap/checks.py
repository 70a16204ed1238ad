"""Checks of arguments: each returns a plain Python value, or raises an ArgumentError.

Numbers of numpy are numbers here. True, texts, NaN, infinities and arrays are not. `what` is the
name of the argument in the error.
"""

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, cast

from heedmap.errors import ArgumentError, join_words, nearest, quoted

ROUNDING = 1e-5
"""The relative difference below which two float32 sums count as equal."""


def check_float(
    what: str,
    value: object,
    *,
    least: float = -math.inf,
    most: float = math.inf,
) -> float:
    """Return a finite number from `least` to `most`, and 0.0 for a zero of either sign."""
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value) + 0.0
        except OverflowError:  # a whole number of more than 308 digits
            number = math.inf
        if math.isfinite(number) and least <= number <= most:
            return number
    raise ArgumentError(
        f"{what} is {quoted(value)}: expected a finite number{_range(least, most)}"
    )


def check_fraction(what: str, value: object) -> float:
    """Return a number from 0 to 1; ArgumentError otherwise."""
    return check_float(what, value, least=0, most=1)


def check_int(
    what: str,
    value: object,
    *,
    least: float = -math.inf,
    most: float = math.inf,
) -> int:
    """Return a whole number from `least` to `most`; 3.0 is not one."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if least <= number <= most:
            return number
    raise ArgumentError(
        f"{what} is {quoted(value)}: expected a whole number{_range(least, most)}"
    )


def check_text(
    what: str,
    value: object,
    example: str = "",
    *,
    most: int | None = None,
) -> str:
    """Return a text of at most `most` characters that can be written as UTF-8."""
    if not isinstance(value, str):
        hint = f", such as {example!r}" if example else ""
        raise ArgumentError(f"{what} is {quoted(value)}: expected a string{hint}")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ArgumentError(
            f"{what} is {quoted(value)}: UTF-8 cannot encode some characters"
        )
    if most is not None and len(value) > most:
        raise ArgumentError(
            f"{what} has {len(value)} characters: expected at most {most}"
        )
    return value


def check_prompt(value: object) -> str:
    """Return a prompt; ArgumentError if it is no text, or has no words."""
    prompt = check_text("the prompt", value, "a red house")
    if not prompt.strip():
        raise ArgumentError(
            f"the prompt {quoted(value)} has no words: expected one such as 'a red house'"
        )
    return prompt


def check_one_of(what: str, value: object, known: Iterable[str]) -> str:
    """Return a value that is one of some names; ArgumentError otherwise."""
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise ArgumentError(
            f"{what} is {quoted(value)}: expected {_choice(value, names)}"
        )
    return value


def check_subset(
    what: str,
    value: object,
    known: Iterable[str],
    *,
    least: int = 0,
) -> tuple[Any, ...]:
    """Return a list of `least` or more of some names, which is no name alone; all for "all"."""
    names = tuple(known)
    if isinstance(value, str) and value == "all":
        return names
    chosen = as_list(value)
    if (
        chosen is None
        or len(chosen) < least
        or any(name not in names for name in chosen)
    ):
        raise ArgumentError(
            f"{what} is {quoted(value)}: expected a list of {_choice('', names)}"
        )
    return tuple(map(str, chosen))


def check_bool(what: str, value: object) -> bool:
    """Return True or False, of Python or numpy; ArgumentError otherwise."""
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise ArgumentError(f"{what} is {quoted(value)}: expected True or False")


def as_list(value: object) -> list[Any] | None:
    """Return the items of a list or another iterable; None for a text, a mapping and all else."""
    if isinstance(value, str | bytes | Mapping):
        return None
    try:
        return list(cast(Any, value))
    except TypeError:
        return None


def as_ordered_list(value: object) -> list[Any] | None:
    """Return the items of an iterable that has an order; None for a set and all else."""
    return None if isinstance(value, set | frozenset) else as_list(value)


def is_constant(low: float, high: float) -> bool:
    """Return whether two values are equal but for rounding, or one of them is NaN."""
    return not high - low > ROUNDING * max(abs(low), abs(high))


def _range(least: float, most: float) -> str:
    bounds = {"at least": least, "at most": most}
    finite = [
        f"{name} {bound}" for name, bound in bounds.items() if abs(bound) < math.inf
    ]
    return f", {join_words(finite)}" if finite else ""


def _choice(value: object, names: Iterable[str]) -> str:
    return join_words([*map(repr, nearest(str(value), names))], "or")
