"""How edits are measured: the measures against worked numbers, and figures that answer to edits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from making import table

from evaluation import blends, cases, judge, measures, places, swaps, weights
from evaluation.cases import Swap
from heedmap.backends import loading
from heedmap.errors import ArgumentError
from heedmap.text.words import tokenize
from world import layouts, scenes

# --- measures ---------------------------------------------------------------------------------


def test_a_region_is_widened_by_whole_cells_and_stays_in_the_picture():
    mask = np.zeros((32, 32), bool)
    mask[0, 10] = True
    wide = measures.widened(mask)
    assert wide.sum() == 3 * 5 and wide[2, 8] and wide[2, 12] and not wide[3, 10]
    assert measures.pixels(wide).shape == (128, 128)
    assert measures.pixels(wide)[:12, 32:52].all() and measures.pixels(wide).sum() == 12 * 20


def test_overlap_is_intersection_by_union():
    a, b = np.zeros((2, 2), bool), np.zeros((2, 2), bool)
    assert measures.overlap(a, b) == 0
    a[0], b[:, 0] = True, True
    assert measures.overlap(a, b) == pytest.approx(1 / 3)
    assert measures.overlap(a, a) == 1


def test_squared_error_counts_only_where_it_is_asked():
    a = np.zeros((2, 2, 3), np.uint8)
    b = a.copy()
    b[0, 0], b[1, 1] = 255, 51
    where = np.array([[False, True], [True, True]])
    assert measures.squared_error(a, b, where) == pytest.approx(0.2**2 / 3)
    assert measures.squared_error(b, a, ~where) == 1
    assert measures.squared_error(a, b, where & ~where) == 0


@pytest.mark.parametrize("colour", layouts.COLOURS)
def test_a_colour_has_its_own_share_and_no_other(colour: str):
    picture = np.full((4, 4, 3), layouts.COLOURS[colour], np.uint8)
    every = np.ones((4, 4), bool)
    shares = {name: measures.colour_share(picture, every, name) for name in layouts.COLOURS}
    assert max(shares, key=lambda name: shares[name]) == colour
    assert shares[colour] > 0.8 and sum(shares.values()) == pytest.approx(1)


def test_a_colour_share_grows_with_the_pixels_that_have_it():
    picture = np.full((4, 4, 3), layouts.COLOURS["green"], np.uint8)
    picture[:2] = layouts.COLOURS["red"]
    left = np.zeros((4, 4), bool)
    left[:, 0] = True
    assert measures.colour_share(picture, left, "red") == pytest.approx(0.5, abs=0.03)
    picture[2] = layouts.COLOURS["red"]
    assert measures.colour_share(picture, left, "red") == pytest.approx(0.75, abs=0.03)


def test_rising_is_strict_unless_a_tolerance_is_given():
    assert measures.rises([0.1, 0.2, 0.9])
    assert not measures.rises([0.1, 0.9, 0.9])
    assert measures.rises([0.1, 0.9, 0.89], 0.02)
    assert not measures.rises([0.1, 0.9, 0.87], 0.02)
    assert not measures.rises([0.5, 0.51, 0.515], 0.02), "in all it does not rise"


# --- captions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["noun", "colour"])
def test_swaps_are_held_out_repeatable_and_change_one_word(kind: cases.SwapKind):
    found = cases.swaps(kind, 18)
    assert found[:9] == cases.swaps(kind, 9)
    assert [s.source.seed for s in found[:9]] != [s.source.seed for s in cases.swaps(kind, 9, 1)]
    assert sum(len(s.source.layout.things) == 2 for s in found) == 6
    assert sum(s.retokenized for s in found) == 6
    assert sum(s.retokenized and len(s.source.layout.things) == 2 for s in found) == 2
    tokenizer = loading.tokenizer()
    for swap in found:
        plans = swap.source, swap.target
        for plan in plans:
            assert layouts.is_held_out(plan.layout) and not cases.is_unseen(plan.layout)
        before, after = (plan.layout.things[swap.thing] for plan in plans)
        assert replace(after, **{kind: getattr(before, kind)}) == before != after
        words = [set(plan.caption.text.split()) - {"a", "an"} for plan in plans]
        old, new = (getattr(thing, kind) for thing in (before, after))
        assert words[0] - words[1] <= {old} and words[1] - words[0] <= {new}
        tables = [tokenize(plan.caption.text, tokenizer) for plan in plans]
        counts = {len(table.positions()) for table in tables}
        assert (len(counts) == 2) is swap.retokenized
        assert swap.source.seed == swap.target.seed


# --- the rules of others ----------------------------------------------------------------------


def test_the_published_mapper_reads_its_neighbours_columns_after_a_longer_word():
    tables = [tokenize(f"a {noun} here", loading.tokenizer()) for noun in ("cat", "cactus")]
    published = swaps.published_columns(*tables)
    here = [table.find("here")[0] for table in tables]
    assert here == [3, 4]
    assert published[2].nonzero().flatten().tolist() == [2, 3] and float(published[2, 3]) == 0.5
    assert published[:, 4].nonzero().flatten().tolist() == [4]  # the source's end, not its word


def entries(columns: torch.Tensor) -> dict[tuple[int, int], float]:
    return {(w, n): round(float(columns[w, n]), 6) for w, n in columns.nonzero().tolist()}


def test_the_published_mapper_by_hand():
    """Worked on paper from the published definition; "house" is one token here, "dog" three."""
    # <start> a d o g at <end> and 3 of padding -> <start> a house at <end> and 5 of padding
    tables = table("a dog at", 10), table("a house at", 10)
    assert [t.find("at") for t in tables] == [(5,), (3,)]
    start = {(0, 0): 1, (1, 1): 1}
    onto_one = {(2, 2): 1, (3, 2): 1, (4, 2): 1}
    # Two tokens less: the last two columns of the padding take nothing.
    assert entries(swaps.published_columns(*tables)) == {
        **start, **onto_one, **{(n, n): 1 for n in range(3, 8)},
    }  # fmt: skip
    # Two tokens more: all of the target's are reached.
    third = round(1 / 3, 6)
    assert entries(swaps.published_columns(*tables[::-1])) == {
        **start, **{(2, n): third for n in (2, 3, 4)}, **{(n, n): 1 for n in range(5, 10)},
    }  # fmt: skip
    # Two swaps whose numbers make up for one another: "at" between them is shifted back.
    tables = table("dog at house", 10), table("house at dog", 10)
    assert entries(swaps.published_columns(*tables)) == {
        (0, 0): 1, **{(w, 1): 1 for w in (1, 2, 3)}, (4, 2): 1,
        **{(5, n): third for n in (3, 4, 5)}, **{(n, n): 1 for n in range(6, 10)},
    }  # fmt: skip
    # As many tokens: one for one. A comma belongs to the word before it.
    tables = table("a dog, at", 10), table("a cow, at", 10)
    assert entries(swaps.published_columns(*tables)) == {(n, n): 1 for n in range(10)}
    tables = table("a dog, at", 10), table("a house, at", 10)
    assert entries(swaps.published_columns(*tables)) == {
        **start, **{(w, n): 0.5 for w in (2, 3, 4, 5) for n in (2, 3)},
        **{(n, n): 1 for n in range(4, 8)},
    }  # fmt: skip
    with pytest.raises(ArgumentError):
        swaps.published_columns(table("a dog"), table("a big dog"))


# --- what came of swaps -----------------------------------------------------------------------


def rendered(swap: Swap, name: str) -> np.ndarray:
    """A faultless picture: of the source, of its edit, or of the target drawn elsewhere."""
    layout = swap.source.layout if name == "source" else swap.target.layout
    if name == "plain":
        moved = tuple(replace(thing, x=1 - thing.x) for thing in layout.things)
        layout = replace(layout, seed=layout.seed + 1, things=moved)
    return scenes.render(layout).image


def drawn(swap: Swap, edited: str) -> swaps.Drawn:
    pictures = {name: rendered(swap, name) for name in ("source", "plain")}
    pictures["edit"] = rendered(swap, edited)
    pictures["without_blend"] = rendered(swap, "target")
    said = judge.detect(np.stack(list(pictures.values())))
    return swaps.Drawn(swap, pictures, dict(zip(pictures, said, strict=True)))


@pytest.fixture(scope="module")
def twelve() -> list[Swap]:
    return [*cases.swaps("noun", 6), *cases.swaps("colour", 6)]


def test_a_faultless_edit_gets_full_marks(twelve: list[Swap]):
    figures = swaps.figures_of([drawn(swap, "target") for swap in twelve])
    assert figures["n"] == 12
    assert figures["success"] == figures["success_of_attainable"] == figures["source_right"] == 1
    assert figures["outside_mse_ratio"] < 0.01 and figures["outside_mse_ratio_median"] < 0.01
    place = figures["same_place"]
    assert place["overlap"] > 0.6 and place["overlap"] > place["plain"] and place["n"] == 12
    assert figures["retokenized"]["n"] == 0, "the third three of nine change it"
    assert figures["inside_mse_ratio"] == figures["cut"] == 0


def test_an_edit_that_was_half_blended_away_is_measured(twelve: list[Swap]):
    """Half of the thing came through, from the left."""
    case = drawn(twelve[0], "target")
    thing = measures.pixels(case.edited_cells("without_blend"))
    columns = np.flatnonzero(thing.any(axis=0))
    half = np.arange(128) < columns.mean()
    mixed = np.where(half[None, :, None], case.pictures["edit"], case.pictures["source"])
    figures = swaps.figures_of([replace(case, pictures={**case.pictures, "edit": mixed})])
    apart = np.square(case.pictures["source"] / 255 - case.pictures["without_blend"] / 255)
    expected = apart[thing & ~half].sum() / apart[thing].sum()
    assert figures["inside_mse_ratio"] == pytest.approx(expected, abs=1e-4)
    assert 0.2 < expected < 0.8 and figures["cut"] == 1


def test_an_edit_that_does_nothing_keeps_all_and_wins_nothing(twelve: list[Swap]):
    all_drawn = [drawn(swap, "source") for swap in twelve]
    figures = swaps.figures_of(all_drawn)
    assert figures["success"] == 0 and figures["outside_mse_ratio"] == 0
    assert figures["inside_mse_ratio"] == figures["cut"] == 1
    assert figures["same_place"] == {"n": 0, "overlap": None, "plain": None}
    assert all(case.verdict.startswith("WRONG") for case in all_drawn)


def test_plain_generation_keeps_nothing_by_its_own_measure(twelve: list[Swap]):
    figures = swaps.figures_of([drawn(swap, "plain") for swap in twelve], "same_seed")
    assert figures["outside_mse_ratio"] == figures["outside_mse_ratio_median"] == 1
    assert figures["success_of_attainable"] == 1


def test_objects_that_stay_are_no_part_of_the_region(twelve: list[Swap]):
    swap = next(swap for swap in twelve if len(swap.source.layout.things) == 2)
    case = drawn(swap, "target")
    staying = scenes.render(swap.source.layout).masks[1 - swap.thing]
    changing = scenes.render(swap.source.layout).masks[swap.thing]
    region = case.region("edit")
    assert (region & changing).sum() > 0.97 * changing.sum()
    assert (measures.pixels(case.edited_cells("source")) & staying).sum() < 0.1 * staying.sum()


def test_a_mask_is_measured_against_the_thing(twelve: list[Swap]):
    picture = np.zeros((128, 128, 3), np.uint8)
    mask, thing, none = np.zeros((3, 128, 128), bool)
    thing[:64, :64], mask[:64] = True, True
    cases_of = [
        blends.Blended(twelve[0], picture, picture, mask, thing, True),
        blends.Blended(twelve[1], picture, picture, mask, none, False),
    ]
    assert blends.figures_of(cases_of) == {
        "n": 2, "success": 0.5, "overlap": 0.5, "let_in": 0.5, "covered": 1.0, "thing": 0.25,
    }  # fmt: skip
    panels = blends.panels(cases_of)
    assert len(panels) == 6 and panels[1].note.startswith("WRONG")


# --- what came of weights and places ----------------------------------------------------------


def weighted(values: dict[float, float]) -> weights.Weighted:
    return weights.Weighted(cases.singles("reweight", 1)[0], "red", {}, values)


def test_weights_are_judged_in_their_order_and_where_they_were_drawn_right():
    steps = dict(zip((1.0, -1.0, 4.0, 0.0, 2.0), (0.5, 0.1, 0.89, 0.2, 0.9), strict=True))
    figures = weights.figures_of([weighted(steps), weighted(steps | {4.0: 0.95}), weighted({})])
    assert figures["n"] == 2 and figures["strictly"] == 0.5 and figures["monotone"] == 1
    assert figures["means"] == {"-1": 0.1, "0": 0.2, "1": 0.5, "2": 0.9, "4": 0.92}


def test_the_share_of_a_colour_is_measured_where_the_thing_is():
    # Not white, as snow is.
    plan = next(p for p in cases.singles("reweight", 9) if p.layout.things[0].colour != "white")
    (thing,) = plan.layout.things
    other = "green" if thing.colour != "green" else "red"
    laid = {
        1.0: plan.layout,
        0.0: replace(plan.layout, things=(replace(thing, colour=other),)),
        -1.0: replace(plan.layout, things=()),
    }
    pictures = {weight: scenes.render(layout).image for weight, layout in laid.items()}
    case = weights.Weighted(plan, thing.colour, pictures, {})
    values = weights.measured(case, "colour", judge.load()).values
    assert values[1.0] > values[0.0] + 0.3 and values[1.0] > values[-1.0] + 0.3
    wrong = weights.Weighted(plan, thing.colour, {1.0: pictures[0.0]}, {})
    assert weights.measured(wrong, "colour", judge.load()).values == {}


def test_a_setting_is_measured_by_how_sure_the_judge_is():
    plan = cases.singles("setting", 1, with_setting=True)[0]
    pictures = {
        weight: scenes.render(replace(plan.layout, setting=setting)).image
        for weight, setting in ((1.0, plan.layout.setting), (0.0, "none"))
    }
    case = weights.Weighted(plan, "", pictures, {})
    values = weights.measured(case, "setting", judge.load()).values
    assert values[1.0] > 0.9 and values[0.0] < 0.1


def test_a_thing_lies_in_a_half_by_its_centre():
    plan = cases.singles("confine", 1)[0]
    (thing,) = plan.layout.things
    left = replace(plan.layout, things=(replace(thing, x=0.35, y=0.6),))
    pictures = {
        "plain": scenes.render(left).image,
        "confined": np.full((128, 128, 3), 200, np.uint8),
    }
    said = dict(zip(pictures, judge.detect(np.stack(list(pictures.values()))), strict=True))
    inside = {
        half: places.Placed(plan, half, pictures, said).inside("plain") for half in places.HALVES
    }
    assert inside == {"left": True, "right": False, "top": False, "bottom": True}
    case = places.Placed(plan, "left", pictures, said)
    assert not case.inside("confined"), "where nothing is, nothing lies"
    figures = places.figures_of([case])
    assert figures["n"] == 1 and figures["inside"] == 0 and figures["plain"]["inside"] == 1
