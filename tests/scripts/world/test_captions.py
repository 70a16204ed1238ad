"""Captions: they speak of what is in the scene, and say which characters do."""

import re
from itertools import pairwise
from random import Random

import pytest

from world import captions, layouts
from world.captions import Caption
from world.layouts import Layout


def laid_out(n: int = 1500, **kind: object) -> list[Layout]:
    return [layouts.lay_out(seed, **kind) for seed in range(n)]  # type: ignore[arg-type]


def told(layout: Layout, seed: int = 0) -> list[Caption]:
    rng = Random(seed)
    return [
        captions.caption(layout, rng),
        captions.object_caption(layout, rng),
        captions.object_caption(layout, rng, colours=False),
    ]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_mentions_are_the_words_that_they_say(count: int):
    for seed, layout in enumerate(laid_out(400, count=count)):
        for caption in told(layout, seed):
            for mention in caption.mentions:
                words = caption.text[mention.start : mention.end]
                if mention.kind == "setting":
                    assert words in layouts.SETTINGS[layout.setting] and mention.things == ()
                    continue
                (thing,) = (layout.things[k] for k in mention.things)
                assert words in ways_of(thing, mention.kind)
            assert all(a.end <= b.start for a, b in pairwise(caption.mentions))


def ways_of(thing: layouts.Thing, kind: str) -> tuple[str, ...]:
    return {
        "noun": (thing.noun,),
        "colour": (thing.colour,),
        "size": layouts.SIZES.get(thing.size, ()),
    }[kind]


@pytest.mark.parametrize("count", [2, 3])
def test_several_are_told_together_by_number_or_plural(count: int):
    plural_alone = 0
    for layout in laid_out(400, count=count, kind="several"):
        thing, everything = layout.things[0], tuple(range(count))
        for number, caption in enumerate(told(layout, layout.seed)):
            said = {mention.kind: mention for mention in caption.mentions}
            words = {kind: caption.text[m.start : m.end] for kind, m in said.items()}
            assert words["noun"] == captions.PLURALS[thing.noun]
            assert words.get("colour", thing.colour) == thing.colour
            assert words.get("count", captions.NUMBERS[count]) == captions.NUMBERS[count]
            assert all(m.things == everything for kind, m in said.items() if kind != "setting")
            assert number == 0 or "count" in words
            plural_alone += "count" not in words
            first = min(m.start for kind, m in said.items() if kind != "setting")
            assert not re.search(r"\ban? $", caption.text[:first]), caption.text
    assert 40 < plural_alone < 130


def test_only_natural_colours_are_left_out():
    left_out = 0
    for kind in ("different", "several", "twins"):
        for layout in laid_out(600, kind=kind):
            natural = {k for k, thing in enumerate(layout.things) if thing.natural}
            for number, caption in enumerate(told(layout, layout.seed)):
                silent = set(range(len(layout.things))) - set(mentioned(caption, "colour"))
                assert silent <= natural and (kind != "twins" or not silent)
                assert not silent or number in (0, 2)
                left_out += bool(silent) and number == 0
    assert left_out > 100


def mentioned(caption: Caption, kind: str) -> list[int]:
    return [k for mention in caption.mentions if mention.kind == kind for k in mention.things]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_object_captions_say_nouns_colours_relation_and_setting(count: int):
    for layout in laid_out(400, count=count):
        everything = list(range(count))
        caption = captions.object_caption(layout, Random(layout.seed))
        plain = captions.object_caption(layout, Random(layout.seed), colours=False)
        assert mentioned(caption, "noun") == mentioned(caption, "colour") == everything
        assert mentioned(plain, "noun") == everything
        twins = len({t.noun for t in layout.things}) < count
        told_colours = [k for k in everything if twins or not layout.things[k].natural]
        assert mentioned(plain, "colour") == told_colours
        if layout.setting != "none":
            assert any(mention.kind == "setting" for mention in caption.mentions)
        if layout.relation:
            ways = "|".join(layouts.RELATIONS[layout.relation])
            assert re.search(rf"\b({ways})\b", caption.text)


def test_two_of_one_noun_are_always_told_with_colours():
    twins = [x for x in laid_out(4000, count=2) if x.things[0].noun == x.things[1].noun]
    assert len(twins) > 100
    twins += laid_out(400, kind="twins")
    for layout in twins:
        for caption in told(layout, layout.seed):
            assert mentioned(caption, "colour") == [0, 1], caption.text


def test_articles_fit_their_words():
    texts = [c.text for layout in laid_out() for c in told(layout, layout.seed)]
    assert any(re.search(r"\ban orange\b", text) for text in texts)
    for text in texts:
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", text), text


def test_the_vocabulary_is_what_captions_are_made_of():
    known = captions.vocabulary()
    for layout in [*laid_out(), *laid_out(400, kind="several")]:
        words = captions.object_caption(layout, Random(layout.seed)).text.replace(",", "").split()
        assert set(words) <= known
    assert {"house", "orange", "giraffe"} & known == {"house", "orange"}


def test_a_prompt_can_be_put_together_of_the_phrases():
    found = captions.phrases()
    assert set(found["nouns"]) == set(layouts.NOUNS) and set(found["colours"]) == set(
        layouts.COLOURS
    )
    for phrase in (phrase for row in found.values() for phrase in row):
        assert set(phrase.split()) <= captions.vocabulary()
