"""How edits are measured: the measures against worked numbers, and figures that answer to edits."""

from dataclasses import replace

import numpy as np
import pytest
from making import table

from evaluation import blends, cases, judge, measures, places, swaps, weights
from evaluation.cases import Swap
from heedmap.backends import loading
from heedmap.text.tokenization import tokenize
from world import layouts, scenes

# --- measures ---------------------------------------------------------------------------------


def test_a_pixel_is_shared_out_among_the_colours():
    image = np.full((4, 4, 3), layouts.COLOURS["green"], np.uint8)
    image[:3] = layouts.COLOURS["red"]
    where = np.ones((4, 4), bool)
    shares = {name: measures.colour_share(image, where, name) for name in layouts.COLOURS}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["red"] == pytest.approx(0.75, abs=0.03)


# --- captions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["noun", "colour"])
def test_swaps_are_held_out_repeatable_and_change_one_word(kind: cases.SwapKind):
    found = cases.swaps(kind, 9)
    assert found[:3] == cases.swaps(kind, 3) != cases.swaps(kind, 3, 1)
    assert sum(len(swap.source.layout.things) == 2 for swap in found) == 3
    assert sum(swap.retokenized for swap in found) == 3
    for swap in found:
        plans = swap.source, swap.target
        assert all(layouts.is_held_out(plan.layout) for plan in plans)
        assert swap.source.seed == swap.target.seed
        before, after = (plan.layout.things[swap.thing] for plan in plans)
        assert replace(after, **{kind: getattr(before, kind)}) == before != after
        source, target = (set(plan.caption.text.split()) - {"a", "an"} for plan in plans)
        assert source - target <= {getattr(before, kind)}
        assert target - source <= {getattr(after, kind)}
        tables = [tokenize(plan.caption.text, loading.tokenizer()) for plan in plans]
        counts = {len(table.positions()) for table in tables}
        assert (len(counts) == 2) is swap.retokenized


# --- the rules of others ----------------------------------------------------------------------


def entries(source: str, target: str) -> dict[tuple[int, int], float]:
    """The entries of the published mapper that are not 0."""
    columns = swaps.published_columns(table(source, 10), table(target, 10))
    return {(w, n): round(float(columns[w, n]), 6) for w, n in columns.nonzero().tolist()}


def diagonal(start: int, stop: int) -> dict[tuple[int, int], float]:
    return {(n, n): 1 for n in range(start, stop)}


def test_the_published_mapper_equals_the_one_worked_out_by_hand():
    """Worked on paper from the published definition; "house" is one token here, "dog" three."""
    # <start> a d o g at <end> and 3 of padding -> <start> a house at <end> and 5 of padding
    # Two tokens less: the last two columns of the padding take nothing.
    onto_one = {(2, 2): 1, (3, 2): 1, (4, 2): 1}
    assert entries("a dog at", "a house at") == diagonal(0, 2) | onto_one | diagonal(3, 8)
    # Two swaps whose numbers make up for one another: "at" between them is shifted back.
    between = {(1, 1): 1, (2, 1): 1, (3, 1): 1, (4, 2): 1}
    third = {(5, n): round(1 / 3, 6) for n in (3, 4, 5)}
    expected = diagonal(0, 1) | between | third | diagonal(6, 10)
    assert entries("dog at house", "house at dog") == expected
    # A comma belongs to the word before it.
    halves = {(w, n): 0.5 for w in (2, 3, 4, 5) for n in (2, 3)}
    assert entries("a dog, at", "a house, at") == diagonal(0, 2) | halves | diagonal(4, 8)


# --- what came of swaps -----------------------------------------------------------------------


def render(swap: Swap, name: str) -> np.ndarray:
    """A faultless image: of the source, of its edit, or of the target elsewhere."""
    layout = swap.source.layout if name == "source" else swap.target.layout
    if name == "plain":
        moved = tuple(replace(thing, x=1 - thing.x) for thing in layout.things)
        layout = replace(layout, seed=layout.seed + 1, things=moved)
    return scenes.render(layout).image


def draw(swap: Swap, edit: str) -> swaps.Drawn:
    images = {name: render(swap, name) for name in ("source", "plain")}
    images |= {"edit": render(swap, edit), "without_blend": render(swap, "target")}
    judgements = judge.detect(np.stack(list(images.values())))
    return swaps.Drawn(swap, images, dict(zip(images, judgements, strict=True)))


@pytest.fixture(scope="module")
def six() -> list[Swap]:
    return [*cases.swaps("noun", 3), *cases.swaps("colour", 3)]


def test_a_faultless_edit_gets_full_marks(six: list[Swap]):
    drawn = [draw(swap, "target") for swap in six]
    figures = swaps.figures_of(drawn)
    assert figures["n"] == 6
    assert figures["success"] == figures["success_of_attainable"] == figures["source_right"] == 1
    assert figures["outside_mse_ratio"] < 0.01 and figures["outside_mse_ratio_median"] < 0.01
    place = figures["same_place"]
    assert place["overlap"] > 0.6 and place["overlap"] > place["plain"] and place["n"] == 6
    assert figures["inside_mse_ratio"] == figures["cut"] == 0
    plain = swaps.figures_of([draw(swap, "plain") for swap in six[:3]], "same_seed")
    assert plain["outside_mse_ratio"] == plain["outside_mse_ratio_median"] == 1


def test_an_edit_that_does_nothing_keeps_all_and_wins_nothing(six: list[Swap]):
    figures = swaps.figures_of([draw(swap, "source") for swap in six[:3]])
    assert figures["success"] == 0 and figures["outside_mse_ratio"] == 0
    assert figures["inside_mse_ratio"] == figures["cut"] == 1
    assert figures["same_place"] == {"n": 0, "overlap": None, "plain": None}


def test_an_edit_that_was_half_blended_away_is_measured(six: list[Swap]):
    """Half of the thing came through, from the left."""
    case = draw(six[0], "target")
    thing = measures.pixels(case.edited_cells("without_blend"))
    half = np.arange(128) < np.flatnonzero(thing.any(axis=0)).mean()
    mixed = np.where(half[None, :, None], case.pictures["edit"], case.pictures["source"])
    figures = swaps.figures_of([replace(case, pictures={**case.pictures, "edit": mixed})])
    change = np.square(case.pictures["source"] / 255 - case.pictures["without_blend"] / 255)
    expected = change[thing & ~half].sum() / change[thing].sum()
    assert figures["inside_mse_ratio"] == pytest.approx(expected, abs=1e-4)
    assert 0.2 < expected < 0.8 and figures["cut"] == 1


def test_a_mask_is_measured_against_the_thing(six: list[Swap]):
    image = np.zeros((128, 128, 3), np.uint8)
    mask, thing, none = np.zeros((3, 128, 128), bool)
    thing[:64, :64], mask[:64] = True, True
    blended = [
        blends.Blended(six[0], image, image, mask, thing, True),
        blends.Blended(six[1], image, image, mask, none, False),
    ]
    assert blends.figures_of(blended) == {
        "n": 2,
        "success": 0.5,
        "overlap": 0.5,
        "let_in": 0.5,
        "covered": 1.0,
        "thing": 0.25,
    }


# --- what came of weights and places ----------------------------------------------------------


def test_weights_are_judged_in_their_order():
    plan = cases.singles("reweight", 1)[0]
    values = {1.0: 0.5, -1.0: 0.1, 4.0: 0.89, 0.0: 0.2, 2.0: 0.9}
    several = (values, values | {4.0: 0.95}, {})
    figures = weights.figures_of([weights.Weighted(plan, "red", {}, one) for one in several])
    assert figures["n"] == 2 and figures["strictly"] == 0.5 and figures["monotone"] == 1
    assert figures["means"] == {"-1": 0.1, "0": 0.2, "1": 0.5, "2": 0.9, "4": 0.92}


def test_the_share_of_a_colour_is_measured_where_the_thing_is():
    # Not white, as snow is.
    plan = next(p for p in cases.singles("reweight", 9) if p.layout.things[0].colour != "white")
    (thing,) = plan.layout.things
    other = replace(thing, colour="green" if thing.colour != "green" else "red")
    things = {1.0: (thing,), 0.0: (other,), -1.0: ()}
    images = {
        weight: scenes.render(replace(plan.layout, things=some)).image
        for weight, some in things.items()
    }
    case = weights.Weighted(plan, thing.colour, images, {})
    values = weights.measured(case, "colour", judge.load()).values
    assert values[1.0] > values[0.0] + 0.3 and values[1.0] > values[-1.0] + 0.3
    wrong = replace(case, pictures={1.0: images[0.0]})
    assert weights.measured(wrong, "colour", judge.load()).values == {}


def test_a_thing_lies_in_a_half_by_its_centre():
    plan = cases.singles("confine", 1)[0]
    thing = replace(plan.layout.things[0], x=0.35, y=0.6)
    images = {
        "plain": scenes.render(replace(plan.layout, things=(thing,))).image,
        "confined": np.full((128, 128, 3), 200, np.uint8),  # nothing
    }
    judgements = judge.detect(np.stack(list(images.values())))
    found = dict(zip(images, judgements, strict=True))
    placed = {half: places.Placed(plan, half, images, found) for half in places.HALVES}
    inside = {half: case.inside("plain") for half, case in placed.items()}
    assert inside == {"left": True, "right": False, "top": False, "bottom": True}
    figures = places.figures_of([placed["left"]])
    assert figures["n"] == 1 and figures["inside"] == 0 and figures["plain"]["inside"] == 1
