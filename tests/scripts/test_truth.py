"""Maps compared with exact masks: the measures by hand, the scenes, a mirrored image."""

from itertools import islice
from random import Random

import numpy as np
import pytest

from evaluation import truth
from world import captions, layouts, scenes

QUARTER = np.zeros((128, 128), bool)
QUARTER[:64, :64] = True
ASKED = truth.Asked("one, noun", (0,), (0,), QUARTER)


def score(values: np.ndarray, scene: int = 0) -> truth.Score:
    return truth.score(truth.half_way(values.astype(np.float32)), ASKED, scene)


def test_a_map_equal_to_the_truth_gets_full_marks_and_its_opposite_none():
    right, wrong = score(QUARTER), score(~QUARTER)
    assert (right.point, right.ap, right.shipped) == (True, 1.0, 1.0)
    assert right.ious[0] == 0.25  # at the least value all is let in
    assert (right.ious[1:] == 1).all()
    assert (wrong.point, wrong.shipped, wrong.ious[1:].max()) == (False, 0.0, 0.0)
    assert wrong.ap == pytest.approx(0.25)  # what is right comes in last, all at once
    ceiling = truth.score(truth.ceiling(None, ASKED), ASKED)
    assert ceiling.point and ceiling.shipped > 0.97


def test_average_precision_equals_the_value_worked_out_by_hand():
    values = np.array([[0.9, 0.8, 0.8, 0.1]])
    mask = np.array([[True, False, True, True]])
    # 1 of 1; two come in together, 2 of 3; 3 of 4.
    assert truth.average_precision(values, mask) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_overlaps_are_those_of_each_threshold():
    rng = np.random.default_rng(1)
    values = rng.integers(0, 9, (16, 16)).astype(np.float32) / 8  # many are just at a threshold
    mask = rng.random((16, 16)) < 0.3
    thresholds = np.array([0.0, 0.25, 0.3, 1.0, 1.1])
    for threshold, overlap in zip(
        thresholds, truth.overlaps(values, mask, thresholds), strict=True
    ):
        found = values >= threshold
        assert overlap == pytest.approx((found & mask).sum() / (found | mask).sum())


def test_figures_are_means_and_lie_within_their_intervals():
    rng = np.random.default_rng(0)
    scores = [score(QUARTER + rng.normal(0, 0.5, QUARTER.shape), n // 2) for n in range(12)]
    figures = truth.figures_of(scores, rng)
    assert figures["n"] == 12
    assert figures["ap"] == pytest.approx(np.mean([one.ap for one in scores]), abs=1e-4)
    ious = np.stack([one.ious for one in scores]).mean(axis=0)
    assert figures["iou_best"] == pytest.approx(ious.max(), abs=1e-4)
    assert truth.THRESHOLDS[ious.argmax()] == figures["threshold_best"]
    for name, (low, high) in figures["interval"].items():
        assert low < figures[name] < high


# --- the scenes -------------------------------------------------------------------------------


def test_scenes_are_held_out_and_of_each_kind_in_turn():
    found = list(islice(truth.held_out(), 50))
    assert [name for name, _ in found[:5]] == [name for name, _, _ in truth.KINDS]
    assert len({layout.seed for _, layout in found}) == 50
    for name, layout in found:
        assert layouts.is_held_out(layout) and layout.seed >= layouts.HELD_OUT_SEED
        nouns = {thing.noun for thing in layout.things}
        assert (len(nouns) == 1) is (name in ("one", "same noun", "several"))


def test_words_have_the_masks_of_their_things(embedded):
    groups = set()
    for name, layout in islice(truth.held_out(), 5):
        scene = scenes.render(layout)
        caption = captions.object_caption(layout, Random(layout.seed))
        maps = truth.seen(embedded, scene.image, caption.text, 0, 1)
        for asked in truth.asked_of(name, scene.masks, caption, maps):
            groups.add(asked.group)
            kind = "colour" if asked.group.endswith("colour") else "noun"
            word = maps.words[asked.words[0]].text
            assert set(asked.words) <= set(asked.phrase)
            masks = [
                mask
                for thing, mask in zip(layout.things, scene.masks, strict=True)
                if word.startswith(getattr(thing, kind)[:3]) and (mask & asked.truth).any()
            ]
            assert np.array_equal(asked.truth, np.logical_or.reduce(masks))
    assert {"one, noun", "same noun, colour", "several, noun"} <= groups


def test_maps_follow_a_mirrored_image(embedded):
    """The map of a mirrored image is mirrored, too: the model reads pixels."""
    name, layout = next(truth.held_out())
    scene = scenes.render(layout)
    caption = captions.object_caption(layout, Random(layout.seed))
    image, mask = scene.image[:, ::-1], scene.masks[0][:, ::-1]
    maps = truth.seen(embedded, image, caption.text, 0, 3)
    asked = truth.asked_of(name, scene.masks[:, :, ::-1], caption, maps)
    (noun,) = [one for one in asked if "noun" in one.group]
    refined = truth.METHODS["refined"](maps, noun)
    assert truth.score(refined, truth.Asked("x", (), (), mask)).ap > 0.9
