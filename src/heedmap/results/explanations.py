"""One number of a run, taken apart: what the model had there, and every step to what it gave."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from PIL import Image

from heedmap.errors import ArgumentError, quoted
from heedmap.figures.overlays import png
from heedmap.io import reading, schemas
from heedmap.io.explanations import (
    MAX_EXPLANATION,
    About,
    ExplanationFile,
    Had,
    HeadShown,
    Shown,
    TokenTold,
    as_array,
    as_packed,
)
from heedmap.io.values import to_json
from heedmap.io.writing import whole_folder
from heedmap.maps.aims import Aim, aimed
from heedmap.maps.recordings import Recording
from heedmap.mathematics.by_hand import Attention, attention
from heedmap.options import BranchName
from heedmap.page import boards, pages
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run
from heedmap.text.words import TokenTable


def explained_run(saved: object, called: object = None) -> Run:
    """The run that is meant by a run or an edit, whose edited picture it is.

    Args:
        saved: what was given, or read from a folder.
        called: that folder.

    Raises:
        ArgumentError: if it is a grid, or none of them.
    """
    if isinstance(saved, Pair):
        saved = saved.edited
    if not isinstance(saved, Run):
        raise ArgumentError(
            f"the run to explain is {quoted(called or saved)}: expected a run or an edit, or its "
            "folder; of a grid name the folder of a cell, such as cells/001"
        )
    return saved


def aim_at(
    saved: Run, word: str | int, at: Sequence[int], *, branch: BranchName, **asked: Any
) -> Aim | None:
    """What is meant, as far as a run tells without a model; errors are those of `explain`.

    None for a negative prompt of which the run kept nothing: a model has to read it first.
    """
    if branch == "negative":
        maps = saved.negative_maps
        if maps is None:
            return None
        return aim_in(saved, maps.tokens, maps.recording, word, at, **asked)
    return aim_in(saved, saved.maps.tokens, saved.maps.recording, word, at, **asked)


def aim_in(
    saved: Run,
    table: TokenTable,
    recording: Recording | None,
    word: str | int,
    at: Sequence[int],
    **asked: Any,
) -> Aim:
    """What is meant by words of a table; arguments and errors are those of `aims.aimed`."""
    size, steps = saved.image.size, steps_of(saved)
    return aimed(table, recording, word, at, size=size, steps=steps, **asked)


def steps_of(saved: Run) -> int:
    """How many steps a run has."""
    return len(saved.maps.recording.timesteps)


@dataclass(frozen=True, eq=False)
class Explanation:
    """One place, layer, head and step of a run: how its numbers come about.

        found = hm.explain(None, "outputs/house", "house", at=(40, 72))
        print(found.table())
        found.attention.scores, found.brought, found.save("outputs/why")

    Attributes:
        about: which number it is: word, place, layer, head, step, branch.
        tokens: the K tokens of the text.
        given: what the model had, packed; the arrays below are made of it.
        image: the picture of the run.
    """

    about: About
    tokens: tuple[TokenTold, ...]
    given: Had
    image: Image.Image

    # --- what the model had ---

    @cached_property
    def query(self) -> np.ndarray:
        """Q of each head at the place, (H, d)."""
        return as_array(self.given.query)

    @cached_property
    def key(self) -> np.ndarray:
        """K of each head, (H, K, d)."""
        return as_array(self.given.key)

    @cached_property
    def value(self) -> np.ndarray:
        """V of each head, (H, K, d_v)."""
        return as_array(self.given.value)

    @cached_property
    def mask(self) -> np.ndarray | None:
        """What is added to the scaled scores, (H, K); None without a mask."""
        return None if self.given.mask is None else as_array(self.given.mask)

    @cached_property
    def weight(self) -> np.ndarray:
        """W_O transposed, as torch keeps it, (C, H·d_v): a head has d_v of its columns."""
        return as_array(self.given.weight)

    @cached_property
    def layer_output(self) -> np.ndarray:
        """What the layer really put out at the place, (C)."""
        return as_array(self.given.output)

    # --- what is made of it ---

    @cached_property
    def attention(self) -> Attention:
        """The head taken apart, without what an edit did: its arrays have no axis Q."""
        h = self.about.head
        mask = None if self.mask is None else self.mask[h]
        return attention(self.query[h], self.key[h], self.value[h], mask, scale=self.given.scale)

    @cached_property
    def heads(self) -> Attention:
        """All heads: (H, 1, …), the place being the one query."""
        mask = None if self.mask is None else self.mask[:, None]
        return attention(self.query[:, None], self.key, self.value, mask, scale=self.given.scale)

    @cached_property
    def acted(self) -> np.ndarray:
        """P of each head as it acted, (H, K): as an edit made it, or as the softmax did."""
        if self.given.edited is not None:
            return as_array(self.given.edited)
        return self.heads.probabilities[:, 0]

    @cached_property
    def parts(self) -> np.ndarray:
        """P·V W_O, what each token of each head brought to the layer's output, (H, K, C)."""
        by_head = self.weight.reshape(len(self.weight), *self.value[:, 0].shape)  # (C, H, d_v)
        brought = self.acted[..., None] * self.value
        return np.einsum("hkd,chd->hkc", brought, by_head, optimize=True)

    @property
    def brought(self) -> np.ndarray:
        """‖P·V W_O‖ of each token, in the head, (K)."""
        return np.linalg.norm(self.parts[self.about.head], axis=-1)

    @property
    def joined(self) -> np.ndarray:
        """The heads' P V side by side, and what an image prompt added, (H·d_v)."""
        made = np.einsum("hk,hkd->hd", self.acted, self.value).reshape(-1)
        return made if self.given.added is None else made + as_array(self.given.added)

    @property
    def together(self) -> np.ndarray:
        """The layer's output as it is put together: joined W_O + b, and the residual, (C)."""
        made = self.weight @ self.joined
        for part in (self.given.bias, self.given.residual):
            made = made if part is None else made + as_array(part)
        return made / self.given.factor

    @property
    def difference(self) -> float:
        """How far, at most, that is from what the layer really put out."""
        return float(np.abs(self.together - self.layer_output).max())

    @cached_property
    def shown(self) -> Shown:
        """All numbers of the page, as `explain.json` has them."""
        one, h, mine = self.attention, self.about.head, list(self.about.tokens)
        starts = [token.position for token in self.tokens if token.kind == "start"]
        parts, acted = self.parts, self.acted
        return Shown(
            scores=one.scores.tolist(),
            scaled=one.scaled.tolist(),
            masked=[x if math.isfinite(x) else None for x in one.masked.tolist()],
            probabilities=one.probabilities.tolist(),
            unscaled=one.unscaled_probabilities.tolist(),
            acted=acted[h].tolist(),
            brought=self.brought.tolist(),
            all_brought=np.linalg.norm(parts.sum(axis=0), axis=-1).tolist(),
            output=(acted[h] @ self.value[h]).tolist(),
            heads=[
                HeadShown(
                    word=float(p[mine].sum()),
                    start=float(p[starts].sum()) if starts else None,
                    length=float(np.linalg.norm(part.sum(axis=0))),
                    word_length=float(np.linalg.norm(part[mine].sum(axis=0))),
                )
                for p, part in zip(acted, parts, strict=True)
            ],
            joined=self.joined.tolist(),
            together=self.together.tolist(),
            difference=self.difference,
        )

    def with_added(self, joined: np.ndarray) -> "Explanation":
        """The same with what an image prompt added: what went into W_O (H·d_v), less the heads."""
        return replace(
            self, given=structs.replace(self.given, added=as_packed(joined - self.joined))
        )

    def with_kept(self, apart: float | None) -> "Explanation":
        """The same with how far the run's own record is from it."""
        return replace(self, about=structs.replace(self.about, kept=apart))

    def summary(self) -> dict[str, Any]:
        """Which number it is, and what it is, as plain JSON types."""
        one = self.shown.heads[self.about.head]
        figures = {"probability": one.word, "brought": one.word_length, "output": one.length}
        return {**to_json(self.about), **figures, "difference": self.difference}

    # --- shown ---

    def __repr__(self) -> str:
        about, p = self.about, float(self.acted[self.about.head, list(self.about.tokens)].sum())
        return (
            f"<Explanation of {quoted(about.word)} at {about.at}: {about.short}, "
            f"head {about.head}, step {about.step}: P {p:.6g}>"
        )

    def table(self, names: Sequence[str] | None = None) -> str:
        """The head's row of P as a lesson (`hm.attention(…).table`); an edit is not in it.

        Args:
            names: what the tokens are called, if not as the tokenizer has them.
        """
        return self.attention.table([one.text for one in self.tokens] if names is None else names)

    def page(self) -> str:
        """The page: one HTML file that needs nothing else."""
        return boards.board(self.content(_FILES), self.image)

    def _repr_html_(self) -> str:
        return pages.frame(self.page())

    # --- on disk ---

    def content(self, files: Sequence[str]) -> ExplanationFile:
        """What `explain.json` holds."""
        return ExplanationFile(
            files=tuple(files),
            about=self.about,
            tokens=self.tokens,
            given=self.given,
            shown=self.shown,
        )

    def save(self, folder: str | Path) -> Path:
        """Write the folder, whole or not at all: `index.html`, `explain.json` and `image.png`.

        Args:
            folder: new or empty.

        Returns:
            The folder.

        Raises:
            ArgumentError: if `folder` is not a path.
            RunError: if something is there already, or nothing can be written there.
        """
        with whole_folder(folder) as partial:
            (partial / "index.html").write_text(self.page(), encoding="utf-8")
            (partial / "image.png").write_bytes(png(self.image))
            schemas.write_file(partial / "explain.json", self.content(_FILES))
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Explanation":
        """Read a saved explanation; no model and no torch is loaded, and all is computed anew.

        Raises:
            RunError: if the folder is none, or something in it is broken.
        """
        folder = reading.path_of(folder)
        held = reading.read_json(folder / "explain.json", ExplanationFile, most=MAX_EXPLANATION)
        image = reading.read_picture(folder / "image.png", "RGB", size=held.about.size)
        found = cls(held.about, held.tokens, held.given, image)
        try:
            with np.errstate(over="raise", invalid="raise"):
                found.page()
        except (ValueError, IndexError, ArithmeticError) as error:
            raise reading.torn(folder, "the numbers of explain.json", "explanation") from error
        return found


_FILES = ("explain.json", "image.png", "index.html")
