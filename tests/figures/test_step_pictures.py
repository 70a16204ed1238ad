"""The pictures of steps: put together into one, and taken out of it again."""

import numpy as np
import pytest
from making import same_pixels
from PIL import Image

from heedmap.figures.overlays import StepPictures, mosaic_size, of_mosaic


def frame(number: int, size: tuple[int, int] = (5, 3)) -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_step_images_are_read_back_from_their_mosaic(count: int):
    steps = StepPictures(tuple(map(frame, range(count))), "prediction")
    sheet = steps.mosaic()
    across, down = sheet.width // 5, sheet.height // 3
    assert across * down >= count > across * (down - 1)
    assert sheet.size == mosaic_size(count, (5, 3)) == (across * 5, down * 3)
    assert 0 <= across - down <= 1
    assert same_pixels(sheet.crop((0, 0, 5, 3)), frame(0))
    back = of_mosaic(sheet, count, (5, 3), "latents")
    assert back.shows == "latents" and back.size == (5, 3)
    for one, other in zip(back.frames, steps.frames, strict=True):
        assert same_pixels(one, other)
