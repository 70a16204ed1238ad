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
from contextlib import suppress
from pathlib import Path

import pytest

from files.saving import KIND, RUN_JSON, SAVING, notes, one, posix, save, saving, tree
from heedmap.errors import ArgumentError, HeedmapWarning, RunError
from heedmap.files import destinations, kinds
from heedmap.files.seals import sealed
from heedmap.files.writing import (
    Destination,
    TakenError,
    WriteError,
    put_counting,
    put_file,
    remove_folder,
    rename_folder,
    slug,
    whole_folder,
)

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


def test_what_was_made_of_an_older_result_is_told_where_it_is_replaced(tmp_path: Path):
    folder = save(tmp_path / "x")
    (folder / "explain").mkdir()
    with pytest.warns(HeedmapWarning, match="x/explain is of what was replaced"):
        save(folder, "two", force=True)
    assert tree(folder) == {**one("two"), "explain": None}


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


def test_what_is_written_meanwhile_is_not_replaced(tmp_path: Path):
    for force in (False, True):
        with (
            pytest.raises(TakenError, match="exists and is not a thing"),
            whole_folder(tmp_path / "x", KIND, force=force) as partial,
        ):
            (partial / "thing.json").write_text('{"thing": "1"}')
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
        (partial / "thing.json").write_text('{"thing": "1"}')
        (partial / "parts").mkdir()
        assert [name for name in os.listdir() if not name.startswith(".")] == []
    assert tree(folder) == {"thing.json": '{"thing": "1"}', "parts": None}
    after = Path.cwd().stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    with pytest.raises(TakenError, match="exists and holds a thing: nothing was written; choose"):
        Destination(given, KIND)
    with pytest.raises(TakenError, match=r"replaced as a whole \(it is the folder you are"):
        Destination(given, KIND, force=True)
    assert tree(tmp_path) == {"x": None, "x/thing.json": '{"thing": "1"}', "x/parts": None}


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
        (folder / "run.json").write_text(RUN_JSON)
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


# --- files, and folders that go ---------------------------------------------------------------


def test_files(tmp_path: Path, monkeypatch):
    path = tmp_path / "deep" / "one.png"
    assert put_file(path, b"%PDF 1") == path
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
    assert path.read_bytes() == sealed(b"%PDF 1")
    path.chmod(0o600)
    assert put_file(path, b"%PDF 2", force=True).read_bytes() == sealed(b"%PDF 2")
    assert os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(TakenError, match=f"{name} is a {name}: nothing was written"):
            put_file(tmp_path / name, b"3", force=True)
    assert path.read_bytes() == sealed(b"%PDF 2")
    assert [p.name for p in path.parent.iterdir()] == ["one.png"]


def test_a_file_that_comes_meanwhile_stays(tmp_path: Path, monkeypatch):
    check = destinations.check_file

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
    check, looks = destinations.check_file, []

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


@posix
def test_renaming_replaces_nothing(tmp_path: Path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "x").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for taken in ("empty", "link", "a"):
        with pytest.raises(TakenError, match=f"the name {taken} is taken: choose another"):
            rename_folder(folder, taken)
    assert rename_folder(folder, "b") == tmp_path / "b"
    assert (tmp_path / "b" / "x").read_text() == "x" and not folder.exists()
    with pytest.raises(WriteError, match=r"it could not be renamed \(.*\): it has its old name"):
        rename_folder(tmp_path / "b", "c" * 300)
    assert (tmp_path / "b" / "x").exists()
