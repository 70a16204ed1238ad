"""How the command line says what Python says otherwise: options as they are typed."""

import shlex
from typing import Any

from heedmap.cli.parsing import show_range, show_window
from heedmap.errors import Is, Tongue, Value, Written, quoted

_SAME = """
    batch blend_from confine count cross device dtype guidance head heads keep kind layer
    layers model negative only protect renormalize scale seed size step steps threshold word words
"""
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in _SAME.split()}
OPTIONS |= {"self_attention": "--self", "weights": "--weight", "seeds": "--count", "swap": "--only"}
OPTIONS |= {"pass_": "--pass"}
"""Arguments of Python that are options, and what they are called here."""
_WINDOWS = ("--cross", "--self", "--words")


def _spelled(option: str, part: Written) -> str:
    alone = isinstance(part, Is | Value)  # else it could be typed like that
    if part.value is True and not alone:
        return ""  # a flag
    said = show_value(option, part.value)
    text = isinstance(part.value, str) or (alone and not said)
    return quoted(said) if alone and text else _short(said if alone else shlex.quote(said))


TYPED = Tongue(OPTIONS, _spelled, " ")
"""For who types commands."""


def show_value(option: str, value: Any) -> str:
    """A value as it is typed behind an option."""
    if isinstance(value, slice):
        one = isinstance(value.start, int) and value.stop == value.start + 1
        return str(value.start) if one else show_range(value)
    if option in _WINDOWS and isinstance(value, tuple) and len(value) == 2:
        return show_window(value)
    if isinstance(value, list | tuple | set | frozenset):
        sign = "x" if option == "--size" else ","
        return sign.join(show_value(option, one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short(said: str) -> str:
    return said if len(said) <= 80 else f"{said[:79]}…"
