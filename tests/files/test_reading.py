"""Reading: paths, bytes, JSON by a schema, and pictures; each limit holds before it is decoded."""

import os
import struct
import zlib

import numpy as np
import pytest
from msgspec import Struct
from PIL import Image

from heedmap.errors import ArgumentError, RunError
from heedmap.io import reading
from heedmap.io.reading import read_photograph
from heedmap.io.schemas import Format


@pytest.mark.parametrize("given", [None, "", "a\0b"])
def test_objects_that_are_no_path_are_refused(given):
    with pytest.raises(ArgumentError):
        reading.path_of(given)


def test_only_regular_files_of_at_most_so_many_bytes_are_read(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"1234")
    assert reading.read_bytes(path, most=4) == b"1234"
    with pytest.raises(RunError):
        reading.read_bytes(path, most=3)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nowhere").symlink_to("nothing")
    for name in ("pipe", "nowhere", "missing", ".", "a" * 300):
        with pytest.raises(RunError):
            reading.read_bytes(tmp_path / name, most=9)


class Thing(Struct):
    format: Format
    seed: int


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format": 4}', b'{"format": 3, "seed": 1}'],
)
def test_json_that_does_not_fit_is_an_error_that_names_the_file(data):
    assert reading.decode(b'{"format": 4, "seed": 1, "more": 0}', Thing, "x").seed == 1
    with pytest.raises(RunError):
        reading.decode(data, Thing, "x")


# --- pictures ---------------------------------------------------------------------------------


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def empty_png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(2**15, 1), (2**13 + 1, 2**13)])
def test_oversized_images_are_refused_before_decoding(tmp_path, size):
    path = tmp_path / "x.png"
    path.write_bytes(empty_png(*size))
    with pytest.raises(RunError):
        reading.read_image(path, size=size)
    with pytest.raises(ArgumentError):
        read_photograph(path)


def test_only_whole_pngs_of_the_expected_size_are_read(tmp_path):
    path = tmp_path / "x.png"
    Image.new("RGB", (8, 6)).save(path)
    assert reading.read_image(path, size=(8, 6)).size == (8, 6)
    with pytest.raises(RunError):
        reading.read_image(path, size=(6, 8))
    Image.new("RGB", (8, 8)).save(path, "JPEG")
    with pytest.raises(RunError):
        reading.read_image(path, size=(8, 8))
    Image.effect_noise((64, 64), 50).convert("RGB").save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(RunError):
        reading.read_image(path, size=(64, 64))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP"])
def test_image_files_of_users_are_read(tmp_path, kind):
    path = tmp_path / "photo"
    Image.new("RGB", (48, 32), (200, 10, 30)).save(path, kind)
    found = read_photograph(path)
    assert found.size == (48, 32) and found.mode == "RGB"
    assert np.abs(np.asarray(found, int) - (200, 10, 30)).max() <= 8


def test_other_files_of_users_are_refused(tmp_path):
    for kind in ("GIF", "EPS"):
        Image.new("RGB", (48, 32)).save(tmp_path / kind, kind)
    os.mkfifo(tmp_path / "pipe")
    for name in ("GIF", "EPS", "nothing", "pipe", "."):
        with pytest.raises(ArgumentError):
            read_photograph(tmp_path / name)
