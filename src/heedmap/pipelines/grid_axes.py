"""What a grid of edits varies: the axes that a user gave, as lists of values that are sound."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heedmap.checks import one_zero
from heedmap.errors import ArgumentError, quoted
from heedmap.pipelines.batch import check_seed, drawn_seed
from heedmap.pipelines.edit_plans import read_window
from heedmap.results.grids import check_axes


@dataclass(frozen=True)
class Axes:
    """What a grid varies besides its targets; each list has one value or more."""

    weights: Mapping[str, Sequence[float]]
    own: Sequence[tuple[float, float]]  # none where nobody said: see `filled`
    cross: Sequence[tuple[float, float]]
    seeds: Sequence[int]

    @classmethod
    def read(cls, weights: Any, own: Any, cross: Any, seeds: Any) -> "Axes":
        """The axes as a user gave them; ArgumentError for what is none."""
        strips = {
            word: [one_zero(one) for one in _several(several, f"the weights of {quoted(word)}")]
            for word, several in _mapping(weights).items()
        }
        crosses, owns = _windows(cross, "cross"), _windows(own, "self_attention")
        drawn_from = [drawn_seed()] if seeds is None else _several(seeds, "seeds")
        return cls(strips, owns, crosses, [check_seed(seed) for seed in drawn_from])

    def filled(self, cross: tuple[float, float], own: tuple[float, float]) -> "Axes":
        """The same with these windows where nobody said which."""
        return replace(self, own=self.own or [own], cross=self.cross or [cross])

    def named(self) -> dict[str, Sequence[Any]]:
        """By what a user calls them."""
        strips = {f"the weight of {quoted(w)}": strip for w, strip in self.weights.items()}
        return {**strips, "cross": self.cross, "self_attention": self.own, "seeds": self.seeds}

    def about(self) -> dict[str, Any]:
        """The same as `GridReport` has it."""
        return {
            "weights": {word: tuple(map(float, strip)) for word, strip in self.weights.items()},
            "cross": tuple(self.cross),
            "self_attention": tuple(self.own),
            "seeds": tuple(self.seeds),
        }

    def each_weight(self) -> Iterator[dict[str, float]]:
        """By word its weight, in every combination; the last word's runs fastest."""
        for values in itertools.product(*self.weights.values()):
            yield dict(zip(self.weights, values, strict=True))

    def check(self, targets: Sequence[str]) -> None:
        """Raise an ArgumentError if nothing varies, something is there twice, or there is too much.

        Args:
            targets: those of the grid.
        """
        axes = {"target": targets, **{k: v for k, v in self.named().items() if v}}
        check_axes(axes.values())
        for name, values in axes.items():
            twice = next((v for n, v in enumerate(values) if v in values[:n]), None)
            if twice is not None:
                raise ArgumentError(f"{name} has {quoted(twice)} twice: expected each value once")


def _mapping(weights: object) -> Mapping[str, Any]:
    if weights is not None and not isinstance(weights, Mapping):
        raise ArgumentError(
            f"weights is {quoted(weights)}: expected weights by word, as in {{'red': [0, 1, 2]}}"
        )
    return weights or {}


def _windows(windows: Any, name: str) -> list[tuple[float, float]]:
    """A window alone is a number or a tuple; none is given where nobody says."""
    if windows is None:
        return []
    several = [windows] if isinstance(windows, tuple) else _several(windows, name)
    return [read_window(window, name) for window in several]


def _several(values: Any, name: str) -> list[Any]:
    """One value or several as a list."""
    if isinstance(values, np.ndarray | range | list | tuple):
        found = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if not isinstance(found, list) or not found:
            raise ArgumentError(f"{name} is empty: expected a value, or a list of them")
        return found
    return [values]
