"""Masks: boxes and masks of a user, soft masks of words, and segments of an image.

Axes: h, w rows and columns of a grid · H, W rows and columns of the image.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from heedmap.checks import as_ordered_list, check_fraction, check_one_of
from heedmap.errors import ArgumentError, UnknownWordError, plural, quoted
from heedmap.figures import overlays, plots
from heedmap.figures.overlays import png, resize_map, to_rgb
from heedmap.figures.plots import Panel
from heedmap.io.word_edits import Box, Mask
from heedmap.io.writing import slug, whole_folder
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
    region: Box | Mask, width: int, height: int, name: str
) -> np.ndarray:
    """Return the part of each pixel of an image that is inside: float32 (H, W), 0 to 1.

    ArgumentError if the box does not lie in the image, the mask is not of its size, or no more than
    a pixel is inside, as of a box whose sides are fractions of the image.
    """
    if isinstance(region, tuple):
        left, top, right, bottom = region
        sides = ", ".join(f"{side:g}" for side in region)
        what = f"the box ({sides}) of {name}"
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            raise ArgumentError(
                f"{what} does not lie in the image of {width}×{height} pixels, or is empty: "
                f"expected 0 ≤ left < right ≤ {width} and 0 ≤ top < bottom ≤ {height}"
            )
        rows = np.diff(np.clip(np.arange(height + 1), top, bottom)).astype(np.float32)
        columns = np.diff(np.clip(np.arange(width + 1), left, right)).astype(np.float32)
        inside = np.outer(rows, columns)
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
    recording: Recording, words: Sequence[Sequence[int]], image: Image.Image | None
) -> Iterator[np.ndarray]:
    """Yield the soft mask of each of some words, float32 (H, W), one at a time to save memory.

    `words` has the positions of each one's tokens; without an image there are no edges but the
    maps'. A mask goes from 0, where its phrase does least, to 1, where it does most, and is 0 for a
    constant map. The mask of words in several phrases is the greatest of theirs: their union.
    SelectionError if there are no refined maps.
    """
    refined = Selection(recording.refined_alone())
    plain = Selection(recording)
    phrases = phrase_tokens(recording.table)
    maps = [
        [of.magnitude_of(p) for p in recording.table.phrases] for of in (refined, plain)
    ]
    reduced = dict(zip(phrases, suppress_rivals(*map(np.array, maps)), strict=True))

    def mask_of(phrase: tuple[int, ...]) -> np.ndarray:
        # A word that names neither a thing nor a property is nobody's rival.
        small = (
            reduced[phrase]
            if phrase in reduced
            else scaled(np.abs(refined.mean_of(phrase)))
        )
        large = resize_map(small, recording.size)
        return scaled(large if image is None else _with_edges(recording, image, large))

    for positions in words:
        yield reduce(np.maximum, map(mask_of, phrases_of(recording.table, positions)))


def _with_edges(
    recording: Recording, image: Image.Image, large: np.ndarray
) -> np.ndarray:
    from heedmap.mathematics.probabilities import guided

    assert recording.refined is not None
    cell = min(recording.size) / min(recording.refined.shape[:2])
    return guided(np.asarray(to_rgb(image)), large[None], round(REACH * cell))[0]


def phrases_of(
    table: TokenTable, positions: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Return the phrases that hold some words, each as its tokens' positions.

    Where there are none ("at" names no thing), return the words themselves.
    """
    phrases = [
        one for one in phrase_tokens(table) if not set(one).isdisjoint(positions)
    ]
    words = [
        w.tokens for w in table.read_words if not set(w.tokens).isdisjoint(positions)
    ]
    return tuple(phrases or words)


def phrase_tokens(table: TokenTable) -> list[tuple[int, ...]]:
    """Return the positions of each phrase's tokens, phrase by phrase."""
    return [tuple(t for word in words for t in word.tokens) for words in table.phrases]


def check_image(image: object, size: tuple[int, int]) -> None:
    """Raise an ArgumentError if an image is passed whose size is not that of the maps (W, H)."""
    if image is not None and (not isinstance(image, Image.Image) or image.size != size):
        raise ArgumentError(
            f"the image is {quoted(image)}: expected the Pillow image of {size[0]}×{size[1]} "
            "pixels that the maps were recorded with"
        )


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
    loss = np.divide(
        rivals, strength + rivals, out=np.zeros_like(rivals), where=rivals > 0
    )
    return (maps * (1 - loss)).astype(np.float32)


def scaled(values: np.ndarray) -> np.ndarray:
    """Scale a map from 0 at the least to 1 at the greatest value; a constant map is 0."""
    low = float(values.min())
    high = float(values.max())
    return np.zeros_like(values) if is_even(values) else (values - low) / (high - low)


def _height(values: np.ndarray) -> np.ndarray:
    """Return the height of each place above the mean, by the greatest height: 0 to 1."""
    above = np.maximum(values.astype(np.float64) - values.mean(dtype=np.float64), 0)
    return np.zeros_like(above) if is_even(values) else above / above.max()


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
        height, width = self.labels.shape
        return f"<Segments of {width}×{height} pixels: {', '.join(map(quoted, self.names))}>"

    def mask(self, name: str) -> np.ndarray:
        """Return the pixels of all phrases of a name: bool (H, W); UnknownWordError if none is."""
        numbers = [n for n, one in enumerate(self.names, 1) if one == name]
        if not numbers:
            names = ", ".join(map(quoted, self.names))
            raise UnknownWordError(
                f"there is no segment {quoted(name)}: expected one of {names}"
            )
        return np.isin(self.labels, numbers)

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the image that each phrase has, 0 to 1; the rest is background."""
        counts = np.bincount(self.labels.ravel(), minlength=len(self.names) + 1)
        return tuple(float(count) / self.labels.size for count in counts[1:])

    def indexed(self) -> Image.Image:
        """Return an image of mode "P": its pixels are the labels, its palette their colours."""
        image = Image.fromarray(self.labels).convert("P")
        image.putpalette(bytes(3) + overlays.hue_colours().tobytes())
        return image

    def coco(self, file_name: str = "image.png") -> dict[str, Any]:
        """Return the masks in the format of COCO, of plain JSON types.

        Each phrase with a pixel has an annotation. Its runs are not compressed, and count down the
        columns (`pycocotools.mask.frPyObjects` reads them).

        Args:
            file_name: of the image.
        """
        height, width = self.labels.shape
        masks = {n: self.labels == n for n in np.unique(self.labels).tolist() if n}
        annotations = [
            {
                "id": place,
                "image_id": 1,
                "category_id": number,
                "segmentation": {"size": [height, width], "counts": _runs(mask)},
                "area": int(mask.sum()),
                "bbox": _box(mask),
                "iscrowd": 0,
            }
            for place, (number, mask) in enumerate(masks.items(), 1)
        ]
        return {
            "images": [
                {"id": 1, "file_name": file_name, "width": width, "height": height}
            ],
            "categories": [
                {"id": n, "name": name} for n, name in enumerate(self.names, 1)
            ],
            "annotations": annotations,
        }

    def save(
        self,
        folder: str | Path,
        *,
        run: str | Path | None = None,
        kind: Literal["png", "svg", "pdf"] = "png",
    ) -> Path:
        """Write the folder, whole or not at all: labels, COCO, a mask of each phrase, the sheet.

        The files are `labels.png`, `labels.npy`, `coco.json`, `masks/<label>-<phrase>.png` (black
        and white), `sheet.png` and `segment.json`, which describes the phrases. A phrase without a
        pixel has a black mask.

        Args:
            folder: new or empty.
            run: the folder of the run, for `segment.json`.
            kind: the format of the sheet.

        Raises:
            RunError: if something is there already, or nothing can be written there.
        """
        check_one_of("kind", kind, ("png", "svg", "pdf"))
        folder = Path(folder)
        about: dict[str, Any] = {} if run is None else {"run": str(run)}
        about |= {
            "folder": str(folder),
            "prompt": self.prompt,
            "threshold": self.threshold,
        }
        about |= {"sheet": str(folder / f"sheet.{kind}"), "phrases": []}
        with whole_folder(folder) as partial:
            (partial / "masks").mkdir()
            for number, (name, share) in enumerate(
                zip(self.names, self.shares, strict=True), 1
            ):
                mask = self.labels == number
                file = f"masks/{number}-{slug(name, 40)}.png"
                (partial / file).write_bytes(
                    png(Image.fromarray(mask.astype(np.uint8) * 255))
                )
                phrase = {"name": name, "label": number, "share": round(share, 6)}
                phrase |= {
                    "pixels": int(mask.sum()),
                    "box": _box(mask),
                    "file": str(folder / file),
                }
                about["phrases"].append(phrase)
            (partial / "labels.png").write_bytes(png(self.indexed()))
            np.save(partial / "labels.npy", self.labels, allow_pickle=False)
            (partial / f"sheet.{kind}").write_bytes(plots.encode(self.figure(), kind))
            for file, content in (("coco.json", self.coco()), ("segment.json", about)):
                (partial / file).write_text(
                    json.dumps(content) + "\n", encoding="utf-8"
                )
        return folder

    def sheet(self, *, title: str | None = None) -> Image.Image:
        """Return `figure` as an image."""
        return plots.render(self.figure(title=title))

    def figure(self, *, title: str | None = None) -> "Figure":
        """Draw the image, all phrases in their colours, then each by itself with its share."""
        base = self.image or Image.new("RGB", self.labels.shape[::-1], "white")
        base = overlays.enlarge(overlays.shrunk(base, plots.MAX_WIDTH))
        labels = Image.fromarray(self.labels).resize(
            base.size, Image.Resampling.NEAREST
        )
        labels = np.asarray(labels)
        panels = [] if self.image is None else [Panel("", base, "the image")]
        if len(self.names) != 1:
            rest = f"{100 * (1 - sum(self.shares)):.0f} % background"
            panels.append(Panel("", overlays.labelled(base, labels), rest))
        for number, (name, share) in enumerate(
            zip(self.names, self.shares, strict=True), 1
        ):
            single = np.where(labels == number, labels, 0)
            small = "under 1 %" if share else "no pixel"
            note = f"{100 * share:.0f} %" if share >= 0.01 else small
            panels.append(Panel(name, overlays.labelled(base, single), note))
        note = f"threshold: {self.threshold:g} of each phrase's soft mask"
        return plots.draw_panels(
            panels, title=self.prompt if title is None else title, note=note
        )

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
        # Each concept was asked for, also one that names neither a thing nor a property.
        words = [word.tokens for word in table.read_words]
        places = words if table.of_concepts else phrase_tokens(table)
        names += [table.text_of(tokens) for tokens in places]
    else:
        queries = (
            [phrases] if isinstance(phrases, str | int) else as_ordered_list(phrases)
        )
        if not queries or not all(
            isinstance(one, str) or type(one) is int for one in queries
        ):
            raise ArgumentError(
                f"phrases is {quoted(phrases)}: expected a list of texts"
            )
        for query in queries:
            tokens = (
                table.find(query) if isinstance(query, str) else table.tokens_at(query)
            )
            # Two words of one phrase have one mask (`HeatMap.soft_mask`).
            place = tuple(t for part in phrases_of(table, tokens) for t in part)
            name = (
                table.name_of(query) if isinstance(query, str) else table.text_of(place)
            )
            for other, tokens in zip(names, places, strict=True):
                if not set(place).isdisjoint(tokens):
                    raise ArgumentError(
                        f"{quoted(other)} and {quoted(name)} are of one phrase: name it once"
                    )
            names.append(name)
            places.append(place)
    if not 1 <= len(names) <= _MOST_PHRASES:
        raise ArgumentError(
            f"there are {plural(len(names), 'phrase')}: expected 1 to {_MOST_PHRASES}; name words"
        )
    labels = np.zeros(recording.size[::-1], np.uint8)
    greatest = np.zeros(labels.shape, np.float32)
    for number, soft in enumerate(soft_masks(recording, places, image), 1):
        # Of equal ones the first; of none, at a threshold of 0.
        labels[soft > greatest] = number
        np.maximum(greatest, soft, out=greatest)
    labels[greatest < threshold] = 0
    labels.flags.writeable = False
    return Segments(tuple(names), labels, image, table.prompt, threshold)


def _box(mask: np.ndarray) -> list[int] | None:
    """Return left, top, width and height of the inside, in pixels; None where nothing is inside."""
    box = Image.fromarray(mask).getbbox()
    return box and [box[0], box[1], box[2] - box[0], box[3] - box[1]]


def _runs(mask: np.ndarray) -> list[int]:
    """Return the lengths of runs of pixels outside and inside in turn, down the columns."""
    flat = mask.ravel(order="F")
    changes = np.flatnonzero(np.diff(flat, prepend=False))
    return np.diff([0, *changes.tolist(), flat.size]).tolist()
