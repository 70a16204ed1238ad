"""Drawn scenes: the same from a seed, masks exact."""

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from world import layouts, scenes
from world.scenes import Scene

SEEDS = range(40)


@cache
def drawn(count: int) -> list[Scene]:
    return [scenes.render(layouts.lay_out(seed, count)) for seed in SEEDS]


def without(scene: Scene, keep: int | None = None) -> np.ndarray:
    """The same scene with only the thing `keep`, or with none."""
    things = () if keep is None else (scene.layout.things[keep],)
    return scenes.render(replace(scene.layout, things=things)).image


def grown(mask: np.ndarray, by: int = 1) -> np.ndarray:
    """The mask and all pixels at most `by` from it, corners too."""
    wide = np.pad(mask, by)
    h, w = mask.shape
    return np.logical_or.reduce(
        [wide[y : y + h, x : x + w] for y in range(2 * by + 1) for x in range(2 * by + 1)]
    )


@pytest.mark.parametrize("seed", [0, 7, 10**9, 2**40])
def test_a_seed_gives_the_same_scene_every_time(seed: int):
    one, two = (scenes.render(layouts.lay_out(seed)) for _ in range(2))
    assert one.layout == two.layout
    assert np.array_equal(one.image, two.image) and np.array_equal(one.masks, two.masks)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_has_as_many_things_and_disjoint_masks_as_asked_for(count: int):
    for scene in drawn(count):
        assert len(scene.layout.things) == count
        assert scene.image.shape == (128, 128, 3) and scene.image.dtype == np.uint8
        assert scene.masks.shape == (count, 128, 128) and scene.masks.dtype == bool
        assert scene.masks.sum(axis=0).max() == 1


# --- masks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_masks_lie_within_their_things_boxes(count: int):
    for scene in drawn(count):
        for thing, mask in zip(scene.layout.things, scene.masks, strict=True):
            # Half the box, the contour around it, a tail's tip, and the rounding.
            reach = thing.radius * 128 * 1.06 + (1.3 + 3.2 * thing.radius) + 3
            y, x = np.nonzero(mask)
            assert np.abs(x + 0.5 - thing.x * 128).max() <= reach, thing
            assert np.abs(y + 0.5 - thing.y * 128).max() <= reach, thing


@pytest.mark.parametrize("count", [1, 2, 3])
def test_outside_of_all_masks_there_is_only_the_background(count: int):
    for scene in drawn(count):
        # A contour's antialiasing reaches one pixel further than its mask.
        outside = ~grown(scene.masks.any(axis=0))
        assert np.array_equal(scene.image[outside], without(scene)[outside]), scene.layout


@pytest.mark.parametrize("count", [2, 3])
def test_inside_of_a_mask_there_is_only_its_thing(count: int):
    for scene in drawn(count):
        for k, mask in enumerate(scene.masks):
            others = np.delete(scene.masks, k, axis=0).any(axis=0)
            inside = mask & ~grown(others)
            assert np.array_equal(scene.image[inside], without(scene, keep=k)[inside])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_things_colour_is_seen_in_its_mask(count: int):
    colours = np.array(list(layouts.COLOURS.values()))
    for scene in drawn(count):
        for thing, mask in zip(scene.layout.things, scene.masks, strict=True):
            far = np.abs(scene.image[mask][:, None].astype(int) - colours).max(axis=-1)
            near = (far.argmin(axis=1)[far.min(axis=1) <= 16]).tolist()
            own = list(layouts.COLOURS).index(thing.colour)
            # 8 %: a boat's sails are tinted paler than its hull.
            assert near.count(own) >= 0.08 * mask.sum(), thing


@pytest.mark.parametrize("count", [2, 3])
def test_several_that_are_alike_lie_apart(count: int):
    for seed in SEEDS:
        scene = scenes.render(layouts.lay_out(seed, count, kind="several"))
        for one, two in combinations(scene.masks, 2):
            assert not (grown(one, 3) & two).any(), scene.layout


@pytest.mark.parametrize("setting", layouts.SETTINGS)
def test_black_and_white_things_stand_out_in_every_setting(setting: str):
    (thing,) = layouts.lay_out(0, 1).things
    empty = scenes.render(layouts.Layout(0, (), setting, "")).image.astype(int)
    for colour in ("black", "white", "grey", "brown"):
        for noun in ("cat", "house", "boat", "rocket"):
            things = (replace(thing, noun=noun, colour=colour, x=0.5, y=0.55, radius=0.25),)
            scene = scenes.render(layouts.Layout(0, things, setting, ""))
            inside = scene.masks[0]
            rim = inside & grown(~inside)
            change = np.abs(scene.image - empty).max(axis=2)
            # By its contour where its own colour is near that of the setting, or by its colour.
            assert max(np.median(change[rim]), np.median(change[inside])) > 50, (colour, noun)
