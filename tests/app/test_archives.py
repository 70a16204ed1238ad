"""Results as zips: packed whole, and unpacked without any trust."""

import io
import stat
import zipfile
from pathlib import Path

import pytest
from cli.calling import files

from app.serving import PROMPT, zipped
from heedmap import editing
from heedmap.app import archives
from heedmap.app.shelf import read_result
from heedmap.errors import RunError
from heedmap.runs import Run


def packed(folder: Path) -> io.BytesIO:
    file = io.BytesIO()
    archives.pack(folder, file)
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


GOOD = {"run.json": b"{}", "image.png": b"", "maps.safetensors": b""}


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (io.BytesIO(b"no zip"), "is no zip that can be read"),
        (io.BytesIO(zipped(GOOD).getvalue()[:-30]), "is no zip that can be read"),
        (zipped({}), "holds neither a run nor an edit"),
        (zipped({"letter.txt": b"Dear"}), "holds neither a run nor an edit"),
        (zipped({"a/b/run.json": b"{}"}), "holds neither a run nor an edit"),
        (zipped({**GOOD, "../../evil": b"x"}), "names files outside of its folder"),
        (zipped({"a/../run.json": b"x"}), "names files outside of its folder"),
        (zipped({**GOOD, "/etc/evil": b"x"}), "names files outside of its folder"),
        (zipped({**GOOD, "C:\\evil": b"x"}), "names files outside of its folder"),
        (zipped(GOOD, external_attr=(stat.S_IFLNK | 0o777) << 16), "holds links or devices"),
        (zipped(GOOD, external_attr=(stat.S_IFCHR | 0o777) << 16), "holds links or devices"),
        (zipped({"run.json": b"{}", "image.png": bytes(2**21)}), "unpacks to more than"),
        (zipped({**GOOD, **{f"words/{n}.png": b"" for n in range(2000)}}), "has 2003 files"),
    ],
)  # fmt: skip
def test_hostile_zips_end_in_a_sentence(tmp_path: Path, file: io.BytesIO, sentence: str):
    (tmp_path / "within").mkdir()
    with pytest.raises(RunError, match=sentence):
        archives.unpack(file, tmp_path / "within", most=2**20)
    assert files(tmp_path) <= {"within/run.json", "within/image.png"}
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 2**20


def test_a_zip_that_lies_about_its_sizes(tmp_path: Path):
    raw = bytearray(zipped({"run.json": b"{}", "image.png": bytes(2**22)}).getvalue())
    real, false = (2**22).to_bytes(4, "little"), (100).to_bytes(4, "little")
    assert raw.count(real) == 2
    with pytest.raises(RunError, match=r"is no zip that can be read|unpacks to more"):
        archives.unpack(io.BytesIO(raw.replace(real, false)), tmp_path, most=2**20)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2**20


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
