"""Settings and reports: the content of the JSON files of fresh results."""

import inspect
import json
from dataclasses import replace

import pytest
from making import settings_of

import heedmap
from heedmap.errors import RunError
from heedmap.io.schemas import ChangedWords, EditReport, Settings, encode, to_json


def keys(schema: type) -> set[str]:
    return {one.name for one in inspect.signature(schema).parameters.values()}


def test_settings_of_a_new_run_fit_the_schema(random_model, tmp_path):
    run = heedmap.generate(random_model, "a (red:2) house", seed=7, steps=1, size=(128, 64))
    settings = run.settings
    assert isinstance(settings, heedmap.Settings)
    assert (settings.prompt, settings.text, settings.seed) == ("a (red:2) house", "a red house", 7)
    assert (settings.size, settings.steps, settings.keep) == ((128, 64), 1, ("layer",))
    folder = run.save(tmp_path / "x", overlays=False)
    file = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]
    assert file.keys() == keys(Settings) and file == to_json(settings)
    assert heedmap.Run.load(folder).settings == settings


def test_the_report_of_a_new_edit_fits_the_schema(random_model, tmp_path):
    options = {"only": "house->sea", "protect": "red"}
    pair = heedmap.edit(random_model, "a red house", "a red sea", seed=7, steps=2, **options)
    about = pair.report
    assert (about.options.only, about.options.protect) == ("house->sea", ("red",))
    assert about.masked_by == "red house→red sea"
    assert about.words == ChangedWords(source=(2,), edited=(2,))
    folder = pair.save(tmp_path / "x", overlays=False)
    file = json.loads((folder / "edit.json").read_text(encoding="utf-8"))
    assert file["report"].keys() == keys(EditReport)
    assert heedmap.EditResult.load(folder).report == about


@pytest.mark.parametrize(
    "value", [{"seed": -1}, {"prompt": "x" * 100_001}, {"arguments": {"a": object()}}]
)
def test_settings_that_could_not_be_read_are_not_written(value):
    with pytest.raises(RunError):
        encode(replace(settings_of(), **value), "run.json")
