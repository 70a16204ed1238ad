"""An ablation: a run generated again without one of its words, compared with the word's maps."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from PIL import Image

from heedmap.errors import ArgumentError, quoted
from heedmap.figures import overlays, plots
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.io import reading
from heedmap.io.schemas import Note, ResultFile, Text
from heedmap.io.word_edits import SiteEdit
from heedmap.maps.heatmaps import scale_name
from heedmap.maps.recordings import is_even, rank_correlation, ranks
from heedmap.page import pages
from heedmap.results import Result, json_part, within
from heedmap.results.edits import draw_change, pixel_change
from heedmap.results.runs import Run
from heedmap.text.weights import leave_out, parse_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Way = Literal["attention", "prompt"]
"""A way to leave a word out: its probabilities are set to 0, or it is removed from the prompt."""
WAYS: tuple[Way, ...] = get_args(Way)
_VERDICTS = {  # by the least AUC of the heat
    0.8: "the heat of {} shows where",
    0.65: "the heat of {} shows roughly where",
    0.35: "the heat of {} does not show where",
    0.0: "it changes most where the heat of {} is low",
}
_LEAST_CHANGE = 0.02
"""The mean change below which an image is almost the same: 1 % where a word drew nothing."""


class Agreement(Note, frozen=True):
    """The agreement of a map with the change of the image, both on the grid of the map.

    Attributes:
        rank: Spearman's rank correlation, -1 to 1; None if one of them is constant.
        auc: the area under the ROC curve of the map for the `changed_region`, 0 to 1, 0.5 by
            chance; None if nothing changed.
    """

    rank: float | None
    auc: float | None

    def __str__(self) -> str:
        rank = pages.format_figure(self.rank, ".2f")
        return f"rank {rank}, AUC {pages.format_figure(self.auc, '.2f')}"


class CausalAgreement(Note, frozen=True, kw_only=True):
    """The change of the image without a word, and its agreement with the maps of the word.

    Attributes:
        largest: the largest difference of a pixel, 0 to 1.
        mean: the mean difference of the image.
        heat: the agreement with the word's map.
        refined: with its refined map; None if the run has none.
        mask: with the soft mask of its phrase.
    """

    largest: float
    mean: float
    heat: Agreement
    refined: Agreement | None = None
    mask: Agreement


class AblationFile(ResultFile, frozen=True):
    """The content of `ablate.json`; a loaded ablation computes `agreement` again."""

    word: Text
    agreement: Mapping[Way, CausalAgreement]


@dataclass(frozen=True, eq=False)
class Ablation(Result):
    """A run, and the run without one of its words in two ways, from the same noise and settings.

        found = hm.ablate(pipe, run, "house")
        found.without["prompt"].image, found.difference("attention"), found.sheet()
        found.agreement["attention"].heat.rank

    Its folder has `run/`, `attention/` and `prompt/` (each the folder of a run), the differences
    (`attention.npy`, `prompt.npy`, float32 (H, W); as images, `attention.png` and `prompt.png`,
    from 0 to the largest of both), `index.html` (the page), `sheet.png` and `ablate.json`.

    Attributes:
        word: a word or phrase of the prompt, at all its places.
        run: the run with the word.
        without: the run without it, in each `Way`.
    """

    word: str
    run: Run
    without: Mapping[Way, Run]

    def __repr__(self) -> str:
        prompt = self.run.settings.prompt
        return f"<Ablation of {quoted(self.word)} in {quoted(prompt)}>"

    def difference(self, way: Way) -> np.ndarray:
        """Return |x − x₋word| of each pixel, the mean over the colours: float32 (H, W), 0 to 1."""
        return pixel_change(self.run.image, self.without[way].image)

    @cached_property
    def agreement(self) -> dict[Way, CausalAgreement]:
        """The change in each way, and its agreement with the word's maps on their grid."""
        heat = self.run.maps[self.word]
        grid = heat.values.shape[::-1]
        # A word of negative weight acts where its map is lowest.
        maps = {
            "heat": np.abs(heat.values),
            "mask": overlays.resize_map(heat.soft_mask(), grid),
        }
        if self.run.maps.recording.refined is not None:
            maps["refined"] = np.abs(self.run.maps.refined[self.word].values)
        agreements: dict[Way, CausalAgreement] = {}
        for way in WAYS:
            values = self.difference(way)
            change = overlays.resize_map(values, grid)
            region = changed_region(change)
            parts = {
                name: Agreement(rank_correlation(one, change), auc(one, region))
                for name, one in maps.items()
            }
            agreements[way] = CausalAgreement(
                largest=float(values.max()),
                mean=float(values.mean(dtype=np.float64)),
                **parts,
            )
        return agreements

    def where(self, way: Way) -> str:
        """Name the layers, heads and steps without the word; empty for all."""
        edits = self.without[way].settings.edits
        if way == "attention" and edits and isinstance(edits[-1], SiteEdit):
            return SiteEdit.__str__(edits[-1]).replace(",", " in", 1)
        return ""

    def verdict(self, way: Way) -> str:
        """Say in a sentence how much the image changed, and whether the heat shows where."""
        change = self.agreement[way]
        name = quoted(self.word) + self.where(way)
        auc = change.heat.auc
        if auc is None:
            return f"Without {name}, the image stays the same."
        if change.mean < _LEAST_CHANGE:
            return (
                f"Without {name}, the image stays almost the same ({change.mean:.1%})."
            )
        amount = f"{change.mean:.0%} on average and up to {change.largest:.0%}"
        shows = next(text for least, text in _VERDICTS.items() if auc >= least)
        heat = shows.format(quoted(self.word))
        return f"Without {name}, the image changes by {amount}; {heat}."

    def figure(self) -> "Figure":
        """Draw the image with and without the word; beneath, the heat and the changes.

        The heat has the word's own scale; the differences have one for both, from 0.
        """
        heat = self.run.maps[self.word]
        prompt = self.run.settings.prompt
        name = heat.label
        ends = heat.value_range()
        attention = self.without["attention"]
        shorter = self.without["prompt"]
        panels = [
            Panel("the image", self.run.image, prompt),
            Panel(
                f"no attention to {name}",
                attention.image,
                f"probabilities at 0{self.where('attention')}",
            ),
            Panel(
                f"{name} is not in the prompt", shorter.image, shorter.settings.prompt
            ),
            Panel(f"heat of {name}", heat.render(*ends), f"up to {heat.extremum:.2g}"),
        ]
        for way, change in self.agreement.items():
            note = f"up to {change.largest:.0%} of full range; with the heat: {change.heat}"
            panels.append(Panel("change of the image", self._draw_change(way), note))
        scale = scale_name(f"the heat of {name}", heat.share_of)
        bars = [
            ScaleBar(scale, ends),
            ScaleBar("change, of full range", ("0", f"{self._top:.0%}"), alone=True),
        ]
        title = f"{prompt}, without {name}"
        return plots.draw_panels(
            panels,
            title=title,
            bars=bars,
            columns=3,
        )

    def page(self) -> str:
        """Return the page: one HTML file that needs nothing else."""
        return pages.ablation_page(self)

    @property
    def _top(self) -> float:
        """The end of the one scale of both changes."""
        return max(change.largest for change in self.agreement.values())

    def _draw_change(self, way: Way) -> Image.Image:
        return draw_change(self.difference(way), self._top)

    def parts(self, overlays: bool) -> dict[str, Any]:
        """Return the content of each file by its path in the folder."""
        parts = within("run", self.run, overlays)
        for way, run in self.without.items():
            parts |= within(way, run, overlays)
            parts[f"{way}.npy"] = self.difference(way)
            parts[f"{way}.png"] = self._draw_change(way)
        if overlays:
            parts["sheet.png"] = self.sheet()
            parts["index.html"] = self.page().encode()
        return parts | json_part(
            "ablate.json",
            AblationFile,
            parts,
            word=self.word,
            agreement=self.agreement,
        )

    @classmethod
    def read_files(cls, folder: Path) -> "Ablation":
        """Read the files of a folder that `save` wrote."""
        file = reading.read_json(folder / "ablate.json", AblationFile)
        run = Run.load(folder / "run")
        return cls(file.word, run, {way: Run.load(folder / way) for way in WAYS})


def generated_run(run: object) -> Run:
    """Return a run that `generate` made; ArgumentError if it is another result."""
    if not isinstance(run, Run) or (
        run.settings.edit or run.settings.input_image or run.settings.located
    ):
        raise ArgumentError(
            "the run is an edit, a grid or a located image: expected one that was generated from "
            "its prompt alone; of an edit, pass its source"
        )
    return run


def shorter_prompt(run: object, word: str) -> tuple[Run, str]:
    """Return a run, and its prompt with weights but without a word (`text.weights.leave_out`).

    Raises:
        ArgumentError: if it is not a run that `generate` made, or nothing is left of the prompt.
        WordError: if the prompt has no such word, or the model did not read it.
    """
    run = generated_run(run)
    prompt = run.settings.prompt
    table = run.maps.tokens
    table.find(word)
    parsed = parse_weights(prompt)
    if parsed.text != table.prompt:
        raise ArgumentError(
            f"the model read {quoted(table.prompt)} in place of the prompt {quoted(prompt)}, from "
            "which no word of it can be taken: use hm.generate with the edit hm.Reweight(word, 0)"
        )
    shorter = leave_out(parsed, table, word)
    if not shorter:
        raise ArgumentError(
            f"nothing is left of {quoted(prompt)} without {quoted(word)}: expected more words"
        )
    return run, shorter


def auc(values: np.ndarray, inside: np.ndarray) -> float | None:
    """Return the area under the ROC curve of a map (h, w) as a classifier of a region, bool (h, w).

    It is the share of pairs of a place inside and one outside whose inside place has more, 0 to 1;
    an equal pair counts a half (Mann and Whitney, 1947; Hanley and McNeil, 1982). A map that is
    constant but for rounding has 0.5, as by chance. None if nothing is inside, or all.
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
    """Return the places where a map (h, w) is above Otsu's threshold: bool (h, w).

    The threshold has the greatest variance between the classes (Otsu, 1979), over the values
    themselves, without a histogram. A map that is constant but for rounding has no such places.
    """
    flat = np.sort(values, axis=None).astype(np.float64)
    if is_even(flat):
        return np.zeros(values.shape, dtype=bool)
    below = np.arange(1, flat.size)
    # Among equal values it is greatest at an end: a square of a concave function.
    variance = np.cumsum(flat - flat.mean())[:-1] ** 2 / (below * (flat.size - below))
    return values > flat[int(variance.argmax())]
