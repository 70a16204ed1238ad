"""The kind of a result's folder, by the one file that each kind has."""

import pytest
from making import random_ablation, random_edit, random_run

from heedmap import Ablation, EditResult, Run
from heedmap.errors import ArgumentError, RunError
from heedmap.results.edits import load_result


def test_a_folder_is_loaded_as_its_kind_of_result(tmp_path):
    run = random_run()
    pair = random_edit()
    run.save(tmp_path / "run", overlays=False)
    pair.save(tmp_path / "pair", overlays=False)
    random_ablation().save(tmp_path / "ablation", overlays=False)
    assert load_result(tmp_path / "run").settings == run.settings
    assert load_result(str(tmp_path / "pair")).report == pair.report
    assert isinstance(load_result(tmp_path / "pair" / "edited"), Run)
    for load, folder in (
        (Run.load, "pair"),
        (Run.load, "ablation"),
        (EditResult.load, "run"),
        (Ablation.load, "run"),
        (load_result, "ablation"),
        (load_result, "nothing"),
    ):
        with pytest.raises(RunError, match=folder):
            load(tmp_path / folder)
    with pytest.raises(ArgumentError):
        load_result(3)
