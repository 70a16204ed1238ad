"""How the texts of options are read: sizes, ranges, windows, weights, boxes, axes."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import typer

from heedmap.checks import any_of, finite, one_of, prompt, typed, whole
from heedmap.errors import ArgumentError, quoted
from heedmap.options import AXES
from heedmap.text import option_texts

OVER = (("steps",), ("layers",), ("heads",), ("layers", "heads"))
_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_DIGITS = 9  # of a whole number
_LONGEST = 4096  # characters of a path: no system takes more
_T = TypeVar("_T")


def parse_size(text: str) -> tuple[int, int]:
    """Read `WxH`, in pixels, or one number for a square."""
    width, cross, height = text.lower().replace("×", "x").partition("x")
    sides = width.strip(), height.strip() if cross else width.strip()
    if not all(s.isascii() and s.isdecimal() and len(s) <= _DIGITS for s in sides):
        raise Refused(text, "WxH in pixels, such as 512x768, or 512 for a square")
    return int(sides[0]), int(sides[1])


def parse_range(text: str) -> slice:
    """Read `a:b` (from a up to, not including, b), `a:`, `:b`, or one number."""
    first, colon, last = (part.strip() for part in text.partition(":"))
    try:
        start, stop = (typed(part, int) if part else None for part in (first, last))
    except ValueError:
        start = stop = None
    if start is None and stop is None:
        raise Refused(text, "a range of steps, a:b (0:10 are the first ten), or one number")
    if not colon and start is not None:
        return slice(start, start + 1 or None)
    return slice(start, stop)


def show_range(steps: slice) -> str:
    """Write a range as `parse_range` reads it."""
    return ":".join("" if bound is None else str(bound) for bound in (steps.start, steps.stop))


def parse_window(text: str) -> tuple[float, float]:
    """Read `a:b`, fractions of a run, or one: up to which."""
    return _read(option_texts.window_in, text)


def show_window(window: tuple[float, float]) -> str:
    """Write a window as `parse_window` reads it."""
    low, high = window
    return f"{high:g}" if low == 0 else f"{low:g}:{high:g}"


def parse_single(text: str) -> tuple[float, float]:
    """Read one window where several would be a grid."""
    if "," in text:
        raise Refused(text, "one part of the run, such as 0.8; `heedmap grid` draws several")
    return parse_window(text)


def parse_windows(text: str) -> list[tuple[float, float]]:
    """Read windows as `parse_window` does, with commas between them: `0,0.2,…,1`."""
    return _read(option_texts.windows_in, text)


def parse_word_window(text: str) -> tuple[str, tuple[float, float]]:
    """Read `WORD=WINDOW`."""
    word, window = _assigned(text, "a word and its window", "cat=0.3")
    return word, parse_window(window)


def parse_strip(text: str) -> tuple[str, list[float]]:
    """Read `WORD=WEIGHTS`: `A:B:N` (N from A to B, evenly), or numbers with commas between."""
    return _read(option_texts.strip_in, text)


def _assigned(text: str, what: str, such: str) -> tuple[str, str]:
    return _read(lambda text: option_texts.assigned(text, what, such), text)


def _read(reader: Callable[[str], _T], text: str) -> _T:
    try:
        return reader(text)
    except option_texts.Unreadable as error:
        raise Refused(error.text, error.expected) from error


def parse_numbers(text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    try:
        return [typed(part, int) for part in text.split(",")]
    except ValueError:
        raise Refused(text, "whole numbers with commas between them, such as 0,2") from None


def parse_names(text: str) -> list[str]:
    """Read names with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_over(text: str) -> list[str]:
    """Read the axes of a sheet: `steps`, `layers`, `heads` or `layers,heads`."""
    axes = parse_names(text)
    for known in OVER:
        if sorted(axes) == sorted(known):
            return list(known)
    *some, last = map(",".join, OVER)
    raise Refused(text, f"{', '.join(some)} or {last}")


def parse_box(text: str) -> tuple[str, tuple[float, ...]]:
    """Read `WORD=LEFT,TOP,RIGHT,BOTTOM`, in pixels."""
    word, box = _assigned(text, "a word and its box", "cat=0,0,64,128")
    return word, _read(option_texts.sides_in, box)


def parse_pixel(text: str) -> tuple[int, int]:
    """Read `X,Y`, a pixel."""
    return _read(option_texts.pixel_in, text)


def parse_path(text: str) -> Path:
    """Read the name of a file or folder: an empty one is none, and not the folder one is in."""
    if not text:
        raise Refused(text, "a file or folder; write . for the one you are in")
    _check_length(text)
    return Path(text)


def parse_model(text: str) -> str:
    """Read the name of a model: an empty one is none, and not the folder one is in."""
    if not text.strip():
        raise Refused(text, "a folder, a .safetensors file or a hub id")
    _check_length(text)
    return text


def _check_length(text: str | Path) -> None:
    if len(str(text)) > _LONGEST:
        raise Refused(str(text), f"a name of at most {_LONGEST} characters")


def parse_axes(text: str) -> frozenset[str]:
    """Read the axes that a recording keeps."""
    return frozenset(any_of("--keep", text if text == "all" else parse_names(text), AXES))


def check_option(option: str, given: Any, annotation: Any) -> None:
    """Raise an ArgumentError for what is none of the choices, or out of the range, of an option."""
    kind, told = get_args(annotation)[:2]
    bounds = {"least": getattr(told, "min", None), "most": getattr(told, "max", None)}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    for one in (kind, *get_args(kind)):
        if get_origin(one) is Literal:
            one_of(option, given, get_args(one))
        elif one in (int, float):
            with suppress(ValueError):
                given = typed(given, one)
            (whole if one is int else finite)(option, given, **bounds)


class Refused(typer.BadParameter):
    """What an option cannot be: the end of a sentence that its name begins."""

    def __init__(self, text: str, expected: str) -> None:
        super().__init__(f"{quoted(text)}: expected {expected}")


def check_words(what: str, text: str, instead: str) -> None:
    """Raise an ArgumentError where a prompt cannot be read, or is the name of a picture's file.

    Args:
        what: the argument, as --help calls it.
        text: that was given for it.
        instead: what to do.
    """
    from heedmap.files import reading
    from heedmap.text.weights import parse_weights

    parse_weights(prompt(text))
    if text.lower().endswith(_ENDINGS) and reading.is_file(Path(text)):
        raise ArgumentError(
            f"{what} is {quoted(text)}, which is the file of a picture: expected the words of a "
            f"prompt; {instead}"
        )


def numbered(query: str) -> str | int:
    """The number of a word in `#N`; a word or phrase as it is."""
    try:
        return option_texts.word_in(query)
    except option_texts.Unreadable as error:
        raise ArgumentError(f"{quoted(query)} names no word: expected {error.expected}") from error
