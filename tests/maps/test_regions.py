"""Masks as JSON, and back: what a file says of one is never trusted."""

import base64
import hashlib
import json
import tracemalloc
import zlib

import msgspec
import numpy as np
import pytest

from heedmap import Confine
from heedmap.errors import ArgumentError
from heedmap.files.notes import to_json
from heedmap.files.reading import MAX_PIXELS
from heedmap.files.settings import Mask
from heedmap.maps import regions
from heedmap.maps.regions import packed, unpacked
from heedmap.recording.edits import edit_from

BITS = b"\x86\x80"  # of the mask below: 1000 0110 1
MASK = np.array([[1, 0, 0], [0, 0, 1], [1, 0, 1]], dtype=bool)


def held(bits: bytes) -> str:
    return base64.b64encode(zlib.compress(bits, 9)).decode()


def noted(size: object, bits: bytes) -> dict:
    """What a file would say of a mask whose bits are these, each part of it right by itself."""
    return {"mask": size, "sha256": hashlib.sha256(bits).hexdigest(), "packed": held(bits)}


def assert_refused(about: dict) -> None:
    """By the schema of the file, or else where the bits are read."""
    try:
        known = msgspec.convert(about, Mask)
    except msgspec.ValidationError:
        return
    with pytest.raises(ArgumentError, match="the mask of 'cat' is not one that heedmap wrote"):
        unpacked(known, "'cat'")


def read(about: dict) -> np.ndarray | None:
    """As from a file."""
    return unpacked(msgspec.convert(about, Mask), "'cat'")


# --- what is written --------------------------------------------------------------------------


def test_its_bits_stand_row_by_row_from_the_upper_left():
    about = to_json(packed(MASK))
    assert about == {**noted([3, 3], BITS), "share": pytest.approx(4 / 9)}
    assert base64.b64decode(about["packed"]) == zlib.compress(BITS, 9)


def test_its_size_is_width_and_height():
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
def test_it_comes_back_from_its_bits(size):
    mask = np.random.default_rng(0).random(size[::-1]) < 0.3
    about = json.loads(json.dumps(to_json(packed(mask))))
    assert about["mask"] == list(size)
    found = read(about)
    np.testing.assert_array_equal(found, mask)
    assert found is not None and found.dtype == bool


def test_one_too_large_for_the_file_is_told_apart_alone():
    mask = np.random.default_rng(0).random((3000, 3000)) < 0.5
    about = to_json(packed(mask))
    assert about["packed"] is None
    assert read(about) is None
    assert edit_from(Confine("cat", mask).noted()) is None


def test_as_many_letters_as_there_may_be(monkeypatch: pytest.MonkeyPatch):
    letters = len(held(BITS))
    monkeypatch.setattr(regions, "_MOST_PACKED", letters)
    assert packed(MASK).packed
    monkeypatch.setattr(regions, "_MOST_PACKED", letters - 1)
    assert packed(MASK).packed is None


# --- what is read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size",
    [
        None, 9, "33", [], [3], [3, 3, 1], {"3": 3}, [3.5, 3], ["3", 3], [True, 9],
        [9, True], [None, 3], [0, 3], [3, 0], [-3, -3], [3, -3], [-3, 3], [2**40, 2**40],
    ],
)  # fmt: skip
def test_sizes_that_no_mask_has(size):
    assert_refused(noted(size, BITS))


def test_a_size_that_is_not_there():
    about = noted([3, 3], BITS)
    del about["mask"]
    assert_refused(about)


def test_how_many_pixels_one_may_have(monkeypatch: pytest.MonkeyPatch):
    assert regions.MAX_PIXELS == MAX_PIXELS  # as many as a picture
    monkeypatch.setattr(regions, "MAX_PIXELS", 12)
    for size in ([3, 4], [12, 1], [1, 12]):
        assert read(noted(size, b"\xff\xf0")) is not None
    for size in ([13, 1], [1, 13]):
        assert_refused(noted(size, b"\xff\xf8"))


@pytest.mark.parametrize(
    ("size", "bits"),
    [
        ([3, 3], b"\x86"),  # a byte too few
        ([3, 3], b"\x86\x80\x00"),  # and one too many
        ([3, 3], b""),
        ([0, 3], b""),  # as many as that asks for, and still none
        ([3, 0], b""),
        ([4, 2], b"\x86\x80"),
        ([8, 9], b"\xff" * 8),
        ([8, 7], b"\xff" * 8),
    ],
)
def test_bits_of_another_size(size, bits):
    assert_refused(noted(size, bits))


@pytest.mark.parametrize(
    "wrong",
    [
        {"packed": ""}, {"packed": "%"}, {"packed": "AAAA"}, {"packed": 3}, {"packed": []},
        {"packed": held(BITS)[:4]}, {"packed": held(BITS) + "\n"}, {"packed": "é"},
        {"packed": held(b"\x86\x81")},  # a bit that no pixel has
        {"packed": held(b"\x06\x80")},
        {"sha256": "0"}, {"sha256": None}, {"sha256": hashlib.sha256(b"").hexdigest()},
        {"sha256": hashlib.sha256(BITS).digest()}, {"sha256": 3},
    ],
)  # fmt: skip
def test_bits_that_are_not_those_that_were_noted(wrong):
    assert_refused({**noted([3, 3], BITS), **wrong})


def test_bits_without_what_tells_them_from_others():
    about = noted([3, 3], BITS)
    del about["sha256"]
    assert_refused(about)


def test_no_more_is_unpacked_than_the_size_asks_for():
    """64 MiB in 64 KiB, of a mask of nine pixels."""
    about = noted([3, 3], bytes(2**26))
    tracemalloc.start()
    try:
        assert_refused(about)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("more", [{}, {"packed": None}])
def test_without_its_bits_it_is_none(more):
    assert read({"mask": [3, 3], "sha256": "0", **more}) is None
