"""An ablation: a run generated again without one of its words, compared with the word's maps."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
from msgspec import Meta
from PIL import Image

from heedmap import checks
from heedmap.errors import ArgumentError, HeedmapError, RunError, quoted, signed
from heedmap.figures import overlays, plots
from heedmap.figures.overlays import png
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.io import reading
from heedmap.io.reading import FORMAT
from heedmap.io.schemas import write_file
from heedmap.io.values import Files, Note, Text, to_json
from heedmap.io.writing import files_in, whole_folder
from heedmap.maps.heatmaps import HeatMap
from heedmap.mathematics import maps as agreement
from heedmap.results.runs import Run, read_run
from heedmap.text.weights import leave_out, parse_weights
from heedmap.text.words import TokenTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Way = Literal["columns", "unread"]
"""Without the word's columns of P, or with the prompt read without the word."""
WAYS: tuple[Way, ...] = get_args(Way)
_TITLES: Mapping[Way, str] = {"columns": "nothing attends to {}", "unread": "{} is not read"}
MAX_ABLATION = 2**20
"""Bytes of `ablate.json`."""


class Agreement(Note, frozen=True, kw_only=False):
    """How far a map and the changed region agree, both on the grid of the map.

    Attributes:
        rank: Spearman's rank correlation, -1 to 1; None if one of them is constant.
        auc: the area under the ROC curve of the map for the changed region, 0 to 1, 0.5 by chance;
            None if nothing changed. The region is that of `mathematics.maps.changed_region`.
    """

    rank: float | None
    auc: float | None

    def __str__(self) -> str:
        figures = (("rank", self.rank), ("AUC", self.auc))
        found = [f"{name} {signed(one, '.2f')}" for name, one in figures if one is not None]
        return ", ".join(found) or "nothing to compare"


class Change(Note, frozen=True, kw_only=True):
    """The change of the image in one way, and how far the word's maps agree with it.

    Attributes:
        most: the largest difference of a pixel, 0 to 1.
        mean: the mean difference of the image.
        heat: the agreement with the word's map.
        refined: with its refined map; None if the run has none.
        mask: with the soft mask of its phrase.
    """

    most: float
    mean: float
    heat: Agreement
    refined: Agreement | None
    mask: Agreement

    def __str__(self) -> str:
        if self.heat.auc is None:
            return "nothing" if self.most == 0 else "the same everywhere"
        even, agree = "the heat is the same everywhere", f"heat and change agree: {self.heat}"
        return f"up to {self.most:.0%} of full range; {even if self.heat.rank is None else agree}"


class Trust(Note, frozen=True, kw_only=True):
    """How far attention and cause agree, for one word of one image.

    Attributes:
        columns: the change without the word's columns of P.
        unread: the change with the prompt read without the word.
        between: the rank correlation of the two, on the grid of the map; None if one is constant.
    """

    columns: Change
    unread: Change
    between: float | None

    def ways(self) -> dict[Way, Change]:
        """Return both changes by name."""
        return {"columns": self.columns, "unread": self.unread}


class AblationFile(Note, frozen=True, kw_only=True):
    """The content of `ablate.json`; a loaded ablation computes `trust` again."""

    format: int = FORMAT
    files: Files
    word: Text
    tokens: Annotated[tuple[int, ...], Meta(min_length=1)]
    trust: Trust


@dataclass(frozen=True, eq=False)
class Ablation:
    """A run, and the run without one of its words in two ways, from the same noise and settings.

        found = hm.ablate(pipe, run, "house")
        found.difference("columns"), found.trust.columns.heat.rank, found.sheet()

    Neither way isolates the cause: without its columns, nothing attends to the word any more, but
    later tokens have read it; with the prompt read without it, the other tokens change, too, and
    the whole image may move.

    Attributes:
        word: a word or phrase of the prompt, at all its places.
        tokens: the positions of its tokens on the K axis.
        run: the run with the word.
        columns: the probabilities of the word's tokens are 0 in every layer and step, and rows do
            not sum to 1 again (`Reweight(word, 0)`).
        unread: the prompt lacks the word's characters.
    """

    word: str
    tokens: tuple[int, ...]
    run: Run
    columns: Run
    unread: Run

    def __repr__(self) -> str:
        about = self.run.settings
        return f"<Ablation of {quoted(self.word)} in {quoted(about.prompt)}, seed {about.seed}>"

    @property
    def heat(self) -> HeatMap:
        """The plain map of the word in the run."""
        return self.run.maps[self.word]

    def without(self, way: Way) -> Run:
        """Return the run without the word, in one of the two ways; ArgumentError for others."""
        checks.one_of("way", way, WAYS)
        return self.columns if way == "columns" else self.unread

    def difference(self, way: Way) -> np.ndarray:
        """Return how far each pixel is from the run without the word.

        Args:
            way: "columns" or "unread".

        Returns:
            float32 (H, W), 0 to 1: |x − x₋word|, the mean over the colour channels.

        Raises:
            ArgumentError: if there is no such way.
        """
        before, after = (
            np.asarray(overlays.to_rgb(run.image), dtype=np.int16)
            for run in (self.run, self.without(way))
        )
        return (np.abs(before - after).sum(axis=-1) / np.float32(3 * 255)).astype(np.float32)

    @cached_property
    def trust(self) -> Trust:
        """How far the word's maps agree with the changes, on the grid of the maps."""
        heat, refined = self.heat, self.run.maps.recording.refined
        grid = heat.values.shape[::-1]
        # A word of negative weight acts where its map is lowest.
        maps = {"heat": np.abs(heat.values), "mask": overlays.resize_map(heat.soft_mask(), grid)}
        if refined is not None:
            maps["refined"] = np.abs(self.run.maps.refined[self.word].values)
        changes: list[Change] = []
        small = [overlays.resize_map(self.difference(way), grid) for way in WAYS]
        for way, cells in zip(WAYS, small, strict=True):
            values, region = self.difference(way), agreement.changed_region(cells)
            agree = {
                name: Agreement(agreement.rank_correlation(one, cells), agreement.auc(one, region))
                for name, one in maps.items()
            }
            most, mean = float(values.max()), float(values.mean(dtype=np.float64))
            changes.append(
                Change(
                    most=most,
                    mean=mean,
                    heat=agree["heat"],
                    refined=agree.get("refined"),
                    mask=agree["mask"],
                )
            )
        between = agreement.rank_correlation(*small)
        return Trust(columns=changes[0], unread=changes[1], between=between)

    def summary(self) -> dict[str, Any]:
        """Return the word, the prompts, and how far heat and cause agree, as plain JSON types."""
        return {
            "word": self.word,
            "tokens": list(self.tokens),
            "prompt": self.run.settings.prompt,
            "unread": self.unread.settings.prompt,
            "seed": self.run.settings.seed,
            "trust": to_json(self.trust),
        }

    def sheet(self) -> Image.Image:
        """Return `figure` as an image."""
        return plots.render(self.figure())

    def figure(self) -> "Figure":
        """Draw the image with and without the word; beneath, the heat and the changes.

        The heat has the word's own scale, the differences one for both, from 0.
        """
        heat, prompt = self.heat, self.run.settings.prompt
        low, high = heat.value_range()
        top = max(float(self.difference(way).max()) for way in WAYS)
        above = [Panel("the picture", _panel_image(self.run), prompt)]
        below = [
            Panel(f"heat of {heat.label}", heat.render(low, high), f"up to {heat.extremum:.2g}")
        ]
        for way, told in self.trust.ways().items():
            run, changed = self.without(way), self.difference(way)
            notes = {"columns": "its probabilities at 0", "unread": run.settings.prompt}
            above.append(Panel(_TITLES[way].format(heat.label), _panel_image(run), notes[way]))
            drawn = overlays.heat(changed, above[0].picture.size, low=0, high=max(top, 1 / 255))
            below.append(Panel("what that changes", drawn, str(told)))
        bars = [
            ScaleBar(f"the heat of {heat.label}", (low, high)),
            ScaleBar("what changes, of full range", ("0", f"{top:.0%}"), alone=True),
        ]
        title = f"{prompt}, without {heat.label}"
        return plots.draw_panels([*above, *below], title=title, bars=bars, columns=3)

    def _repr_png_(self) -> bytes:
        return png(self.sheet())

    def save(self, folder: str | Path) -> Path:
        """Write a folder, and return it.

        `run/`, `columns/` and `unread/` (each the folder of a run), `columns.npy` and `unread.npy`
        (the differences, float32 (H, W)), `columns.png` and `unread.png` (from 0 to the largest of
        both), `sheet.png` and `ablate.json`.

        Args:
            folder: new or empty.

        Raises:
            ArgumentError: if `folder` is not a path.
            RunError: if the folder is not empty, or cannot be written.
        """
        with whole_folder(folder) as partial:
            self.run.write(partial / "run")
            self.columns.write(partial / "columns")
            self.unread.write(partial / "unread")
            changes = {way: self.difference(way) for way in WAYS}
            top = max(1 / 255, *(float(one.max()) for one in changes.values()))
            for way, values in changes.items():
                array = io.BytesIO()
                np.save(array, values, allow_pickle=False)
                (partial / f"{way}.npy").write_bytes(array.getvalue())
                drawn = overlays.heat(values, self.run.image.size, low=0, high=top)
                (partial / f"{way}.png").write_bytes(png(drawn))
            (partial / "sheet.png").write_bytes(png(self.sheet()))
            files = (*files_in(partial), "ablate.json")
            content = AblationFile(
                files=files, word=self.word, tokens=self.tokens, trust=self.trust
            )
            write_file(partial / "ablate.json", content)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Ablation":
        """Read a saved ablation; no model is loaded, and all but its runs is computed again.

        Raises:
            RunError: if the folder is not an ablation, or broken.
        """
        folder = reading.path_of(folder)
        held = reading.read_json(folder / "ablate.json", AblationFile, most=MAX_ABLATION)
        run = Run.load(folder / "run")
        others = [read_run(folder / way, run.image.size) for way in WAYS]
        found = cls(held.word, held.tokens, run, *others)
        try:
            assert found.trust
        except (HeedmapError, IndexError) as error:
            raise reading.torn(folder, "its three runs and ablate.json", "ablation") from error
        return found


def _panel_image(run: Run) -> Image.Image:
    return overlays.enlarge(overlays.shrunk(run.image, plots.MAX_WIDTH))


def check_ablatable(saved: object, word: str, name: object = None) -> Run:
    """Check that a result is a run whose word can be left out; needs no model.

    Args:
        saved: the result.
        word: a word or phrase of its prompt.
        name: the folder of the result, for the error.

    Raises:
        ArgumentError: if it is not a run that `generate` made, or nothing is left of the prompt.
        UnknownWordError: if the prompt has no such word.
        TruncatedWordError: if the model did not read it.
    """
    origins = ("edit", "given", "located")
    if not isinstance(saved, Run) or any(getattr(saved.settings, name) for name in origins):
        raise ArgumentError(
            f"the run to leave a word out of is {quoted(name or saved)}: expected a run that was "
            "generated from its prompt alone, or its folder; of an edit or a grid name a source, "
            "such as its folder source"
        )
    shorter_prompt(saved.settings.prompt, saved.maps.tokens, word)
    return saved


def shorter_prompt(prompt: str, table: TokenTable, word: str) -> str:
    """Return a prompt, with its weights, without a word (`text.weights.leave_out`).

    Raises:
        ArgumentError: if nothing is left.
        RunError: if the table is of another prompt.
        UnknownWordError: if the prompt has no such word.
        TruncatedWordError: if the model did not read it.
    """
    parsed = parse_weights(prompt)
    if parsed.text != table.prompt:
        raise RunError(
            f"the maps of this run are of {quoted(table.prompt)}, and its prompt is "
            f"{quoted(prompt)}: expected one and the same; make it again"
        )
    table.find(word)
    left = leave_out(parsed, table, word)
    if not left:
        raise ArgumentError(
            f"nothing is left of {quoted(prompt)} without {quoted(word)}: expected a prompt of "
            "more words"
        )
    return left
