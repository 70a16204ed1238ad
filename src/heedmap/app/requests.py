"""What a visitor asks to have drawn, as it is put in line; plain data."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field

from heedmap.options import DrawOptions, EditOptions
from heedmap.tiny.card import EMBEDDED

PLACES: dict[str, tuple[float, float, float, float]] = {
    "the left half": (0, 0, 0.5, 1),
    "the right half": (0.5, 0, 1, 1),
    "the upper half": (0, 0, 1, 0.5),
    "the lower half": (0, 0.5, 1, 1),
}
"""Boxes (left, top, right, bottom) of a picture of width and height 1, by what they are called."""


@dataclass(frozen=True)
class Placed:
    """A word that is kept in a place: one of `PLACES`, or a box in pixels."""

    word: str
    where: str | tuple[float, ...]

    def box(self, size: tuple[int, int]) -> tuple[float, ...]:
        """The place in a picture of (width, height), in pixels."""
        if not isinstance(self.where, str):
            return self.where
        return tuple(
            float(round(side * part))
            for side, part in zip(size * 2, PLACES[self.where], strict=True)
        )


@dataclass(frozen=True)
class JobRequest:
    """What a visitor asks for, of all kinds of jobs.

    Attributes:
        model: its name.
        seed: by chance if None.
        options: how it is drawn.
        roomy: whether all axes of the maps are kept where that takes little memory
            (`Limits.maps`), whatever `options` says; of a grid never.
        visitor: on whose shelf the result goes.
    """

    model: str = EMBEDDED
    seed: int | None = None
    options: DrawOptions = field(default_factory=DrawOptions)
    roomy: bool = False
    visitor: str = ""

    @property
    def prompts(self) -> tuple[str, ...]:
        """Those of the pictures that it takes."""
        return ()


@dataclass(frozen=True)
class GenerateRequest(JobRequest):
    """A picture of a prompt, with words that are kept in a place."""

    prompt: str = ""
    placed: tuple[Placed, ...] = ()

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt."""
        return (self.prompt,)


@dataclass(frozen=True)
class EditRequest(JobRequest):
    """An edit of a prompt; `target` is None where weights are all that changes."""

    source: str = ""
    target: str | None = None
    edit: EditOptions = field(default_factory=EditOptions)

    @property
    def prompts(self) -> tuple[str, ...]:
        """Of the source, and of the edit."""
        return (self.source, self.source if self.target is None else self.target)


@dataclass(frozen=True)
class ExplainRequest(JobRequest):
    """One number of a result on the visitor's shelf, taken apart.

    Attributes:
        result: its name.
        cell: of a grid, the number of the edit that is meant, from 1.
        word: a word or a phrase.
        at: (x, y), a pixel of the picture.
        layer: by its name; the strongest where None, as head and step.
        head: from 0.
        step: from 0.
    """

    result: str = ""
    cell: int | None = None
    word: str | int = ""
    at: tuple[int, int] = (0, 0)
    layer: str | None = None
    head: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class GridRequest(JobRequest):
    """Edits of a prompt over targets, weights, windows and seeds."""

    source: str = ""
    targets: tuple[str, ...] = ()
    weights: Mapping[str, Sequence[float]] = field(default_factory=dict)
    strengths: tuple[tuple[float, float], ...] = ()
    own_strengths: tuple[tuple[float, float], ...] = ()
    count: int = 1
    edit: EditOptions = field(default_factory=EditOptions)

    @property
    def prompts(self) -> tuple[str, ...]:
        """Of the source, and of its targets."""
        return (self.source, *self.targets)

    @property
    def axes(self) -> list[Sized]:
        """What may vary."""
        several = (self.targets, self.strengths, self.own_strengths)
        return [*(one or (None,) for one in several), range(self.count), *self.weights.values()]
