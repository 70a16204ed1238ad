"""Masks: boxes and masks of a user, soft masks of words, and segments of an image.

Axes: h, w rows and columns of a grid · H, W rows and columns of the image.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from heedmap.checks import as_ordered_list, check_fraction, check_one_of
from heedmap.errors import ArgumentError, UnknownWordError, quoted
from heedmap.figures import overlays, plots
from heedmap.figures.overlays import resize_map, to_rgb
from heedmap.figures.plots import Panel
from heedmap.io.word_edits import Box, Mask
from heedmap.io.writing import save_parts, slug
from heedmap.maps.recordings import Recording, Selection, is_even
from heedmap.options import MASK_THRESHOLD
from heedmap.text.words import TokenTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARPNESS = 4
"""The power by which the phrase that stands out more at a place takes it. On the drawn world 2 to 8
are within a point of each other."""
REACH = 1.5
"""The radius within which masks are fitted to the image's edges: cells of the refined maps, by
which these are blurred."""
_MOST_PHRASES = 255  # that an image of 8-bit labels tells apart


# --- boxes and masks of a user ------------------------------------------------------------------


def region_coverage(
    region: Box | Mask,
    width: int,
    height: int,
    name: str,
) -> np.ndarray:
    """Return the part of each pixel of an image that is inside: float32 (H, W), 0 to 1.

    ArgumentError if the box does not lie in the image, the mask is not of its size, or no more than
    a pixel is inside, as of a box whose sides are fractions of the image.
    """
    if isinstance(region, tuple):
        x0, y0, x1, y1 = region
        sides = ", ".join(f"{side:g}" for side in region)
        what = f"the box ({sides}) of {name}"
        if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
            raise ArgumentError(
                f"{what} does not lie in the image of {width}×{height} pixels, or is empty: "
                f"expected 0 ≤ left < right ≤ {width} and 0 ≤ top < bottom ≤ {height}"
            )
        rows = np.diff(np.clip(np.arange(height + 1), y0, y1))
        columns = np.diff(np.clip(np.arange(width + 1), x0, x1))
        inside = np.outer(rows.astype(np.float32), columns.astype(np.float32))
    else:
        what = f"the mask of {name}"
        if region.size != (width, height):
            raise ArgumentError(
                f"{what} is {region.size[0]}×{region.size[1]} pixels, the image {width}×{height}: "
                "expected a mask of the image's size; resize it"
            )
        inside = region.inside().astype(np.float32)
    if inside.sum() <= 1:
        raise ArgumentError(
            f"{what} covers no more than a pixel of {width}×{height}: expected a larger region; "
            "its numbers are pixels, so multiply fractions by the image's width and height"
        )
    return inside


# --- soft masks of words ------------------------------------------------------------------------


def soft_masks(
    recording: Recording,
    words: Sequence[Sequence[int]],
    image: Image.Image | None,
) -> Iterator[np.ndarray]:
    """Yield the soft mask of each of some words, float32 (H, W), one at a time to save memory.

    `words` has the positions of each one's tokens; without an image there are no edges but the
    maps'. A mask goes from 0, where its phrase does least, to 1, where it does most, and is 0 for a
    constant map. The mask of words in several phrases is the greatest of theirs: their union.
    SelectionError if there are no refined maps.
    """
    refined = Selection(recording.refined_alone())
    table = recording.table
    after, before = (
        np.array([part.magnitude_of(phrase) for phrase in table.phrases])
        for part in (refined, Selection(recording))
    )
    reduced = suppress_rivals(after, before)
    phrase_maps = dict(zip(phrase_tokens(table), reduced, strict=True))
    cell = min(recording.size) / min(refined.recording.layers[0].grid)

    def mask_of(phrase: tuple[int, ...]) -> np.ndarray:
        from heedmap.mathematics.probabilities import guided

        small = phrase_maps.get(phrase)
        if small is None:
            # A word that names neither a thing nor a property is nobody's rival.
            small = scaled(np.abs(refined.mean_of(phrase)))
        large = resize_map(small, recording.size)
        if image is not None:
            pixels = np.asarray(to_rgb(image))
            large = guided(pixels, large[None], round(REACH * cell))[0]
        return scaled(large)

    for positions in words:
        yield reduce(np.maximum, map(mask_of, phrases_of(table, positions)))


def phrases_of(
    table: TokenTable, positions: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Return the phrases that hold some words, each as its tokens' positions.

    Where there are none ("at" names no thing), return the words themselves.
    """
    words = [word.tokens for word in table.read_words]
    for groups in (phrase_tokens(table), words):
        found = [one for one in groups if not set(one).isdisjoint(positions)]
        if found:
            return tuple(found)
    return ()


def phrase_tokens(table: TokenTable) -> list[tuple[int, ...]]:
    """Return the positions of each phrase's tokens, phrase by phrase."""
    return [tuple(t for word in words for t in word.tokens) for words in table.phrases]


def suppress_rivals(refined: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """Reduce each phrase's map where another phrase stands out more.

    A map shows where its own phrase is read, and is rarely 0 on another's thing, above all where
    both are of a kind. The height of a place above a phrase's mean, by its greatest height, decides
    whose the place is: a phrase that is read evenly, as a style does, takes nothing.

    `refined` and `plain` (N, h, w) are magnitudes after and before self-attention, which mixes
    things of a kind. Returns the refined maps, reduced: float32 (N, h, w), 0 to 1.
    """
    maps = np.array([scaled(one) for one in refined], np.float32)
    if len(maps) < 2:
        return maps
    strength = np.array([_height(one) for one in plain]) ** SHARPNESS
    *_, second, first = np.sort(strength, axis=0)
    rivals = np.array(np.where(strength < first, first, second), np.float64)
    # Where nothing stands out, nothing is lost.
    loss = rivals / np.maximum(strength + rivals, np.finfo(np.float64).tiny)
    return (maps * (1 - loss)).astype(np.float32)


def scaled(values: np.ndarray) -> np.ndarray:
    """Scale a map from 0 at the least to 1 at the greatest value; a constant map is 0."""
    if is_even(values):
        return np.zeros_like(values)
    return (values - values.min()) / np.ptp(values)


def _height(values: np.ndarray) -> np.ndarray:
    """Return the height of each place above the mean, by the greatest height: 0 to 1."""
    if is_even(values):
        return np.zeros(values.shape)
    exact = values.astype(np.float64)
    return scaled(np.maximum(exact - exact.mean(), 0))


# --- segments -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Segments:
    """The phrase that each pixel of an image shows.

    Attributes:
        names: the phrases, in the order of the prompt or of the request.
        labels: uint8 (H, W), read-only: 0 where the image shows none of them, n for the n-th.
        image: the image, if known.
        prompt: the prompt of the phrases.
        threshold: the value that a soft mask must have at least.
    """

    names: tuple[str, ...]
    labels: np.ndarray
    image: Image.Image | None = None
    prompt: str = ""
    threshold: float = MASK_THRESHOLD

    def __repr__(self) -> str:
        return f"<Segments of {', '.join(map(quoted, self.names))}>"

    def mask(self, name: str) -> np.ndarray:
        """Return the pixels of all phrases of a name: bool (H, W); UnknownWordError if none is."""
        if name not in self.names:
            raise UnknownWordError(
                f"there is no segment {quoted(name)}: expected one of {list(self.names)}"
            )
        numbers = [n for n, one in enumerate(self.names, 1) if one == name]
        return np.isin(self.labels, numbers)

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the image that each phrase has, 0 to 1; the rest is background."""
        counts = np.bincount(self.labels.ravel(), minlength=len(self.names) + 1)
        return tuple((counts[1:] / self.labels.size).tolist())

    def indexed(self) -> Image.Image:
        """Return an image of mode "P": its pixels are the labels, its palette their colours."""
        image = Image.fromarray(self.labels).convert("P")
        image.putpalette(bytes(3) + overlays.hue_colours().tobytes())
        return image

    def save(
        self,
        folder: str | Path,
        *,
        run: str | Path | None = None,
        kind: Literal["png", "svg", "pdf"] = "png",
    ) -> Path:
        """Write the folder, whole or not at all: labels, a mask of each phrase, the sheet.

        The files are `labels.png`, `labels.npy`, `masks/<label>-<phrase>.png` (black and white),
        `sheet.png` and `segment.json`, which describes the phrases. A phrase without a pixel has a
        black mask. `heedmap.dataset` writes COCO, also of one run.

        Args:
            folder: new or empty.
            run: the folder of the run, for `segment.json`.
            kind: the format of the sheet.

        Raises:
            RunError: if something is there already, or nothing can be written there.
        """
        check_one_of("kind", kind, ("png", "svg", "pdf"))
        folder = Path(folder)
        files: dict[str, Any] = {
            "labels.png": self.indexed(),
            "labels.npy": self.labels,
            f"sheet.{kind}": plots.encode(self.figure(), kind),
        }
        phrases: list[dict[str, Any]] = []
        for number, share in enumerate(self.shares, 1):
            mask = self.labels == number
            name = self.names[number - 1]
            file = f"masks/{number}-{slug(name, 40)}.png"
            files[file] = Image.fromarray(mask).convert("L")
            phrase = {
                "name": name,
                "label": number,
                "share": round(share, 6),
                "pixels": int(mask.sum()),
                "box": box_of(mask),
                "file": str(folder / file),
            }
            phrases.append(phrase)
        about = {
            "run": run and str(run),
            "folder": str(folder),
            "prompt": self.prompt,
            "threshold": self.threshold,
            "sheet": str(folder / f"sheet.{kind}"),
            "phrases": phrases,
        }
        files["segment.json"] = f"{json.dumps(about)}\n".encode()
        return save_parts(folder, files)

    def sheet(self) -> Image.Image:
        """Return `figure` as an image."""
        return plots.render(self.figure())

    def figure(self) -> "Figure":
        """Draw the image, all phrases in their colours, then each by itself with its share."""
        base = self.image or Image.new("RGB", self.labels.shape[::-1], "white")
        panels: list[Panel] = []
        if self.image is not None:
            panels.append(Panel("", base, "the image"))
        if len(self.names) != 1:
            rest = f"{1 - sum(self.shares):.1%} background"
            panels.append(Panel("", overlays.labelled(base, self.labels), rest))
        for number, share in enumerate(self.shares, 1):
            single = np.where(self.labels == number, self.labels, 0)
            picture = overlays.labelled(base, single)
            panels.append(Panel(self.names[number - 1], picture, f"{share:.1%}"))
        note = f"threshold: {self.threshold:g} of each phrase's soft mask"
        return plots.draw_panels(panels, title=self.prompt, note=note)

    def _repr_png_(self) -> bytes:
        return plots.encode(self.figure())


def segmented(
    recording: Recording,
    phrases: str | int | Sequence[str | int] | None,
    image: Image.Image | None,
    threshold: float,
) -> Segments:
    """Label each pixel with the phrase whose soft mask is greatest there (`HeatMaps.segment`)."""
    threshold = check_fraction("threshold", threshold)
    table = recording.table
    names: list[str] = []
    places: list[tuple[int, ...]] = []
    if phrases is None:
        words = [phrase[0] for phrase in table.phrases]
        if table.of_concepts:
            # Each was asked for, also one that names neither a thing nor a property.
            words = table.read_words
        queries = [word.number for word in words]
    elif isinstance(phrases, str | int):
        queries = [phrases]
    else:
        queries = as_ordered_list(phrases)
    for query in queries or ():
        is_text = isinstance(query, str)
        tokens = table.find(query) if is_text else table.tokens_at(query)
        # Two words of one phrase have one mask (`HeatMap.soft_mask`).
        place = tuple(chain(*phrases_of(table, tokens)))
        name = table.name_of(query) if is_text else table.text_of(place)
        if not set(place).isdisjoint(chain(*places)):
            raise ArgumentError(
                f"{quoted(name)} is of a phrase that was named before: name it once"
            )
        names.append(name)
        places.append(place)
    if not 1 <= len(names) <= _MOST_PHRASES:
        raise ArgumentError(
            f"phrases is {quoted(phrases)}: expected 1 to {_MOST_PHRASES} words or phrases"
        )
    labels = np.zeros(recording.size[::-1], np.uint8)
    greatest = np.zeros(labels.shape, np.float32)
    for number, soft in enumerate(soft_masks(recording, places, image), 1):
        # Of equal ones the first; of none, at a threshold of 0.
        labels[soft > greatest] = number
        np.maximum(greatest, soft, out=greatest)
    labels[greatest < threshold] = 0
    labels.flags.writeable = False
    return Segments(
        tuple(names),
        labels,
        image,
        table.prompt,
        threshold,
    )


def box_of(mask: np.ndarray) -> list[int] | None:
    """Return left, top, width and height of the inside, in pixels; None where nothing is inside."""
    box = Image.fromarray(mask).getbbox()
    return box and [box[0], box[1], box[2] - box[0], box[3] - box[1]]
