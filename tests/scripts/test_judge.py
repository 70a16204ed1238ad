"""The judge of pictures: right on rendered scenes, and trained on exact targets."""

from random import Random

import numpy as np
import pytest

from evaluation import judge
from world import layouts, scenes


@pytest.mark.slow
def test_the_judge_is_right_on_rendered_scenes():
    right = judge.rendered_right(150)
    assert right["all"] >= 0.98, right


def test_the_judge_finds_things_where_they_are():
    drawn = [
        scenes.render(layouts.lay_out(layouts.HELD_OUT_SEED + k, 2, held_out=True))
        for k in range(16)
    ]
    for scene, said in zip(drawn, judge.detect(np.stack([s.image for s in drawn])), strict=True):
        masks = dict(zip(scene.layout.things, scene.masks, strict=True))
        for thing, mask in masks.items():
            (found,) = (f for f in said.things if (f.colour, f.noun) == (thing.colour, thing.noun))
            large = found.mask.repeat(judge.CELL, 0).repeat(judge.CELL, 1)
            assert (large & mask).sum() / (large | mask).sum() > 0.6
            y, x = np.nonzero(mask)
            assert found.centre == pytest.approx((x.mean() / 128, y.mean() / 128), abs=0.03)


def test_the_judge_sees_nothing_where_nothing_is():
    empty = [
        scenes.render(layouts.Layout(seed, (), setting, "")).image
        for setting in layouts.SETTINGS
        for seed in range(3)
    ]
    for said in judge.detect(np.stack(empty)):
        assert said.things == ()


def test_components_are_what_touches_by_a_side():
    mask = np.array([[1, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 0]], dtype=bool)
    pieces = judge.components(mask)
    assert sorted(int(piece.sum()) for piece in pieces) == [1, 2, 3]
    assert np.array_equal(np.logical_or.reduce(pieces), mask)


def test_things_that_touch_are_not_of_one_size():
    """Three things alike as they are drawn, and the same with a fourth that touches one of them."""
    seeds = range(layouts.HELD_OUT_SEED, layouts.HELD_OUT_SEED + 60)
    laid = [layouts.lay_out(seed, 3, held_out=True, kind="several") for seed in seeds]
    pictures = np.stack([scenes.render(layout).image for layout in laid])
    said = judge.detect(pictures)
    three = [judged for judged in said if len(judged.things) == 3]
    assert len(three) >= 58 and sum(judge.of_one_size(one.things) for one in three) >= 58
    with_fourth = []
    for picture, judged in zip(pictures, said, strict=True):
        ys, xs = np.nonzero(judged.things[0].mask.repeat(judge.CELL, 0).repeat(judge.CELL, 1))
        for down in (ys.max() - ys.min() - 2, ys.min() - ys.max() + 2):
            if (ys + down).min() >= 0 and (ys + down).max() < len(picture):
                made = picture.copy()
                made[ys + down, xs] = picture[ys, xs]
                with_fourth.append(made)
    fooled = [one for one in judge.detect(np.stack(with_fourth)) if len(one.things) == 3]
    assert len(fooled) >= 10
    assert sum(judge.of_one_size(one.things) for one in fooled) <= 0.1 * len(fooled)
    assert judge.of_one_size([])


def test_targets_are_the_things_under_most_of_a_cell():
    for seed in range(12):
        example = judge.example(seed, Random(seed))
        assert example.image.shape == (128, 128, 3) and example.image.dtype == np.uint8
        things = set(zip(example.noun.flat, example.colour.flat, strict=True))
        # The background is (0, 0); a thing has a noun and a colour, and both are numbered from 1.
        assert (0, 0) in things and all((noun > 0) == (colour > 0) for noun, colour in things)
        assert 2 <= len(things) <= 4
        assert example.noun.max() <= len(layouts.NOUNS)
        assert example.colour.max() <= len(layouts.COLOURS)
        assert set(np.unique(example.weight)) <= {np.float32(0.2), 1, 2}
