"""Settings: what a fresh run notes."""

import json
from dataclasses import fields

import pytest
from making import settings_of
from msgspec import structs

import heedmap
from heedmap.io.schemas import EditNoted, Settings, to_json
from heedmap.options import EditOptions, GenerateOptions


def test_a_fresh_run_notes_them_all(random_model, tmp_path):
    run = heedmap.generate(random_model, "a (red:2) house", seed=7, steps=1, size=(128, 64))
    noted = run.settings
    assert isinstance(noted, heedmap.Settings)
    assert (noted.prompt, noted.text, noted.seed) == ("a (red:2) house", "a red house", 7)
    assert (noted.size, noted.steps, noted.keep) == ((128, 64), 1, ("layer",))
    assert (noted.edit, noted.batch_place, noted.edits) == (None, None, ())
    assert noted.schedulers["scheduler"].kind == noted.scheduler == "DDIMScheduler"
    folder = run.save(tmp_path / "x", overlays=False)
    held = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]
    assert list(held) == [one.encode_name for one in structs.fields(Settings)]
    assert held == to_json(noted)
    assert heedmap.Run.load(folder).settings == noted


def test_nothing_that_a_run_is_asked_changes_its_settings(random_model, tmp_path):
    pair = heedmap.edit(random_model, "a red house", "a red sea", seed=7, steps=1)
    notes = pair.source.settings, pair.edited.settings, pair.about
    before = [to_json(one) for one in notes]
    pair.save(tmp_path / "x")
    pair.figure()
    pair.explorer()
    heedmap.compare([pair.source, pair.edited])
    heedmap.repeat(random_model, pair)
    assert before == [to_json(one) for one in notes]


def test_all_that_a_run_is_asked_for_has_a_place():
    noted = {one.name for one in structs.fields(Settings)}
    assert {one.name for one in fields(GenerateOptions)} - {"limit"} <= noted
    asked = {one.name for one in fields(EditOptions)} - {"words", "batch", "image"}
    assert asked <= {one.name for one in structs.fields(EditNoted)}


@pytest.mark.parametrize("given", [4, 4.0, 0, 2.5])
def test_a_number_stays_as_it_was_given(given):
    held = to_json(settings_of(guidance=given))["guidance"]
    assert held == given and type(held) is type(given)
