"""Data sets: the images and the masks of many saved runs, in formats that other tools read."""

import json
import os
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.progress import track

from heedmap.checks import check_one_of
from heedmap.errors import RunError, SelectionError
from heedmap.figures.overlays import to_rgb
from heedmap.io.reading import path_of
from heedmap.io.writing import put_file, slug, whole_folder
from heedmap.results.runs import Run
from heedmap.text.prompts import word_keys

_FOLDERS = {
    "coco": ["images"],
    "voc": ["JPEGImages", "SegmentationClass"],
}
_LIST = "ImageSets/Segmentation/train.txt"
_BACKGROUND = "background"  # also of a phrase of this name
_MOST_CLASSES = 254  # of 8-bit labels; in VOC, 255 marks pixels to ignore


def dataset(
    folder: str | Path,
    out: str | Path,
    *,
    format: Literal["coco", "voc"] = "coco",
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

    Args:
        folder: of a sweep, a grid or an edit, of folders of runs, or of one run. Runs that are
            saved within another run's folder are left out.
        out: new or empty.
        format: "coco" or "voc", which has at most 254 classes.
        classes: "phrase" names a class "red house"; "noun" by the last word of this, "house".
        show_progress: whether to show a bar on stderr.

    Raises:
        ArgumentError: if an argument is wrong.
        RunError: if no run has a phrase, or the runs have too many; if a run cannot be read, or has
            no refined maps; or if something is at `out` already.
    """
    check_one_of("format", format, _FOLDERS)
    check_one_of("classes", classes, ("phrase", "noun"))
    is_voc = format == "voc"
    root = path_of(folder)
    classes_of = _classes_below(root, classes)
    names = {*chain.from_iterable(classes_of.values())} - {_BACKGROUND}
    if not names or (is_voc and len(names) > _MOST_CLASSES):
        raise RunError(
            f"the saved runs in {root} have {len(names)} classes: expected 1 to {_MOST_CLASSES}, "
            "or more in the format coco; name a folder of saved runs"
        )
    labels = [_BACKGROUND, *sorted(names)]
    console = Console(stderr=True)
    bar = track(classes_of.items(), "Runs", console=console, disable=not show_progress)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    stems: list[str] = []
    with whole_folder(out) as partial:
        for folder_name in _FOLDERS[format]:
            (partial / folder_name).mkdir(parents=True)
        for number, (place, phrases) in enumerate(bar, 1):
            run = Run.load(place)
            try:
                segments = run.maps.segment()
            except SelectionError as error:
                raise RunError(f"{place}: {error}") from error
            run_name = place.relative_to(root).as_posix()
            stem = f"{number:06}-{slug(run_name, 100)}"
            image = to_rgb(run.image)
            numbers = [0, *(labels.index(name) for name in phrases)]
            if is_voc:
                stems.append(stem)
                image.save(partial / f"JPEGImages/{stem}.jpg", quality=95)
                shown = np.array(numbers, np.uint8)[segments.labels]
                label_image = replace(segments, labels=shown).indexed()
                label_image.save(partial / f"SegmentationClass/{stem}.png")
                continue
            image.save(partial / f"images/{stem}.png")
            coco = segments.coco(f"{stem}.png")
            about = {"id": number, "run": run_name, "prompt": segments.prompt}
            images.append(coco["images"][0] | about)
            for annotation in coco["annotations"]:
                ids: dict[str, int] = {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": numbers[annotation["category_id"]],
                }
                if ids["category_id"]:
                    annotations.append(annotation | ids)
        if is_voc:
            put_file(partial / "classes.txt", "\n".join([*labels, ""]).encode())
            put_file(partial / _LIST, "\n".join([*stems, ""]).encode())
        else:
            categories = [{"id": n, "name": name} for n, name in enumerate(labels)]
            content = {
                "images": images,
                "categories": categories[1:],
                "annotations": annotations,
            }
            put_file(partial / "annotations.json", json.dumps(content).encode())
    return Path(out)


def _classes_below(root: Path, classes: str) -> dict[Path, list[str]]:
    """Return the classes of the phrases of each run below a folder."""
    first = -1 if classes == "noun" else 0
    classes_of: dict[Path, list[str]] = {}
    for place, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "run.json" not in files:
            continue
        folders.clear()  # what was made of this run
        table = Run.load(place).maps.tokens
        if table.phrases:
            texts = [table.prompt[p[0].start : p[-1].end] for p in table.phrases]
            names = [" ".join(word_keys(text)[first:]) for text in texts]
            classes_of[Path(place)] = names
    return classes_of
