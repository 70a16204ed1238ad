"""A picture, and what it would have been without one of its words: cause beside attention."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from PIL import Image

from heedmap import checks
from heedmap.errors import ArgumentError, HeedmapError, RunError, quoted
from heedmap.figures import overlays, plots
from heedmap.figures.overlays import png
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.io import reading, schemas
from heedmap.io.schemas import MAX_ABLATION, AblationFile, Agreement, Trust, Way, WayTold
from heedmap.io.values import to_json
from heedmap.io.writing import files_in, whole_folder
from heedmap.maps.heatmaps import HeatMap
from heedmap.mathematics import agreement
from heedmap.results.grids import first_run
from heedmap.results.runs import Run, read_run
from heedmap.text.weights import leave_out, parse_weights
from heedmap.text.words import TokenTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WAYS: tuple[Way, ...] = get_args(Way)
_SAID: Mapping[Way, str] = {"columns": "nothing attends to {}", "unread": "{} is not read"}


@dataclass(frozen=True, eq=False)
class Ablation:
    """A word of a run left out, in two ways, from the same noise and with the same settings.

        found = hm.ablate(pipe, run, "house")
        found.difference("columns"), found.trust.columns.heat.rank, found.sheet()

    Neither way is the cause itself: with its columns taken away nothing attends to the word any
    more, but the tokens after it have read it; with the prompt read without it these say something
    else, too, and all of the picture may move.

    Attributes:
        word: a word or phrase of the prompt; all its places are meant.
        tokens: the positions of its tokens on the K axis.
        run: the picture as it is.
        columns: the probabilities of the word's tokens at 0 in every layer and step, rows not
            summing to 1 again (`Reweight(word, 0)`).
        unread: the prompt without the word's characters.
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
        """The run without the word, in one of the two ways; ArgumentError for any other."""
        checks.one_of("way", way, WAYS)
        return self.columns if way == "columns" else self.unread

    def difference(self, way: Way) -> np.ndarray:
        """How far each pixel is from what it would have been without the word.

        Args:
            way: "columns" or "unread".

        Returns:
            float32 (H, W), 0 to 1: |x − x₋word|, the mean over the channels of colour.

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
        """How far the word's maps agree with what leaving it out changes, on the maps' grid."""
        columns, unread = (self.difference(way) for way in WAYS)
        maps = self._compared()
        grid = self.heat.values.shape[::-1]
        small = [overlays.resize_map(values, grid) for values in (columns, unread)]
        told = [
            _told(values, cells, maps)
            for values, cells in zip((columns, unread), small, strict=True)
        ]
        return Trust(columns=told[0], unread=told[1], between=agreement.rank_correlation(*small))

    def _compared(self) -> dict[str, np.ndarray]:
        """The word's maps on the grid of its heat, by what `WayTold` calls them."""
        heat = self.heat
        found = {"heat": np.abs(heat.values)}  # a word of negative weight acts where it is lowest
        if self.run.maps.recording.refined is not None:
            found["refined"] = np.abs(self.run.maps.refined[self.word].values)
        found["mask"] = overlays.resize_map(heat.soft_mask(), heat.values.shape[::-1])
        return found

    def summary(self) -> dict[str, Any]:
        """Which word, the prompts, and how far heat and cause agree, as plain JSON types."""
        return {
            "word": self.word,
            "tokens": list(self.tokens),
            "prompt": self.run.settings.prompt,
            "unread": self.unread.settings.prompt,
            "seed": self.run.settings.seed,
            "trust": to_json(self.trust),
        }

    # --- shown ---

    def sheet(self) -> Image.Image:
        """What `figure` shows, as a picture."""
        return plots.render(self.figure())

    def figure(self) -> "Figure":
        """The picture and both without the word; beneath the heat, and what each way changes.

        The heat has the word's own scale, the differences one for both, from 0.
        """
        heat, prompt = self.heat, self.run.settings.prompt
        low, high = heat.value_range()
        top = max(float(self.difference(way).max()) for way in WAYS)
        above = [Panel("the picture", _shown(self.run), prompt)]
        below = [
            Panel(f"heat of {heat.label}", heat.render(low, high), f"up to {heat.extremum:.2g}")
        ]
        for way, told in self.trust.ways().items():
            run, changed = self.without(way), self.difference(way)
            notes = {"columns": "its probabilities at 0", "unread": run.settings.prompt}
            above.append(Panel(_SAID[way].format(heat.label), _shown(run), notes[way]))
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

    # --- on disk ---

    def save(self, folder: str | Path) -> Path:
        """Write the folder, whole or not at all.

        `run/`, `columns/` and `unread/` (each a run's folder), `columns.npy` and `unread.npy` (the
        differences, float32 (H, W)), the same as pictures (`columns.png`, `unread.png`, from 0 to
        the largest of both), `formats.png` and `ablate.json`.

        Args:
            folder: new or empty.

        Returns:
            The folder.

        Raises:
            ArgumentError: if `folder` is not a path.
            RunError: if something is there already, or nothing can be written there.
        """
        with whole_folder(folder) as partial:
            self.run.write(partial / "run")
            self.columns.write(partial / "columns")
            self.unread.write(partial / "unread")
            changes = {way: self.difference(way) for way in WAYS}
            top = max(1 / 255, *(float(one.max()) for one in changes.values()))
            for way, values in changes.items():
                held = io.BytesIO()
                np.save(held, values, allow_pickle=False)
                (partial / f"{way}.npy").write_bytes(held.getvalue())
                drawn = overlays.heat(values, self.run.image.size, low=0, high=top)
                (partial / f"{way}.png").write_bytes(png(drawn))
            (partial / "sheet.png").write_bytes(png(self.sheet()))
            content = AblationFile(
                files=(*files_in(partial), "ablate.json"),
                word=self.word,
                tokens=self.tokens,
                trust=self.trust,
            )
            schemas.write_file(partial / "ablate.json", content)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Ablation":
        """Read a saved ablation; no model is loaded, and all but its runs is computed anew.

        Raises:
            RunError: if the folder is none, or something in it is broken.
        """
        folder = reading.path_of(folder)
        held = reading.read_json(folder / "ablate.json", AblationFile, most=MAX_ABLATION)
        run = Run.load(folder / "run")
        others = [read_run(folder / way, run.image.size) for way in WAYS]
        try:
            return with_trust([cls(held.word, held.tokens, run, *others)])[0]
        except (HeedmapError, IndexError) as error:
            raise reading.torn(folder, "its three runs and ablate.json", "ablation") from error


def with_trust(found: Sequence[Ablation]) -> list[Ablation]:
    """Ablations of one run, which is told of each word how far attention and cause agree."""
    run, table = found[0].run, found[0].run.maps.tokens
    told = {table.find(word): (word, trust) for word, trust in run.trust.items()}
    told |= {one.tokens: (one.word, one.trust) for one in found}
    run = replace(run, trust=dict(told.values()))
    return [replace(one, run=run) for one in found]


def _shown(run: Run) -> Image.Image:
    """The picture of a run, as large as a panel may be."""
    return overlays.enlarge(overlays.shrunk(run.image, plots.MAX_WIDTH))


def _told(values: np.ndarray, cells: np.ndarray, maps: Mapping[str, np.ndarray]) -> WayTold:
    """What a difference is, and how far each map agrees with it on their grid."""
    region = agreement.changed_region(cells)
    found = {
        name: Agreement(agreement.rank_correlation(one, cells), agreement.auc(one, region))
        for name, one in maps.items()
    }
    heat, mask = found["heat"], found["mask"]
    most, mean = float(values.max()), float(values.mean(dtype=np.float64))
    return WayTold(most=most, mean=mean, heat=heat, refined=found.get("refined"), mask=mask)


# --- what is left out -------------------------------------------------------------------------


def ablated_run(saved: object, word: str, called: object = None) -> Run:
    """The run in which a word can be left out both ways; no model is needed to know it.

    Args:
        saved: what was given, or read from a folder.
        word: a word or phrase of its prompt.
        called: that folder.

    Raises:
        ArgumentError: if it is not a run by itself, or nothing is left of the prompt.
        UnknownWordError: if the prompt has no such word.
        TruncatedWordError: if the model did not read it.
    """
    name, first, why = quoted(called or saved), first_run(saved), ""
    if first is not None and first.settings.located is not None:
        why = f"nothing was drawn in {name}, where words were looked for in a picture"
    elif first is not None and first.settings.given is not None:  # nor in any part of it
        why = f"{name} is made of a picture of your own, which no word drew"
    if why:
        expected = "expected a run that drew its picture, whose words can be left out"
        raise ArgumentError(f"{why}: {expected}")
    if first is None:
        raise ArgumentError(
            f"the run to leave a word out of is {name}: expected a run, its folder, or a prompt"
        )
    if not isinstance(saved, Run) or saved.settings.edit is not None:
        raise ArgumentError(
            f"the run to leave a word out of is {name}: expected one that took nothing from "
            "another; of an edit or a grid name a source, such as its folder source"
        )
    check_word(saved.settings.prompt, saved.maps.tokens, word)
    return saved


def check_word(prompt: str, table: TokenTable, word: str) -> None:
    """Raise a HeedmapError, as `ablated_run`, if a word cannot be left out of a prompt."""
    table.find(word)
    if not shortened(prompt, table, word):
        raise ArgumentError(
            f"nothing is left of {quoted(prompt)} without {quoted(word)}: expected a prompt of "
            "more words"
        )


def shortened(prompt: str, table: TokenTable, word: str) -> str:
    """A prompt as it was written, with weights, without a word (`text.weights.leave_out`).

    Raises:
        RunError: if the table is of another prompt.
        UnknownWordError: if the prompt has no such word.
    """
    parsed = parse_weights(prompt)
    if parsed.text != table.prompt:
        raise RunError(
            f"the maps of this run are of {quoted(table.prompt)}, and its prompt is "
            f"{quoted(prompt)}: expected one and the same; make it again"
        )
    return leave_out(parsed, table, word)
