"""The base class of what JSON files hold."""

from typing import Any

import msgspec
from msgspec import Struct

from heedmap.errors import fields_shown


class Note(Struct, frozen=True, kw_only=True):
    """A part of a JSON file.

    It cannot be changed: `msgspec.structs.replace(note, seed=8)` makes another one. An interpreter
    shows its first fields; `msgspec.structs.asdict(note)` has all.
    """

    def __repr__(self) -> str:
        return fields_shown(self)


def to_json(value: object) -> Any:
    """Convert a note, or a container of notes, to plain JSON types."""
    return msgspec.json.decode(msgspec.json.encode(value))
