"""Generate a saved run or edit again, and compare it with the saved one.

An image of a batch is generated at the same place of a batch of the same size, since the size of a
batch changes how a processor rounds. The other images of the batch are copies of it.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from heedmap.backends import loading
from heedmap.backends.base import Pipeline, parameters
from heedmap.backends.registry import DIFFUSERS_NAMES, check_names
from heedmap.errors import ArgumentError
from heedmap.io.places import check_places
from heedmap.io.schemas import Settings
from heedmap.io.word_edits import SavedRule
from heedmap.maps.heatmaps import HeatMaps
from heedmap.options import (
    Device,
    Dtype,
    EditOptions,
    GenerateOptions,
    LoadOptions,
    Places,
)
from heedmap.pipelines.arguments import argument, argument_note, description
from heedmap.pipelines.edit_runs import EditSource, run_edits
from heedmap.pipelines.generation import Progress, generate_batch
from heedmap.pipelines.guiding import with_defaults
from heedmap.pipelines.input_images import run_location
from heedmap.pipelines.settings import saved_schedulers, settings_diff
from heedmap.recording.edits import Edit, saved_edits
from heedmap.recording.guidance import AnyGuide
from heedmap.recording.probing import Probe
from heedmap.results.edits import EditResult, load_result
from heedmap.results.runs import Run

Drawing = Run | EditResult
"""A result that can be generated again."""


@dataclass(frozen=True, eq=False)
class RepeatResult:
    """A result that was generated again, compared with the saved one.

    For a result of `locate`, the values of the maps are compared; otherwise the pixels.

    Attributes:
        run: the new result.
        same: True if all pixels are the same, or all numbers of the maps.
        largest: the largest difference of a channel, 0 to 255, or of a number; infinite for
            another size or shape.
        changed: (saved, now) by the dotted name of each setting that differs; None if it is
            missing. A scheduler that differs was replaced by the saved one for the repetition.
    """

    run: Drawing
    same: bool
    largest: float
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Write the result of the comparison as a sentence."""
        if self.same:
            return "The repetition is identical."
        unit = " of 255"
        if isinstance(self.run, Run) and self.run.settings.located:
            unit = ""
        return f"The repetition differs by up to {self.largest:.3g}{unit}."


def compared(
    saved: Drawing,
    new: Drawing,
    changed: Mapping[str, tuple[Any, Any]],
) -> RepeatResult:
    """Compare a result with the saved one; `changed` has the settings that differ."""
    largest = 0.0
    for one, other in zip(_arrays(saved), _arrays(new), strict=True):
        difference = math.inf
        if one.shape == other.shape:
            difference = float(np.abs(one - other).max())
        largest = max(largest, difference)
    return RepeatResult(new, not largest, largest, dict(changed))


def _arrays(result: Drawing) -> Sequence[np.ndarray]:
    """Return the numbers of the maps of a located run, or else the pixels of each image once."""
    if isinstance(result, EditResult):
        runs = [result.source, result.edited]
    elif result.settings.located is not None:
        return result.maps.recording.arrays
    else:
        runs = [result]
    return [np.asarray(run.image.convert("RGB"), dtype=np.int16) for run in runs]


# --- the call of a saved run --------------------------------------------------------------------


@dataclass(frozen=True)
class SavedCall:
    """The arguments of `generate` for one image of a saved run.

    Attributes:
        place: the number of the image in its batch, from 0, and the size of the batch.
    """

    prompt: str
    seed: int
    edits: tuple[Edit, ...]
    guide: tuple[AnyGuide, ...]
    options: GenerateOptions
    place: tuple[int, int]


def saved_call(settings: Settings, pipe: Any, extra: Mapping[str, Any]) -> SavedCall:
    """Return the call that generates a saved run.

    `extra` has the arguments that a file cannot hold: those of the pipeline by name, `edits`
    and `guide`.
    An argument that is missing, or differs from that of the run, is an ArgumentError.
    """
    extra = dict(extra)
    given: dict[str, tuple[Any, ...]] = {}
    for name in ("edits", "guide"):
        saved = getattr(settings, name)
        items = tuple(extra.pop(name, saved))
        is_saved = not any(isinstance(one, SavedRule) for one in items)
        if not is_saved or saved_edits(with_defaults(pipe, items)) != saved:
            raise ArgumentError(
                f"{name} of this run is {', '.join(map(str, saved)) or 'none'}: pass the same if "
                f"one is a function of your own, as in hm.repeat(pipe, run, {name}=[…])"
            )
        given[name] = items
    values = {one.name: getattr(settings, one.name) for one in fields(GenerateOptions)}
    values["arguments"] = _arguments(pipe, settings, extra)
    for name in settings.defaults:  # the pipeline chooses it again
        values[name] = None
    if DIFFUSERS_NAMES["size"] not in parameters(pipe):
        values["size"] = None
    place = settings.batch_place or (0, 1)
    options = GenerateOptions(**values)
    return SavedCall(
        settings.prompt,
        settings.seed,
        options=options,
        place=place,
        **given,
    )


def _arguments(
    pipe: Any,
    settings: Settings,
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    notes = settings.arguments
    check_names(pipe, notes, ())
    for name in extra.keys() - notes.keys():
        raise ArgumentError(
            f"{name} is given, but this run had no such argument: omit it"
        )
    values = dict(extra)
    for name, note in notes.items():
        with suppress(ValueError):
            values.setdefault(name, argument(note))
        if name not in values or argument_note(values[name]) != note:
            raise ArgumentError(
                f"the argument {name} of this run ({description(note)}) is not saved: pass the "
                f"same, as in hm.repeat(pipe, run, {name}=…)"
            )
    return values


# --- repetitions --------------------------------------------------------------------------------


def repeat(
    pipe: Pipeline | None,
    run: Drawing | str | Path,
    *,
    places: Places | None = None,
    reads: bool | None = None,
    budget: bool | None = None,
    progress: Progress | None = None,
    **arguments: Any,
) -> RepeatResult:
    """Generate a saved run or edit again from its settings, and compare the images.

        again = heedmap.repeat(pipe, "outputs/house")
        again.same, str(again), again.changed

    The saved scheduler is put into the pipeline for the call; afterwards its own is restored.
    Other settings of the pipeline that differ from the saved ones are in `RepeatResult.changed`.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run or an edit, or the folder of one, such as that of a cell of a grid.
        places: record these places, in place of those of the run (`RepeatResult.run.places`), as
            in `generate`; the masks of words are those of the run's maps.
        reads: record what words read, or do not. Default: as in the run.
        budget: record the budget of attention, or do not. Default: as in the run.
        progress: called after every step with the number of steps done and of all steps.
        arguments: values that a file cannot hold, by name: images, tensors and functions that were
            passed to the pipeline, `edits` if one was a rule of your own, and `guide` if one was a
            loss. An image or tensor is
            compared with the SHA-256 of the original, a function with its name.

    Returns:
        The new result, with the largest difference and the settings that differ.

    Raises:
        ArgumentError: if such an argument is missing or differs from the original, or more is to
            be recorded of an edit.
        ModelError: if the model named in the settings cannot be loaded.
        RunError: if the folder is not a result, or a saved scheduler cannot be made.
    """
    saved = load_result(run)
    more: dict[str, Any] = {"reads": reads, "budget": budget}
    if places is not None:
        more["places"] = check_places(places)
    more = {name: value for name, value in more.items() if value is not None}
    if more:
        saved = _with_records(saved, more)
    pipe = load_for(saved) if pipe is None else pipe
    settings = _settings(saved)
    changed = settings_diff(settings, pipe)
    with saved_schedulers(pipe, settings):
        if isinstance(saved, Run):
            new = generate_again(pipe, saved, arguments, progress)
        else:
            new = _pair(pipe, saved.edited, arguments, progress)
            sizes = {
                (run.settings.batch_place or (0, 1))[1]
                for run in (saved.source, saved.edited)
            }
            # The source is that of an earlier batch.
            if len(sizes) > 1:
                source = generate_again(pipe, saved.source, arguments, progress)
                new = replace(new, source=source)
    return compared(saved, new, changed)


def _with_records(saved: Drawing, more: Mapping[str, Any]) -> Run:
    """Return a run whose settings record more."""
    settings = _settings(saved)
    if not isinstance(saved, Run) or settings.edit or settings.input_image:
        raise ArgumentError(
            "places, reads and the budget are recorded of runs of hm.generate and hm.locate, and "
            "this one is of an edit: leave them out"
        )
    return replace(saved, settings=replace(settings, **more))


def load_for(
    saved: Drawing,
    model: str | Path | None = None,
    *,
    device: Device = LoadOptions.device,
    dtype: Dtype = LoadOptions.dtype,
) -> Any:
    """Load the pipeline of a saved result, or another model for it, as `load` does.

    "auto" is the device of the run, if this machine has it, and the precision of the run.
    """
    settings = _settings(saved)
    if device == "auto" and settings.device in loading.available_devices():
        device = cast(Device, settings.device)
    if dtype == "auto" and settings.dtype in loading.DTYPES:
        dtype = cast(Dtype, settings.dtype)
    model = settings.model if model is None else model
    pipe = loading.load(model, device=device, dtype=dtype)
    return loading.of_kind(pipe, settings.pipeline)


def generate_again(
    pipe: Any,
    run: Run,
    arguments: Mapping[str, Any],
    progress: Progress | None,
    probe: Probe | None = None,
) -> Run:
    """Generate a saved run, with its scheduler (`saved_schedulers`), at its place in a batch."""
    settings = run.settings
    if settings.edit is not None:
        return _pair(pipe, run, arguments, progress, probe).edited
    # The source of edits of an image of the user's.
    if settings.input_image is not None:
        return _pair(pipe, run, arguments, progress, probe).source
    call = saved_call(settings, pipe, arguments)
    if settings.located is None:
        return generate_call(pipe, call, progress, probe, run.maps)
    located = run_location(
        pipe,
        run.image,
        call.prompt,
        call.seed,
        call.options,
        progress=progress,
        probe=probe,
        maps=run.maps,
    )
    return replace(
        located, settings=replace(located.settings, located=settings.located)
    )


def generate_call(
    pipe: Any,
    call: SavedCall,
    progress: Progress | None,
    probe: Probe | None = None,
    maps: HeatMaps | None = None,
) -> Run:
    """Generate the image of a call at its place in a batch of copies.

    The masks of words among its places are those of the `maps`.
    """
    number, size = call.place
    runs, _ = generate_batch(
        pipe,
        [call.prompt] * size,
        [call.seed] * size,
        call.options,
        edits=call.edits,
        guide=call.guide,
        progress=progress,
        probe=probe,
        maps=None if maps is None else [maps] * size,
    )
    return runs[number]


def _pair(
    pipe: Any,
    run: Run,
    arguments: Mapping[str, Any],
    progress: Progress | None,
    probe: Probe | None = None,
) -> EditResult:
    """Generate a source and copies of an edit; of a source alone the edits change nothing."""
    call = saved_call(run.settings, pipe, arguments)
    edit = run.settings.edit
    number, size = run.settings.batch_place or (1, 2)
    options = EditOptions(cross_replace=0.0, self_replace=0.0)
    source = call.prompt
    if edit is not None:
        options = edit
        source = edit.source
    options = replace(options, batch=size, image=run.input_image)
    edits = EditSource(pipe, source, options, call.options, guide=call.guide)
    plans = [edits.plan(call.prompt)] * (size - 1)
    return run_edits(edits, plans, call.seed, progress, probe=probe)[number - 1]


def _settings(saved: Drawing) -> Settings:
    return saved.edited.settings if isinstance(saved, EditResult) else saved.settings
