"""A saved result that was generated again, and how it compares with the saved one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heedmap.errors import plural, quoted
from heedmap.results.grids import Grid
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
