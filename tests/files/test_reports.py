"""Reports: what an edit and a grid did."""

import json

from making import report_of
from msgspec import structs

import heedmap
from heedmap.io.schemas import ChangedWords, EditReport, GridReport


def test_a_fresh_edit_reports_it_all(random_model, tmp_path):
    asked = {"only": "house->sea", "protect": "red", "words": {"red": 0.5}}
    pair = heedmap.edit(random_model, "a red house", "a red sea", seed=7, steps=2, **asked)
    about = pair.about
    assert isinstance(about, heedmap.EditReport) and isinstance(about.change, heedmap.Change)
    assert (about.only, about.protect, about.windows) == (
        "house->sea",
        ("red",),
        {"red": (0.0, 0.5)},
    )
    assert about.words == ChangedWords(source=(2,), edited=(2,))
    assert about.masked_by == "red house→red sea"
    folder = pair.save(tmp_path / "x")
    held = json.loads((folder / "pair.json").read_text(encoding="utf-8"))["about"]
    fields = {one.encode_name for one in structs.fields(EditReport)}
    assert about.notes is None and about.reconstruction is None  # nothing was told, all was drawn
    assert held.keys() == fields
    assert heedmap.Pair.load(folder).about == about


def test_a_fresh_grid_reports_it_all(random_model, tmp_path):
    made = heedmap.grid(random_model, "a red house", weights={"red": [1, 2]}, seeds=7, steps=1)
    about = made.about
    assert isinstance(about, GridReport)
    assert (about.weights, about.seeds, about.batch) == ({"red": (1.0, 2.0)}, (7,), 3)
    held = json.loads((made.save(tmp_path / "x") / "grid.json").read_text(encoding="utf-8"))
    assert held["about"].keys() == {one.encode_name for one in structs.fields(GridReport)}
    assert heedmap.Grid.load(tmp_path / "x").about == about


def test_both_sides_of_a_change():
    change = report_of().change
    assert change.sides() == {"inside": change.inside, "outside": change.outside}
    assert change.inside.psnr_db == 20.0 and change.outside.mse is None
