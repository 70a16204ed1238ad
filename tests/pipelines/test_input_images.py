"""A picture that a user has, as a model sees it: its size, its turn, what it is made of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers import StableDiffusionImg2ImgPipeline
from making import random_pipeline
from PIL import Image

from heedmap import edit, locate
from heedmap.errors import ArgumentError, ModelError

PROMPT = "a red house"


def paint(width: int = 128, height: int = 128, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ((128, 128), (128, 128)),
        ((128, 56), (192, 88)),  # fewer pixels
        ((204, 102), (184, 88)),  # more
    ],
)
def test_an_image_is_scaled_to_a_size_of_the_model(random_model, given, seen):
    found = locate(random_model, paint(*given), PROMPT, seed=1, steps=1)
    assert found.image.size == found.settings.size == found.maps.recording.size == seen
    assert found.settings.located is not None and found.settings.located.size == given


def test_a_users_size_is_used():
    found = locate(random_pipeline(), paint(), PROMPT, seed=1, steps=1, size=(64, 96))
    assert found.image.size == (64, 96)
    expected = paint().resize((64, 96), Image.Resampling.LANCZOS)
    assert np.array_equal(np.asarray(found.image), np.asarray(expected))


def test_images_of_all_files_and_modes_are_read(tmp_path: Path):
    pipe = random_pipeline()
    picture = paint(128, 96)
    turned = picture.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn it clockwise to see it upright", as telephones write
    turned.save(tmp_path / "turned.png", exif=exif)
    clear = picture.convert("RGBA")
    clear.putalpha(0)
    for given, expected in (
        (tmp_path / "turned.png", picture),
        (str(tmp_path / "turned.png"), picture),
        (clear, Image.new("RGB", (128, 96), "white")),
        (picture.convert("L"), picture.convert("L").convert("RGB")),
    ):
        found = locate(pipe, given, PROMPT, seed=1, steps=1)
        assert np.array_equal(np.asarray(found.image), np.asarray(expected)), given


def test_images_that_cannot_be_read_are_refused(tmp_path: Path):
    pipe = random_pipeline()
    paint().save(tmp_path / "x.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "x.png").read_bytes()[:9000])
    how: dict[str, Any] = {"seed": 1, "steps": 1}
    with Image.open(tmp_path / "cut.png") as image:
        with pytest.raises(ArgumentError, match="image"):
            locate(pipe, image, PROMPT, **how)
        with pytest.raises(ArgumentError, match="image"):
            edit(pipe, PROMPT, "a blue house", image=image, **how)


def test_pipelines_that_start_from_an_image_are_refused():
    pipe = StableDiffusionImg2ImgPipeline(
        **random_pipeline().components, requires_safety_checker=False
    )
    with pytest.raises(ModelError, match="image"):
        locate(pipe, paint(), PROMPT)
