"""Generate a saved run, edit or grid again, and compare it with the saved one.

An image of a batch is generated at the same place of a batch of the same size, since the size of a
batch changes how a processor rounds. The other images of the batch are copies of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from msgspec import structs

from heedmap.backends import loading
from heedmap.backends.arguments import STEP_LISTS, THEIR_NAMES, check_names
from heedmap.backends.base import Pipeline, left_early, parameters
from heedmap.errors import ArgumentError, HeedmapError, ModelError, RunError, plural, quoted, reason
from heedmap.io.settings import EditNoted, EditTerms, Ruled, Settings
from heedmap.io.values import MAX_WHOLE
from heedmap.options import Device, Dtype, EditOptions, GenerateOptions, LoadOptions
from heedmap.pipelines import editing, generation, input_images
from heedmap.pipelines.arguments import argument, argument_note, description, is_restorable
from heedmap.pipelines.edit_runs import EditSource, run_edits
from heedmap.pipelines.generation import Progress, sub_progress
from heedmap.pipelines.input_images import saved_image
from heedmap.pipelines.settings import effective_value, saved_schedulers, settings_diff
from heedmap.recording.edits import Edit, edit_from, note_of
from heedmap.recording.probing import Probe, Reached
from heedmap.results.grids import Grid, load_result
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

Drawing = Run | Pair | Grid
"""A result that can be generated again."""


@dataclass(frozen=True, eq=False)
class Repetition:
    """A result that was generated again, compared with the saved one.

    Of a located run (`heedmap.locate`) the numbers of its maps are compared, else pixels.

    Attributes:
        run: the new result.
        same: whether all pixels are the same, or all numbers of the maps.
        largest: the largest difference of a channel, 0 to 255, or of a number.
        differing: the number of pixels that differ, in all images, or of numbers.
        pixels: the number of all pixels or numbers; of another size or shape all of them differ.
        changed: (saved, now) by the dotted name of each setting that differs; None if it is
            missing. A scheduler that differs was replaced by the saved one for the repetition.
    """

    run: Drawing
    same: bool
    largest: float
    differing: int
    pixels: int
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        what = "numbers" if _is_located(self.run) else "pixels"
        same = "identical" if self.same else f"{self.differing} {what} differ"
        return f"<Repetition of {quoted(self.run)}: {same}>"

    def __str__(self) -> str:
        """Say in a sentence whether the result is the same."""
        if self.same:
            return "The repetition is identical."
        located = _is_located(self.run)
        count = plural(self.pixels, "number" if located else "pixel")
        by = f"{self.largest:.2g}" if located else f"{self.largest} of 255"
        why = "" if unmatched(self.changed) else "; no saved setting explains it"
        return f"The repetition differs: {self.differing} of {count}, by up to {by}{why}."

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON types, without the images."""
        return {
            "same": self.same,
            "largest": self.largest,
            "differing": self.differing,
            "pixels": self.pixels,
            "changed": {name: {"noted": a, "now": b} for name, (a, b) in self.changed.items()},
        }


def unmatched(changed: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differed during the repetition: all but those of schedulers."""
    return {name: both for name, both in changed.items() if not name.startswith("schedulers.")}


def compared(saved: Drawing, made: Drawing, changed: Mapping[str, tuple[Any, Any]]) -> Repetition:
    """Compare a result with the saved one.

    Args:
        saved: the saved result.
        made: the result that was generated from its settings.
        changed: the settings that differ, as in `Repetition`.
    """
    largest: float = 0
    differing = count = 0
    for before, after in zip(_arrays(saved), _arrays(made), strict=True):
        size = before.size if _is_located(saved) else before.size // 3
        count += size
        if before.shape != after.shape:
            largest, differing = (1.0 if _is_located(saved) else 255), differing + size
            continue
        apart = np.abs(before - after)
        if not _is_located(saved):
            apart = apart.max(axis=-1)
        largest = max(largest, apart.max().item())
        differing += int((apart > 0).sum())
    return Repetition(made, not differing, largest, differing, count, dict(changed))


def _is_located(result: Drawing) -> bool:
    return isinstance(result, Run) and result.settings.located is not None


def _arrays(result: Drawing) -> Iterator[np.ndarray]:
    """Yield what is compared: of a located run the maps, else the pixels of each image once."""
    if isinstance(result, Run) and result.settings.located is not None:
        for maps in (result.maps, result.concepts):
            if maps is not None:
                yield from maps.recording.arrays
                if maps.recording.refined is not None:
                    yield maps.recording.refined
        return
    if isinstance(result, Run):
        runs = [result]
    elif isinstance(result, Pair):
        runs = [result.source, result.edited]
    else:
        runs = [*result.sources.values(), *(cell.pair.edited for cell in result.cells)]
    for run in runs:
        yield np.asarray(run.image.convert("RGB"), dtype=np.int16)


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
    edits = _saved_edits(settings, given)
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
        arguments=_arguments(pipe, settings, given),
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


def _saved_edits(settings: Settings, given: dict[str, Any]) -> tuple[Edit, ...]:
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


def _arguments(pipe: Any, settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
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
    check_names(pipe, notes, ())
    return {name: given[name] if name in given else argument(note) for name, note in notes.items()}


_LIMIT = MAX_WHOLE  # bytes of maps: the saved run was within its own limit


def repeat(
    pipe: Pipeline | None,
    run: Drawing | str | Path,
    *,
    progress: Progress | None = None,
    **given: Any,
) -> Repetition:
    """Generate a saved run, edit or grid again from its settings, and compare the images.

        again = heedmap.repeat(pipe, "outputs/house")
        again.same, str(again), again.changed

    The pipeline gets the saved scheduler, and its own back afterwards. Other settings of the
    pipeline that differ from the saved ones are in `Repetition.changed`.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run, an edit or a grid, or the folder of one.
        progress: called after every step with the number of steps done and of all steps.
        given: arguments that a file cannot hold, by name: images, tensors and functions that were
            passed to the pipeline, and `edits` if one was a rule of your own. An image or tensor is
            compared with the SHA-256 of the original, a function with its name.

    Raises:
        ArgumentError: if such an argument is missing or differs from the original.
        ModelError: if the model named in the settings cannot be loaded.
        RunError: if the folder is not a result, or the pipeline fails with the saved settings.
    """
    saved = load_result(run) if isinstance(run, str | Path) else run
    if not isinstance(saved, Drawing):
        raise ArgumentError(
            f"the run is {quoted(run)}: expected a run, an edit, a grid, or the folder of one"
        )
    pipe = load_for(saved) if pipe is None else pipe
    settings = _settings(saved)
    changed = settings_diff(settings, pipe)
    with pipeline_errors(), saved_schedulers(pipe, settings):
        made = _generated_again(pipe, saved, given, progress)
    return compared(saved, made, changed)


def generate_calls(
    pipe: Any, run: Run, calls: Sequence[SavedCall], progress: Progress | None
) -> tuple[list[Run], dict[str, tuple[Any, Any]]]:
    """Generate variants of a saved run, each at the run's place in a batch of the same size.

    Returns:
        The variants in order, and the settings that differ, as in `Repetition.changed`.

    Raises:
        HeedmapError: as in `repeat`.
    """
    changed = settings_diff(run.settings, pipe)
    with pipeline_errors(), saved_schedulers(pipe, run.settings):
        runs = [
            _generate(pipe, call, sub_progress(progress, done, len(calls)))
            for done, call in enumerate(calls)
        ]
    return runs, changed


def run_probe(
    pipe: Any, run: Run, given: Mapping[str, Any], probe: Probe, progress: Progress | None
) -> dict[str, tuple[Any, Any]]:
    """Generate a saved run again until its probe has found what it looks for.

    If the run ends before that, the probe has found nothing.

    Returns:
        The settings that differ, as in `Repetition.changed`.

    Raises:
        HeedmapError: as in `repeat`.
    """
    changed = settings_diff(run.settings, pipe)
    with (
        suppress(Reached),
        pipeline_errors(),
        saved_schedulers(pipe, run.settings),
        left_early(pipe),
    ):
        if run.settings.edit is None:
            _run(pipe, run, given, progress, probe)
        else:
            _edits(pipe, run, given, progress, probe)
    return unmatched(changed)


def load_for(
    saved: Drawing,
    model: str | Path | None = None,
    *,
    device: Device = LoadOptions.device,
    dtype: Dtype = LoadOptions.dtype,
) -> Any:
    """Load the pipeline of a saved result, or another model for it.

    Args:
        saved: the result.
        model: as in `load`; None for the model named in the settings.
        device: as in `load`; "auto" is that of the run, if this machine has it.
        dtype: as in `load`; "auto" is that of the run.

    Raises:
        ModelError: if there is no such model.
    """
    settings = _settings(saved)
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto" and available.get(settings.device, settings.device == "cpu"):
        device = cast(Device, settings.device)
    if dtype == "auto" and settings.dtype in loading.DTYPES:
        dtype = cast(Dtype, settings.dtype)
    try:
        pipe = loading.load(settings.model if model is None else model, device=device, dtype=dtype)
    except ModelError as error:
        hint = "; pass a pipeline, or the model (--model)" if model is None else ""
        raise ModelError(f"{error}{hint}") from error
    with pipeline_errors():
        return loading.of_kind(pipe, settings.pipeline)


@contextmanager
def pipeline_errors() -> Iterator[None]:
    """Raise a RunError for an error of the pipeline."""
    try:
        yield
    except (HeedmapError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise RunError(
            f"the pipeline failed with the settings of this run ({reason(error)}): use the model "
            "and the versions that they name"
        ) from error


# --- one result -------------------------------------------------------------------------------


def _generated_again(
    pipe: Any, saved: Drawing, given: Mapping[str, Any], progress: Progress | None
) -> Drawing:
    if isinstance(saved, Grid):
        return _grid(pipe, saved, given, progress)
    if isinstance(saved, Run):
        if saved.settings.edit is None:
            return _run(pipe, saved, given, progress)
        return _edit(pipe, saved, given, progress).edited
    pair = _edit(pipe, saved.edited, given, progress)
    places = [run.settings.batch_place or (0, 1) for run in (saved.source, saved.edited)]
    if places[0][1] != places[1][1]:  # the source is that of the first batch of several
        pair = replace(pair, source=_run(pipe, saved.source, given, progress))
    return pair


def _run(
    pipe: Any,
    run: Run,
    given: Mapping[str, Any],
    progress: Progress | None,
    probe: Probe | None = None,
) -> Run:
    settings = run.settings
    if settings.given is not None:  # the source of edits of a picture of the user's
        return _edits(pipe, run, given, progress, probe)[0].source
    call = saved_call(settings, pipe, given)
    if settings.located is None:
        return _generate(pipe, call, progress, probe)
    made = input_images.locate(
        *(pipe, run.image, call.prompt),
        seed=call.seed,
        steps=call.options.steps,
        size=run.image.size,
        keep=call.options.keep,
        tokens=call.options.tokens,
        concepts=call.options.concepts,
        limit=_LIMIT,
        progress=progress,
        probe=probe,
        **call.options.arguments,
    )
    return replace(made, settings=structs.replace(made.settings, located=settings.located))


def _generate(
    pipe: Any, call: SavedCall, progress: Progress | None, probe: Probe | None = None
) -> Run:
    """Generate one image of a batch, with copies of it around it."""
    number, size = call.place
    prompts, seeds = [call.prompt] * size, [call.seed] * size
    options = replace(call.options, limit=_LIMIT)
    runs, _ = generation.generate_batch(
        *(pipe, prompts, seeds, options), edits=call.edits, progress=progress, probe=probe
    )
    return runs[number]


def _edit(pipe: Any, run: Run, given: Mapping[str, Any], progress: Progress | None) -> Pair:
    number, _ = run.settings.batch_place or (1, 2)
    return _edits(pipe, run, given, progress)[number - 1]


def _edits(
    pipe: Any,
    run: Run,
    given: Mapping[str, Any],
    progress: Progress | None,
    probe: Probe | None = None,
) -> list[Pair]:
    """Generate a source and copies of an edit; of a source alone the edits change nothing."""
    picture, given = saved_image(run, given)
    call, edit = saved_call(run.settings, pipe, given), run.settings.edit
    size = (run.settings.batch_place or (1, 2))[1]
    options = EditOptions(cross=0.0, self_attention=0.0) if edit is None else edit_options(edit)
    options = replace(options, batch=size, image=picture)
    source = call.prompt if edit is None else edit.source
    edits = EditSource(pipe, source, options, replace(call.options, limit=_LIMIT))
    plans = [edits.plan(call.prompt)] * (size - 1)
    return run_edits(edits, plans, call.seed, progress, probe=probe)


def _grid(pipe: Any, saved: Grid, given: Mapping[str, Any], progress: Progress | None) -> Grid:
    report, first = saved.about, saved.cells[0].pair
    picture, given = saved_image(first.source, given)
    call = saved_call(first.edited.settings, pipe, given).options
    made = editing.grid(
        pipe,
        report.source,
        report.targets,
        cross=list(report.cross),
        self_attention=list(report.self_attention),
        weights=report.weights,
        seeds=report.seeds,
        kind=report.kind,
        words=report.words,
        batch=report.batch,
        image=picture,
        steps=call.steps,
        guidance=call.guidance,
        size=call.size,
        negative=call.negative,
        keep=call.keep,
        limit=_LIMIT,
        progress=progress,
        **{name: getattr(report, name) for name in TERMS},
        **call.arguments,
    )
    return Grid(made.cells, report)


def _settings(saved: Drawing) -> Settings:
    """Return the settings of a run, or of the first edit of a result."""
    if isinstance(saved, Grid):
        saved = saved.cells[0].pair
    return saved.edited.settings if isinstance(saved, Pair) else saved.settings
