"""A word left out: the difference and its agreement by hand, the sheet, and the folder."""

import json
from dataclasses import replace

import numpy as np
import pytest
from figure_reading import ends, read_figure
from making import made_ablation, made_pair, made_run, noisy_run, noting, recording, with_refined
from PIL import Image

from heedmap.errors import ArgumentError, RunError, TruncatedWordError, UnknownWordError
from heedmap.figures import overlays, plots
from heedmap.io.schemas import to_json
from heedmap.maps.recordings import rank_correlation
from heedmap.results import ablations
from heedmap.results.ablations import Ablation, auc, changed_region
from heedmap.results.grids import load_result
from heedmap.results.runs import Run

# --- the difference ---------------------------------------------------------------------------


def pictured(run: Run, image: Image.Image) -> Run:
    return replace(run, image=image, maps=replace(run.maps, image=image))


def changed_at(found: Ablation, way: str, pixels: np.ndarray) -> Ablation:
    run = pictured(found.without[way], Image.fromarray(pixels))
    return replace(found, without={**found.without, way: run})


@pytest.fixture(scope="module")
def found() -> Ablation:
    return made_ablation()


@pytest.fixture(scope="module")
def folder(found, tmp_path_factory):
    return found.save(tmp_path_factory.mktemp("ablations") / "outputs" / "x")


def test_the_difference_equals_the_one_worked_out_by_hand(found):
    before = np.full((128, 128, 3), 100, np.uint8)
    after = before.copy()
    after[0, 0] = (100, 40, 250)  # 0, 60 and 150 of 255
    after[5, 7] = (0, 255, 101)  # 100, 155 and 1
    made = replace(found, run=pictured(found.run, Image.fromarray(before)))
    made = changed_at(made, "attention", after)
    values = made.difference("attention")
    assert values.dtype == np.float32 and values.shape == (128, 128)
    assert values[0, 0] == pytest.approx(210 / 765, rel=1e-6)
    assert values[5, 7] == pytest.approx(256 / 765, rel=1e-6)
    assert np.count_nonzero(values) == 2
    turned = replace(made, run=made.without["attention"], without={"attention": made.run})
    np.testing.assert_array_equal(turned.difference("attention"), values)


def test_the_difference_equals_the_one_of_floats(found):
    a, b = (
        np.asarray(run.image, dtype=np.float64) / 255
        for run in (found.run, found.without["prompt"])
    )
    wanted = np.abs(a - b).mean(axis=-1)
    np.testing.assert_allclose(found.difference("prompt"), wanted, rtol=1e-6)


def test_an_unknown_way_is_refused(found):
    with pytest.raises(ArgumentError):
        found.difference("both")


# --- agreement --------------------------------------------------------------------------------


def test_the_agreement_equals_its_measures():
    plain = made_ablation()
    found = replace(plain, run=with_refined(plain.run))
    heat, refined = found.run.maps["house"], found.run.maps.refined["house"]
    assert heat.values.shape == (64, 64)
    mask = overlays.resize_map(heat.soft_mask(), (64, 64))
    for way, told in found.agreement.items():
        whole = found.difference(way)
        cells = overlays.resize_map(whole, (64, 64))
        assert told.largest == whole.max() and told.mean == pytest.approx(whole.mean(), rel=1e-5)
        region = changed_region(cells)
        assert 0 < region.mean() < 1 and told.refined is not None
        for held, values in (
            (told.heat, heat.values), (told.refined, refined.values), (told.mask, mask)
        ):  # fmt: skip
            rank = rank_correlation(values, cells)
            assert (held.rank, held.auc) == (rank, auc(values, region))
    assert plain.agreement["attention"].refined is None
    assert plain.agreement["attention"].heat == found.agreement["attention"].heat


def test_a_map_equal_to_the_change_agrees_fully():
    found = made_ablation()
    heat = found.run.maps["house"].values
    low, high = heat.min(), heat.max()
    shown = np.kron(np.rint(255 * (heat - low) / (high - low)), np.ones((2, 2)))
    black = Image.new("RGB", (128, 128))
    lit = np.repeat(shown[..., None], 3, axis=-1).astype(np.uint8)
    made = replace(found, run=pictured(found.run, black))
    made = changed_at(changed_at(made, "attention", lit), "prompt", 255 - lit)
    same, opposite = (made.agreement[way].heat for way in ("attention", "prompt"))
    assert same.rank > 0.97 and same.auc > 0.99
    assert opposite.rank < -0.97 and opposite.auc < 0.01
    # Of a word of negative weight, which acts where its map is lowest.
    maps = made.run.maps
    arrays = tuple(-array for array in maps.recording.arrays)
    below = replace(maps, recording=replace(maps.recording, arrays=arrays))
    turned = replace(made, run=replace(made.run, maps=below))
    assert turned.agreement["attention"] == made.agreement["attention"]
    with_both = [replace(one, run=with_refined(one.run)) for one in (made, turned)]
    own = with_both[1].run.maps
    held = replace(own.recording, refined=-own.recording.refined)
    lowest = replace(with_both[1], run=replace(with_both[1].run, maps=replace(own, recording=held)))
    assert lowest.agreement["attention"].refined == with_both[0].agreement["attention"].refined


def test_a_wide_image_is_compared_in_its_shape():
    """Wider than high: 24×16 cells, drawn at eight pixels each; the difference is the heat."""
    found = made_ablation()
    wide = recording("at house, at sea", latent=(16, 24))
    black = Image.new("RGB", (192, 128))
    maps = replace(found.run.maps, recording=wide, image=black)
    heat = maps["house"].values
    assert heat.shape == (64, 96) and wide.size == (192, 128)
    shown = overlays.resize_map(np.abs(heat), black.size)
    lit = Image.fromarray(np.rint(255 * shown / shown.max()).astype(np.uint8)).convert("RGB")
    runs = {way: replace(one, image=lit) for way, one in found.without.items()}
    made = Ablation("house", replace(found.run, image=black, maps=maps), runs)
    assert made.agreement["attention"].heat.rank > 0.95


def test_a_word_without_influence_has_no_agreement():
    found = made_ablation()
    made = changed_at(found, "attention", np.asarray(found.run.image))
    assert not made.difference("attention").any()
    one = made.agreement["attention"]
    assert (one.largest, one.mean) == (0, 0)
    for held in (one.heat, one.mask):
        assert held.rank is None and held.auc is None
    assert made.agreement["prompt"].heat.rank is not None
    assert made.sheet().width > 600


# --- shown ------------------------------------------------------------------------------------


def test_the_sheet_shows_the_images_the_heat_and_the_changes(found):
    figure = found.figure()
    content = read_figure(figure)
    prompts = [panel.note for panel in content.panels]
    assert len(prompts) == 6
    assert (prompts[0], prompts[2]) == ("at house, at sea", "at , at sea")
    low, high = found.run.maps["house"].value_range()
    top = max(float(found.difference(way).max()) for way in ablations.WAYS)
    assert {*map(tuple, (texts for _, texts in content.scales))} == {
        tuple(ends(low, high)), ("0", f"{top:.0%}"),
    }  # fmt: skip
    assert plots.render(figure) == found.sheet()
    assert found._repr_html_().startswith("<img")


def changes(made: Ablation) -> list[np.ndarray]:
    """The two images of the sheet that show what changed."""
    return [np.asarray(panel.picture, dtype=int) for panel in read_figure(made.figure()).panels[4:]]


def test_both_changes_are_on_one_scale(found):
    faint = np.asarray(found.run.image).copy()
    faint[9, 9] ^= 16
    strong = faint.copy()
    strong[60:, 60:] = 255 - strong[60:, 60:]
    made = changed_at(changed_at(found, "attention", faint), "prompt", strong)
    first, second = changes(made)
    assert second.max() > 200
    assert first[1:-1, 1:-1].max() < 60  # on a scale of its own its one pixel would glow
    even = np.asarray(found.run.image) ^ np.uint8(128)  # half of full range, and no less anywhere
    first, _ = changes(changed_at(changed_at(found, "attention", even), "prompt", even))
    assert first[1:-1, 1:-1].min() > 60
    nothing = changed_at(
        changed_at(found, "attention", faint), "prompt", np.asarray(found.run.image)
    )
    _, second = changes(nothing)
    assert second[1:-1, 1:-1].max() < 10


@pytest.mark.parametrize("hot", [True, False])
def test_the_verdict_is_that_of_the_map(found, hot):
    """The image changes in a fifth of it: where the map is hottest, or where it is coldest."""
    heat = found.run.maps[found.word].values
    order = heat if hot else -heat
    region = Image.fromarray(order >= np.quantile(order, 0.8)).resize((128, 128))
    before = np.zeros((128, 128, 3), np.uint8)
    after = before + 200 * np.asarray(region, dtype=np.uint8)[..., None]
    made = replace(found, run=pictured(found.run, Image.fromarray(before)))
    assert "nothing" in changed_at(made, "attention", before).verdict
    verdict = changed_at(made, "attention", after).verdict
    assert "20%" in verdict and ("not" in verdict) == (not hot)


def test_the_summary_is_json(found):
    told = json.loads(json.dumps(found.summary()))
    assert (told["word"], told["prompt"], told["shorter_prompt"], told["seed"]) == (
        "house", "at house, at sea", "at , at sea", 7
    )  # fmt: skip
    told = told["agreement"]["attention"]
    assert told["heat"]["rank"] == found.agreement["attention"].heat.rank
    assert told["refined"] is None


# --- on disk ----------------------------------------------------------------------------------

FILES = {
    "run", "attention", "prompt", "attention.npy", "attention.png", "prompt.npy", "prompt.png",
    "sheet.png", "ablate.json",
}  # fmt: skip


def test_a_saved_ablation_is_read_back_equal(found, folder):
    assert {p.name for p in folder.iterdir()} == FILES
    back = Ablation.load(folder)
    assert back.word == found.word
    pairs = [(found.without[way], back.without[way]) for way in ablations.WAYS]
    for one, other in [(found.run, back.run), *pairs]:
        assert other.settings == one.settings and other.image.tobytes() == one.image.tobytes()
    assert back.agreement == found.agreement
    for way in ablations.WAYS:
        np.testing.assert_array_equal(back.difference(way), found.difference(way))
        held = np.load(folder / f"{way}.npy", allow_pickle=False)
        assert held.dtype == np.float32
        np.testing.assert_array_equal(held, found.difference(way))
        top = max(found.difference(one).max() for one in ablations.WAYS)
        wanted = overlays.heat(held, (128, 128), low=0, high=float(top))
        with Image.open(folder / f"{way}.png") as picture:
            assert picture.tobytes() == wanted.tobytes()
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.tobytes() == found.sheet().tobytes()
    about = json.loads((folder / "ablate.json").read_text())
    assert about["agreement"] == to_json(found.agreement)
    assert Run.load(folder / "prompt").settings.prompt == "at , at sea"


def test_an_ablation_is_not_loaded_as_a_run(folder):
    with pytest.raises(RunError):
        Run.load(folder)
    for load, other in ((load_result, folder), (Ablation.load, folder / "run")):
        with pytest.raises(RunError):
            load(other)


# --- what may be left out ---------------------------------------------------------------------


def test_only_a_single_run_is_ablatable(found):
    run = found.run
    assert ablations.shorter_prompt(run, "house") == (run, "at , at sea")
    edited = noting(
        run,
        edit={"source": "x", "cross_replace": [0, 1], "self_replace": [0, 1]},
        batch_place=[1, 2],
    )
    for other in (made_pair(), edited, 7, None):
        with pytest.raises(ArgumentError):
            ablations.shorter_prompt(other, "house")


def test_words_that_cannot_be_removed_are_refused(found):
    with pytest.raises(UnknownWordError):
        ablations.shorter_prompt(found.run, "tree")
    with pytest.raises(TruncatedWordError):
        ablations.shorter_prompt(noisy_run("sea " * 80 + "house", 0), "house")
    for word in ("at house at sea", 3):  # nothing is left
        with pytest.raises(ArgumentError):
            ablations.shorter_prompt(found.run, word)


def test_other_words_keep_their_weights():
    run = noisy_run("at (house:2), at (sea:3)", 0, "at house, at sea")
    assert ablations.shorter_prompt(run, "house")[1] == "at , at (sea:3)"


def test_runs_of_input_images_are_refused():
    noted = {"size": [128, 128], "sha256": "0" * 64}
    own = noting(made_run(), input_image=noted, batch_place=[0, 2])
    for run in (own, replace(made_pair(), source=own), noting(made_run(), located=noted)):
        with pytest.raises(ArgumentError):
            ablations.shorter_prompt(run, "house")
