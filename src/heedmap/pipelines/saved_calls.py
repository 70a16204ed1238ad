"""The arguments of a saved run, read from its settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from heedmap.backends.arguments import STEP_LISTS, THEIR_NAMES
from heedmap.backends.family import parameters
from heedmap.errors import ArgumentError, quoted
from heedmap.io.settings import EditNoted, EditTerms, Ruled, Settings
from heedmap.options import EditOptions, GenerateOptions
from heedmap.pipelines.pipeline_arguments import argument, argument_note, description, is_restorable
from heedmap.pipelines.settings import effective_value
from heedmap.recording.edits import Edit, edit_from, note_of

TERMS = EditTerms.__struct_fields__
"""The options of an edit that its settings and reports have under the same names."""


@dataclass(frozen=True)
class SavedCall:
    """The arguments of `generate` for one image of a saved run.

    Attributes:
        place: the number of the image in its batch, from 0, and the size of the batch.
    """

    prompt: str
    seed: int
    edits: tuple[Edit, ...]
    options: GenerateOptions
    place: tuple[int, int]


def saved_call(settings: Settings, pipe: Any, given: Mapping[str, Any]) -> SavedCall:
    """Return the call that generates a saved run.

    Args:
        settings: the settings of the run.
        pipe: the pipeline to call.
        given: the arguments that a file cannot hold: those of the pipeline by name, and `edits`.

    Raises:
        ArgumentError: if something is missing in `given`, or differs from what the run had.
    """
    given = dict(given)
    edits = _edits(settings, given)
    sized = "size" not in settings.defaults and THEIR_NAMES["size"] in parameters(pipe)
    options = GenerateOptions(
        steps=_given_value(settings, "steps", pipe),
        guidance=_given_value(settings, "guidance", pipe),
        size=settings.size if sized else None,
        negative=settings.negative,
        keep=settings.keep,
        tokens=settings.tokens,
        branches=settings.branches,
        concepts=settings.concepts,
        arguments=_arguments(settings, given),
    )
    place = settings.batch_place or (0, 1)
    return SavedCall(settings.prompt, settings.seed, edits, options, place)


def edit_options(edit: EditNoted) -> EditOptions:
    """Return the options of a saved edit."""
    terms = {name: getattr(edit, name) for name in TERMS}
    windows = {"cross": edit.cross, "self_attention": edit.self_attention}
    return EditOptions(kind=edit.kind_asked, words=edit.windows, **windows, **terms)


def _given_value(settings: Settings, name: Literal["steps", "guidance"], pipe: Any) -> Any:
    """Return the steps or the guidance, or None if the pipeline chooses the same value itself."""
    value, source = getattr(settings, name), settings.defaults.get(name)
    if source in STEP_LISTS:
        return None
    return None if source and value == effective_value(pipe, name, None)[0] else value


def _edits(settings: Settings, given: dict[str, Any]) -> tuple[Edit, ...]:
    if "edits" in given:
        edits = tuple(given.pop("edits"))
        if tuple(map(note_of, edits)) != settings.edits:
            raise ArgumentError(
                f"edits is {quoted(edits)}, which are not the edits of this run: expected "
                f"{', '.join(map(str, settings.edits)) or 'none'}"
            )
        return edits
    found: list[Edit] = []
    for note in settings.edits:
        edit = edit_from(note)
        if edit is None:
            what = f"rule {note.name}" if isinstance(note, Ruled) else f"mask of {note.word}"
            raise ArgumentError(
                f"the {quoted(what)} of this run is not saved: pass all its edits, as in "
                "hm.repeat(pipe, run, edits=[…])"
            )
        found.append(edit)
    return tuple(found)


def _arguments(settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the arguments of the pipeline; those that are not saved must be given."""
    notes = settings.arguments
    for name, value in given.items():
        if name not in notes:
            raise ArgumentError(f"{name} is given, but this run had no such argument: omit it")
        if argument_note(value) != notes[name]:
            raise ArgumentError(
                f"{name} is not the argument that this run had ({description(notes[name])}): "
                "expected the same"
            )
    for name, note in notes.items():
        if name not in given and not is_restorable(note):
            raise ArgumentError(
                f"the argument {name} of this run ({description(note)}) is not saved: pass it, as "
                f"in hm.repeat(pipe, run, {name}=…)"
            )
    return {name: given[name] if name in given else argument(note) for name, note in notes.items()}
