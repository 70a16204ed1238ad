"""The judge of images: right on rendered scenes, and trained on exact targets."""

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
