"""Overlays: numbers worked by hand, what cannot be drawn, and the same heat on a user's axes."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from heedmap.errors import ArgumentError
from heedmap.figures import overlays
from heedmap.figures.overlays import colour, enlarge, overlay, resize_map
from heedmap.io.writing import png

INFERNO_TOP = (252, 255, 164)  # as published
INFERNO_FOOT = (0, 0, 3)


def scene(width: int = 64, height: int = 48, mode: str = "RGB") -> Image.Image:
    picture = Image.new("RGB", (width, height), (150, 205, 245))
    ImageDraw.Draw(picture).rectangle(
        (width // 4, height // 3, width // 2, height - 1), (205, 50, 45)
    )
    return picture.convert(mode)


def ramp(h: int = 8, w: int = 8) -> np.ndarray:
    return np.linspace(0, 1, h * w, dtype=np.float32).reshape(h, w)


# --- resizing ---------------------------------------------------------------------------------


def test_a_map_is_resized_as_worked_out_by_hand():
    # Cell centres at half pixels, border held: the four pixels of a side lie at 0, ¼, ¾, 1.
    at = np.array([0, 0.25, 0.75, 1])
    got = resize_map(np.array([[0, 1], [2, 3]]), (4, 4))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, 2 * at[:, None] + at[None, :], atol=1e-6)


@pytest.mark.parametrize(
    ("size", "short", "wanted"),
    [
        ((130, 200), 256, (260, 400)),
        ((832, 1216), 256, (832, 1216)),
        ((40, 30), 90, (120, 90)),
    ],
)
def test_a_map_is_enlarged_by_whole_numbers(size, short, wanted):
    image = scene(*size)
    got = enlarge(image, short_side=short)
    assert got.size == wanted and got.mode == "RGB" and got is not image


# --- colour -----------------------------------------------------------------------------------


def test_both_ends_of_the_scale_have_their_colours():
    got = colour([[0, 1]])
    assert got.dtype == np.uint8 and got.shape == (1, 2, 3)
    np.testing.assert_allclose(got[0], [INFERNO_FOOT, INFERNO_TOP], atol=1)


# --- overlay ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
@pytest.mark.parametrize("size", [(83, 121), (3, 200)])
def test_overlay_keeps_the_size_and_the_picture(mode, size):
    image = scene(*size, mode=mode)
    before = image.tobytes()
    got = overlay(image, ramp(4, 6), low=0, high=1)
    assert got.size == size and got.mode == "RGB"
    assert image.tobytes() == before and image.mode == mode


def test_heat_zero_shows_the_picture_and_heat_one_the_colour():
    image = Image.new("RGB", (40, 20), (200, 200, 200))
    got = np.asarray(overlay(image, [[0.1, 0.5]], low=0.1, high=0.5))
    assert np.all(got[:, 0] == 120)  # grey stays grey, at 0.6 of its light
    np.testing.assert_allclose(got[0, -1], 0.15 * 120 + 0.85 * np.array(INFERNO_TOP), atol=1)


def test_values_are_clipped_to_the_callers_scale():
    image = scene()
    shifted = overlay(image, ramp() * 0.02 + 5, low=5, high=5.02)
    np.testing.assert_allclose(
        np.asarray(shifted, int), np.asarray(overlay(image, ramp(), low=0, high=1), int), atol=2
    )
    hot = overlay(image, np.full((2, 2), 9.0), low=0, high=1)
    assert hot.tobytes() == overlay(image, np.ones((3, 3)), low=0, high=1).tobytes()


@pytest.mark.parametrize("value", [0.013, -0.4])
def test_differences_of_rounding_get_no_contrast(value):
    """Whatever scale it is of: several maps that are the same everywhere have none between them."""
    image = scene()
    low = value
    values = np.linspace(low, low + 1e-6 * abs(low), 16).reshape(4, 4)
    got = overlay(image, values, low=low, high=float(values.max()))
    assert got.tobytes() == overlay(image, np.zeros((4, 4)), low=0, high=1).tobytes()
    wide = overlay(image, 1e3 * (values - low) + low, low=low, high=low + 1e-3 * abs(low))
    assert wide.tobytes() != got.tobytes()


def test_transparent_pixels_are_white():
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([255, 0, 0])
    palette.info["transparency"] = 0
    for image in (clear, palette):
        assert np.all(np.asarray(overlays.to_rgb(image)) == 255)
        assert np.all(np.asarray(overlay(image, [[0]], low=0, high=1)) == 153)  # white at 0.6


@pytest.mark.parametrize(
    "call",
    [
        lambda: overlay(Image.new("F", (4, 4)), [[0]], low=0, high=1),
        lambda: enlarge(scene(), short_side=0),
    ],
)
def test_maps_and_images_that_cannot_be_drawn_are_refused(call):
    with pytest.raises(ArgumentError, match=r"map|image|short_side"):
        call()


def test_a_png_holds_the_image_and_its_text():
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    text = PngInfo()
    text.add_itxt("parameters", "a house")
    with Image.open(io.BytesIO(png(Image.fromarray(pixels), text)), formats=["PNG"]) as back:
        np.testing.assert_array_equal(np.asarray(back), pixels)
        assert back.info == {"parameters": "a house"}


def test_heat_without_an_image_is_the_colour_map():
    got = np.asarray(overlays.heat([[0.1, 0.5]], (40, 20), low=0.1, high=0.5))
    assert got.shape == (20, 40, 3)
    np.testing.assert_allclose(got[0, [0, -1]], [INFERNO_FOOT, INFERNO_TOP], atol=1)


def test_values_of_both_signs_are_centred_on_zero():
    """What is 0 stays uncovered, whatever the ends; both signs are told apart."""
    image = scene()
    plain = overlay(image, np.zeros((2, 2)), low=0, high=1).tobytes()
    for low, high in ((-0.3, 0.1), (-0.3, -0.1)):
        assert overlay(image, np.zeros((2, 2)), low=low, high=high).tobytes() == plain
    colours = [
        np.asarray(overlays.heat(np.full((1, 1), value), (1, 1), low=-0.3, high=0.1), int)[0, 0]
        for value in (-0.3, -0.1, 0.0, 0.1, 0.3)
    ]
    blue = [int(b - r) for r, _, b in colours]
    assert blue[0] > 50 and blue[1] > 50 and abs(blue[2]) < 20 and blue[3] < -50 and blue[4] < -50
