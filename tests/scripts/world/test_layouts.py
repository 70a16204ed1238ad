"""What is in a scene: the same from a seed, and as its own words say."""

import pytest

from world import layouts
from world.layouts import HELD_OUT_SEED, Layout


def lay_out(n: int = 1500, **kind: object) -> list[Layout]:
    return [layouts.lay_out(seed, **kind) for seed in range(n)]  # type: ignore[arg-type]


def pairs_of(layout: Layout) -> list[tuple[str, str]]:
    return sorted((thing.colour, thing.noun) for thing in layout.things)


def test_everything_occurs_and_no_thing_twice():
    every = lay_out()
    things = [thing for layout in every for thing in layout.things]
    assert {thing.noun for thing in things} == set(layouts.NOUNS)
    assert {thing.colour for thing in things} == set(layouts.COLOURS)
    assert {thing.size for thing in things} == {"", *layouts.SIZES}
    assert {layout.setting for layout in every} == set(layouts.SETTINGS)
    assert {layout.relation for layout in every} == {"", *layouts.RELATIONS}
    assert {len(layout.things) for layout in every} == {1, 2, 3}
    for layout in every:
        assert len({*pairs_of(layout)}) == len(layout.things)


def test_twins_are_of_one_noun_and_several_are_alike():
    for layout in lay_out(400, kind="twins"):
        one, two = layout.things
        assert one.noun == two.noun and one.colour != two.colour
    several = lay_out(400, kind="several")
    assert {len(layout.things) for layout in several} == {2, 3}
    for layout in several:
        assert layout.relation == "several" and len({*pairs_of(layout)}) == 1
        assert len({thing.size for thing in layout.things}) == 1


def test_things_lie_as_the_relation_says():
    for layout in [*lay_out(count=2), *lay_out(400, kind="twins")]:
        one, two = layout.things
        across, down = two.x - one.x, two.y - one.y
        ahead = {"left": across, "right": -across, "above": down, "below": -down}
        if layout.relation in ahead:
            offset = down if layout.relation in ("left", "right") else across
            assert ahead[layout.relation] > abs(offset)


@pytest.mark.parametrize("count", [1, 2, None])
def test_what_is_held_out_never_appears_in_training(count: int | None):
    training = lay_out(count=count, held_out=False)
    held_out = [layouts.lay_out(HELD_OUT_SEED + k, count, held_out=True) for k in range(1500)]
    combinations = {(*pairs_of(layout), layout.setting) for layout in training}
    assert not combinations & {(*pairs_of(layout), layout.setting) for layout in held_out}
    assert not any(layouts.is_held_out(layout) for layout in training)
    assert not {pair for layout in training for pair in pairs_of(layout)} & layouts.UNSEEN_PAIRS
    assert all(layouts.is_held_out(layout) for layout in held_out)
