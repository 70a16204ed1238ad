"""Layers and heads ranked by what the image loses without them, beside runs of one's own."""

import numpy as np
import pytest
from making import same_pixels

import heedmap as hm
from heedmap.errors import ArgumentError, SelectionError

PROMPT = "a red house, a tree"


@pytest.fixture(scope="module")
def run(random_model) -> hm.Run:
    return hm.generate(random_model, PROMPT, seed=3, steps=2, guidance=3.0)


@pytest.mark.parametrize("by_head", [False, True])
def test_each_loss_is_that_of_a_run_without_it(random_model, run, by_head):
    done = []
    ranking = hm.rank(
        random_model, run, "house", heads=by_head, layers="up", progress=lambda *at: done.append(at)
    )
    mask = run.maps["house"].mask()
    up = [layer for layer in run.maps.layers if layer.group == "up"]
    heads = sum(layer.heads for layer in up)
    assert len(ranking.removals) == (heads if by_head else len(up))
    assert done[-1] == (2 * len(ranking.removals) + 2,) * 2
    losses = [one.inside for one in ranking.removals]
    assert losses == sorted(losses, reverse=True) and losses[0] > 0
    assert same_pixels(ranking.run.image, run.image)
    for one in ranking.removals[:2]:
        edit = hm.Reweight("house", 0, layers=one.layer, heads=one.head)
        other = hm.generate(random_model, PROMPT, seed=3, steps=2, guidance=3.0, edits=[edit])
        change = np.asarray(run.image, float) - np.asarray(other.image, float)
        change = np.abs(change).mean(axis=-1) / 255
        assert one.inside == pytest.approx(change[mask].mean(), rel=1e-4)
        assert one.outside == pytest.approx(change[~mask].mean(), rel=1e-4)


@pytest.mark.filterwarnings("ignore:the edit .* did not visibly change")
def test_what_cannot_be_ranked_is_refused(random_model, run):
    with pytest.raises(SelectionError):
        hm.rank(random_model, run, "house", layers="absent")
    pair = hm.edit(random_model, "a cat", "a dog", seed=3, steps=1)
    with pytest.raises(ArgumentError):
        hm.rank(random_model, pair, "dog")  # pyright: ignore
