"""The attention of the tokens of a prompt to each other, in joint attention."""

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from heedmap.figures import plots
from heedmap.maps.recordings import Recording
from heedmap.text.words import TokenTable

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

    @property
    def tokens(self) -> TokenTable:
        """The words and tokens of the prompt, as the model read them."""
        return self.recording.table

    def figure(self) -> "Figure":
        """Draw the attention of the word of each row to the word of each column.

        The tokens of a word are grouped: the mean of those that read, the sum of those that are
        read.
        """
        table = self.tokens
        words = {token: word for word in table.read_words for token in word.tokens}
        labels: list[str] = []
        sizes: list[int] = []
        positions = self.recording.positions
        for word, group in groupby(positions, lambda token: words.get(token, token)):
            text = table.tokens[word].text if isinstance(word, int) else word.text
            labels.append(text)
            sizes.append(len([*group]))
        starts = np.cumsum([0, *sizes[:-1]])
        sums = np.add.reduceat(np.add.reduceat(self.values, starts), starts, axis=1)
        return plots.draw_matrix(
            sums / np.array(sizes)[:, None],
            labels,
            title=f"{table.prompt} · text to text",
            scale="share of all attention of the word at the left",
        )

    def _repr_png_(self) -> bytes:
        return plots.encode(self.figure())
