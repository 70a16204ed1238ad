"""The page of the app: what its examples are."""

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


from heedmap.app import tabs
from heedmap.models import pipelines
from heedmap.text.alignment import pair_words, swap_of
from heedmap.text.tokens import tokenize
from heedmap.text.weights import parse_weights
from world import captions


def test_the_examples_are_of_the_world_that_the_embedded_model_draws():
    prompts = [
        *tabs.PICTURES,
        *(text for source, target, _ in tabs.EDITS for text in (source, target)),
    ]
    known = captions.vocabulary()
    for prompt in prompts:
        assert set(parse_weights(prompt).text.replace(",", "").split()) <= known, prompt


def test_the_edits_on_the_buttons_are_edits():
    tokenizer = pipelines.tokenizer()
    for source, target, only in tabs.EDITS:
        if not target:  # the same words, weighted
            assert parse_weights(source).spans
            continue
        found = pair_words(tokenize(source, tokenizer), tokenize(target, tokenizer))
        changed = [(a.text, b.text) for a, b in found.pairs if a and b and a.text != b.text]
        assert len(changed) == 1
        assert not only or swap_of(only) == tuple(changed)
