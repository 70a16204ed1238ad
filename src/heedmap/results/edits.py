"""A source image and its edit, with the measures of the change."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageChops

from heedmap.errors import quoted
from heedmap.figures import overlays, plots
from heedmap.figures.overlays import enlarge, to_rgb
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.io import reading
from heedmap.io.schemas import EditReport, ResultFile, returned
from heedmap.maps.heatmaps import colour_ranges, scale_name
from heedmap.page import pages
from heedmap.results import Result, json_part, within
from heedmap.results.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class EditFile(ResultFile, frozen=True):
    """The content of `edit.json`."""

    report: EditReport


@dataclass(frozen=True, eq=False)
class EditResult(Result):
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
    report: EditReport
    blend: np.ndarray | None = None

    def __repr__(self) -> str:
        source = quoted(self.source.settings.prompt)
        return f"<EditResult {source} → {quoted(self.edited.settings.prompt)}>"

    def difference(self) -> Image.Image:
        """Draw the mean change of each pixel's colours as heat, from 0 to the largest change."""
        change = self._change()
        return draw_change(change, float(change.max()))

    def _change(self) -> np.ndarray:
        return pixel_change(self.source.image, self.edited.image)

    def figure(self) -> "Figure":
        """Draw both images, their difference, the changed words of both, and the blend's mask.

        If an image of yours was edited, it comes first.
        """
        words = self.report.words
        heats = [(self.source.maps.at(number), "before") for number in words.source]
        heats += [(self.edited.maps.at(number), "after") for number in words.edited]
        ends: Any = 0.0, 1.0
        if heats:
            of_words = [heat for heat, _ in heats]
            _, ends = colour_ranges([of_words], "shared", shared=True)
        source = self.source.settings.prompt
        edited = self.edited.settings.prompt
        change = f"up to {self._change().max():.0%} of full range"
        image = self.source.input_image
        back = self.report.reconstruction
        images = [
            ("the source", self.source.image, source),
            ("the edit", self.edited.image, edited),
            ("the difference", self.difference(), change),
        ]
        if image is not None and back is not None:
            images.insert(0, ("your image", image, returned(back.psnr_db)))
        panels = [Panel(name, enlarge(one), note) for name, one, note in images]
        for heat, side in heats:
            panels.append(Panel(f"{heat.label} ({side})", heat.render(*ends)))
        if self.blend_image is not None:
            panels.append(Panel("region that may change", enlarge(self.blend_image)))
        share = self.source.maps.recording.share_of
        name = scale_name("shared by both prompts' words", share)
        bars = [ScaleBar(name, ends)]
        return plots.draw_panels(
            panels,
            title=f"{source} → {edited}",
            bars=bars,
        )

    @property
    def blend_image(self) -> Image.Image | None:
        """The mask of the blend as an image, white inside; None without a blend."""
        return None if self.blend is None else Image.fromarray(self.blend)

    def explorer(self) -> str:
        """Return the page of the edit: the text of an HTML file that needs nothing else."""
        return pages.pairs_page([("", self)])

    def parts(self, overlays: bool) -> dict[str, Any]:
        """Return the content of each file by its path in the folder; None is left out."""
        parts: dict[str, Any] = {
            **within("source", self.source, overlays),
            **within("edited", self.edited, overlays),
            "difference.png": self.difference(),
            "blend.png": self.blend_image,
        }
        if overlays:
            parts["index.html"] = self.explorer().encode()
            parts["sheet.png"] = self.sheet()
        return parts | json_part(
            "edit.json",
            EditFile,
            parts,
            report=self.report,
        )

    @classmethod
    def read_files(cls, folder: Path) -> "EditResult":
        """Read the files of a folder that `save` wrote."""
        file = reading.read_json(folder / "edit.json", EditFile)
        source = Run.load(folder / "source")
        edited = Run.load(folder / "edited")
        blend = read_blend(folder, source) if "blend.png" in file.files else None
        return cls(source, edited, file.report, blend)


def read_blend(folder: Path, source: Run) -> np.ndarray:
    """Read the mask of a blend, bool (H, W); RunError if its size is not that of the source."""
    path = folder / "blend.png"
    image = reading.read_image(path, "1", size=source.image.size)
    return np.asarray(image, dtype=bool)


def load_result(result: Run | EditResult | str | Path) -> Run | EditResult:
    """Return a result, or load the run or edit in a folder, without a model and torch.

    Raises:
        ArgumentError: if it is neither.
        RunError: if there is none, or something in it is broken.
    """
    if isinstance(result, Run | EditResult):
        return result
    folder = reading.path_of(result)
    if (folder / "edit.json").is_file():
        return EditResult.load(folder)
    return Run.load(folder)


# --- measures ---------------------------------------------------------------------------------


def pixel_change(before: Image.Image, after: Image.Image) -> np.ndarray:
    """Return |x − y| of each pixel, the mean over the colours: float32 (H, W), 0 to 1."""
    change = ImageChops.difference(to_rgb(before), to_rgb(after))
    levels = np.asarray(change).sum(axis=-1)
    return (levels / (3 * 255)).astype(np.float32)


def draw_change(change: np.ndarray, top: float) -> Image.Image:
    """Draw the change of each pixel (H, W) as heat, from 0 to `top`."""
    size = change.shape[::-1]
    return overlays.heat(
        change,
        size,
        low=0,
        high=max(1 / 255, top),
    )
