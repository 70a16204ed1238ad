"""Animations as GIF files."""

import base64
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from heedmap.errors import plural, quoted
from heedmap.io.values import StepSource
from heedmap.io.writing import put_file

STEP_SIDE = 64
"""Pixels on the short side at most."""


@dataclass(frozen=True, eq=False)
class StepPictures:
    """One small picture for each step, all of one size.

    Attributes:
        frames: RGB, by step.
        shows: "prediction" where each is what the model foretold the finished picture to be;
            "latents" where its scheduler does not tell, and the noisy latents are shown as they
            were after the step. Colours are fitted, not decoded: edges are soft, tones near. Where
            a pipeline puts a part of a given picture back at the end (inpainting with a model of
            four channels), that part is shown as the model foretold it, in colours less near.
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
        """All of them in one picture, row by row (`mosaic_size`)."""
        width, height = self.size
        across, _ = tiles(len(self.frames))
        sheet = Image.new("RGB", mosaic_size(len(self.frames), self.size))
        for number, frame in enumerate(self.frames):
            sheet.paste(frame, (number % across * width, number // across * height))
        return sheet


def tiles(count: int) -> tuple[int, int]:
    """How many stand side by side in a mosaic, and in how many rows."""
    across = math.ceil(math.sqrt(count))
    return across, math.ceil(count / across)


def mosaic_size(count: int, size: tuple[int, int]) -> tuple[int, int]:
    """(W, H) of a mosaic of so many pictures of a size."""
    across, down = tiles(count)
    return across * size[0], down * size[1]


def of_mosaic(
    sheet: Image.Image, count: int, size: tuple[int, int], shows: StepSource
) -> StepPictures:
    """The pictures that `StepPictures.mosaic` put together."""
    (width, height), (across, _) = size, tiles(count)
    corners: Sequence[tuple[int, int]] = [
        (n % across * width, n // across * height) for n in range(count)
    ]
    frames = (sheet.crop((x, y, x + width, y + height)) for x, y in corners)
    return StepPictures(tuple(frames), shows)


@dataclass(frozen=True, eq=False)
class Animation:
    """Frames that a GIF shows one after the other, for ever.

    Attributes:
        label: what it shows.
        frames: RGB pictures of one size.
        durations: how long each stands, in milliseconds; GIFs count in tens of them.
    """

    label: str
    frames: tuple[Image.Image, ...]
    durations: tuple[int, ...]

    def __repr__(self) -> str:
        width, height = self.frames[0].size
        count = plural(len(self.frames), "frame")
        return f"<Animation {quoted(self.label)}: {count}, {width}×{height}>"

    def gif(self) -> bytes:
        """Give the bytes of a GIF file. All frames have one palette, so that no colour flickers."""
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
        first.save(
            file,
            "GIF",
            save_all=True,
            append_images=others,
            duration=list(self.durations),
            loop=0,
            disposal=1,
            optimize=False,
        )
        return file.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the GIF file, in the place of an older one, and give its path.

        Args:
            path: of the file.

        Raises:
            ArgumentError: if `path` is not a path.
            RunError: if it cannot be written.
        """
        return put_file(path, self.gif())

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.gif()).decode()
        return f'<img alt="{html.escape(self.label)}" src="data:image/gif;base64,{data}">'
