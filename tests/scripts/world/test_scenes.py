"""Rendered scenes: the same from a seed, masks exact."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from world import layouts, scenes
from world.scenes import Scene

each_count = pytest.mark.parametrize("count", [1, 2, 3])


@cache
def render(count: int) -> list[Scene]:
    return [scenes.render(layouts.lay_out(seed, count)) for seed in range(30)]


def widen(mask: np.ndarray) -> np.ndarray:
    """The mask and all pixels beside it, corners too."""
    wide = np.pad(mask, 1)
    h, w = mask.shape
    return np.logical_or.reduce([wide[y : y + h, x : x + w] for y in range(3) for x in range(3)])


def test_a_seed_gives_the_same_scene_every_time():
    for seed in (0, 10**9, 2**40):
        one, two = (scenes.render(layouts.lay_out(seed)) for _ in range(2))
        assert one.layout == two.layout
        assert np.array_equal(one.image, two.image) and np.array_equal(one.masks, two.masks)


@each_count
def test_a_mask_holds_its_thing_alone_and_all_of_it(count: int):
    for scene in render(count):
        layout, image = scene.layout, scene.image
        assert scene.masks.sum(axis=0).max() == 1
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
