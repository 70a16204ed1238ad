"""Maps of pictures that the model drew: masks come of pixels, only what is there is asked."""

from itertools import islice

import numpy as np

from evaluation import drawn, judge, measures, truth
from world import layouts, scenes


def test_masks_are_those_of_the_captions_things():
    """Of a rendered scene they are its own, whatever order the judge has its things in."""
    for _, layout in islice(truth.held_out(drawn.FIRST + 5_000_000), 5):
        scene = scenes.render(layout)
        (said,) = judge.detect(scene.image[None])
        made = drawn.masks_of(layout, scene.image, said)
        if said.kinds != sorted((t.colour, t.noun) for t in layout.things):
            continue
        alike = layout.relation == "several"
        mine, own = (x.any(axis=0)[None] if alike else x for x in (made, scene.masks))
        assert min(measures.overlap(a, b) for a, b in zip(mine, own, strict=True)) > 0.75


def thing(noun: str, colour: str, x: float) -> layouts.Thing:
    return layouts.Thing(noun, colour, "", x, 0.5, 0.16, 1.0, 5)


def test_objects_that_the_judge_counts_differently_have_no_mask():
    shown = layouts.Layout(5, (thing("cat", "red", 0.25), thing("house", "blue", 0.75)), "none", "")
    picture = scenes.render(shown).image
    (said,) = judge.detect(picture[None])
    told = layouts.Layout(
        5,
        (thing("cat", "red", 0.7), thing("tree", "blue", 0.2), thing("house", "green", 0.5)),
        "none", "",
    )  # fmt: skip
    made = drawn.masks_of(told, picture, said)
    assert made[0].any() and not made[1:].any()  # neither a blue tree nor a green house is there
    assert made[0][:, :64].sum() > 0.9 * made[0].sum()  # where it is, not where it was laid out
    two = layouts.Layout(5, (thing("cat", "red", 0.2), thing("cat", "red", 0.8)), "none", "several")
    assert not drawn.masks_of(two, picture, said).any()  # one is not two


def test_captions_differ_from_those_of_other_evaluations():
    """The rendered scenes of `truth` and what rivals are chosen on begin elsewhere."""
    mine = {layout.seed for _, layout in islice(truth.held_out(drawn.FIRST), 25)}
    others = {layout.seed for _, layout in islice(truth.held_out(), 25)}
    assert not mine & others and min(mine) >= drawn.FIRST > max(others)


def test_masks_do_not_depend_on_where_things_were_laid_out():
    (_, layout) = next(truth.held_out(drawn.FIRST))
    picture = np.full((128, 128, 3), 240, np.uint8)
    (said,) = judge.detect(picture[None])
    assert not drawn.masks_of(layout, picture, said).any()
