"""Draw a saved run again from its settings, and say whether it is the same to the byte.

Runs, edits and grids: each picture is drawn in a batch of the size it was drawn in, and at its
place there, since the sums of another batch round otherwise; the others of the batch are copies of
it, or in a grid the cells that were beside it.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from msgspec import structs
from PIL import Image

from heedmap.drawing import editing
from heedmap.drawing.batch import Progress, part_of
from heedmap.drawing.edit_batches import draw_edits
from heedmap.drawing.edit_plans import Plan, Planner
from heedmap.drawing.locating import look_again
from heedmap.drawing.picture_source import picture_of
from heedmap.drawing.redrawing import (
    check_room,
    draw_asked,
    limit_of,
    not_as_before,
    refusals_explained,
)
from heedmap.drawing.redrawn import Drawing, Repetition, compared, not_as_noted
from heedmap.drawing.saved_options import (
    SavedCall,
    SavedEdit,
    checked_settings,
    read_edit,
    saved_call,
)
from heedmap.drawing.schedulers import set_up
from heedmap.errors import ArgumentError, ModelError, RunError, quoted
from heedmap.files.settings import Settings
from heedmap.models import pipelines
from heedmap.options import Device, Dtype, EditOptions, LoadOptions
from heedmap.recording.probing import Probe, Reached
from heedmap.results.cells import Cell
from heedmap.results.folders import load_result
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run
from heedmap.wiring.family import Pipeline
from heedmap.wiring.parts import left_early


def repeat(
    pipe: Pipeline | None,
    run: Drawing | str | Path,
    *,
    progress: Progress | None = None,
    **given: Any,
) -> Repetition:
    """Draw a saved run, edit or grid again from its settings, and compare the pictures.

        again = heedmap.repeat(pipe, "outputs/house")
        again.same, str(again), again.changed

    The scheduler is set up as it was noted, and the pipeline's own put back afterwards; all else is
    the pipeline's, and what of it is not as it was noted is in `Repetition.changed`.

    Args:
        pipe: the pipeline to draw with; None loads the model that the settings name.
        run: a run, pair or grid, or the folder of one.
        progress: called after every step with the steps done and those of all.
        given: what the settings tell apart but do not hold, by name: pictures and tensors that were
            arguments of the pipeline, and `edits` where one was a rule of your own. A picture or
            tensor must be the very one, which its SHA-256 tells; of rules, callbacks and other
            functions only the name is known, and that they are the same is for you to see to.

    Raises:
        ArgumentError: if such an argument is missing, or is not the one that the run had.
        ModelError: if the model that the settings name cannot be loaded.
        RunError: if the folder is none of heedmap's, or its settings are not to be drawn.
    """
    saved = load_result(run) if isinstance(run, str | Path) else run
    if not isinstance(saved, Drawing):
        raise ArgumentError(
            f"the run is {quoted(run)}: expected a run, a pair, a grid, or the folder of one"
        )
    pipe = pipe if pipe is not None else load_for(saved)
    about = checked_settings(_settings(saved))
    changed = not_as_before(pipe, about)
    with refusals_explained(), set_up(pipe, about):
        made = _again(pipe, saved, given, progress)
    return compared(saved, made, changed)


def look(
    pipe: Any, run: Run, given: dict[str, Any], probe: Probe, progress: Progress | None
) -> dict[str, tuple[Any, Any]]:
    """Draw a run again up to where a probe has seen what it looks for; the rest is not drawn.

    Returns:
        What was not as the settings noted it while it was drawn, as `Repetition.changed`; nothing
        is found in the probe if the run ended before.

    Raises:
        HeedmapError: as of `repeat`.
    """
    about = checked_settings(run.settings)
    changed = not_as_before(pipe, about)
    with suppress(Reached), refusals_explained(), set_up(pipe, about), left_early(pipe):
        picture, given = picture_of(run, given)
        draw_again = _run if about.edit is None else _edit
        draw_again(pipe, run, given, picture, progress, probe)
    return not_as_noted(changed)


def load_for(
    saved: Drawing,
    model: str | Path | None = None,
    *,
    device: Device = LoadOptions.device,
    dtype: Dtype = LoadOptions.dtype,
) -> Any:
    """Load the pipeline that a run was drawn with, or another model in its place.

    Args:
        saved: the run.
        model: as in `load`; the one that the settings name if None.
        device: as in `load`; "auto" is that of the run, where this machine has it.
        dtype: as in `load`; "auto" is that of the run.

    Raises:
        ModelError: if there is no such model.
        RunError: if the settings name none.
    """
    about = _settings(saved)
    name = about.model if model is None else str(model)
    if not isinstance(name, str) or not name:
        raise RunError(f"the settings name the model {quoted(name)}: pass a pipeline (--model)")
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto" and there.get(about.device, about.device == "cpu"):
        device = cast(Device, about.device)
    if dtype == "auto" and about.dtype in pipelines.DTYPES:
        dtype = cast(Dtype, about.dtype)
    try:
        pipe = pipelines.load(name, device=device, dtype=dtype)
    except ModelError as error:
        other = "" if model is not None else "; pass a pipeline (--model) to draw with another"
        raise ModelError(f"{error}{other}") from error
    with refusals_explained():
        return pipelines.of_kind(pipe, about.pipeline)


# --- drawing again ----------------------------------------------------------------------------


def _again(pipe: Any, saved: Drawing, given: dict[str, Any], progress: Progress | None) -> Drawing:
    first = saved.cells[0].pair if isinstance(saved, Grid) else saved
    picture, given = picture_of(first.source if isinstance(first, Pair) else first, given)
    if isinstance(saved, Grid):
        return _grid(pipe, saved, given, picture, progress)
    if isinstance(saved, Pair):
        made = _edit(pipe, saved.edited, given, picture, progress)
        places = [
            saved_call(run.settings, pipe, given).place for run in (saved.source, saved.edited)
        ]
        made = replace(made, about=structs.replace(made.about, asked=saved.about.asked))
        if places[0][1] != places[1][1]:  # the source is that of another batch
            made = replace(made, source=_run(pipe, saved.source, given, picture, progress))
        return made
    if saved.settings.edit is not None:
        return _edit(pipe, saved, given, picture, progress).edited
    return _run(pipe, saved, given, picture, progress)


def _run(
    pipe: Any,
    run: Run,
    given: dict[str, Any],
    picture: Image.Image | None,
    progress: Progress | None,
    probe: Probe | None = None,
) -> Run:
    if picture is not None:
        return _source(pipe, run, given, picture, progress, probe)
    asked = saved_call(run.settings, pipe, given)
    if run.settings.located is not None:
        options = replace(asked.options, limit=limit_of(run))
        return look_again(pipe, run, replace(asked, options=options), progress, probe)
    return draw_asked(pipe, run, asked, progress, probe)


def _edit(
    pipe: Any,
    run: Run,
    given: dict[str, Any],
    picture: Image.Image | None,
    progress: Progress | None,
    probe: Probe | None = None,
) -> Pair:
    """The pair of an edited run, drawn with copies of it beside it."""
    asked, edit = saved_call(run.settings, pipe, given), read_edit(run.settings)
    number, size = asked.place
    if number == 0:
        raise RunError("the settings tell of an edit at the place of its source: make it again")
    check_room(pipe, run, size)
    planner = _planner(pipe, asked, edit, size, picture)
    plan = planner.plan(asked.prompt).during(edit.cross, edit.own)
    options = replace(asked.options, limit=limit_of(run) * size)
    plans = [plan] * (size - 1)
    drawn = draw_edits(planner.base, plans, asked.seed, options, progress, probe=probe)
    return drawn.pairs[number - 1]


def _source(
    pipe: Any,
    run: Run,
    given: dict[str, Any],
    picture: Image.Image,
    progress: Progress | None,
    probe: Probe | None,
) -> Run:
    """A source that stands for a picture: among edits of it that change nothing."""
    asked = saved_call(run.settings, pipe, given)
    size = asked.place[1]
    check_room(pipe, run, size)
    edit = SavedEdit(asked.prompt, (0.0, 0.0), (0.0, 0.0), EditOptions())
    planner = _planner(pipe, asked, edit, size, picture)
    plans = [planner.plan(asked.prompt)] * max(1, size - 1)
    options = replace(asked.options, limit=limit_of(run) * size)
    return (
        draw_edits(planner.base, plans, asked.seed, options, progress, probe=probe).pairs[0].source
    )


def _grid(
    pipe: Any,
    grid: Grid,
    given: dict[str, Any],
    picture: Image.Image | None,
    progress: Progress | None,
) -> Grid:
    together = list(_batches(pipe, grid, given))
    first = grid.cells[0].pair.edited
    asked, edit = saved_call(first.settings, pipe, given), read_edit(first.settings)
    largest = max(len(cells) + 1 for cells, _ in together)
    check_room(pipe, first, largest)
    options = replace(asked.options, limit=limit_of(first) * largest)
    planner = _planner(pipe, asked, edit, largest, picture)
    cells: list[Cell] = []
    sources: dict[int, Run] = {}
    for done, (some, edits) in enumerate(together):
        plans: list[Plan] = []
        for cell, own in zip(some, edits, strict=True):
            if replace(own, cross=edit.cross, own=edit.own) != edit:
                raise RunError("the cells of this grid are of different edits: make the grid again")
            written = cell.pair.edited.settings.prompt
            plans.append(planner.plan(written, named=cell.weights).during(own.cross, own.own))
        seed = some[0].seed
        at_once = replace(planner.base.options, batch=len(some) + 1)
        base = replace(planner.base, options=at_once)
        drawn = draw_edits(base, plans, seed, options, part_of(progress, done, len(together)))
        sources.setdefault(seed, drawn.pairs[0].source)
        for cell, pair in zip(some, drawn.pairs, strict=True):
            cells.append(replace(cell, pair=replace(pair, source=sources[seed])))
    return Grid(tuple(cells), grid.about)


def _batches(
    pipe: Any, grid: Grid, given: dict[str, Any]
) -> Iterator[tuple[list[Cell], list[SavedEdit]]]:
    """The cells that were drawn together, in their order."""
    cells: list[Cell] = []
    edits: list[SavedEdit] = []
    for cell in grid.cells:
        about = cell.pair.edited.settings
        noted = about.batch_place is not None
        place = saved_call(about, pipe, given).place[0]
        if cells and (cell.seed != cells[0].seed or (noted and place == 1)):
            yield cells, edits
            cells, edits = [], []
        cells.append(cell)
        edits.append(read_edit(about))
    yield cells, edits


def _planner(
    pipe: Any, asked: SavedCall, edit: SavedEdit, batch: int, picture: Image.Image | None
) -> Planner:
    options = replace(edit.options, batch=batch, image=picture)
    arguments = asked.options.arguments
    base = editing.edit_base(pipe, edit.source, options, arguments)
    base.check()
    return Planner(base)


def _settings(saved: Drawing) -> Settings:
    """The settings that tell how a thing was drawn."""
    if isinstance(saved, Grid):
        return saved.cells[0].pair.edited.settings
    return saved.edited.settings if isinstance(saved, Pair) else saved.settings
