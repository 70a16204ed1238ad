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
from heedmap.figures.overlays import to_rgb
from heedmap.io.reading import path_of
from heedmap.io.writing import put_file, slug, whole_folder
from heedmap.results.runs import Run
from heedmap.text.prompts import word_keys
from heedmap.text.words import TokenTable

_FILES = {
    "coco": ("images/{}.png",),
    "voc": ("JPEGImages/{}.jpg", "SegmentationClass/{}.png"),
    "png": ("images/{}.png", "masks/{}.png"),
}
"""The file of an image, and that of its labels, by format."""
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
    - voc: `JPEGImages/`, `SegmentationClass/` (with the colours of PASCAL VOC),
      `ImageSets/Segmentation/train.txt` (the names of all images) and `labelmap.txt`.
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
        RunError: if no run has such a word, or the runs have too many; if a run cannot be read, or
            has no refined maps; or if something is at `out` already.
        UnknownWordError: if no prompt has one of the words.
    """
    check_one_of("format", format, _FILES)
    check_one_of("classes", classes, ("phrase", "noun"))
    root = path_of(folder)
    chosen = [words] if isinstance(words, str) else words
    names: set[str] = set()
    phrases_of: dict[Path, _Phrases] = {}
    for place, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "run.json" in files:
            folders.clear()  # what was made of this run
            table = Run.load(place).maps.tokens
            if phrases := _phrases(table, chosen, classes):
                phrases_of[Path(place)] = phrases
                names.update(phrases.values())
    names.discard(_BACKGROUND)
    if not names or (format != "coco" and len(names) > _MOST_CLASSES):
        raise RunError(
            f"the runs in {root} have {len(names)} classes: expected 1 to {_MOST_CLASSES}, or more "
            "in the format coco; name a folder of saved runs, and words of their prompts"
        )
    unknown = set(chosen or ()).difference(*phrases_of.values())
    if unknown:
        raise UnknownWordError(f"no prompt in {root} has the words {sorted(unknown)}")
    labels = [_BACKGROUND, *sorted(names)]
    stems: list[str] = []
    images: list[Any] = []
    annotations: list[Any] = []
    bar = track(
        phrases_of.items(),
        "Runs",
        console=Console(stderr=True),
        disable=not show_progress,
    )
    with whole_folder(out) as partial:
        for file in _FILES[format]:
            (partial / file).parent.mkdir()
        for number, (place, phrases) in enumerate(bar, 1):
            run = Run.load(place)
            try:
                segments = run.maps.segment([*phrases])
            except SelectionError as error:
                raise RunError(f"{place}: {error}") from error
            run_name = place.relative_to(root).as_posix()
            stem = f"{number:06}-{slug(run_name, 100)}"
            stems.append(stem)
            path, *label_paths = [
                partial / file.format(stem) for file in _FILES[format]
            ]
            to_rgb(run.image).save(path, quality=95)
            numbers = [0, *map(labels.index, phrases.values())]
            for label_path in label_paths:
                image = Image.fromarray(np.array(numbers, np.uint8)[segments.labels])
                if format == "voc":
                    image.putpalette(_voc_colours().tobytes())
                image.save(label_path)
            if label_paths:
                continue
            coco = segments.coco(path.name)
            about = {"id": number, "run": run_name, "prompt": segments.prompt}
            images.append(coco["images"][0] | about)
            for annotation in coco["annotations"]:
                annotation["id"] = len(annotations) + 1
                annotation["image_id"] = number
                annotation["category_id"] = numbers[annotation["category_id"]]
                if annotation["category_id"]:
                    annotations.append(annotation)
        categories = [{"id": n, "name": name} for n, name in enumerate(labels)]
        content = {
            "images": images,
            "categories": categories[1:],
            "annotations": annotations,
        }
        colours = zip(labels, _voc_colours().tolist(), strict=False)
        lists = {
            "coco": {"annotations.json": [json.dumps(content)]},
            "voc": {
                "labelmap.txt": [
                    f"{name}:{r},{g},{b}::" for name, (r, g, b) in colours
                ],
                "ImageSets/Segmentation/train.txt": stems,
            },
            "png": {"classes.txt": labels},
        }
        for file, lines in lists[format].items():
            put_file(partial / file, "\n".join([*lines, ""]).encode())
    return Path(out)


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


def _voc_colours() -> np.ndarray:
    """Return the colours of the classes of PASCAL VOC: uint8 (256, 3).

    The bits of a number, from the lowest, are in turn red, green and blue, from the highest.
    """
    numbers = np.arange(256, dtype=np.uint8)[:, None]
    bits = np.unpackbits(numbers, axis=1, bitorder="little")
    return np.hstack([np.packbits(bits[:, at::3], axis=1) for at in range(3)])
