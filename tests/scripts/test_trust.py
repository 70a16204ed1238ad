"""Maps beside cause: which words are left out, how they are compared, and what is summed."""

from dataclasses import replace

import numpy as np
import pytest
from making import random_ablation, with_refined
from PIL import Image

from evaluation import judge, trust
from heedmap.results.ablations import Ablation
from heedmap.text.tokenization import tokenize
from world import layouts

# --- what is left out -------------------------------------------------------------------------


def test_words_that_are_left_out_stand_in_the_caption_once(embedded):
    plans = trust.plans(30)
    assert plans[:3] == trust.plans(3) and plans[0].seed != trust.plans(1, 1)[0].seed
    for plan in plans:
        things, relation_of = plan.layout.things, plan.layout.relation
        assert layouts.is_held_out(plan.layout) and relation_of in trust.DIRECTIONS
        table = tokenize(plan.caption.text, embedded.tokenizer)
        noun, colour, relation = trust.words_of(plan)
        assert [word.kind for word in (noun, colour, relation)] == [*trust.KINDS]
        (number,) = noun.things
        thing, other = things[number], things[1 - number]
        assert noun.things == colour.things and relation.things == (0, 1)
        assert (noun.text, noun.other) == (thing.noun, other.noun)
        assert (colour.text, colour.other) == (thing.colour, other.colour)
        assert relation.text in layouts.RELATIONS[relation_of] and relation.other == noun.text
        for word in (noun, colour, relation):
            assert len(table.matches(word.text)) == len(table.matches(word.other)) == 1
        # The whole of it: "to the left of", not "left of".
        assert f"to the {relation.text}" not in plan.caption.text


def test_masks_of_the_judge_are_those_of_the_words_things():
    plan = trust.plans(1)[0]
    masks = np.zeros((2, 32, 32), bool)
    masks[0, :16, :16], masks[1, 20:, 20:] = True, True
    found = [
        judge.Found(thing.noun, thing.colour, mask, (0.5, 0.5), 0.1)
        for thing, mask in zip(plan.layout.things, masks, strict=True)
    ]
    judgement = judge.Judgement((*found[::-1],), "none")
    noun, _, relation = trust.words_of(plan)
    for word, expected in ((noun, masks[noun.things[0]]), (relation, masks.any(axis=0))):
        mask = trust.things_of(plan, judgement, word, (64, 64))
        np.testing.assert_array_equal(mask, np.kron(expected, np.ones((2, 2))) > 0)


@pytest.fixture
def ablation() -> Ablation:
    """The upper half changes, in one way; nothing in the other."""
    made = random_ablation()
    black = np.zeros((128, 128, 3), np.uint8)
    bright = black.copy()
    bright[:64] = 200
    attention = replace(made.without["attention"], image=Image.fromarray(bright))
    prompt = replace(made.without["prompt"], image=Image.fromarray(black))
    run = replace(with_refined(made.run), image=Image.fromarray(black))
    return replace(made, run=run, without={"attention": attention, "prompt": prompt})


def test_maps_are_compared_with_a_change_and_an_object(ablation: Ablation):
    word = trust.Word("noun", "house", (0,), "sea")
    thing = np.arange(64)[:, None] < np.full(64, 32)
    both = trust.compared(ablation, word, thing)
    one = both["attention"]
    assert one.on_thing == pytest.approx(1, abs=1e-3)
    assert one.moved == pytest.approx(100 / 255, rel=1e-3)
    assert one.maps["thing"][0] > 0.9 and one.maps["thing"][1] == pytest.approx(1, abs=0.02)
    assert one.maps["other way"][0] is None  # which changes nothing
    own = ablation.agreement["attention"]
    assert own.refined is not None
    assert one.maps["mean"] == (own.heat.rank, own.heat.auc)
    assert one.maps["refined"] == (own.refined.rank, own.refined.auc)
    assert one.maps["mask"] == (own.mask.rank, own.mask.auc)
    sea = replace(ablation, word="sea").agreement["attention"]
    assert one.maps["another word"] == (sea.heat.rank, sea.heat.auc)
    assert both["prompt"].moved == 0 and both["prompt"].on_thing == 0.5


def test_means_have_intervals():
    rng = np.random.default_rng(0)
    mean = trust.mean_of([*np.linspace(0, 1, 40), None], rng)
    assert mean is not None
    assert (mean["n"], mean["mean"]) == (40, 0.5)
    low, high = mean["interval"]  # 1.96 times the deviation by the root of 40
    assert 0.5 - low == pytest.approx(1.96 * 0.2958 / 40**0.5, rel=0.15)
    assert high - 0.5 == pytest.approx(1.96 * 0.2958 / 40**0.5, rel=0.15)
    assert trust.mean_of([None], rng) is None


def test_figures_are_summed_over_all_cases(ablation: Ablation):
    cases = []
    for picture, (rank, auc, change) in enumerate([(0.2, 0.6, 0.1), (0.6, 0.8, 0.001)]):
        for kind in trust.KINDS:
            maps = dict.fromkeys(trust.MAPS, (rank, auc)) | {"other way": (None, None)}
            told = trust.Told(maps, change, 0.9)
            ways = {"attention": told, "prompt": told}
            stable = {"mean": 0.9, "refined": None}
            word = trust.Word(kind, "house", (0,), "sea")
            cases.append(trust.Case(picture, word, ablation, ways, stable, (1.0, rank, 0.0)))
    figures = trust.summed(cases, 4, np.random.default_rng(0))
    assert (figures["n"], figures["right"]) == (4, 0.5)
    for kind in trust.KINDS:
        for told in figures["kinds"][kind].values():
            mean = told["maps"]["mean"]
            assert mean["rank"]["mean"] == pytest.approx(0.4)
            assert mean["auc"]["n"] == 2 and mean["auc"]["mean"] == 0.7
            assert mean["below_chance"] == 0
            assert set(told["maps"]["other way"].values()) == {None}
            assert told["idle"] == 0.5 and told["on_thing"]["mean"] == 0.9
        assert figures["stability"][kind]["mean"]["mean"] == 0.9
    assert figures["renormalized"]["heat and attention"]["mean"] == pytest.approx(0.4)
