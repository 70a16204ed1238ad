"""A run drawn as its settings tell, or with something else asked for: in a batch as large.

Its place there is the same, and the others are copies of it, since the sums of another batch round
otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from traceback import walk_tb
from typing import Any

import torch

from heedmap.drawing import generation, settings
from heedmap.drawing.batch import Progress, part_of
from heedmap.drawing.saved_options import SavedCall, checked_settings, saved_call
from heedmap.drawing.schedulers import set_up
from heedmap.errors import HeedmapError, RunError, reason, sizes
from heedmap.files.notes import to_json
from heedmap.files.settings import Settings
from heedmap.models import batches
from heedmap.options import DrawOptions
from heedmap.recording.probing import Probe
from heedmap.results.runs import Run
from heedmap.wiring.arguments import SECOND_TEXTS
from heedmap.wiring.parts import device_of
from heedmap.wiring.schedules import SCHEDULERS


def draw_varied(
    pipe: Any,
    run: Run,
    vary: Callable[[SavedCall], Sequence[SavedCall]],
    given: Mapping[str, Any],
    progress: Progress | None,
) -> tuple[list[Run], dict[str, tuple[Any, Any]]]:
    """Draw variations of a run, each as it was drawn: in a batch as large, at its place there.

    Args:
        pipe: a pipeline.
        run: no edit.
        vary: makes of what was asked for the run what is asked for each picture.
        given: as of `repeat`.
        progress: as of `repeat`, of all of them.

    Returns:
        The variations, in their order, and what is not as the settings noted it, as
        `Repetition.changed`.

    Raises:
        HeedmapError: as of `repeat`, and whatever `vary` raises.
    """
    about = checked_settings(run.settings)
    changed, _ = not_as_before(pipe, about)
    with refusals_explained(), set_up(pipe, about):
        calls = vary(saved_call(about, pipe, given))
        runs = [
            draw_asked(pipe, run, asked, part_of(progress, done, len(calls)))
            for done, asked in enumerate(calls)
        ]
    return runs, changed


def draw_asked(
    pipe: Any, run: Run, asked: SavedCall, progress: Progress | None, probe: Probe | None = None
) -> Run:
    """What is asked for, among copies of it, where the run was drawn so."""
    number, size = asked.place
    check_room(pipe, run, size)
    # Texts of which each picture of the batch had its own; its copies have the same.
    noted = asked.options.arguments
    own: dict[str, Any] = {
        name: [texts[number]] * size
        for name in SECOND_TEXTS
        if isinstance(texts := noted.get(name), list) and len(texts) == size
    }
    options = replace(asked.options, limit=limit_of(run) * size, arguments={**noted, **own})
    runs = generation.generate_batch(
        pipe,
        [asked.prompt] * size,
        seeds=[asked.seed] * size,
        edits=asked.edits,
        progress=progress,
        probe=probe,
        **options.named(),
    )
    return runs[number]


def not_as_before(pipe: Any, about: Settings) -> tuple[dict[str, tuple[Any, Any]], list[str]]:
    """What is not as settings noted it, (noted, now) by its dotted name; what they do not tell."""
    now, held = to_json(settings.describe(pipe)), to_json(about)
    noted = {name: held[name] for name in now if name in held}
    changed = settings.differences(noted, {name: now[name] for name in noted})
    if "schedulers" in noted:
        changed.pop("scheduler", None)  # its class is told there
    for name in SCHEDULERS:
        start = f"schedulers.{name}."
        if f"{start}class" in changed:  # another class has other settings
            changed = {k: v for k, v in changed.items() if not k.startswith(f"{start}config")}
    return changed, [name for name in now if name not in held]


def limit_of(run: Run) -> int:
    """Bytes that the maps may take: what they took, with room, since they were allowed to."""
    return max(DrawOptions.limit, 2 * _held(run))


def _held(run: Run) -> int:
    every = (run.maps, run.negative_maps, run.concepts)
    return sum(maps.recording.nbytes for maps in every if maps is not None)


def check_room(pipe: Any, run: Run, size: int) -> None:
    """Raise a RunError if a batch of such pictures, which a file asks for, fills the memory."""
    if size == 1:
        return  # no more than `generate` takes
    width, height = run.image.size
    each = batches.image_bytes(pipe, (width, height)) + _held(run)
    room = batches.free_bytes(device_of(pipe))
    if size * each > room:
        takes, free = sizes(size * each, room)
        raise RunError(
            f"this run was drawn in a batch of {size} pictures of {width}×{height}, which take "
            f"about {takes}, and {free} are free: repeat it where there is more memory, or draw it "
            "alone, with generate or edit, the same but for rounding"
        )


@contextmanager
def refusals_explained() -> Iterator[None]:
    """Turn what a pipeline raises for settings from a file into a RunError; leave bugs alone."""
    try:
        yield
    except (HeedmapError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if "out of memory" in str(error).lower() or _is_bug(error):
            raise
        raise RunError(
            "the pipeline failed when this run was drawn again with its settings "
            f"({reason(error)}): draw with the model and the versions that they name"
        ) from error


def _is_bug(error: Exception) -> bool:
    """Whether heedmap's own code raised an error, and not a pipeline that it called."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    packages = [name.partition(".")[0] for name in modules]
    return [name for name in packages if name not in ("torch", "numpy", "PIL")][-1] == "heedmap"
