"""A source image and its edit, with the measures of the change."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from heedmap.errors import ArgumentError, quoted
from heedmap.figures import plots
from heedmap.figures.overlays import centred, colour, enlarge, png
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.io import reading
from heedmap.io.schemas import FORMAT, Change, EditReport, Measures, Note, returned
from heedmap.maps.heatmaps import scale_name
from heedmap.page import pages
from heedmap.results import Files, Result, write_json
from heedmap.results.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class EditFile(Note, frozen=True, kw_only=True):
    """The content of `edit.json`."""

    format: int = FORMAT
    files: Files
    report: EditReport


@dataclass(frozen=True, eq=False)
class EditResult(pages.EditContent, Result):
    """A source image, its edit, and the change between them.

    Its folder has `source/` and `edited/` (each the folder of a run), `index.html` (the page),
    `sheet.png`, `difference.png`, `blend.png` if it was blended, and `edit.json`.

    Attributes:
        source: the run of the source prompt.
        edited: the run of the edited prompt, from the same noise.
        report: the options of the edit and its effect: `pair.report.kind` and `.why`, the windows,
            the `.words` that were changed, the `.sites` at which rules acted, the `.change` of the
            image.
        blend: bool (H, W) at the size of the image, True where the edit was let in; None without a
            blend.
    """

    source: Run
    edited: Run

    def __repr__(self) -> str:
        source = self.source.settings
        edited = self.edited.settings
        change = f"{quoted(source.prompt)} → {quoted(edited.prompt)}"
        return f"<EditResult {change}, seed {source.seed}: {self.report.kind}>"

    def difference(self) -> Image.Image:
        """Draw the mean change of each pixel's colours as heat, from 0 to the largest change."""
        change = self._change()
        return Image.fromarray(colour(change / max(float(change.max()), 1 / 255)))

    def _change(self) -> np.ndarray:
        change = _floats(self.source.image) - _floats(self.edited.image)
        return np.abs(change).mean(axis=-1)

    def figure(self) -> "Figure":
        """Draw both images, their difference, the changed words of both, and the blend's mask.

        If an image of yours was edited, it comes first.
        """
        words = self.report.words
        sides = (
            ("before", self.source, words.source),
            ("after", self.edited, words.edited),
        )
        heats = [
            (run.maps.at(n), side) for side, run, numbers in sides for n in numbers
        ]
        top = max([float(heat.values.max()) for heat, _ in heats], default=1.0)
        # Negative weights.
        low = min([0.0, *(float(heat.values.min()) for heat, _ in heats)])
        low, top = centred(low, top) if low < 0 else (low, top)
        source = self.source.settings.prompt
        edited = self.edited.settings.prompt
        change = f"up to {self._change().max():.0%} of full range"
        picture = self.source.input_image
        back = self.report.reconstruction
        panels: list[Panel] = []
        if picture is not None and back is not None:
            panels.append(Panel("your image", enlarge(picture), returned(back.psnr_db)))
        panels += [
            Panel("the source", enlarge(self.source.image), source),
            Panel("the edit", enlarge(self.edited.image), edited),
            Panel("the difference", enlarge(self.difference()), change),
        ]
        panels += [
            Panel(f"{heat.label} ({side})", heat.render(low, top))
            for heat, side in heats
        ]
        if self.blend is not None:
            panels.append(
                Panel("region that may change", enlarge(Image.fromarray(self.blend)))
            )
        name = scale_name(
            "shared by both prompts' words", self.source.maps.recording.share_of
        )
        bars = [ScaleBar(name, (low, top))]
        return plots.draw_panels(panels, title=f"{source} → {edited}", bars=bars)

    def explorer(self) -> str:
        """Return the page of the edit: the text of an HTML file that needs nothing else."""
        return pages.pairs_page([("", self)])

    def write_files(self, folder: Path, *, overlays: bool = True) -> None:
        """Write the files of the result to a folder; with `overlays`, the pages and sheets."""
        self.source.write_files(folder / "source", overlays=overlays)
        self.edited.write_files(folder / "edited", overlays=overlays)
        if overlays:
            (folder / "index.html").write_text(self.explorer(), encoding="utf-8")
            (folder / "sheet.png").write_bytes(png(self.sheet()))
        (folder / "difference.png").write_bytes(png(self.difference()))
        if self.blend is not None:
            (folder / "blend.png").write_bytes(png(Image.fromarray(self.blend)))
        write_json(folder / "edit.json", EditFile, report=self.report)

    @classmethod
    def read_files(cls, folder: Path) -> "EditResult":
        """Read the files that `write_files` wrote to a folder."""
        file = reading.read_json(folder / "edit.json", EditFile)
        source = Run.load(folder / "source")
        edited = Run.load(folder / "edited")
        blend = None
        if "blend.png" in file.files:
            blend = read_mask(folder / "blend.png", source.image.size)
        return cls(source, edited, file.report, blend)


def read_mask(path: Path, size: tuple[int, int]) -> np.ndarray:
    """Read the mask of a blend, bool (H, W); RunError if it has another size (W, H)."""
    return np.asarray(reading.read_image(path, "1", size=size), dtype=bool)


# --- measures ---------------------------------------------------------------------------------


def change_between(
    before: Image.Image, after: Image.Image, inside: np.ndarray
) -> Change:
    """Measure the change of an image inside and outside of a mask, bool (H, W).

    Raises:
        ArgumentError: if the sizes differ.
    """
    if before.size != after.size or inside.shape != before.size[::-1]:
        raise ArgumentError(
            f"images of {before.size} and {after.size} and a mask of {inside.shape[::-1]} cannot "
            "be compared: expected one size"
        )
    a = _floats(before)
    b = _floats(after)
    squares = ((a - b) ** 2).mean(axis=-1)
    window = min(7, min(before.size) - (min(before.size) + 1) % 2)
    similar = similarity(a, b, window).mean(axis=-1)

    def measures(part: np.ndarray) -> Measures:
        mse = float(squares[part].mean()) if part.any() else None
        return Measures(
            share=round(float(part.mean()), 6),
            mse=mse,
            psnr_db=None if not mse else -10 * math.log10(mse),
            ssim=float(similar[part].mean()) if part.any() else None,
        )

    return Change(inside=measures(inside), outside=measures(~inside))


def image_difference(before: Image.Image, after: Image.Image) -> Measures:
    """Measure the difference of two images of one size."""
    everywhere = np.ones(before.size[::-1], dtype=bool)
    return change_between(before, after, everywhere).inside


def similarity(a: np.ndarray, b: np.ndarray, window: int) -> np.ndarray:
    """Return the structural similarity (SSIM) at each pixel and channel of two images.

    Over square windows of equal weights, with sample variances, K1 = 0.01 and K2 = 0.03: Wang,
    Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to structural
    similarity" (2004). Images are mirrored at their borders. Both are float64 (H, W, C)
    from 0 to 1; `window` is the side of a window in pixels, an odd number.
    """
    mean_a = _means(a, window)
    mean_b = _means(b, window)
    sample = window**2 / max(1, window**2 - 1)
    var_a = sample * (_means(a * a, window) - mean_a * mean_a)
    var_b = sample * (_means(b * b, window) - mean_b * mean_b)
    covariance = sample * (_means(a * b, window) - mean_a * mean_b)
    c1 = 0.01**2
    c2 = 0.03**2
    equal = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    return equal / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))


def _means(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the window around each pixel: (H, W, C) -> (H, W, C)."""
    half = window // 2
    for axis in (0, 1):
        border = [(half, half) if one == axis else (0, 0) for one in range(values.ndim)]
        lines = np.moveaxis(np.pad(values, border, mode="symmetric"), axis, 0)
        # From one window to the next: the pixel that comes in, less the one that goes out.
        first = np.add.accumulate(lines[:window])[-1:]
        sums = np.add.accumulate(
            np.concatenate([first, lines[window:] - lines[:-window]])
        )
        values = np.moveaxis(sums / window, 0, axis)
    return values


def _floats(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"), dtype=np.float64) / 255
