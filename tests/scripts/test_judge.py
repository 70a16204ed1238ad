"""The judge of images: right on rendered scenes, and trained on exact targets."""

from random import Random

import numpy as np
import pytest

from evaluation import judge
from world import layouts, scenes


def test_the_judge_is_right_on_rendered_scenes():
    right = judge.rendered_right(50)
    assert right["all"] >= 0.98, right


def test_the_judge_finds_things_where_they_are():
    seeds = range(layouts.HELD_OUT_SEED, layouts.HELD_OUT_SEED + 16)
    rendered = [scenes.render(layouts.lay_out(seed, 2, held_out=True)) for seed in seeds]
    judgements = judge.detect(np.stack([scene.image for scene in rendered]))
    for scene, judgement in zip(rendered, judgements, strict=True):
        for thing, mask in zip(scene.layout.things, scene.masks, strict=True):
            kind = (thing.colour, thing.noun)
            (found,) = (one for one in judgement.things if (one.colour, one.noun) == kind)
            large = found.mask.repeat(judge.CELL, 0).repeat(judge.CELL, 1)
            assert (large & mask).sum() / (large | mask).sum() > 0.6
            y, x = np.nonzero(mask)
            assert found.centre == pytest.approx((x.mean() / 128, y.mean() / 128), abs=0.03)


def test_the_judge_finds_nothing_in_an_empty_scene():
    empty = [
        scenes.render(layouts.Layout(seed, (), setting, "")).image
        for setting in layouts.SETTINGS
        for seed in range(3)
    ]
    assert not any(judgement.things for judgement in judge.detect(np.stack(empty)))


def test_components_are_cells_that_touch_by_a_side():
    mask = np.array([[1, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 0]], dtype=bool)
    pieces = judge.components(mask)
    assert sorted(int(piece.sum()) for piece in pieces) == [1, 2, 3]
    assert np.array_equal(np.logical_or.reduce(pieces), mask)


def test_things_that_touch_are_not_of_one_size():
    """Three things alike, and the same with a fourth that touches one of them."""
    seeds = range(layouts.HELD_OUT_SEED, layouts.HELD_OUT_SEED + 60)
    several = [layouts.lay_out(seed, 3, held_out=True, kind="several") for seed in seeds]
    images = np.stack([scenes.render(layout).image for layout in several])
    judgements = judge.detect(images)
    assert sum(judge.of_one_size(one.things) for one in judgements) >= 58
    with_fourth = []
    for image, judgement in zip(images, judgements, strict=True):
        cells = judgement.things[0].mask.repeat(judge.CELL, 0).repeat(judge.CELL, 1)
        y, x = np.nonzero(cells)
        height = y.max() - y.min() - 2
        for shift in (height, -height):
            if (y + shift).min() >= 0 and (y + shift).max() < len(image):
                changed = image.copy()
                changed[y + shift, x] = image[y, x]
                with_fourth.append(changed)
    three = [one.things for one in judge.detect(np.stack(with_fourth)) if len(one.things) == 3]
    assert len(three) >= 10 and sum(map(judge.of_one_size, three)) <= 0.1 * len(three)


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
