"""What the page tells Gradio, as schemas: numbers, short texts, lists of words, and no files.

Gradio takes any object in a field that looks like one of its files for a file, and copies what it
names before a component has seen it. No field of this app is a file.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

Text = Annotated[str, Field(max_length=20_000)]
Value = bool | int | float | Text | None
Session = Annotated[str, Field(pattern=r"^\w{1,64}$")]


class _Message(BaseModel):
    # What else the page sends is left out.
    model_config = ConfigDict(extra="ignore", strict=True)


class Token(_Message):
    """Of an upload."""

    token: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Event(_Message):
    """A button was pressed, or a field changed: the fields' values, in their order."""

    data: Annotated[list[Value | Annotated[list[Text], Field(max_length=16)]], Field(max_length=64)]
    fn_index: Annotated[int, Field(ge=0, lt=1000)]
    session_hash: Session
    event_data: Token | None = None
    trigger_id: Annotated[int, Field(ge=0, lt=10_000)] | None = None

    @field_validator("event_data", mode="before")
    @classmethod
    def _no_other(cls, value: Any) -> Any:
        """Only an upload says more than that it happened."""
        return value if isinstance(value, dict) and "token" in value else None


class Cancel(_Message):
    """What a job's page sends when it is closed."""

    session_hash: Session
    fn_index: Annotated[int, Field(ge=0, lt=1000)]
    event_id: Annotated[str, Field(pattern=r"^\w{1,64}$")]


class Reset(_Message):
    """The same of older pages."""

    event_id: Annotated[str, Field(pattern=r"^\w{1,64}$")]
    success: Literal[True] = True


def read(schema: type[BaseModel], said: bytes) -> BaseModel | None:
    """What was said, if the schema lets it through.

    Half of a character, as a browser sends it where somebody typed one, becomes a question mark.
    """
    try:
        return schema.model_validate_json(said)
    except ValidationError:
        pass
    try:
        whole = json.dumps(json.loads(said), ensure_ascii=False).encode("utf-8", "replace")
        return schema.model_validate_json(whole)
    except (ValueError, RecursionError):  # a ValidationError is a ValueError
        return None
