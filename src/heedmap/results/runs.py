"""A run on disk: written whole or not at all, read back equal, never trusted."""

import json
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap import explorer
from heedmap.checks import flag
from heedmap.errors import RunError, plural, quoted
from heedmap.figures.animations import Animation
from heedmap.figures.formats import png
from heedmap.figures.layout import Laid
from heedmap.figures.step_pictures import StepPictures
from heedmap.files import kinds, reading, schemas
from heedmap.files.ablations import MARK, Trust
from heedmap.files.notes import FrozenDict
from heedmap.files.settings import Settings
from heedmap.files.writing import slug, whole_folder
from heedmap.maps import layer_heads, timelines
from heedmap.maps.heatmaps import HeatMaps, Scale
from heedmap.maps.recordings import Recording
from heedmap.options import Axis
from heedmap.results.run_files import (
    CONCEPTS,
    GIVEN,
    NEGATIVE,
    given_in,
    is_placed,
    maps_in,
    recorded_in,
    steps_in,
    trust_in,
)
from heedmap.text.concepts import concept_table
from heedmap.text.words import Word

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

FORMAT = 1
SOUGHT = "looked for beside the prompt"
"""What titles say of concepts."""
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
            followed (`figures.step_pictures`).
        given: of the source and the edits of a picture of your own that picture, as the model saw
            it.
        trust: of the run of an ablation, how far attention and cause agree, by the word that was
            left out: `run.trust["house"].columns.heat.rank`.
    """

    image: Image.Image
    maps: HeatMaps
    settings: Settings
    negative_maps: HeatMaps | None = None
    step_pictures: StepPictures | None = None
    concepts: HeatMaps | None = None
    given: Image.Image | None = None
    trust: Mapping[str, Trust] = field(default_factory=FrozenDict)

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
        return self._laid(scale).image()

    def figure(self, *, scale: Scale = "shared") -> "Sheet":
        """The picture, then one overlay a word, captioned, with the scale that was used.

        A matplotlib Figure: `run.figure().save("house.pdf")` (`HeatMaps.figure`).
        """
        return self._laid(scale).figure()

    def _laid(self, scale: Scale) -> Laid:
        about = self.settings
        return self.maps.laid_out(title=about.prompt, scale=scale, note=_trusted(self.trust))[0]

    def timeline(
        self, word: str | int, *, frames: int = timelines.FRAMES, scale: Scale = "word"
    ) -> "Sheet":
        """A word's overlay at several steps, on one scale (`timelines.timeline`)."""
        return timelines.timeline(self.maps, word, frames=frames, scale=scale)

    def animation(self, word: str | int, *, scale: Scale = "word") -> Animation:
        """A word's overlay step by step: `.save("house.gif")` (`timelines.animation`)."""
        return timelines.animation(self.maps, word, scale=scale)

    def layers_by_heads(
        self, word: str | int, *, axes: Collection[Axis] | None = None, scale: Scale = "word"
    ) -> "Sheet":
        """A word's heat in every layer and head, one scale (`layer_heads.layers_by_heads`)."""
        return layer_heads.layers_by_heads(self.maps, word, axes=axes, scale=scale)

    def explorer(self) -> str:
        """The page of this run: one HTML file that needs nothing else (`heedmap.explorer`)."""
        return explorer.page(self)

    def _repr_html_(self) -> str:
        return explorer.pictures.preview(self, self.sheet())

    def save(self, folder: str | Path, *, overlays: bool = True, force: bool = False) -> Path:
        """Write the run's folder, whole or not at all.

        `image.png` (with the settings as a `parameters` text chunk, unless it was not drawn from
        noise), `given.png` (a picture of your own that was edited), `index.html` (the
        page),
        `sheet.png`, `words/<number>-<word>.png`, `maps.safetensors` (and `negative.safetensors`),
        `steps.png` (the pictures of the steps, row by row, where they were kept), `run.json`. Of
        concepts `concepts.safetensors`, their sheet `concepts.png`, and
        `words/concept-<number>-<concept>.png`.

        Args:
            folder: where to.
            overlays: whether the page, the sheet and the overlays of the first 75 words are
                written; `heedmap inspect` draws them, and all others, of what is left too.
            force: whether an older run of that name is replaced. What else lies in its folder
                stays; for a moment there is no folder of that name.

        Returns:
            The folder.

        Raises:
            ArgumentError: if `folder` is not a path, or `overlays` or `force` not True or False.
            RunError: if something is there already (an empty folder may be), or nothing can be
                written there; then nothing is left there either.
        """
        flag("overlays", overlays)
        with whole_folder(folder, kinds.RUN, force=force) as partial:
            self._write(partial, overlays)
        return Path(folder)

    def _write(self, folder: Path, overlays: bool) -> None:
        schemas.written(self.settings, "run.json")  # before anything is made of them
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
            title, note = self.settings.prompt, _trusted(self.trust)
            files = _write_sheet(folder, self.maps, "sheet.png", word_file, title, note)
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
            format=FORMAT,
            files=tuple(kinds.files_in(folder, "run.json")),
            settings=self.settings,
            steps=UNSET
            if steps is None
            else schemas.StepsFile(len(steps.frames), steps.size, steps.shows),
            words=_told(self.maps, files),
            concepts=UNSET if self.concepts is None else _told(self.concepts, sought),
            trust=self.trust or UNSET,
        )
        schemas.write_file(folder / "run.json", content)

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """Read a saved run; no model and no torch is loaded.

        Raises:
            RunError: if the folder is not a run, or something in it is broken or hostile.
        """
        return read_run(reading.path_of(folder))


def read_run(folder: Path, size: tuple[int, int] | None = None) -> Run:
    """As `Run.load`; of another size (W, H) than that it is refused before it is decoded."""
    told = schemas.read_file(
        folder / "run.json", schemas.RunFile, "a run", version=FORMAT, most=MAX_SETTINGS
    )
    about = told.settings
    if size is not None and about.size != size:
        raise RunError(
            f"{folder} is a run of {about.size[0]}×{about.size[1]} pixels: expected "
            f"{size[0]}×{size[1]}, as of its source; make both again"
        )
    image = reading.read_picture(folder / "image.png", "RGB", size=about.size)
    recording = Recording.load(folder / "maps.safetensors")
    listed = told.files is not UNSET
    against = recorded_in(folder / NEGATIVE, told)
    sought = recorded_in(folder / CONCEPTS, told) if listed else None  # older ones had none
    if (
        recording.table.prompt != (about.prompt if "text" in about.unnoted else about.text)
        or any(one.size != image.size for one in (recording, against, sought) if one is not None)
        or (sought is not None and concept_table(about.concepts) != sought.table)
        or not is_placed(about)
    ):
        raise reading.torn(folder, "its picture, maps and settings", "run")
    negative_maps = None if against is None else HeatMaps(against, image)
    maps = maps_in(folder, "words", told, recording, image)
    concepts = None if sought is None else maps_in(folder, "concepts", told, sought, image)
    steps = steps_in(folder, told, len(recording.timesteps), image.size)
    given = given_in(folder, told)
    trust = trust_in(folder, told, recording.table)
    return Run(image, maps, about, negative_maps, steps, concepts, given, trust)


def _trusted(trust: Mapping[str, Trust]) -> str:
    """A quiet line on a sheet: how far the heat of words and what changes without them agree."""
    said = (f"“{word}” {told.columns.heat}" for word, told in trust.items())
    return MARK + " · ".join(said) if trust else ""


def _write_sheet(
    folder: Path,
    maps: HeatMaps,
    name: str,
    file_of: Callable[[Word], str],
    title: str,
    note: str = "",
) -> dict[int, str]:
    """Write a sheet of maps and the overlay of each word; by its number the overlay's file."""
    files: dict[int, str] = {}
    sheet, drawn = maps.laid_out(title=title, note=note)
    # What packs a picture lets others work meanwhile: the sheet takes as long as the rest.
    with ThreadPoolExecutor(1) as aside:
        packed = aside.submit(png, sheet.image())
        for word, overlay in zip(maps.words, drawn, strict=False):
            files[word.number] = file_of(word)
            (folder / files[word.number]).write_bytes(png(overlay))
        (folder / name).write_bytes(packed.result())
    return files


def _told(maps: HeatMaps, files: Mapping[int, str]) -> list[schemas.WordFile]:
    """What `run.json` says of the words of maps."""
    held = maps.stability or {}
    return [
        schemas.WordFile(w.number, w.text, w.tokens, files.get(w.number), held.get(w.number, UNSET))
        for w in maps.tokens.words
    ]


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
