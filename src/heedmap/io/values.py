"""The types of values in files, and the limits of each."""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from heedmap.errors import RunError

MAX_LAYERS = 1024
MAX_LAYER_NAME = 512
"""Characters of a layer's name, and so of a pattern for one."""
MAX_TOKENS = 2048
"""Tokens of an encoded text; those of encoders in use are at most 512, long prompts a few more."""
MAX_PROMPT = 100_000
"""Characters of a prompt."""
MAX_CONCEPTS = 100
"""Words that are searched beside a prompt."""
MAX_EDITS = 256
"""Edits of the attention of words in one run."""
MAX_CELLS = 10_000
"""Cells of a grid."""
MAX_STEPS = 10_000
"""Denoising steps of a run."""
MAX_WHOLE = 2**63 - 1
"""The largest whole number, and so the largest seed."""
_LARGEST = 1e30  # of any number that is measured or asked for

Text = Annotated[str, Meta(max_length=MAX_PROMPT)]
Name = Annotated[str, Meta(max_length=4096)]
Whole = Annotated[int, Meta(ge=0, le=MAX_WHOLE)]
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]
SideLength = Annotated[int, Meta(ge=1, le=2**20)]
SmallSide = Annotated[int, Meta(ge=1, le=2**12)]
"""Pixels on a side of a small picture; 64 on its short side, and one may be 64 times longer."""
Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
Given = Annotated[int, Meta(ge=-MAX_WHOLE, le=MAX_WHOLE)] | Number
"""A number that a user gave: 4 stays 4, and 4.0 stays 4.0."""
Fraction = Annotated[float, Meta(ge=0, le=1)]
Correlation = Annotated[float, Meta(ge=-1, le=1)]
Window = tuple[Fraction, Fraction]
TOKENS_AT_MOST, WORDS_AT_MOST = Meta(max_length=MAX_TOKENS), Meta(max_length=MAX_PROMPT)
"""How many of a prompt a file may list."""
Words = Annotated[tuple[Text, ...], TOKENS_AT_MOST]
ConceptTexts = Annotated[tuple[Text, ...], Meta(max_length=MAX_CONCEPTS)]
TokenKind = Literal["text", "start", "end", "pad"]
StepSource = Literal["prediction", "latents"]
"""What the pictures of a run's steps show: what the model foretold the finished picture to be, or
its latents, with their noise, as they were after the step."""
Files = Annotated[tuple[Name, ...], Meta(max_length=10_000)]
"""The names of the files in a folder, without those in inner folders."""


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
