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

BITS = b"\x86\x80"  # of the mask below: 1000 0110 1
MASK = np.array([[1, 0, 0], [0, 0, 1], [1, 0, 1]], dtype=bool)


def held(bits: bytes) -> str:
    return base64.b64encode(zlib.compress(bits, 9)).decode()


def noted(size: object, bits: bytes) -> dict:
    """What a file would say of a mask whose bits are these, each part of it right by itself."""
    return {"mask": size, "sha256": hashlib.sha256(bits).hexdigest(), "packed": held(bits)}


def read(about: dict) -> np.ndarray | None:
    """As from a file."""
    return unpacked(msgspec.convert(about, Mask), "'cat'")


# --- what is written --------------------------------------------------------------------------


def test_bits_of_a_mask_are_row_by_row_from_the_upper_left():
    about = to_json(packed(MASK))
    assert about == {**noted([3, 3], BITS), "share": pytest.approx(4 / 9)}
    assert base64.b64decode(about["packed"]) == zlib.compress(BITS, 9)


def test_the_size_of_a_mask_is_width_and_height():
    """As a picture's, and not as an array's."""
    wide = np.array([[True, False, False, True, True], [False, False, False, False, True]])
    assert to_json(packed(wide))["mask"] == [5, 2]
    assert to_json(packed(wide.T))["mask"] == [2, 5]
    np.testing.assert_array_equal(read(noted([5, 2], b"\x98\x40")), wide)
    high = read(noted([2, 5], b"\x98\x40"))  # the same bits of another shape
    assert high is not None and high.tolist() == [
        [True, False], [False, True], [True, False], [False, False], [False, True],
    ]  # fmt: skip


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (3, 5), (64, 48), (257, 129)])
def test_a_mask_is_read_back_from_its_bits(size):
    mask = np.random.default_rng(0).random(size[::-1]) < 0.3
    about = json.loads(json.dumps(to_json(packed(mask))))
    assert about["mask"] == list(size)
    found = read(about)
    np.testing.assert_array_equal(found, mask)
    assert found is not None and found.dtype == bool


def test_a_mask_too_large_for_the_file_keeps_only_its_digest():
    mask = np.random.default_rng(0).random((3000, 3000)) < 0.5
    about = to_json(packed(mask))
    assert about["packed"] is None
    assert read(about) is None
    assert edit_from(note_of(Confine("cat", mask))) is None


# --- what is read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"packed": "no base64"}, {"packed": held(BITS)[:8]}, {"mask": [3, 9]}]
)
def test_broken_bits_are_refused(wrong):
    with pytest.raises(ArgumentError):
        read({**noted([3, 3], BITS), **wrong})


@pytest.mark.parametrize("more", [{}, {"packed": None}])
def test_a_mask_without_bits_is_none(more):
    assert read({"mask": [3, 3], "sha256": "0", **more}) is None
