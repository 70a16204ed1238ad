"""What the page tells Gradio, as schemas: numbers, short texts, lists of words, and no files.

Gradio takes any object in a field that looks like one of its files for a file, and copies what it
names before a component has seen it. No field of this app is a file. What else a page sends is
left out.
"""

import json
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

ShortText = Annotated[str, Meta(max_length=20_000)]
ShortTexts = Annotated[list[ShortText], Meta(max_length=16)]
Session = Annotated[str, Meta(pattern=r"^\w{1,64}\Z")]


class UploadToken(Struct):
    """Of an upload."""

    token: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]


class Event(Struct):
    """A button was pressed, or a field changed: the fields' values, in their order."""

    data: Annotated[list[bool | int | float | ShortText | ShortTexts | None], Meta(max_length=64)]
    fn_index: Annotated[int, Meta(ge=0, lt=1000)]
    session_hash: Session
    event_data: Any = None
    trigger_id: Annotated[int, Meta(ge=0, lt=10_000)] | None = None

    def __post_init__(self) -> None:
        """Only an upload says more than that it happened."""
        said = self.event_data
        known = isinstance(said, dict) and "token" in said
        self.event_data = msgspec.convert(said, UploadToken) if known else None


class Cancel(Struct):
    """What a job's page sends when it is closed."""

    session_hash: Session
    fn_index: Annotated[int, Meta(ge=0, lt=1000)]
    event_id: Annotated[str, Meta(pattern=r"^\w{1,64}\Z")]


class Reset(Struct):
    """The same of older pages."""

    event_id: Annotated[str, Meta(pattern=r"^\w{1,64}\Z")]
    success: bool = True


class NewName(Struct):
    """What a result shall be called."""

    name: Annotated[str, Meta(max_length=500)]


_Message = TypeVar("_Message", bound=Struct)


def parsed(schema: type[_Message], said: bytes) -> _Message | None:
    """What was said, if the schema lets it through.

    Half of a character (a lone surrogate), which a browser may send, becomes a question mark.
    """
    for whole in (lambda: said, lambda: _with_whole_characters(said)):
        try:
            return msgspec.json.decode(whole(), type=schema)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            continue
    return None


def encoded(message: Struct) -> bytes:
    """A message as it goes on to Gradio."""
    return msgspec.json.encode(message)


def _with_whole_characters(said: bytes) -> bytes:
    return json.dumps(json.loads(said), ensure_ascii=False).encode("utf-8", "replace")
