"""Observers of attention, and layers that are computed together."""

import numpy as np
import pytest
import torch
from making import random_pipeline, run
from oracle import assert_probabilities, softmax, tolerance

import heedmap as hm
from heedmap.errors import ArgumentError
from heedmap.mathematics.events import AttentionEvent, Layout, RowLayout
from heedmap.mathematics.rules import Site, Weights
from heedmap.recording import accumulation, grouping
from heedmap.recording.controller import RowEdits


@pytest.mark.parametrize("name", [None, "joint"])
def test_an_observer_is_given_exact_attention_of_each_row(name):
    pipe = hm.load(name)
    prompts = ["a red house", "a cat"]
    bare = run(pipe, prompts, seeds=(0, 1), steps=2)
    sites: set[tuple[str, int]] = set()

    def check(event: AttentionEvent) -> None:
        sites.add((event.layer, event.site.step))
        rows = event.layout.rows
        assert [(row.image, row.branch) for row in rows] == [
            (0, "negative"),
            (1, "negative"),
            (0, "conditional"),
            (1, "conditional"),
        ]
        for number, row in enumerate(rows):
            exact = softmax(event.query[number], event.key[number], event.scale)
            exact = exact[:, row.positions][..., row.tokens]
            found = event.row(number).probabilities()
            near = tolerance(event.query[number], event.key[number], event.scale)
            assert found.shape[1:] == (np.prod(event.site.grid), exact.shape[-1])
            assert_probabilities(found, exact, near)

    with hm.observe(pipe, check):
        observed = run(pipe, prompts, seeds=(0, 1), steps=2)
    assert np.array_equal(bare, observed)
    assert {step for _, step in sites} == {0, 1}
    with pytest.raises(ArgumentError, match="observer"):
        hm.observe(pipe, "entropy")


def test_probabilities_keep_the_graph_of_their_inputs():
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 2, 6, 4, generator=generator)
    query.requires_grad_()
    p = AttentionEvent(query, key, 0.5).probabilities(0, keys=slice(1, 3))
    (found,) = torch.autograd.grad(p[0, 2, 1], query)
    (exact,) = torch.autograd.grad(softmax(query, key, 0.5)[0, 0, 2, 2], query)
    torch.testing.assert_close(found, exact.float(), rtol=1e-5, atol=1e-7)


def test_text_and_image_may_stand_anywhere_in_a_row():
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 2, 7, 4, generator=generator)
    tokens, positions = torch.tensor([6, 0, 3]), torch.tensor([1, 5, 2, 4])
    layout = Layout((RowLayout(), RowLayout(tokens, positions)), joint=True)
    row = AttentionEvent(query, key, 0.5, value=value, layout=layout).row(1)
    exact = softmax(query, key, 0.5)[1][:, positions]
    near = tolerance(query, key, 0.5)
    assert_probabilities(row.probabilities(), exact[..., tokens], near)
    assert_probabilities(row.whole()[..., -1], exact[..., positions].sum(-1), near)
    weights = torch.tensor([2.0, -1.0, 0.0])
    output = RowEdits([Weights(weights)], row, None, Site("", 0, 1, (2, 2))).output()
    exact[..., tokens] *= weights.double()
    torch.testing.assert_close(output.double(), exact @ value[1].double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("module", "name"), [(accumulation, "CACHED"), (grouping, "MAX_HELD")])
@pytest.mark.parametrize("keep", [(), ("layer",), ("layer", "step", "head")])
def test_layers_have_the_same_maps_alone_and_together(monkeypatch, module, name, keep):
    def record():
        pipe = random_pipeline()
        with hm.trace(pipe, keep) as trace:
            run(pipe, "a red house", steps=4)
        return trace.recordings[0]

    together = record()
    monkeypatch.setattr(module, name, 1)
    alone = record()
    for a, b in zip(together.arrays, alone.arrays, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6, rtol=0)
    np.testing.assert_allclose(together.refined, alone.refined, atol=1e-6, rtol=0)
