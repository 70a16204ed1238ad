"""What a run was asked for, read from its settings, which come from a file and are not trusted."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from heedmap import settings, studio
from heedmap.alignment import EditKind
from heedmap.arguments import OBJECT, fits, restorable, restored, told
from heedmap.edits import THRESHOLD
from heedmap.errors import ArgumentError, RunError, quoted
from heedmap.plans import is_number, read_window, read_windows
from heedmap.recordings import AXES, Axis
from heedmap.runs import MAX_PIXELS
from heedmap.tracing import BranchName, Tokens
from heedmap.variants import BLEND_FROM
from heedmap.word_edits import Edit, described, edit_from

_MOST_AT_ONCE = 4096  # pictures in a batch
_UNNAMED = re.compile(r"<\w+>")  # how older versions noted an argument that was an object
_OWN = frozenset(inspect.signature(studio.generate_batch).parameters)


@dataclass(frozen=True)
class Asked:
    """The arguments of `studio.generate_batch` for one picture, and its place in the batch.

    Attributes:
        place: its number there, from 0, and how many there were.
    """

    prompt: str
    seed: int
    steps: int | None
    guidance: float | None
    size: tuple[int, int] | None
    negative: str | None
    keep: tuple[Axis, ...]
    tokens: Tokens
    branches: tuple[BranchName, ...]
    edits: tuple[Edit, ...]
    arguments: dict[str, Any]
    place: tuple[int, int]


@dataclass(frozen=True)
class AskedEdit:
    """What `heedmap.edit` was asked for, beside the prompt and how it is drawn."""

    source: str
    kind: EditKind | None
    cross: tuple[float, float]
    own: tuple[float, float]
    windows: dict[str, tuple[float, float]]
    renormalize: bool
    only: str | None
    protect: tuple[str, ...]
    self_cells: int
    blend_from: float
    threshold: float


def read(about: Mapping[str, Any], pipe: Any, given: Mapping[str, Any]) -> Asked:
    """What a run's settings ask of a pipeline.

    Args:
        about: the settings.
        pipe: the pipeline that shall draw.
        given: what the settings cannot hold: arguments of the pipeline, and `edits`.

    Raises:
        ArgumentError: if something is missing in `given`, or is not what the run had.
        RunError: if the settings are not such as heedmap writes.
    """
    prompt = _one(about, "prompt", lambda v: isinstance(v, str) and bool(v.strip()), "a text")
    seed = _one(about, "seed", lambda v: type(v) is int and 0 <= v < 2**63, "0 to 2**63 - 1")
    place = about.get("batch_place", [1, 2] if "edit" in about else [0, 1])
    if not (_whole_pair(place) and 0 <= place[0] < place[1] <= _MOST_AT_ONCE):
        raise _wrong("batch_place", place, "a number and how many there were")
    keep = _listed(about, "keep", ["layer"], AXES)
    branches = _listed(about, "branches", ["conditional"], ("conditional", "negative"))
    tokens = _one(about, "tokens", lambda v: v in ("prompt", "all"), "'prompt' or 'all'", "prompt")
    negative = _one(about, "negative", lambda v: v is None or isinstance(v, str), "a text", None)
    given = dict(given)
    edits = _edits(about, given)
    return Asked(
        prompt, seed, _number(about, "steps", pipe), _number(about, "guidance", pipe),
        _size(about, pipe), negative, keep, tokens, branches, edits,
        _arguments(about, pipe, given), (place[0], place[1]),
    )  # fmt: skip


def read_edit(about: Mapping[str, Any]) -> AskedEdit:
    """What the settings of an edited run ask of `heedmap.edit`.

    Raises:
        ArgumentError: if a window is none.
        RunError: if the settings are not such as heedmap writes.
    """
    edit = about.get("edit")
    if not isinstance(edit, dict):
        raise _wrong("edit", edit, "what was asked of an edit")

    def one(name: str, holds: Callable[[Any], bool], expected: str, *unsaid: Any) -> Any:
        return _one(edit, name, holds, expected, *unsaid)

    def text(value: Any) -> bool:
        return isinstance(value, str) and bool(value.strip())

    kind = edit.get("kind_asked") if "kind_asked" in edit else edit.get("kind")
    if kind not in (None, "replace", "refine"):
        raise _wrong("kind", kind, "'replace' or 'refine'")
    windows = one("windows", lambda v: isinstance(v, dict), "windows by word", {})
    protect = one(
        "protect", lambda v: isinstance(v, list) and all(map(text, v)), "a list of words", []
    )
    return AskedEdit(
        source=one("source", text, "a text"),
        kind=kind,
        cross=read_window(edit.get("cross", 0.8), "cross"),
        own=read_window(edit.get("self", 0.4), "self_attention"),
        windows=read_windows(windows),
        renormalize=one("renormalize", lambda v: isinstance(v, bool), "true or false", False),
        only=one("only", lambda v: v is None or text(v), "words, as 'cat->dog'", None),
        protect=tuple(protect),
        self_cells=one("self_cells", lambda v: type(v) is int and v >= 0, "cells", 32 * 32),
        blend_from=one("blend_from", is_number, "a fraction", BLEND_FROM),
        threshold=one("threshold", is_number, "a fraction", THRESHOLD),
    )


def _number(about: Mapping[str, Any], name: str, pipe: Any) -> Any:
    """The steps or the guidance; None where the pipeline's own are what was noted."""
    if name == "steps":
        noted = _one(
            about, name, lambda v: v is None or (type(v) is int and 1 <= v <= 999), "1 to 999", None
        )
    else:
        noted = _one(
            about, name, lambda v: v is None or (is_number(v) and math.isfinite(v)), "a number",
            None,
        )  # fmt: skip
    whose = _defaults(about).get(name)
    if whose in ("timesteps", "sigmas"):
        return None
    default = settings.asked(pipe, name, None)[0]
    return None if noted == default and whose is not None else noted


def _size(about: Mapping[str, Any], pipe: Any) -> tuple[int, int] | None:
    """The (width, height) that was asked for; None where the pipeline chose."""
    size: Any = about.get("size")
    if not (_whole_pair(size) and min(size) > 0 and size[0] * size[1] <= MAX_PIXELS):
        raise _wrong("size", size, "a width and a height in pixels")
    # Older settings do not tell whether it was asked for, but where it cannot be, it was not.
    told = "size" in _defaults(about) or "height" not in settings.parameters(pipe)
    return None if told else (size[0], size[1])


def _defaults(about: Mapping[str, Any]) -> Mapping[str, Any]:
    return _one(about, "defaults", lambda v: isinstance(v, dict), "names of settings", {})


def _edits(about: Mapping[str, Any], given: dict[str, Any]) -> tuple[Edit, ...]:
    noted = _one(about, "edits", lambda v: isinstance(v, list), "a list", [])
    if "edits" in given:
        edits = tuple(given.pop("edits"))
        if [_told_apart(described(edit)) for edit in edits] != list(map(_told_apart, noted)):
            raise ArgumentError(
                f"edits are {[described(edit)['kind'] for edit in edits]}, and not those that the "
                f"settings of this run tell of: expected {len(noted)} that are described alike"
            )
        return edits
    read = [edit_from(edit) for edit in noted]
    for edit, told_of in zip(read, noted, strict=True):
        if edit is None:
            what = told_of.get("name") or f"the mask of {told_of.get('word')}"
            raise ArgumentError(
                f"the edit {quoted(what)} of this run is not in its settings: pass all edits, as "
                "in hm.repeat(pipe, run, edits=[…])"
            )
    return tuple(edit for edit in read if edit is not None)


def _told_apart(about: Any) -> Any:
    """A description without what may be spelled in several ways."""
    if isinstance(about, dict) and isinstance(about.get("where"), dict):
        where = {key: about["where"].get(key) for key in ("mask", "sha256")}
        return {**about, "where": where}
    return about


def _arguments(about: Mapping[str, Any], pipe: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the pipeline: those noted, and those given where a note cannot hold them."""
    noted = _one(about, "arguments", lambda v: isinstance(v, dict), "arguments by name", {})
    if "schedulers" not in about:  # written by an older version
        noted = {
            name: {OBJECT: str(value).strip("<>")} if _is_unnamed(value) else value
            for name, value in noted.items()
        }
    taken = settings.parameters(pipe)
    free = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    for name in noted:
        if name in _OWN or name == "self" or not (free or name in taken):
            raise RunError(
                f"the settings have an argument {quoted(name)}, which {type(pipe).__name__} does "
                "not take: draw with the pipeline that they name"
            )
    for name in given:
        if name not in noted:
            raise ArgumentError(f"{name} was passed, but this run had no such argument")
    return {name: _argument(name, value, given) for name, value in noted.items()}


def _argument(name: str, noted: Any, given: Mapping[str, Any]) -> Any:
    if name not in given:
        if restorable(noted):
            return restored(noted)
        raise ArgumentError(
            f"the argument {name} of this run ({told(noted)}) is not in its settings: pass it, as "
            f"in hm.repeat(pipe, run, {name}=…)"
        )
    if not fits(given[name], noted):
        raise ArgumentError(
            f"the {name} that was passed is not the one that this run had ({told(noted)}): "
            "expected the very same"
        )
    return given[name]


def _is_unnamed(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_unnamed, value))
    return isinstance(value, str) and _UNNAMED.fullmatch(value) is not None


def _listed(about: Mapping[str, Any], name: str, unsaid: list[str], known: Any) -> tuple[Any, ...]:
    found = about.get(name, unsaid)
    if not (isinstance(found, list) and all(isinstance(v, str) and v in known for v in found)):
        raise _wrong(name, found, f"a list of {', '.join(known)}")
    return tuple(found)


def _one(
    about: Mapping[str, Any], name: str, holds: Callable[[Any], bool], expected: str, *unsaid: Any
) -> Any:
    """A value that is as expected, or what is taken where there is none."""
    if name not in about and unsaid:
        return unsaid[0]
    value = about.get(name)
    if not holds(value):
        raise _wrong(name, value, expected)
    return value


def _whole_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)


def _wrong(name: str, value: Any, expected: str) -> RunError:
    return RunError(
        f"the settings of this run have {name}={quoted(value)}: expected {expected}; make it again"
    )
