"""Which number is taken apart: a word at a place of the picture, in a layer, a head, at a step.

What is asked for is checked here, and what is not is chosen: of what the run kept, the layer, step
and head in which the word draws most at the place, but no more than half (`worth`). What it did not
keep is chosen where the run is drawn again: a layer or head by the same rule, of those at the
middle step. No torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from heedmap import checks
from heedmap.errors import ArgumentError, SelectionError, plural, quoted
from heedmap.maps.recordings import (
    MOST_NEAR,
    Recording,
    name_fits,
    nearest_layers,
    short_name,
    short_names,
)
from heedmap.options import Axis
from heedmap.text.words import TokenTable

Chosen = Literal["asked", "kept", "middle", "drawn"]
"""By whom a layer, step or head was: the user; what the run kept; the rule that takes the middle
step; what was found when the run was drawn again."""
HALF = 0.5
"""Of a place's attention, which a word may draw at most where nobody says which number is meant."""


@dataclass(frozen=True)
class Aim:
    """What is taken apart.

    Attributes:
        label: the word, as it was asked for.
        tokens: its positions on the K axis.
        at: (x, y), a pixel of the picture from its upper left, from 0.
        size: (width, height) of the picture.
        layer: its dotted path; None where it is found when the run is drawn again.
        head: from 0; None likewise.
        step: from 0.
        chosen: of "layer", "step" and "head", by whom.
    """

    label: str
    tokens: tuple[int, ...]
    at: tuple[int, int]
    size: tuple[int, int]
    layer: str | None
    head: int | None
    step: int
    chosen: Mapping[Axis, Chosen] = field(default_factory=dict[Axis, Chosen])

    def place(self, grid: tuple[int, int]) -> tuple[int, int]:
        """(row, column) of the place of a layer's grid (h, w) that holds the pixel."""
        return place_of(self.at, self.size, grid)


def place_of(at: tuple[int, int], size: tuple[int, int], grid: tuple[int, int]) -> tuple[int, int]:
    """(row, column) of the place of a grid (h, w) that holds a pixel (x, y) of (width, height)."""
    (x, y), (width, height), (h, w) = at, size, grid
    return y * h // height, x * w // width


def aimed(
    table: TokenTable,
    recording: Recording | None,
    word: str | int,
    at: Sequence[int],
    *,
    size: tuple[int, int],
    steps: int,
    layer: str | None = None,
    head: int | None = None,
    step: int | None = None,
) -> Aim:
    """What is to be taken apart, as far as a saved run tells.

    Args:
        table: the words and tokens of the prompt.
        recording: what the run kept of it; None where it kept nothing of this branch.
        word: a word or phrase, or the number of a word.
        at: (x, y), a pixel from the upper left, from 0.
        size: (width, height) of the picture.
        steps: of the run.
        layer: a layer by its name, its short one ("up 1.0"), or a pattern that fits no other.
        head: from 0; negative ones count from the end.
        step: likewise.

    Raises:
        ArgumentError: if the place is outside of the picture.
        SelectionError: if the run has no such layer, head or step.
        UnknownWordError: if the prompt has no such word.
        TruncatedWordError: if the model did not read it.
    """
    if isinstance(word, str):
        label, tokens = word.strip(), table.find(word)
    else:
        label, tokens = table.at(word).text, table.tokens_at(word)
    pixel = _pixel(at, size)
    wanted = None if step is None else number_of("step", step, steps, "the run")
    head = None if head is None else checks.whole("head", head)
    kept = recording.keep if recording is not None else frozenset[str]()
    if layer is None and head is not None and head < 0:
        raise SelectionError(
            f"head is {quoted(head)}, counted from the end, and layers have different numbers "
            "of heads: name a layer, too"
        )
    if layer is not None and recording is not None and "layer" in kept:
        layer = find_layer(layer, [one.name for one in recording.layers])
        if head is not None:
            (heads,) = (one.heads for one in recording.layers if one.name == layer)
            head = number_of("head", head, heads, short_name(layer))
    by: dict[Axis, Chosen] = {
        "layer": "drawn" if layer is None else "asked",
        "step": "middle" if step is None else "asked",
        "head": "drawn" if head is None else "asked",
    }
    found = _teaching(recording, tokens, (pixel, size), layer, head, wanted)
    if layer is None and found[0] is not None:
        layer, by["layer"] = found[0], "kept"
    if wanted is None and found[1] is not None:
        wanted, by["step"] = found[1], "kept"
    if head is None and found[2] is not None:
        head, by["head"] = found[2], "kept"
    wanted = steps // 2 if wanted is None else wanted
    return Aim(label, tokens, pixel, size, layer, head, wanted, by)


def worth(p: Any) -> Any:
    """By what a number is chosen, the largest first, where nobody says which one is meant.

    The word draws most there without drawing more than `HALF`; where it draws more everywhere, it
    draws least. A softmax in which one token has nearly all shows nothing of the others.

    What it draws is meant in magnitude, as in `HeatMaps.share`: of a negative weight, too.

    Args:
        p: what a word draws, numbers of numpy or torch.
    """
    drawn = abs(p)
    return drawn * (1 - 2 * (drawn > HALF))


def find_layer(wanted: object, names: Sequence[str]) -> str:
    """The one layer that is meant by a name, a short one, or a pattern.

    Raises:
        SelectionError: if none is, or several are; it lists the nearest.
    """
    given = checks.text("layer", wanted, "up 1.0")
    if given in names:
        return given
    shorts = dict(zip(short_names(names), names, strict=True))
    if given in shorts:
        return shorts[given]
    fitting = [name for name in names if name_fits(name, given)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(short_names(fitting)[:MOST_NEAR])
        more = ", …" if len(fitting) > MOST_NEAR else ""
        raise SelectionError(
            f"layer is {quoted(given)}, which fits {len(fitting)} layers ({some}{more}): name "
            "one of them"
        )
    some = ", ".join(nearest_layers(given, names))
    raise SelectionError(
        f"layer is {quoted(given)}: expected the name of one layer; the nearest are {some}"
    )


def number_of(what: str, given: object, count: int, where: str) -> int:
    """The number of a step or head, of so many; negative ones count from the end.

    Raises:
        SelectionError: if there is no such number.
    """
    number = checks.whole(what, given)
    if not -count <= number < count:
        nearest = 0 if number < 0 else count - 1
        named = "pass_" if what == "pass" else what  # a word of Python's own cannot be an argument
        raise SelectionError(
            f"{named} is {quoted(number)}, and {where} has {plural(count, what)}: the nearest "
            f"is {nearest}"
        )
    return number % count


def _pixel(at: object, size: tuple[int, int]) -> tuple[int, int]:
    given = checks.in_order(at)
    if given is None or len(given) != 2:
        raise ArgumentError(f"at is {quoted(at)}: expected a pixel (x, y), such as (12, 40)")
    x, y = (checks.whole("at", one) for one in given)
    width, height = size
    if not (0 <= x < width and 0 <= y < height):
        raise ArgumentError(
            f"the place {quoted(x)},{quoted(y)} is outside of the picture: expected x from 0 to "
            f"{width - 1} and y from 0 to {height - 1}, from its upper left"
        )
    return x, y


def _teaching(
    recording: Recording | None,
    tokens: Sequence[int],
    place: tuple[tuple[int, int], tuple[int, int]],
    layer: str | None,
    head: int | None,
    step: int | None,
) -> tuple[str | None, int | None, int | None]:
    """Layer, step and head by `worth`, the first of equal ones; None for what was not kept."""
    if recording is None or "layer" not in recording.keep:
        return None, None, None
    columns = [recording.columns[token] for token in tokens if token in recording.columns]
    best, found = -np.inf, (None, None, None)
    for one, array in zip(recording.layers, recording.arrays, strict=True):
        if layer not in (None, one.name) or (head is not None and head >= one.heads):
            continue
        row, column = place_of(*place, one.grid)
        drawn = worth(array[:, :, row * one.grid[1] + column, columns].sum(axis=-1))  # (S, H)
        for s, h in np.ndindex(*drawn.shape):
            mine = (step in (None, s) or "step" not in recording.keep) and (
                head in (None, h) or "head" not in recording.keep
            )
            if mine and drawn[s, h] > best:
                best = drawn[s, h]
                found = (
                    one.name,
                    s if "step" in recording.keep else None,
                    h if "head" in recording.keep else None,
                )
    return found
