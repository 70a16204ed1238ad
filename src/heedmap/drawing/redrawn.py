"""A run, an edit or a grid drawn again, and how it compares with what was saved."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from heedmap.errors import plural, quoted
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

Drawing = Run | Pair | Grid
"""What can be drawn again."""


@dataclass(frozen=True, eq=False)
class Repetition:
    """A run drawn again, and how it compares with the one that was saved.

    Of a run that drew nothing (`heedmap.locate`) the numbers of its maps are compared.

    Attributes:
        run: what was drawn: a run, a pair or a grid.
        same: whether every pixel of every picture is the same, or every number of the maps.
        largest: the largest difference of a channel, 0 to 255; of maps, of a number.
        differing: how many pixels differ, in all pictures, or numbers.
        pixels: how many there are; of pictures or maps of other sizes all count as differing.
        changed: what is not as the settings noted it, by its dotted name: (noted, now), None where
            it is not there. A scheduler that differs was set up as noted for the repeat.
    """

    run: Drawing
    same: bool
    largest: float
    differing: int
    pixels: int
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        what = "numbers" if _looked(self.run) else "pixels"
        told = "the same to the byte" if self.same else f"{self.differing} {what} differ"
        return f"<Repetition of {quoted(self.run)}: {told}>"

    def __str__(self) -> str:
        """Whether it is the same, in a sentence."""
        if self.same and _looked(self.run):
            return "Looked at again, its maps are the same to the byte."
        if self.same:
            return "Drawn again, it is the same to the byte."
        why = (
            ""
            if not_as_noted(self.changed)
            else "; the settings do not tell why (are the weights others?)"
        )
        if _looked(self.run):
            return (
                f"Looked at again, its maps differ: {self.differing} of "
                f"{plural(self.pixels, 'number')}, by up to {self.largest:.2g}{why}."
            )
        return (
            f"Drawn again, it differs: {self.differing} of {plural(self.pixels, 'pixel')}, by up "
            f"to {self.largest} of 255{why}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The same in plain JSON types, without the pictures."""
        return {
            "same": self.same,
            "largest": self.largest,
            "differing": self.differing,
            "pixels": self.pixels,
            "changed": {name: {"noted": a, "now": b} for name, (a, b) in self.changed.items()},
        }


def not_as_noted(changed: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """What a run was really drawn with otherwise than noted: schedulers are set up as noted."""
    return {name: both for name, both in changed.items() if not name.startswith("schedulers.")}


def compared(saved: Drawing, made: Drawing, changed: Mapping[str, tuple[Any, Any]]) -> Repetition:
    """What was drawn again beside what was saved, picture by picture.

    Args:
        saved: what was saved.
        made: what was drawn from its settings.
        changed: what is not as the settings noted it, as `Repetition` has it.
    """
    figures = (
        _maps_apart(_numbers(saved), _numbers(made))
        if _looked(saved)
        else _apart(list(_pictures(saved)), list(_pictures(made)))
    )
    same = figures[0] == figures[1] == 0
    return Repetition(made, same, *figures, dict(changed))


def _looked(drawn: Drawing) -> bool:
    """Whether nothing was drawn, but a picture looked at."""
    return isinstance(drawn, Run) and drawn.settings.located is not None


def _numbers(saved: Drawing) -> list[np.ndarray]:
    """Every number of a run's maps, of its prompt's words and of its concepts'."""
    assert isinstance(saved, Run)
    both = [maps.recording for maps in (saved.maps, saved.concepts) if maps is not None]
    refined = [one.refined for one in both if one.refined is not None]
    return [*(array for one in both for array in one.arrays), *refined]


def _maps_apart(
    before: Sequence[np.ndarray], after: Sequence[np.ndarray]
) -> tuple[float, int, int]:
    """The largest difference, how many numbers differ, and how many there are."""
    count = sum(array.size for array in before)
    if [array.shape for array in before] != [array.shape for array in after]:
        return 1.0, count, count
    apart = np.concatenate([np.abs(a - b).ravel() for a, b in zip(before, after, strict=True)])
    return float(apart.max()), int((apart > 0).sum()), count


def _pictures(saved: Drawing) -> Iterator[Image.Image]:
    """Every picture once, in an order of its own."""
    if isinstance(saved, Run):
        yield saved.image
    elif isinstance(saved, Pair):
        yield saved.source.image
        yield saved.edited.image
    else:
        yield from (run.image for run in saved.sources.values())
        yield from (cell.pair.edited.image for cell in saved.cells)


def _apart(before: Sequence[Image.Image], after: Sequence[Image.Image]) -> tuple[int, int, int]:
    """The largest difference, how many pixels differ, and how many there are."""
    largest = differing = pixels = 0
    for a, b in zip(before, after, strict=True):
        pixels += a.width * a.height
        if a.size != b.size:
            largest, differing = 255, differing + a.width * a.height
            continue
        pair = (np.asarray(image.convert("RGB"), dtype=np.int16) for image in (a, b))
        apart = np.abs(np.subtract(*pair)).max(axis=-1)
        largest, differing = max(largest, int(apart.max())), differing + int((apart > 0).sum())
    return largest, differing, pixels
