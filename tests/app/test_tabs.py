"""The page of the app: what its examples are."""

import itertools

import numpy as np
import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


from evaluation import judge
from heedmap.app import tabs
from heedmap.drawing import editing, generation
from heedmap.models import pipelines
from heedmap.text.alignment import pair_words, swap_of
from heedmap.text.tokens import tokenize
from heedmap.text.weights import parse_weights
from world import captions, layouts


def test_the_examples_are_of_the_world_that_the_embedded_model_draws():
    prompts = [
        *(text for text, _ in tabs.PICTURES),
        *(text for source, target, _, _ in tabs.EDITS for text in (source, target)),
        *(text for source, targets, _, _ in tabs.GRIDS for text in (source, *targets.split("\n"))),
    ]
    known = captions.vocabulary()
    for prompt in prompts:
        assert set(parse_weights(prompt).text.replace(",", "").split()) <= known, prompt


def test_the_edits_on_the_buttons_are_edits():
    tokenizer = pipelines.tokenizer()
    for source, target, only, _ in tabs.EDITS:
        if not target:  # the same words, weighted
            assert parse_weights(source).spans
            continue
        found = pair_words(tokenize(source, tokenizer), tokenize(target, tokenizer))
        changed = [(a.text, b.text) for a, b in found.pairs if a and b and a.text != b.text]
        assert len(changed) == 1
        assert not only or swap_of(only) == tuple(changed)


def told(prompt: str) -> list[str]:
    """The things of a prompt, each with its colour: "red house"."""
    words = parse_weights(prompt).text.replace(",", "").split()
    return sorted(
        f"{before} {noun}"
        for before, noun in itertools.pairwise(words)
        if noun in layouts.NOUNS and before in layouts.COLOURS
    )


def test_each_thing_of_an_example_has_its_colour():
    """A thing without one the embedded model may draw in several."""
    prompts = [text for text, _ in tabs.PICTURES]
    prompts += [text for edit in tabs.EDITS for text in edit[:2] if text]
    prompts += [text for grid in tabs.GRIDS for text in (grid[0], *grid[1].split("\n")) if text]
    for prompt in prompts:
        nouns = [w for w in parse_weights(prompt).text.replace(",", "").split()
                 if w in layouts.NOUNS]  # fmt: skip
        assert nouns and len(told(prompt)) == len(nouns), prompt


@pytest.mark.slow
def test_the_examples_are_drawn_as_they_are_told():
    """With their seeds, by the judge, who has never seen a generated picture."""
    pipe, net = pipelines.load(), judge.load()
    drawn = [
        (text, generation.generate(pipe, text, seed=seed).image) for text, seed in tabs.PICTURES
    ]
    for source, target, only, seed in tabs.EDITS:
        if target:
            pair = editing.edit(pipe, source, target, seed=seed, only=only or None)
            drawn += [(source, pair.source.image), (target, pair.edited.image)]
    found = judge.detect(np.stack([np.asarray(image.convert("RGB")) for _, image in drawn]), net)
    for (prompt, _), said in zip(drawn, found, strict=True):
        things = sorted(f"{thing.colour} {thing.noun}" for thing in said.things)
        assert things == told(prompt), f"choose another seed for {prompt!r}"
