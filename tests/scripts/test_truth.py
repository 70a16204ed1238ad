"""Maps held against exact masks: the measures by hand, the scenes, a small run of all methods."""

from itertools import islice
from random import Random

import numpy as np
import pytest

from evaluation import truth
from world import captions, layouts, scenes


def quarter(side: int = 128) -> np.ndarray:
    """The left upper quarter of a picture."""
    mask = np.zeros((side, side), bool)
    mask[: side // 2, : side // 2] = True
    return mask


def asked(mask: np.ndarray) -> truth.Asked:
    return truth.Asked("one, noun", (0,), (0,), mask)


def made(values: np.ndarray) -> truth.Score:
    values = values.astype(np.float32)
    return truth.score(truth.half_way(values), asked(quarter()))


def test_a_map_equal_to_the_truth_gets_full_marks():
    found = made(quarter())
    assert (found.point, found.ap, found.shipped) == (True, 1.0, 1.0)
    assert found.ious[0] == 0.25  # at the least value all is let in
    assert (found.ious[1:] == 1).all()


def test_a_map_opposite_to_the_truth_gets_no_marks():
    found = made(~quarter())
    assert (found.point, found.shipped, found.ious[1:].max()) == (False, 0.0, 0.0)
    assert found.ap == pytest.approx(0.25)  # what is right comes in last, all at once


def test_average_precision_equals_the_value_worked_out_by_hand():
    values = np.array([[0.9, 0.8, 0.8, 0.1]])
    held = np.array([[True, False, True, True]])
    # 1 of 1; two come in together, 2 of 3; 3 of 4.
    assert truth.average_precision(values, held) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert truth.average_precision(values, ~held) == pytest.approx(1 / 3)


def test_overlaps_are_those_of_each_threshold():
    rng = np.random.default_rng(1)
    values = rng.integers(0, 9, (16, 16)).astype(np.float32) / 8  # many are just at a threshold
    held = rng.random((16, 16)) < 0.3
    found = truth.overlaps(values, held, np.array([0.0, 0.25, 0.3, 1.0, 1.1]))
    for threshold, one in zip((0.0, 0.25, 0.3, 1.0), found, strict=False):
        mask = values >= threshold
        assert one == pytest.approx((mask & held).sum() / (mask | held).sum()), threshold
    assert found[-1] == 0
    assert truth.overlaps(values, held & False, np.array([1.1]))[0] == 0


def test_the_ceiling_is_the_truth_on_cells():
    mask = quarter()
    found = truth.score(truth.ceiling(None, asked(mask)), asked(mask))
    assert found.point and found.shipped > 0.97


def test_figures_are_means_and_lie_within_their_intervals():
    rng, one = np.random.default_rng(0), quarter()
    noisy = [one + rng.normal(0, 0.5, one.shape) for _ in range(12)]
    scores = [
        truth.score(truth.half_way(values.astype(np.float32)), asked(one), scene // 2)
        for scene, values in enumerate(noisy)
    ]
    found = truth.figures_of(scores, rng)
    assert found["n"] == 12
    assert found["ap"] == pytest.approx(np.mean([s.ap for s in scores]), abs=1e-4)
    best = np.stack([s.ious for s in scores]).mean(axis=0)
    assert found["iou_best"] == pytest.approx(best.max(), abs=1e-4)
    assert truth.THRESHOLDS[best.argmax()] == found["threshold_best"]
    for name, (low, high) in found["interval"].items():
        assert low < found[name] < high


# --- the scenes -------------------------------------------------------------------------------


def test_scenes_are_held_out_and_of_each_kind_in_turn():
    found = list(islice(truth.held_out(), 50))
    assert [name for name, _ in found[:5]] == [name for name, _, _ in truth.KINDS]
    assert all(layouts.is_held_out(layout) for _, layout in found)
    assert all(layout.seed >= layouts.HELD_OUT_SEED for _, layout in found)
    assert len({layout.seed for _, layout in found}) == 50
    for name, layout in found:
        nouns = {thing.noun for thing in layout.things}
        assert (len(nouns) == 1) is (name in ("one", "same noun", "several"))


def test_words_are_asked_with_the_masks_of_their_things(embedded):
    groups = set()
    for name, layout in islice(truth.held_out(), 5):
        scene = scenes.render(layout)
        caption = captions.object_caption(layout, Random(layout.seed))
        maps = truth.seen(embedded, scene.image, caption.text, 0, 1)
        for one in truth.asked_of(name, scene.masks, caption, maps):
            groups.add(one.group)
            said = [maps.words[number].text for number in one.words]
            phrase = " ".join(maps.words[number].text for number in one.phrase)
            things = [
                t for t in layout.things if (scene.masks[layout.things.index(t)] & one.truth).any()
            ]
            (kind,) = {t.colour if one.group.endswith("colour") else t.noun for t in things}
            assert said[0].startswith(kind[:3])
            assert all(word in phrase for word in said)
            whole = np.logical_or.reduce([scene.masks[layout.things.index(t)] for t in things])
            assert np.array_equal(one.truth, whole)
    assert {"one, noun", "same noun, colour", "several, noun"} <= groups


def test_maps_follow_a_mirrored_image(embedded):
    """Mirrored, the picture has its map mirrored, too: nothing is drawn of the words."""
    name, layout = next(truth.held_out())
    scene = scenes.render(layout)
    caption = captions.object_caption(layout, Random(layout.seed))
    mask = scene.masks[0]
    for picture, held in ((scene.image, mask), (scene.image[:, ::-1], mask[:, ::-1])):
        maps = truth.seen(embedded, picture, caption.text, 0, 3)
        every = truth.asked_of(name, scene.masks, caption, maps)
        (one,) = [asked for asked in every if "noun" in asked.group]
        made = truth.METHODS["refined"](maps, one)
        assert truth.score(made, truth.Asked("x", (), (), held)).ap > 0.9
