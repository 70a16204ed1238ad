"""What is in a scene: the same from a seed, and as its own words say."""

import numpy as np
import pytest

from world import captions, layouts
from world.layouts import HELD_OUT_SEED, Layout


def laid_out(n: int = 1500, **kind: object) -> list[Layout]:
    return [layouts.lay_out(seed, **kind) for seed in range(n)]  # type: ignore[arg-type]


def test_everything_occurs():
    some = laid_out()
    things = [thing for layout in some for thing in layout.things]
    assert {thing.noun for thing in things} == set(layouts.NOUNS) and len(layouts.NOUNS) >= 12
    assert {thing.colour for thing in things} == set(layouts.COLOURS) and len(layouts.COLOURS) == 11
    assert {thing.noun for thing in things if thing.natural} == set(layouts.NOUNS)
    assert {thing.size for thing in things} == {"", *layouts.SIZES}
    assert {layout.setting for layout in some} == set(layouts.SETTINGS)
    assert {layout.relation for layout in some} == {"", *layouts.RELATIONS}
    assert {len(layout.things) for layout in some} == {1, 2, 3}
    assert any(len({t.noun for t in layout.things}) < len(layout.things) for layout in some)


def test_no_thing_is_there_twice():
    for layout in laid_out():
        kinds = [(thing.colour, thing.noun) for thing in layout.things]
        assert len(set(kinds)) == len(kinds)


def test_twins_are_of_one_noun_in_two_colours():
    twins = laid_out(400, kind="twins")
    for layout in twins:
        one, two = layout.things
        assert one.noun == two.noun and one.colour != two.colour
    assert {layout.relation for layout in twins} == set(layouts.RELATIONS)


@pytest.mark.parametrize("count", [2, 3, None])
def test_several_are_alike(count: int | None):
    some = laid_out(200, count=count, kind="several")
    assert {len(layout.things) for layout in some} == {count or 2, count or 3}
    for layout in some:
        assert layout.relation == "several"
        assert len({(t.noun, t.colour, t.size) for t in layout.things}) == 1


def test_every_thing_has_a_natural_colour_that_it_may_be_seen_in():
    assert set(layouts.NATURAL) == set(layouts.NOUNS) == set(captions.PLURALS)
    assert set(layouts.NATURAL.values()) <= set(layouts.COLOURS)
    pairs = {(colour, noun) for noun, colour in layouts.NATURAL.items()}
    assert not pairs & layouts.UNSEEN_PAIRS


def test_things_lie_as_the_relation_says():
    for layout in [*laid_out(count=2), *laid_out(400, kind="twins")]:
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
        for layout in laid_out(count=count):
            for thing in layout.things:
                sizes[thing.size].append(thing.radius)
        assert max(sizes["small"]) < min(sizes[""]) and max(sizes["small"]) < min(sizes["big"])
        assert np.mean(sizes["big"]) > np.mean(sizes[""])


# --- what is kept from training ---------------------------------------------------------------


def combination(layout: Layout) -> tuple[object, ...]:
    return (*sorted((thing.colour, thing.noun) for thing in layout.things), layout.setting)


@pytest.mark.parametrize("count", [1, 2, None])
def test_what_is_held_out_never_appears_in_training(count: int | None):
    training = laid_out(count=count, held_out=False)
    held_out = [layouts.lay_out(HELD_OUT_SEED + k, count, held_out=True) for k in range(1500)]
    assert not {combination(layout) for layout in training} & set(map(combination, held_out))
    for layout in training:
        assert not layouts.is_held_out(layout)
        assert not {(t.colour, t.noun) for t in layout.things} & layouts.UNSEEN_PAIRS
    assert all(layouts.is_held_out(layout) for layout in held_out)


def test_about_one_combination_in_eight_is_held_out():
    share = np.mean([layouts.is_held_out(layout) for layout in laid_out(3000, count=2)])
    assert 0.125 < share < 0.25  # an eighth, and the pairs of colour and noun that are never shown
