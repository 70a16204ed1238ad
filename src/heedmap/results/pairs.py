"""A picture and its edit, with the evidence of what the edit did; on disk too."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET
from PIL import Image
from skimage.metrics import structural_similarity

from heedmap import explorer
from heedmap.errors import ArgumentError, RunError
from heedmap.figures import layout
from heedmap.figures.formats import png
from heedmap.figures.layout import Panel
from heedmap.figures.overlays import colour, enlarge, overlay
from heedmap.files import kinds, reading, schemas
from heedmap.files.writing import whole_folder
from heedmap.maps.heatmaps import HeatMap
from heedmap.results.runs import Run

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

FORMAT = 1
_ASKED = {
    *("cross", "self", "windows", "renormalize", "only"),
    *("protect", "self_cells", "blend_from", "threshold"),
}
_ALIKE = ("seed", "model", "steps", "guidance", "negative")  # of both runs of a pair
MAX_ABOUT = 4 * 2**20  # bytes of pair.json


@dataclass(frozen=True, eq=False)
class Pair:
    """A source picture, its edit, and what changed between them.

    Attributes:
        source: the run of the source prompt.
        edited: the run of the edited prompt, from the same noise.
        about: how it was edited and what it did, as plain JSON types: `kind` and `why`, the
            windows, `words` (those that were changed, of each prompt), `sites` at which rules
            acted and `self_sites` at which self-attention was taken from the source, `moved` (the
            share of attention that the rules moved, 0 to 1), `masked_by` (the phrases that decided
            where it was let in, if it was blended) and `change` (see `compare`).
        blend: bool (H, W) at the picture's size where the edit was let in, if it was blended.
    """

    source: Run
    edited: Run
    about: dict[str, Any]
    blend: np.ndarray | None = None

    def difference(self) -> Image.Image:
        """How much each pixel changed: 0 to the largest change, as heat."""
        change = _floats(self.source.image) - _floats(self.edited.image)
        size = np.abs(change).mean(axis=-1)
        return Image.fromarray(colour(size / max(float(size.max()), 1 / 255)))

    def sheet(self) -> Image.Image:
        """What `figure` shows, as a picture."""
        return self.figure().image()

    def figure(self) -> "Sheet":
        """Before, after, the difference, both sides' changed words, and the blend's mask.

        Returns:
            A matplotlib Figure, which saves itself as PNG, SVG or PDF.
        """
        before, after = self._heats(self.source, "source"), self._heats(self.edited, "edited")
        heats = (*before, *after)
        top = max([float(heat.values.max()) for heat in heats], default=1.0)
        low = min([0.0, *(float(heat.values.min()) for heat in heats)])  # negative weights
        panels = [
            Panel("the edit", enlarge(self.edited.image), self.edited.settings["prompt"]),
            Panel("the difference", enlarge(self.difference()), self._said()),
        ]
        for side, heats in (("before", before), ("after", after)):
            panels += [
                Panel(f"{heat.label} ({side})", self._overlay(heat, low, top)) for heat in heats
            ]
        if self.blend is not None:
            mask = Image.fromarray((self.blend * 255).astype(np.uint8))
            panels.append(Panel("let in", enlarge(mask.convert("RGB"))))
        return layout.sheet(
            enlarge(self.source.image),
            panels,
            title=f"{self.source.settings['prompt']} → {self.edited.settings['prompt']}",
            bar=layout.ScaleBar("shared by both prompts' words", low, top),
            caption="the source",
            note=self.source.settings["prompt"],
        )

    def explorer(self) -> str:
        """The page of this edit: one HTML file that needs nothing else (`heedmap.explorer`)."""
        return explorer.pair_page(self)

    def _repr_html_(self) -> str:
        return explorer.frame(self.explorer())

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the pair's folder, whole or not at all.

        `source/` and `edited/` (each a run's folder), `index.html` (the page), `sheet.png`,
        `difference.png`, `blend.png` where it was blended, and `pair.json`.

        Args:
            folder: where to.
            force: whether an older pair of that name is replaced, as of `Run.save`.

        Returns:
            The folder.

        Raises:
            ArgumentError: if `folder` is no path, or `force` neither True nor False.
            RunError: if something is there already, or nothing can be written there; then nothing
                is left there either.
        """
        with whole_folder(folder, kinds.PAIR, force=force) as partial:
            self.source.save(partial / "source")
            self.edited.save(partial / "edited")
            (partial / "index.html").write_text(self.explorer(), encoding="utf-8")
            (partial / "sheet.png").write_bytes(self.figure().data())
            (partial / "difference.png").write_bytes(png(self.difference()))
            if self.blend is not None:
                (partial / "blend.png").write_bytes(png(Image.fromarray(self.blend)))
            files = kinds.files_in(partial, "pair.json")
            about = {"format": FORMAT, "files": files, "about": self.about}
            text = json.dumps(about, indent=2, ensure_ascii=False)
            (partial / "pair.json").write_text(text + "\n", encoding="utf-8")
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Pair":
        """Read a saved pair; no model and no torch is loaded.

        Raises:
            RunError: if the folder is no pair, or something in it is broken or hostile.
        """
        folder = reading.path_of(folder)
        told, plain = schemas.read_file(
            folder / "pair.json", schemas.PairFile, "an edit", version=FORMAT, most=MAX_ABOUT
        )
        source = Run.load(folder / "source")
        edited = Run._load(folder / "edited", source.image.size)
        if not fits(told.about, plain["about"], source, edited):
            raise RunError(
                f"{folder} does not hold together: its two runs and pair.json are of different "
                "edits; make the edit again"
            )
        mask = folder / "blend.png"
        has = told.files is UNSET or mask.name in told.files  # else it is a user's
        if has and told.files is not UNSET and not reading.is_there(mask):
            raise RunError(f"{folder} lacks {mask.name}, which it lists: make the edit again")
        blend = read_mask(mask, source.image.size) if has and reading.is_there(mask) else None
        return cls(source, edited, plain["about"], blend)

    def _heats(self, run: Run, side: str) -> list[HeatMap]:
        return [run.maps.at(number) for number in self.about["words"][side]]

    def _overlay(self, heat: HeatMap, low: float, top: float) -> Image.Image:
        picture = heat.image
        if picture is None:
            raise ArgumentError("these maps know no picture")
        return overlay(enlarge(picture), heat.values, low=low, high=top)

    def _said(self) -> str:
        change = {side: self.about["change"][side]["mse"] for side in ("inside", "outside")}
        said = [f"{mse:.2g} {side}" for side, mse in change.items() if mse is not None]
        return f"MSE {', '.join(said)}"


def fits(told: schemas.Evidence, about: Mapping[str, Any], source: Run, edited: Run) -> bool:
    """Whether a pair's evidence, read from a file, fits its runs.

    Args:
        told: the evidence as its schema has it.
        about: the same with all that the file has.
        source: of the pair.
        edited: of the pair.
    """
    # What was asked for stands in the edited run too, which is what is drawn again.
    asked = edited.settings.get("edit", {})
    return (
        source.image.size == edited.image.size
        and all(about[name] == asked[name] for name in _ASKED & about.keys() & asked.keys())
        and all(source.settings.get(name) == edited.settings.get(name) for name in _ALIKE)
        and _is_edit_of(edited, source)
        and _are_words(told.words.source, source)
        and _are_words(told.words.edited, edited)
    )


def _is_edit_of(edited: Run, source: Run) -> bool:
    """Whether a run's settings say that it is an edit of another, which is none itself."""
    asked = edited.settings.get("edit")
    if asked is None:  # the first version noted no edit, nor a place in a batch
        said = "batch_place" not in edited.settings
    else:
        said = asked["source"] == source.settings["prompt"]
    return said and "edit" not in source.settings


def _are_words(numbers: Sequence[int], run: Run) -> bool:
    """Whether these are numbers of words that a model read, each once."""
    read = {word.number for word in run.maps.words}
    return read.issuperset(numbers) and len({*numbers}) == len(numbers)


def compare(before: Image.Image, after: Image.Image, inside: np.ndarray) -> dict[str, Any]:
    """How much a picture changed inside and outside of a mask.

    Args:
        before: a picture.
        after: another of the same size.
        inside: bool (H, W).

    Returns:
        For "inside" and "outside" each the mean squared error of values in 0 to 1, the peak
        signal-to-noise ratio in dB and the structural similarity (Wang et al., 2004); None where
        there is nothing to measure, or no error.

    Raises:
        ArgumentError: if the sizes differ.
    """
    if before.size != after.size or inside.shape != before.size[::-1]:
        raise ArgumentError(
            f"pictures of {before.size} and {after.size} and a mask of {inside.shape[::-1]} cannot "
            "be compared: expected one size"
        )
    a, b = _floats(before), _floats(after)
    squares = ((a - b) ** 2).mean(axis=-1)
    window = min(7, min(before.size) - (min(before.size) + 1) % 2)
    measured: Any = structural_similarity(
        a, b, data_range=1.0, channel_axis=2, full=True, win_size=window
    )
    similar = measured[1].mean(axis=-1)
    found = {}
    for name, where in (("inside", inside), ("outside", ~inside)):
        mse = float(squares[where].mean()) if where.any() else None
        found[name] = {
            "share": round(float(where.mean()), 6),
            "mse": mse,
            "psnr_db": None if not mse else -10 * math.log10(mse),
            "ssim": float(similar[where].mean()) if where.any() else None,
        }
    return found


def _floats(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"), dtype=np.float64) / 255


def read_mask(path: Path, size: tuple[int, int]) -> np.ndarray:
    """The mask of a blend, bool (H, W), from a file; RunError unless it is of this (W, H)."""
    return np.asarray(reading.read_picture(path, "1", size=size), dtype=bool)
