"""Maps of generated images: masks come of pixels, and only of objects that are there."""

from itertools import islice

from evaluation import drawn, judge, measures, truth
from world import layouts, scenes


def test_masks_are_those_of_the_captions_things():
    """Of a rendered scene they are its own, whatever order the judge has its things in."""
    compared = 0
    for _, layout in islice(truth.held_out(drawn.FIRST + 5_000_000), 5):
        scene = scenes.render(layout)
        (judgement,) = judge.detect(scene.image[None])
        masks = drawn.masks_of(layout, scene.image, judgement)
        if judgement.kinds != sorted((t.colour, t.noun) for t in layout.things):
            continue
        if layout.relation == "several":
            overlaps = [measures.overlap(masks.any(axis=0), scene.masks.any(axis=0))]
        else:
            overlaps = [*map(measures.overlap, masks, scene.masks)]
        assert min(overlaps) > 0.75
        compared += 1
    assert compared > 2


def thing(noun: str, colour: str, x: float) -> layouts.Thing:
    return layouts.Thing(noun, colour, "", x, 0.5, 0.16, 1.0, 5)


def test_objects_that_the_judge_counts_differently_have_no_mask():
    shown = layouts.Layout(5, (thing("cat", "red", 0.25), thing("house", "blue", 0.75)), "none", "")
    image = scenes.render(shown).image
    (judgement,) = judge.detect(image[None])
    things = (thing("cat", "red", 0.7), thing("tree", "blue", 0.2), thing("house", "green", 0.5))
    masks = drawn.masks_of(layouts.Layout(5, things, "none", ""), image, judgement)
    assert masks[0].any() and not masks[1:].any()  # neither a blue tree nor a green house is there
    assert masks[0][:, :64].sum() > 0.9 * masks[0].sum()  # where it is, not where it was laid out
    two = layouts.Layout(5, (thing("cat", "red", 0.2), thing("cat", "red", 0.8)), "none", "several")
    assert not drawn.masks_of(two, image, judgement).any()
