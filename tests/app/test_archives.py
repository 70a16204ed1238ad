"""Results as zips: packed whole, and unpacked without any trust."""

import io
import os
import stat
import struct
import subprocess
import time
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cli.calling import files
from making import deep_in, noise

from app.serving import PROMPT, zipped
from heedmap.app import archives
from heedmap.app.options import Limits
from heedmap.app.result_store import made_with, read_result
from heedmap.app.upload_reader import check_cost, check_files
from heedmap.drawing import editing, explaining
from heedmap.errors import RunError
from heedmap.results.runs import Run


def packed(folder: Path) -> io.BytesIO:
    file = io.BytesIO()
    archives.zip_result(folder, file)
    file.seek(0)
    return file


def test_a_zip_holds_the_files_of_the_folder(run: Run, tmp_path: Path):
    folder = run.save(tmp_path / "saved")
    (folder / "link").symlink_to("/etc/passwd")
    with zipfile.ZipFile(packed(folder)) as archive:
        assert archive.testzip() is None
        held = {name: archive.read(name) for name in archive.namelist()}
    (folder / "link").unlink()
    assert held == {f"heedmap-saved/{name}": (folder / name).read_bytes() for name in files(folder)}
    assert packed(folder).getvalue() == packed(folder).getvalue()


def test_a_zip_comes_back_as_the_run_or_the_edit(random_model, run: Run, tmp_path: Path):
    pair = editing.edit(random_model, PROMPT, "a red sea", seed=3, steps=2, only="house->sea")
    for number, result in enumerate((run, pair)):
        folder = result.save(tmp_path / f"saved-{number}")
        for prefix in (f"saved-{number}/", ""):  # packed by the app or by hand, or without a folder
            at = tmp_path / f"back-{number}-{len(prefix)}"
            at.mkdir()
            file = zipped(
                {f"{prefix}{name}": (folder / name).read_bytes() for name in files(folder)}
            )
            archives.unpack(file, at, most=2**26)
            assert not any(name.endswith(("html", "sheet.png")) for name in files(at))
            back = read_result(at)
            assert type(back) is type(result)
            assert back.explorer() == result.explorer()


@pytest.mark.parametrize("kind", ["run", "edit", "own", "own grid", "grid", "explanation"])
def test_what_the_app_gives_out_it_opens_again(random_model, run: Run, tmp_path: Path, kind: str):
    """The very zip, of each kind of result; its page is that of the result."""
    asked: dict[str, Any] = {"seed": 3, "steps": 2}
    result: Any = run
    if kind == "edit":
        result = editing.edit(random_model, PROMPT, "a red sea", only="house->sea", **asked)
    elif kind.startswith("own"):  # of a picture that somebody has
        draw: Any = editing.edit if kind == "own" else editing.grid
        target = "a red sea" if kind == "own" else ["a red sea", "a red cat"]
        with warnings.catch_warnings(action="ignore"):  # a random model edits it badly
            result = draw(random_model, PROMPT, target, image=noise(5), steps=2)
    elif kind == "grid":
        weights = {"red": [0, 2]}
        result = editing.grid(
            random_model, PROMPT, "a red sea", weights=weights, only="house->sea", seeds=[3, 4],
            steps=2,
        )  # fmt: skip
    elif kind == "explanation":
        result = explaining.explain(random_model, run, "house", (20, 30))
    folder = result.save(tmp_path / "saved")
    at = tmp_path / "back"
    at.mkdir()
    archives.unpack(packed(folder), at, most=2**26)
    assert not any(name.endswith(("html", "sheet.png", "csv")) for name in files(at))
    check_files(at, Limits())
    back = read_result(at)
    check_cost(back)
    assert type(back) is type(result) and made_with(back)
    pages = [one.page() if kind == "explanation" else one.explorer() for one in (back, result)]
    assert pages[0] == pages[1]


def test_what_is_somebodys_own_in_a_result_is_not_packed(random_model, run: Run, tmp_path: Path):
    pair = editing.edit(random_model, PROMPT, "a red sea", seed=3, steps=2)
    for number, (result, inner) in enumerate(((run, ""), (pair, "source/"))):
        folder = result.save(tmp_path / f"saved-{number}")
        before = packed(folder).getvalue()
        for name in (
            "secret.txt", ".env", "negative.safetensors", "pair.json.old", "words/secret.png",
            "words/99-secret.png", "own/run.json", f"{inner}notes.txt", f"{inner}blend.png",
        ):  # fmt: skip
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            assert not path.exists(), name
            path.write_text("secret")
        (folder / "edited2").symlink_to("/etc")
        assert packed(folder).getvalue() == before
        picture = folder / inner / "image.png"
        picture.unlink()
        picture.symlink_to("/etc/passwd")
        with zipfile.ZipFile(packed(folder)) as archive:
            assert f"heedmap-{folder.name}/{inner}image.png" not in archive.namelist()
            assert not any(b"secret" in archive.read(name) for name in archive.namelist())
    other = tmp_path / "other"
    other.mkdir()
    (other / "image.png").write_text("secret")
    with pytest.raises(RunError, match="not there any more as it was saved"):
        packed(other)


@pytest.mark.skipif(os.name == "nt", reason="folders by their numbers")
def test_a_result_in_which_folders_lie_too_deep(run: Run, tmp_path: Path):
    folder = run.save(tmp_path / "saved")
    deep_in(folder, 2500)
    try:
        with pytest.raises(RunError, match="not there any more as it was saved"):
            packed(folder)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


GOOD = {"run.json": b"{}", "image.png": b"", "maps.safetensors": b""}


def cut(file: io.BytesIO) -> io.BytesIO:
    """The same with the sign that ends a text in C, of which readers think differently."""
    return io.BytesIO(file.getvalue().replace(b"?", b"\0"))


def test_of_a_zip_that_is_a_result_what_lies_beside_it_is_left(tmp_path: Path):
    """The parts of an edit are runs, too; so is what a run's folder may hold beside it."""
    held = {"pair.json": b"{}", "source/run.json": b"1", "edited/run.json": b"2", "x/run.json": b""}
    for top in ("", "p/"):
        folder = tmp_path / f"of {top.strip('/')}"
        folder.mkdir()
        archives.unpack(
            zipped({f"{top}{name}": data for name, data in held.items()}), folder, most=99
        )
        assert files(folder) == {"pair.json", "source/run.json", "edited/run.json"}
    both = zipped({"run.json": b"{}", "pair.json": b"{}", "image.png": b""})  # the edit counts
    (tmp_path / "both").mkdir()
    archives.unpack(both, tmp_path / "both", most=99)
    assert files(tmp_path / "both") == {"pair.json"}


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (io.BytesIO(b"no zip"), "is not a zip that can be read"),
        (io.BytesIO(zipped(GOOD).getvalue()[:-30]), "is not a zip that can be read"),
        (zipped({}), "holds no result"),
        (zipped({"letter.txt": b"Dear"}), "holds no result"),
        (zipped({"ablate.json": b"{}", "run/run.json": b"{}", "unread/run.json": b"{}"}),
         "is of an ablation: expected that of one of its three runs"),
        (zipped({"x/ablate.json": b"{}", "x/run/run.json": b"{}"}), "is of an ablation"),
        (zipped({"b/run.json": b"{}", "a/pair.json": b"{}"}),
         "holds several results, a and b: expected one; pack its folder"),
        (zipped({"a/b/run.json": b"{}"}), "holds no result"),
        (zipped({**GOOD, "../../evil": b"x"}), "names files outside of its folder"),
        (zipped({"a/../run.json": b"x"}), "names files outside of its folder"),
        (zipped({**GOOD, "/etc/evil": b"x"}), "names files outside of its folder"),
        (zipped({**GOOD, "C:\\evil": b"x"}), "names files outside of its folder"),
        (zipped({**GOOD, "C:evil": b"x"}), "names files outside of its folder"),
        (zipped({**GOOD, "a\\evil": b"x"}), "names files outside of its folder"),
        (cut(zipped({**GOOD, "a?evil": b"x"})), "names files outside of its folder"),
        (zipped(GOOD, external_attr=(stat.S_IFLNK | 0o777) << 16), "holds links or devices"),
        (zipped(GOOD, external_attr=(stat.S_IFCHR | 0o777) << 16), "holds links or devices"),
        (zipped({"run.json": b"{}", "image.png": bytes(2**21)}), "unpacks to more than"),
        (zipped({**GOOD, **{f"words/{n}.png": b"" for n in range(5000)}}), "has 5003 files"),
    ],
)  # fmt: skip
def test_hostile_zips_end_in_a_sentence(tmp_path: Path, file: io.BytesIO, sentence: str):
    (tmp_path / "within").mkdir()
    with pytest.raises(RunError, match=sentence):
        archives.unpack(file, tmp_path / "within", most=2**20)
    assert files(tmp_path) <= {"within/run.json", "within/image.png"}
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 2**20


def test_a_zip_that_says_how_large_it_is_is_not_unpacked(tmp_path: Path, monkeypatch):
    """A bomb that tells the truth costs nothing."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("run.json", "image.png"):
            archive.writestr(name, bytes(600))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *given, **options: pytest.fail("unpacked"))
    with pytest.raises(RunError, match="unpacks to more than this server takes"):
        archives.unpack(file, tmp_path, most=1199)
    assert list(tmp_path.iterdir()) == []


def test_a_zip_that_lies_about_its_sizes(tmp_path: Path):
    raw = bytearray(zipped({"run.json": b"{}", "image.png": bytes(2**22)}).getvalue())
    real, false = (2**22).to_bytes(4, "little"), (100).to_bytes(4, "little")
    assert raw.count(real) == 2
    with pytest.raises(RunError, match=r"is not a zip that can be read|unpacks to more"):
        archives.unpack(io.BytesIO(raw.replace(real, false)), tmp_path, most=2**20)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2**20


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zips_are_unpacked_piece_by_piece(tmp_path: Path, kind: int):
    """Of other kinds Python's reader unpacks at once whatever there is: 512 MiB of 516 bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive, archive.open("run.json", "w") as target:
        for _ in range(48):
            target.write(bytes(2**20))
    assert len(file.getvalue()) < 20_000
    tracemalloc.start()
    try:
        with pytest.raises(RunError, match="this zip is packed in an unusual way"):
            archives.unpack(file, tmp_path, most=2**20)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()
    assert files(tmp_path) == set()


@pytest.mark.parametrize("kind", [1, 6, 9, 12, 14, 93, 95, 98, 99, 0xFFFF])
def test_kinds_of_packing_that_are_not_read(tmp_path: Path, kind: int):
    """Whatever is in it: what is broken there raises errors of each kind's own."""
    raw = bytearray(zipped(GOOD).getvalue())
    for mark, at in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        found = raw.find(mark)
        while found >= 0:
            raw[found + at : found + at + 2] = struct.pack("<H", kind)
            found = raw.find(mark, found + 1)
    with pytest.raises(RunError, match="packed in an unusual way"):
        archives.unpack(io.BytesIO(raw), tmp_path, most=2**20)
    assert files(tmp_path) == set()


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_takes_long_to_unpack_is_refused(tmp_path: Path, way: int):
    """Both take minutes for what an upload may have, of which the result is small."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", way) as archive:
        for name, data in GOOD.items():
            archive.writestr(name, data)
    with pytest.raises(RunError, match="packed in an unusual way: pack it by “deflate”"):
        archives.unpack(file, tmp_path, most=2**20)
    assert files(tmp_path) == set()
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("run.json", "{}")
    archives.unpack(stored, tmp_path, most=2**20)
    assert files(tmp_path) == {"run.json"}


def test_encrypted_and_doubled(tmp_path: Path):
    file = zipped(GOOD)
    raw = bytearray(file.getvalue())
    at = raw.find(b"PK\x01\x02")
    raw[at + 8] |= 1  # the flag of encryption, of the first file
    with pytest.raises(RunError, match="encrypted"):
        archives.unpack(io.BytesIO(raw), tmp_path, most=2**20)
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("run.json", "{}")
        archive.writestr("run.json", "[]")
    with pytest.raises(RunError, match="has a file twice"):
        archives.unpack(twice, tmp_path, most=2**20)
    assert files(tmp_path) == set()


def crowded(count: int, *, extra: int = 0) -> bytes:
    """A zip of so many empty files, each with so many bytes of fields that nobody knows."""
    field = struct.pack("<HH", 0xCAFE, 0) * (extra // 4)
    local = b"PK\3\4" + bytes(22) + struct.pack("<HH", 1, 0) + b"x"
    each = [
        struct.pack("<4s6H3I5H2I", b"PK\1\2", *[0] * 9, 7, len(field), 0, 0, 0, 0, 0)
        + b"%07d" % n + field for n in range(count)
    ]  # fmt: skip
    listed = b"".join(each)
    end = struct.pack(
        "<4s4H2IH", b"PK\5\6", 0, 0, count & 0xFFFF, count & 0xFFFF, len(listed), len(local), 0
    )
    return local + listed + end


def in_zip64(data: bytes, count: int) -> bytes:
    """The same with the records of large zips, which say that it has so many files."""
    size, at = struct.unpack_from("<2I", data, len(data) - 10)
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, at)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(data) - 22, 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, *[0xFFFF] * 2, *[0xFFFFFFFF] * 2, 0)
    return data[:-22] + record + locator + end


def counted(data: bytes, count: int) -> bytes:
    """The same, which says that it has so many files."""
    return data[:-14] + struct.pack("<2H", count, count) + data[-10:]


@pytest.mark.parametrize(
    "forge",
    [
        lambda data: data,
        lambda data: counted(data, 3),
        lambda data: in_zip64(data, 400_000),
        lambda data: in_zip64(data, 3),
        lambda data: counted(data, 3)[:-2] + struct.pack("<H", 9) + b"a comment",
    ],
    ids=["true", "says 3", "zip64", "zip64 says 3", "with a comment"],
)
def test_a_zip_of_400_000_files_costs_next_to_nothing(tmp_path: Path, forge):
    file = io.BytesIO(forge(crowded(400_000)))
    began = time.process_time()
    with pytest.raises(RunError, match=r"lists more files than a result has"):
        archives.unpack(file, tmp_path, most=2**20)
    assert time.process_time() - began < 0.5


def test_files_with_many_fields_cost_little(tmp_path: Path):
    """Each field of a file in the list is looked at: 2,000 files may have 33 million."""
    few = io.BytesIO(crowded(7, extra=65_532))
    many = io.BytesIO(crowded(900, extra=65_532))
    for file, sentence in ((few, "holds no result"), (many, "lists more files than a result")):
        began = time.process_time()
        with pytest.raises(RunError, match=sentence):
            archives.unpack(file, tmp_path, most=2**20)
        assert time.process_time() - began < 1.5


def test_a_zip_whose_list_is_said_to_be_huge(tmp_path: Path):
    raw = bytearray(zipped(GOOD).getvalue())
    raw[-10:-6] = struct.pack("<I", 0xFFFFFFF0)
    with pytest.raises(RunError, match=r"not a zip that can be read|lists more files"):
        archives.unpack(io.BytesIO(raw), tmp_path, most=2**20)
