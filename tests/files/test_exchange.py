"""How what is new takes its place, with what a user has there, and back where that fails."""

import errno
import os
from pathlib import Path

import pytest

from files.saving import new_in, notes, one, posix, save, tree
from heedmap.errors import RunError
from heedmap.files import exchange, scratch
from heedmap.files.writing import put_file


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
    exchange.fill(new_in(tmp_path, *rest, mark), mark)
    assert moved == [*rest, mark]
    for name in moved:
        (tmp_path / name).unlink()
    moved.clear()
    scratch.write_journal(tmp_path / ".heedmap.aaaaaaaa", "", (), mark)
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
        exchange.fill(made, "z.json")
    assert [path.name for path in tmp_path.glob("*.*") if path.is_file()] == [at]
    assert (tmp_path / at).read_text() == "mine"
    assert sorted(os.listdir(made / "new")) == ["a.png", "b.png", "z.json"]
    assert {path.read_text() for path in (made / "new").iterdir()} == {"new"}
