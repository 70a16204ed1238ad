"""Zips of strangers: what is in them is weighed before it is read, and costs little."""

import io
import json
import resource
import struct
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from making import made_pair
from PIL import Image

from app.serving import PROMPT, Served, opening, until, zip_of, zipped
from heedmap.app import upload_reader
from heedmap.app.options import Limits
from heedmap.app.upload_pages import UploadPages
from heedmap.app.upload_reader import UploadReader, check_cost, check_files
from heedmap.app.uploads import Uploads
from heedmap.drawing import editing, generation
from heedmap.errors import HeedmapError, RunError
from heedmap.maps.recordings import Layer
from heedmap.results.runs import Run

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


def chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def header(width: int, height: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))


def bomb(side: int, *more: bytes) -> bytes:
    """A picture of one colour, in few bytes."""
    row = bytes(1 + (side + 7) // 8)
    packer = zlib.compressobj(9)
    data = b"".join([*(packer.compress(row * 100) for _ in range(side // 100)), packer.flush()])
    return b"".join(
        [b"\x89PNG\r\n\x1a\n", *(more or [header(side, side)]), chunk(b"IDAT", data),
         chunk(b"IEND", b"")]
    )  # fmt: skip


@pytest.fixture(scope="module")
def members(run: Run, tmp_path_factory) -> dict[str, bytes]:
    folder = run.save(tmp_path_factory.mktemp("run") / "saved", overlays=False)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def said_of(server: Served, held: dict[str, bytes]) -> str:
    return opening(server, f"opens{time.monotonic_ns()}", zipped(held).getvalue())


def test_a_picture_bomb_is_not_decoded(server: Served, members):
    picture = bomb(11_500)
    assert len(picture) < 40_000
    before, since = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    said = said_of(server, members | {"image.png": picture})
    assert "has 11500×11500 pixels: expected at most 1024 on a side" in said
    assert time.monotonic() - since < 15
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 2**10


@pytest.mark.parametrize("name", ["blend.png", "source/image.png", "edited/image.png"])
def test_no_picture_of_an_edit_is_either(random_model, server: Served, tmp_path: Path, name: str):
    pair = editing.edit(random_model, PROMPT, "a red sea", seed=3, steps=2, only="house->sea")
    folder = pair.save(tmp_path / "pair")
    held = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*") if path.is_file()
    }  # fmt: skip
    small = {key: value for key, value in held.items() if "words" not in key}
    small.pop("index.html"), small.pop("source/index.html"), small.pop("edited/index.html")
    small |= {"sheet.png": b"", "source/sheet.png": b"", "edited/sheet.png": b""}
    assert "./pages/" in said_of(server, small | {"blend.png": held["blend.png"]})
    assert "has 8000×8000 pixels" in said_of(server, small | {name: bomb(8000)})


def test_a_size_is_the_one_that_its_reader_finds(tmp_path: Path):
    """Of two headers Pillow takes the second; one that is broken is told as such."""
    picture = tmp_path / "image.png"
    picture.write_bytes(bomb(2000, header(8, 8), header(2000, 2000)))
    with pytest.raises(RunError, match="has 2000×2000 pixels: expected at most 1024"):
        check_files(tmp_path, Limits())
    check_files(tmp_path, Limits(size=2000))
    gamma, text = chunk(b"gAMA", b""), chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**21)))
    for odd in (b"", b"x", bomb(8)[:20], bomb(8, header(8, 8), gamma), bomb(8, header(8, 8), text)):
        picture.write_bytes(odd)
        with pytest.raises(RunError, match="a picture in this zip is broken"):
            check_files(tmp_path, Limits())


def test_settings_are_short(server: Served, members):
    about = json.loads(members["run.json"])
    about["settings"]["note"] = "x" * 300_000
    said = said_of(server, members | {"run.json": json.dumps(about).encode()})
    assert "In this zip run.json has 29" in said and " KiB: expected at most 256 KiB." in said
    about["settings"] |= {"note": "x" * 200_000, "model": "y" * 4000}
    said = said_of(server, members | {"run.json": json.dumps(about).encode()})
    assert "./pages/" in said and len(said) < 20_000  # the line beside the page is short


def test_a_recording_says_shortly_what_it_holds(server: Served, members):
    long = (2**21).to_bytes(8, "little") + b" " * 2**21
    said = said_of(server, members | {"maps.safetensors": long})
    assert (
        "In this zip maps.safetensors begins with a table of 2 MiB: expected at most 1 MiB." in said
    )


def test_a_page_is_made_of_so_many_numbers(run: Run):
    recording = run.maps.recording
    check_cost(run)

    def of(layers: int, side: int, steps: int = 1, keep=frozenset({"layer", "step"})) -> Run:
        many = tuple(Layer(f"up_blocks.{n}.attn2", 8, (side, side)) for n in range(layers))
        empty = tuple(np.zeros((1, 1, 1, 1), np.float32) for _ in many)
        made = replace(
            recording, layers=many, arrays=empty, timesteps=(1.0,) * steps, keep=keep,
        )  # fmt: skip
        return replace(run, maps=replace(run.maps, recording=made))

    check_cost(of(70, 64, 50))  # as many as SDXL has
    check_cost(of(101, 1, 1000, keep=frozenset({"layer"})))  # the steps are not told apart
    for layers, side, steps, told in (
        (1, 2000, 1, "1 layer of .* 1 step"),
        (10_000, 64, 1, "10000 layers of .* 1 step"),
        (101, 1, 1000, "101 layers of .* 1000 steps"),
    ):
        with pytest.raises(RunError, match=f"words and {told}: more"):
            check_cost(of(layers, side, steps))


def test_each_part_of_a_result_has_its_cost(run: Run):
    """The maps of a negative prompt, and each side of an edit."""
    recording = run.maps.recording
    many = tuple(Layer(f"up_blocks.{n}.attn2", 8, (2000, 2000)) for n in range(2))
    costly = replace(run.maps, recording=replace(recording, layers=many))
    pair = made_pair()
    check_cost(replace(run, negative_maps=run.maps))
    check_cost(pair)
    for result in (
        replace(run, negative_maps=costly),
        replace(pair, source=replace(run, maps=costly)),
        replace(pair, edited=replace(run, maps=costly)),
        replace(pair, edited=replace(run, negative_maps=costly)),
    ):
        with pytest.raises(RunError, match="and 2 layers of 8000000 places in all"):
            check_cost(result)


@pytest.mark.parametrize("within", ["", "source"])
def test_the_largest_files_that_are_taken(tmp_path: Path, within: str):
    (tmp_path / within).mkdir(exist_ok=True)

    def check(name: str, data: bytes) -> None:
        file = tmp_path / within / name
        file.write_bytes(data)
        try:
            check_files(tmp_path, Limits(size=64))
        finally:
            file.unlink()

    def picture(*size: int) -> bytes:
        file = io.BytesIO()
        Image.new("L", size).save(file, "PNG")
        return file.getvalue()

    check("image.png", picture(64, 64))
    check("run.json", bytes(256 * 2**10))
    check("maps.safetensors", (2**20).to_bytes(8, "little"))
    for name, data in (
        ("image.png", picture(65, 8)),
        ("image.png", picture(8, 65)),
        ("run.json", bytes(256 * 2**10 + 1)),
        ("maps.safetensors", (2**20 + 1).to_bytes(8, "little")),
        ("maps.safetensors", (2**63).to_bytes(8, "little")),
    ):
        with pytest.raises(RunError, match="in this zip"):
            check(name, data)


def test_whatever_comes_of_an_upload_nothing_of_it_stays(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
):
    file = zip_of(run.save(tmp_path / "saved", overlays=False))
    (tmp_path / "desk").mkdir()
    pages = UploadPages(tmp_path / "desk" / "pages")
    uploads = Uploads(tmp_path / "desk", 2**26)
    for data, limits, said in (
        (b"no zip", Limits(), "is not a zip that can be read"),
        (file, Limits(upload=100), "unpacks to more than this server takes"),
        (file, Limits(size=8), "pixels: expected at most 8 on a side"),
        (file, Limits(), ""),
    ):
        reader = UploadReader(uploads, pages, tmp_path / "desk", limits)
        for n in range(3):  # and its place is another's again
            (tmp_path / "desk" / f"{n:032x}").write_bytes(data)
            if said:
                with pytest.raises(RunError, match=said):
                    reader.open(f"{n:032x}", "me")
            else:
                assert pages.path(reader.open(f"{n:032x}", "me").token).is_file()
            assert [path.name for path in (tmp_path / "desk").iterdir()] == ["pages"]
    with pytest.raises(HeedmapError, match="not there any more"):
        reader.open("0" * 32, "me")
    monkeypatch.setattr(upload_reader, "_SUMS", 0.5)
    (tmp_path / "desk" / ("0" * 32)).write_bytes(file)
    with pytest.raises(RunError, match="more than this server shows"):
        reader.open("0" * 32, "me")


def test_two_files_are_read_at_a_time_one_of_each_network(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
):
    uploads = Uploads(tmp_path, 2**26)
    reader = UploadReader(uploads, UploadPages(tmp_path / "pages"), tmp_path, Limits())
    file = zip_of(run.save(tmp_path / "saved", overlays=False))
    go, reading = threading.Event(), []
    real = upload_reader.read_result

    def slow(folder: Path):
        reading.append(folder)
        assert go.wait(20)
        return real(folder)

    monkeypatch.setattr(upload_reader, "read_result", slow)
    tokens = [f"{n:032x}" for n in range(3)]
    for token in tokens:
        (tmp_path / token).write_bytes(file)
    found: list[str] = []
    threads = [
        threading.Thread(
            target=lambda n=n: found.append(reader.open(tokens[n], f"10.0.0.{n}").token)
        )
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    until(lambda: len(reading) == 2)
    with pytest.raises(HeedmapError, match="others are opening files"):
        reader.open(tokens[2], "10.0.0.2")
    for same in ("10.0.0.1", "::ffff:10.0.0.1"):
        with pytest.raises(HeedmapError, match="your last file is still being opened"):
            reader.open(tokens[2], same)
    go.set()
    for thread in threads:
        thread.join(20)
    assert len(found) == 2 and reader.open(tokens[2], "10.0.0.1")  # who was refused lost nothing
    assert not list(tmp_path.glob("unpacked-*"))


def test_no_way_in_passes_by_the_line(server: Served, members):
    """What waits in a line is not asked for beside it, nor with other fields than the page's."""
    config = json.loads(server.ask("/config")[1])
    kind = {"Content-Type": "application/json"}
    queued = 0
    for one in config["dependencies"]:
        fields = len(one["inputs"])
        for path, count, right in (
            ("run/predict", fields, not one["queue"]),
            ("queue/join", fields, one["queue"]),
            ("run/predict", fields + 1, False),
            ("queue/join", fields + 1, False),
        ):
            if not right:
                said = {"fn_index": one["id"], "data": [None] * count, "session_hash": "beside"}
                answer = server.ask(f"/gradio_api/{path}", json.dumps(said).encode(), **kind)
                assert answer[:2] == (422, b"That is nothing that this page asks."), (path, one)
        queued += bool(one["queue"])
    assert queued >= 4
    said = {"fn_index": 999, "data": [], "session_hash": "beside"}
    assert server.ask("/gradio_api/queue/join", json.dumps(said).encode(), **kind)[0] == 422


def test_a_saved_picture_fits_beside_any_other(tmp_path: Path):
    """Only files of the names that are read are looked at; other kinds of pictures are none."""
    for kind in ("BMP", "JPEG"):
        file = io.BytesIO()
        Image.new("RGB", (16, 16)).save(file, kind)
        (tmp_path / "image.png").write_bytes(file.getvalue())
        with pytest.raises(RunError, match="a picture in this zip is broken"):
            check_files(tmp_path, Limits())


def test_a_run_with_its_steps_is_opened(server: Served, random_model, tmp_path: Path):
    """The pictures of the steps may be larger, together, than one picture is drawn here."""
    run = generation.generate(random_model, PROMPT, seed=3, steps=4, size=(64, 64), keep={"step"})
    folder = run.save(tmp_path / "run", overlays=False)
    assert "./pages/" in opening(server, "steps", zip_of(folder))
    with Image.open(folder / "steps.png") as steps:
        assert max(steps.size) > 64
    check_files(folder, Limits(size=64))
    (folder / "steps.png").write_bytes(bomb(2049))
    with pytest.raises(RunError, match="has 2049×2049 pixels: expected at most 2048 on a side"):
        check_files(folder, Limits(size=64))
