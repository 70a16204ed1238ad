"""Masks as JSON, and back."""

import base64
import zlib

import msgspec
import numpy as np

from heedmap.io.schemas import to_json
from heedmap.io.word_edits import Mask

WIDE = np.array([[1, 0, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=bool)
BITS = b"\x98\x40"  # 1001 1000 01
SAVED = {
    "mask": [5, 2],  # width and height, as of a picture
    "packed": base64.b64encode(zlib.compress(BITS, 9)).decode(),
}


def test_bits_of_a_mask_are_row_by_row_from_the_upper_left():
    assert to_json(Mask.of(WIDE)) == SAVED
    np.testing.assert_array_equal(msgspec.convert(SAVED, Mask).inside(), WIDE)
