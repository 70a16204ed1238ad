"""A run: its image, maps and settings; and several runs on one sheet."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap.checks import as_list, check_bool, check_one_of
from heedmap.errors import ArgumentError, RunError, join_words, plural, quoted
from heedmap.figures import plots
from heedmap.figures.overlays import (
    Animation,
    centred,
    mosaic_size,
    of_mosaic,
    png,
)
from heedmap.io import reading
from heedmap.io.schemas import (
    FORMAT,
    Confined,
    Name,
    Note,
    Settings,
    SideLength,
    Small,
    StepSource,
    Text,
)
from heedmap.io.writing import slug, whole_folder
from heedmap.maps import word_figures
from heedmap.maps.heatmaps import (
    SCALES,
    HeatMap,
    HeatMaps,
    Scale,
    common_range,
    scale_name,
)
from heedmap.maps.recordings import Recording
from heedmap.options import SHARES, Axis, Share
from heedmap.page import pages
from heedmap.results import Files, Result, write_json
from heedmap.text.prompts import is_content
from heedmap.text.words import Word

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NEGATIVE = "negative.safetensors"
_CONCEPTS = "concepts.safetensors"
_INPUT = "input.png"
_RUNS_IN = {"edit.json": "edited", "grid.json": "cells/001", "ablate.json": "run"}


class WordFile(Struct, frozen=True):
    """A word of a run: the file of its overlay within the folder."""

    number: Small
    text: Text
    tokens: tuple[Small, ...]
    file: Name | None = None


class StepsFile(Struct, frozen=True):
    """The content of `steps.png`: the number of images, and the size and source of each."""

    count: Small
    size: tuple[SideLength, SideLength]
    shows: StepSource


class RunFile(Note, frozen=True, kw_only=True):
    """The content of `run.json`, with the words of the prompt and the concepts."""

    format: int = FORMAT
    files: Files
    settings: Settings
    steps: StepsFile | None = None
    words: tuple[WordFile, ...] = ()
    concepts: tuple[WordFile, ...] = ()


@dataclass(frozen=True, eq=False)
class Run(pages.RunContent, Result):
    """One generated image with its maps, and all settings that generate it again.

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
    """

    input_image: Image.Image | None = None

    def __repr__(self) -> str:
        width, height = self.image.size
        settings = self.settings
        steps = plural(len(self.maps.recording.timesteps), "step")
        return (
            f"<Run {quoted(settings.prompt)}, seed {settings.seed}: {width}×{height}, {steps}, "
            f"{plural(len(self.maps.words), 'word')}>"
        )

    def figure(self, *, scale: Scale = "shared") -> "Figure":
        """Draw the image, then one overlay a word, with captions and the scale (`HeatMaps.figure`).

        The boxes of confined words are outlined on the image. `run.figure().savefig("house.pdf")`
        saves it.
        """
        title = self.settings.prompt
        figure = self.maps.figure_and_overlays(title=title, scale=scale)[0]
        _outline_boxes(figure, self.settings.edits, self.image.width)
        return figure

    def sheet(self, *, scale: Scale = "shared") -> Image.Image:
        """Return `figure` as an image."""
        return plots.render(self.figure(scale=scale))

    def timeline(
        self,
        word: str | int | Sequence[str | int],
        *,
        frames: int = word_figures.FRAMES,
        scale: Scale = "word",
        width: float | None = None,
    ) -> "Figure":
        """Draw a word's overlay at several single steps, and the finished image.

            run.timeline(["cat", "snow"], frames=4, width=3.25)     # a column of a paper

        Args:
            word: a word or phrase of the prompt, or a word's number; of several, each is a row, and
                the image is left out.
            frames: the number of steps, evenly chosen from the first to the last.
            scale: "word", "shared" or "raw" (`HeatMap.value_range`), over all steps.
            width: of the figure, in inches, from 2 to 100. Default: by the number of steps.

        Raises:
            ArgumentError: if the width has no room for the frames.
            SelectionError: if the steps were averaged while recording.
            WordError: if the model did not read such a word.
        """
        return word_figures.timeline(
            self.maps, word, frames=frames, scale=scale, width=width
        )

    def animation(self, word: str | int, *, scale: Scale = "word") -> Animation:
        """Draw a word's overlay step by step, of at most 60 steps; arguments as in `timeline`."""
        return word_figures.animation(self.maps, word, scale=scale)

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
        return word_figures.layers_by_heads(self.maps, word, axes=axes, scale=scale)

    def explorer(self) -> str:
        """Return the page of the run: the text of an HTML file that needs nothing else."""
        return pages.run_page(self)

    def save(self, folder: str | Path, *, overlays: bool = True) -> Path:
        """Write the run to a folder, whole or not at all, and return the folder.

        `image.png` (with the settings as a `parameters` text chunk, unless it was made from an
        image), `input.png` (an image of yours that was edited), `index.html` (the page),
        `sheet.png`, `words/<number>-<word>.png`, `maps.safetensors` (and `negative.safetensors`),
        `steps.png` (the images of the steps, row by row, if they were kept), `run.json`; and of
        concepts `concepts.safetensors`, `concepts.png` and `words/concept-<number>-<concept>.png`.

        Args:
            folder: new or empty.
            overlays: if True, write the page, the sheets and the overlays of the first 75 words;
                `heedmap inspect` with an option draws overlays from the other files, too.

        Raises:
            ArgumentError: if `folder` is not a path, or `overlays` not True or False.
            RunError: if the folder is not empty, or cannot be written.
        """
        check_bool("overlays", overlays)
        with whole_folder(folder) as partial:
            self.write_files(partial, overlays=overlays)
        return Path(folder)

    def write_files(self, folder: Path, *, overlays: bool = True) -> None:
        """Write the files of `save` to a folder, which is made if it is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        text = PngInfo()
        settings = self.settings
        steps = self.step_pictures
        # Settings alone do not generate those.
        if not (settings.located or settings.input_image):
            text.add_itxt("parameters", parameters_text(settings))
        (folder / "image.png").write_bytes(png(self.image, text))
        if self.input_image is not None:
            (folder / _INPUT).write_bytes(png(self.input_image))
        if overlays:
            (folder / "words").mkdir()
            (folder / "index.html").write_text(self.explorer(), encoding="utf-8")
        title = settings.prompt
        concepts = ()
        sheet = folder / "sheet.png"
        words = _write_words(
            self.maps, sheet, title, overlays=overlays, edits=settings.edits
        )
        if self.concepts is not None:
            title = f"{title} · concepts"
            prefix = "concept-"
            path = folder / "concepts.png"
            concepts = _write_words(
                self.concepts, path, title, prefix, overlays=overlays
            )
        self.maps.recording.save(folder / "maps.safetensors")
        for maps, name in ((self.negative_maps, _NEGATIVE), (self.concepts, _CONCEPTS)):
            if maps is not None:
                maps.recording.save(folder / name)
        if steps is not None:
            (folder / "steps.png").write_bytes(png(steps.mosaic()))
        write_json(
            folder / "run.json",
            RunFile,
            settings=settings,
            steps=steps and StepsFile(len(steps.frames), steps.size, steps.shows),
            words=words,
            concepts=concepts,
        )

    @classmethod
    def read_files(cls, folder: Path) -> "Run":
        """Read the files that `write_files` wrote to a folder."""
        for name, place in _RUNS_IN.items():
            if (folder / name).is_file():
                raise RunError(
                    f"{folder} holds several runs: name one of them, as {folder / place}"
                )
        file = reading.read_json(folder / "run.json", RunFile)
        settings = file.settings
        size = file.settings.size
        image = reading.read_image(folder / "image.png", size=size)
        recording = Recording.load(folder / "maps.safetensors")
        if (recording.table.prompt, recording.size) != (settings.text, size):
            raise RunError(
                f"{folder}: its image, maps and settings belong to different runs; make it again"
            )
        negative, concepts = (
            HeatMaps(Recording.load(folder / name), image)
            if name in file.files
            else None
            for name in (_NEGATIVE, _CONCEPTS)
        )
        steps = None
        if file.steps is not None:
            count = len(recording.timesteps)
            small = file.steps.size
            mosaic = reading.read_image(
                folder / "steps.png", size=mosaic_size(count, small)
            )
            steps = of_mosaic(mosaic, count, small, file.steps.shows)
        return cls(
            image,
            HeatMaps(recording, image),
            settings,
            negative,
            steps,
            concepts,
            reading.read_image(folder / _INPUT, size=size)
            if _INPUT in file.files
            else None,
        )


def _write_words(
    maps: HeatMaps,
    sheet: Path,
    title: str,
    prefix: str = "",
    *,
    overlays: bool,
    edits: Sequence[Note] = (),
) -> tuple[WordFile, ...]:
    """Describe the words of maps; with `overlays`, write their sheet and the overlays on it.

    The boxes of the edits are outlined on the sheet.
    """
    files: dict[int, str] = {}
    if overlays:
        figure, images = maps.figure_and_overlays(title=title)
        _outline_boxes(figure, edits, maps.recording.size[0])
        sheet.write_bytes(plots.encode(figure))
        for word, image in zip(maps.words, images, strict=False):
            files[word.number] = word_file(word, prefix)
            (sheet.parent / files[word.number]).write_bytes(png(image))
    return tuple(
        WordFile(n, word.text, word.tokens, files.get(n))
        for n, word in enumerate(maps.tokens.words)
    )


def _outline_boxes(figure: "Figure", edits: Sequence[Note], width: int) -> None:
    for edit in edits:
        if isinstance(edit, Confined) and isinstance(edit.where, tuple):
            plots.outline(figure, edit.word, edit.where, width)


def word_file(word: Word, prefix: str = "") -> str:
    """Return the name of a word's overlay in a run's folder; concepts have a prefix, "concept-"."""
    return f"words/{prefix}{word.number}-{slug(word.text, 40)}.png"


def parameters_text(settings: Settings) -> str:
    """Return settings as the `parameters` text that web UIs read from an image."""
    lines = [settings.prompt]
    if settings.negative:
        lines.append(f"Negative prompt: {settings.negative}")
    width, height = settings.size
    edit = settings.edit
    edited = ""
    if edit is not None:  # these settings without the source generate another image
        windows = "cross {:g}–{:g}, self {:g}–{:g}".format(
            *edit.cross_replace, *edit.self_replace
        )
        source = json.dumps(edit.source, ensure_ascii=False)
        edited = f', Edited from: {source}, Edit: "{windows}"'
    lines.append(
        f"Steps: {settings.steps}, Sampler: {settings.scheduler}, "
        f"CFG scale: {settings.guidance}, Seed: {settings.seed}, Size: {width}x{height}, "
        f"Model: {settings.model}, Version: heedmap {settings.versions.heedmap}{edited}"
    )
    return "\n".join(lines)


# --- several runs -----------------------------------------------------------------------------

_SCALES: dict[Scale, str] = {
    "shared": "shared by all words and runs{}",
    "word": "separate for each word, the same in all runs{}",
    "raw": "raw probability{}",
}
_LABELS: dict[str, Callable[[Any], str]] = {
    "prompt": str,
    "negative": lambda text: f"negative: {text}" if text else "no negative prompt",
    "edit": lambda edit: f"edited from “{edit.source}”" if edit else "",
    "edits": lambda edits: ", ".join(map(str, edits)) or "no edits",
    "seed": "seed {}".format,
    "steps": lambda steps: plural(steps, "step") if steps else "",
    "guidance": lambda scale: "" if scale is None else f"guidance {scale:g}",
    "size": lambda size: "{}×{}".format(*size),
    "model": str,
    "share_of": str,
    "scheduler": str,
    "dtype": str,
    "arguments": lambda values: ", ".join(
        f"{name} {value}" for name, value in values.items()
    ),
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
    given = as_list(runs)
    several = [
        Run.load(run) if isinstance(run, str | Path) else run for run in given or ()
    ]
    if given is None or not all(hasattr(run, "maps") for run in several):
        raise ArgumentError(
            f"runs is {quoted(runs)}: expected a list of two or more runs or their folders, as in "
            "compare([a, b])"
        )
    if len(several) < 2:
        raise ArgumentError(
            f"runs is a list of {plural(len(several), 'result')}: choose two or more results"
        )
    names = common_words(several) if words is None else as_list(words)
    if not names or not all(isinstance(word, str) for word in names):
        raise ArgumentError(
            f"words is {quoted(words)}: expected a list of words; omit it for all"
        )
    check_one_of("scale", scale, SCALES)
    names = list(dict.fromkeys(names))
    small = [word_figures.resized(run.maps, word_figures.SIDE) for run in several]
    for name in names:
        if not any(name in maps for maps in small):
            several[0].maps.tokens.find(name)  # raises
    first, *others = [setting_texts(run).items() for run in several]
    common = dict(pair for pair in first if all(pair in texts for texts in others))
    note = [
        common.get(name)
        for name in ("seed", "steps", "guidance", "size", "model", "share_of")
    ]
    rows: list[list[Image.Image | str]] = [[maps.image or ""] for maps in small]
    shares: list[Share | None] = [maps.recording.share_of for maps in small]
    bars: list[plots.ScaleBar] = []
    for share in dict.fromkeys(shares):
        group = [number for number, one in enumerate(shares) if one == share]
        heats = [[small[n][word] for n in group if word in small[n]] for word in names]
        spans, ends = _spans(heats, scale)
        name = _SCALES[scale].format("")
        if len({*shares}) > 1:
            models = dict.fromkeys(several[n].settings.model for n in group)
            name = scale_name(
                _SCALES[scale].format(f" of {join_words([*models])}"), share
            )
        bars += [plots.ScaleBar(name, ends)] if any(heats) else []
        for number in group:
            maps = small[number]
            rows[number] += [
                maps[word].render(*span, short_side=1) if word in maps else "not read"
                for word, span in zip(names, spans, strict=True)
            ]
    return plots.draw_table(
        [*zip(labels(several), rows, strict=True)],
        ["the image", *names],
        title=common.get("prompt", f"{len(several)} runs compared"),
        note=" · ".join(filter(None, note)),
        bars=bars,
    )


def _spans(
    heats: Sequence[Sequence[HeatMap]], scale: Scale
) -> tuple[list[tuple[float, float]], tuple[float, float] | tuple[str, str]]:
    """Return the coldest and the hottest value of each word, and the ends of the scale's bar."""
    # Of the maps here, not of all words.
    values: Scale = "raw" if scale == "raw" else "word"
    maps = [one for column in heats for one in column]
    every = common_range(maps, values) if maps else (0.0, 0.0)
    separate = scale == "word"
    spans = [
        common_range(column, values) if separate and column else every
        for column in heats
    ]
    negative = min(spans)[0] < 0
    spans = [centred(*span) for span in spans] if negative else spans
    return spans, ("−most" if negative else "least", "most") if separate else every


def setting_texts(run: Run) -> dict[str, str]:
    """Return the texts of settings that tell runs apart, in the order of a label."""
    texts = {name: text(getattr(run.settings, name)) for name, text in _LABELS.items()}
    texts["share_of"] = SHARES[run.maps.recording.share_of]
    return texts


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a label of each run: its prompt, seed, steps, model and so on, where they differ.

    Of different models, the scheduler and the arguments are named only if nothing else differs.
    """
    several = [setting_texts(run) for run in runs]
    names = [name for name in _LABELS if len({texts[name] for texts in several}) > 1]
    short = [name for name in names if name not in ("scheduler", "arguments")]
    texts: list[str] = []
    for chosen in (short, names) if "model" in names else (names,):
        texts = [
            ", ".join(filter(None, (one[name] for name in chosen))) for one in several
        ]
        if len(set(texts)) == len(runs):
            return texts
    return [
        ", ".join(filter(None, (f"run {n}", text))) for n, text in enumerate(texts, 1)
    ]


def common_words(runs: Sequence[Run]) -> list[str]:
    """Return the words that all runs have read, in the order of the first; ArgumentError if none.

    Words such as "the" and "of" are in it only if there are no others.
    """
    texts: dict[str, str] = {}
    for word in runs[0].maps.words:
        texts.setdefault(word.text.casefold(), word.text)
    common = [text for text in texts.values() if all(text in run.maps for run in runs)]
    if not common:
        raise ArgumentError(
            "these prompts have no word in common: name the words to compare"
        )
    return [text for text in common if is_content(text)] or common
