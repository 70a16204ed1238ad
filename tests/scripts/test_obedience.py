"""The embedded model draws what its prompt says: its card's figures, measured at a small size."""

import json
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

import heedmap
from evaluation import cases, judge, obedience
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
    "unseen_pairs": "noun_and_colour",
}
LIMITS = {
    "one_object": 0.2,
    "two_objects": 0.1,
    "setting": 0.5,
    "no_colour": 0.3,
    "counts": 0.2,
    "same_noun": 0.2,
}
"""What a model that mixes captions up stays below."""


def read_card(name: str) -> dict[str, Any]:
    return json.loads((FOLDERS[name] / "card.json").read_text(encoding="utf-8"))


# --- the embedded models ----------------------------------------------------------------------


def test_the_autoencoder_is_as_sharp_as_its_card_says(embedded: Any):
    measured = obedience.vae_psnr(embedded, 25)
    assert measured == pytest.approx(read_card("heedmap-tiny")["measured"]["vae_psnr_db"], abs=0.6)


def test_the_model_is_small_enough_to_be_part_of_a_package():
    # The card itself changes by some bytes when the figures are written on it.
    size = obedience.size_mib(FOLDER)
    assert size <= 24
    assert size == pytest.approx(read_card("heedmap-tiny")["measured"]["size_mib"], abs=0.05)


def test_the_transformer_draws_objects_about_as_often_right_as_its_card_says():
    card = read_card("joint")
    pipe, plans = heedmap.load("joint"), obedience.plans("one_object", 4)
    pipe.set_progress_bar_config(disable=True)
    how = {"steps": 25, "guidance": card["defaults"]["guidance"]}
    results = obedience.draw(pipe, "one_object", plans, judge.load(), lambda *_: None, **how)
    right = sum(result.right for result in results) / len(results)
    assert right > card["measured"]["one_object"]["noun_and_colour"] - 0.3


# --- figures ----------------------------------------------------------------------------------


def render(row: str) -> list[obedience.Result]:
    """The results that a faultless model would give: the scenes themselves."""
    plans = obedience.plans(row, 24)
    images = np.stack([scenes.render(plan.layout).image for plan in plans])
    results = []
    for plan, image, judgement in zip(plans, images, judge.detect(images), strict=True):
        run: Any = SimpleNamespace(maps=SimpleNamespace(layers=()), image=Image.fromarray(image))
        results.append(obedience.Result(plan, run, judgement, ()))
    return results


@pytest.fixture(scope="module")
def faultless() -> dict[str, list[obedience.Result]]:
    return {row: render(row) for row in obedience.ROWS}


def test_a_faultless_model_gets_full_marks(faultless):
    figures = obedience.figures_of(faultless)
    for row, figure in ROWS.items():
        assert figures[row].get("n", 24) >= 24 and figures[row][figure] == 1.0, row
    assert figures["small"]["n"] > 5 and figures["small"]["there"] == 1.0
    assert figures["counts"]["three"] == figures["no_colour"]["natural"] == 1.0
    assert figures["no_colour"]["patchwork"] < 0.01


def test_a_model_that_mixes_captions_up_gets_no_marks(faultless):
    rows = {}
    for row, results in faultless.items():
        judgements = [results[-1].said, *(result.said for result in results[:-1])]
        rows[row] = [
            replace(result, said=judgement)
            for result, judgement in zip(results, judgements, strict=True)
        ]
    figures = obedience.figures_of(rows)
    for row, limit in LIMITS.items():
        assert figures[row][ROWS[row]] < limit, row
    assert figures["small"]["there"] < 0.5


def test_equal_objects_that_may_touch_do_not_count_as_right(faultless):
    for row in ("count_two", "count_three", "two_objects"):
        result = faultless[row][0]
        first, *others = result.said.things
        larger = replace(first, area=1.7 * max(thing.area for thing in others))
        changed = replace(result, said=replace(result.said, things=(larger, *others)))
        assert result.right and changed.right == (row == "two_objects")


# --- maps -------------------------------------------------------------------------------------


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


def innermost(mask: np.ndarray) -> tuple[int, int]:
    """The pixel (x, y) of a mask with the most of it around."""
    around = Image.fromarray(mask.astype(np.uint8) * 255).filter(ImageFilter.BoxBlur(8))
    y, x = np.unravel_index(int(np.asarray(around).argmax()), mask.shape)
    return int(x), int(y)


@pytest.mark.parametrize("swapped", [False, True])
def test_words_point_to_their_own_things_where_a_noun_stands_twice(swapped: bool):
    seeds = range(layouts.HELD_OUT_SEED, layouts.HELD_OUT_SEED + 4)
    for layout in (layouts.lay_out(seed, kind="twins") for seed in seeds):
        caption = captions.object_caption(layout, Random(layout.seed))
        scene = scenes.render(layout)
        (judgement,) = judge.detect(scene.image[None])
        peaks = {
            mention.start: innermost(scene.masks[mention.things[0] ^ swapped])
            for mention in caption.mentions
            if mention.things
        }
        plan, maps = cases.Plan(layout, caption, 0), MapsOf(caption, peaks)
        points = list(obedience.points_of(plan, maps, judgement))  # type: ignore[arg-type]
        assert [point.kind for point in points] == ["colour", "noun"] * 2
        assert all(point.inside is not swapped for point in points)


def test_plans_are_held_out_repeatable_and_of_their_row():
    for row in obedience.ROWS:
        plans = obedience.plans(row, 20)
        assert plans[:5] == obedience.plans(row, 5)
        assert [p.seed for p in plans] != [p.seed for p in obedience.plans(row, 20, seed=1)]
        for plan in plans:
            pairs = {(thing.colour, thing.noun) for thing in plan.layout.things}
            assert row == "no_colour_one" or layouts.is_held_out(plan.layout)
            assert bool(pairs & layouts.UNSEEN_PAIRS) == (row == "unseen_pairs")
            kinds = {mention.kind for mention in plan.caption.mentions}
            assert ("colour" in kinds) is not row.startswith("no_colour")
            assert ("count" in kinds) is row.startswith("count")
            assert len(plan.layout.things) == obedience.ROWS[row].things
