"""The app's results: named by time and chance, the oldest go, a full disk is told."""

import time
from pathlib import Path

import pytest
from cli.calling import files

from app.serving import PROMPT
from heedmap.app.result_store import ResultStore, read_result
from heedmap.errors import RunError
from heedmap.results.runs import Run


def test_results_are_named_by_time_and_chance_and_the_oldest_go(tmp_path: Path, run: Run):
    store = ResultStore(tmp_path / "app", 2)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "letters").mkdir()
    names = []
    for _ in range(3):
        names.append(store.put(run))
        time.sleep(1.01)  # the names tell seconds
    assert store.names() == names[1:]
    assert all(PROMPT.split()[2] not in name for name in names)
    assert (tmp_path / "app" / "letters").is_dir()
    assert isinstance(read_result(store.folder(names[2])), Run)
    with pytest.raises(RunError, match="not there any more"):
        store.folder(names[0])


@pytest.mark.parametrize("name", ["", "..", "../app", "/etc", "letters", "a" * 48, "x\0y"])
def test_names_that_are_no_results(tmp_path: Path, name: str):
    (tmp_path / "letters").mkdir()
    with pytest.raises(RunError, match="not there any more"):
        ResultStore(tmp_path, 2).folder(name)


def test_a_full_disk(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    import shutil
    from types import SimpleNamespace

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(RunError, match="almost full: nothing was saved"):
        ResultStore(tmp_path, 2).put(run)
    assert files(tmp_path) == set()


def test_a_result_into_which_somebody_put_something_stays_whole(tmp_path: Path, run: Run):
    store = ResultStore(tmp_path / "app", 1)
    kept = store.put(run)
    (store.root / kept / "notes.txt").write_text("the best")
    before = files(store.root / kept)
    strange = "20000101-000000-" + "0" * 32
    (store.root / strange).mkdir()
    (store.root / strange / "thesis.txt").write_text("five years")
    names = []
    for _ in range(3):
        time.sleep(1.01)
        names.append(store.put(run))
    assert store.names() == [strange, kept, names[-1]]
    assert files(store.root / kept) == before
    assert isinstance(read_result(store.folder(kept)), Run)
    assert not list(store.root.glob(".*"))


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
            ResultStore(place / "app", 2).put(run)
        assert str(place) in caplog.text
    assert files(tmp_path) == {"file"}
