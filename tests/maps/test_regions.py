"""Masks as JSON, and back."""

import base64
import hashlib
import json
import zlib

import msgspec
import numpy as np
import pytest

from heedmap import Confine
from heedmap.errors import ArgumentError
from heedmap.io.schemas import Mask, to_json
from heedmap.maps.masks import packed, unpacked
from heedmap.recording.edits import edit_from, note_of

BITS = b"\x98\x40"  # 1001 1000 01
WIDE = np.array([[1, 0, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=bool)
SAVED = {
    "mask": [5, 2],  # width and height, as of a picture
    "sha256": hashlib.sha256(BITS).hexdigest(),
    "packed": base64.b64encode(zlib.compress(BITS, 9)).decode(),
}


def unpack(saved: dict) -> np.ndarray | None:
    """Unpack a mask as from a file."""
    return unpacked(msgspec.convert(saved, Mask), "'cat'")


def test_bits_of_a_mask_are_row_by_row_from_the_upper_left():
    assert to_json(packed(WIDE)) == {**SAVED, "share": pytest.approx(0.4)}
    np.testing.assert_array_equal(unpack(SAVED), WIDE)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (257, 129)])
def test_a_mask_is_read_back_from_its_bits(size):
    mask = np.random.default_rng(0).random(size[::-1]) < 0.3
    saved = json.loads(json.dumps(to_json(packed(mask))))
    read = unpack(saved)
    assert read is not None and read.dtype == bool
    np.testing.assert_array_equal(read, mask)


def test_a_mask_too_large_for_the_file_keeps_only_its_digest():
    mask = np.random.default_rng(0).random((3000, 3000)) < 0.5
    assert unpack(to_json(packed(mask))) is None
    assert edit_from(note_of(Confine("cat", mask))) is None


@pytest.mark.parametrize(
    "wrong", [{"packed": "no base64"}, {"packed": SAVED["packed"][:8]}, {"mask": [3, 9]}]
)
def test_broken_bits_are_refused(wrong):
    with pytest.raises(ArgumentError):
        unpack({**SAVED, **wrong})
