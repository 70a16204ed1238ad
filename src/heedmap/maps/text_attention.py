"""The attention of the tokens of a prompt to each other, in joint attention."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heedmap.figures import plots
from heedmap.maps.recordings import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class TextAttention:
    """The attention of the tokens of a prompt to each other: `run.text_attention`.

    Attributes:
        recording: one layer, whose positions and tokens are those of the text.
    """

    recording: Recording

    @property
    def values(self) -> np.ndarray:
        """The share of all attention of each token (row) to each token: float32 (K, K).

        The mean over layers, heads and steps. K are the positions of `recording.positions`. The
        rest of a row is attention to the image and to tokens that were not recorded.
        """
        return self.recording.arrays[0][0, 0]

    def figure(self) -> "Figure":
        """Draw the attention of the token of each row to the token of each column."""
        table = self.recording.table
        return plots.draw_matrix(
            self.values,
            [table.tokens[position].text for position in self.recording.positions],
            title=f"{table.prompt} · text to text",
            note="what the token at the left reads of the token above",
            scale="share of all attention of the token at the left",
        )

    def _repr_png_(self) -> bytes:
        return plots.encode(self.figure())
