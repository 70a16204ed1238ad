"""What the files of a saved result hold: a schema for each, read and written here.

`run.json`, `pair.json`, `grid.json` and what `maps.safetensors` says of itself (its schema is made
of the types that it holds: `RecordingFile` in `maps.recordings`) come from whoever sent the folder.
What has passed its schema has the types written there, finite numbers of a sensible size and text
that can be written; elsewhere it is only asked whether the parts of a folder fit one another. A
`Note` keeps names that its schema does not know; they are plain JSON, not deep.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from heedmap.errors import RunError, reason
from heedmap.files import reading
from heedmap.files.ablations import Trust
from heedmap.files.notes import Note, noted, to_json
from heedmap.files.reports import EditReport, GridReport
from heedmap.files.settings import Settings
from heedmap.files.values import (
    MAX_CELLS,
    MAX_STEPS,
    MAX_TOKENS,
    Correlation,
    Files,
    Name,
    Number,
    Small,
    SmallSide,
    StepSource,
    Text,
    Whole,
    Window,
)

DEPTH = 32
"""How deeply lists and objects of a file may be nested."""
MAX_VALUES = 1_000_000
"""How many values a file may hold in all; a grid of a thousand cells has some 30,000."""


# --- run.json, pair.json, grid.json -----------------------------------------------------------


class WordFile(Struct, frozen=True):
    """A word of a run, the file of its overlay within the folder, how stable its map is."""

    number: int
    text: str
    tokens: tuple[int, ...]
    file: str | None
    stability: float | UnsetType = UNSET


class WordRead(Struct, frozen=True):
    """What is read back of a word of a run that was located; older versions wrote its number."""

    number: Small
    stability: Correlation | UnsetType = UNSET


class StepsFile(Struct, frozen=True):
    """What `steps.png` holds: how many pictures, the size of each, and what they show."""

    count: Annotated[int, Meta(ge=1, le=MAX_STEPS)]
    size: tuple[SmallSide, SmallSide]
    shows: StepSource


class RunFile(Struct, frozen=True, kw_only=True):
    """`run.json`; older versions list no files. Its words are for people; see `stabilities`.

    Attributes:
        trust: of a run that words were left out of, by the word.
    """

    format: int
    files: Files = UNSET
    settings: Settings
    steps: StepsFile | UnsetType = UNSET
    words: Any = UNSET
    concepts: Any = UNSET
    trust: Annotated[Mapping[Text, Trust], Meta(max_length=MAX_TOKENS)] | UnsetType = UNSET


class PairFile(Struct, frozen=True, kw_only=True):
    """`pair.json`; older versions list no files."""

    format: int
    files: Files = UNSET
    about: EditReport


class CellRow(Note, frozen=True, kw_only=True):
    """A cell of a grid; older versions do not say whether it was blended."""

    number: Whole
    seed: Whole
    target: Text
    weights: Mapping[Text, Number]
    cross: Window
    self_attention: Window
    file: Name = ""
    blended: bool = False
    about: EditReport


class GridFile(Struct, frozen=True, kw_only=True):
    """`grid.json`."""

    format: int
    files: Files = UNSET
    about: GridReport
    cells: Annotated[tuple[CellRow, ...], Meta(min_length=1, max_length=MAX_CELLS)]


class SelectionWord(Struct, frozen=True, kw_only=True):
    """A word of a selection, and the file of its overlay."""

    word: str
    file: str


class SelectionFile(Struct, frozen=True, kw_only=True):
    """`inspect.json`; it is only asked which files were written, and never read back."""

    run: str
    folder: str
    selection: dict[str, Any]
    words: list[SelectionWord]


class SegmentWritten(Struct, frozen=True, kw_only=True):
    """A phrase of a picture's segments, and the file of its mask."""

    name: str
    label: int
    file: str


class SegmentsFile(Struct, frozen=True, kw_only=True):
    """`segment.json`; it is only asked which files were written, and never read back."""

    folder: str
    prompt: str
    threshold: float
    sheet: str
    phrases: list[SegmentWritten]


# --- reading and writing ----------------------------------------------------------------------


_File = TypeVar("_File")


def write_file(path: Path, content: Struct) -> None:
    """Write a file that `read_file` reads back equal; RunError as of `written`."""
    path.write_bytes(written(content, path.name))


def written(content: Struct, name: str) -> bytes:
    """What a file of that name would hold.

    Raises:
        RunError: if something in it cannot be written, or would not be read.
    """
    try:
        text = json.dumps(to_json(content), indent=2, ensure_ascii=False, allow_nan=False)
        data = f"{text}\n".encode()
    except (TypeError, ValueError, RecursionError) as error:
        said = f"{name} cannot be written: {reason(error)}; give what JSON has"
        raise RunError(said) from error
    validated(json.loads(data), type(content), f"what {name} would hold")
    return data


def stabilities(words: object, what: str) -> dict[int, float]:
    """How stable the maps of words are, by their numbers, as far as a file says it.

    Args:
        words: of a run, or its concepts, as its file has them.
        what: what all of it is called in the error.

    Raises:
        RunError: if they are no list of words, or two have one number.
    """
    read = [] if words is UNSET else validated(words, list[WordRead], what)
    if len({one.number for one in read}) < len(read):
        raise RunError(f"{what} is not what heedmap writes: expected each number once")
    return {one.number: one.stability for one in read if one.stability is not UNSET}


def read_file(path: Path, schema: type[_File], what: str, *, version: int, most: int) -> _File:
    """The content of the file that tells a folder's kind, as `read` returns it.

    Args:
        path: of the file.
        schema: of the file.
        what: what the folder is, with its article.
        version: as in `read`.
        most: bytes that the file may have.

    Raises:
        RunError: if it is not such a file.
    """
    data = reading.read_bytes(path, most=most, otherwise=other_kind(path.parent, what, path.name))
    return read(data, schema, str(path), version=version)


_KINDS = {
    "grid.json": ("a grid", "the folder of a cell, such as {}/cells/001"),
    "pair.json": ("an edit", "one of its two runs, {0}/source or {0}/edited"),
    "run.json": ("a run", ""),
    "explain.json": ("an explanation", "the run that it explains"),
    "ablate.json": ("an ablation", "one of its three runs, such as {}/run"),
    "inspect.json": ("a selection of a run", "the run itself"),
    "segment.json": ("masks of a run", "the run itself"),
}
"""The files that tell folders of each kind, what it is, and what to name where a run is wanted."""


def other_kind(folder: Path, what: str, marks: str) -> str:
    """What to say of a folder without the files of that kind: of which other it is, if of any."""
    for mark, (other, runs) in _KINDS.items():
        if mark not in marks and reading.is_file(folder / mark):
            run = runs and what.startswith("a run")
            wanted = runs.format(folder) if run else f"{what}, not {other}"
            return f"{folder} is {other}: expected {wanted}"
    return reading.nothing_of(folder, what, f"a folder with {marks}")


def read(data: bytes, schema: type[_File], what: str, *, version: int) -> _File:
    """The content of a file as its schema has it.

    Args:
        data: the file's bytes, or the text of its metadata.
        schema: of the file.
        what: what the file is called in the error.
        version: that its "format" must have.

    Raises:
        RunError: if it is not such a file, or of another version.
    """
    try:
        held = msgspec.json.decode(data)
        found = held.get("format") if isinstance(held, dict) else None
        if type(found) is int and found != version:
            raise RunError(
                f"{what} has format {found}: this version of heedmap reads format {version}; make "
                "it again"
            )
        return _converted(held, schema)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RunError(f"{what} is not what heedmap wrote{_where(error)}; make it again") from error


def validated(held: object, schema: type[_File], what: str) -> _File:
    """Plain JSON types as a schema has them.

    Raises:
        RunError: if they do not fit.
    """
    try:
        return _converted(held, schema)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RunError(f"{what} is not what heedmap writes{_where(error)}") from error


def _converted(held: object, schema: type[_File]) -> _File:
    # First, since it is quick to refuse what is long.
    found = msgspec.convert(held, schema, str_keys=True)
    _check_plain(held)
    return noted(found, held)


def _check_plain(held: Any) -> None:
    """Raise a ValueError at what is nested too deeply, too much, or too large for any use."""
    level, count, depth = [held], 0, 0
    while level:
        if any(isinstance(one, int) and abs(one) > 2**64 for one in level):
            raise ValueError("expected numbers of at most 64 bits")
        holding = [one for one in level if isinstance(one, dict | list)]
        if holding and depth == DEPTH:
            raise ValueError(f"expected less nesting than {DEPTH} levels")
        count, depth = count + sum(map(len, holding)), depth + 1
        if count > MAX_VALUES:
            raise ValueError(f"expected at most {MAX_VALUES} values")
        level = [one for part in holding for one in _values(part)]


def _values(part: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return part.values() if isinstance(part, dict) else part


_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
"""What a reader calls the types of JSON that msgspec names."""
_SENTENCES = {
    "Object missing required field": "expected the field",
    "Object contains unknown field": "expected no field",
    "Invalid enum value": "expected another value than",
    "` matching regex": "` of the form",
    "` of length >=": "` of length at least",
    "` of length <=": "` of length at most",
    "` >=": "` of at least",
    "` <=": "` of at most",
    "` >": "` above",
    "` <": "` below",
}
"""What msgspec says, as heedmap says it: beside a type, or at the beginning, and once."""


def _types(match: re.Match[str]) -> str:
    """The types between backticks: "int | null" is "a whole number or null"."""
    return f"{match[1]} " + " or ".join(_TYPES.get(one, one) for one in match[2].split(" | "))


def _where(error: Exception) -> str:
    """What was expected, and where: ": expected a whole number, got text at seed"."""
    if isinstance(error, RecursionError | UnicodeDecodeError):
        return ": it is not JSON"
    if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        return ": it is not JSON"
    said, _, place = str(error).partition(" - at `")
    said = said[:200]
    for theirs, ours in _SENTENCES.items():
        begins = (
            said.startswith("Expected `") if theirs.startswith("`") else said.startswith(theirs)
        )
        said = said.replace(theirs, ours, 1) if begins else said
    # A value and a field's name are shown as they stand there, whatever they are.
    said = re.sub(r"(^Expected|, got) `([^`]*)`", _types, said)
    said = " ".join(f"{said[:1].lower()}{said[1:]}".replace("`", "").split())
    holder = place.removeprefix("key` in `")
    at = holder.removeprefix("$").removeprefix(".").rstrip("`")
    if holder != place:
        at = f"a name in {at}"
    return f": {said}" + (f" at {at}" if place else "")
