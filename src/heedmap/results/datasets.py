"""Data sets: the images and the masks of many saved runs, in formats that other tools read."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from heedmap.maps.masks import Segments
from heedmap.results.runs import Run
from heedmap.text.prompts import word_keys
from heedmap.text.words import TokenTable

_FILES: Mapping[str, Sequence[str]] = {
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
    phrases_of = _phrases_below(root, chosen, classes)
    if not phrases_of:
        raise RunError(
            f"{root} holds no saved run whose prompt has such words: name a folder of saved runs, "
            "and words of their prompts"
        )
    names: set[str] = set()
    for phrases in phrases_of.values():
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
    bar = track(
        phrases_of.items(),
        "Runs",
        console=Console(stderr=True),
        disable=not show_progress,
    )
    labels = [_BACKGROUND, *sorted(names)]
    with whole_folder(out) as partial:
        for file in _FILES[format]:
            (partial / file).parent.mkdir()
        examples = _examples(root, bar, labels)
        if format == "coco":
            _write_coco(partial, examples, labels)
        else:
            _write_labels(partial, examples, labels, format)
    return Path(out)


@dataclass(frozen=True, eq=False)
class _Example:
    """A run of a data set.

    Attributes:
        stem: the name of its files, without the ending.
        run_name: the folder of the run.
        image: the image, RGB.
        segments: its segments.
        numbers: the number of the class of each label of the segments.
    """

    stem: str
    run_name: str
    image: Image.Image
    segments: Segments
    numbers: list[int]


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


def _examples(
    root: Path,
    phrases_of: Iterable[tuple[Path, _Phrases]],
    labels: Sequence[str],
) -> Iterator[_Example]:
    """Yield the runs of a data set one after the other."""
    for number, (place, phrases) in enumerate(phrases_of, 1):
        run = Run.load(place)
        try:
            segments = run.maps.segment([*phrases])
        except SelectionError as error:
            raise RunError(f"{place}: {error}") from error
        run_name = place.relative_to(root).as_posix()
        yield _Example(
            stem=f"{number:06}-{slug(run_name, 100)}",
            run_name=run_name,
            image=to_rgb(run.image),
            segments=segments,
            numbers=[0, *map(labels.index, phrases.values())],
        )


def _write_coco(
    folder: Path,
    examples: Iterable[_Example],
    labels: Sequence[str],
) -> None:
    """Write images and annotations of all examples."""
    categories = [{"id": n, "name": name} for n, name in enumerate(labels)]
    images: list[Any] = []
    annotations: list[Any] = []
    for number, example in enumerate(examples, 1):
        path = folder / _FILES["coco"][0].format(example.stem)
        example.image.save(path)
        coco = example.segments.coco(path.name)
        prompt = example.segments.prompt
        about = {"id": number, "run": example.run_name, "prompt": prompt}
        images.append(coco["images"][0] | about)
        for annotation in coco["annotations"]:
            annotation["id"] = len(annotations) + 1
            annotation["image_id"] = number
            annotation["category_id"] = example.numbers[annotation["category_id"]]
            if annotation["category_id"]:
                annotations.append(annotation)
    content = {
        "images": images,
        "categories": categories[1:],
        "annotations": annotations,
    }
    put_file(folder / "annotations.json", json.dumps(content).encode())


def _write_labels(
    folder: Path,
    examples: Iterable[_Example],
    labels: Sequence[str],
    format: str,
) -> None:
    """Write images and label images of all examples, and the names of the classes."""
    colours = _voc_colours()
    image_file, label_file = _FILES[format]
    stems: list[str] = []
    for example in examples:
        stems.append(example.stem)
        example.image.save(folder / image_file.format(example.stem), quality=95)
        numbers = np.array(example.numbers, np.uint8)
        image = Image.fromarray(numbers[example.segments.labels])
        if format == "voc":
            image.putpalette(colours.tobytes())
        image.save(folder / label_file.format(example.stem))
    lists = {"classes.txt": labels}
    if format == "voc":
        rows = zip(labels, colours.tolist(), strict=False)
        lists = {
            "labelmap.txt": [f"{name}:{r},{g},{b}::" for name, (r, g, b) in rows],
            "ImageSets/Segmentation/train.txt": stems,
        }
    for file, lines in lists.items():
        put_file(folder / file, "\n".join([*lines, ""]).encode())


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
