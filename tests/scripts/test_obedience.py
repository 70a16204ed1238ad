"""The embedded model draws what it is told: its card's figures, measured again at a small size."""

import json
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

import heedmap
from evaluation import cases, judge, natural, obedience
from heedmap.text.prompts import split_words
from heedmap.text.words import Word
from heedmap.tiny import FOLDER, FOLDERS
from world import captions, layouts, scenes

ROWS = {
    "one_object": "noun_and_colour",
    "two_objects": "nouns_and_colours",
    "relation": "right",
    "setting": "right",
    "no_colour": "noun_right",
    "counts": "two",
    "same_noun": "both_right",
}


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    path = FOLDER / "card.json"
    measured = json.loads(path.read_text(encoding="utf-8")).get("measured")
    assert measured, "no figures on the card: run python scripts/evaluate.py obey --card"
    return measured


@pytest.fixture(scope="module")
def pipe() -> Any:
    pipe = heedmap.load(device="cpu")
    pipe.set_progress_bar_config(disable=True)
    return pipe


# --- the embedded model -----------------------------------------------------------------------


@pytest.mark.slow
def test_autoencoder_is_as_sharp_as_its_card_says(pipe: Any, card: dict[str, Any]):
    # Of the first twelfth of the card's scenes: over all of them it takes a minute.
    measured = obedience.vae_psnr(pipe, card["n"] // 12)
    assert measured == pytest.approx(card["vae_psnr_db"], abs=0.6)


def test_the_model_is_small_enough_to_be_part_of_a_package(card: dict[str, Any]):
    # The card itself changes by some bytes when the figures are written on it.
    size = obedience.size_mib(FOLDER)
    assert size <= 24
    assert size == pytest.approx(card["size_mib"], abs=0.05)


@pytest.mark.slow
def test_the_transformer_draws_single_objects_about_as_often_right_as_its_card_says():
    card = json.loads((FOLDERS["joint"] / "card.json").read_text(encoding="utf-8"))
    pipe, plans = heedmap.load("joint"), obedience.plans("one_object", 6)
    pipe.set_progress_bar_config(disable=True)
    how = {"steps": 25, "guidance": card["defaults"]["guidance"]}
    drawn = obedience.draw(pipe, "one_object", plans, judge.load(), lambda *_: None, **how)
    right = sum(result.right for result in drawn) / len(drawn)
    assert right > card["measured"]["one_object"]["noun_and_colour"] - 0.3


def drawn_as_told(row: str, n: int = 24) -> list[obedience.Result]:
    """The results that a faultless model would give: the scenes themselves."""
    plans = obedience.plans(row, n)
    pictures = np.stack([scenes.render(plan.layout).image for plan in plans])
    runs: list[Any] = [
        SimpleNamespace(maps=SimpleNamespace(layers=()), image=Image.fromarray(picture))
        for picture in pictures
    ]
    return [
        obedience.Result(plan, run, said, ())
        for plan, run, said in zip(plans, runs, judge.detect(pictures), strict=True)
    ]


@pytest.fixture(scope="module")
def faultless() -> dict[str, list[obedience.Result]]:
    return {row: drawn_as_told(row) for row in obedience.ROWS}


def test_a_faultless_model_gets_full_marks(faultless):
    figures = obedience.figures_of(faultless)
    for row, figure in {**ROWS, "unseen_pairs": "noun_and_colour"}.items():
        assert figures[row].get("n", 24) >= 24 and figures[row][figure] == 1.0, row
    assert figures["small"]["n"] > 5 and figures["small"]["there"] == 1.0
    assert figures["counts"] == {"two": 1.0, "three": 1.0}
    assert figures["same_noun"] == {"both_right": 1.0, "pointing": None}
    plain = figures["no_colour"]
    assert plain["noun_right"] == plain["natural"] == 1.0 and plain["patchwork"] < 0.01
    assert {r.verdict for results in faultless.values() for r in results} == {"right"}


def test_equal_objects_that_may_touch_do_not_count_as_right(faultless):
    for row in ("count_two", "count_three", "two_objects"):
        result = faultless[row][0]
        first, *others = result.said.things
        larger = replace(first, area=1.7 * max(thing.area for thing in others))
        said = replace(result.said, things=(larger, *others))
        other = obedience.Result(result.plan, result.run, said, ())
        assert result.right and other.right == (row == "two_objects")
        assert ("may be two that touch" in other.verdict) == other.verdict.startswith("wrong")


def test_a_model_that_mixes_captions_up_gets_no_marks(faultless):
    rows = {}
    for row, results in faultless.items():
        said = [results[-1].said, *(r.said for r in results[:-1])]
        rows[row] = [
            obedience.Result(r.plan, r.run, s, ()) for r, s in zip(results, said, strict=True)
        ]
    figures = obedience.figures_of(rows)
    assert figures["one_object"]["noun_and_colour"] < 0.2
    assert figures["two_objects"]["nouns_and_colours"] < 0.1
    assert figures["setting"]["right"] < 0.5
    assert figures["small"]["there"] < 0.5
    assert figures["no_colour"]["noun_right"] < 0.3 and figures["same_noun"]["both_right"] < 0.2
    assert max(figures["counts"].values()) < 0.2


@pytest.mark.parametrize("noun", layouts.NOUNS)
def test_patchwork_is_what_a_thing_has_of_other_colours(noun: str):
    (thing,) = layouts.lay_out(0, 1).things
    thing = replace(thing, noun=noun, x=0.5, y=0.55, radius=0.3)
    own = layouts.NATURAL[noun]
    other = "purple" if own != "purple" else "green"
    pictures, masks = {}, {}
    for colour in (own, other):
        scene = scenes.render(layouts.Layout(0, (replace(thing, colour=colour),), "none", ""))
        pictures[colour], masks[colour] = scene.image, scene.masks[0]
    cells = masks[own].reshape(32, 4, 32, 4).mean((1, 3)) > 0.5
    found = judge.Found(noun, own, cells, (0.5, 0.5), float(cells.mean()))
    mixed = pictures[own].copy()
    mixed[:, :64] = pictures[other][:, :64]
    part = natural.patchwork(mixed, found)
    assert natural.patchwork(pictures[own], found) < 0.03
    assert 0.05 < part < natural.patchwork(pictures[other], found)


@dataclass
class MapsOf:
    """Maps whose words are hottest where `peaks` says, by their first characters."""

    caption: captions.Caption
    peaks: dict[int, tuple[int, int]]
    layers: tuple[()] = ()

    @property
    def tokens(self) -> Any:
        spans = enumerate(split_words(self.caption.text))
        return SimpleNamespace(words=[Word(k, "", a, b, (k,), 0) for k, (a, b) in spans])

    def at(self, number: int) -> Any:
        return SimpleNamespace(peak=self.peaks[self.tokens.words[number].start])


@pytest.mark.parametrize("swapped", [False, True])
def test_words_point_to_their_own_things_where_a_noun_stands_twice(swapped: bool):
    seeds = range(layouts.HELD_OUT_SEED, layouts.HELD_OUT_SEED + 2000)
    twins = (
        layout for layout in (layouts.lay_out(seed, 2) for seed in seeds)
        if layout.things[0].noun == layout.things[1].noun
    )  # fmt: skip
    for layout in islice(twins, 6):
        caption = captions.object_caption(layout, Random(layout.seed))
        scene = scenes.render(layout)
        (said,) = judge.detect(scene.image[None])
        assert judge.is_right(said, layout)
        inner = [_inmost(mask) for mask in scene.masks]
        peaks = {
            mention.start: inner[mention.things[0] ^ swapped]
            for mention in caption.mentions
            if mention.things
        }
        plan, maps = cases.Plan(layout, caption, 0), MapsOf(caption, peaks)
        points = list(obedience.points_of(plan, maps, said))  # type: ignore[arg-type]
        assert [p.kind for p in points] == ["colour", "noun"] * 2
        assert all(p.inside is not swapped for p in points)


def _inmost(mask: np.ndarray) -> tuple[int, int]:
    """The pixel (x, y) of a mask with the most of it around."""
    around = Image.fromarray(mask.astype(np.uint8) * 255).filter(ImageFilter.BoxBlur(8))
    y, x = np.unravel_index(int(np.asarray(around).argmax()), mask.shape)
    return int(x), int(y)


def test_plans_are_held_out_repeatable_and_of_their_row():
    for row in obedience.ROWS:
        plans = obedience.plans(row, 20)
        assert plans == obedience.plans(row, 30)[:20]
        assert [p.seed for p in plans] != [p.seed for p in obedience.plans(row, 20, seed=1)]
        for plan in plans:
            unseen = {(t.colour, t.noun) for t in plan.layout.things} & layouts.UNSEEN_PAIRS
            assert row == "no_colour_one" or layouts.is_held_out(plan.layout)
            assert bool(unseen) == (row == "unseen_pairs")
            told = {m.kind for m in plan.caption.mentions}
            assert ("colour" in told) is not row.startswith("no_colour")
            assert ("count" in told) is row.startswith("count")
            assert plan.layout.seed >= layouts.HELD_OUT_SEED
            assert len(plan.layout.things) == obedience.ROWS[row].things
            if row == "relation":
                assert plan.layout.relation in obedience.DIRECTIONS
