"""What the files of a saved result hold: a schema for each, and the only place that reads them.

`run.json`, `pair.json`, `grid.json` and the table and metadata of `maps.safetensors` come from
whoever sent the folder. What has passed its schema has the types written here, finite numbers of a
sensible size and text that can be written; elsewhere it is only asked whether the parts of a folder
fit one another. Names that a schema does not know stay: they are plain JSON, not too deep.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from heedmap.errors import RunError
from heedmap.files import reading
from heedmap.options import Axis, BranchName, EditKind, Tokens

DEPTH = 32
"""How deeply lists and objects of a file may be nested."""
MAX_VALUES = 1_000_000
"""How many values a file may hold in all; a grid of a thousand cells has some 30,000."""
MAX_LAYERS = 1024
MAX_LAYER_NAME = 512
"""Characters of a layer's name, and so of a pattern for one."""
MAX_TOKENS = 2048
"""Tokens of an encoded text; those of encoders in use are at most 512, long prompts a few more."""
MAX_PROMPT = 100_000
"""Characters of a prompt; a file may not make us chew on more."""
_MOST = 2**63 - 1
_LARGEST = 1e30  # of any number that is measured or asked for

Text = Annotated[str, Meta(max_length=MAX_PROMPT)]
Name = Annotated[str, Meta(max_length=4096)]
Whole = Annotated[int, Meta(ge=0, le=_MOST)]
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Side = Annotated[int, Meta(ge=1, le=2**20)]
Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
Part = Annotated[float, Meta(ge=0, le=1)]
Window = tuple[Part, Part]
Kind = Literal["text", "start", "end", "pad"]
Files = Annotated[list[Name], Meta(max_length=10_000)] | UnsetType
"""Those that heedmap wrote into a folder; whatever else lies there is the user's."""


# --- maps.safetensors -------------------------------------------------------------------------


class TokenRow(Struct, frozen=True):
    """A token; its end is past its start only where it stands in the prompt."""

    position: Small
    id: Small
    text: Text
    start: Small
    end: Small
    kind: Kind


class WordRow(Struct, frozen=True):
    """A word; `tokens` are those that were read, `missing` counts the others."""

    number: Small
    text: Text
    start: Small
    end: Small
    tokens: Annotated[list[Small], Meta(max_length=MAX_TOKENS)]
    missing: Small


class Table(Struct, frozen=True):
    """The words and tokens of a prompt."""

    prompt: Text
    limit: Small
    missing: Small
    tokens: Annotated[list[TokenRow], Meta(max_length=MAX_TOKENS)]
    words: Annotated[list[WordRow], Meta(max_length=MAX_PROMPT)]


class LayerRow(Struct, frozen=True):
    """A layer."""

    name: Annotated[str, Meta(max_length=MAX_LAYER_NAME)]
    heads: Annotated[int, Meta(ge=1, le=1024)]
    grid: tuple[Side, Side]


class Maps(Struct, frozen=True):
    """The metadata of a recording."""

    format: int
    layers: Annotated[list[LayerRow], Meta(min_length=1, max_length=MAX_LAYERS)]
    keep: list[Axis]
    timesteps: Annotated[list[Number], Meta(min_length=1, max_length=10_000)]
    positions: Annotated[list[Small], Meta(min_length=1, max_length=MAX_TOKENS)]
    table: Table
    latent: tuple[Side, Side]
    size: tuple[Side, Side]


# --- run.json ---------------------------------------------------------------------------------


class Scheduler(Struct, frozen=True):
    """A scheduler as it was set up."""

    kind: Name = field(name="class")
    config: dict[Name, Any]


class Edit(Struct, frozen=True):
    """What was asked for, of a run that is an edit; older versions noted less."""

    source: Text
    cross: Window
    own: Window = field(name="self")
    kind: EditKind | None = None
    kind_asked: EditKind | UnsetType | None = UNSET
    windows: dict[Text, Window] = {}
    renormalize: bool = False
    only: Text | None = None
    protect: Annotated[list[Text], Meta(max_length=MAX_TOKENS)] = []
    self_cells: Whole | UnsetType = UNSET
    blend_from: Part | UnsetType = UNSET
    threshold: Part | UnsetType = UNSET


class Mask(Struct, frozen=True):
    """A mask of a region, as `masks.packed` writes it; older versions noted less."""

    mask: tuple[Side, Side]
    packed: str | UnsetType = UNSET


class Reweighted(Struct, frozen=True, tag_field="kind", tag="reweight"):
    """A `Reweight`."""

    word: Text
    weight: Number
    renormalize: bool = False


class Confined(Struct, frozen=True, tag_field="kind", tag="confine"):
    """A `Confine`."""

    word: Text
    where: tuple[Number, Number, Number, Number] | Mask
    strength: Number = 3.0
    start: Part = 0.0
    end: Part = 0.6
    along: Annotated[list[Text], Meta(max_length=MAX_TOKENS)] | None = None
    tail: bool = True


class Ruled(Struct, frozen=True, tag_field="kind", tag="rule"):
    """A rule of a user's own."""

    name: Name = ""


class Versions(Struct, frozen=True):
    """The versions of the packages that drew it."""

    heedmap: Name


class Settings(Struct, frozen=True):
    """What a run was made with."""

    prompt: Text
    seed: Whole
    steps: Annotated[int, Meta(ge=1, le=10_000)] | None
    guidance: Number | None
    size: tuple[Side, Side]
    model: Name
    scheduler: Name
    versions: Versions
    text: Text | UnsetType = UNSET
    negative: Text | None = None
    defaults: dict[Name, Name] = {}
    keep: tuple[Axis, ...] = ("layer",)
    tokens: Tokens = "prompt"
    branches: tuple[BranchName, ...] = ("conditional",)
    batch_place: tuple[Small, Small] | UnsetType = UNSET
    revision: Name | None = None
    pipeline: Name = ""
    schedulers: dict[Literal["scheduler", "low_res_scheduler"], Scheduler] = {}
    parts: dict[Name, Name] = {}
    configs: dict[Name, Name] = {}
    options: dict[Name, Any] = {}
    attention: list[Name] = []
    loras: list[dict[Name, Any]] = []
    adapters: dict[Name, Any] = {}
    device: Name = ""
    hardware: Name = ""
    dtype: Name = ""
    threads: Small | None = None
    edits: Annotated[list[Reweighted | Confined | Ruled], Meta(max_length=256)] = []
    edit: Edit | UnsetType = UNSET
    arguments: dict[Name, Any] = {}


class RunFile(Struct, frozen=True):
    """`run.json`; older versions list no files."""

    format: int
    settings: Settings
    files: Files = UNSET


# --- pair.json, grid.json ---------------------------------------------------------------------


class Figures(Struct, frozen=True, forbid_unknown_fields=True):
    """How much a part of the picture changed; None where there is nothing to measure."""

    share: Part
    mse: Number | None
    psnr_db: Number | None
    ssim: Number | None


class Change(Struct, frozen=True, forbid_unknown_fields=True):
    """How much the picture changed."""

    inside: Figures
    outside: Figures


class Changed(Struct, frozen=True):
    """The words that were changed, by number."""

    source: Annotated[list[Small], Meta(max_length=MAX_TOKENS)]
    edited: Annotated[list[Small], Meta(max_length=MAX_TOKENS)]


class Evidence(Struct, frozen=True, kw_only=True):
    """How a pair was edited, and what that did."""

    words: Changed
    change: Change
    kind: Name
    why: Text = ""
    sites: Whole
    self_sites: Whole
    moved: Number
    masked_by: Text = ""


class PairFile(Struct, frozen=True):
    """`pair.json`; older versions list no files."""

    format: int
    about: Evidence
    files: Files = UNSET


class CellRow(Struct, frozen=True):
    """A cell of a grid."""

    number: Whole
    seed: Whole
    target: Text
    weights: dict[Text, Number]
    cross: Window
    self_attention: Window
    about: Evidence
    blended: bool | UnsetType = UNSET


class GridAbout(Struct, frozen=True):
    """What the cells of a grid have in common."""

    only: Text | None = None


class GridFile(Struct, frozen=True):
    """`grid.json`."""

    format: int
    about: GridAbout
    cells: Annotated[list[CellRow], Meta(min_length=1, max_length=10_000)]


_File = TypeVar("_File", bound=Struct)


def read_file(
    path: Path, schema: type[_File], what: str, *, version: int, most: int
) -> tuple[_File, Any]:
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
    missing = f"{path.parent} is not {what}: expected a folder with {path.name}, as `save` writes"
    data = reading.read_bytes(path, most=most, otherwise=missing)
    return read(data, schema, str(path), version=version)


def read(data: bytes, schema: type[_File], what: str, *, version: int) -> tuple[_File, Any]:
    """The content of a file: as its schema has it, and as plain JSON types with everything else.

    Args:
        data: the file's bytes, or the text of its metadata.
        schema: of the file.
        what: what the file is called in the error.
        version: that its "format" must have.

    Raises:
        RunError: if it is not such a file, or of another version.
    """
    try:
        plain = msgspec.json.decode(data)
        found = plain.get("format") if isinstance(plain, dict) else None
        if type(found) is int and found != version:
            raise RunError(
                f"{what} has format {found}: this version of heedmap reads format {version}; make "
                "it again"
            )
        return _converted(plain, schema), plain
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RunError(f"{what} is not what heedmap wrote{_where(error)}; make it again") from error


def checked(plain: object, schema: type[_File], what: str) -> _File:
    """Plain JSON types as a schema has them.

    Raises:
        RunError: if they do not fit.
    """
    try:
        return _converted(plain, schema)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RunError(f"{what} is not what heedmap writes{_where(error)}") from error


def _converted(plain: object, schema: type[_File]) -> _File:
    found = msgspec.convert(plain, schema)  # first, since it is quick to refuse what is long
    _check_plain(plain)
    return found


def _check_plain(plain: Any) -> None:
    """Raise a ValueError at what is nested too deeply, too much, or too large for any use."""
    level, count, depth = [plain], 0, 0
    while level:
        if any(isinstance(one, int) and abs(one) > 2**64 for one in level):
            raise ValueError("expected numbers of at most 64 bits")
        held = [one for one in level if isinstance(one, dict | list)]
        if held and depth == DEPTH:
            raise ValueError(f"expected less nesting than {DEPTH} levels")
        count, depth = count + sum(map(len, held)), depth + 1
        if count > MAX_VALUES:
            raise ValueError(f"expected at most {MAX_VALUES} values")
        level = [one for part in held for one in _values(part)]


def _values(part: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return part.values() if isinstance(part, dict) else part


def _where(error: Exception) -> str:
    """What was expected, and where, as far as it is known: ": expected int, got str at seed"."""
    if isinstance(error, RecursionError | UnicodeDecodeError):
        return ": it is no JSON"
    if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        return ": it is no JSON"
    said, _, place = str(error).partition(" - at `")
    said = " ".join(f"{said[:1].lower()}{said[1:200]}".replace("`", "").split())
    return f": {said}" + (f" at {place.removeprefix('$.').rstrip('`')}" if place else "")
