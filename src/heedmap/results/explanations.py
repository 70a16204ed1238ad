"""An explanation: how one attention probability of a run is computed, from QKᵀ to the output.

`explain.json` has each array as an object with its `shape` and its numbers in `float32`,
little-endian, the last axis first, as base64.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from heedmap.errors import quoted
from heedmap.io import reading
from heedmap.io.schemas import FORMAT, Format, Note, encode, to_json
from heedmap.maps.recordings import Layer
from heedmap.mathematics.by_hand import Attention, LayerInputs, attention
from heedmap.options import Axis
from heedmap.page import pages
from heedmap.results import Saved
from heedmap.text.words import Token


class ExplanationReport(Note, frozen=True):
    """The probability that is explained, and its run.

    Attributes:
        tokens: the positions of the word's tokens on the K axis.
        at: (x, y), the pixel, from the upper left, from 0; `size` is (width, height) of the image.
        layer: the layer's dotted path, its number of heads and its grid (h, w).
        short: its name in figures.
        place: (row, column) of the position of the grid that holds the pixel.
        passes: the model's pass within the step, 0, and the number of passes.
        automatic_axes: the axes that the user left open: the middle step, and the layer and head
            with the highest `selection_score` there.
        maps_difference: the largest difference from the saved maps; None if these lack the layer or
            step.
        settings_diff: the names of the settings that differ from those of the run.
    """

    word: str
    tokens: tuple[int, ...]
    prompt: str
    at: tuple[int, int]
    size: tuple[int, int]
    layer: Layer
    short: str
    place: tuple[int, int]
    head: int
    step: int
    steps: int
    passes: tuple[int, int]
    timestep: float
    automatic_axes: tuple[Axis, ...]
    maps_difference: float | None
    settings_diff: tuple[str, ...]
    seed: int
    model: str
    dtype: str


class ExplanationFile(Note, frozen=True):
    """The content of `explain.json`; a loaded explanation computes `numbers` again."""

    report: ExplanationReport
    tokens: tuple[Token, ...]
    inputs: LayerInputs
    numbers: Mapping[str, Any] = {}
    format: Format = FORMAT


@dataclass(frozen=True, eq=False)
class Explanation(Saved):
    """One attention probability of a run, and all that the layer computes at its position.

        found = hm.explain(None, "outputs/house", "house", at=(40, 72))
        print(found.table())
        found.attention.scores, found.numbers["contributions"], found.save("outputs/why")

    Its folder has `index.html` (the page), `explain.json` and `image.png`; a loaded explanation
    computes its numbers again.

    Attributes:
        report: the word, pixel, layer, head and step, and the run.
        tokens: the K tokens of the text; the last stands for the image where both share one
            softmax.
        inputs: the inputs of the layer at the position, and its output in the model.
        image: the image of the run.
    """

    report: ExplanationReport
    tokens: tuple[Token, ...]
    inputs: LayerInputs
    image: Image.Image

    @cached_property
    def attention(self) -> Attention:
        """The head's attention before edits; its arrays have no axis Q."""
        return self._attention(self.report.head)

    def _attention(self, head: int) -> Attention:
        inputs = self.inputs
        return attention(
            inputs.query[head],
            inputs.key[head],
            inputs.value[head],
            None if inputs.mask is None else inputs.mask[head],
            scale=inputs.scale,
        )

    @cached_property
    def probabilities(self) -> np.ndarray:
        """P of each head, (H, K): after the edits, if one changed it."""
        if self.inputs.edited is not None:
            return self.inputs.edited
        heads = range(len(self.inputs.query))
        return np.stack([self._attention(head).probabilities for head in heads])

    @cached_property
    def contributions(self) -> np.ndarray:
        """P·V W_O, the contribution of each token of each head to the output, (H, K, C)."""
        weight = self.inputs.weight
        value = self.inputs.value
        by_head = weight.reshape(len(weight), *value[:, 0].shape)  # (C, H, d_v)
        values = self.probabilities[..., None] * value
        return np.einsum("hkd,chd->hkc", values, by_head, optimize=True)

    @property
    def heads_output(self) -> np.ndarray:
        """P V of the heads side by side, with the attention to an image prompt, (H·d_v)."""
        heads = np.einsum("hk,hkd->hd", self.probabilities, self.inputs.value)
        output = heads.reshape(-1)
        if self.inputs.added is not None:
            output = output + self.inputs.added
        return output

    @property
    def output(self) -> np.ndarray:
        """The layer's output, computed: (heads' outputs W_O + b + residual) / factor, (C)."""
        output = self.inputs.weight @ self.heads_output
        for term in (self.inputs.bias, self.inputs.residual):
            if term is not None:
                output = output + term
        return output / self.inputs.factor

    @property
    def difference(self) -> float:
        """The largest difference between the computed output and that of the model."""
        return float(np.abs(self.output - self.inputs.output).max())

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """All numbers of the page as lists.

        Over the K tokens, of the head: `scores` (QKᵀ), `softmax` and `unscaled_softmax` (P before
        edits, with and without the scale), `probabilities` (P after edits), and the length of each
        contribution in `contributions`; of all heads together in `heads_contributions`. Over the H
        heads: `word_probabilities`, and the length of the contribution of the word and of all
        tokens in `word_contributions` and `tokens_contributions`. `heads_output` (H·d_v), `output`
        (C) and `difference`.
        """
        attention = self.attention
        p = self.probabilities
        parts = self.contributions
        head = self.report.head
        word = list(self.report.tokens)
        norm = np.linalg.norm
        arrays = {
            "scores": attention.scores,
            "softmax": attention.probabilities,
            "unscaled_softmax": attention.unscaled_probabilities,
            "probabilities": p[head],
            "contributions": norm(parts[head], axis=-1),
            "heads_contributions": norm(parts.sum(axis=0), axis=-1),
            "word_probabilities": p[:, word].sum(axis=-1),
            "word_contributions": norm(parts[:, word].sum(axis=1), axis=-1),
            "tokens_contributions": norm(parts.sum(axis=1), axis=-1),
            "heads_output": self.heads_output,
            "output": self.output,
        }
        numbers = {name: array.tolist() for name, array in arrays.items()}
        return {**numbers, "difference": self.difference}

    def __repr__(self) -> str:
        return f"<Explanation of {quoted(self.report.word)} at {self.report.at}>"

    def table(self) -> str:
        """Return the head's row of P before edits as a table, as `hm.attention(…).table` does."""
        return self.attention.table([token.text for token in self.tokens])

    def page(self) -> str:
        """Return the page: one HTML file that needs nothing else."""
        return pages.explanation_page(to_json(self._file()), self.image)

    def _repr_html_(self) -> str:
        return pages.frame(self.page())

    def _file(self) -> ExplanationFile:
        return ExplanationFile(
            self.report,
            self.tokens,
            self.inputs,
            self.numbers,
        )

    def parts(self, overlays: bool) -> dict[str, Any]:
        """Return the content of each file by its path in the folder."""
        parts: dict[str, Any] = {
            "image.png": self.image,
            "explain.json": encode(self._file(), "explain.json"),
        }
        if overlays:
            parts["index.html"] = self.page().encode()
        return parts

    @classmethod
    def read_files(cls, folder: Path) -> "Explanation":
        """Read the files of a folder that `save` wrote."""
        file = reading.read_json(folder / "explain.json", ExplanationFile)
        image = reading.read_image(folder / "image.png", size=file.report.size)
        return cls(
            file.report,
            file.tokens,
            file.inputs,
            image,
        )
