"""The means of a selection of a recording, brought to the grid of heat maps.

Axes, by the letters used all through heedmap: S step · H head · Q latent position (Q = h·w,
row-major) · K text token · h, w a layer's own grid.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image

from heedmap.errors import NothingRecordedError, SelectionError
from heedmap.maps.recordings import Recording, cells
from heedmap.maps.selections import Selection
from heedmap.text.words import Word


@dataclass(frozen=True, eq=False)
class Averages:
    """What tokens draw in a part of what was kept."""

    recording: Recording
    selection: Selection

    def of(self, positions: Iterable[int]) -> np.ndarray:
        """The mean over the selection of the summed probabilities of these tokens: (h, w).

        Raises:
            NothingRecordedError: if the recording is empty.
            SelectionError: if one of them was not recorded.
        """
        recording = self.recording
        if not recording.arrays:
            raise NothingRecordedError("nothing was recorded: run the pipeline inside of the trace")
        at = recording.columns
        positions = list(positions)
        missing = [p for p in positions if p not in at]
        if missing:
            raise SelectionError(f"tokens {missing} were not recorded: record with tokens='all'")
        columns = [at[p] for p in positions]
        w, h = cells(recording.latent)
        total = np.zeros((h, w), dtype=np.float32)
        for grid, sums in self._reduced.items():
            total += _resize(sums[:, columns].sum(axis=-1).reshape(grid), (w, h))
        return total / np.float32(len(self.selection.layers_of(recording)))

    def magnitude(self, words: Iterable[Word]) -> np.ndarray:
        """How much words draw, each by itself and whatever its sign, added up: (h, w)."""
        w, h = cells(self.recording.latent)
        total = np.zeros((h, w), dtype=np.float32)
        for word in words:
            total += np.abs(self.of(word.tokens))
        return total

    @cached_property
    def shared(self) -> tuple[float, float]:
        """The lowest and the highest value among the maps of all words."""
        maps = [self.of(word.tokens) for word in self.recording.table.read_words]
        low = min((float(m.min()) for m in maps), default=0.0)
        return low, max((float(m.max()) for m in maps), default=1.0)

    @cached_property
    def _reduced(self) -> dict[tuple[int, int], np.ndarray]:
        """By grid, the sum of its layers' means over steps and heads: (Q, K).

        To resize is linear: layers of one grid are added up first, and resized once.
        """
        sums: dict[tuple[int, int], np.ndarray] = {}
        for i in self.selection.layers_of(self.recording):
            part, grid = self.recording.arrays[i], self.recording.layers[i].grid
            if self.selection.steps is not None:
                part = part[list(self.selection.steps)]
            if self.selection.heads is not None:
                part = part[:, list(self.selection.heads)]
            mean = part.mean(axis=(0, 1), dtype=np.float32)
            sums[grid] = sums[grid] + mean if grid in sums else mean
        return sums


def _resize(grid: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    # Pillow's bilinear filter widens when it shrinks, so that no cell of a finer grid is skipped.
    picture = Image.fromarray(np.ascontiguousarray(grid, dtype=np.float32))
    return np.asarray(picture.resize(size, Image.Resampling.BILINEAR))
