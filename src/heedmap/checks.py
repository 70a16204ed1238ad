"""What an argument must be: a number, a whole number, a text; or one sentence that says so.

Numbers of numpy are numbers here. True and False are not, and neither are texts that spell a
number, NaN, infinities or arrays. The functions return plain Python values, which JSON can hold.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from numbers import Integral, Real
from typing import Any, TypeGuard, cast

from heedmap.errors import ArgumentError, listed, nearest, quoted

ROUNDING = 1e-5
"""How far values that are the same may seem to vary, by the greatest: they were summed up in
float32."""
_LONGEST = 100_000  # values of a list that somebody gives
_NUMPY_BOOL = ("bool", "bool_")  # of numpy 2 and 1, which is not imported here


def is_number(value: object) -> TypeGuard[Real]:
    """Whether a value is a real number, of Python or numpy; True is not one, NaN is."""
    return isinstance(value, Real) and not isinstance(value, bool)


def one_zero(value: Any) -> Any:
    """The same, but 0.0 for a zero of either sign: no title and no command shall show -0."""
    return 0.0 if is_number(value) and value == 0 else value


def finite(what: str, value: object, *, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number from `least` to `most`.

    Args:
        what: the argument is called in the sentence.
        value: what was given.
        least: the smallest that will do.
        most: the largest that will do.

    Raises:
        ArgumentError: if it is no such number.
    """
    if is_number(value):
        try:
            number = float(value)
        except OverflowError:  # a whole number of more than 308 digits
            number = math.inf
        if math.isfinite(number) and least <= number <= most:
            return one_zero(number)
    raise ArgumentError(f"{what} is {quoted(value)}: expected a finite number{_range(least, most)}")


def fraction(what: str, value: object) -> float:
    """A number from 0 to 1; ArgumentError otherwise."""
    return finite(what, value, least=0, most=1)


def whole(what: str, value: object, *, least: int | None = None, most: int | None = None) -> int:
    """A whole number from `least` to `most`; 3.0 is not one.

    Args:
        what: the argument is called in the sentence.
        value: what was given.
        least: the smallest that will do.
        most: the largest that will do.

    Raises:
        ArgumentError: if it is no such number.
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if (least is None or least <= number) and (most is None or number <= most):
            return number
    raise ArgumentError(f"{what} is {quoted(value)}: expected a whole number{_range(least, most)}")


def is_text(value: object) -> bool:
    """Whether a value is a text, whatever its annotation says."""
    return isinstance(value, str)


def text(what: str, value: object, such: str = "", *, most: int | None = None) -> str:
    """A text that can be written, of at most so many characters.

    Raises:
        ArgumentError: if it is no such text; the sentence gives an example.
    """
    if not isinstance(value, str):
        example = f", such as {such!r}" if such else ""
        raise ArgumentError(f"{what} is {quoted(value)}: expected a text{example}")
    if not is_unicode(value):
        raise ArgumentError(
            f"{what} is {quoted(value)}, which is not valid Unicode (a lone surrogate): expected "
            "UTF-8 text"
        )
    if most is not None and len(value) > most:
        raise ArgumentError(f"{what} has {len(value)} characters: expected at most {most}")
    return value


def prompt(value: object) -> str:
    """Return a prompt; ArgumentError if it is no text, or has no words."""
    if not text("the prompt", value, "a red house").strip():
        raise ArgumentError(
            f"the prompt {quoted(value)} has no words: expected a text such as 'a red house'"
        )
    return str(value)


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8 (a lone surrogate cannot)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_of(what: str, value: object, known: Iterable[str]) -> None:
    """Raise an ArgumentError unless a value is one of some names."""
    known = tuple(known)
    if not isinstance(value, str) or value not in known:
        raise ArgumentError(f"{what} is {quoted(value)}: expected {_choice(value, known)}")


def any_of(what: str, value: object, known: Iterable[str], *, least: int = 0) -> tuple[Any, ...]:
    """What a list holds, if these are some of the names, `least` of them or more; "all": all.

    Raises:
        ArgumentError: if it is not a list, as one name by itself, or holds anything else.
    """
    given, known = several(value), tuple(known)
    if isinstance(value, str) and value == "all":
        return known
    known_alone = all(isinstance(one, str) and one in known for one in given or ())
    if given is None or len(given) < least or not known_alone:
        shown = value if given is None else given  # an iterator tells nothing of itself
        raise ArgumentError(
            f"{what} is {quoted(shown)}: expected a list of {_choice(shown, known)}"
        )
    # The names themselves: what equals one, as numpy's texts do, cannot be written into files.
    return tuple(known[known.index(one)] for one in given)


def flag(what: str, value: object) -> bool:
    """True or False, of Python or numpy; ArgumentError otherwise."""
    kind = type(value)
    if isinstance(value, bool) or (kind.__module__ == "numpy" and kind.__name__ in _NUMPY_BOOL):
        return bool(value)
    raise ArgumentError(f"{what} is {quoted(value)}: expected True or False")


def function(what: str, value: object) -> None:
    """Raise an ArgumentError unless a value is a function, or None."""
    if not (value is None or callable(value)):
        raise ArgumentError(f"{what} is {quoted(value)}: expected a function")


def several(value: object) -> list[Any] | None:
    """What a list, or anything else that can be iterated over, holds; None for all else.

    A text is one thing, and so is a mapping: neither counts as a list of its parts; nor does what
    goes on beyond any list that is meant.
    """
    if isinstance(value, str | bytes | Mapping):
        return None
    try:
        found = list(islice(cast(Any, value), _LONGEST + 1))
    except TypeError:
        return None
    return found if len(found) <= _LONGEST else None


def in_order(value: object) -> list[Any] | None:
    """The same where the order counts; None for a set, too, of which nobody knows it."""
    return None if isinstance(value, set | frozenset) else several(value)


def _range(least: float | None, most: float | None) -> str:
    """Write a range in words."""
    bounds = (None if one is None or math.isinf(one) else one for one in (least, most))
    low, high = (f"{one:g}" if isinstance(one, float) else one for one in bounds)
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}"
    return "" if high is None else f" of at most {high}"


def _choice(value: object, known: Sequence[str]) -> str:
    """Names that would do, as in "'a', 'b' or 'c'"; of many those like what was given."""
    near = nearest(value if isinstance(value, str) else "", known)
    return listed([*map(repr, near)])


def alike(low: float, high: float) -> bool:
    """Whether two values are the same but for rounding, or one of them is no number."""
    return not high - low > ROUNDING * max(abs(low), abs(high))
