"""What tells the pixels of a picture from those of others."""

import hashlib

from PIL import Image

from heedmap.io.writing import digest_of


def test_it_is_of_the_pixels_row_by_row():
    picture = Image.new("RGB", (2, 1))
    picture.putpixel((1, 0), (1, 2, 3))
    wanted = hashlib.sha256(bytes([0, 0, 0, 1, 2, 3])).hexdigest()
    assert digest_of(picture) == wanted
    assert digest_of(picture.convert("RGBA")) == wanted
    assert digest_of(picture.transpose(Image.Transpose.ROTATE_180)) != wanted
