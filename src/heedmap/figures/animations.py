"""Animations as GIF files, and small images of a run's steps."""

import base64
import html
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from heedmap.errors import plural, quoted
from heedmap.io.schemas import StepSource
from heedmap.io.writing import put_file

STEP_SIDE = 64
"""Pixels on the short side of a step's image at most."""


@dataclass(frozen=True, eq=False)
class StepPictures:
    """One small image for each step, all of one size.

    Attributes:
        frames: RGB, by step. Colours are fitted, not decoded: edges are soft, tones near, above all
            in a part that inpainting puts back at the end.
        shows: "prediction" where each is the model's prediction of the finished image; "latents",
            the noisy ones after the step, where its scheduler gives no prediction.
    """

    frames: tuple[Image.Image, ...]
    shows: StepSource

    def __repr__(self) -> str:
        (width, height), count = self.size, len(self.frames)
        return f"<StepPictures: {count} of {width}×{height}, {self.shows}>"

    @property
    def size(self) -> tuple[int, int]:
        """(W, H) of each."""
        return self.frames[0].size

    def mosaic(self) -> Image.Image:
        """Return all of them as one image, row by row (`mosaic_size`)."""
        count = len(self.frames)
        sheet = Image.new("RGB", mosaic_size(count, self.size))
        for frame, corner in zip(self.frames, _corners(count, self.size), strict=True):
            sheet.paste(frame, corner)
        return sheet


def tiles(count: int) -> tuple[int, int]:
    """Return the columns and rows of a mosaic of so many images."""
    across = math.ceil(math.sqrt(count))
    return across, math.ceil(count / across)


def mosaic_size(count: int, size: tuple[int, int]) -> tuple[int, int]:
    """Return (W, H) of a mosaic of so many images of a size."""
    across, down = tiles(count)
    return across * size[0], down * size[1]


def of_mosaic(
    sheet: Image.Image, count: int, size: tuple[int, int], shows: StepSource
) -> StepPictures:
    """Take a mosaic apart (`StepPictures.mosaic`)."""
    width, height = size
    frames = (sheet.crop((x, y, x + width, y + height)) for x, y in _corners(count, size))
    return StepPictures(tuple(frames), shows)


def _corners(count: int, size: tuple[int, int]) -> list[tuple[int, int]]:
    across, _ = tiles(count)
    return [(n % across * size[0], n // across * size[1]) for n in range(count)]


@dataclass(frozen=True, eq=False)
class Animation:
    """Frames that a GIF shows one after the other, for ever.

    Attributes:
        label: the title.
        frames: RGB images of one size.
        durations: of each, in milliseconds; GIFs count in tens of them.
    """

    label: str
    frames: tuple[Image.Image, ...]
    durations: tuple[int, ...]

    def __repr__(self) -> str:
        width, height = self.frames[0].size
        count = plural(len(self.frames), "frame")
        return f"<Animation {quoted(self.label)}: {count}, {width}×{height}>"

    def gif(self) -> bytes:
        """Return the bytes of a GIF file; all frames share one palette, lest colours flicker."""
        width, height = self.frames[0].size
        strip = Image.new("RGB", (width, height * len(self.frames)))
        for number, frame in enumerate(self.frames):
            strip.paste(frame, (0, number * height))
        sample = strip.resize((width // 2, strip.height // 2), Image.Resampling.NEAREST)
        palette = sample.quantize(256, Image.Quantize.MEDIANCUT, kmeans=1)
        first, *others = (
            frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames
        )
        file = io.BytesIO()
        how: dict[str, Any] = {"save_all": True, "loop": 0, "disposal": 1, "optimize": False}
        first.save(file, "GIF", append_images=others, duration=list(self.durations), **how)
        return file.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the GIF file, in the place of an older one; RunError if it cannot be written."""
        return put_file(path, self.gif())

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.gif()).decode()
        return f'<img alt="{html.escape(self.label)}" src="data:image/gif;base64,{data}">'
