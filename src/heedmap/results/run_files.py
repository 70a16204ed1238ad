"""The parts of a run's folder beside its picture and maps."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import UNSET
from PIL import Image

from heedmap.errors import HeedmapError
from heedmap.figures.step_pictures import StepPictures, mosaic_size, of_mosaic
from heedmap.io import reading, schemas
from heedmap.io.ablations import Trust
from heedmap.io.pictures import digest_of
from heedmap.io.settings import Settings
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.text.words import TokenTable

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


def trust_in(folder: Path, held: schemas.RunFile, table: TokenTable) -> Mapping[str, Trust]:
    """Check that attention and cause are compared for words of the run, each once."""
    try:
        meant = {table.find(word) for word in held.trust}
    except HeedmapError:
        meant = set[tuple[int, ...]]()
    if len(meant) < len(held.trust):
        raise reading.torn(folder, "its words and its maps", "run")
    return held.trust


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
