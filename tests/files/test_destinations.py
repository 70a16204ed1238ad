"""Where something is to be written: told before anything is drawn, and nothing of a user's lost."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from making import MARKS

from files.saving import KIND, RUN_JSON, one, posix, save, tree
from heedmap.errors import ArgumentError, RunError
from heedmap.files import kinds
from heedmap.files.writing import Destination, TakenError, put_file


@pytest.mark.parametrize("how", ["file", "link"])
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (kinds.RUN, "words"), (kinds.PAIR, "source"), (kinds.PAIR, "edited/words"),
        (kinds.GRID, "cells"), (kinds.GRID, "sources/7"), (kinds.GRID, "cells/001"),
        (kinds.SELECTION, "words"),
    ],
)  # fmt: skip
def test_what_stands_where_a_folder_goes_is_told_before_anything_is_drawn(
    tmp_path: Path, kind, place, how
):
    folder = tmp_path / "x"
    (folder / place).parent.mkdir(parents=True)
    (folder / kind.mark).write_text(json.dumps(MARKS[kind.mark]))
    (folder / place).write_text("m") if how == "file" else (folder / place).symlink_to(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(TakenError, match=f"x holds {place}, a {how} where heedmap writes a folder"):
        Destination(folder, kind, force=True)
    assert tree(tmp_path) == before


@posix
def test_nobody_is_in_a_folder_that_is_gone(tmp_path: Path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    (tmp_path / "x").mkdir()
    assert save(tmp_path / "x") == tmp_path / "x"
    for write in (lambda: save(Path("y")), lambda: Destination("y", KIND)):
        with pytest.raises(RunError, match=r"y leads nowhere \(no such file or directory\)"):
            write()


@pytest.mark.parametrize("given", [None, 7, 1.5, True, b"x", "", "a\0b", "\ud800", ["x"], object()])
def test_what_is_no_path(given, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writers = [
        save,
        lambda path: put_file(path, b""),
        lambda path: Destination(path, KIND, many=True),
    ]
    if given is not None:  # that is left out
        writers.append(lambda path: Destination(path, KIND))
    else:
        del writers[2]
    for write in writers:
        with pytest.raises(ArgumentError, match=r"is not a path: expected a text, or a pathlib"):
            write(given)
    assert list(tmp_path.iterdir()) == []


PLACES = {
    "file": "file is a file: nothing was written; choose another",
    "file/x": "file is not a folder: name one that is",
    "file/x/y": "file is not a folder: name one that is",
    "dangling": "dangling is a link",
    "dangling/x": "dangling is not a folder: name one that is",
    "round": "round is a link",
    "round/x": "round",
    "linked": "linked is a link",
    "linked/": "linked/? is a link",
    "a"
    * 256: "nothing can be written to .*file name too long: a name has 256 bytes, and a disk ta",
    f"new/{'a' * 256}": "file name too long",
    f"{'a' * 256}/new": "file name too long",
    "가" * 90: "file name too long",
    "a/" * 4000: "too long",
    ".": r"\. exists and is not a thing: nothing was written",
    "..": r"\.\. exists and is not a thing",
    "sub/..": "exists and is not a thing",
    "/": "/ exists and is not a thing",
}


@posix
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("given", PLACES, ids=lambda text: text[:12])
def test_places_that_cannot_be_written_to_are_told_at_once(
    tmp_path: Path, monkeypatch, given, force
):
    desk = tmp_path / "desk"
    (desk / "sub").mkdir(parents=True)
    monkeypatch.chdir(desk)
    save(Path("run"))
    Path("file").write_text("mine")
    Path("dangling").symlink_to("nowhere")
    Path("round").symlink_to("round")
    Path("linked").symlink_to("run", target_is_directory=True)
    before = tree(tmp_path)
    sentence = PLACES[given]
    for write in (lambda: Destination(given, KIND, force=force), lambda: save(given, force=force)):
        with pytest.raises(RunError, match=sentence) as told:
            write()
        assert len(str(told.value)) < 500
    with pytest.raises(RunError):
        put_file(given if given != "file" else "run", b"", force=force)
    assert tree(tmp_path) == before


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("given", ["/proc/x", "/proc/x/y", "/proc", "/proc/self/x"])
def test_a_place_where_even_root_writes_nothing(given):
    for write in (
        lambda: Destination(given, KIND),
        lambda: save(given),
        lambda: put_file(given, b""),
    ):
        with pytest.raises(RunError):
            write()
    with pytest.raises(RunError, match=r"nothing can be written to /proc/x \(no such file"):
        Destination("/proc/x", KIND, many=True)


AS_ANOTHER = """
import os, sys
from pathlib import Path
from heedmap.errors import RunError
from heedmap.files.writing import Destination, kinds, put_file
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for write in (
    lambda: Destination("x", kinds.RUN), lambda: Destination("y/z", kinds.RUN),
    lambda: put_file("x.png", b""), lambda: Destination("ours", kinds.RUN, force=True),
    lambda: Destination(".", kinds.RUN, many=True),
):
    try:
        write()
    except RunError as error:
        print(error)
"""


@posix
def test_a_place_without_permission():
    with tempfile.TemporaryDirectory() as place:  # pytest's own are closed to others
        Path(place).chmod(0o755)
        desk = Path(place) / "desk"
        (desk / "ours").mkdir(parents=True)
        (desk / "ours" / "run.json").write_text(RUN_JSON)
        desk.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER], capture_output=True, text=True, cwd=desk
        )
        desk.chmod(0o755)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == 5
        assert all("(permission denied)" in line for line in lines), lines
        assert os.listdir(desk) == ["ours"]


@posix
def test_a_place_may_be_reached_by_a_link(tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "outputs").symlink_to("disk", target_is_directory=True)
    Destination(tmp_path / "outputs" / "x", KIND)
    assert save(tmp_path / "outputs" / "x") == tmp_path / "outputs" / "x"
    assert tree(tmp_path / "disk") == {"x": None} | {f"x/{n}": t for n, t in one("one").items()}
    assert (tmp_path / "outputs").is_symlink()


def test_a_run_is_not_replaced_while_one_stands_in_it(tmp_path: Path, monkeypatch):
    folder = save(tmp_path / "x")
    monkeypatch.chdir(folder / "parts")
    with pytest.raises(
        TakenError, match=r"x cannot be replaced as a whole \(it is the folder you are in, or"
    ):
        save(folder, force=True)
