"""Saving: whole or not at all, and only to a new or an empty folder."""

import errno
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heedmap.errors import RunError
from heedmap.io.writing import (
    Destination,
    TakenError,
    WriteError,
    put_counting,
    put_file,
    slug,
    whole_folder,
)

posix = pytest.mark.skipif(os.name == "nt", reason="modes and limits of POSIX")


def save(folder: Path, text: str = "one") -> Path:
    with whole_folder(folder) as partial:
        (partial / "parts").mkdir()
        for number in range(3):
            (partial / "parts" / f"{number}.txt").write_text(text)
        (partial / "mark.txt").write_text(text)
    return folder


def texts(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.rglob("*.txt"))]


def test_a_new_or_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("deep/er/new", "empty", "link"):
        assert texts(save(tmp_path / name)) == ["one"] * 4
    assert (tmp_path / "link").is_symlink() and (tmp_path / "elsewhere" / "mark.txt").is_file()
    assert not [*tmp_path.rglob(".*")]


def test_existing_files_and_folders_are_kept(tmp_path, monkeypatch):
    save(tmp_path / "x")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for taken in (tmp_path / "x", tmp_path / "file", Path(".")):
        with pytest.raises(TakenError):
            save(taken, "two")
        with pytest.raises(TakenError):
            Destination(taken)
    assert texts(tmp_path / "x") == ["one"] * 4 and (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), ValueError()]
)
def test_a_failure_leaves_nothing(tmp_path, error):
    expected = WriteError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected), whole_folder(tmp_path / "x") as partial:
        (partial / "a.txt").write_text("a")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_writes_meanwhile_stays(tmp_path):
    with pytest.raises(TakenError), whole_folder(tmp_path / "x") as partial:
        (partial / "a.txt").write_text("a")
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "mine.txt").write_text("mine")
    assert texts(tmp_path) == ["mine"]


def test_unwritable_places_are_refused_early(tmp_path):
    (tmp_path / "file").touch()
    for place in ("file/x", "x" * 300):
        with pytest.raises(RunError):
            Destination(tmp_path / place)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


LIMITED = """
import resource, sys
from heedmap.errors import RunError
from heedmap.results.runs import Run
run = Run.load(sys.argv[1])
for most in sys.argv[3:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), -1))
    try:
        run.save(sys.argv[2])
    except RunError:
        print("refused")
"""


@posix
def test_a_full_disk_leaves_nothing(tmp_path):
    """Only the system knows when it refuses, and safetensors has an error of its own."""
    from making import random_run

    folder = random_run().save(tmp_path / "whole")
    place = tmp_path / "x"
    names = ("image.png", "index.html", "words/1-house.png", "maps.safetensors")
    most = [str((folder / name).stat().st_size // 2) for name in names]
    command = [sys.executable, "-c", LIMITED, folder, place, "0", *most]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused"] * 5
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


SAVING = """
import sys
import time
from pathlib import Path
from heedmap.io.writing import whole_folder
root = Path(sys.argv[1])
for number in range(10_000):
    with whole_folder(root / f"{number}") as partial:
        (partial / "parts").mkdir()
        for part in range(3):
            (partial / "parts" / f"{part}.txt").write_text("x" * 20_000)
            time.sleep(0.003)
        (partial / "mark.txt").write_text("x")
    print(number, flush=True)
"""


@posix
def test_a_process_that_is_killed_at_any_moment_leaves_all_or_nothing(tmp_path):
    """In 4 random moments; what it leaves does not keep the next from saving in that place."""
    chance = random.Random(0)
    processes = 2
    cut = 0
    for round_ in range(2):
        roots = [tmp_path / f"{round_}-{n}" for n in range(processes)]
        running = [
            subprocess.Popen([sys.executable, "-c", SAVING, root], stdout=subprocess.PIPE)
            for root in roots
        ]
        for process in running:
            assert process.stdout is not None and process.stdout.readline() == b"0\n"
        for process in running:
            time.sleep(chance.uniform(0, 0.02))
            process.kill()
            process.communicate()
        for root in roots:
            there = sorted(path for path in root.iterdir() if path.name.isdigit())
            for folder in there:
                assert len(texts(folder)) == 4 and (folder / "mark.txt").is_file()
            left = [path for path in root.iterdir() if path.name.startswith(".")]
            cut += len(left)
            assert all(".tmp-" in path.name for path in left)
            assert texts(save(root / str(len(there)))) == ["one"] * 4
    assert cut > 0


def test_taken_names_are_counted_up(tmp_path):
    place = Destination(None, root=tmp_path / "outputs")
    assert [place.put(save, "x").name for _ in range(3)] == ["x", "x-2", "x-3"]
    named = Destination(tmp_path / "many", many=True)
    assert named.put(save, "y") == tmp_path / "many" / "y"
    file = put_counting(tmp_path / "a.png", lambda path: put_file(path, b"1"))
    assert (file, put_counting(file, lambda path: put_file(path, b"2"))) == (
        tmp_path / "a.png",
        tmp_path / "a-2.png",
    )


def test_a_file_replaces_an_older_one(tmp_path):
    path = tmp_path / "deep" / "x.png"
    assert put_file(path, b"old") == path == put_file(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A red house!", "a-red-house"),
        ("../../etc/passwd", "etc-passwd"),
        (" \n", "word"),
        ("수박", "수박"),
        ("x" * 99, "x" * 40),
    ],
)
def test_texts_become_names_of_files(text, expected):
    assert slug(text, 40) == expected
