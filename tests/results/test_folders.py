"""What a folder holds, told by the one file that each kind has."""

import shutil
from pathlib import Path

import pytest
from making import made_pair, made_run

from heedmap.errors import ArgumentError, RunError
from heedmap.results import grids
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run


def test_each_kind_is_told_by_its_file(tmp_path: Path):
    """A pair holds runs and a grid pairs; what is outermost counts."""
    for name in ("run.json", "pair.json", "grid.json"):
        (tmp_path / name).touch()
        assert grids.kind_of(tmp_path) == grids.kind_of(str(tmp_path)) == name
    assert grids.MARKS == {"grid.json": "a grid", "pair.json": "an edit", "run.json": "a run"}


def test_what_is_opened_is_what_was_saved(tmp_path: Path):
    run, pair = made_run(), made_pair()
    for made, name in ((run, "run"), (pair, "pair")):
        made.save(tmp_path / name)
    found = grids.load_result(tmp_path / "run")
    assert isinstance(found, Run) and found.settings == run.settings
    found = grids.load_result(str(tmp_path / "pair"))
    assert isinstance(found, Pair) and found.about == pair.about
    assert isinstance(grids.load_result(tmp_path / "pair" / "edited"), Run)


def test_a_run_is_wanted_and_the_folder_is_of_another_kind(tmp_path: Path):
    made_pair().save(tmp_path / "pair")
    with pytest.raises(RunError):
        Run.load(tmp_path / "pair")
    (tmp_path / "pair" / "pair.json").rename(tmp_path / "pair" / "grid.json")
    with pytest.raises(RunError):
        Run.load(tmp_path / "pair")
    with pytest.raises(RunError):
        Pair.load(tmp_path / "pair" / "source")


def test_what_is_no_folder_of_heedmaps(tmp_path: Path):
    (tmp_path / "run.json").mkdir()  # a folder is no file
    for odd in (tmp_path, str(tmp_path), tmp_path / "nothing"):
        for asked in (grids.kind_of, grids.load_result):
            with pytest.raises(RunError):
                asked(odd)
    with pytest.raises(ArgumentError):
        grids.kind_of(3)
    made_run().save(tmp_path / "run")
    shutil.move(tmp_path / "run" / "run.json", tmp_path / "run" / "pair.json")
    with pytest.raises(RunError):
        grids.load_result(tmp_path / "run")
