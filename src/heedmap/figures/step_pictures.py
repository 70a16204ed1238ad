"""The picture at each step, small: what a model took it to be while it was drawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from heedmap.io.values import StepSource

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
