"""An explanation: how one attention probability of a run is computed, from QKᵀ to the output.

`explain.json` has each array as an object with its `shape` and its numbers in `float32`,
little-endian, the last axis first, as base64.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from heedmap.errors import quoted
from heedmap.figures.overlays import png
from heedmap.io import reading
from heedmap.io.schemas import FORMAT, Note, TokenKind, encode, to_json
from heedmap.mathematics.by_hand import Attention, LayerInputs, attention
from heedmap.options import Axis, BranchName
from heedmap.page import pages
from heedmap.results import Saved


class ExplainedToken(Note, frozen=True):
    """One token of the text, which is one column of P. Special tokens have a label."""

    position: int
    text: str
    kind: TokenKind


class About(Note, frozen=True, kw_only=True):
    """The probability that is explained, and its run.

    Attributes:
        tokens: the positions of the word's tokens on the K axis.
        spans: (start, end) of each place of the word in the characters of `prompt`.
        at: (x, y), the pixel, from the upper left, from 0.
        size: (width, height) of the image.
        layer: the dotted path of the layer; `short` is its name in figures.
        grid: (h, w) of the layer.
        place: (row, column) of the position of the grid that holds the pixel.
        passes: the model's pass within the step, from 0, and the number of passes.
        chosen: the axes that the user did not choose: the middle step, and the layer and head with
            the highest `selection_score` there.
        kept: the largest difference from the saved maps; None if these lack the layer or step.
        changed: the settings of the pipeline that differ from those of the run.
    """

    word: str
    tokens: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    prompt: str
    branch: BranchName
    at: tuple[int, int]
    size: tuple[int, int]
    layer: str
    short: str
    grid: tuple[int, int]
    place: tuple[int, int]
    head: int
    step: int
    steps: int
    passes: tuple[int, int]
    timestep: float
    chosen: tuple[Axis, ...]
    kept: float | None
    changed: tuple[str, ...]
    seed: int
    model: str
    pipeline: str
    scheduler: str
    dtype: str


class ExplanationFile(Note, frozen=True, kw_only=True):
    """The content of `explain.json`; a loaded explanation computes `shown` again."""

    format: int = FORMAT
    about: About
    tokens: tuple[ExplainedToken, ...]
    given: LayerInputs
    shown: Mapping[str, Any] = {}


@dataclass(frozen=True, eq=False)
class Explanation(Saved):
    """One attention probability of a run, and all that the layer computes at its position.

        found = hm.explain(None, "outputs/house", "house", at=(40, 72))
        print(found.table())
        found.attention.scores, found.brought, found.save("outputs/why")

    Its folder has `index.html` (the page), `explain.json` and `image.png`; a loaded explanation
    computes its numbers again.

    Attributes:
        about: the word, pixel, layer, head, step and branch, and the run.
        tokens: the K tokens of the text.
        given: the inputs of the layer at the position, and its output in the model.
        image: the image of the run.
    """

    about: About
    tokens: tuple[ExplainedToken, ...]
    given: LayerInputs
    image: Image.Image

    @cached_property
    def attention(self) -> Attention:
        """The head's attention before edits; its arrays have no axis Q."""
        inputs, h = self.given, self.about.head
        mask = None if inputs.mask is None else inputs.mask[h]
        return attention(inputs.query[h], inputs.key[h], inputs.value[h], mask, scale=inputs.scale)

    @cached_property
    def heads(self) -> Attention:
        """The attention of all heads before edits, (H, 1, …): the position is the one query."""
        inputs = self.given
        mask = None if inputs.mask is None else inputs.mask[:, None]
        query = inputs.query[:, None]
        return attention(query, inputs.key, inputs.value, mask, scale=inputs.scale)

    @cached_property
    def acted(self) -> np.ndarray:
        """P of each head as it acted, (H, K): after the edits, if one changed it."""
        edited = self.given.edited
        return self.heads.probabilities[:, 0] if edited is None else edited

    @cached_property
    def parts(self) -> np.ndarray:
        """P·V W_O, the contribution of each token of each head to the output, (H, K, C)."""
        weight, value = self.given.weight, self.given.value
        by_head = weight.reshape(len(weight), *value[:, 0].shape)  # (C, H, d_v)
        return np.einsum("hkd,chd->hkc", self.acted[..., None] * value, by_head, optimize=True)

    @property
    def brought(self) -> np.ndarray:
        """‖P·V W_O‖, the length of the contribution of each token in the head, (K)."""
        return np.linalg.norm(self.parts[self.about.head], axis=-1)

    @property
    def joined(self) -> np.ndarray:
        """The concatenated heads' P V, with the attention to an image prompt, (H·d_v)."""
        heads = np.einsum("hk,hkd->hd", self.acted, self.given.value).reshape(-1)
        return heads if self.given.added is None else heads + self.given.added

    @property
    def together(self) -> np.ndarray:
        """The layer's output, computed: (joined W_O + b + residual) / factor, (C)."""
        output = self.given.weight @ self.joined
        for term in (self.given.bias, self.given.residual):
            output = output if term is None else output + term
        return output / self.given.factor

    @property
    def difference(self) -> float:
        """The largest difference between the computed output and that of the model."""
        return float(np.abs(self.together - self.given.output).max())

    @cached_property
    def shown(self) -> dict[str, Any]:
        """All numbers of the page, as lists over the K tokens of the head unless noted.

        `scores` (QKᵀ), `scaled`, `masked` (None for -inf), `probabilities`, `unscaled` (P without
        the scale), `acted`, `brought`, `all_brought` (of all heads together), `output` (P V, d_v),
        `heads` (of each head: P of the word and of the start token, and the length of the
        contribution of all tokens and of the word), `joined` (H·d_v), `together` (C), and
        `difference`.
        """
        one, head, word = self.attention, self.about.head, list(self.about.tokens)
        start = [token.position for token in self.tokens if token.kind == "start"]
        parts, acted = self.parts, self.acted
        return {
            "scores": one.scores.tolist(),
            "scaled": one.scaled.tolist(),
            "masked": [x if math.isfinite(x) else None for x in one.masked.tolist()],
            "probabilities": one.probabilities.tolist(),
            "unscaled": one.unscaled_probabilities.tolist(),
            "acted": acted[head].tolist(),
            "brought": self.brought.tolist(),
            "all_brought": np.linalg.norm(parts.sum(axis=0), axis=-1).tolist(),
            "output": (acted[head] @ self.given.value[head]).tolist(),
            "heads": [
                {
                    "word": float(p[word].sum()),
                    "start": float(p[start].sum()) if start else None,
                    "length": float(np.linalg.norm(part.sum(axis=0))),
                    "word_length": float(np.linalg.norm(part[word].sum(axis=0))),
                }
                for p, part in zip(acted, parts, strict=True)
            ],
            "joined": self.joined.tolist(),
            "together": self.together.tolist(),
            "difference": self.difference,
        }

    def summary(self) -> dict[str, Any]:
        """Return `about`, and the P and the contribution of the word, as plain JSON types."""
        one = self.shown["heads"][self.about.head]
        return {
            **to_json(self.about),
            "probability": one["word"],
            "brought": one["word_length"],
            "output": one["length"],
            "difference": self.difference,
        }

    def __repr__(self) -> str:
        about, p = self.about, float(self.acted[self.about.head, list(self.about.tokens)].sum())
        return (
            f"<Explanation of {quoted(about.word)} at {about.at}: {about.short}, "
            f"head {about.head}, step {about.step}: P {p:.6g}>"
        )

    def table(self, names: Sequence[str] | None = None) -> str:
        """Return the head's row of P before edits as a table, as `hm.attention(…).table` does.

        Args:
            names: names of the tokens. Default: those of the tokenizer.
        """
        return self.attention.table([one.text for one in self.tokens] if names is None else names)

    def page(self) -> str:
        """Return the page: the text of an HTML file that needs nothing else."""
        return pages.explanation_page(to_json(self._file()), self.image)

    def _repr_html_(self) -> str:
        return pages.frame(self.page())

    def _file(self) -> ExplanationFile:
        return ExplanationFile(
            about=self.about, tokens=self.tokens, given=self.given, shown=self.shown
        )

    def write_files(self, folder: Path) -> None:
        """Write the files of the result to a folder."""
        (folder / "index.html").write_text(self.page(), encoding="utf-8")
        (folder / "image.png").write_bytes(png(self.image))
        (folder / "explain.json").write_bytes(encode(self._file(), "explain.json"))

    @classmethod
    def read_files(cls, folder: Path) -> "Explanation":
        """Read the files that `write_files` wrote to a folder."""
        file = reading.read_json(folder / "explain.json", ExplanationFile)
        image = reading.read_image(folder / "image.png", size=file.about.size)
        return cls(file.about, file.tokens, file.given, image)
