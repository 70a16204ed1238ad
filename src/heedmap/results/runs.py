"""A run: its image, maps and settings."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap.errors import NothingRecordedError, RunError, quoted
from heedmap.figures import plots
from heedmap.figures.overlays import (
    StepPictures,
    mosaic_size,
    of_mosaic,
)
from heedmap.io import reading
from heedmap.io.places import place_labels
from heedmap.io.schemas import (
    GuideReport,
    ResultFile,
    Settings,
    SideLength,
    StepSource,
)
from heedmap.io.word_edits import Confine, Mask
from heedmap.io.writing import png, slug
from heedmap.maps import word_figures
from heedmap.maps.budgets import Budget
from heedmap.maps.heatmaps import HeatMaps, Scale
from heedmap.maps.masks import region_coverage
from heedmap.maps.recordings import Recording
from heedmap.maps.text_attention import TextAttention
from heedmap.options import Axis
from heedmap.page import pages
from heedmap.results import Result, json_part

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class StepsFile(Struct, frozen=True):
    """The content of `steps.png`: the size and the source of each image."""

    size: tuple[SideLength, SideLength]
    shows: StepSource


class RunFile(ResultFile, frozen=True):
    """The content of `run.json`."""

    settings: Settings
    steps: StepsFile | None = None
    guide: GuideReport | None = None


@dataclass(frozen=True, eq=False)
class ReferenceImage:
    """An image that stood beside the one that was generated, such as that of Flux Kontext.

    Attributes:
        maps: its heat maps: where its own positions read each word of the prompt.
        places: the heat maps of what places of the image that was generated read of it, each one
            word; None without places.
        image: the image at the size of its positions; None where it is not known.
    """

    maps: HeatMaps
    places: HeatMaps | None = None

    @property
    def image(self) -> Image.Image | None:
        """The image at the size of its positions; None where it is not known."""
        return self.maps.image


@dataclass(frozen=True, eq=False)
class Run(Result):
    """One generated image with its maps, and all settings that generate it again.

    Its folder has `image.png` (with the settings as a `parameters` text chunk, unless it was edited
    or made from an image), `input.png` (an image of yours that was edited), `index.html` (the
    page), `sheet.png`, `words/<number>-<word>.png`, `maps.safetensors` (and
    `negative.safetensors`, `budget.safetensors`), `steps.png` (the images of the steps, row by row,
    if they were kept), `run.json`; of concepts `concepts.safetensors` and `concepts.png`; of places
    the same, as `places`; and of each reference image `reference-<number>.safetensors`,
    `reference-<number>.png`, `reference-<number>-sheet.png` and, with places,
    `reference-<number>-places.safetensors`; of what words read `reads.safetensors` and `reads.png`,
    `text.safetensors` and `text.png`.

    Attributes:
        image: the image, as the pipeline returned it.
        maps: its heat maps by word.
        settings: the arguments of the call, the pipeline and the versions: `run.settings.seed`,
            `.prompt` (with weights), `.steps`, `.size`, `.model`, `.arguments` and others.
        negative_maps: the heat maps of the negative prompt, if its branch was recorded.
        step_pictures: a small image of each step (`.frames`), if the steps were kept and the
            pipeline allowed it.
        concepts: the heat maps of the concepts, each one word: `run.concepts["sky"]`, and of some
            models `run.concepts.outputs["sky"]`; None without concepts.
        input_image: the image of yours that was edited, as the model saw it; None of other runs.
        references: the reference images (`run.references[0].maps["hat"]`).
        attention_budget: the shares of all attention, as `budget`; None where it was not recorded.
        places: the heat maps of what places read of the image, each one word, in the order of
            `settings.places`: `run.places[0].overlay()`; None without places.
        text_attention: the attention of the prompt's tokens to each other (`.values`, `.figure()`);
            None without `reads`.
        guide_report: the losses of the guides at each step, before and after the latents were
            changed, and the number of further passes; None without guides.
    """

    image: Image.Image
    maps: HeatMaps
    settings: Settings
    negative_maps: HeatMaps | None = None
    step_pictures: StepPictures | None = None
    concepts: HeatMaps | None = None
    input_image: Image.Image | None = None
    references: tuple[ReferenceImage, ...] = ()
    attention_budget: Budget | None = None
    places: HeatMaps | None = None
    text_attention: TextAttention | None = None
    guide_report: GuideReport | None = None

    @property
    def budget(self) -> Budget:
        """The shares of all attention: `run.budget(by=("layer", "step"))`.

        NothingRecordedError if the run was generated without `budget=True`.
        """
        if self.attention_budget is None:
            raise NothingRecordedError(
                "the budget was not recorded: pass budget=True (--budget)"
            )
        return self.attention_budget

    def __repr__(self) -> str:
        settings = self.settings
        return f"<Run {quoted(settings.prompt)}, seed {settings.seed}>"

    def figure(self, *, scale: Scale = "shared") -> "Figure":
        """Draw the image, then one overlay a word, with captions and the scale (`HeatMaps.figure`).

        The boxes of confined words are outlined on the image. `run.figure().savefig("house.pdf")`
        saves it.
        """
        return self._figure_and_overlays(scale)[0]

    def _figure_and_overlays(
        self, scale: Scale = "shared"
    ) -> tuple["Figure", list[Image.Image]]:
        title = self.settings.prompt
        figure, images = self.maps.figure_and_overlays(title=title, scale=scale)
        for edit in self.settings.edits:
            if isinstance(edit, Confine):
                where: Any = edit.where
                mask = region_coverage(where, *self.image.size, edit.word)
                plots.outline(figure, edit.word, mask)
        return figure, images

    def timeline(
        self,
        word: str | int | Sequence[str | int],
        *,
        frames: int = word_figures.FRAMES,
        scale: Scale = "word",
    ) -> "Figure":
        """Draw a word's overlay at several single steps, and the finished image.

            run.timeline(["cat", "snow"], frames=4)

        Args:
            word: a word or phrase of the prompt, or a word's number; of several, each is a row, and
                the image is left out.
            frames: the number of steps, evenly chosen from the first to the last.
            scale: "word", "shared" or "raw" (`HeatMap.value_range`), over all steps.

        Raises:
            SelectionError: if the steps were averaged while recording.
            WordError: if the model did not read such a word.
        """
        return word_figures.timeline(self.maps, word, frames=frames, scale=scale)

    def layers_by_heads(
        self,
        word: str | int,
        *,
        axes: Collection[Axis] | None = None,
        scale: Scale = "word",
    ) -> "Figure":
        """Draw a word's heat in every layer (rows) and head (columns), the mean over the steps.

        A layer with fewer heads than others leaves places blank.

        Args:
            word: a word or phrase of the prompt, or a word's number.
            axes: "layer", "head" or both; of one axis alone overlays are drawn, averaged over the
                other. Default: those that were kept.
            scale: "word", "shared" or "raw", over all maps of the figure.

        Raises:
            SelectionError: if an axis was averaged while recording, or both were.
            WordError: if the model did not read such a word.
        """
        return word_figures.layers_by_heads(
            self.maps,
            word,
            axes=axes,
            scale=scale,
        )

    def explorer(self) -> str:
        """Return the page of the run: the text of an HTML file that needs nothing else."""
        return pages.run_page(self)

    def parts(self, overlays: bool) -> dict[str, Any]:
        """Return the content of each file by its path in the folder; None is left out."""
        settings = self.settings
        steps = self.step_pictures
        text = PngInfo()
        # Settings alone do not generate those.
        if not (settings.edit or settings.located or settings.input_image):
            text.add_itxt("parameters", parameters_text(settings))
        parts: dict[str, Any] = {
            "image.png": png(self.image, text),
            "input.png": self.input_image,
            "steps.png": steps and steps.mosaic(),
            "reads.safetensors": self.maps.reading,
        }
        recorded: dict[str, Any] = {
            "maps": self.maps,
            "negative": self.negative_maps,
            "concepts": self.concepts,
            "places": self.places,
            "text": self.text_attention,
            "budget": self.attention_budget,
        }
        for number, reference in enumerate(self.references):
            parts[f"reference-{number}.png"] = reference.image
            recorded[f"reference-{number}"] = reference.maps
            recorded[f"reference-{number}-places"] = reference.places
        for name, maps in recorded.items():
            if maps is not None:
                parts[f"{name}.safetensors"] = maps.recording
        if overlays:
            parts |= self._drawn_parts()
        sizes = steps and StepsFile(steps.size, steps.shows)
        return parts | json_part(
            "run.json",
            RunFile,
            parts,
            settings=settings,
            steps=sizes,
            guide=self.guide_report,
        )

    def _drawn_parts(self) -> dict[str, Any]:
        """Return the page, the sheets and the overlays."""
        figure, images = self._figure_and_overlays()
        parts: dict[str, Any] = {
            "index.html": self.explorer().encode(),
            "sheet.png": plots.render(figure),
        }
        for word, image in zip(self.maps.words, images, strict=False):
            parts[f"words/{word.number}-{slug(word.text, 40)}.png"] = image
        others = {"concepts": self.concepts, "places": self.places}
        if self.text_attention is not None:
            others["reads"] = self.maps.reads
            parts["text.png"] = plots.render(self.text_attention.figure())
        for name, maps in others.items():
            if maps is None:
                continue
            title = f"{self.settings.prompt} · {name}"
            scale: Scale = "word" if name == "places" else "shared"
            figure = maps.figure(title=title, scale=scale)
            if name == "places":
                self.outline_places(figure)
            parts[f"{name}.png"] = plots.render(figure)
        for number, reference in enumerate(self.references):
            parts[f"reference-{number}-sheet.png"] = reference.maps.sheet()
        return parts

    def outline_places(self, figure: "Figure") -> None:
        """Outline the run's places on the image, the first panel of a figure."""
        width, height = self.image.size
        side = max(1, width // 40)
        places = self.settings.places
        for label, place in zip(place_labels(places), places, strict=True):
            region: Any = place
            if isinstance(place, str):
                region = Mask.of(self.maps[place].mask())
            elif isinstance(place, tuple) and len(place) == 2:
                x, y = place
                right, bottom = min(width, x + side), min(height, y + side)
                region = (max(0, x - side), max(0, y - side), right, bottom)
            mask = region_coverage(region, width, height, label)
            plots.outline(figure, label, mask)

    @classmethod
    def read_files(cls, folder: Path) -> "Run":
        """Read the files of a folder that `save` wrote."""
        if not folder.exists():
            raise RunError(
                f"there is no folder {folder}: name the folder of a saved result"
            )
        if not (folder / "run.json").is_file():
            raise RunError(
                f"{folder} has no run.json: name the folder of a run, such as 'edited' in that of "
                "an edit, or 'cells/001' in that of a grid"
            )
        file = reading.read_json(folder / "run.json", RunFile)
        settings = file.settings
        size = settings.size
        image = reading.read_image(folder / "image.png", size=size)
        recording = Recording.load(folder / "maps.safetensors")
        if (recording.table.prompt, recording.size) != (settings.text, size):
            raise RunError(
                f"{folder}: its image, maps and settings belong to different runs; make it again"
            )

        def load(name: str) -> Recording | None:
            file_name = f"{name}.safetensors"
            return (
                Recording.load(folder / file_name) if file_name in file.files else None
            )

        def maps_of(name: str, image: Image.Image | None = image) -> HeatMaps | None:
            part = load(name)
            return part and HeatMaps(part, image)

        text = load("text")
        budget = load("budget")
        steps = input_image = None
        if file.steps is not None:
            count = len(recording.timesteps)
            whole = mosaic_size(count, file.steps.size)
            mosaic = reading.read_image(folder / "steps.png", size=whole)
            steps = of_mosaic(
                mosaic,
                count,
                file.steps.size,
                file.steps.shows,
            )
        if "input.png" in file.files:
            input_image = reading.read_image(folder / "input.png", size=size)
        references: list[ReferenceImage] = []
        while read := load(name := f"reference-{len(references)}"):
            reference = None
            if f"{name}.png" in file.files:
                reference = reading.read_image(folder / f"{name}.png", size=read.size)
            places = maps_of(f"{name}-places", reference)
            references.append(ReferenceImage(HeatMaps(read, reference), places))
        return cls(
            image,
            HeatMaps(recording, image, reading=load("reads")),
            settings,
            negative_maps=maps_of("negative"),
            step_pictures=steps,
            concepts=maps_of("concepts"),
            input_image=input_image,
            references=tuple(references),
            attention_budget=budget and Budget(budget),
            places=maps_of("places"),
            text_attention=text and TextAttention(text),
            guide_report=file.guide,
        )


def parameters_text(settings: Settings) -> str:
    """Return settings as the `parameters` text that web UIs read from an image."""
    lines = [settings.prompt]
    if settings.negative:
        lines.append(f"Negative prompt: {settings.negative}")
    width, height = settings.size
    lines.append(
        f"Steps: {settings.steps}, Sampler: {settings.scheduler}, "
        f"CFG scale: {settings.guidance}, Seed: {settings.seed}, Size: {width}x{height}, "
        f"Model: {settings.model}, Version: heedmap {settings.versions.heedmap}"
    )
    return "\n".join(lines)
