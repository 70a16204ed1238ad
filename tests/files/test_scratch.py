"""Scratch folders: whatever kills a process, nothing is lost, and nothing else is touched."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from making import deep_in

from files.saving import KIND, SAVING, new_in, notes, one, posix, save, saving, tree
from heedmap.files import scratch
from heedmap.files.writing import (
    Destination,
    TakenError,
    WriteError,
    put_file,
    remove_folder,
    whole_folder,
)


def is_locked(folder: Path) -> bool:
    """Whether somebody keeps others from writing to a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        scratch.fcntl.flock(handle, scratch.fcntl.LOCK_EX | scratch.fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


@posix
def test_others_wait_while_something_takes_its_place_or_goes(tmp_path: Path, monkeypatch):
    found: list[tuple[str, bool]] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def watched(source, to):
            if tmp_path in (Path(source).parent, Path(to).parent):
                found.append((name, is_locked(tmp_path)))
            return real(source, to)

        monkeypatch.setattr(os, name, watched)

    for name in ("rename", "replace", "link"):
        watch(name)
    for force in (False, True):
        save(tmp_path / "x", force=force)
        put_file(tmp_path / "file", b"%PDF", force=force)
    assert remove_folder(tmp_path / "x", KIND)
    names = ["rename", "link", "rename", "rename", "replace", "rename"]
    assert found == [(name, True) for name in names]
    assert not is_locked(tmp_path)


@posix
@pytest.mark.slow
@pytest.mark.parametrize("force", [False, True])
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, force):
    """Killed at random moments: nothing is half-written, and the next save leaves nothing over."""
    random = Random(14)
    mine = notes(save(tmp_path / "x", "0")) if force else {}
    left = put_back = 0
    for attempt in range(40 if force else 20):
        process = saving(tmp_path, str(attempt), count=1000, pause=0.0005, force=force)
        time.sleep(random.uniform(0, 0.03))
        process.kill()
        process.wait()
        process.stdout.close()
        names = sorted(p.name for p in tmp_path.iterdir())
        left += any(name.startswith(".heedmap.") for name in names)
        if force and "x" not in names:
            put_back += 1
        check_whole(tmp_path, force, mine)
        save(tmp_path / "next", force=True)  # another of that place puts all right
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
        check_whole(tmp_path, force, mine)
        if force:
            assert (tmp_path / "x").is_dir()
        shutil.rmtree(tmp_path / "next")
    assert left, "no kill came while something was written"
    print(f"{left} scratch folders were left, {put_back} folders were put back")


def check_whole(root: Path, force: bool, mine: dict[str, str | None]) -> None:
    for folder in root.glob("x*"):
        text = json.loads((folder / "thing.json").read_text())["thing"]
        parts = 2 if force and text == "0" and not (folder / "parts/3.png").exists() else 4
        assert tree(folder) == {**one(text, parts), **mine}


def stopped(monkeypatch, when: str):
    """A process that ends at a rename, and leaves all as it is then."""
    source = f"""
import os, signal, sys
from pathlib import Path
rename = os.rename

def killed(source, to):
    if {when!r} == "before" and Path(to).name == "old":
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, to)
    if {when!r} == "between" and Path(to).name == "old":
        os.kill(os.getpid(), signal.SIGKILL)
    if {when!r} == "after" and Path(source).name == "new":
        os.kill(os.getpid(), signal.SIGKILL)

os.rename = killed
"""
    return source


@posix
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_kill_at_the_renames(tmp_path: Path, monkeypatch, when):
    folder = save(tmp_path / "x", "old", parts=4)
    mine = notes(folder)
    script = stopped(monkeypatch, when) + SAVING
    done = subprocess.run([sys.executable, "-c", script, tmp_path, "x", "new", "1", "0", "force"])
    assert done.returncode == -9
    assert len(list(tmp_path.glob(".heedmap.*"))) == 1
    assert folder.exists() == (when != "between")
    # The check before the next drawing finds all in its place again.
    with pytest.raises(TakenError, match="x exists and holds a thing"):
        Destination(folder, KIND)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert tree(folder) == {**one("new" if when == "after" else "old", 4), **mine}


ODD = os.fsdecode(b"caf\xe9")
odd_names = pytest.mark.skipif(sys.platform != "linux", reason="names that are no UTF-8")


@odd_names
def test_names_that_are_not_utf8(tmp_path: Path):
    """A folder's, and those of a user's files and folders in it: nothing is left, nothing lost."""
    folder = save(tmp_path / ODD)
    (folder / f"{ODD}.txt").write_text("mine")
    (folder / ODD).mkdir()
    (folder / ODD / ODD).write_text("mine too")
    save(folder, "two", force=True)
    mine = {f"{ODD}.txt": "mine", ODD: None, f"{ODD}/{ODD}": "mine too"}
    assert tree(folder) == {**one("two"), **mine}
    put_file(tmp_path / f"{ODD}.png", b"x")
    assert sorted(os.listdir(tmp_path)) == [ODD, f"{ODD}.png"]


@odd_names
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_kill_at_the_renames_where_names_are_not_utf8(tmp_path: Path, monkeypatch, when):
    folder = save(tmp_path / ODD, "old", parts=4)
    (folder / f"{ODD}.txt").write_text("mine")
    script = stopped(monkeypatch, when) + SAVING
    done = subprocess.run([sys.executable, "-c", script, tmp_path, ODD, "new", "1", "0", "force"])
    assert done.returncode == -9 and folder.exists() == (when != "between")
    put_file(tmp_path / "file", b"x")
    assert sorted(os.listdir(tmp_path)) == [ODD, "file"]
    assert tree(folder) == {**one("new" if when == "after" else "old", 4), f"{ODD}.txt": "mine"}


@pytest.fixture
def bottomless(tmp_path: Path):
    """A folder for `deep_in`, which pytest itself could not take away."""
    yield tmp_path
    subprocess.run(["rm", "-rf", tmp_path / "desk"], check=True)


@posix
@pytest.mark.parametrize("levels", [1100, 2500])
@pytest.mark.parametrize("part", ["old", "new"])
def test_a_strangers_scratch_folder_of_very_deep_folders(bottomless: Path, levels, part):
    desk = bottomless / "desk"
    forged = desk / ".heedmap.abcdefgh"
    (forged / part).mkdir(parents=True)
    (forged / "lock").touch()
    journal = {"heedmap": "scratch", "name": "x", "known": ["/".join([*"d" * levels, "file"])]}
    (forged / "journal").write_text(json.dumps(journal))
    deep_in(forged / part, levels)
    save(desk / "x")
    assert tree(desk / "x") == one("one")
    # What is too deep for a path to name stays where it is.
    assert forged.exists() == (levels == 2500)


@posix
def test_very_deep_folders_of_a_users(bottomless: Path):
    folder = save(bottomless / "desk" / "x")
    deep_in(folder, 1100)
    save(folder, "two", force=True)
    assert not remove_folder(folder, KIND)
    assert (folder / "thing.json").read_text() == '{"thing": "two"}'
    assert (folder / "/".join("d" * 1100) / "file").is_file()
    (folder / "deeper").mkdir()
    deep_in(folder / "deeper", 2500)
    with pytest.raises(WriteError, match=r"x could not be replaced \(file name too long\): choose"):
        save(folder, "three", force=True)
    assert os.listdir(folder.parent) == ["x"]
    assert (folder / "thing.json").read_text() == '{"thing": "two"}'


@posix
def test_a_place_below_a_thousand_folders_that_are_not_there_yet(bottomless: Path):
    place = bottomless / "desk" / "/".join("d" * 1100) / "x"
    assert save(place).is_dir()
    with pytest.raises(KeyboardInterrupt), whole_folder(place.parents[1099] / "e" / "f", KIND):
        raise KeyboardInterrupt
    assert os.listdir(bottomless / "desk") == ["d"]


@posix
def test_a_place_that_is_taken_by_then_is_not_taken_back(tmp_path: Path, monkeypatch):
    folder = save(tmp_path / "x", "old", parts=4)
    mine = notes(folder)
    script = stopped(monkeypatch, "between") + SAVING
    subprocess.run([sys.executable, "-c", script, tmp_path, "x", "new", "1", "0", "force"])
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    put_file(tmp_path / "file", b"")
    assert tree(folder) == {"thesis.txt": "mine"}
    assert tree(tmp_path / "x-2") == {**one("old", 4), **mine}
    assert sorted(os.listdir(tmp_path)) == ["file", "x", "x-2"]


@posix
def test_what_looks_like_a_scratch_folder_and_is_none(tmp_path: Path):
    for name, files in {
        ".heedmap.abcdefgh": {"notes.txt": "mine"},
        ".heedmap.12345678": {"lock": "", "notes.txt": "mine"},
        ".heedmap.aaaaaaaa": {"lock": "", "new/notes.txt": "mine", "old/notes.txt": "mine"},
        ".heedmap.bbbbbbbb": {"lock": "", "journal": "[]", "old/notes.txt": "mine"},
        ".heedmap.cccccccc": {
            "lock": "", "old/a.txt": "mine", "new/b.txt": "",
            "journal": json.dumps({"heedmap": "scratch", "name": "../up", "known": ["a.txt"]}),
        },
        ".heedmap.dddddddd": {
            "lock": "", "old/a.txt": "mine", "outside.txt": "mine",
            "journal": json.dumps({"heedmap": "scratch", "name": "x", "known": ["../outside.txt"]}),
        },
        ".heedmap.eeeeeeee": {
            "lock": "", "old/a.txt": "mine", "notes.txt": "mine",
            "journal": json.dumps({"heedmap": "scratch", "name": "x", "known": ["a.txt"]}),
        },
        ".heedmap.ffffffff": {
            "lock": "", "old/a.txt": "mine",
            "journal": json.dumps({"name": "x", "known": ["a.txt"]}),
        },
        ".heedmap.notes": {"lock": "", "mine.txt": "mine"},
        "heedmap": {"lock": "", "mine.txt": "mine"},
    }.items():  # fmt: skip
        for file, text in files.items():
            (tmp_path / "desk" / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "desk" / name / file).write_text(text)
    (tmp_path / "desk" / ".heedmap.conf").write_text("mine")
    (tmp_path / "desk" / ".heedmap.link_abc").symlink_to("heedmap", target_is_directory=True)
    before = [n for n, text in tree(tmp_path).items() if text == "mine"]
    save(tmp_path / "desk" / "x")
    assert before == [n for n, text in tree(tmp_path).items() if text == "mine"]
    assert (tmp_path / "desk" / ".heedmap.link_abc").is_symlink()


@posix
def test_the_scratch_folder_of_a_process_that_lives_stays(tmp_path: Path):
    with whole_folder(tmp_path / "x", KIND) as partial:
        (partial / "thing.json").write_text("{}")
        save(tmp_path / "y")
        assert partial.is_dir()
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_without_locks_nothing_of_others_is_touched(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(scratch, "fcntl", None)
    (tmp_path / ".heedmap.abcdefgh").mkdir()
    mine = notes(save(tmp_path / "x"))
    save(tmp_path / "x", "two", force=True)
    assert tree(tmp_path / "x") == {**one("two"), **mine}
    assert sorted(os.listdir(tmp_path)) == [".heedmap.abcdefgh", "x"]


@pytest.mark.parametrize(
    "journal",
    [
        {"heedmap": "scratch", "name": ".git", "known": []},
        {"heedmap": "scratch", "name": "x", "known": 5},
        {"heedmap": "scratch", "name": "../x", "known": []},
        {"heedmap": "scratch", "name": 5, "known": {"a": 1}},
        {"heedmap": "scratch", "name": "x\0", "known": [[1], None]},
    ],
)
@pytest.mark.parametrize("new", [True, False])
def test_what_only_pretends_to_be_left_over(tmp_path: Path, journal, new):
    """As it may come with a folder from elsewhere: nothing hidden is made, and saves go on."""
    forged = tmp_path / ".heedmap.aaaaaaaa"
    (forged / "old").mkdir(parents=True)
    (forged / "old" / "config").write_text("[core]")
    (forged / "lock").touch()
    (forged / "journal").write_text(json.dumps(journal))
    if new:
        (forged / "new").mkdir()
    put_file(tmp_path / "f.txt", b"x")
    assert (tmp_path / "f.txt").read_bytes() == b"x"
    assert not (tmp_path / ".git").exists() and not (tmp_path.parent / "x").exists()
    kept = [path for path in tmp_path.rglob("config") if path.read_text() == "[core]"]
    assert len(kept) == 1


@pytest.mark.parametrize("name", ["theirs/x", "theirs/../../x", "a\\b", ".git", "", "x\0"])
def test_nothing_goes_back_but_beside_where_it_was(tmp_path: Path, name):
    desk = tmp_path / "desk"
    forged = desk / ".heedmap.aaaaaaaa"
    for part in (forged / "old", forged / "new", desk / "theirs"):
        part.mkdir(parents=True)
    (forged / "old" / "config").write_text("mine")
    (forged / "lock").touch()
    journal = {"heedmap": "scratch", "name": name, "known": ["config"]}
    (forged / "journal").write_text(json.dumps(journal))
    before = tree(tmp_path)
    put_file(desk / "file", b"x")
    assert tree(tmp_path) == {**before, "desk/file": "x"}


@posix
@pytest.mark.parametrize("part", ["old", "new"])
@pytest.mark.parametrize("name", ["x", ""])
def test_no_link_is_followed_to_what_may_be_deleted(tmp_path: Path, part, name):
    """Neither deleted nor moved, nor are its rights changed."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o750)
    (theirs / "a.txt").write_text("mine")
    desk = tmp_path / "desk"
    forged = desk / ".heedmap.aaaaaaaa"
    forged.mkdir(parents=True)
    (forged / part).symlink_to(theirs, target_is_directory=True)
    (forged / "lock").touch()
    journal = {"heedmap": "scratch", "name": name, "known": ["a.txt"], "mark": "a.txt"}
    (forged / "journal").write_text(json.dumps(journal))
    put_file(desk / "file", b"x")
    assert tree(theirs) == {"a.txt": "mine"} and sorted(os.listdir(tmp_path)) == ["desk", "theirs"]
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o750
    assert not (desk / "a.txt").exists() and not (desk / "x").exists()


@posix
@pytest.mark.parametrize("hidden", [".git", ".bashrc"])
def test_nothing_hidden_is_moved_up_either(tmp_path: Path, hidden):
    """A repository's settings, say, name programs that are run."""
    forged = new_in(tmp_path, hidden, "z.json")
    (forged / "lock").touch()
    scratch.write_journal(forged, "", (), "z.json")
    put_file(tmp_path / "file", b"x")
    assert not (tmp_path / hidden).exists() and not (tmp_path / "z.json").exists()


def test_a_journal_is_whole_whatever_fails(tmp_path: Path, monkeypatch):
    scratch.write_journal(tmp_path, "x", ["a"])
    before = tree(tmp_path)

    def half(self: Path, text: str, **_: object) -> None:
        with self.open("w") as file:
            file.write(text[:9])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError):
        scratch.write_journal(tmp_path, "x", ["a", "b"])
    assert tree(tmp_path)["journal"] == before["journal"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root makes others' folders")
def test_scratch_folders_of_others_are_left_alone(tmp_path: Path):
    forged = tmp_path / ".heedmap.aaaaaaaa"
    (forged / "new").mkdir(parents=True)
    (forged / "new" / "file").touch()
    (forged / "lock").touch()
    (forged / "journal").write_text(json.dumps({"heedmap": "scratch", "name": "x", "known": []}))
    os.chown(forged, 65534, 65534)
    put_file(tmp_path / "f.txt", b"x")
    assert (forged / "new" / "file").exists()
