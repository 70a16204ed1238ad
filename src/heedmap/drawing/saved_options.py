"""What a run was asked for, read from its settings, which come from a file and are not trusted."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from heedmap.drawing import generation, settings
from heedmap.drawing.edit_plans import read_window
from heedmap.drawing.pipeline_arguments import in_words, is_argument, restorable, restored
from heedmap.errors import ArgumentError, RunError, quoted
from heedmap.files import reading
from heedmap.files.notes import checked, to_json
from heedmap.files.settings import Confined, Mask, Ruled, Settings, WordEditNoted
from heedmap.files.values import MAX_STEPS
from heedmap.options import EditOptions, GenerateOptions
from heedmap.recording.edits import Edit, edit_from, note_of
from heedmap.wiring.arguments import STEP_LISTS, THEIR_NAMES
from heedmap.wiring.family import parameters

_PASS_EDITS = "pass all edits in Python, as in hm.repeat(pipe, run, edits=[…])"
_MOST_AT_ONCE = 1024  # pictures in a batch
_OWN = frozenset(inspect.signature(generation.generate_batch).parameters)


@dataclass(frozen=True)
class SavedCall:
    """What `generate_batch` was asked for one picture, and its place in the batch.

    Attributes:
        place: its number there, from 0, and how many there were.
    """

    prompt: str
    seed: int
    edits: tuple[Edit, ...]
    options: GenerateOptions
    place: tuple[int, int]


@dataclass(frozen=True)
class SavedEdit:
    """What `edit` was asked for, besides the prompt and how it is drawn."""

    source: str
    cross: tuple[float, float]
    own: tuple[float, float]
    options: EditOptions


def saved_call(about: Settings, pipe: Any, given: Mapping[str, Any]) -> SavedCall:
    """What a run's settings ask of a pipeline.

    Args:
        about: the settings.
        pipe: the pipeline that shall draw.
        given: what the settings cannot hold: arguments of the pipeline, and `edits`.

    Raises:
        ArgumentError: if something is missing in `given`, or is not what the run had.
        RunError: if the settings are not such as heedmap writes.
    """
    told = checked_settings(about)
    place = told.batch_place or ((0, 1) if told.edit is None else (1, 2))
    if not place[0] < place[1] <= _MOST_AT_ONCE:
        expected = f"a number and how many there were, at most {_MOST_AT_ONCE}"
        raise _wrong("batch_place", place, expected)
    given, size = dict(given), _size(told, pipe)
    if "edits" not in given:
        _check_masks(told.edits, size)
    edits = _edits(told.edits, given)
    options = GenerateOptions(
        steps=_own(told, "steps", pipe),
        guidance=_own(told, "guidance", pipe),
        size=size,
        negative=told.negative,
        keep=told.keep,
        tokens=told.tokens,
        branches=told.branches,
        concepts=told.concepts,
        arguments=_arguments(told, pipe, given),
    )
    return SavedCall(told.prompt, told.seed, edits, options, place)


def read_edit(about: Settings) -> SavedEdit:
    """What the settings of an edited run ask of `heedmap.edit`.

    Raises:
        ArgumentError: if a window is none.
        RunError: if the settings are not such as heedmap writes.
    """
    edit = checked_settings(about).edit
    if edit is None:
        raise _wrong("edit", None, "what was asked of an edit")
    options = EditOptions(
        kind=edit.kind_asked,
        words=edit.windows,
        renormalize=edit.renormalize,
        only=edit.only,
        protect=edit.protect,
        self_cells=edit.self_cells,
        blend_from=edit.blend_from,
        threshold=edit.threshold,
    )
    cross, own = (
        read_window(edit.cross, "cross"),
        read_window(edit.self_attention, "self_attention"),
    )
    return SavedEdit(edit.source, cross, own, options)


def checked_settings(about: Settings) -> Settings:
    """Check the types and limits of settings; RunError if they do not fit."""
    return checked(about, "what the settings of this run say")


def _own(told: Settings, name: Literal["steps", "guidance"], pipe: Any) -> Any:
    """The steps or the guidance; None where the pipeline's own are what was noted."""
    noted, whose = getattr(told, name), told.defaults.get(name)
    if whose in STEP_LISTS:
        return None
    default = settings.asked(pipe, name, None)[0]
    return None if noted == default and whose is not None else noted


def _size(told: Settings, pipe: Any) -> tuple[int, int] | None:
    """The (width, height) that was asked for; None where the pipeline chose."""
    chosen = "size" in told.defaults or THEIR_NAMES["size"] not in parameters(pipe)
    return None if chosen else told.size


def _edits(asked: Sequence[WordEditNoted], given: dict[str, Any]) -> tuple[Edit, ...]:
    if "edits" in given:
        edits = tuple(given.pop("edits"))
        told = [to_json(note_of(edit)) for edit in edits]
        if list(map(_told_apart, told)) != [_told_apart(to_json(one)) for one in asked]:
            raise ArgumentError(
                f"edits are {[one['kind'] for one in told]}, and not those that the settings of "
                f"this run tell of: expected {len(asked)} that are told alike"
            )
        return edits
    read = [edit_from(edit) for edit in asked]
    for edit, about in zip(read, asked, strict=True):
        if edit is None:
            what = about.name if isinstance(about, Ruled) else f"the mask of {about.word}"
            raise ArgumentError(
                f"the edit {quoted(what)} of this run is not in its settings: {_PASS_EDITS}"
            )
    return tuple(edit for edit in read if edit is not None)


def _check_masks(noted: Sequence[WordEditNoted], size: tuple[int, int] | None) -> None:
    """Raise a RunError if masks are of another size than the picture, before one is unpacked."""
    masks = [
        (edit.word, edit.where.mask)
        for edit in noted
        if isinstance(edit, Confined) and isinstance(edit.where, Mask)
    ]
    for word, (width, height) in masks:
        if size is not None and (width, height) != size:
            raise RunError(
                f"the mask of {quoted(word)} in the settings is {width}×{height} pixels: expected "
                f"{size[0]}×{size[1]}, as of the run; make it again"
            )
    pixels = sum(width * height for _, (width, height) in masks)
    if pixels > reading.MAX_PIXELS:
        raise RunError(
            f"the {len(masks)} masks of this run have {pixels:,} pixels together: expected at most "
            f"{reading.MAX_PIXELS:,}; {_PASS_EDITS}"
        )


def _told_apart(about: Any) -> Any:
    """A description without what may be spelled in several ways."""
    if isinstance(about, dict) and isinstance(about.get("where"), dict):
        where = {key: about["where"].get(key) for key in ("mask", "sha256")}
        return {**about, "where": where}
    return about


def _arguments(about: Settings, pipe: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the pipeline: those noted, and those given where a note cannot hold them."""
    noted = about.arguments
    taken = parameters(pipe)
    free = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    for name in noted:
        if name in _OWN or name == "self" or not (free or name in taken):
            raise RunError(
                f"the settings have an argument {quoted(name)}, which {type(pipe).__name__} does "
                "not take: draw with the pipeline that they name"
            )
    for name in STEP_LISTS:
        listed = noted.get(name)
        if isinstance(listed, list) and len(listed) > MAX_STEPS:
            raise _wrong(name, listed, f"at most {MAX_STEPS}")
    for name in given:
        if name not in noted:
            raise ArgumentError(f"{name} was passed, but this run had no such argument: omit it")
    return {name: _argument(name, value, given) for name, value in noted.items()}


def _argument(name: str, noted: Any, given: Mapping[str, Any]) -> Any:
    if name not in given:
        if restorable(noted):
            return restored(noted)
        raise ArgumentError(
            f"the argument {name} of this run ({in_words(noted)}) is not in its settings: pass it "
            f"in Python, as in hm.repeat(pipe, run, {name}=…)"
        )
    if not is_argument(given[name], noted):
        raise ArgumentError(
            f"the {name} that was passed is not the one that this run had ({in_words(noted)}): "
            "expected the very same"
        )
    return given[name]


def _wrong(name: str, value: Any, expected: str) -> RunError:
    return RunError(
        f"the settings of this run have {name}={quoted(value)}: expected {expected}; make it again"
    )
