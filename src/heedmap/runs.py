"""A run on disk: written whole or not at all, read back equal, never trusted."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap import explorer, sheets
from heedmap.animations import Animation
from heedmap.errors import RunError
from heedmap.maps import HeatMaps, Scale
from heedmap.recordings import Axis, Recording
from heedmap.saving import kinds, slug, whole_folder
from heedmap.words import Word

FORMAT = 1
MAX_SETTINGS = 4 * 2**20  # bytes of run.json
MAX_PIXELS = 2**27


@dataclass(frozen=True, eq=False)
class Run:
    """One generated picture with its maps and everything that is needed to make it again.

    Attributes:
        image: the picture, as the pipeline gave it.
        maps: its heat maps by word.
        settings: prompt (as it was written, with weights) and text (what the model read of it),
            seed, steps, guidance, size, model, versions, all other arguments; plain JSON types.
        negative_maps: the heat maps of the negative prompt, where its branch was recorded.
    """

    image: Image.Image
    maps: HeatMaps
    settings: dict[str, Any]
    negative_maps: HeatMaps | None = None

    def sheet(self, *, scale: Scale = "shared") -> Image.Image:
        """The picture, then one overlay a word, captioned, with the scale that was used."""
        return self.maps.sheet(title=str(self.settings["prompt"]), scale=scale)

    def timeline(
        self, word: str | int, *, frames: int = sheets.FRAMES, scale: Scale = "word"
    ) -> Image.Image:
        """A word's overlay at several steps, on one scale (`heedmap.sheets.timeline`)."""
        return sheets.timeline(self.maps, word, frames=frames, scale=scale)

    def animation(self, word: str | int, *, scale: Scale = "word") -> Animation:
        """A word's overlay step by step: `.save("house.gif")` (`heedmap.sheets.animation`)."""
        return sheets.animation(self.maps, word, scale=scale)

    def layers_by_heads(
        self,
        word: str | int,
        *,
        axes: Collection[Axis] | None = None,
        scale: Scale = "word",
    ) -> Image.Image:
        """A word's heat in every layer and head, one scale (`heedmap.sheets.layers_by_heads`)."""
        return sheets.layers_by_heads(self.maps, word, axes=axes, scale=scale)

    def explorer(self) -> str:
        """The page of this run: one HTML file that needs nothing else (`heedmap.explorer`)."""
        return explorer.page(self)

    def _repr_html_(self) -> str:
        return explorer.frame(self.explorer())

    def save(self, folder: str | Path, *, overlays: bool = True, force: bool = False) -> Path:
        """Write the run's folder, whole or not at all.

        `image.png` (with the settings as a `parameters` text chunk), `index.html` (the page),
        `sheet.png`, `words/<number>-<word>.png`, `maps.safetensors` (and `negative.safetensors`),
        `run.json`.

        Args:
            folder: where to.
            overlays: whether the page, the sheet and the words' overlays are written; `heedmap
                inspect` draws them of what is left too.
            force: whether an older run of that name is replaced. What else lies in its folder
                stays; for a moment there is no folder of that name.

        Returns:
            The folder.

        Raises:
            ArgumentError: if `folder` is no path.
            RunError: if something is there already (an empty folder may be), or nothing can be
                written there.
        """
        with whole_folder(folder, kinds.RUN, force=force) as partial:
            self._write(partial, overlays)
        return Path(folder)

    def _write(self, folder: Path, overlays: bool) -> None:
        text = PngInfo()
        text.add_itxt("parameters", parameters_text(self.settings))
        self.image.save(folder / "image.png", pnginfo=text)
        files = {}
        if overlays:
            (folder / "index.html").write_text(self.explorer(), encoding="utf-8")
            self.sheet().save(folder / "sheet.png")
            (folder / "words").mkdir()
            for word, heat in zip(self.maps.words, self.maps, strict=True):
                files[word.number] = word_file(word)
                heat.overlay(scale="shared").save(folder / files[word.number])
        self.maps.recording.save(folder / "maps.safetensors")
        if self.negative_maps is not None:
            self.negative_maps.recording.save(folder / "negative.safetensors")
        about = {
            "format": FORMAT,
            "settings": self.settings,
            "words": [
                {"number": w.number, "text": w.text, "tokens": list(w.tokens),
                 "file": files.get(w.number)}
                for w in self.maps.tokens.words
            ],
        }  # fmt: skip
        text = json.dumps(about, indent=2, ensure_ascii=False)
        (folder / "run.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """Read a saved run; no model and no torch is loaded.

        Raises:
            RunError: if the folder is no run, or something in it is broken or hostile.
        """
        folder = Path(folder)
        about = _read_about(folder)
        settings = about["settings"]
        recording = Recording.load(folder / "maps.safetensors")
        image = _read_image(folder / "image.png")
        negative = folder / "negative.safetensors"
        against = Recording.load(negative) if negative.exists() else None
        if (
            recording.table.prompt != settings.get("text", settings.get("prompt"))
            or recording.size != image.size
            or (against is not None and against.size != image.size)
        ):
            raise RunError(
                f"{folder} does not hold together: its picture, maps and settings are of different "
                "runs; make the run again"
            )
        negative_maps = None if against is None else HeatMaps(against, image)
        return cls(image, HeatMaps(recording, image), settings, negative_maps)


def word_file(word: Word) -> str:
    """The name of a word's overlay within the run's folder."""
    return f"words/{word.number}-{slug(word.text, 40)}.png"


def parameters_text(settings: dict[str, Any]) -> str:
    """The settings as the text that web UIs read from a picture's `parameters` chunk.

    Of an edit it says so: the same settings without its source draw another picture.
    """
    lines = [str(settings["prompt"])]
    if settings.get("negative"):
        lines.append(f"Negative prompt: {settings['negative']}")
    width, height = settings["size"]
    edit = settings.get("edit")
    if isinstance(edit, dict):
        # Quoted as web UIs quote values with commas in them; names that they do not know they skip.
        windows = (
            f"{name} {'–'.join(f'{bound:g}' for bound in edit[name])}" for name in ("cross", "self")
        )
        said = json.dumps(", ".join(windows), ensure_ascii=False)
        edited = f", Edited from: {json.dumps(edit['source'], ensure_ascii=False)}, Edit: {said}"
    else:
        edited = ""
    lines.append(
        f"Steps: {settings['steps']}, Sampler: {settings['scheduler']}, "
        f"CFG scale: {settings['guidance']}, Seed: {settings['seed']}, Size: {width}x{height}, "
        f"Model: {settings['model']}, Version: heedmap {settings['versions']['heedmap']}"
        f"{edited}"
    )
    return "\n".join(lines)


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    if not path.is_file():
        raise RunError(f"{folder} is not a run: expected a folder with run.json, as `save` writes")
    if path.stat().st_size > MAX_SETTINGS:
        raise RunError(f"{path} is larger than 4 MiB: not settings that heedmap wrote")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not JSON: make the run again") from error
    if not isinstance(about, dict) or not isinstance(about.get("settings"), dict):
        raise RunError(f"{path} has no settings: make the run again")
    if about.get("format") != FORMAT:
        raise RunError(
            f"{path} has format {about.get('format')!r}: this version of heedmap reads format "
            f"{FORMAT}; make the run again"
        )
    return about


def _read_image(path: Path) -> Image.Image:
    try:
        with Image.open(path, formats=("PNG",)) as image:
            if image.size[0] * image.size[1] > MAX_PIXELS:
                raise RunError(f"{path} has {image.size[0]}×{image.size[1]} pixels: too many")
            image.load()
            return image.convert("RGB") if image.mode != "RGB" else image.copy()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise RunError(f"{path} is missing or broken: make the run again") from error
