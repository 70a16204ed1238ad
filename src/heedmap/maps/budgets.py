"""The budget of attention: the share of each key of the softmax, of a word or not."""

from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from heedmap.checks import check_float, check_subset
from heedmap.figures import plots
from heedmap.maps.recordings import Recording, Selection, short_names
from heedmap.options import AXES, Axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SINK = 10.0
"""A sink receives more than this many times the mean share of a key, by default."""
Axes = Collection[Axis] | None
"""The axes that a table has rows of; None for the first that was kept."""
Row = dict[str, Any]
"""A row of a table, by the names of its columns."""


@dataclass(frozen=True, eq=False)
class Budget:
    """The shares of an image's attention, of words and all else: `run.budget`.

        run.budget(by=("layer", "step")), run.budget.sinks(k=10), run.budget.figure()

    A share is a mean probability over the image's positions, in the layers that attend to the text.
    All keys of the softmax count, so that shares sum to 1. Edits of the attention do not count: the
    shares are those of the softmax before a rule changes them.

    Attributes:
        recording: one array (S, H, 1, N + 1) a layer: the shares of N keys (the text's tokens and,
            where text and image share one softmax, the image's positions, its padding and
            reference images), and the entropy of a position's attention, with the natural
            logarithm. The texts of its tokens begin with the group of the key.
    """

    recording: Recording

    def __call__(self, by: Axes = None) -> Any:
        """Return the shares of words, special tokens, padding and image, and the entropy.

        Args:
            by: of "layer", "step" and "head", those that have rows of their own; the mean is taken
                over the others. Default: the first that was kept.

        Returns:
            The `rows` as a pandas DataFrame; without pandas as they are.

        Raises:
            SelectionError: if an axis was averaged while recording.
        """
        return _table(self.rows(by))

    def rows(self, by: Axes = None) -> list[Row]:
        """Return the shares as dictionaries.

        Behind the axes, they have the groups: "words", "start", "end", "template" (in place of
        these, where the prompt has several such tokens around it), "padding" (also the image's),
        "image" and "references"; then the "entropy".
        """
        rows: list[Row] = []
        for row, values in self._means(by):
            for (group, *_), value in zip(self._keys, values.tolist(), strict=True):
                row[group] = row.get(group, 0.0) + value
            rows.append(row)
        return rows

    def sinks(self, k: float = SINK, by: Axes = None) -> Any:
        """Return the keys that receive more than `k` times the mean share, the largest first.

        Args:
            k: 0 or more.
            by: as for the shares.

        Returns:
            The `sink_rows` as a pandas DataFrame; without pandas as they are.

        Raises:
            SelectionError: if an axis was averaged while recording.
        """
        return _table(self.sink_rows(k, by))

    def sink_rows(self, k: float = SINK, by: Axes = None) -> list[Row]:
        """Return the sinks as dictionaries.

        Behind the axes, they have the "group" of the key, its "text" (of a position its row and
        column), its number ("key"; of a token its position), its "share", and "times": the share,
        divided by the mean share of a key. Keys that a mask hides do not count.
        """
        least = check_float("k", k, least=0)
        sinks: list[Row] = []
        for row, values in self._means(by):
            times = values[:-1] * np.count_nonzero(values[:-1])
            for key in np.flatnonzero(times > least).tolist():
                group, _, text = self._keys[key]
                sink = {
                    "group": group,
                    "text": text,
                    "key": key,
                    "share": float(values[key]),
                    "times": float(times[key]),
                }
                sinks.append(row | sink)
        return sorted(sinks, key=lambda sink: -sink["times"])

    def figure(self, by: Axes = None) -> "Figure":
        """Draw a bar of the shares for each row; arguments and errors are those of the shares."""
        labels = [" ".join(map(str, row.values())) for row, _ in self._means(by)]
        rows = self.rows(by)
        axes = [axis for axis in AXES if axis in rows[0]]
        groups = [name for name in rows[0] if name not in (*axes, "entropy")]
        return plots.draw_shares(
            labels,
            {name: [row[name] for row in rows] for name in groups},
            title=self.recording.table.prompt,
            note=" by ".join(["shares of all attention", *axes]),
        )

    @property
    def _keys(self) -> list[tuple[str, str, str]]:
        """The group of each key, a space and its text."""
        return [token.text.partition(" ") for token in self.recording.table.tokens]

    def _means(self, by: Axes) -> list[tuple[Row, np.ndarray]]:
        """Return the beginning of each row, and the means (N + 1) there."""
        recording = self.recording
        recorded = [axis for axis in AXES if axis in recording.keep]
        axes = check_subset("by", recorded[:1] if by is None else by, AXES)
        for axis in axes:
            Selection(recording).check_kept(axis)
        averaged = tuple(
            n for n, axis in enumerate(("step", "head")) if axis not in axes
        )
        names = short_names({layer.name: layer.part for layer in recording.layers})
        parts: defaultdict[tuple[Any, ...], list[np.ndarray]] = defaultdict(list)
        for name, array in zip(names.values(), recording.arrays, strict=True):
            # Layers have the same weight, whatever the number of their heads.
            mean = array.mean(axis=averaged, keepdims=True, dtype=float)
            for step, head in np.ndindex(mean.shape[:2]):
                labels = {"layer": name, "step": step, "head": head}
                place = tuple(labels[axis] for axis in axes)
                parts[place].append(mean[step, head, 0])
        return [
            (dict(zip(axes, place, strict=True)), np.mean(values, axis=0))
            for place, values in parts.items()
        ]


def _table(rows: list[Row]) -> Any:
    with suppress(ImportError):
        return import_module("pandas").DataFrame(rows)
    return rows
