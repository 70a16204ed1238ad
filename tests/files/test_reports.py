"""Reports: what an edit and a grid did, typed, and as older versions wrote it."""

import json

import pytest
from making import REPORT, report_of
from msgspec import structs

import heedmap
from heedmap.errors import RunError
from heedmap.files.notes import to_json
from heedmap.files.reports import CallLimits, ChangedWords, EditCall, EditReport, GridReport


def test_a_fresh_edit_reports_it_all(random_model, tmp_path):
    asked = {"only": "house->sea", "protect": "red", "words": {"red": 0.5}}
    pair = heedmap.edit(random_model, "a red house", "a red sea", seed=7, steps=2, **asked)
    about = pair.about
    assert isinstance(about, heedmap.EditReport) and isinstance(about.change, heedmap.Change)
    assert about.unnoted == () and about.more == {}
    assert (about.only, about.protect, about.windows) == (
        "house->sea",
        ("red",),
        {"red": (0.0, 0.5)},
    )
    assert about.words == ChangedWords(source=(2,), edited=(2,))
    assert about.masked_by == "red house→red sea" and about.asked is not None
    assert about.asked.targets == ("a red sea",)
    folder = pair.save(tmp_path / "x")
    held = json.loads((folder / "pair.json").read_text(encoding="utf-8"))["about"]
    fields = {one.encode_name for one in structs.fields(EditReport)} - OWN
    assert about.notes is None and about.reconstruction is None  # nothing was told, all was drawn
    assert held.keys() == fields - {"notes", "reconstruction"}
    assert heedmap.Pair.load(folder).about == about


OWN = {"<unnoted>", "<more>"}


def test_a_fresh_grid_reports_it_all(random_model, tmp_path):
    made = heedmap.grid(random_model, "a red house", weights={"red": [1, 2]}, seeds=7, steps=1)
    about = made.about
    assert isinstance(about, GridReport) and about.unnoted == ()
    assert (about.weights, about.seeds, about.batch) == ({"red": (1.0, 2.0)}, (7,), 3)
    settings = to_json(made.cells[0].pair.source.settings)
    assert about.more == {name: settings[name] for name in about.more} and "steps" in about.more
    held = json.loads((made.save(tmp_path / "x") / "grid.json").read_text(encoding="utf-8"))
    every = {one.encode_name for one in structs.fields(GridReport)} - OWN
    assert held["about"].keys() == every | about.more.keys()
    assert heedmap.Grid.load(tmp_path / "x").about == about


def test_both_sides_of_a_change():
    change = report_of().change
    assert change.sides() == {"inside": change.inside, "outside": change.outside}
    assert change.inside.psnr_db == 20.0 and change.outside.mse is None


def test_what_an_older_version_reported():
    read = report_of()
    assert (read.why, read.weights, read.steps, read.masked_by) == (REPORT["why"], {}, 0, None)
    assert to_json(read) == REPORT


@pytest.mark.parametrize("name", ["masked_by", "asked"])
def test_what_may_be_left_out_is_not_null(name):
    with pytest.raises(RunError, match=f"expected a value, got null at {name}"):
        report_of(**{name: None})


def test_how_a_call_is_noted():
    asked = EditCall(source="a", batch=3, limit=9)
    assert to_json(asked) == {"source": "a", "targets": None, "kind": None, "batch": 3, "limit": 9}
    assert to_json(CallLimits(batch=3)) == {"batch": 3, "limit": None}


@pytest.mark.parametrize(
    ("mse", "psnr", "said"),
    [
        (0.5, 99.0, "psnr_db is not that"), (0.01, None, "psnr_db is not that"),
        (None, 3.0, "psnr_db is not that"), (0.0, 60.0, "psnr_db is not that"),
        (-5.0, -5.0, "at least 0.0"), (2.0, -3.01, "at most 1.0"),
    ],
)  # fmt: skip
def test_figures_that_no_pictures_have(mse, psnr, said):
    with pytest.raises(RunError, match=said):
        report_of(reconstruction={"share": 1.0, "ssim": 0.5, "mse": mse, "psnr_db": psnr})


@pytest.mark.parametrize("both", [(0.01, 20.0), (1.0, 0.0), (0.0, None), (None, None)])
def test_figures_that_pictures_have(both):
    told = {"share": 1.0, "ssim": 0.5, **dict(zip(("mse", "psnr_db"), both, strict=True))}
    assert report_of(reconstruction=told).reconstruction is not None
