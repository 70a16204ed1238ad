"""A picture and its edit, with the evidence of what the edit did; on disk too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from heedmap.errors import ArgumentError, quoted
from heedmap.figures import plots
from heedmap.figures.overlays import colour, enlarge, png
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.io import reading, schemas
from heedmap.io.reports import Change, EditReport, Measures, returned
from heedmap.io.writing import files_in, whole_folder
from heedmap.maps.heatmaps import HeatMap
from heedmap.page import pages
from heedmap.results.runs import Run, read_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PAIR_FILE = 4 * 2**20  # bytes of pair.json


@dataclass(frozen=True, eq=False)
class Pair:
    """A source picture, its edit, and what changed between them.

    Attributes:
        source: the run of the source prompt.
        edited: the run of the edited prompt, from the same noise.
        about: how it was edited and what it did: `pair.about.kind` and `.why`, the windows, the
            `.words` that were changed, the `.sites` at which rules acted, `.change` of the picture.
        blend: bool (H, W) at the picture's size where the edit was let in, if it was blended.
    """

    source: Run
    edited: Run
    about: EditReport
    blend: np.ndarray | None = None

    def __repr__(self) -> str:
        source, edited = self.source.settings, self.edited.settings
        change = f"{quoted(source.prompt)} → {quoted(edited.prompt)}"
        return f"<Pair {change}, seed {source.seed}: {self.about.kind}>"

    def difference(self) -> Image.Image:
        """How much each pixel changed: 0 to the largest change, as heat."""
        size = self._changes()
        return Image.fromarray(colour(size / max(float(size.max()), 1 / 255)))

    def _changes(self) -> np.ndarray:
        """How much each pixel changed, of the full range, (H, W)."""
        change = _floats(self.source.image) - _floats(self.edited.image)
        return np.abs(change).mean(axis=-1)

    def sheet(self) -> Image.Image:
        """What `figure` shows, as a picture."""
        return plots.render(self.figure())

    def figure(self) -> "Figure":
        """Before, after, the difference, both sides' changed words, and the blend's mask.

        Of a picture of your own that one comes first.
        """
        words = self.about.words
        before, after = _heats(self.source, words.source), _heats(self.edited, words.edited)
        heats = (*before, *after)
        top = max([float(heat.values.max()) for heat in heats], default=1.0)
        low = min([0.0, *(float(heat.values.min()) for heat in heats)])  # negative weights
        given, back = self.source.given, self.about.reconstruction
        panels: list[Panel] = []
        if given is not None and back is not None:
            panels.append(Panel("your picture", enlarge(given), returned(back.psnr_db)))
        panels += [
            Panel("the source", enlarge(self.source.image), self.source.settings.prompt),
            Panel("the edit", enlarge(self.edited.image), self.edited.settings.prompt),
            Panel("the difference", enlarge(self.difference()), self._said()),
        ]
        for side, heats in (("before", before), ("after", after)):
            panels += [Panel(f"{heat.label} ({side})", heat.render(low, top)) for heat in heats]
        if self.blend is not None:
            mask = Image.fromarray((self.blend * 255).astype(np.uint8))
            panels.append(Panel("let in", enlarge(mask.convert("RGB"))))
        title = f"{self.source.settings.prompt} → {self.edited.settings.prompt}"
        bars = [ScaleBar("shared by both prompts' words", low, top)]
        return plots.draw_panels(panels, title=title, bars=bars)

    def explorer(self) -> str:
        """The page of this edit: one HTML file that needs nothing else (`heedmap.page`)."""
        return pages.pairs_page([("", self)])

    def _repr_html_(self) -> str:
        return pages.preview(self, self.sheet())

    def save(self, folder: str | Path) -> Path:
        """Write the pair's folder, whole or not at all.

        `source/` and `edited/` (each a run's folder), `index.html` (the page), `sheet.png`,
        `difference.png`, `blend.png` where it was blended, and `pair.json`.

        Args:
            folder: new or empty.

        Returns:
            The folder.

        Raises:
            ArgumentError: if `folder` is not a path.
            RunError: if something is there already, or nothing can be written there.
        """
        with whole_folder(folder) as partial:
            self.source.write(partial / "source")
            self.edited.write(partial / "edited")
            (partial / "index.html").write_text(self.explorer(), encoding="utf-8")
            (partial / "sheet.png").write_bytes(png(self.sheet()))
            (partial / "difference.png").write_bytes(png(self.difference()))
            if self.blend is not None:
                (partial / "blend.png").write_bytes(png(Image.fromarray(self.blend)))
            files = (*files_in(partial), "pair.json")
            content = schemas.PairFile(files=files, about=self.about)
            schemas.write_file(partial / "pair.json", content)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Pair":
        """Read a saved pair; no model and no torch is loaded.

        Raises:
            RunError: if the folder is not a pair, or something in it is broken.
        """
        folder = reading.path_of(folder)
        held = reading.read_json(folder / "pair.json", schemas.PairFile, most=MAX_PAIR_FILE)
        source = Run.load(folder / "source")
        edited = read_run(folder / "edited", source.image.size)
        mask = folder / "blend.png"
        blend = read_mask(mask, source.image.size) if mask.name in held.files else None
        return cls(source, edited, held.about, blend)

    def _said(self) -> str:
        sides = self.about.change.sides().items()
        said = [f"{what.mse:.2g} {side}" for side, what in sides if what.mse is not None]
        return f"up to {self._changes().max():.0%} of full range; MSE {', '.join(said)}"


def _heats(run: Run, words: Sequence[int]) -> list[HeatMap]:
    return [run.maps.at(number) for number in words]


def change_between(before: Image.Image, after: Image.Image, inside: np.ndarray) -> Change:
    """How much a picture changed inside and outside of a mask.

    Args:
        before: a picture.
        after: another of the same size.
        inside: bool (H, W).

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
    similar = similarity(a, b, window).mean(axis=-1)

    def figures(where: np.ndarray) -> Measures:
        mse = float(squares[where].mean()) if where.any() else None
        return Measures(
            share=round(float(where.mean()), 6),
            mse=mse,
            psnr_db=None if not mse else -10 * math.log10(mse),
            ssim=float(similar[where].mean()) if where.any() else None,
        )

    return Change(inside=figures(inside), outside=figures(~inside))


def similarity(a: np.ndarray, b: np.ndarray, window: int) -> np.ndarray:
    """Structural similarity (SSIM) at each pixel of two pictures, for each of their channels.

    Over square windows of one weight, with sample variances, K1 = 0.01 and K2 = 0.03: Wang, Bovik,
    Sheikh and Simoncelli, "Image quality assessment: from error visibility to structural
    similarity" (2004). Beyond its border a picture is its mirror image.

    Args:
        a: float64 (H, W, C), from 0 to 1.
        b: the same of the other picture.
        window: pixels on the side of a window, an odd number.
    """
    mean_a, mean_b = _means(a, window), _means(b, window)
    sample = window**2 / max(1, window**2 - 1)
    of_a = sample * (_means(a * a, window) - mean_a * mean_a)
    of_b = sample * (_means(b * b, window) - mean_b * mean_b)
    both = sample * (_means(a * b, window) - mean_a * mean_b)
    c1, c2 = 0.01**2, 0.03**2
    alike = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    return alike / ((mean_a**2 + mean_b**2 + c1) * (of_a + of_b + c2))


def _means(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of the window around each pixel: (H, W, C) -> (H, W, C)."""
    half = window // 2
    for axis in (0, 1):
        beside = [(half, half) if one == axis else (0, 0) for one in range(values.ndim)]
        lines = np.moveaxis(np.pad(values, beside, mode="symmetric"), axis, 0)
        # From one window to the next: the pixel that comes in, less the one that goes out.
        first = np.add.accumulate(lines[:window])[-1:]
        sums = np.add.accumulate(np.concatenate([first, lines[window:] - lines[:-window]]))
        values = np.moveaxis(sums / window, 0, axis)
    return values


def apart(before: Image.Image, after: Image.Image) -> Measures:
    """How far two pictures of one size are apart."""
    everywhere = np.ones(before.size[::-1], dtype=bool)
    return change_between(before, after, everywhere).inside


def _floats(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"), dtype=np.float64) / 255


def read_mask(path: Path, size: tuple[int, int]) -> np.ndarray:
    """The mask of a blend, bool (H, W), from a file; RunError unless it is of this (W, H)."""
    return np.asarray(reading.read_picture(path, "1", size=size), dtype=bool)
