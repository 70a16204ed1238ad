"""The drawn world: the same from a seed, masks exact, captions that speak of what is there."""

import re
import time
from dataclasses import replace
from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest

from heedmap.tiny import scenes
from heedmap.tiny.scenes import HELD_OUT_SEED, Caption, Layout, Scene

SEEDS = range(90)


def layouts(n: int = 1500, **kind: object) -> list[Layout]:
    return [scenes.lay_out(seed, **kind) for seed in range(n)]  # type: ignore[arg-type]


def drawn(count: int) -> list[Scene]:
    return [scenes.draw(scenes.lay_out(seed, count)) for seed in SEEDS]


def told(layout: Layout, seed: int = 0) -> list[Caption]:
    rng = Random(seed)
    return [
        scenes.caption(layout, rng),
        scenes.object_caption(layout, rng),
        scenes.object_caption(layout, rng, colours=False),
    ]


def without(scene: Scene, keep: int | None = None) -> np.ndarray:
    """The same scene with only the thing `keep`, or with none."""
    things = () if keep is None else (scene.layout.things[keep],)
    return scenes.draw(replace(scene.layout, things=things)).image


def grown(mask: np.ndarray, by: int = 1) -> np.ndarray:
    """The mask and all pixels at most `by` from it, corners too."""
    wide = np.pad(mask, by)
    h, w = mask.shape
    return np.logical_or.reduce(
        [wide[y : y + h, x : x + w] for y in range(2 * by + 1) for x in range(2 * by + 1)]
    )


# --- from a seed ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 7, 10**9, 2**40])
def test_a_seed_gives_the_same_scene_every_time(seed: int):
    one, two = (scenes.draw(scenes.lay_out(seed)) for _ in range(2))
    assert one.layout == two.layout
    assert np.array_equal(one.image, two.image) and np.array_equal(one.masks, two.masks)
    assert told(one.layout, seed) == told(two.layout, seed)


def test_seeds_give_different_scenes():
    pictures = {scene.image.tobytes() for count in (1, 2) for scene in drawn(count)}
    assert len(pictures) == 2 * len(SEEDS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_has_as_many_things_as_asked_for(count: int):
    for scene in drawn(count):
        assert len(scene.layout.things) == count == len(scene.masks)
        assert scene.image.shape == (128, 128, 3) and scene.image.dtype == np.uint8
        assert scene.masks.shape == (count, 128, 128) and scene.masks.dtype == bool


def test_everything_occurs():
    some = layouts()
    things = [thing for layout in some for thing in layout.things]
    assert {thing.noun for thing in things} == set(scenes.NOUNS) and len(scenes.NOUNS) >= 12
    assert {thing.colour for thing in things} == set(scenes.COLOURS) and len(scenes.COLOURS) == 8
    assert {thing.size for thing in things} == {"", *scenes.SIZES}
    assert {layout.setting for layout in some} == set(scenes.SETTINGS)
    assert {layout.relation for layout in some} == {"", *scenes.RELATIONS}
    assert {len(layout.things) for layout in some} == {1, 2, 3}
    assert any(len({t.noun for t in layout.things}) < len(layout.things) for layout in some)


def test_no_thing_is_there_twice():
    for layout in layouts():
        kinds = [(thing.colour, thing.noun) for thing in layout.things]
        assert len(set(kinds)) == len(kinds)


def test_things_lie_as_the_relation_says():
    for layout in layouts(count=2):
        one, two = layout.things
        across, down = two.x - one.x, two.y - one.y
        if layout.relation == "left":
            assert across > abs(down)
        elif layout.relation == "right":
            assert -across > abs(down)
        elif layout.relation == "above":
            assert down > abs(across)
        elif layout.relation == "below":
            assert -down > abs(across)


def test_big_things_are_bigger_than_small_ones():
    for count in (1, 2):
        sizes: dict[str, list[float]] = {"": [], "small": [], "big": []}
        for layout in layouts(count=count):
            for thing in layout.things:
                sizes[thing.size].append(thing.radius)
        assert max(sizes["small"]) < min(sizes[""]) and max(sizes["small"]) < min(sizes["big"])
        assert np.mean(sizes["big"]) > np.mean(sizes[""])


# --- what is kept from training ---------------------------------------------------------------


def combination(layout: Layout) -> tuple[object, ...]:
    return (*sorted((thing.colour, thing.noun) for thing in layout.things), layout.setting)


@pytest.mark.parametrize("count", [1, 2, None])
def test_what_is_held_out_never_appears_in_training(count: int | None):
    training = layouts(count=count, held_out=False)
    held_out = [scenes.lay_out(HELD_OUT_SEED + k, count, held_out=True) for k in range(1500)]
    assert not {combination(layout) for layout in training} & set(map(combination, held_out))
    for layout in training:
        assert not scenes.is_held_out(layout)
        assert not {(t.colour, t.noun) for t in layout.things} & scenes.UNSEEN_PAIRS
    assert all(scenes.is_held_out(layout) for layout in held_out)


def test_about_one_combination_in_eight_is_held_out():
    share = np.mean([scenes.is_held_out(layout) for layout in layouts(3000, count=2)])
    assert 0.125 < share < 0.25  # an eighth, and the pairs of colour and noun that are never shown


def test_unseen_pairs_are_of_the_world():
    for colour, noun in scenes.UNSEEN_PAIRS:
        assert colour in scenes.COLOURS and noun in scenes.NOUNS


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
def test_every_thing_is_seen(count: int):
    for scene in drawn(count):
        for thing, mask in zip(scene.layout.things, scene.masks, strict=True):
            assert mask.sum() > 0.25 * (2 * thing.radius * 128) ** 2 / 1.5, thing


@pytest.mark.parametrize("count", [2, 3])
def test_masks_are_disjoint(count: int):
    for scene in drawn(count):
        for one, two in combinations(scene.masks, 2):
            assert not (one & two).any()


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
    colours = np.array(list(scenes.COLOURS.values()))
    for scene in drawn(count):
        for thing, mask in zip(scene.layout.things, scene.masks, strict=True):
            far = np.abs(scene.image[mask][:, None].astype(int) - colours).max(axis=-1)
            near = (far.argmin(axis=1)[far.min(axis=1) <= 16]).tolist()
            own = list(scenes.COLOURS).index(thing.colour)
            # 8 %: a boat's sails are tinted paler than its hull.
            assert near.count(own) >= 0.08 * mask.sum(), thing


# --- captions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_mentions_are_the_words_that_they_say(count: int):
    for seed, layout in enumerate(layouts(400, count=count)):
        for caption in told(layout, seed):
            for mention in caption.mentions:
                words = caption.text[mention.start : mention.end]
                if mention.kind == "setting":
                    assert words in scenes.SETTINGS[layout.setting] and mention.things == ()
                    continue
                (thing,) = (layout.things[k] for k in mention.things)
                ways = {
                    "noun": (thing.noun,),
                    "colour": (thing.colour,),
                    "size": scenes.SIZES.get(thing.size, ()),
                }[mention.kind]
                assert words in ways
            assert all(a.end <= b.start for a, b in pairwise(caption.mentions))


def mentioned(caption: Caption, kind: str) -> list[int]:
    return [k for mention in caption.mentions if mention.kind == kind for k in mention.things]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_object_captions_say_nouns_colours_relation_and_setting(count: int):
    for layout in layouts(400, count=count):
        everything = list(range(count))
        caption = scenes.object_caption(layout, Random(layout.seed))
        plain = scenes.object_caption(layout, Random(layout.seed), colours=False)
        assert mentioned(caption, "noun") == mentioned(caption, "colour") == everything
        assert mentioned(plain, "noun") == everything
        if layout.setting != "none":
            assert any(mention.kind == "setting" for mention in caption.mentions)
        if layout.relation:
            ways = "|".join(scenes.RELATIONS[layout.relation])
            assert re.search(rf"\b({ways})\b", caption.text)


def test_two_of_one_noun_are_always_told_with_colours():
    twins = [x for x in layouts(4000, count=2) if x.things[0].noun == x.things[1].noun]
    assert len(twins) > 100
    for layout in twins:
        for caption in told(layout, layout.seed):
            assert mentioned(caption, "colour") == [0, 1], caption.text


def test_captions_are_words_with_single_spaces():
    for layout in layouts():
        for caption in told(layout, layout.seed):
            assert re.fullmatch(r"[a-z]+(,? [a-z]+)*", caption.text), caption.text


def test_articles_fit_their_words():
    texts = [c.text for layout in layouts() for c in told(layout, layout.seed)]
    assert any(re.search(r"\ban orange\b", text) for text in texts)
    for text in texts:
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", text), text


def test_the_vocabulary_is_what_captions_are_made_of():
    known = scenes.vocabulary()
    for layout in layouts():
        words = scenes.object_caption(layout, Random(layout.seed)).text.replace(",", "").split()
        assert set(words) <= known
    assert {"house", "orange", "giraffe"} & known == {"house", "orange"}


# --- speed ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_draws_fast():
    seeds = range(300)
    for seed in seeds[:20]:
        scenes.draw(scenes.lay_out(seed))
    start = time.process_time()
    for seed in seeds:
        scenes.draw(scenes.lay_out(seed))
    # More than 300 a second on one idle core; a busy machine may be three times slower.
    assert len(seeds) / (time.process_time() - start) > 100
