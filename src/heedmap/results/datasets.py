"""Data sets: the images and the masks of many saved runs, in formats that other tools read."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track

from heedmap.checks import check_one_of
from heedmap.errors import RunError, SelectionError, UnknownWordError, WordError
from heedmap.figures.overlays import hue_colours, to_rgb
from heedmap.io.reading import path_of
from heedmap.io.writing import put_file, slug, whole_folder
from heedmap.maps.masks import box_of
from heedmap.results.runs import Run
from heedmap.text.prompts import word_keys
from heedmap.text.words import TokenTable

_FOLDERS = {
    "coco": ("images", ""),
    "voc": ("JPEGImages", "SegmentationClass"),
    "png": ("images", "masks"),
}
"""The folders of images and of label images, by format."""
_LIST = "ImageSets/Segmentation/train.txt"
_BACKGROUND = "background"  # also of a phrase of this name
_MOST_CLASSES = 254  # of 8-bit labels; in VOC, 255 marks pixels to ignore
_Phrases = dict[str | int, str]  # the classes of words, or of numbers of words


def dataset(
    folder: str | Path,
    out: str | Path,
    *,
    format: Literal["coco", "voc", "png"] = "coco",
    words: Sequence[str] | None = None,
    classes: Literal["phrase", "noun"] = "phrase",
    show_progress: bool = False,
) -> Path:
    """Write the masks of all saved runs in a folder as one data set, and return `out`.

        hm.dataset("outputs/sweep", "outputs/houses", format="voc", classes="noun")

    The masks are those of `HeatMaps.segment`. A class has the same number in all images; 0 is the
    background, and so is a phrase of this name. The names are sorted, and in lower case. One run at
    a time is in memory.

    - coco: `images/`, and `annotations.json` with an annotation for each phrase that an image
      shows. Its images also have "run", the folder of the run, and "prompt".
    - voc: `JPEGImages/`, `SegmentationClass/` (the numbers of classes, with a palette),
      `ImageSets/Segmentation/train.txt` (the names of all images) and `classes.txt`.
    - png: `images/`, `masks/` (grey levels are the numbers of classes) and `classes.txt`.

    Args:
        folder: of a sweep, a grid or an edit, of folders of runs, or of one run. Runs that are
            saved within another run's folder are left out.
        out: new or empty.
        format: "coco", "voc" or "png"; the last two have at most 254 classes.
        words: words or phrases, which name the classes. Runs whose prompts have none of them are
            left out. Default: all phrases of each prompt.
        classes: "phrase" names a class "red house"; "noun" by the last word of this, "house".
        show_progress: whether to show a bar on stderr.

    Raises:
        ArgumentError: if an argument is wrong.
        RunError: if the runs have no words, or too many; if a run cannot be read, or has no refined
            maps; or if something is at `out` already.
        UnknownWordError: if no prompt has one of the words.
    """
    check_one_of("format", format, _FOLDERS)
    check_one_of("classes", classes, ("phrase", "noun"))
    root = path_of(folder)
    chosen = [words] if isinstance(words, str) else words
    phrases_of = _phrases_below(root, chosen, classes)
    names: set[str] = set()
    for phrases in phrases_of.values():
        names.update(phrases.values())
    names.discard(_BACKGROUND)
    unknown = set(chosen or ()).difference(*phrases_of.values())
    if unknown:
        raise UnknownWordError(f"no prompt in {root} has the words {sorted(unknown)}")
    if not names:
        raise RunError(f"no run whose prompt has words is saved in {root}")
    if format != "coco" and len(names) > _MOST_CLASSES:
        raise RunError(
            f"the saved runs in {root} have {len(names)} classes: expected at most "
            f"{_MOST_CLASSES}; name words of their prompts, or take the format coco"
        )
    labels = [_BACKGROUND, *sorted(names)]
    console = Console(stderr=True)
    bar = track(phrases_of.items(), "Runs", console=console, disable=not show_progress)
    categories = [{"id": n, "name": name} for n, name in enumerate(labels)]
    coco: dict[str, list[Any]] = {
        "images": [],
        "categories": categories[1:],
        "annotations": [],
    }
    image_folder, label_folder = _FOLDERS[format]
    suffix = "jpg" if format == "voc" else "png"
    stems: list[str] = []
    with whole_folder(out) as partial:
        (partial / image_folder).mkdir()
        (partial / label_folder).mkdir(exist_ok=True)
        for number, (place, phrases) in enumerate(bar, 1):
            run = Run.load(place)
            try:
                segments = run.maps.segment([*phrases])
            except SelectionError as error:
                raise RunError(f"{place}: {error}") from error
            run_name = place.relative_to(root).as_posix()
            stem = f"{number:06}-{slug(run_name, 100)}"
            stems.append(stem)
            file = f"{stem}.{suffix}"
            to_rgb(run.image).save(partial / image_folder / file, quality=95)
            numbers = [0, *map(labels.index, phrases.values())]
            if label_folder:
                array = np.array(numbers, np.uint8)[segments.labels]
                label_image = Image.fromarray(array)
                if format == "voc":
                    label_image.putpalette([0, 0, 0, *hue_colours().flatten().tolist()])
                label_image.save(partial / label_folder / f"{stem}.png")
                continue
            image = {
                "id": number,
                "file_name": file,
                "width": run.image.width,
                "height": run.image.height,
                "run": run_name,
                "prompt": segments.prompt,
            }
            coco["images"].append(image)
            for label, category in enumerate(numbers):
                mask = segments.labels == label
                if category and mask.any():
                    annotation = {
                        "id": len(coco["annotations"]) + 1,
                        "image_id": number,
                        "category_id": category,
                        "segmentation": {"size": [*mask.shape], "counts": _runs(mask)},
                        "area": int(mask.sum()),
                        "bbox": box_of(mask),
                        "iscrowd": 0,
                    }
                    coco["annotations"].append(annotation)
        if format == "coco":
            put_file(partial / "annotations.json", json.dumps(coco).encode())
        else:
            put_file(partial / "classes.txt", "\n".join([*labels, ""]).encode())
        if format == "voc":
            put_file(partial / _LIST, "\n".join([*stems, ""]).encode())
    return Path(out)


def _runs(mask: np.ndarray) -> list[int]:
    """Return the lengths of runs of pixels outside and inside in turn, down the columns.

    COCO does not compress them; `pycocotools.mask.frPyObjects` reads them.
    """
    flat = mask.ravel(order="F")
    changes = np.flatnonzero(np.diff(flat, prepend=False))
    return np.diff([0, *changes.tolist(), flat.size]).tolist()


def _phrases_below(
    root: Path,
    words: Sequence[str] | None,
    classes: str,
) -> dict[Path, _Phrases]:
    """Return, for each run below a folder, what to segment, and its classes."""
    phrases_of: dict[Path, _Phrases] = {}
    for place, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "run.json" in files:
            folders.clear()  # what was made of this run
            phrases = _phrases(Run.load(place).maps.tokens, words, classes)
            if phrases:
                phrases_of[Path(place)] = phrases
    return phrases_of


def _phrases(
    table: TokenTable,
    words: Sequence[str] | None,
    classes: str,
) -> _Phrases:
    """Return what to segment of a prompt, and its classes."""
    texts: _Phrases = {}
    if words is None:
        for phrase in table.phrases:
            texts[phrase[0].number] = table.prompt[phrase[0].start : phrase[-1].end]
    for word in words or ():
        with suppress(WordError):
            table.find(word)
            texts[word] = word
    first = -1 if classes == "noun" else 0
    return {query: " ".join(word_keys(text)[first:]) for query, text in texts.items()}
