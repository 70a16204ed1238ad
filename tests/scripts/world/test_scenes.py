"""Rendered scenes: the same from a seed, masks exact."""

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from world import layouts, scenes
from world.scenes import Scene

each_count = pytest.mark.parametrize("count", [1, 2, 3])


@cache
def render(count: int, kind: layouts.Kind = "different") -> list[Scene]:
    return [scenes.render(layouts.lay_out(seed, count, kind=kind)) for seed in range(30)]


def widen(mask: np.ndarray, by: int = 1) -> np.ndarray:
    """The mask and all pixels at most `by` from it, corners too."""
    wide = np.pad(mask, by)
    h, w = mask.shape
    side = range(2 * by + 1)
    return np.logical_or.reduce([wide[y : y + h, x : x + w] for y in side for x in side])


def test_a_seed_gives_the_same_scene_every_time():
    for seed in (0, 10**9, 2**40):
        one, two = (scenes.render(layouts.lay_out(seed)) for _ in range(2))
        assert one.layout == two.layout
        assert np.array_equal(one.image, two.image) and np.array_equal(one.masks, two.masks)


@each_count
def test_masks_are_disjoint_and_lie_within_their_things_boxes(count: int):
    for scene in render(count):
        assert scene.image.shape == (128, 128, 3) and scene.image.dtype == np.uint8
        assert scene.masks.shape == (count, 128, 128) and scene.masks.sum(axis=0).max() == 1
        for thing, mask in zip(scene.layout.things, scene.masks, strict=True):
            # Half the box, the contour around it, a tail's tip, and the rounding.
            reach = thing.radius * 128 * 1.06 + (1.3 + 3.2 * thing.radius) + 3
            y, x = np.nonzero(mask)
            assert np.abs(x + 0.5 - thing.x * 128).max() <= reach, thing
            assert np.abs(y + 0.5 - thing.y * 128).max() <= reach, thing


@each_count
def test_a_mask_holds_its_thing_alone_and_all_of_it(count: int):
    for scene in render(count):
        layout, image = scene.layout, scene.image
        background = scenes.render(replace(layout, things=())).image
        # A contour's antialiasing reaches one pixel further than its mask.
        outside = ~widen(scene.masks.any(axis=0))
        assert np.array_equal(image[outside], background[outside]), layout
        for k, mask in enumerate(scene.masks):
            others = np.delete(scene.masks, k, axis=0).any(axis=0)
            inside = mask & ~widen(others)
            alone = scenes.render(replace(layout, things=(layout.things[k],))).image
            assert np.array_equal(image[inside], alone[inside]), layout


@each_count
def test_a_things_colour_is_seen_in_its_mask(count: int):
    colours = np.array(list(layouts.COLOURS.values()))
    for scene in render(count):
        for thing, mask in zip(scene.layout.things, scene.masks, strict=True):
            far = np.abs(scene.image[mask][:, None].astype(int) - colours).max(axis=-1)
            near = far.argmin(axis=1)[far.min(axis=1) <= 16].tolist()
            own = list(layouts.COLOURS).index(thing.colour)
            # 8 %: a boat's sails are tinted paler than its hull.
            assert near.count(own) >= 0.08 * mask.sum(), thing


@pytest.mark.parametrize("count", [2, 3])
def test_several_that_are_alike_lie_apart(count: int):
    for scene in render(count, "several"):
        for one, two in combinations(scene.masks, 2):
            assert not (widen(one, 3) & two).any(), scene.layout
