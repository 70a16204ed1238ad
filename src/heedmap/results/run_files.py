"""What lies in a run's folder beside its picture, as far as the run says so; never trusted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import UNSET
from PIL import Image

from heedmap.errors import HeedmapError, RunError
from heedmap.figures.step_pictures import StepPictures, mosaic_size, of_mosaic
from heedmap.files import reading, schemas
from heedmap.files.ablations import Trust
from heedmap.files.notes import FrozenDict
from heedmap.files.pictures import digest_of
from heedmap.files.settings import Settings
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.text.words import TokenTable

NEGATIVE, CONCEPTS, GIVEN = "negative.safetensors", "concepts.safetensors", "given.png"
_DISTORTED = 2  # times: so much wider or higher no picture of a step is


def given_in(folder: Path, told: schemas.RunFile) -> Image.Image | None:
    """The picture that a source stands for, where the run says that it has one.

    One that was lost and put there again is not listed; it is known by what the settings note.
    """
    path, noted = folder / GIVEN, told.settings.given
    if told.files is UNSET or GIVEN not in told.files:
        return None if noted is None else _put_again(path, told.settings)
    if not reading.is_there(path):
        raise RunError(
            f"{folder} lacks {GIVEN}, which it lists, the picture that was edited: put it there "
            "again (both runs of an edit have it), or make the run again"
        )
    given = reading.read_picture(path, "RGB", size=told.settings.size)
    if noted is None or digest_of(given) != noted.sha256:
        raise reading.torn(folder, "its settings and the picture that was edited", "run")
    return given


def _put_again(path: Path, about: Settings) -> Image.Image | None:
    """The picture that settings note, if that file is it; None of any other file of a user's."""
    try:
        found = reading.read_picture(path, "RGB", size=about.size)
    except RunError:
        return None
    return found if about.given and digest_of(found) == about.given.sha256 else None


def maps_in(
    folder: Path,
    name: Literal["words", "concepts"],
    told: schemas.RunFile,
    recording: Recording,
    image: Image.Image,
) -> HeatMaps:
    """Maps with what a run's file says of how stable they are, where it was located."""
    if told.settings.located is None:
        return HeatMaps(recording, image)
    what = f"what {folder / 'run.json'} says of its {name}"
    held = schemas.stabilities(getattr(told, name), what)
    if not held.keys() <= {word.number for word in recording.table.read_words}:
        raise reading.torn(folder, "its words and its maps", "run")
    return HeatMaps(recording, image, stability=FrozenDict(held) or None)


def trust_in(folder: Path, told: schemas.RunFile, table: TokenTable) -> FrozenDict:
    """How far attention and cause agree, by the word that was left out, where a run says so."""
    held: Mapping[str, Trust] = {} if told.trust is UNSET else told.trust
    about = told.settings
    if held and (about.located or about.given or about.edit):  # of which no word is left out
        raise reading.torn(folder, "its settings and what it says of trust", "run")
    torn = reading.torn(folder, "its words and its maps", "run")
    try:
        meant = {table.find(word) for word in held}
    except HeedmapError:
        raise torn from None
    if len(meant) < len(held):  # two spellings of one
        raise torn
    return FrozenDict(held)


def recorded_in(path: Path, told: schemas.RunFile) -> Recording | None:
    """What was recorded beside a run's own maps, where it says so; a file of a user's is not."""
    if told.files is not UNSET:
        if path.name not in told.files:
            return None
        reading.check_listed(path, "run")
    return Recording.load(path) if reading.is_there(path) else None


def steps_in(
    folder: Path, told: schemas.RunFile, count: int, shape: tuple[int, int]
) -> StepPictures | None:
    """The pictures of so many steps, where a run says that it has them; older ones do not.

    They lie beneath the heat of a picture, and so have its shape, up to a cell of its latent.
    """
    if told.steps is UNSET:
        return None
    if told.steps.count != count:
        raise reading.torn(folder, "its maps and the pictures of its steps", "run")
    across, down = (small / side for small, side in zip(told.steps.size, shape, strict=True))
    if max(across, down) > _DISTORTED * min(across, down):
        raise reading.torn(folder, "its picture and the pictures of its steps", "run")
    size = mosaic_size(count, told.steps.size)
    sheet = reading.read_picture(folder / "steps.png", "RGB", size=size)
    return of_mosaic(sheet, count, told.steps.size, told.steps.shows)


def is_placed(about: Settings) -> bool:
    """Whether a run was drawn at a place that its batch had; the first is the source's.

    One that drew nothing was no edit, and alone; what a picture was edited into, or from, was not.
    """
    if about.located is not None:
        alone = about.edit is None and about.batch_place is None and about.given is None
        return alone and not about.edits
    if about.batch_place is None:
        return about.given is None
    number, size = about.batch_place
    return (about.edit is not None) <= number < size
