"""Segments: the phrase that each pixel of an image shows.

Axes: H, W the image's pixels.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from heedmap import checks
from heedmap.errors import ArgumentError, UnknownWordError, plural, quoted
from heedmap.figures import overlays, plots
from heedmap.figures.overlays import png
from heedmap.figures.plots import Panel
from heedmap.io.writing import slug, whole_folder
from heedmap.maps.masks import phrase_tokens, phrases_of, soft_masks
from heedmap.maps.recordings import Recording
from heedmap.maps.selections import least_stability, stability_said
from heedmap.options import MASK_THRESHOLD

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PHRASES = 255
"""The phrases that an image of 8-bit labels tells apart at most."""


@dataclass(frozen=True, eq=False)
class Segments:
    """The phrase that each pixel of an image shows.

    Attributes:
        names: the phrases, in the order of the prompt or of the request.
        labels: uint8 (H, W), read-only: 0 where the image shows none of them, n for the n-th.
        image: the image, if known.
        prompt: the prompt of the phrases.
        threshold: the value that a soft mask must have at least.
        stability: of each phrase's least stable word (`Run.stability`); empty if none is known.
    """

    names: tuple[str, ...]
    labels: np.ndarray
    image: Image.Image | None = None
    prompt: str = ""
    threshold: float = MASK_THRESHOLD
    stability: tuple[float | None, ...] = ()

    def __repr__(self) -> str:
        height, width = self.labels.shape
        return f"<Segments of {width}×{height} pixels: {', '.join(map(quoted, self.names))}>"

    def mask(self, name: str) -> np.ndarray:
        """Return the pixels of all phrases of a name: bool (H, W); UnknownWordError if none is."""
        numbers = [n for n, one in enumerate(self.names, 1) if one == name]
        if not numbers:
            there = ", ".join(map(quoted, self.names))
            raise UnknownWordError(f"there is no segment {quoted(name)}: expected one of {there}")
        return np.isin(self.labels, numbers)

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the image that each phrase has, 0 to 1; the rest is background."""
        counts = np.bincount(self.labels.ravel(), minlength=len(self.names) + 1)
        return tuple(float(count) / self.labels.size for count in counts[1:])

    def indexed(self) -> Image.Image:
        """Return an image of mode "P": its pixels are the labels, its palette their colours."""
        hues = np.resize(overlays.hue_colours(), (255, 3))
        image = Image.fromarray(self.labels).convert("P")
        image.putpalette(np.concatenate([np.zeros((1, 3), np.uint8), hues]).tobytes())
        return image

    def coco(self, file_name: str = "image.png") -> dict[str, Any]:
        """Return the masks in the format of COCO, of plain JSON types.

        Each phrase with a pixel has an annotation. Its runs are not compressed, and count down the
        columns (`pycocotools.mask.frPyObjects` reads them).

        Args:
            file_name: of the image.
        """
        height, width = self.labels.shape
        masks = [(number, self.labels == number) for number in range(1, len(self.names) + 1)]
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
            for place, (number, mask) in enumerate((one for one in masks if one[1].any()), 1)
        ]
        return {
            "images": [{"id": 1, "file_name": file_name, "width": width, "height": height}],
            "categories": [{"id": n, "name": name} for n, name in enumerate(self.names, 1)],
            "annotations": annotations,
        }

    def about(
        self, folder: str | Path, *, run: str | Path | None = None, kind: str = "png"
    ) -> dict[str, Any]:
        """Return the content of `segment.json`, of plain JSON types; arguments as of `save`."""
        folder, known = Path(folder), dict(enumerate(self.stability, 1))
        phrases: list[dict[str, Any]] = []
        for number, (name, share) in enumerate(zip(self.names, self.shares, strict=True), 1):
            mask, stability = self.labels == number, known.get(number)
            phrases.append(
                {
                    "name": name,
                    "label": number,
                    "share": round(share, 6),
                    "pixels": int(mask.sum()),
                    "box": _box(mask),
                    **({} if stability is None else {"stability": stability}),
                    "file": str(folder / _mask_file(number, name)),
                }
            )
        return {
            **({} if run is None else {"run": str(run)}),
            "folder": str(folder),
            "prompt": self.prompt,
            "threshold": self.threshold,
            "sheet": str(folder / f"sheet.{kind}"),
            "phrases": phrases,
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
        and white), `sheet.png` and `segment.json` (`about`). A phrase without a pixel has a black
        mask.

        Args:
            folder: new or empty.
            run: the folder of the run, for `segment.json`.
            kind: the format of the sheet.

        Raises:
            RunError: if something is there already, or nothing can be written there.
        """
        checks.one_of("kind", kind, ("png", "svg", "pdf"))
        with whole_folder(folder) as partial:
            (partial / "labels.png").write_bytes(png(self.indexed()))
            array = io.BytesIO()
            np.save(array, self.labels, allow_pickle=False)
            (partial / "labels.npy").write_bytes(array.getvalue())
            (partial / "masks").mkdir()
            for number, name in enumerate(self.names, 1):
                mask = Image.fromarray((self.labels == number).astype(np.uint8) * 255)
                (partial / _mask_file(number, name)).write_bytes(png(mask))
            (partial / f"sheet.{kind}").write_bytes(plots.encode(self.figure(), kind))
            about = self.about(folder, run=run, kind=kind)
            for name, content in (("coco.json", self.coco()), ("segment.json", about)):
                (partial / name).write_text(json.dumps(content) + "\n", encoding="utf-8")
        return Path(folder)

    def sheet(self, *, title: str | None = None) -> Image.Image:
        """Return `figure` as an image."""
        return plots.render(self.figure(title=title))

    def figure(self, *, title: str | None = None) -> "Figure":
        """Draw the image, all phrases in their colours, then each by itself with its share."""
        known = dict(enumerate(self.stability, 1))
        base = self.image or Image.new("RGB", self.labels.shape[::-1], "white")
        base = overlays.enlarge(overlays.shrunk(base, plots.MAX_WIDTH))
        labels = Image.fromarray(self.labels).resize(base.size, Image.Resampling.NEAREST)
        labels = np.asarray(labels)
        panels = [] if self.image is None else [Panel("", base, "the picture")]
        if len(self.names) != 1:
            rest = f"{100 * (1 - sum(self.shares)):.0f} % background"
            panels.append(Panel("", overlays.labelled(base, labels), rest))
        for number, (name, share) in enumerate(zip(self.names, self.shares, strict=True), 1):
            alone = np.where(labels == number, labels, 0)
            percent = f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"
            said, stability = percent if share else "no pixel", known.get(number)
            said += "" if stability is None else f" · {stability_said(stability)}"
            panels.append(Panel(name, overlays.labelled(base, alone), said))
        note = f"a pixel shows a phrase from {self.threshold:g} of its soft mask on"
        return plots.draw_panels(panels, title=self.prompt if title is None else title, note=note)

    def _repr_png_(self) -> bytes:
        return plots.encode(self.figure())


def segmented(
    recording: Recording,
    phrases: str | int | Sequence[str | int] | None,
    picture: Image.Image | None,
    threshold: float,
    stability: Mapping[int, float] | None = None,
) -> Segments:
    """Label each pixel with the phrase whose soft mask is greatest there, if it is great enough.

    Args:
        recording: one with refined maps.
        phrases: words or phrases of the prompt, or numbers of words; None for all its phrases.
        picture: the image, of the recording's size.
        threshold: 0 to 1, the value that the soft mask must have at least; else it is background.
        stability: of words, by number, if known.

    Raises: as `HeatMaps.segment`.
    """
    threshold, table = checks.fraction("threshold", threshold), recording.table
    if phrases is None:
        # Each concept was asked for, also one that names neither a thing nor a property.
        words = [word.tokens for word in table.read_words]
        places = words if table.of_concepts else phrase_tokens(table)
        names = [table.text_of(tokens) for tokens in places]
    else:
        asked = [phrases] if isinstance(phrases, str | int) else checks.in_order(phrases)
        if not asked or not all(isinstance(one, str) or type(one) is int for one in asked):
            raise ArgumentError(f"phrases is {quoted(phrases)}: expected a list of texts")
        found = [table.find(one) if isinstance(one, str) else table.tokens_at(one) for one in asked]
        # Two words of one phrase have one mask (`HeatMap.soft_mask`).
        places = [tuple(t for part in phrases_of(table, one) for t in part) for one in found]
        names = [
            one.strip() if isinstance(one, str) else table.text_of(tokens)
            for one, tokens in zip(asked, places, strict=True)
        ]
        for number, (name, tokens) in enumerate(zip(names, places, strict=True)):
            for other, theirs in zip(names[:number], places, strict=False):
                if not set(tokens).isdisjoint(theirs):
                    raise ArgumentError(
                        f"{quoted(other)} and {quoted(name)} are of one phrase: name it once"
                    )
    if not 1 <= len(names) <= MOST_PHRASES:
        raise ArgumentError(
            f"there are {plural(len(names), 'phrase')}: expected 1 to {MOST_PHRASES}; name words"
        )
    labels = np.zeros(recording.size[::-1], np.uint8)
    greatest = np.zeros(labels.shape, np.float32)
    for number, soft in enumerate(soft_masks(recording, places, picture), 1):
        labels[soft > greatest] = number  # of equal ones the first; of none, at a threshold of 0
        np.maximum(greatest, soft, out=greatest)
    labels[greatest < threshold] = 0
    labels.flags.writeable = False
    known = tuple(least_stability(stability, table.words, one) for one in places)
    known = known if any(one is not None for one in known) else ()
    return Segments(tuple(names), labels, picture, table.prompt, threshold, known)


def _box(mask: np.ndarray) -> list[int] | None:
    """Return left, top, width and height of the inside, in pixels; None where nothing is inside."""
    if not mask.any():
        return None
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    (left, right), (top, bottom) = columns[[0, -1]].tolist(), rows[[0, -1]].tolist()
    return [left, top, right - left + 1, bottom - top + 1]


def _mask_file(number: int, name: str) -> str:
    return f"masks/{number}-{slug(name, 40)}.png"


def _runs(mask: np.ndarray) -> list[int]:
    """Return the lengths of runs of pixels outside and inside in turn, down the columns."""
    flat = mask.ravel(order="F")
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    bounds = [0, *changes.tolist(), flat.size]
    counts = [after - before for before, after in pairwise(bounds)]
    return [0, *counts] if flat[0] else counts
