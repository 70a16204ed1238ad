"""The kind of a result's folder, by the one file that each kind has."""

from pathlib import Path

import pytest
from making import made_pair, made_run

from heedmap import EditResult, Run
from heedmap.errors import ArgumentError, RunError
from heedmap.results.grids import load_result


def test_a_folder_is_loaded_as_its_kind_of_result(tmp_path: Path):
    run, pair = made_run(), made_pair()
    run.save(tmp_path / "run")
    pair.save(tmp_path / "pair")
    found = load_result(tmp_path / "run")
    assert isinstance(found, Run) and found.settings == run.settings
    found = load_result(str(tmp_path / "pair"))
    assert isinstance(found, EditResult) and found.report == pair.report
    assert isinstance(load_result(tmp_path / "pair" / "edited"), Run)
    for kind, folder in ((Run, "pair"), (EditResult, "pair/source")):
        with pytest.raises(RunError):
            kind.load(tmp_path / folder)


def test_other_folders_are_refused(tmp_path: Path):
    (tmp_path / "run.json").mkdir()  # a folder is no file
    for folder in (tmp_path, str(tmp_path), tmp_path / "nothing"):
        with pytest.raises(RunError):
            load_result(folder)
    with pytest.raises(ArgumentError):
        load_result(3)
