"""Formats of figures, and PNG as another reader finds it."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap.errors import ArgumentError
from heedmap.figures.formats import FORMATS, format_of, png


def test_a_format_is_told_by_the_suffix():
    assert [format_of(f"a.b/house.{kind}") for kind in FORMATS] == ["png", "svg", "pdf"]
    assert format_of(Path("HOUSE.PDF")) == "pdf"
    for name in ("house", "house.jpg", ".png", "house.svgz", "png/"):
        with pytest.raises(ArgumentError, match=r"expected a file that ends in \.png, \.svg or"):
            format_of(name)


def test_png_is_the_picture_and_its_text():
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    text = PngInfo()
    text.add_itxt("parameters", "a house")
    with Image.open(io.BytesIO(png(Image.fromarray(pixels), text)), formats=["PNG"]) as back:
        np.testing.assert_array_equal(np.asarray(back), pixels)
        assert back.info == {"parameters": "a house"}
    assert png(Image.fromarray(pixels)) == png(Image.fromarray(pixels))
