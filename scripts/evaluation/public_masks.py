"""Maps of words against the masks of public data sets, by the metrics of the papers.

Two layouts are read: ImageNet-Segmentation (Guillaumin et al., IJCV 2014), one file
`gtsegs_ijcv.mat` of HDF5, and the images of Pascal VOC 2012 that show one class, from the folder
that holds `JPEGImages`. `locate` shows the model each image, with the prompt "a <class>".

The protocol is that of Chefer et al. (CVPR 2021) and of ConceptAttention (Helbling et al., arXiv
2502.04320): masks and scores on 224×224 pixels, accuracy and intersection over union of object and
background from the sums over all images, and the mean over images of the average precision of both
classes together. Pixels that VOC marks as void count nowhere.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import heedmap
from evaluation.measures import Figures
from evaluation.obedience import Progress
from evaluation.truth import average_precision

SIDE = 224
"""Pixels on a side of the masks that are compared."""
VOID = 255
"""The class of pixels that VOC leaves open."""
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "dining table", "dog", "horse", "motorbike", "person", "potted plant", "sheep", "sofa", "train",
    "tv monitor",
)  # fmt: skip
"""The names of the classes 1 to 20."""
PUBLISHED: dict[str, dict[str, tuple[float, float, float]]] = {
    "imagenet": {
        "DAAM, SDXL": (78.47, 64.56, 88.79),
        "cross attention, Flux": (74.92, 59.90, 87.23),
        "DINO attention": (81.97, 69.44, 86.12),
        "ConceptAttention, Flux": (83.07, 71.04, 90.45),
    },
    "voc": {
        "DAAM, SDXL": (72.76, 55.95, 88.34),
        "cross attention, Flux": (80.37, 54.77, 89.08),
        "DINO attention": (80.71, 64.33, 88.90),
        "ConceptAttention, Flux": (87.85, 76.45, 90.19),
    },
}
"""Accuracy, mIoU and mAP, in percent: table 1 of ConceptAttention (arXiv 2502.04320)."""


@dataclass(frozen=True)
class Sample:
    """An image of a data set.

    Attributes:
        image: the image (RGB).
        name: the class of its object, as a prompt names it.
        mask: (H, W) of the image; 1 the object, 0 the background, VOID what is left open.
    """

    image: Image.Image
    name: str
    mask: np.ndarray


def kind_of(path: Path) -> str:
    """Return "imagenet" for a file and "voc" for a folder of VOC; raise SystemExit otherwise."""
    if path.is_file():
        return "imagenet"
    if (path / "SegmentationClass").is_dir():
        return "voc"
    raise SystemExit(
        f"{path} is neither a file such as gtsegs_ijcv.mat nor a folder with JPEGImages and "
        "SegmentationClass, such as VOCdevkit/VOC2012"
    )


def read_names(path: Path) -> dict[str, str]:
    """Return the first name of each synset, from a file such as ImageNet's LOC_synset_mapping.txt.

    Its lines are like "n01440764 tench, Tinca tinca".
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    return {synset: names.partition(",")[0].strip() for synset, names in pairs}


def read_imagenet(path: Path, names: dict[str, str]) -> Iterator[Sample]:
    """Yield the images of ImageNet-Segmentation.

    MATLAB's arrays have their axes in reverse order in HDF5: (3, W, H) is an image.

    Args:
        path: the file.
        names: the class of each synset.

    Raises:
        SystemExit: if h5py is not installed, or a synset has no name.
    """
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise SystemExit("to read this file: pip install h5py") from error
    with h5py.File(path, "r") as opened:
        file: Any = opened
        for number in range(len(file["value/img"])):
            pixels = np.array(file[file["value/img"][number, 0]]).transpose(2, 1, 0)
            layers = file[file["value/gt"][number, 0]]
            mask = np.array(file[layers[0, 0]]).transpose(1, 0)
            letters = np.array(file[file["value/id"][number, 0]]).ravel()
            synset = "".join(map(chr, letters)).partition("_")[0]
            if synset not in names:
                raise SystemExit(f"there is no name of {synset} in the file of --names")
            yield Sample(Image.fromarray(pixels), names[synset], (mask > 0).astype(np.uint8))


def read_voc(folder: Path) -> Iterator[Sample]:
    """Yield the validation images of VOC's segmentation that show one class."""
    listed = folder / "ImageSets" / "Segmentation" / "val.txt"
    for stem in listed.read_text(encoding="utf-8").split():
        with Image.open(folder / "SegmentationClass" / f"{stem}.png") as file:
            classes = np.asarray(file)  # the indices of the palette
        found = sorted(set(np.unique(classes)) - {0, VOID})
        if len(found) != 1:
            continue
        with Image.open(folder / "JPEGImages" / f"{stem}.jpg") as file:
            image = file.convert("RGB")
        mask = np.where(classes == found[0], 1, classes).astype(np.uint8)
        yield Sample(image, VOC_CLASSES[found[0] - 1], mask)


@dataclass
class Scores:
    """The sums of a method's results over images.

    Attributes:
        right: pixels with the right class.
        pixels: pixels that are not void.
        both: pixels that are of a class in mask and prediction: (2,), background and object.
        either: pixels that are of it in one of them: (2,).
        precisions: the average precision of each image.
    """

    right: int = 0
    pixels: int = 0
    both: np.ndarray = field(default_factory=lambda: np.zeros(2, int))
    either: np.ndarray = field(default_factory=lambda: np.zeros(2, int))
    precisions: list[float] = field(default_factory=list)

    def add(self, mask: np.ndarray, predicted: np.ndarray, values: np.ndarray) -> None:
        """Add an image.

        Args:
            mask: 1 the object, 0 the background, VOID what is left open.
            predicted: bool, where the object is found.
            values: how sure each pixel is, 0 to 1.
        """
        counted = mask != VOID
        truth = mask[counted] == 1
        found = predicted[counted]
        sure = values[counted]
        self.right += int((truth == found).sum())
        self.pixels += int(counted.sum())
        for number, (there, seen) in enumerate(((~truth, ~found), (truth, found))):
            self.both[number] += int((there & seen).sum())
            self.either[number] += int((there | seen).sum())
        scores = np.concatenate([1 - sure, sure])
        classes = np.concatenate([~truth, truth])
        self.precisions.append(average_precision(scores, classes))

    def figures(self) -> Figures:
        """Return accuracy, mIoU and mAP, 0 to 1."""
        overlap = self.both / np.maximum(self.either, 1)
        return {
            "accuracy": self.right / max(self.pixels, 1),
            "miou": float(overlap.mean()),
            "map": float(np.mean(self.precisions)),
        }


def resized(values: np.ndarray) -> np.ndarray:
    """Return values (H, W) on SIDE × SIDE pixels, each the nearest."""
    picture = Image.fromarray(values.astype(np.float32))
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.NEAREST))


def measure(
    pipe: Any, samples: Iterable[Sample], seed: int, steps: int | None, progress: Progress
) -> Figures:
    """Compare the maps of each sample's class with its mask.

    Returns:
        The figures of the plain map, cut at its mean as in the papers, and of the mask.
    """
    plain = Scores()
    masks = Scores()
    how: dict[str, Any] = {} if steps is None else {"steps": steps}
    for number, sample in enumerate(samples, 1):
        found = heedmap.locate(pipe, sample.image, f"a {sample.name}", seed=seed, **how)
        heat = found.maps[sample.name]
        mask = resized(sample.mask).astype(np.uint8)
        values = resized(heat.values)
        span = max(float(np.ptp(values)), 1e-12)
        values = (values - values.min()) / span
        plain.add(mask, values > values.mean(), values)
        soft = resized(heat.soft_mask())
        masks.add(mask, soft >= 0.5, soft)
        progress("images", number, number)
    return {"plain map": plain.figures(), "mask": masks.figures(), "images": len(masks.precisions)}


def table(figures: Figures, kind: str) -> str:
    """Return the figures beside the published ones, as Markdown."""
    lines = ["| | accuracy | mIoU | mAP |", "| --- | --- | --- | --- |"]
    for name in ("plain map", "mask"):
        row = figures[name]
        cells = " | ".join(f"{100 * row[key]:.2f}" for key in ("accuracy", "miou", "map"))
        lines.append(f"| heedmap, {name}, {figures['images']} images | {cells} |")
    for name, values in PUBLISHED[kind].items():
        cells = " | ".join(f"{value:.2f}" for value in values)
        lines.append(f"| {name} (published: arXiv 2502.04320, table 1) | {cells} |")
    return "\n".join(lines)
