"""What of a saved run is taken apart: which run, and what is meant in it; no model is needed."""

from collections.abc import Sequence
from typing import Any

from heedmap.errors import ArgumentError, quoted
from heedmap.maps.aims import Aim, aimed
from heedmap.maps.recordings import Recording
from heedmap.options import BranchName
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run
from heedmap.text.words import TokenTable


def explained_run(saved: object, called: object = None) -> Run:
    """The run that is meant by a run or an edit, whose edited picture it is.

    Args:
        saved: what was given, or read from a folder.
        called: that folder.

    Raises:
        ArgumentError: if it is a grid, or none of them.
    """
    if isinstance(saved, Pair):
        saved = saved.edited
    if not isinstance(saved, Run):
        raise ArgumentError(
            f"the run to explain is {quoted(called or saved)}: expected a run or an edit, or its "
            "folder; of a grid name the folder of a cell, such as cells/001"
        )
    return saved


def aim_at(
    saved: Run, word: str | int, at: Sequence[int], *, branch: BranchName, **asked: Any
) -> Aim | None:
    """What is meant, as far as a run tells without a model; errors are those of `explain`.

    None for a negative prompt of which the run kept nothing: a model has to read it first.
    """
    if branch == "negative":
        maps = saved.negative_maps
        if maps is None:
            return None
        return aim_in(saved, maps.tokens, maps.recording, word, at, **asked)
    return aim_in(saved, saved.maps.tokens, saved.maps.recording, word, at, **asked)


def aim_in(
    saved: Run,
    table: TokenTable,
    recording: Recording | None,
    word: str | int,
    at: Sequence[int],
    **asked: Any,
) -> Aim:
    """What is meant by words of a table; arguments and errors are those of `aims.aimed`."""
    size, steps = saved.image.size, steps_of(saved)
    return aimed(table, recording, word, at, size=size, steps=steps, **asked)


def steps_of(saved: Run) -> int:
    """How many steps a run has."""
    return len(saved.maps.recording.timesteps)
