"""An ablation: a run generated again without one of its words, compared with the word's maps."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from PIL import Image

from heedmap.checks import check_one_of
from heedmap.errors import ArgumentError, format_number, quoted
from heedmap.figures import overlays, plots
from heedmap.figures.overlays import png
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.io import reading
from heedmap.io.schemas import FORMAT, Note, Numbers, Text, to_json
from heedmap.maps.heatmaps import HeatMap
from heedmap.maps.recordings import is_even, rank_correlation, ranks
from heedmap.results import Files, Result, write_json
from heedmap.results.runs import Run
from heedmap.text.weights import leave_out, parse_weights
from heedmap.text.words import TokenTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Way = Literal["columns", "unread"]
"""Without the word's columns of P, or with the prompt read without the word."""
WAYS: tuple[Way, ...] = get_args(Way)


class Agreement(Note, frozen=True, kw_only=False):
    """The agreement of a map with the changed region, both on the grid of the map.

    Attributes:
        rank: Spearman's rank correlation, −1 to 1; None if one of them is constant.
        auc: the area under the ROC curve of the map for the changed region, 0 to 1, 0.5 by chance;
            None if nothing changed. The region is that of `changed_region`.
    """

    rank: float | None
    auc: float | None

    def __str__(self) -> str:
        values = {"rank": self.rank, "AUC": self.auc}
        return ", ".join(
            f"{name} {'–' if one is None else format_number(one, '.2f')}"
            for name, one in values.items()
        )


class Change(Note, frozen=True, kw_only=True):
    """The change of the image in one way, and its agreement with the word's maps.

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
    refined: Agreement | None = None
    mask: Agreement


class Trust(Note, frozen=True, kw_only=True):
    """The agreement of attention and cause, for one word of one image.

    Attributes:
        columns: the change without the word's columns of P.
        unread: the change with the prompt read without the word.
        between: the rank correlation of the two, on the grid of the map; None if one is constant.

    Of each change: `.most` and `.mean`, the largest and the mean difference of a pixel, 0 to 1; and
    an `Agreement` with the word's map (`.heat`), its refined map (`.refined`; None if there is
    none) and the soft mask of its phrase (`.mask`).
    """

    columns: Change
    unread: Change
    between: float | None

    def ways(self) -> dict[Way, Change]:
        """Return both changes by name, "columns" and "unread"."""
        return {"columns": self.columns, "unread": self.unread}


class AblationFile(Note, frozen=True, kw_only=True):
    """The content of `ablate.json`; a loaded ablation computes `trust` again."""

    format: int = FORMAT
    files: Files
    word: Text
    tokens: Numbers
    trust: Trust


@dataclass(frozen=True, eq=False)
class Ablation(Result):
    """A run, and the run without one of its words in two ways, from the same noise and settings.

        found = hm.ablate(pipe, run, "house")
        found.difference("columns"), found.trust.columns.heat.rank, found.sheet()

    Neither way isolates the cause: without its columns, nothing attends to the word any more, but
    later tokens have read it; with the prompt read without it, the other tokens change, too, and
    the whole image may move.

    Its folder has `run/`, `columns/` and `unread/` (each the folder of a run), `columns.npy` and
    `unread.npy` (the differences, float32 (H, W)), `columns.png` and `unread.png` (from 0 to the
    largest of both), `sheet.png` and `ablate.json`; a loaded ablation computes all but its runs
    again.

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
        settings = self.run.settings
        return (
            f"<Ablation of {quoted(self.word)} in {quoted(settings.prompt)}, seed {settings.seed}>"
        )

    @property
    def heat(self) -> HeatMap:
        """The plain map of the word in the run."""
        return self.run.maps[self.word]

    def without(self, way: Way) -> Run:
        """Return the run without the word, in the way "columns" or "unread"."""
        check_one_of("way", way, WAYS)
        return self.columns if way == "columns" else self.unread

    def difference(self, way: Way) -> np.ndarray:
        """Return the difference of each pixel from the run without the word.

        Args:
            way: "columns" or "unread".

        Returns:
            float32 (H, W), 0 to 1: |x − x₋word|, the mean over the colour channels.
        """
        before, after = (
            np.asarray(overlays.to_rgb(run.image), dtype=np.int16)
            for run in (self.run, self.without(way))
        )
        return (np.abs(before - after).sum(axis=-1) / np.float32(3 * 255)).astype(np.float32)

    @cached_property
    def trust(self) -> Trust:
        """The agreement of the word's maps with the changes, on the grid (h, w) of the maps."""
        heat = self.heat
        grid = heat.values.shape[::-1]
        # A word of negative weight acts where its map is lowest.
        maps = {"heat": np.abs(heat.values), "mask": overlays.resize_map(heat.soft_mask(), grid)}
        if self.run.maps.recording.refined is not None:
            maps["refined"] = np.abs(self.run.maps.refined[self.word].values)
        changes: dict[str, Change] = {}
        cells: list[np.ndarray] = []
        for way in WAYS:
            values = self.difference(way)
            small = overlays.resize_map(values, grid)
            region = changed_region(small)
            agree = {
                name: Agreement(rank_correlation(one, small), auc(one, region))
                for name, one in maps.items()
            }
            changes[way] = Change(
                most=float(values.max()), mean=float(values.mean(dtype=np.float64)), **agree
            )
            cells.append(small)
        return Trust(**changes, between=rank_correlation(*cells))

    def summary(self) -> dict[str, Any]:
        """Return the word, the prompts, and the agreement of heat and cause, as JSON types."""
        return {
            "word": self.word,
            "tokens": list(self.tokens),
            "prompt": self.run.settings.prompt,
            "unread": self.unread.settings.prompt,
            "seed": self.run.settings.seed,
            "trust": to_json(self.trust),
        }

    def figure(self) -> "Figure":
        """Draw the image with and without the word; beneath, the heat and the changes.

        The heat has the word's own scale; the differences have one for both, from 0.
        """
        heat, prompt, trust = self.heat, self.run.settings.prompt, self.trust.ways()
        image, name, (low, high) = _panel_image(self.run), heat.label, heat.value_range()
        top, changes = max(change.most for change in trust.values()), self._changes(image.size)
        without = self.unread.settings.prompt
        panels = [
            Panel("the image", image, prompt),
            Panel(f"nothing attends to {name}", _panel_image(self.columns), "probabilities at 0"),
            Panel(f"{name} is not read", _panel_image(self.unread), without),
            Panel(f"heat of {name}", heat.render(low, high), f"up to {heat.extremum:.2g}"),
        ]
        for way, change in trust.items():
            note = f"up to {change.most:.0%} of full range; with the heat: {change.heat}"
            panels.append(Panel("what that changes", changes[way], note))
        bars = [
            ScaleBar(f"the heat of {name}", (low, high)),
            ScaleBar("what changes, of full range", ("0", f"{top:.0%}"), alone=True),
        ]
        return plots.draw_panels(panels, title=f"{prompt}, without {name}", bars=bars, columns=3)

    def _changes(self, size: tuple[int, int]) -> dict[Way, Image.Image]:
        values: dict[Way, np.ndarray] = {way: self.difference(way) for way in WAYS}
        top = max(1 / 255, *(float(one.max()) for one in values.values()))
        return {way: overlays.heat(one, size, low=0, high=top) for way, one in values.items()}

    def write_files(self, folder: Path) -> None:
        """Write the files of the result to a folder."""
        for name in ("run", "columns", "unread"):
            getattr(self, name).write_files(folder / name)
        for way, image in self._changes(self.run.image.size).items():
            np.save(folder / f"{way}.npy", self.difference(way), allow_pickle=False)
            (folder / f"{way}.png").write_bytes(png(image))
        (folder / "sheet.png").write_bytes(png(self.sheet()))
        values = {"word": self.word, "tokens": self.tokens, "trust": self.trust}
        write_json(folder / "ablate.json", AblationFile, **values)

    @classmethod
    def read_files(cls, folder: Path) -> "Ablation":
        """Read the files that `write_files` wrote to a folder."""
        file = reading.read_json(folder / "ablate.json", AblationFile)
        runs = [Run.load(folder / name) for name in ("run", "columns", "unread")]
        return cls(file.word, file.tokens, *runs)


def _panel_image(run: Run) -> Image.Image:
    return overlays.enlarge(overlays.shrunk(run.image, plots.MAX_WIDTH))


def check_ablatable(saved: object, word: str, name: object = None) -> Run:
    """Check that a result is a run whose word can be left out; needs no model.

    Raises:
        ArgumentError: if it is not a run that `generate` made, or nothing is left of the prompt; it
            names the result by `name`, such as its folder.
        WordError: if the prompt has no such word, or the model did not read it.
    """
    origins = ("edit", "input_image", "located")
    if not isinstance(saved, Run) or any(getattr(saved.settings, one) for one in origins):
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
        WordError: if the prompt has no such word, or the model did not read it.
    """
    table.find(word)
    shorter = leave_out(parse_weights(prompt), table, word)
    if not shorter:
        raise ArgumentError(
            f"nothing is left of {quoted(prompt)} without {quoted(word)}: expected a prompt of "
            "more words"
        )
    return shorter


def auc(values: np.ndarray, inside: np.ndarray) -> float | None:
    """Return the area under the ROC curve of a map as a classifier of a region.

    This is the share of pairs of a place inside and one outside whose inside place has more; an
    equal pair counts a half (Mann and Whitney, 1947; Hanley and McNeil, 1982). Chance, and a map
    that is constant but for rounding, have 0.5. Both are (h, w). None if nothing is inside, or all.
    """
    within = int(inside.sum())
    without = inside.size - within
    if not within or not without:
        return None
    if is_even(values):
        return 0.5
    above = float(ranks(values)[inside].sum()) - within * (within + 1) / 2
    return above / (within * without)


def changed_region(values: np.ndarray) -> np.ndarray:
    """Return the places, bool (h, w), where a map (h, w) is above Otsu's threshold.

    The threshold has the greatest variance between the classes (Otsu, 1979), over the values
    themselves, without a histogram. A map that is constant but for rounding has no such place.
    """
    flat = np.sort(values, axis=None).astype(np.float64)
    if is_even(flat):
        return np.zeros(values.shape, dtype=bool)
    count, below = flat.size, np.arange(1, flat.size)
    sums = np.cumsum(flat)
    distance = sums[:-1] / below - (sums[-1] - sums[:-1]) / (count - below)
    # Among equal values it is greatest at an end: a square of a concave function.
    variance = below * (count - below) * distance**2
    return values > flat[int(variance.argmax())]
