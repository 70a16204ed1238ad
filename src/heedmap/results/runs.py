"""A run: its image, maps and settings; saved to a folder and loaded again."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap.checks import flag
from heedmap.errors import RunError, plural, quoted
from heedmap.figures import plots
from heedmap.figures.overlays import Animation, StepPictures, mosaic_size, of_mosaic, png
from heedmap.io import reading, schemas
from heedmap.io.settings import Settings
from heedmap.io.values import encoded
from heedmap.io.writing import digest_of, files_in, slug, whole_folder
from heedmap.maps import word_figures
from heedmap.maps.heatmaps import HeatMaps, Scale
from heedmap.maps.recordings import Recording
from heedmap.options import Axis
from heedmap.page import pages
from heedmap.text.words import Word, concept_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEGATIVE, CONCEPTS, GIVEN = "negative.safetensors", "concepts.safetensors", "given.png"
_DISTORTED = 2  # times: so much wider or higher no picture of a step is


def given_in(folder: Path, about: Settings) -> Image.Image:
    """Read the user's picture that was edited."""
    given = reading.read_picture(folder / GIVEN, "RGB", size=about.size)
    if about.given is None or digest_of(given) != about.given.sha256:
        raise reading.torn(folder, "its settings and the picture that was edited", "run")
    return given


def maps_in(
    folder: Path,
    words: Iterable[schemas.WordFile],
    about: Settings,
    recording: Recording,
    image: Image.Image,
) -> HeatMaps:
    """Make maps with the stability of each, where the run was located."""
    if about.located is None:
        return HeatMaps(recording, image)
    held = {one.number: one.stability for one in words if one.stability is not UNSET}
    if not held.keys() <= {word.number for word in recording.table.read_words}:
        raise reading.torn(folder, "its words and its maps", "run")
    return HeatMaps(recording, image, stability=held or None)


def steps_in(
    folder: Path, held: schemas.StepsFile | None, count: int, shape: tuple[int, int]
) -> StepPictures | None:
    """Read the pictures of so many steps, where the run has them.

    They lie beneath the heat of a picture, and so have its shape, up to a cell of its latent.
    """
    if held is None:
        return None
    across, down = (small / side for small, side in zip(held.size, shape, strict=True))
    if held.count != count or max(across, down) > _DISTORTED * min(across, down):
        raise reading.torn(folder, "its picture, maps and the pictures of its steps", "run")
    sheet = reading.read_picture(folder / "steps.png", "RGB", size=mosaic_size(count, held.size))
    return of_mosaic(sheet, count, held.size, held.shows)


SOUGHT = "looked for beside the prompt"
"""What titles say of concepts."""
_INNER = {
    "pair.json": "its folder edited",
    "grid.json": "cells/001",
    "ablate.json": "its folder run",
}
MAX_SETTINGS = 4 * 2**20  # bytes of run.json


@dataclass(frozen=True, eq=False)
class Run:
    """One generated picture with its maps and everything that is needed to make it again.

    Attributes:
        image: the picture, as the pipeline gave it.
        maps: its heat maps by word.
        settings: what it was made with: `run.settings.seed`, `.prompt` (as it was written, with
            weights), `.steps`, `.size`, `.model`, `.arguments` and all else that decides it.
        negative_maps: the heat maps of the negative prompt, where its branch was recorded.
        concepts: the heat maps of what was looked for beside the prompt, each concept one word;
            None where nothing was: `run.concepts["sky"]`, as of `maps`.
        step_pictures: the picture at each step, small, where the steps were kept and could be
            followed (`figures.overlays`).
        given: of the source and the edits of a picture of your own that picture, as the model saw
            it.
    """

    image: Image.Image
    maps: HeatMaps
    settings: Settings
    negative_maps: HeatMaps | None = None
    step_pictures: StepPictures | None = None
    concepts: HeatMaps | None = None
    given: Image.Image | None = None

    def __repr__(self) -> str:
        (width, height), about = self.image.size, self.settings
        steps = plural(len(self.maps.recording.timesteps), "step")
        words = plural(len(self.maps), "word")
        return (
            f"<Run {quoted(about.prompt)}, seed {about.seed}: {width}×{height}, {steps}, {words}>"
        )

    @property
    def stability(self) -> Mapping[int, float] | None:
        """How stable the map of each word is over the noises, by its number: -1 to 1.

        Of a run of `locate`, where every step has noise of its own: the rank correlation of the map
        of the even steps with that of the odd ones. Concepts have `run.concepts.stability`. None
        where nothing was looked at, or once. What is stable is not therefore true.
        """
        return self.maps.stability

    def sheet(self, *, scale: Scale = "shared") -> Image.Image:
        """What `figure` shows, as a picture."""
        return plots.render(self.figure(scale=scale))

    def figure(self, *, scale: Scale = "shared") -> "Figure":
        """The picture, then one overlay a word, captioned, with the scale that was used.

        `run.figure().savefig("house.pdf")` saves it (`HeatMaps.figure`).
        """
        title = self.settings.prompt
        return self.maps.figure_and_overlays(title=title, scale=scale)[0]

    def timeline(
        self, word: str | int, *, frames: int = word_figures.FRAMES, scale: Scale = "word"
    ) -> "Figure":
        """A word's overlay at several steps, on one scale (`word_figures.timeline`)."""
        return word_figures.timeline(self.maps, word, frames=frames, scale=scale)

    def animation(self, word: str | int, *, scale: Scale = "word") -> Animation:
        """A word's overlay step by step: `.save("house.gif")` (`word_figures.animation`)."""
        return word_figures.animation(self.maps, word, scale=scale)

    def layers_by_heads(
        self, word: str | int, *, axes: Collection[Axis] | None = None, scale: Scale = "word"
    ) -> "Figure":
        """A word's heat in every layer and head, one scale (`word_figures.layers_by_heads`)."""
        return word_figures.layers_by_heads(self.maps, word, axes=axes, scale=scale)

    def explorer(self) -> str:
        """The page of this run: one HTML file that needs nothing else (`heedmap.page`)."""
        return pages.run_page(self)

    def _repr_html_(self) -> str:
        return pages.preview(self, self.sheet())

    def save(self, folder: str | Path, *, overlays: bool = True) -> Path:
        """Write the run's folder, whole or not at all.

        `image.png` (with the settings as a `parameters` text chunk, unless it was not drawn from
        noise), `given.png` (a picture of your own that was edited), `index.html` (the page),
        `sheet.png`, `words/<number>-<word>.png`, `maps.safetensors` (and `negative.safetensors`),
        `steps.png` (the pictures of the steps, row by row, where they were kept), `run.json`. Of
        concepts `concepts.safetensors`, their sheet `concepts.png`, and
        `words/concept-<number>-<concept>.png`.

        Args:
            folder: new or empty.
            overlays: whether the page, the sheet and the overlays of the first 75 words are
                written; `heedmap inspect` draws them, and all others, of what is left too.

        Returns:
            The folder.

        Raises:
            ArgumentError: if `folder` is not a path, or `overlays` not True or False.
            RunError: if something is there already, or nothing can be written there.
        """
        flag("overlays", overlays)
        with whole_folder(folder) as partial:
            self.write(partial, overlays=overlays)
        return Path(folder)

    def write(self, folder: Path, *, overlays: bool = True) -> None:
        """Write the files of `save` to an empty folder, one by one."""
        encoded(self.settings, "run.json")  # fails before anything is drawn
        folder.mkdir(parents=True, exist_ok=True)
        text = PngInfo()
        if not (self.settings.located or self.settings.given):  # no settings make those
            text.add_itxt("parameters", parameters_text(self.settings))
        (folder / "image.png").write_bytes(png(self.image, text))
        if self.given is not None:
            (folder / GIVEN).write_bytes(png(self.given))
        files: dict[int, str] = {}
        sought: dict[int, str] = {}
        if overlays:
            (folder / "words").mkdir()
            title = self.settings.prompt
            files = _write_sheet(folder, self.maps, "sheet.png", word_file, title)
            if self.concepts is not None:
                title = f"{title} · {SOUGHT}"
                sought = _write_sheet(folder, self.concepts, "concepts.png", concept_file, title)
            (folder / "index.html").write_text(self.explorer(), encoding="utf-8")
        self.maps.recording.save(folder / "maps.safetensors")
        for maps, name in ((self.negative_maps, NEGATIVE), (self.concepts, CONCEPTS)):
            if maps is not None:
                maps.recording.save(folder / name)
        steps = self.step_pictures
        if steps is not None:
            (folder / "steps.png").write_bytes(png(steps.mosaic()))
        content = schemas.RunFile(
            files=(*files_in(folder), "run.json"),
            settings=self.settings,
            steps=None
            if steps is None
            else schemas.StepsFile(len(steps.frames), steps.size, steps.shows),
            words=_word_files(self.maps, files),
            concepts=() if self.concepts is None else _word_files(self.concepts, sought),
        )
        schemas.write_file(folder / "run.json", content)

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """Read a saved run; no model and no torch is loaded.

        Raises:
            RunError: if the folder is not a run, or something in it is broken.
        """
        return read_run(reading.path_of(folder))


def read_run(folder: Path, size: tuple[int, int] | None = None) -> Run:
    """Read a run as `Run.load` does, and check its size (W, H) where one is given."""
    for mark, inner in _INNER.items():
        if os.path.isfile(folder / mark):
            raise RunError(f"{folder} has {mark} and holds several runs: name one, as {inner}")
    held = reading.read_json(folder / "run.json", schemas.RunFile, most=MAX_SETTINGS)
    about = held.settings
    if size is not None and about.size != size:
        raise reading.torn(folder, "the sizes of its pictures", "run")
    image = reading.read_picture(folder / "image.png", "RGB", size=about.size)
    recording = Recording.load(folder / "maps.safetensors")
    against, sought = (
        Recording.load(folder / name) if name in held.files else None
        for name in (NEGATIVE, CONCEPTS)
    )
    if (
        recording.table.prompt != about.text
        or any(one.size != image.size for one in (recording, against, sought) if one is not None)
        or (sought is not None and concept_table(about.concepts) != sought.table)
    ):
        raise reading.torn(folder, "its picture, maps and settings", "run")
    return Run(
        image,
        maps_in(folder, held.words, about, recording, image),
        about,
        None if against is None else HeatMaps(against, image),
        steps_in(folder, held.steps, len(recording.timesteps), image.size),
        None if sought is None else maps_in(folder, held.concepts, about, sought, image),
        given_in(folder, about) if GIVEN in held.files else None,
    )


def _write_sheet(
    folder: Path, maps: HeatMaps, name: str, file_of: Callable[[Word], str], title: str
) -> dict[int, str]:
    """Write a sheet of maps and the overlay of each word; by its number the overlay's file."""
    files: dict[int, str] = {}
    figure, overlays = maps.figure_and_overlays(title=title)
    (folder / name).write_bytes(plots.encode(figure))
    for word, overlay in zip(maps.words, overlays, strict=False):
        files[word.number] = file_of(word)
        (folder / files[word.number]).write_bytes(png(overlay))
    return files


def _word_files(maps: HeatMaps, files: Mapping[int, str]) -> tuple[schemas.WordFile, ...]:
    """Describe the words of maps for `run.json`."""
    held = maps.stability or {}
    return tuple(
        schemas.WordFile(w.number, w.text, w.tokens, files.get(w.number), held.get(w.number, UNSET))
        for w in maps.tokens.words
    )


def concept_file(word: Word) -> str:
    """The name of a concept's overlay within the run's folder."""
    return f"words/concept-{word.number}-{slug(word.text, 40)}.png"


def word_file(word: Word) -> str:
    """The name of a word's overlay within the run's folder."""
    return f"words/{word.number}-{slug(word.text, 40)}.png"


def parameters_text(settings: Settings) -> str:
    """The settings as the text that web UIs read from a picture's `parameters` chunk.

    Of an edit it says so: the same settings without its source draw another picture.
    """
    lines = [settings.prompt]
    if settings.negative:
        lines.append(f"Negative prompt: {settings.negative}")
    width, height = settings.size
    edit, edited = settings.edit, ""
    if edit is not None:
        # Quoted as web UIs quote values with commas in them; names that they do not know they skip.
        windows = (("cross", edit.cross), ("self", edit.self_attention))
        text = ", ".join(f"{name} {'–'.join(f'{b:g}' for b in bounds)}" for name, bounds in windows)
        source, said = (json.dumps(one, ensure_ascii=False) for one in (edit.source, text))
        edited = f", Edited from: {source}, Edit: {said}"
    lines.append(
        f"Steps: {settings.steps}, Sampler: {settings.scheduler}, "
        f"CFG scale: {settings.guidance}, Seed: {settings.seed}, Size: {width}x{height}, "
        f"Model: {settings.model}, Version: heedmap {settings.versions.heedmap}{edited}"
    )
    return "\n".join(lines)
