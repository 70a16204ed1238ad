"""Maps beside cause: which words are left out, how they are compared, and what is told of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import made_ablation, with_refined
from PIL import Image

from evaluation import judge, trust
from heedmap.text.words import tokenize
from world import layouts

# --- what is left out -------------------------------------------------------------------------


def test_pictures_are_held_out_and_tell_their_things_apart():
    plans = trust.plans(30)
    assert len({plan.layout.seed for plan in plans}) == 30
    assert len({plan.seed for plan in plans}) == 30
    for plan in plans:
        layout = plan.layout
        assert layouts.is_held_out(layout) and layout.relation in trust.DIRECTIONS
        assert len({thing.noun for thing in layout.things}) == 2
        assert len({thing.colour for thing in layout.things}) == 2
    assert [plan.caption for plan in trust.plans(3)] == [plan.caption for plan in plans[:3]]
    assert [plan.seed for plan in trust.plans(3, 1)] != [plan.seed for plan in plans[:3]]


def test_words_stand_in_the_caption_once(embedded):
    first = 0
    for plan in trust.plans(30):
        table = tokenize(plan.caption.text, embedded.tokenizer)
        noun, colour, relation = trust.words_of(plan)
        assert [word.kind for word in (noun, colour, relation)] == [*trust.KINDS]
        (number,) = noun.things
        mine, other = plan.layout.things[number], plan.layout.things[1 - number]
        assert noun.things == colour.things and relation.things == (0, 1)
        assert (noun.text, noun.other) == (mine.noun, other.noun)
        assert (colour.text, colour.other) == (mine.colour, other.colour)
        assert relation.text in layouts.RELATIONS[plan.layout.relation]
        assert relation.other == noun.text
        for word in (noun, colour, relation):
            assert len(table.matches(word.text)) == len(table.matches(word.other)) == 1
        if relation.text.endswith(" of"):  # the whole of it: "to the left of", not "left of"
            assert f"to the {relation.text}" not in plan.caption.text
        first += number == 0
    assert 5 < first < 25  # of either thing


def test_masks_of_the_judge_are_put_to_the_words():
    plan = trust.plans(1)[0]
    masks = np.zeros((2, 32, 32), bool)
    masks[0, :16, :16], masks[1, 20:, 20:] = True, True
    found = [
        judge.Found(thing.noun, thing.colour, mask, (0.5, 0.5), 0.1)
        for thing, mask in zip(plan.layout.things, masks, strict=True)
    ]
    said = judge.Judgement((*found[::-1],), "none")
    noun, _, relation = trust.words_of(plan)
    mine = trust.things_of(plan, said, noun, (64, 64))
    np.testing.assert_array_equal(mine, np.kron(masks[noun.things[0]], np.ones((2, 2))) > 0)
    both = trust.things_of(plan, said, relation, (64, 64))
    np.testing.assert_array_equal(both, np.kron(masks.any(axis=0), np.ones((2, 2))) > 0)


# --- how it is compared -----------------------------------------------------------------------


@pytest.fixture
def found() -> Any:
    made = made_ablation()
    made = replace(made, run=with_refined(made.run))
    black = np.zeros((128, 128, 3), np.uint8)
    lit = black.copy()
    lit[:64] = 200  # the upper half changes, in one way; nothing in the other
    run, attention, prompt = (
        replace(one, image=Image.fromarray(pixels))
        for one, pixels in (
            (made.run, black),
            (made.without["attention"], lit),
            (made.without["prompt"], black),
        )
    )
    return replace(made, run=run, without={"attention": attention, "prompt": prompt})


def test_maps_are_compared_with_a_change_and_an_object(found):
    word = trust.Word("noun", "house", (0,), "sea")
    thing = np.zeros((64, 64), bool)
    thing[:32] = True
    told = trust.compared(found, word, thing)
    one = told["attention"]
    assert [*one.maps] == [*trust.MAPS]
    assert one.on_thing == pytest.approx(1, abs=1e-3)
    assert one.moved == pytest.approx(100 / 255, rel=1e-3)
    assert one.maps["thing"][0] > 0.9 and one.maps["thing"][1] == pytest.approx(1, abs=0.02)
    assert one.maps["other way"][0] is None  # which changes nothing
    own = found.agreement["attention"]
    assert one.maps["mean"] == (own.heat.rank, own.heat.auc)
    assert own.refined is not None
    assert one.maps["refined"] == (own.refined.rank, own.refined.auc)
    assert one.maps["mask"] == (own.mask.rank, own.mask.auc)
    sea = replace(found, word="sea").agreement["attention"]
    assert one.maps["another word"] == (sea.heat.rank, sea.heat.auc)
    none = told["prompt"]
    assert none.moved == 0 and none.on_thing == 0.5
    assert set(none.maps.values()) == {(None, None)}


# --- figures ----------------------------------------------------------------------------------


def test_means_have_intervals():
    rng = np.random.default_rng(0)
    values = [*np.linspace(0, 1, 40), None]
    told = trust.mean_of(values, rng)
    assert told is not None
    assert (told["n"], told["mean"]) == (40, 0.5)
    low, high = told["interval"]  # 1.96 times the deviation by the root of 40
    assert 0.5 - low == pytest.approx(1.96 * 0.2958 / 40**0.5, rel=0.15)
    assert high - 0.5 == pytest.approx(1.96 * 0.2958 / 40**0.5, rel=0.15)
    assert trust.mean_of([None], rng) is None
    assert trust.mean_of([0.25], rng) == {"n": 1, "mean": 0.25, "interval": [0.25, 0.25]}


def cases(found) -> list[trust.Case]:
    some = []
    for picture, (rank, auc) in enumerate([(0.2, 0.4), (0.6, 0.8)]):
        for kind in trust.KINDS:
            maps = dict.fromkeys(trust.MAPS, (rank, auc))
            maps["other way"] = (None, None)
            told = trust.Told(maps, 0.001 if picture else 0.1, 0.9)
            whole = (1.0, rank, 0.0) if kind == "noun" and not picture else None
            word = trust.Word(kind, "house", (0,), "sea")
            some.append(
                trust.Case(
                    picture, word, found, {"attention": told, "prompt": told},
                    {"mean": 0.9, "refined": None}, whole,
                )
            )  # fmt: skip
    return some


def test_figures_are_summed_over_all_cases(found):
    figures = trust.summed(cases(found), 4, np.random.default_rng(0))
    assert (figures["n"], figures["right"]) == (4, 0.5)
    for kind in trust.KINDS:
        for way in ("attention", "prompt"):
            told = figures["kinds"][kind][way]
            mean = told["maps"]["mean"]
            assert mean["rank"]["mean"] == pytest.approx(0.4)
            assert mean["auc"] == {"n": 2, "mean": 0.6, "interval": mean["auc"]["interval"]}
            assert mean["below_chance"] == 0.5
            other = told["maps"]["other way"]
            assert other == {"rank": None, "auc": None, "below_chance": None}
            assert told["idle"] == 0.5 and told["on_thing"]["mean"] == 0.9
        assert figures["stability"][kind]["mean"]["mean"] == 0.9
        assert figures["stability"][kind]["refined"] is None
    assert figures["renormalized"]["with attention"]["mean"] == 1
    assert figures["renormalized"]["heat and attention"] == {
        "n": 1, "mean": 0.2, "interval": [0.2, 0.2]
    }  # fmt: skip
    empty = trust.summed([], 4, np.random.default_rng(0))
    assert empty["right"] == 0 and empty["kinds"]["noun"]["attention"]["idle"] is None
    for some in (figures, empty):
        assert len([*trust.lines(some)]) == 3 * (2 * 7 + 2) + 3
    rows = trust.table(figures).splitlines()
    assert rows[0] == "| word | map | attention: rank | AUC | prompt: rank | AUC |"
    assert rows[2].startswith("| noun | mean | 0.40 (") and len(rows) == 2 + 3 * 6
    assert rows[7] == "|  | other way | – | – | – | – |"
