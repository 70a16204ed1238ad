"""The app's results: names that a person can read, shelves of their own, nothing lost."""

import json
import os
import time
from pathlib import Path

import pytest
from cli.calling import call, files
from making import MARKS, made_explanation

from app.serving import PROMPT
from heedmap.app.result_store import ResultStore, read_result
from heedmap.drawing import editing
from heedmap.errors import ArgumentError, HeedmapError, RunError
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

ANN, BOB = "a" * 32, "b" * 32
NOT_THERE = "not there any more"


def shared(root: Path, most: int = 9) -> ResultStore:
    return ResultStore(root, most, shared=True)


@pytest.fixture(scope="module")
def pair(random_model) -> Pair:
    return editing.edit(random_model, PROMPT, "a blue house", seed=3, steps=2)


@pytest.fixture(scope="module")
def grid(random_model) -> Grid:
    return editing.grid(random_model, PROMPT, weights={"red": [0, 2]}, seeds=3, steps=2)


def test_results_are_named_and_told_by_their_prompts(tmp_path: Path, run: Run, pair, grid):
    store = shared(tmp_path / "app")
    names = [store.put(result, "").name for result in (run, run, pair, grid)]
    assert names == ["a-red-house-3", "a-red-house-3-2", "a-blue-house-3", "grid-a-red-house-3"]
    found = store.shelf("").results()
    assert {one.name for one in found} == set(names)
    assert [one.made for one in found] == sorted((one.made for one in found), reverse=True)
    told = {one.name: (one.kind, one.title, one.made_with) for one in found}
    line = "Seed 3 · 2 steps · 128×128 px · random"
    assert told["a-red-house-3"][:2] == ("run", PROMPT)
    assert told["a-blue-house-3"][:2] == ("edit", f"{PROMPT} → a blue house")
    assert told["grid-a-red-house-3"] == ("grid", PROMPT, "2 edits · Seed 3")
    assert all(told[name][2].startswith(line[:29]) for name in names[:3])
    assert isinstance(read_result(store.shelf("").folder("a-red-house-3")), Run)


def test_they_are_there_again_for_another_process(tmp_path: Path, run: Run):
    for is_shared in (True, False):
        root = tmp_path / str(is_shared)
        put = ResultStore(root, 9, shared=is_shared).put(run, ANN)
        assert ResultStore(root, 9, shared=is_shared).shelf(ANN).results() == [put]


def test_a_visitor_sees_their_own_alone(tmp_path: Path, run: Run):
    store = ResultStore(tmp_path, 9, shared=False)
    name = store.put(run, ANN).name
    there, shelf = files(tmp_path), store.shelf(ANN).root.name
    ours = f"{name}/image.png"
    bob = store.shelf(BOB)
    for wanted in (name, f"../{shelf}/{name}", f"{shelf}/{name}", "..", shelf, f"../{shelf}", ours):
        for act in (bob.folder, bob.delete, lambda one: bob.rename(one, "mine")):
            with pytest.raises(RunError, match=NOT_THERE):
                act(wanted)
    assert store.shelf(BOB).results() == [] and files(tmp_path) == there
    assert store.put(run, BOB).name == name  # nor is it told by what is free
    assert ANN not in str(store.shelf(ANN).root)  # the folders' names let nobody in
    with pytest.raises(HeedmapError, match="keeps no cookie of this app"):
        store.shelf("")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../app", "/etc", "letters", "a" * 300, "x\0y", "a\\b", "link", "\ud800"],
)
def test_names_that_are_no_results(tmp_path: Path, run: Run, name: str):
    (tmp_path / "app" / "letters").mkdir(parents=True)
    run.save(tmp_path / "elsewhere")
    (tmp_path / "app" / "link").symlink_to(tmp_path / "elsewhere")
    shelf = shared(tmp_path / "app").shelf("")
    for act in (shelf.folder, shelf.delete, lambda one: shelf.rename(one, "x")):
        with pytest.raises(RunError, match=NOT_THERE):
            act(name)
    assert shelf.results() == []
    assert (tmp_path / "elsewhere" / "run.json").exists()


def test_renaming(tmp_path: Path, run: Run):
    store = shared(tmp_path / "app")
    shelf, name = store.shelf(""), store.put(run, "").name
    before = files(shelf.folder(name))
    assert shelf.rename(name, "My best House!") == "my-best-house"
    assert files(shelf.folder("my-best-house")) == before and len(shelf.results()) == 1
    for wanted, new in (
        ("../../etc/passwd", "etc-passwd"), ("/tmp/x", "tmp-x"), (".hidden", "hidden"),
        ("CON: a\0b", "con-a-b"), ("家", "家"), ("x" * 400, "x" * 80),
    ):  # fmt: skip
        (one,) = shelf.results()
        assert shelf.rename(one.name, wanted) == new
    assert os.listdir(tmp_path) == ["app"]
    for empty in ("", " ", "..", "/", "\0", "---"):
        with pytest.raises(ArgumentError, match="no letter and no digit: expected some"):
            shelf.rename("x" * 80, empty)


@pytest.mark.parametrize("kind", ["result", "folder", "file", "link"])
def test_a_name_that_is_taken_stays_whose_it_is(tmp_path: Path, run: Run, kind: str):
    store = shared(tmp_path / "app")
    name, there = store.put(run, "").name, tmp_path / "app" / "mine"
    if kind == "result":
        run.save(there)
    elif kind == "folder":
        there.mkdir()  # empty: a rename of the system's would replace it
    elif kind == "file":
        there.write_text("mine")
    else:
        there.symlink_to(tmp_path)
    before = files(tmp_path), there.is_symlink()
    with pytest.raises(RunError, match="the name mine is taken: choose another"):
        store.shelf("").rename(name, "Mine")
    assert (files(tmp_path), there.is_symlink()) == before and there.exists()
    assert store.shelf("").rename(name, name) == name


def test_only_what_heedmap_wrote_is_deleted(tmp_path: Path, run: Run, pair, grid):
    store = shared(tmp_path / "app")
    shelf = store.shelf("")
    names = [store.put(result, "").name for result in (run, pair, grid)]
    kept = store.put(run, "").name
    (shelf.folder(kept) / "notes.txt").write_text("the best")
    (tmp_path / "app" / "thesis").mkdir()
    (tmp_path / "app" / "thesis" / "run.json").write_text("{}")  # no run
    before = files(shelf.folder(kept))
    made_explanation().save(shelf.folder(names[0]) / "explain" / "a number")
    made_explanation().save(shelf.folder(names[1]) / "edited" / "explain" / "a number")
    call("inspect", str(shelf.folder(names[0])), "--quiet")
    for name in names:
        shelf.delete(name)
    with pytest.raises(RunError, match=f"the result {kept} holds files that heedmap did not"):
        shelf.delete(kept)
    with pytest.raises(RunError, match=NOT_THERE):
        shelf.delete("thesis")
    assert [one.name for one in shelf.results()] == [kept] and files(shelf.folder(kept)) == before
    assert sorted(os.listdir(tmp_path / "app")) == sorted([kept, "thesis"])


def test_on_one_shelf_nothing_goes_and_no_more_comes(tmp_path: Path, run: Run):
    store = shared(tmp_path / "app", 2)
    for name in ("one", "two"):  # also what the command line has saved there
        store.check("")
        run.save(tmp_path / "app" / name)
    with pytest.raises(
        RunError, match="holds 2 results, as many as it may have: delete some first"
    ):
        store.check("")
    store.shelf("").delete("one")
    store.check("")


def test_of_many_shelves_the_oldest_results_go(tmp_path: Path, run: Run):
    store = ResultStore(tmp_path / "app", 2, shared=False)
    (tmp_path / "app" / "letters").mkdir(parents=True)
    run.save(tmp_path / "app" / "mine")  # on nobody's shelf
    first = store.put(run, ANN).name
    (store.shelf(ANN).folder(first) / "notes.txt").write_text("the best")
    old = store.put(run, BOB).name
    for number, (visitor, name) in enumerate([(ANN, first), (BOB, old)]):
        path = store.shelf(visitor).folder(name) / "run.json"
        os.utime(path, (time.time() - 100 + number,) * 2)
    for _ in range(2):
        last = store.put(run, ANN).name
    held = [one.name for one in store.shelf(ANN).results()]
    assert store.shelf(BOB).results() == [] and not store.shelf(BOB).root.exists()
    assert set(held) >= {first, last}  # what somebody has put something into stays
    assert (tmp_path / "app" / "letters").is_dir() and (tmp_path / "app" / "mine").is_dir()
    assert not [path for path in (tmp_path / "app").rglob(".*")]


def test_a_full_disk(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    import shutil
    from types import SimpleNamespace

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(RunError, match="almost full: nothing was saved"):
        shared(tmp_path).put(run, "")
    assert files(tmp_path) == set()


@pytest.mark.parametrize("error", [OSError(28, "No space left"), PermissionError(13, "No")])
def test_what_the_system_refuses_names_no_folder_of_the_server(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, caplog, error
):
    def refused(*_, **__):
        raise error

    monkeypatch.setattr("heedmap.maps.heatmaps.Recording.save", refused)
    for place in (tmp_path, tmp_path / "file"):  # which no folder can be made in
        (tmp_path / "file").touch()
        with pytest.raises(RunError, match=r"^the server could not save the result \([^/]*\): try"):
            shared(place / "app").put(run, "")
        assert str(place) in caplog.text
    assert files(tmp_path) == {"file"}


def test_what_is_no_result_is_read_once(tmp_path: Path, run: Run, monkeypatch):
    """A list costs little, whatever lies in the folder."""
    from heedmap.files import marks

    store, read = shared(tmp_path), []
    store.put(run, "")
    (tmp_path / "no").mkdir()
    (tmp_path / "no" / "run.json").write_text("{" * 1000)
    whole = marks.read_object
    monkeypatch.setattr(marks, "read_object", lambda path, *a: read.append(path) or whole(path, *a))
    for _ in range(3):
        assert len(store.shelf("").results()) == 1
    assert len(read) <= 1


def test_the_least_that_a_result_may_say_is_listed(tmp_path: Path):
    """Older versions noted less; and whoever made a folder up may note no more than they must."""
    for kind, mark in (("run", "run.json"), ("edit", "pair.json"), ("grid", "grid.json")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / mark).write_text(json.dumps(MARKS[mark]))
    (tmp_path / "edit" / "edited").mkdir()
    (tmp_path / "edit" / "edited" / "run.json").write_text(json.dumps(MARKS["run.json"]))
    (tmp_path / "no edit").mkdir()  # without its runs
    (tmp_path / "no edit" / "pair.json").write_text(json.dumps(MARKS["pair.json"]))
    found = shared(tmp_path).shelf("").results()
    assert {one.kind: one.name for one in found} == {kind: kind for kind in ("run", "edit", "grid")}
    assert all(one.made_with for one in found)


def test_what_somebody_put_beside_an_explanation_stays(tmp_path: Path, run: Run):
    store = shared(tmp_path / "app")
    shelf = store.shelf("")
    for at in ("explain/notes.txt", "explain/a number/notes.txt", "inspect/a number/image.png"):
        folder = shelf.folder(store.put(run, "").name)
        made_explanation().save(folder / "explain" / "a number")
        (folder / at).parent.mkdir(parents=True, exist_ok=True)
        (folder / at).write_text("mine")
        before = files(folder)
        with pytest.raises(RunError, match="holds files that heedmap did not write"):
            shelf.delete(folder.name)
        assert files(folder) == before
