"""A word left out: the difference and its agreement by hand, the sheet, and the folder."""

import json
from dataclasses import replace

import numpy as np
import pytest
from figure_reading import ends, read_figure
from making import (
    random_ablation,
    random_edit,
    random_run,
    recording,
    with_refined,
    with_settings,
)
from PIL import Image

from heedmap.errors import ArgumentError
from heedmap.figures import overlays, plots
from heedmap.io.schemas import to_json
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import rank_correlation
from heedmap.results import ablations
from heedmap.results.ablations import Ablation, auc, changed_region
from heedmap.results.runs import Run


def with_image(run: Run, image: Image.Image) -> Run:
    return replace(run, image=image, maps=replace(run.maps, image=image))


def change_image(ablation: Ablation, way: str, pixels: np.ndarray) -> Ablation:
    run = with_image(ablation.without[way], Image.fromarray(pixels))
    return replace(ablation, without={**ablation.without, way: run})


@pytest.fixture(scope="module")
def ablation() -> Ablation:
    return random_ablation()


@pytest.fixture(scope="module")
def folder(ablation, tmp_path_factory):
    return ablation.save(tmp_path_factory.mktemp("ablations") / "outputs" / "x")


# --- the difference ---------------------------------------------------------------------------


def test_the_difference_equals_the_one_worked_out_by_hand(ablation):
    before = np.full((128, 128, 3), 100, np.uint8)
    after = before.copy()
    after[0, 0] = (100, 40, 250)  # 0, 60 and 150 of 255
    after[5, 7] = (0, 255, 101)  # 100, 155 and 1
    plain = replace(ablation, run=with_image(ablation.run, Image.fromarray(before)))
    changed = change_image(plain, "attention", after)
    values = changed.difference("attention")
    assert values.dtype == np.float32 and values.shape == (128, 128)
    assert values[0, 0] == pytest.approx(210 / 765, rel=1e-6)
    assert values[5, 7] == pytest.approx(256 / 765, rel=1e-6)
    assert np.count_nonzero(values) == 2


# --- agreement --------------------------------------------------------------------------------


def test_the_agreement_equals_its_measures():
    plain = random_ablation()
    found = replace(plain, run=with_refined(plain.run))
    heat = found.run.maps["house"]
    refined = found.run.maps.refined["house"]
    assert heat.values.shape == (64, 64)
    mask = overlays.resize_map(heat.soft_mask(), (64, 64))
    for way, agreement in found.agreement.items():
        whole = found.difference(way)
        cells = overlays.resize_map(whole, (64, 64))
        assert agreement.largest == whole.max() and agreement.mean == pytest.approx(
            whole.mean(), rel=1e-5
        )
        region = changed_region(cells)
        assert 0 < region.mean() < 1 and agreement.refined is not None
        pairs = (
            (agreement.heat, heat.values),
            (agreement.refined, refined.values),
            (agreement.mask, mask),
        )
        for one, values in pairs:
            rank = rank_correlation(values, cells)
            assert (one.rank, one.auc) == (rank, auc(values, region))
    assert plain.agreement["attention"].refined is None
    assert plain.agreement["attention"].heat == found.agreement["attention"].heat


def test_a_map_equal_to_the_change_agrees_fully():
    """Of a wide image: 24×16 cells of eight pixels."""
    plain = random_ablation()
    wide = recording("at house, at sea", latent=(16, 24))
    black = Image.new("RGB", wide.size)
    maps = HeatMaps(wide, black)
    heat = maps["house"].values
    assert heat.shape == (64, 96)
    large = overlays.resize_map(heat - heat.min(), wide.size)
    lit = np.rint(255 * large / large.max()).astype(np.uint8)
    images = {"attention": Image.fromarray(lit), "prompt": Image.fromarray(255 - lit)}
    without = {
        way: replace(run, image=images[way].convert("RGB")) for way, run in plain.without.items()
    }
    ablation = Ablation("house", replace(plain.run, image=black, maps=maps), without)
    same, opposite = (ablation.agreement[way].heat for way in ablations.WAYS)
    assert same.rank > 0.97 and same.auc > 0.99
    assert opposite.rank < -0.97 and opposite.auc < 0.01
    # A word of negative weight acts where its map is lowest.
    mirrored = replace(wide, arrays=tuple(-array for array in wide.arrays))
    below = replace(ablation.run, maps=HeatMaps(mirrored, black))
    assert replace(ablation, run=below).agreement == ablation.agreement


def test_a_word_without_influence_has_no_agreement():
    ablation = random_ablation()
    made = change_image(ablation, "attention", np.asarray(ablation.run.image))
    assert not made.difference("attention").any()
    one = made.agreement["attention"]
    assert (one.largest, one.mean) == (0, 0)
    for held in (one.heat, one.mask):
        assert held.rank is None and held.auc is None
    assert made.agreement["prompt"].heat.rank is not None


# --- shown ------------------------------------------------------------------------------------


def test_the_sheet_shows_the_images_the_heat_and_the_changes(ablation):
    figure = ablation.figure()
    content = read_figure(figure)
    prompts = [panel.note for panel in content.panels]
    assert len(prompts) == 6
    assert (prompts[0], prompts[2]) == ("at house, at sea", "at , at sea")
    low, high = ablation.run.maps["house"].value_range()
    top = max(float(ablation.difference(way).max()) for way in ablations.WAYS)
    assert {*map(tuple, (texts for _, texts in content.scales))} == {
        tuple(ends(low, high)),
        ("0", f"{top:.0%}"),
    }
    assert plots.render(figure) == ablation.sheet()


def read_changes(made: Ablation) -> list[np.ndarray]:
    """The two images of the sheet that show what changed."""
    return [np.asarray(panel.picture, dtype=int) for panel in read_figure(made.figure()).panels[4:]]


def test_both_changes_are_on_one_scale(ablation):
    faint = np.asarray(ablation.run.image).copy()
    faint[9, 9] ^= 16
    strong = faint.copy()
    strong[60:, 60:] = 255 - strong[60:, 60:]
    made = change_image(change_image(ablation, "attention", faint), "prompt", strong)
    first, second = read_changes(made)
    assert second.max() > 200
    assert first[1:-1, 1:-1].max() < 60  # on a scale of its own its one pixel would glow


# --- on disk ----------------------------------------------------------------------------------

FILES = {
    "run",
    "attention",
    "prompt",
    "attention.npy",
    "attention.png",
    "prompt.npy",
    "prompt.png",
    "sheet.png",
    "index.html",
    "ablate.json",
}


def test_a_saved_ablation_is_read_back_equal(ablation, folder):
    assert {p.name for p in folder.iterdir()} == FILES
    back = Ablation.load(folder)
    assert back.word == ablation.word
    pairs = [(ablation.without[way], back.without[way]) for way in ablations.WAYS]
    for one, other in [(ablation.run, back.run), *pairs]:
        assert other.settings == one.settings and other.image.tobytes() == one.image.tobytes()
    assert back.agreement == ablation.agreement
    for way in ablations.WAYS:
        np.testing.assert_array_equal(back.difference(way), ablation.difference(way))
        held = np.load(folder / f"{way}.npy", allow_pickle=False)
        np.testing.assert_array_equal(held, ablation.difference(way))
    about = json.loads((folder / "ablate.json").read_text())
    assert about["agreement"] == to_json(ablation.agreement)


# --- what may be left out ---------------------------------------------------------------------

IMAGE = {"size": [128, 128], "sha256": "0" * 64}
EDIT = {"source": "x", "cross_replace": [0, 1], "self_replace": [0, 1]}


@pytest.mark.parametrize(
    ("run", "word", "error"),
    [
        (random_edit(), "house", ArgumentError),
        (with_settings(random_run(), edit=EDIT), "house", ArgumentError),
        (with_settings(random_run(), located=IMAGE), "house", ArgumentError),
        (random_run(), "at house at sea", ArgumentError),  # nothing is left
    ],
    ids=str,
)
def test_other_runs_and_words_are_refused(run, word, error):
    with pytest.raises(error):
        ablations.shorter_prompt(run, word)
