"""The errors of heedmap, and helpers for their messages.

A message is one sentence with the value, the expectation and the remedy.
"""

import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

_INSIDE = frozenset({"heedmap", "torch", "diffusers", "contextlib"})


class HeedmapError(Exception):
    """The base class of heedmap's errors: mistakes that a user can make, in one sentence.

    Its kinds: `ArgumentError`, `WordError` (`UnknownWordError`,
    `TruncatedWordError`), `NothingRecordedError`, `SelectionError`, `ModelError`, `TraceError` and
    `RunError`.
    """


class ArgumentError(HeedmapError):
    """An argument of the wrong kind, size or range."""


class WordError(HeedmapError):
    """A word that cannot be pointed at; the kinds below say why."""


class UnknownWordError(WordError):
    """A word or phrase that does not stand in the prompt."""


class TruncatedWordError(WordError):
    """A word that stands in the prompt past the last token the model reads."""


class HeedmapWarning(UserWarning):
    """A request that had no effect, or that costs more than one would expect."""


class NothingRecordedError(HeedmapError):
    """Maps were asked for before anything was recorded."""


class SelectionError(HeedmapError):
    """A selection that the recording cannot answer: an axis not kept, a layer that is not there."""


class ModelError(HeedmapError):
    """A model that cannot be loaded, or that has no text cross-attention heedmap can read."""


class TraceError(HeedmapError):
    """A trace that could not act: opened twice, its processors replaced, or nothing seen."""


class RunError(HeedmapError):
    """A run folder or file that is missing, broken, or not to be trusted."""


def as_sentence(text: str) -> str:
    """Return a message as one line with a capital letter and a full stop."""
    line = " ".join(text.split())
    if line.partition(" ")[0].isalpha():  # not the name of a file
        line = f"{line[:1].upper()}{line[1:]}"
    return f"{line}{'' if line.endswith(('.', '!', '?', '…')) else '.'}"


def warn(message: str) -> None:
    """Warn at the line that called heedmap, or a pipeline that is traced."""
    frame = sys._getframe()
    level = 1
    while (
        frame.f_back
        and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE
    ):
        frame = frame.f_back
        level += 1
    warnings.warn(HeedmapWarning(message), stacklevel=level)


@contextmanager
def record_warnings(tell: Callable[[str], None] | None = None) -> Generator[list[str]]:
    """Collect heedmap's warnings, each once, and silence those of other libraries.

    Args:
        tell: called with each warning when it comes.
    """
    messages: list[str] = []

    def collect(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in messages:
            messages.append(str(message))
            if tell is not None:
                tell(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", category=HeedmapWarning)
        warnings.showwarning = collect
        yield messages


def quoted(value: object) -> str:
    """Write a value in a message: escaped, short, on one line."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:59]}…")
    line = " ".join(repr(value).split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def nearest(wanted: str, known: Iterable[str], most: int = 5) -> list[str]:
    """Return the names most like one, the nearest first; all of them where they are few."""
    names = list(dict.fromkeys(known))
    if len(names) <= most:
        return names
    # Comparing takes the square of the length.
    return get_close_matches(wanted[:100], names, n=most, cutoff=0.0)


def format_number(value: float, form: str = "g") -> str:
    """Write a number in this form with a true minus, and with none where it is rounded to 0."""
    return f"{value:z{form}}".replace("-", "−")


def join_words(words: Sequence[str], last: str = "and", most: int = 5) -> str:
    """Write words as in "a, b and c"; of more than `most` the first ones and a count."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    *some, end = words
    return f"{', '.join(some)} {last} {end}" if some else end


def reason(error: Exception) -> str:
    """Return the kind and the first line of another library's error."""
    line, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {line[:200]}".removesuffix(": ")


def plural(count: int, thing: str) -> str:
    """Write a count and its noun."""
    return f"{count} {thing}{'s' * (count != 1)}"


def format_bytes(count: int) -> str:
    """Write a number of bytes, as in "1.5 MB"."""
    from rich.filesize import decimal

    return decimal(count)
