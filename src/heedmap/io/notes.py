"""The base class of what JSON files hold, and its conversion to JSON."""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from heedmap.errors import RunError

_Note = TypeVar("_Note", bound=Struct)


class Note(Struct, frozen=True, kw_only=True):
    """A part of a JSON file.

    It cannot be changed: `msgspec.structs.replace(note, seed=8)` makes another one. An interpreter
    shows its first fields; `msgspec.structs.asdict(note)` has all.
    """


def to_json(value: object) -> Any:
    """Convert a note, or a container of notes, to plain JSON types."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_builtin))


def checked(note: _Note, name: str) -> _Note:
    """Check the types and limits of a note, which msgspec does only where it decodes one.

    Args:
        note: what was made in memory.
        name: of the note, for the error.

    Raises:
        RunError: if something in it does not fit.
    """
    try:
        plain = msgspec.to_builtins(note, str_keys=True, enc_hook=_builtin)
        return msgspec.convert(plain, type(note), str_keys=True)
    except (msgspec.MsgspecError, TypeError, RecursionError) as error:
        raise RunError(f"{name} cannot be used: {error}") from error


def encoded(note: Struct, name: str) -> bytes:
    """Encode a note as the text of a JSON file; arguments and errors as of `checked`."""
    checked(note, name)
    try:
        return msgspec.json.format(msgspec.json.encode(note, enc_hook=_builtin), indent=2) + b"\n"
    except UnicodeError as error:
        raise RunError(f"{name} cannot be written: {error}") from error


def _builtin(value: object) -> object:
    """Convert numbers and texts of numpy, which are also Python's own."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"a {type(value).__name__} has no JSON")
