"""Images as a page holds them: exact where there is room, within their budget everywhere."""

import base64
import io

import numpy as np
from making import noise, same_pixels, small, stable_diffusion, with_refined
from PIL import Image

from heedmap.figures.overlays import StepPictures, of_mosaic
from heedmap.page.pages import MASK_SIDE, masks_data, picture_data, steps_data


def open_image(link: str) -> Image.Image:
    kind, _, data = link.partition(";base64,")
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert kind == f"data:image/{(image.format or '').lower()}"
    return image


def test_an_image_is_lossless_if_it_fits():
    exact = picture_data(noise(1), 10**7)
    assert exact["exact"]
    assert same_pixels(open_image(exact["picture"]).convert("RGB"), noise(1).convert("RGB"))
    compressed = picture_data(noise(1), 1000)
    assert not compressed["exact"] and open_image(compressed["picture"]).format == "WEBP"


def test_each_phrase_has_its_soft_mask():
    maps = with_refined(small("a red house next to a blue tree")).maps
    masks = masks_data(maps, 10**9)
    assert [mask["words"] for mask in masks] == [[1, 2], [6, 7]]
    for mask, word in zip(masks, ("house", "blue"), strict=True):
        values = np.asarray(open_image(mask["picture"])) / 255
        np.testing.assert_allclose(values, maps[word].soft_mask(), atol=1 / 510 + 1e-6)
    assert masks_data(maps, 100) == []
    assert masks_data(small("a red house").maps, 10**9) == []
    run = with_refined(stable_diffusion("a house", side=48, steps=2))
    (large,) = masks_data(run.maps, 10**9)
    assert open_image(large["picture"]).size == (MASK_SIDE, MASK_SIDE)


def test_step_images_are_left_out_if_they_do_not_fit():
    smooth = [noise(n, (4, 4)).resize((64, 64), Image.Resampling.BICUBIC) for n in range(5)]
    steps = StepPictures(tuple(smooth), "latents")
    data = steps_data(steps, 10**6)
    assert data is not None and data["size"] == (64, 64) and data["shows"] == "latents"
    sheet = open_image(data["picture"]).convert("RGB")
    frames = of_mosaic(sheet, 5, (64, 64), "latents").frames
    for frame, image in zip(frames, smooth, strict=True):
        change = np.asarray(frame).astype(int) - np.asarray(image)
        assert np.abs(change).mean() < 6
    assert steps_data(steps, len(data["picture"]) - 1) is None
    assert steps_data(None, 10**6) is None
