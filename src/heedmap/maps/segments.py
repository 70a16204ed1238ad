"""Which phrase each pixel of a picture shows: masks of all phrases at once.

Axes: H, W the picture's pixels.
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
from heedmap.figures import layout, overlays
from heedmap.figures.formats import png
from heedmap.figures.layout import Panel
from heedmap.io.writing import slug, whole_folder
from heedmap.maps.masks import all_parts, meant, soft_masks
from heedmap.maps.recordings import Recording
from heedmap.maps.stability import least_stability, stability_said
from heedmap.options import MASK_THRESHOLD
from heedmap.text.words import TokenTable

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

MOST_PHRASES = 255
"""More than these no picture of 8-bit labels tells apart."""


@dataclass(frozen=True, eq=False)
class Segments:
    """Which phrase each pixel of a picture shows.

    Attributes:
        names: the phrases, in the order of the prompt or as they were asked for.
        labels: uint8 (H, W), read-only: 0 where the picture shows none of them, n for the n-th.
        image: the picture, where it is known.
        prompt: that the phrases are of.
        threshold: what a soft mask had to have at least.
        stability: of each phrase that of the least stable map of its words, as `Run.stability` has
            it; None where that is not known, and empty where none is.
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
        """The pixels of a phrase: bool (H, W); of all that have the name.

        Raises:
            UnknownWordError: if there is none of that name.
        """
        numbers = [n for n, one in enumerate(self.names, 1) if one == name]
        if not numbers:
            raise UnknownWordError(
                f"there is no segment {quoted(name)}: expected one of "
                f"{', '.join(map(quoted, self.names))}"
            )
        return np.isin(self.labels, numbers)

    @property
    def shares(self) -> tuple[float, ...]:
        """Which part of the picture each phrase has, 0 to 1; the rest is background."""
        counts = np.bincount(self.labels.ravel(), minlength=len(self.names) + 1)
        return tuple(float(count) / self.labels.size for count in counts[1:])

    def indexed(self) -> Image.Image:
        """The labels as a picture of mode "P": pixels are the labels, the palette their colours."""
        picture = Image.fromarray(self.labels).convert("P")
        picture.putpalette(_palette().tobytes())
        return picture

    def coco(self, file_name: str = "image.png") -> dict[str, Any]:
        """The masks as COCO tells objects: one annotation a phrase, its pixels as run lengths.

        The runs are not compressed, and count down the columns, as COCO's do
        (`pycocotools.mask.frPyObjects` reads them). A phrase without a pixel has no annotation.

        Args:
            file_name: of the picture.

        Returns:
            `images`, `categories` and `annotations`, of plain JSON types.

        Raises:
            ArgumentError: if `file_name` is not a text.
        """
        file_name = checks.text("file_name", file_name)
        height, width = self.labels.shape
        annotations: list[dict[str, Any]] = []
        for number in range(1, len(self.names) + 1):
            mask = self.labels == number
            if not mask.any():
                continue
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": 1,
                    "category_id": number,
                    "segmentation": {"size": [height, width], "counts": _runs(mask)},
                    "area": int(mask.sum()),
                    "bbox": _box(mask),
                    "iscrowd": 0,
                }
            )
        return {
            "images": [{"id": 1, "file_name": file_name, "width": width, "height": height}],
            "categories": [{"id": n, "name": name} for n, name in enumerate(self.names, 1)],
            "annotations": annotations,
        }

    def about(
        self, folder: str | Path, *, run: str | Path | None = None, kind: str = "png"
    ) -> dict[str, Any]:
        """What `segment.json` says of them, of plain JSON types; arguments as of `save`."""
        folder, known = Path(folder), dict(enumerate(self.stability, 1))
        phrases: list[dict[str, Any]] = []
        for number, (name, share) in enumerate(zip(self.names, self.shares, strict=True), 1):
            mask, held = self.labels == number, known.get(number)
            phrases.append(
                {
                    "name": name,
                    "label": number,
                    "share": round(share, 6),
                    "pixels": int(mask.sum()),
                    "box": _box(mask),
                    **({} if held is None else {"stability": held}),
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

        They are `labels.png`, `labels.npy`, `coco.json`, `masks/<label>-<phrase>.png` (black and
        white), `sheet.png` and `segment.json`, which says what `about` does. A phrase without a
        pixel has a black mask.

        Args:
            folder: new or empty.
            run: the folder of the run, to be noted.
            kind: of the sheet's file.

        Returns:
            The folder.

        Raises:
            ArgumentError: if `folder` is not a path, or an argument is none of its choices.
            RunError: if something is there already, or nothing can be written there.
        """
        checks.one_of("kind", kind, ("png", "svg", "pdf"))
        with whole_folder(folder) as partial:
            (partial / "labels.png").write_bytes(png(self.indexed()))
            held = io.BytesIO()
            np.save(held, self.labels, allow_pickle=False)
            (partial / "labels.npy").write_bytes(held.getvalue())
            _write_json(partial / "coco.json", self.coco())
            (partial / "masks").mkdir()
            for number, name in enumerate(self.names, 1):
                mask = Image.fromarray((self.labels == number).astype(np.uint8) * 255)
                (partial / _mask_file(number, name)).write_bytes(png(mask))
            drawn = png(self.sheet()) if kind == "png" else self.figure().data(kind)
            (partial / f"sheet.{kind}").write_bytes(drawn)
            _write_json(partial / "segment.json", self.about(folder, run=run, kind=kind))
        return Path(folder)

    def sheet(self, *, title: str | None = None) -> Image.Image:
        """What `figure` shows, as a picture."""
        return self.figure(title=title).image()

    def figure(self, *, title: str | None = None) -> "Sheet":
        """The picture, all phrases in their colours, then each by itself with its share.

        Args:
            title: above all; left out, the prompt.

        Returns:
            A matplotlib Figure, which saves itself as PNG, SVG or PDF.
        """
        said = self.prompt if title is None else checks.text("title", title)
        known = dict(enumerate(self.stability, 1))
        base = self.image or Image.new("RGB", self.labels.shape[::-1], "white")
        base = overlays.enlarge(overlays.shrunk(base, layout.MAX_WIDTH // 2))
        labels = np.asarray(
            Image.fromarray(self.labels).resize(base.size, Image.Resampling.NEAREST)
        )
        panels = [] if self.image is None else [Panel("", base, "the picture")]
        if len(self.names) != 1:
            rest = 1 - sum(self.shares)
            panels.append(
                Panel("", overlays.labelled(base, labels), f"{100 * rest:.0f} % background")
            )
        for number, (name, share) in enumerate(zip(self.names, self.shares, strict=True), 1):
            alone = np.where(labels == number, labels, 0)
            held = known.get(number)
            told = _percent(share) + ("" if held is None else f" · {stability_said(held)}")
            panels.append(Panel(name, overlays.labelled(base, alone), told))
        note = f"a pixel shows a phrase from {self.threshold:g} of its soft mask on"
        return layout.framed(layout.in_rows(panels), title=said, note=note)

    def _repr_png_(self) -> bytes:
        return self.figure().data()


def segmented(
    recording: Recording,
    queries: Sequence[str | int] | None,
    picture: Image.Image | None,
    threshold: float,
    stability: Mapping[int, float] | None = None,
) -> Segments:
    """Label each pixel with the phrase whose soft mask is greatest there, if it is enough.

    Args:
        recording: which has refined maps.
        queries: words or phrases of the prompt, or numbers of words; None for all its phrases.
        picture: of the recording's size.
        threshold: 0 to 1, what the soft mask must have at least; else it is background.
        stability: of words, by number, where it is known.

    Raises:
        ArgumentError: if there is nothing to tell apart, or two queries are of one phrase.
        SelectionError: if there are no refined maps.
        UnknownWordError: if the prompt has no such word.
        TruncatedWordError: if the model did not read it.
    """
    threshold, table = checks.fraction("threshold", threshold), recording.table
    if queries is None:
        places = all_parts(table)
        names = [table.text_of(tokens) for tokens in places]
    else:
        asked = _checked_queries(queries)
        # As of `HeatMap.soft_mask`: two queries of one phrase have one mask, however they are put.
        places = [[t for part in meant(table, _found(table, one)) for t in part] for one in asked]
        names = [
            one if isinstance(one, str) else table.text_of(tokens)
            for one, tokens in zip(asked, places, strict=True)
        ]
        _check_apart(names, places)
    if not 1 <= len(names) <= MOST_PHRASES:
        of = "the prompt has" if queries is None else "you named"
        said = plural(len(names), "phrase") if names else "no phrases"
        raise ArgumentError(
            f"{of} {said}: expected 1 to {MOST_PHRASES} to tell apart; name some words"
        )
    labels = np.zeros(recording.size[::-1], np.uint8)
    greatest = np.zeros(labels.shape, np.float32)
    for number, soft in enumerate(soft_masks(recording, places, picture), 1):
        labels[soft > greatest] = number  # of equal ones the first; of none, at a threshold of 0
        np.maximum(greatest, soft, out=greatest)
    labels[greatest < threshold] = 0
    labels.flags.writeable = False
    held = tuple(least_stability(stability, table.words, one) for one in places)
    known = held if any(one is not None for one in held) else ()
    return Segments(tuple(names), labels, picture, table.prompt, threshold, known)


def _checked_queries(queries: object) -> list[str | int]:
    found = [queries] if isinstance(queries, str | int) else checks.in_order(queries)
    if not found or not all(checks.is_text(one) or type(one) is int for one in found):
        raise ArgumentError(
            f"phrases is {quoted(queries)}: expected a list of words or phrases of the prompt, as "
            "in ['red house', 'tree']"
        )
    return [one if isinstance(one, int) else str(one).strip() for one in found]


def _found(table: TokenTable, query: str | int) -> tuple[int, ...]:
    return table.find(query) if isinstance(query, str) else table.tokens_at(query)


def _check_apart(names: Sequence[str], places: Sequence[Sequence[int]]) -> None:
    for number, (name, tokens) in enumerate(zip(names, places, strict=True)):
        for other, theirs in zip(names[:number], places[:number], strict=True):
            if not set(tokens).isdisjoint(theirs):
                raise ArgumentError(
                    f"{quoted(other)} and {quoted(name)} are of one phrase: expected phrases that "
                    "have no word in common; name it once"
                )


def _box(mask: np.ndarray) -> list[int] | None:
    """Left, top, width and height of what is inside, in pixels; None where nothing is."""
    if not mask.any():
        return None
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    (left, right), (top, bottom) = columns[[0, -1]].tolist(), rows[[0, -1]].tolist()
    return [left, top, right - left + 1, bottom - top + 1]


def _mask_file(number: int, name: str) -> str:
    return f"masks/{number}-{slug(name, 40)}.png"


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def _runs(mask: np.ndarray) -> list[int]:
    """How many pixels there are in turn outside and inside, down the columns."""
    flat = mask.ravel(order="F")
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    bounds = [0, *changes.tolist(), flat.size]
    counts = [after - before for before, after in pairwise(bounds)]
    return [0, *counts] if flat[0] else counts


def _palette() -> np.ndarray:
    """The colours of labels 0 to 255: black, then the hues again and again; uint8 (256, 3)."""
    hues = overlays.hue_colours()
    return np.concatenate([np.zeros((1, 3), np.uint8), np.resize(hues, (255, 3))])


def _percent(share: float) -> str:
    if share == 0:
        return "no pixel"
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"
