"""Writing for a user: whole or not at all, and what heedmap did not write is never lost."""

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from heedmap.errors import ArgumentError, RunError
from heedmap.files import kinds, scratch, swaps, targets
from heedmap.files.writing import (
    Destination,
    Kind,
    TakenError,
    WriteError,
    put_counting,
    put_file,
    remove_folder,
    slug,
    whole_folder,
)

KIND = Kind(
    "a thing", "thing.json", frozenset({"thing"}), re.compile(r"thing\.json|parts/\d+\.png")
)
posix = pytest.mark.skipif(os.name == "nt", reason="modes and locks of POSIX")


def save(folder: Path, text: str = "one", *, parts: int = 2, force: bool = False) -> Path:
    """A folder of a small kind, whose files all say the same."""
    with whole_folder(folder, KIND, force=force) as partial:
        (partial / "parts").mkdir()
        for number in range(parts):
            (partial / "parts" / f"{number}.png").write_text(text)
        (partial / "thing.json").write_text(json.dumps({"thing": text}))
    return folder


def tree(folder: Path) -> dict[str, str | None]:
    """What is in each file, where each link leads, None for folders."""
    found: dict[str, str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = None if path.is_dir() else path.read_bytes().decode("latin-1")
    return found


def one(text: str, parts: int = 2) -> dict[str, str | None]:
    return {
        "parts": None,
        **{f"parts/{n}.png": text for n in range(parts)},
        "thing.json": json.dumps({"thing": text}),
    }


def notes(folder: Path) -> dict[str, str | None]:
    """What a user puts into a folder, and what it is."""
    (folder / "notes.txt").write_text("five years")
    (folder / "drafts" / "old").mkdir(parents=True)
    (folder / "drafts" / "old" / "a.txt").write_text("a")
    (folder / "empty").mkdir()
    (folder / "parts" / "mine.txt").write_text("b")
    (folder / "link").symlink_to("/nowhere")
    (folder / "linked").symlink_to("drafts", target_is_directory=True)
    return {
        "notes.txt": "five years", "drafts": None, "drafts/old": None, "drafts/old/a.txt": "a",
        "empty": None, "parts/mine.txt": "b", "link": "/nowhere", "linked": "drafts",
    }  # fmt: skip


# --- folders ----------------------------------------------------------------------------------


def test_a_folder_is_there_when_it_is_whole(tmp_path: Path):
    with whole_folder(tmp_path / "deep" / "x", KIND) as partial:
        (partial / "thing.json").write_text("{}")
        assert not (tmp_path / "deep" / "x").exists()
    assert tree(tmp_path) == {"deep": None, "deep/x": None, "deep/x/thing.json": "{}"}


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()])
@pytest.mark.parametrize("force", [False, True])
def test_a_failure_leaves_all_as_it_was(tmp_path: Path, error, force):
    if force:
        save(tmp_path / "x")
        notes(tmp_path / "x")
    before = tree(tmp_path)
    place = tmp_path / "x" if force else tmp_path / "deep" / "down" / "x"
    told = (WriteError, re.escape(f"{place} could not be written (no space left on device): not"))
    kind, sentence = told if error is FULL else (KeyboardInterrupt, "^$")
    with pytest.raises(kind, match=sentence), whole_folder(place, KIND, force=force) as partial:
        (partial / "thing.json").write_text("{")
        raise error
    assert tree(tmp_path) == before


def test_force_replaces_what_heedmap_wrote_and_nothing_else(tmp_path: Path):
    folder = save(tmp_path / "x", parts=3)
    mine = notes(folder)
    before = (folder / "notes.txt").stat()
    with pytest.raises(TakenError, match="x exists and holds a thing: nothing was written; choose"):
        save(folder, "two")
    assert tree(folder) == {**one("one", 3), **mine}
    save(folder, "two", force=True)
    assert tree(folder) == {**one("two", 2), **mine}
    after = (folder / "notes.txt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_force_on_a_disk_without_second_names(tmp_path: Path, monkeypatch):
    def none(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    folder = save(tmp_path / "x", parts=3)
    mine = notes(folder)
    monkeypatch.setattr(os, "link", none)
    save(folder, "two", force=True)
    assert tree(folder) == {**one("two", 2), **mine}
    put_file(tmp_path / "file", b"1")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "x"]


@pytest.mark.parametrize("force", [False, True])
def test_an_empty_folder_is_fine_and_keeps_its_mode(tmp_path: Path, force):
    (tmp_path / "x").mkdir(mode=0o750)
    mode = (tmp_path / "x").stat().st_mode
    save(tmp_path / "x", force=force)
    assert (tmp_path / "x").stat().st_mode == mode
    save(tmp_path / "x", "two", force=True)
    assert (tmp_path / "x").stat().st_mode == mode
    assert tree(tmp_path / "x") == one("two")


def test_only_the_same_kind_is_replaced(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("a")
    (tmp_path / "other").mkdir()
    (tmp_path / "fake").mkdir()
    for name, text in {"other": '{"name": 1}', "fake": '["thing"]'}.items():
        (tmp_path / name / "thing.json").write_text(text)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "thing.json").symlink_to(save(tmp_path / "x") / "thing.json")
    before = tree(tmp_path)
    for name in ("mine", "other", "fake", "linked"):
        for force in (False, True):
            with pytest.raises(TakenError, match=f"{name} exists and is not a thing: nothing was"):
                save(tmp_path / name, force=force)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("place", ["parts/7.png", "parts/0.png"])
@pytest.mark.parametrize("how", ["folder", "link"])
def test_what_heedmap_did_not_write_at_a_place_of_its_own(tmp_path: Path, place, how):
    folder = save(tmp_path / "x")
    (folder / place).unlink(missing_ok=True)
    (folder / place).mkdir() if how == "folder" else (folder / place).symlink_to("/etc/hostname")
    before = tree(tmp_path)
    with pytest.raises(TakenError, match=f"x holds {place}, which heedmap did not write"):
        save(folder, "two", force=True)
    assert tree(tmp_path) == before


def test_a_file_of_a_users_where_a_folder_goes(tmp_path: Path):
    folder = save(tmp_path / "x")
    shutil.rmtree(folder / "parts")
    (folder / "parts").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(RunError, match=r"heedmap writes another parts than the one in .*x, wh"):
        save(folder, "two", force=True)
    assert tree(tmp_path) == before


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
    (folder / kind.mark).write_text(json.dumps(dict.fromkeys(kind.keys, 1)))
    (folder / place).write_text("m") if how == "file" else (folder / place).symlink_to(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(TakenError, match=f"x holds {place}, a {how} where heedmap writes a folder"):
        Destination(folder, kind, force=True)
    assert tree(tmp_path) == before


def test_what_comes_and_goes_while_a_folder_is_replaced(tmp_path: Path, monkeypatch):
    """A user's files that change after they were linked, until the folder is out of reach."""
    folder = save(tmp_path / "x")
    notes(folder)
    rename = os.rename

    def late(source, to):
        if Path(source) == folder:
            (folder / "late.txt").write_text("c")
            (folder / "new.txt").write_text("six years")
            os.replace(folder / "new.txt", folder / "notes.txt")
            (folder / "drafts" / "old" / "a.txt").unlink()
        return rename(source, to)

    monkeypatch.setattr(os, "rename", late)
    save(folder, "two", force=True)
    found = tree(folder)
    assert (found["late.txt"], found["notes.txt"]) == ("c", "six years")
    assert "drafts/old/a.txt" not in found and found["parts/0.png"] == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_swap_that_fails_puts_the_old_folder_back(tmp_path: Path, monkeypatch):
    folder = save(tmp_path / "x")
    notes(folder)
    before = tree(folder)
    rename = os.rename

    def refused(source, to):
        if Path(source).name == "new":
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(source, to)

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(RunError, match=r"x could not be put in its place \(permission denied\)"):
        save(folder, "two", force=True)
    assert tree(folder) == before
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_what_is_written_meanwhile_is_not_replaced(tmp_path: Path):
    for force in (False, True):
        with (
            pytest.raises(TakenError, match="exists and is not a thing"),
            whole_folder(tmp_path / "x", KIND, force=force) as partial,
        ):
            (partial / "thing.json").write_text('{"thing": 1}')
            (tmp_path / "x").mkdir(exist_ok=True)
            (tmp_path / "x" / "notes.txt").write_text("mine")
        assert tree(tmp_path) == {"x": None, "x/notes.txt": "mine"}


@posix
@pytest.mark.parametrize("mask", [0o022, 0o027, 0o002])
def test_modes_are_those_of_the_umask(tmp_path: Path, mask):
    before = os.umask(mask)
    try:
        save(tmp_path / "deep" / "x")
        put_file(tmp_path / "one.png", b"")
    finally:
        os.umask(before)
    for path in [tmp_path / "deep", *tmp_path.rglob("*")]:
        expected = (0o777 if path.is_dir() else 0o666) & ~mask
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


@posix
def test_folders_that_are_there_keep_their_modes(tmp_path: Path):
    folder = save(tmp_path / "x")
    notes(folder)
    modes = {"": 0o2755, "parts": 0o775, "drafts": 0o750, "drafts/old": 0o500, "empty": 0o1777}
    for name, mode in modes.items():
        (folder / name).chmod(mode)
    before = os.umask(0o077)
    try:
        save(folder, "two", force=True)
    finally:
        os.umask(before)
    assert {name: stat.S_IMODE((folder / name).stat().st_mode) for name in modes} == modes
    assert stat.S_IMODE((folder / "thing.json").stat().st_mode) == 0o600
    save(folder, "three", force=True)  # a folder that nothing can be written to, again
    assert {name: stat.S_IMODE((folder / name).stat().st_mode) for name in modes} == modes


@pytest.mark.parametrize("force", ["x", "", 1, 0, None, []])
def test_force_is_true_or_false(tmp_path: Path, force):
    for write in (
        lambda: save(tmp_path / "x", force=force),
        lambda: put_file(tmp_path / "x", b"", force=force),
        lambda: Destination(tmp_path / "x", KIND, force=force),
        lambda: Destination(None, KIND, root=tmp_path, force=force),
    ):
        with pytest.raises(ArgumentError, match=r"force is .*: expected True or False"):
            write()
    assert list(tmp_path.iterdir()) == []


# --- empty folders that cannot be renamed -----------------------------------------------------


@posix
@pytest.mark.parametrize("given", [".", "../x", "{}"])
def test_the_empty_folder_one_is_in_is_filled(tmp_path: Path, monkeypatch, given):
    folder = tmp_path / "x"
    folder.mkdir(mode=0o750)
    monkeypatch.chdir(folder)
    before, given = folder.stat(), given.format(folder)
    Destination(given, KIND)
    with whole_folder(given, KIND) as partial:
        (partial / "thing.json").write_text('{"thing": 1}')
        (partial / "parts").mkdir()
        assert [name for name in os.listdir() if not name.startswith(".")] == []
    assert tree(folder) == {"thing.json": '{"thing": 1}', "parts": None}
    after = Path.cwd().stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    with pytest.raises(TakenError, match="exists and holds a thing: nothing was written; choose"):
        Destination(given, KIND)
    with pytest.raises(TakenError, match=r"replaced as a whole \(it is the folder you are"):
        Destination(given, KIND, force=True)
    assert tree(tmp_path) == {"x": None, "x/thing.json": '{"thing": 1}', "x/parts": None}


@posix
def test_what_comes_into_the_folder_one_is_in_meanwhile(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "thing.json"):
        with (
            pytest.raises(TakenError, match=r"was written by somebody else meanwhile"),
            whole_folder(".", KIND) as partial,
        ):
            (partial / "thing.json").write_text("{}")
            Path(name).write_text("mine")
        assert tree(tmp_path) == {name: "mine"}
        Path(name).unlink()


@posix
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()])
@pytest.mark.parametrize("at", ["parts", "thing.json"])
def test_a_failure_in_the_folder_one_is_in(tmp_path: Path, monkeypatch, error, at):
    monkeypatch.chdir(tmp_path)
    rename = os.rename

    def refused(source, to):
        if Path(source).name == at and Path(to).parent == tmp_path:
            raise error
        return rename(source, to)

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(WriteError if error is FULL else KeyboardInterrupt):
        save(Path("."))
    assert tree(tmp_path) == {}


IN_PLACE = """
import os, signal, sys
from pathlib import Path
import json
rename = os.rename
at, left = sys.argv.pop(1), [1]

def killed(source, to):
    if Path(source).name == at:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, to)

os.rename = killed
"""


@posix
@pytest.mark.parametrize("at", ["parts", "thing.json"])
def test_a_kill_in_the_folder_one_is_in(tmp_path: Path, monkeypatch, at):
    """The next who looks there adds what is missing; until then it is no result."""
    script = IN_PLACE + SAVING.replace("Path(root, name)", "Path()")
    arguments = [at, tmp_path, "x", "new", "1", "0", "force"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], cwd=tmp_path)
    assert done.returncode == -9
    assert not (tmp_path / "thing.json").exists()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TakenError, match=r"\. exists and holds a thing"):
        Destination(".", KIND)
    assert tree(tmp_path) == one("new", 4)


@posix
@pytest.mark.parametrize("at", ["new", "parts", "thing.json"])
def test_a_kill_in_the_folder_one_was_in(tmp_path: Path, at):
    """What is left there is in nobody's way, also for one who comes from elsewhere."""
    script = IN_PLACE + SAVING.replace("Path(root, name)", "Path()")
    if at == "new":  # while the files are written
        script = script.replace("for number", "os.kill(os.getpid(), 9)\n        for number")
    (tmp_path / "x").mkdir()
    arguments = [at, tmp_path, "x", "new", "1", "0", "force"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], cwd=tmp_path / "x")
    assert done.returncode == -9
    assert os.listdir(tmp_path / "x")
    save(tmp_path / "x", "other", force=True)
    assert tree(tmp_path / "x") == one("other")
    assert os.listdir(tmp_path) == ["x"]


@posix
def test_a_kill_in_the_folder_one_is_in_and_a_users_file_there(tmp_path: Path, monkeypatch):
    script = IN_PLACE + SAVING.replace("Path(root, name)", "Path()")
    arguments = ["thing.json", tmp_path, "x", "new", "1", "0", "force"]
    subprocess.run([sys.executable, "-c", script, *arguments], cwd=tmp_path)
    (tmp_path / "thing.json").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TakenError):
        save(Path("."), force=True)
    assert (tmp_path / "thing.json").read_text() == "mine"
    assert len([*tmp_path.glob(".heedmap.*/new/thing.json")]) == 1


def new_in(folder: Path, *names: str) -> Path:
    """A scratch folder in another, with new files that say "new"."""
    made = folder / ".heedmap.aaaaaaaa"
    (made / "new").mkdir(parents=True)
    for name in names:
        (made / "new" / name).write_text("new")
    return made


@posix
@pytest.mark.parametrize("mark", ["a.json", "m.json", "z.json"])
def test_in_the_folder_one_is_in_the_mark_comes_last(tmp_path: Path, monkeypatch, mark):
    """Whatever it is called; also where a process was killed, and another goes on."""
    rename, moved = os.rename, []

    def watched(source, to):
        if Path(to).parent == tmp_path:
            moved.append(Path(to).name)
        return rename(source, to)

    monkeypatch.setattr(os, "rename", watched)
    rest = [name for name in ("a.json", "k.png", "m.json", "z.json") if name != mark]
    swaps.fill(new_in(tmp_path, *rest, mark), mark)
    assert moved == [*rest, mark]
    for name in moved:
        (tmp_path / name).unlink()
    moved.clear()
    scratch.note(tmp_path / ".heedmap.aaaaaaaa", "", (), mark)
    for name in (*rest, mark):
        (tmp_path / ".heedmap.aaaaaaaa" / "new").mkdir(exist_ok=True)
        (tmp_path / ".heedmap.aaaaaaaa" / "new" / name).write_text("new")
    (tmp_path / ".heedmap.aaaaaaaa" / "lock").touch()
    scratch.tidy(tmp_path)
    assert moved == [*rest, mark]
    assert not (tmp_path / ".heedmap.aaaaaaaa").exists()


@posix
@pytest.mark.parametrize("at", ["a.png", "b.png", "z.json"])
def test_a_users_file_that_comes_while_a_folder_is_filled_stays(tmp_path: Path, at):
    made = new_in(tmp_path, "a.png", "b.png", "z.json")
    (tmp_path / at).write_text("mine")
    with pytest.raises(FileExistsError):
        swaps.fill(made, "z.json")
    assert [path.name for path in tmp_path.glob("*.*") if path.is_file()] == [at]
    assert (tmp_path / at).read_text() == "mine"
    assert sorted(os.listdir(made / "new")) == ["a.png", "b.png", "z.json"]
    assert {path.read_text() for path in (made / "new").iterdir()} == {"new"}


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


@pytest.fixture
def disk(tmp_path: Path):
    """A disk of 256 KiB, mounted where nothing was."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "none", place], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root mounts disks")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@posix
@pytest.mark.parametrize("beside", [False, True])
def test_an_empty_disk_is_filled(disk: Path, beside):
    if beside:
        (disk / "lost+found").mkdir()
    save(disk)
    assert {n: t for n, t in tree(disk).items() if n != "lost+found"} == one("one")
    with pytest.raises(TakenError, match=r"replaced as a whole \(a disk is mounted there"):
        save(disk, force=True)


@posix
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", [".", "x", "deep/down/x"])
def test_a_disk_that_is_really_full(disk: Path, name, force):
    if force:
        if name == ".":
            return
        notes(save(disk / name))
    before = tree(disk)
    with (
        pytest.raises(WriteError, match=r"\(no space left on device\): .*make room") as told,
        whole_folder(disk / name, KIND, force=force) as partial,
    ):
        for number in range(999):
            (partial / f"{number}.png").write_bytes(b"x" * 4096)
    assert str(disk / name) in str(told.value)
    assert tree(disk) == before
    with pytest.raises(WriteError, match=r"file could not be written \(no space left on device"):
        put_file(disk / "file", b"x" * 2**19)
    assert tree(disk) == before
    if name == ".":
        return
    (disk / "ballast").write_bytes(b"")
    with suppress(OSError), (disk / "ballast").open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 512)
    for write in (
        lambda: save(disk / name, force=force),
        lambda: put_file(disk / "file", b"x"),
        lambda: Destination(disk / name, KIND, force=force),  # before anything is drawn
        lambda: Destination(None, KIND, root=disk),
    ):
        with pytest.raises(WriteError, match=r"\(no space left on device\): make room there"):
            write()
    (disk / "ballast").unlink()
    assert tree(disk) == before


# --- what belongs to another user -------------------------------------------------------------


AS_A_THIRD = """
import os, sys
from pathlib import Path
from heedmap.errors import RunError
from heedmap.files.writing import Destination, kinds, whole_folder
os.setgroups([]); os.setgid(65533); os.setuid(65533)
folder = Path(sys.argv[1])
try:
    Destination(folder, kinds.RUN, force=True)
    with whole_folder(folder, kinds.RUN, force=True) as partial:
        (partial / "run.json").write_text('{"new": 1}')
except RunError as error:
    print(error)
"""
root_only = pytest.mark.skipif(
    os.name == "nt" or os.geteuid() != 0, reason="only root makes what is others'"
)


CLOSED = """
import os, sys
from pathlib import Path
from heedmap.errors import RunError
from heedmap.files.writing import kinds, whole_folder
os.setgroups([]); os.setgid(65533); os.setuid(65533)
os.umask(int(sys.argv[2]))
try:
    with whole_folder(Path(sys.argv[1]), kinds.RUN) as partial:
        (partial / "run.json").write_text('{"new": 1}')
except RunError as error:
    print(error)
"""


@root_only
@pytest.mark.parametrize("umask", [0o777, 0o577, 0o477, 0o277, 0o177])
def test_a_umask_that_keeps_its_user_out_leaves_nothing(umask):
    with tempfile.TemporaryDirectory() as place:
        os.chown(place, 65533, 65533)
        command = [sys.executable, "-c", CLOSED, Path(place) / "x", str(umask)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        written = umask == 0o477  # who may write, and not read
        assert ("(permission denied)" in done.stdout) is not written
        assert os.listdir(place) == (["x"] if written else [])


@root_only
@pytest.mark.parametrize(
    ("mode", "refused"), [(0o755, True), (0o700, True), (0o1777, True), (0o777, False)]
)
@pytest.mark.parametrize("empty", [False, True])
def test_a_folder_of_another_user_within(mode, refused, empty):
    with tempfile.TemporaryDirectory() as place:  # pytest's own are closed to others
        desk, folder, theirs = (Path(place) / part for part in ("", "x", "x/deep/theirs"))
        theirs.mkdir(parents=True)
        (folder / "run.json").write_text('{"format": 1, "settings": {}}')
        (folder / "mine.txt").write_text("mine")
        if not empty:
            (theirs / "notes.txt").write_text("theirs")
        for path in (desk, folder, theirs.parent, folder / "run.json", folder / "mine.txt"):
            os.chown(path, 65533, 65533)
        for path in theirs.iterdir():
            os.chown(path, 65534, 65534)
        os.chown(theirs, 65534, 65534)
        theirs.chmod(mode)
        before = tree(desk)
        command = [sys.executable, "-c", AS_A_THIRD, folder]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if refused:
            assert "x holds deep/theirs, which belongs to another user and cannot" in done.stdout
            assert tree(desk) == before
            assert theirs.stat().st_uid == 65534
        else:
            assert done.stdout == ""
            assert tree(desk) == {**before, "x/run.json": '{"new": 1}'}
        assert os.listdir(desk) == ["x"]


@root_only
def test_roots_saves_leave_folders_to_those_whom_they_belong_to(tmp_path: Path):
    folder = save(tmp_path / "x")
    notes(folder)
    for name in ("", "parts", "drafts", "drafts/old", "notes.txt"):
        os.chown(folder / name, 65533, 65534)
    save(folder, "two", force=True)
    for name in ("", "parts", "drafts", "drafts/old", "notes.txt"):
        about = (folder / name).stat()
        assert (about.st_uid, about.st_gid) == (65533, 65534), name


@root_only
def test_an_empty_folder_whose_parent_is_closed(tmp_path: Path):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "x"
        folder.mkdir()
        os.chown(folder, 65533, 65533)
        Path(place).chmod(0o755)
        command = [sys.executable, "-c", AS_A_THIRD, folder]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, ""), done
        assert tree(Path(place)) == {"x": None, "x/run.json": '{"new": 1}'}


# --- places that cannot be written to ---------------------------------------------------------


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
        with pytest.raises(ArgumentError, match=r"is no path: expected a text, or a pathlib\.Path"):
            write(given)
    assert list(tmp_path.iterdir()) == []


PLACES = {
    "file": "file is a file: nothing was written; choose another",
    "file/x": "file is no folder: nothing can be written below it",
    "file/x/y": "file is no folder: nothing can be written below it",
    "dangling": "dangling is a link",
    "dangling/x": "dangling is no folder: nothing can be written below it",
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
        (desk / "ours" / "run.json").write_text('{"format": 1, "settings": {}}')
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


def test_names_that_a_stranger_lists_lead_nowhere(tmp_path: Path):
    outside = tmp_path / "1-mine.png"
    outside.write_text("mine")
    folder = tmp_path / "deep" / "x"
    listed = ["notes.txt", "../../1-mine.png", str(outside), "words/../../../1-mine.png", None, 7]
    listed += ["words/0-a.png", "words/1-b.gif", "words/deep/1-c.png"]
    for name in ("notes.txt", "words/0-a.png", "words/1-b.gif", "words/deep/1-c.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    words = [{"file": name} for name in listed] + ["odd", None]
    about = {"format": 1, "settings": {}, "words": words}
    (folder / "run.json").write_text(json.dumps(about))
    with whole_folder(folder, kinds.RUN, force=True) as partial:
        (partial / "run.json").write_text("{}")
    assert tree(folder) == {
        "notes.txt": "mine", "run.json": "{}", "words": None, "words/1-b.gif": "mine",
        "words/deep": None, "words/deep/1-c.png": "mine",
    }  # fmt: skip
    assert outside.read_text() == "mine"


def test_a_run_is_not_replaced_while_one_stands_in_it(tmp_path: Path, monkeypatch):
    folder = save(tmp_path / "x")
    monkeypatch.chdir(folder / "parts")
    with pytest.raises(
        TakenError, match=r"x cannot be replaced as a whole \(it is the folder you are in, or"
    ):
        save(folder, force=True)


# --- names ------------------------------------------------------------------------------------


def test_default_names_count_on(tmp_path: Path):
    place = Destination(None, KIND, root=tmp_path / "outputs")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "x").symlink_to("nowhere")
    (tmp_path / "outputs" / "x-2").mkdir()
    (tmp_path / "outputs" / "x-3").write_text("mine")
    assert place.put(save_one, "x") == tmp_path / "outputs" / "x-4"
    assert place.put(save_one, "x") == tmp_path / "outputs" / "x-5"
    again = Destination(None, KIND, root=tmp_path / "outputs", force=True)
    assert again.put(save_one, "x") == tmp_path / "outputs" / "x-2"  # it is empty
    assert (tmp_path / "outputs" / "x-3").read_text() == "mine"
    assert put_counting(tmp_path / "a.png", lambda p: put_file(p, b"1"), False).name == "a.png"
    assert put_counting(tmp_path / "a.png", lambda p: put_file(p, b"1"), False).name == "a-2.png"


def save_one(folder: Path, *, force: bool) -> Path:
    return save(folder, force=force)


def test_a_disk_that_refuses_is_not_asked_for_other_names(tmp_path: Path):
    asked: list[str] = []

    def refuse(path: Path) -> None:
        asked.append(path.name)
        if len(asked) > 1:
            raise AssertionError("asked again")
        raise WriteError("x could not be written", OSError(errno.ENOSPC, "full"))

    with pytest.raises(WriteError):
        put_counting(tmp_path / "x", refuse, force=False)
    assert asked == ["x"]


def test_a_name_that_is_taken_meanwhile_counts_on(tmp_path: Path):
    tries = []

    def late(folder: Path, *, force: bool) -> None:
        tries.append(folder.name)
        with whole_folder(folder, KIND, force=force) as partial:
            (partial / "thing.json").write_text('{"thing": "mine"}')
            if len(tries) == 1:
                save(folder, "theirs")

    assert Destination(None, KIND, root=tmp_path).put(late, "x").name == "x-2"
    assert tries == ["x", "x-2"]
    assert (tmp_path / "x" / "thing.json").read_text() == '{"thing": "theirs"}'
    assert (tmp_path / "x-2" / "thing.json").read_text() == '{"thing": "mine"}'


SAVING = """
import json, os, re, sys, time
from pathlib import Path
from heedmap.files.writing import Destination, Kind, whole_folder
NAMES = re.compile(r"thing\\.json|parts/\\d+\\.png")
KIND = Kind("a thing", "thing.json", frozenset({"thing"}), NAMES)
root, name, text, count, pause, force = sys.argv[1:]

def save(folder, *, force):
    with whole_folder(folder, KIND, force=force) as partial:
        (partial / "parts").mkdir()
        for number in range(4):
            (partial / "parts" / f"{number}.png").write_text(text)
            time.sleep(float(pause))
        (partial / "thing.json").write_text(json.dumps({"thing": text}))

print("ready", flush=True)
for _ in range(int(count)):
    if force == "force":
        save(Path(root, name), force=True)
    else:
        Destination(None, KIND, root=root).put(save, name)
"""


def saving(root: Path, text: str, *, count: int, pause: float = 0, force: bool = False):
    """A process that saves a folder `x` so many times."""
    arguments = [root, "x", text, count, pause, "force" if force else "new"]
    process = subprocess.Popen(
        [sys.executable, "-c", SAVING, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(*processes: subprocess.Popen) -> None:
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_processes_that_save_at_the_same_time_all_have_a_folder(tmp_path: Path):
    ended(*[saving(tmp_path, f"of {n}", count=5, pause=0.001) for n in range(3)])
    found = sorted(tmp_path.iterdir())
    assert len(found) == 15
    texts = [json.loads((folder / "thing.json").read_text())["thing"] for folder in found]
    assert sorted(texts) == sorted(["of 0", "of 1", "of 2"] * 5)
    for folder, text in zip(found, texts, strict=True):
        assert tree(folder) == one(text, 4)


@posix
def test_processes_that_replace_one_folder_lose_no_note(tmp_path: Path):
    mine = notes(save(tmp_path / "x"))
    ended(*[saving(tmp_path, f"of {n}", count=15, force=True) for n in range(2)])
    found = tree(tmp_path / "x")
    text = json.loads(str(found["thing.json"]))["thing"]
    assert found == {**one(text, 4), **mine}
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


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
        put_file(tmp_path / "file", b"x", force=force)
    assert remove_folder(tmp_path / "x", KIND)
    names = ["rename", "link", "rename", "rename", "replace", "rename"]
    assert found == [(name, True) for name in names]
    assert not is_locked(tmp_path)


# --- killed -----------------------------------------------------------------------------------


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


# --- files, and folders that go ---------------------------------------------------------------


def test_files(tmp_path: Path, monkeypatch):
    path = tmp_path / "deep" / "one.png"
    assert put_file(path, b"1") == path
    for force in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(
                Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
            )
            with pytest.raises(TakenError if not force else WriteError):
                put_file(path, b"2", force=force)
    with pytest.raises(
        TakenError, match=r"one\.png exists: nothing was written; choose another name"
    ):
        put_file(path, b"2")
    assert path.read_bytes() == b"1"
    path.chmod(0o600)
    assert put_file(path, b"2", force=True).read_bytes() == b"2"
    assert os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(TakenError, match=f"{name} is a {name}: nothing was written"):
            put_file(tmp_path / name, b"3", force=True)
    assert path.read_bytes() == b"2"
    assert [p.name for p in path.parent.iterdir()] == ["one.png"]


def test_a_file_that_comes_meanwhile_stays(tmp_path: Path, monkeypatch):
    check = targets.check_file

    def late(given, *, force):
        check(given, force=force)
        (tmp_path / "one.png").write_text("mine")

    monkeypatch.setattr("heedmap.files.writing.check_file", late)
    with pytest.raises(TakenError):
        put_file(tmp_path / "one.png", b"1")
    assert tree(tmp_path) == {"one.png": "mine"}


def test_what_comes_where_a_file_is_to_be_stays(tmp_path: Path, monkeypatch):
    """While the file is written, and after the last look at the place."""
    write = Path.write_bytes

    def late(self: Path, data: bytes) -> int:
        (tmp_path / "link").symlink_to("nowhere")
        return write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", late)
        with pytest.raises(TakenError, match="link is a link"):
            put_file(tmp_path / "link", b"1", force=True)
    assert tree(tmp_path) == {"link": "nowhere"}
    check, looks = targets.check_file, []

    def later(given, *, force):
        check(given, force=force)
        looks.append(given)
        if len(looks) == 2:
            (tmp_path / "one.png").write_text("mine")

    monkeypatch.setattr("heedmap.files.writing.check_file", later)
    with pytest.raises(TakenError, match=r"one\.png was written by somebody else meanwhile"):
        put_file(tmp_path / "one.png", b"1")
    assert tree(tmp_path) == {"link": "nowhere", "one.png": "mine"}


def test_a_folder_is_only_removed_if_all_of_it_is_heedmaps(tmp_path: Path, monkeypatch):
    assert remove_folder(save(tmp_path / "x"), KIND)
    assert list(tmp_path.iterdir()) == []
    folder = save(tmp_path / "x")
    assert not remove_folder(folder, kinds.RUN)
    (folder / "notes.txt").write_text("mine")
    assert not remove_folder(folder, KIND)
    (folder / "notes.txt").unlink()
    rename = os.rename

    def late(source, to):
        rename(source, to)
        if Path(to).name == "old":
            (Path(to) / "notes.txt").write_text("mine")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", late)
        assert not remove_folder(folder, KIND)
    assert tree(folder) == {**one("one"), "notes.txt": "mine"}
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("text", ["수박" * 300, "🦒" * 99 + "가" * 99, "İ" * 500, "a" * 999])
def test_names_made_of_texts_are_names_that_a_disk_takes(tmp_path: Path, text):
    (tmp_path / f"{slug(text, 100)}-2147483647-99.png").touch()


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


def test_of_the_names_of_a_kind_only_those_that_were_written_are_replaced(tmp_path: Path):
    kind = Kind(
        KIND.what, KIND.mark, KIND.keys, KIND.names, lambda _: {"thing.json", "parts/0.png"}
    )
    folder = save(tmp_path / "x", parts=1)
    with whole_folder(folder, kind, force=True) as partial:
        (partial / "thing.json").write_text('{"thing": "two"}')
    (folder / "parts").mkdir()
    (folder / "parts" / "7.png").write_text("mine")
    before = tree(folder)
    with (
        pytest.raises(TakenError, match=r"holds parts/7\.png, which heedmap did not write"),
        whole_folder(folder, kind, force=True),
    ):
        raise AssertionError("it was let in")
    assert tree(folder) == before
    assert not remove_folder(folder, kind) and tree(folder) == before


@posix
def test_files_whose_names_only_begin_as_heedmaps_stay(tmp_path: Path):
    folder = save(tmp_path / "x")
    mine = {"thing.json.bak": "mine", "thing.json~": "mine", "parts/0.png.orig": "mine"}
    for name, text in mine.items():
        (folder / name).write_text(text)
    save(folder, "two", force=True)
    assert tree(folder) == {**one("two"), **mine}
    assert not remove_folder(folder, KIND)


def test_what_a_mark_does_not_list_was_not_written(tmp_path: Path):
    """A run without a sheet, and a cell without a mask: such files are a user's."""
    (tmp_path / "run.json").write_text('{"format": 1, "settings": {}, "files": ["image.png"]}')
    assert kinds.RUN.written is not None and kinds.GRID.written is not None
    assert kinds.RUN.written(tmp_path) == {"image.png"}
    cells = [{"blended": False}, {"blended": True}, {}, 5]
    grid = {"format": 1, "about": {}, "cells": cells, "files": ["grid.png"]}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    found = kinds.GRID.written(tmp_path)
    assert [f"cells/00{n}/blend.png" in found for n in (1, 2, 3, 4)] == [False, True, True, True]
    assert "grid.png" in found and "grid.csv" not in found


@posix
@pytest.mark.parametrize("hidden", [".git", ".bashrc"])
def test_nothing_hidden_is_moved_up_either(tmp_path: Path, hidden):
    """A repository's settings, say, name programs that are run."""
    forged = new_in(tmp_path, hidden, "z.json")
    (forged / "lock").touch()
    scratch.note(forged, "", (), "z.json")
    put_file(tmp_path / "file", b"x")
    assert not (tmp_path / hidden).exists() and not (tmp_path / "z.json").exists()


def test_a_journal_is_whole_whatever_fails(tmp_path: Path, monkeypatch):
    scratch.note(tmp_path, "x", ["a"])
    before = tree(tmp_path)

    def half(self: Path, text: str, **_: object) -> None:
        with self.open("w") as file:
            file.write(text[:9])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError):
        scratch.note(tmp_path, "x", ["a", "b"])
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


def test_a_mark_that_is_larger_than_any_is_none(tmp_path: Path):
    """It would be read as a whole, to see whether it is one."""
    path = tmp_path / "run.json"
    for size, fine in ((16 * 2**20, True), (16 * 2**20 + 1, False)):
        path.write_bytes(b'{"a": "' + b"x" * (size - 9) + b'"}')
        assert path.stat().st_size == size
        assert (targets.read_object(path) is not None) is fine
