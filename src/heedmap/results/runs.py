"""A run: its image, maps and settings; and several runs on one sheet."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap.checks import as_list, check_one_of
from heedmap.errors import (
    ArgumentError,
    NothingRecordedError,
    RunError,
    plural,
    quoted,
)
from heedmap.figures import plots
from heedmap.figures.overlays import (
    StepPictures,
    mosaic_size,
    of_mosaic,
)
from heedmap.io import reading
from heedmap.io.places import place_label
from heedmap.io.schemas import (
    GuideReport,
    ResultFile,
    Settings,
    SideLength,
    StepSource,
)
from heedmap.io.word_edits import Confine
from heedmap.io.writing import png, slug
from heedmap.maps import word_figures
from heedmap.maps.budgets import Budget
from heedmap.maps.heatmaps import (
    SCALES,
    HeatMap,
    HeatMaps,
    Scale,
    colour_ranges,
    scale_name,
)
from heedmap.maps.recordings import Recording
from heedmap.maps.text_attention import TextAttention
from heedmap.options import SHARES, Axis, Share
from heedmap.page import pages
from heedmap.results import Result, json_part
from heedmap.text.prompts import is_content
from heedmap.text.words import Word

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
    if they were kept), `run.json`; of concepts `concepts.safetensors`, `concepts.png` and
    `words/concept-<number>-<concept>.png`; of places the same, as `places` and `place`; and of each
    reference image `reference-<number>.safetensors`, `reference-<number>.png`,
    `reference-<number>-sheet.png` and, with places, `reference-<number>-places.safetensors`; of
    what words read `reads.safetensors` and `reads.png`, `text.safetensors` and `text.png`.

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
            if isinstance(edit, Confine) and isinstance(edit.where, tuple):
                plots.outline(
                    figure,
                    edit.word,
                    edit.where,
                    self.image.width,
                )
        return figure, images

    def sheet(self, *, scale: Scale = "shared") -> Image.Image:
        """Return `figure` as an image."""
        return plots.render(self.figure(scale=scale))

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
            parts[word_file(word)] = image
        others = {"concept": self.concepts, "place": self.places}
        if self.text_attention is not None:
            others["read"] = self.maps.reads
            parts["text.png"] = plots.render(self.text_attention.figure())
        for kind, maps in others.items():
            if maps is None:
                continue
            title = f"{self.settings.prompt} · {kind}s"
            scale: Scale = "word" if kind == "place" else "shared"
            figure, images = maps.figure_and_overlays(title=title, scale=scale)
            if kind == "place":
                self._outline_places(figure)
            parts[f"{kind}s.png"] = plots.render(figure)
            for word, image in zip(maps.words, images, strict=False):
                parts[word_file(word, f"{kind}-")] = image
        for number, reference in enumerate(self.references):
            parts[f"reference-{number}-sheet.png"] = reference.maps.sheet()
        return parts

    def _outline_places(self, figure: "Figure") -> None:
        """Outline pixels and boxes on the image, the first panel of a figure."""
        width = self.image.width
        for place in self.settings.places:
            box = place
            if isinstance(place, tuple) and len(place) == 2:
                x, y = place
                side = max(1.0, width / 40)
                box = (x - side, y - side, x + side, y + side)
            if isinstance(box, tuple):
                plots.outline(figure, place_label(place), box, width)

    @classmethod
    def read_files(cls, folder: Path) -> "Run":
        """Read the files of a folder that `save` wrote."""
        if not (folder / "run.json").is_file():
            raise RunError(_why_no_run(folder))
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


def _why_no_run(folder: Path) -> str:
    if not folder.exists():
        return f"there is no folder {folder}: name the folder of a saved result"
    return (
        f"{folder} has no run.json: name the folder of a run, such as 'edited' in that of an edit, "
        "or 'cells/001' in that of a grid"
    )


def word_file(word: Word, prefix: str = "") -> str:
    """Return the name of a word's overlay in a run's folder; concepts and places have a prefix."""
    return f"words/{prefix}{word.number}-{slug(word.text, 40)}.png"


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


# --- several runs -----------------------------------------------------------------------------

_SCALES: dict[Scale, str] = {
    "shared": "shared by all words and runs",
    "word": "separate for each word, the same in all runs",
    "raw": "raw probability",
}


def compare(
    runs: Sequence[Run | str | Path],
    words: Sequence[str] | None = None,
    *,
    scale: Scale = "shared",
) -> "Figure":
    """Draw runs below one another: each with its image and the overlays of words.

        heedmap.compare([run, "outputs/house"], ["house"]).savefig("compared.pdf")

    If their values are not comparable, because a UNet and a transformer with joint attention made
    them, each kind of value has its own scale.

    Args:
        runs: two or more, or their folders, of any size and model; the label of a row says what
            differs.
        words: words or phrases. Default: those that all prompts have (without "the", "of" and the
            like, if there are others), in the order of the first.
        scale: "shared" (one for all), "word" (one for each word, the same in all runs) or "raw"
            (0 to 1).

    Returns:
        A matplotlib figure with a row for each run.

    Raises:
        ArgumentError: if there are fewer than two runs, or no word is common to all.
        RunError: if a folder holds no run.
        WordError: if no run has read one of the words.
    """
    check_one_of("scale", scale, SCALES)
    several = [
        Run.load(run) if isinstance(run, str | Path) else run
        for run in as_list(runs) or ()
    ]
    if len(several) < 2:
        raise ArgumentError(
            "nothing to compare: expected two or more runs, or their folders"
        )
    names = common_words(several) if words is None else as_list(words)
    if not names:
        raise ArgumentError(
            f"words is {quoted(words)}: expected a list of words; omit it for all"
        )
    small = [word_figures.resized(run.maps, word_figures.SIDE) for run in several]
    for name in names:
        if not any(name in maps for maps in small):
            several[0].maps.tokens.find(name)  # raises
    texts = [setting_texts(run) for run in several]
    common = {
        name: text
        for name, text in texts[0].items()
        if all(other[name] == text for other in texts)
    }
    note = ("seed", "steps", "guidance", "size", "model")
    bars: list[plots.ScaleBar] = []
    ranges: dict[Any, tuple[float, float]] = {}  # by share and word
    shares: list[Share | None] = [maps.recording.share_of for maps in small]
    for share in dict.fromkeys(shares):
        columns: dict[Any, list[HeatMap]] = {}
        for word in names:
            for maps in small:
                if maps.recording.share_of == share and word in maps:
                    columns.setdefault((share, word), []).append(maps[word])
        if columns:
            # Of the maps here, not of all words.
            values: Scale = "raw" if scale == "raw" else "word"
            spans, ends = colour_ranges(
                columns.values(), values, shared=scale != "word"
            )
            ranges |= zip(columns, spans, strict=True)
            bars.append(plots.ScaleBar(scale_name(_SCALES[scale], share), ends))
    rows: list[list[Image.Image | str]] = []
    for maps in small:
        row: list[Image.Image | str] = [maps.image or ""]
        for word in names:
            cell = "not read"
            if word in maps:
                span = ranges[maps.recording.share_of, word]
                cell = maps[word].render(*span, short_side=1)
            row.append(cell)
        rows.append(row)
    return plots.draw_table(
        [*zip(labels(several), rows, strict=True)],
        ["the image", *names],
        title=common.get("prompt", f"{len(several)} runs compared"),
        note=" · ".join(filter(None, map(common.get, note))),
        bars=bars,
    )


def setting_texts(run: Run) -> dict[str, str]:
    """Return the texts of settings that tell runs apart, in the order of a label."""
    settings = run.settings
    edit = settings.edit
    guidance = settings.guidance
    negative = settings.negative
    arguments = [f"{name} {value}" for name, value in settings.arguments.items()]
    return {
        "prompt": settings.prompt,
        "negative": f"negative: {negative}" if negative else "no negative prompt",
        "edit": f"edited from “{edit.source}”" if edit else "",
        "edits": ", ".join(map(str, settings.edits)) or "no edits",
        "guide": ", ".join(map(str, settings.guide)) or "no guide",
        "seed": f"seed {settings.seed}",
        "steps": plural(settings.steps, "step") if settings.steps else "",
        "guidance": "" if guidance is None else f"guidance {guidance:g}",
        "size": "{}×{}".format(*settings.size),
        "model": settings.model,
        "share_of": SHARES[run.maps.recording.share_of],
        "scheduler": settings.scheduler,
        "dtype": settings.dtype,
        "arguments": ", ".join(arguments),
    }


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a label of each run: its prompt, seed, steps, model and so on, where they differ."""
    several = [setting_texts(run) for run in runs]
    names = [name for name in several[0] if len({run[name] for run in several}) > 1]
    return [", ".join(filter(None, map(run.get, names))) for run in several]


def common_words(runs: Sequence[Run]) -> list[str]:
    """Return the words that all runs have read, in the order of the first; ArgumentError if none.

    Words such as "the" and "of" are in it only if there are no others.
    """
    texts = dict.fromkeys(word.text for word in runs[0].maps.words)
    common = [text for text in texts if all(text in run.maps for run in runs)]
    if not common:
        raise ArgumentError(
            "these prompts have no word in common: name the words to compare"
        )
    return [text for text in common if is_content(text)] or common
