"""Captions: they speak of what is in the scene, and say which characters do."""

import re
from itertools import pairwise
from random import Random

import pytest

from world import captions, layouts
from world.captions import Caption
from world.layouts import Layout


def lay_out(n: int = 400, **kind: object) -> list[Layout]:
    return [layouts.lay_out(seed, **kind) for seed in range(n)]  # type: ignore[arg-type]


def captions_of(layout: Layout) -> list[Caption]:
    """A free caption, one with all that it can say, and one without natural colours."""
    rng = Random(layout.seed)
    return [
        captions.caption(layout, rng),
        captions.object_caption(layout, rng),
        captions.object_caption(layout, rng, colours=False),
    ]


def mentioned(caption: Caption, kind: str) -> list[int]:
    """The numbers of the things whose noun or colour is mentioned, in their order."""
    return [k for mention in caption.mentions if mention.kind == kind for k in mention.things]


def test_mentions_are_the_words_that_they_say():
    for layout in lay_out(800):
        for caption in captions_of(layout):
            assert all(a.end <= b.start for a, b in pairwise(caption.mentions))
            for mention in caption.mentions:
                words = caption.text[mention.start : mention.end]
                if mention.kind == "setting":
                    assert words in layouts.SETTINGS[layout.setting] and mention.things == ()
                    continue
                (number,) = mention.things
                thing = layout.things[number]
                names = {"noun": (thing.noun,), "colour": (thing.colour,)}
                assert words in (names | {"size": layouts.SIZES.get(thing.size, ())})[mention.kind]


@pytest.mark.parametrize("count", [2, 3])
def test_several_are_named_together_by_number_or_plural(count: int):
    without_number = 0
    for layout in lay_out(count=count, kind="several"):
        thing = layout.things[0]
        expected = {
            "noun": captions.PLURALS[thing.noun],
            "colour": thing.colour,
            "count": captions.NUMBERS[count],
        }
        for number, caption in enumerate(captions_of(layout)):
            kinds = {mention.kind for mention in caption.mentions}
            for mention in caption.mentions:
                if mention.kind != "setting":
                    assert mention.things == tuple(range(count))
                if mention.kind in expected:
                    words = caption.text[mention.start : mention.end]
                    assert words == expected[mention.kind]
            assert number == 0 or "count" in kinds
            without_number += "count" not in kinds
    assert 40 < without_number < 130


@pytest.mark.parametrize("kind", ["different", "several", "twins"])
def test_only_natural_colours_are_left_out(kind: str):
    omissions = 0
    for layout in lay_out(600, kind=kind):
        natural = {k for k, thing in enumerate(layout.things) if thing.natural}
        for number, caption in enumerate(captions_of(layout)):
            silent = set(range(len(layout.things))) - set(mentioned(caption, "colour"))
            assert silent <= natural and (not silent or number in (0, 2))
            omissions += bool(silent) and number == 0
    assert omissions > 40 if kind != "twins" else omissions == 0


def test_object_captions_say_nouns_colours_relation_and_setting():
    for layout in lay_out(800):
        things = list(range(len(layout.things)))
        _, caption, plain = captions_of(layout)
        assert mentioned(caption, "noun") == mentioned(caption, "colour") == things
        twins = len({thing.noun for thing in layout.things}) < len(things)
        unnatural = [k for k in things if twins or not layout.things[k].natural]
        assert mentioned(plain, "noun") == things and mentioned(plain, "colour") == unnatural
        kinds = {mention.kind for mention in caption.mentions}
        assert layout.setting == "none" or "setting" in kinds
        ways = "|".join(layouts.RELATIONS.get(layout.relation, ("",)))
        assert re.search(rf"\b({ways})\b", caption.text)


def test_the_vocabulary_is_that_of_captions():
    known = captions.vocabulary()
    for layout in [*lay_out(), *lay_out(kind="several")]:
        words = captions.object_caption(layout, Random(layout.seed)).text.replace(",", "").split()
        assert set(words) <= known
    phrases = [phrase for row in captions.phrases().values() for phrase in row]
    assert {word for phrase in phrases for word in phrase.split()} <= known
