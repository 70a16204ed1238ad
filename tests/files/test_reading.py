"""What a folder may hold instead of files, and pictures that are none."""

import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from making import made_run
from PIL import Image

from heedmap.errors import ArgumentError, RunError
from heedmap.files import reading
from heedmap.files.reading import read_photograph
from heedmap.results.runs import Run

FILES = ("image.png", "maps.safetensors", "run.json")


@pytest.mark.parametrize("given", [None, 5, b"x", ["x"], "", "a\0b", "\ud800", object()])
def test_what_is_no_path(given):
    with pytest.raises(ArgumentError, match="is not a path: expected a text"):
        Run.load(given)


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000, "no such", "é" * 200])
def test_names_that_no_folder_can_have(name):
    with pytest.raises(RunError, match=r"there is no folder .*: expected a folder with run\."):
        Run.load(name)


def test_paths_are_read_as_texts_are(tmp_path):
    folder = made_run().save(tmp_path / "x")
    assert Run.load(str(folder)).settings == Run.load(folder).settings


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_never_waited_for(tmp_path, name):
    folder = made_run().save(tmp_path / "x")

    def refused() -> None:
        with pytest.raises(RunError, match=r"missing or broken|is not a run|no maps at"):
            Run.load(folder)

    (folder / name).unlink()
    refused()
    os.mkfifo(folder / name)
    refused()
    (folder / name).unlink()
    (folder / name).mkdir()
    refused()
    (folder / name).rmdir()
    for target in ("/dev/zero", "/dev/stdin", "nowhere", name, "/proc/self"):
        (folder / name).symlink_to(target)
        refused()
        (folder / name).unlink()


def otherwise(monkeypatch, opens) -> None:
    """Let the system open a file as `opens(path, open)` does."""
    usual = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more: opens(Path(path), lambda: usual(path, *more))
    )


@pytest.mark.parametrize("name", FILES)
def test_files_that_may_not_be_read(tmp_path, monkeypatch, name):
    folder = made_run().save(tmp_path / "x")

    def refuse(path: Path, opened) -> int:
        if path.name == name:
            raise PermissionError(13, "Permission denied")
        return opened()

    otherwise(monkeypatch, refuse)
    with pytest.raises(RunError, match=f"{name} cannot be read: its rights do not allow it"):
        Run.load(folder)


@pytest.mark.parametrize("name", FILES)
def test_files_that_go_while_they_are_looked_at(tmp_path, monkeypatch, name):
    folder = made_run().save(tmp_path / "x")

    def vanish(path: Path, opened) -> int:
        if path.name == name:
            path.unlink()
        return opened()

    otherwise(monkeypatch, vanish)
    with pytest.raises(RunError, match=r"is missing or broken|is not a run|no maps at"):
        Run.load(folder)


@pytest.mark.parametrize("name", FILES)
def test_files_that_become_pipes_while_they_are_looked_at(tmp_path, monkeypatch, name):
    folder = made_run().save(tmp_path / "x")

    def swap(path: Path, opened) -> int:
        if path.name == name:
            path.unlink()
            os.mkfifo(path)
        return opened()

    otherwise(monkeypatch, swap)
    with pytest.raises(RunError, match=r"is missing or broken|is not a run|no maps at"):
        Run.load(folder)


def test_a_disk_that_fails(tmp_path, monkeypatch):
    folder = made_run().save(tmp_path / "x")

    def fail(path: Path, opened) -> int:
        raise OSError(5, "Input/output error")

    otherwise(monkeypatch, fail)
    with pytest.raises(RunError, match=r"run\.json cannot be read: Input/output error"):
        Run.load(folder)


def test_a_file_that_grows_while_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    usual = os.fstat

    def grow(handle: int) -> os.stat_result:
        told = usual(handle)
        path.write_bytes(b"12345")
        return told

    monkeypatch.setattr(os, "fstat", grow)
    with pytest.raises(RunError, match="is larger than"):
        reading.read_bytes(path, most=4, otherwise="")


def test_as_many_bytes_as_there_may_be(tmp_path):
    (tmp_path / "file").write_bytes(bytes(2**20))
    assert reading.read_bytes(tmp_path / "file", most=2**20, otherwise="") == bytes(2**20)
    (tmp_path / "file").write_bytes(bytes(2**20 + 1))
    with pytest.raises(RunError, match=r"file is larger than 1 MiB: nothing that heedmap wrote"):
        reading.read_bytes(tmp_path / "file", most=2**20, otherwise="")


def test_names_of_nothing():
    for name in ("x" * 300, "a\0b", "nowhere"):
        assert reading.is_file(Path(name)) is False
        assert reading.is_folder(Path(name)) is False
        assert reading.is_there(Path(name)) is False


@pytest.mark.parametrize("target", ["x" * 256, "x/" * 2000, "nowhere"])
def test_listed_files_that_are_links_to_nothing(tmp_path, target):
    run = made_run()
    folder = replace(run, negative_maps=run.maps).save(tmp_path / "x")
    (folder / "negative.safetensors").unlink()
    (folder / "negative.safetensors").symlink_to(target)
    with pytest.raises(RunError, match="no maps at"):
        Run.load(folder)


# --- pictures ---------------------------------------------------------------------------------


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.parametrize("kind", [b"gAMA", b"tRNS", b"iCCP", b"cHRM", b"pHYs", b"sRGB", b"eXIf"])
@pytest.mark.parametrize("data", [b"", b"a", b"ab"])
@pytest.mark.parametrize("last", [True, False])
def test_pictures_with_odd_chunks(tmp_path, kind, data, last):
    """Pillow fails in some and reads others; nobody sees what it stumbled over."""
    folder = made_run().save(tmp_path / "x")
    held = (folder / "image.png").read_bytes()
    at = held.index(b"IEND" if last else b"IDAT") - 4
    (folder / "image.png").write_bytes(held[:at] + chunk(kind, data) + held[at:])
    try:
        assert Run.load(folder).image.size == (128, 128)
    except RunError as error:
        assert str(error).endswith("image.png is missing or broken: make it again")


def empty_png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(2**15, 1), (1, 2**14 + 1), (2**13 + 1, 2**13), (2**31 - 1, 9)])
def test_pictures_are_measured_before_they_are_decoded(tmp_path, size):
    (tmp_path / "x.png").write_bytes(empty_png(*size))
    with pytest.raises(RunError, match=r"pixels: expected at most|missing or broken"):
        reading.read_picture(tmp_path / "x.png", "RGB")
    with pytest.raises(RunError, match=r"expected 8×8|missing or broken"):
        reading.read_picture(tmp_path / "x.png", "RGB", size=(8, 8))


@pytest.mark.parametrize("size", [(8, 9), (9, 8), (7, 8), (6, 8)])
def test_pictures_have_the_size_that_they_should_have(tmp_path, size):
    Image.new("RGB", (8, 6)).save(tmp_path / "x.png")
    assert reading.read_picture(tmp_path / "x.png", "RGB", size=(8, 6)).size == (8, 6)
    with pytest.raises(RunError, match=f"has 8×6 pixels: expected {size[0]}×{size[1]}, as its"):
        reading.read_picture(tmp_path / "x.png", "RGB", size=size)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "I;16"])
def test_pictures_of_all_kinds_become_what_is_asked_for(tmp_path, mode):
    made = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    made = made.convert("I").convert("I;16") if mode == "I;16" else made.convert(mode)
    made.save(tmp_path / "x.png")
    for wanted in ("RGB", "1"):
        found = reading.read_picture(tmp_path / "x.png", wanted, size=(8, 8))
        assert (found.mode, found.size) == (wanted, (8, 8))


def test_pictures_are_pngs(tmp_path):
    for kind in ("JPEG", "GIF", "BMP", "TIFF", "WEBP"):
        Image.new("RGB", (8, 8)).save(tmp_path / "x.png", kind)
        with pytest.raises(RunError, match="is missing or broken"):
            reading.read_picture(tmp_path / "x.png", "RGB")


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pictures_that_end_too_early(tmp_path, mode):
    Image.effect_noise((64, 64), 50).convert("RGB").save(tmp_path / "x.png")
    (tmp_path / "x.png").write_bytes((tmp_path / "x.png").read_bytes()[:2000])
    with pytest.raises(RunError, match="is missing or broken"):
        reading.read_picture(tmp_path / "x.png", mode)


def test_what_pillow_warns_of_is_no_concern_of_the_user(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    held = (tmp_path / "x.png").read_bytes()
    at = held.index(b"IDAT") - 4
    (tmp_path / "x.png").write_bytes(held[:at] + chunk(b"acTL", bytes(8)) + held[at:])
    with pytest.warns(UserWarning, match="Invalid APNG"), Image.open(tmp_path / "x.png"):
        pass
    assert reading.read_picture(tmp_path / "x.png", "RGB").size == (8, 8)


@pytest.mark.parametrize(
    ("size", "fine"),
    [((8, 1), True), ((1, 8), True), ((9, 1), False), ((1, 9), False), ((3, 4), True),
     ((4, 3), True), ((5, 3), False), ((3, 5), False)],
)  # fmt: skip
def test_how_large_pictures_may_be(tmp_path, monkeypatch, size, fine):
    assert (reading.MAX_SIDE, reading.MAX_PIXELS) == (16_384, 67_108_864)
    monkeypatch.setattr(reading, "MAX_SIDE", 8)
    monkeypatch.setattr(reading, "MAX_PIXELS", 12)
    monkeypatch.setattr(reading, "read_bytes", lambda path, **_: path.read_bytes())
    Image.new("L", size).save(tmp_path / "x.png")
    if fine:
        assert reading.read_picture(tmp_path / "x.png", "L").size == size
        return
    with pytest.raises(RunError, match=f"has {size[0]}×{size[1]} pixels: expected at most"):
        reading.read_picture(tmp_path / "x.png", "L")


def test_files_of_pictures_are_no_larger_than_their_pixels(tmp_path):
    for size, said in ((4 * 2**26 + 1, "is larger than 256 MiB"), (4 * 2**26, "is missing or bro")):
        with (tmp_path / "x.png").open("wb") as file:
            file.truncate(size)
        with pytest.raises(RunError, match=said):
            reading.read_picture(tmp_path / "x.png", "L")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP"])
def test_pictures_that_users_have(tmp_path, kind):
    path = tmp_path / "photo"
    Image.new("RGB", (48, 32), (200, 10, 30)).save(path, kind)
    found = read_photograph(path)
    assert found.size == (48, 32) and found.mode == "RGB"
    assert np.abs(np.asarray(found, int) - (200, 10, 30)).max() <= 8


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "PDF", "EPS"])
def test_other_files_are_none(tmp_path, kind):
    path = tmp_path / "photo.png"
    Image.new("RGB", (48, 32)).save(path, kind)
    with pytest.raises(ArgumentError) as caught:
        read_photograph(path)
    assert str(caught.value) == (
        f"{path} is no picture that can be read: expected a PNG, JPEG, WebP or BMP file"
    )


def test_photographs_are_measured_before_they_are_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_PIXELS", 48 * 32)
    Image.new("1", (48, 32)).save(tmp_path / "fits.png")
    assert read_photograph(tmp_path / "fits.png").mode == "1"
    Image.new("1", (48, 33)).save(tmp_path / "large.png")
    with pytest.raises(ArgumentError) as caught:
        read_photograph(tmp_path / "large.png")
    assert str(caught.value) == (
        f"{tmp_path / 'large.png'} has 48×33 pixels: expected at most 1536 in all, and 16384 on a "
        "side"
    )
    data = (tmp_path / "fits.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(data[: len(data) // 2])
    os.mkfifo(tmp_path / "pipe.png")
    for name in ("cut.png", "pipe.png"):
        with pytest.raises(ArgumentError, match="is no picture that can be read"):
            read_photograph(tmp_path / name)


def test_what_is_in_the_place_of_a_photograph_is_told(tmp_path):
    """A folder, a link to nothing, and a link to a picture, which is one."""
    kinds = "a PNG, JPEG, WebP or BMP file"
    (tmp_path / "nothing.png").symlink_to("nowhere.png")
    (tmp_path / "round.png").symlink_to("round.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "to a folder.png").symlink_to("folder.png")
    for name in ("nothing.png", "round.png", "x" * 300):
        with pytest.raises(ArgumentError) as caught:
            read_photograph(tmp_path / name)
        assert str(caught.value) == (
            f"there is no file {tmp_path / name}: expected a picture (PNG, JPEG, WebP or BMP)"
        )
    for name in ("folder.png", "to a folder.png"):
        with pytest.raises(ArgumentError) as caught:
            read_photograph(tmp_path / name)
        assert str(caught.value) == (
            f"{tmp_path / name} is no picture that can be read, but a folder: expected {kinds}"
        )
    Image.new("RGB", (8, 6)).save(tmp_path / "folder.png" / "x.png")
    (tmp_path / "photo.png").symlink_to("folder.png/x.png")
    assert read_photograph(tmp_path / "photo.png").size == (8, 6)


@pytest.mark.parametrize("size", [(2**13 + 1, 2**13), (2**14, 2**14), (2**31 - 1, 2**31 - 1)])
def test_photographs_of_too_many_pixels_are_told_as_such_whoever_counts(tmp_path, size):
    """Pillow refuses the larger ones itself, before it tells their size."""
    (tmp_path / "x.png").write_bytes(empty_png(*size))
    with pytest.raises(ArgumentError) as caught:
        read_photograph(tmp_path / "x.png")
    told = str(caught.value).removeprefix(f"{tmp_path / 'x.png'} has ").split(" pixels: ")
    assert told[0] in (f"{size[0]}×{size[1]}", "too many")
    assert told[1] == "expected at most 67108864 in all, and 16384 on a side"
