"""Observers of attention, and layers that are computed together."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor2_0
from making import cross_attention_layers, random_pipeline, run
from oracle import assert_probabilities, softmax, tolerance
from torch.nn import functional

import heedmap as hm
from heedmap.errors import ArgumentError, NothingRecordedError, TraceError
from heedmap.mathematics.events import AttentionEvent, Layout, RowLayout
from heedmap.mathematics.rules import Site, Weights
from heedmap.recording import accumulation, recorder
from heedmap.recording.controller import edit_row


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
    output = edit_row([Weights(weights)], row, None, Site("", 0, 1, (2, 2))).output()
    exact[..., tokens] *= weights.double()
    torch.testing.assert_close(output.double(), exact @ value[1].double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("module", "name"), [(accumulation, "CACHED"), (recorder, "MAX_ON_CPU")])
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


# --- what is the user's own, and an end that raises ---


class BufferProcessor:
    """A processor that writes its queries and keys to the same tensors in each pass."""

    def __init__(self):
        self.buffers = {}

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, **others):
        text = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        inputs = (attn.to_q(hidden_states), attn.to_k(text), attn.to_v(text))
        parts = [x.unflatten(-1, (attn.heads, -1)).transpose(1, 2) for x in inputs]
        for name, part in zip(("query", "key"), parts, strict=False):
            self.buffers.setdefault(name, torch.empty_like(part)).copy_(part)
        output = functional.scaled_dot_product_attention(*self.buffers.values(), parts[2])
        return attn.to_out[1](attn.to_out[0](output.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("processor", [AttnProcessor2_0, BufferProcessor])
def test_a_kernel_and_buffers_of_the_users_own_serve_a_trace(monkeypatch, processor):
    """The kernel runs as often as without a trace, and stands afterwards."""
    calls, kernel, pipe = [], functional.scaled_dot_product_attention, random_pipeline()
    with hm.trace(pipe, "all") as plain:
        run(pipe, "a red house", steps=3)

    def own(*args, **kwargs):
        calls.append(args)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", own)
    for layer in cross_attention_layers(pipe).values():
        layer.set_processor(processor())
    bare = run(pipe, "a red house", steps=3)
    count = len(calls)
    with hm.trace(pipe, "all") as trace:
        assert np.array_equal(run(pipe, "a red house", steps=3), bare)
    assert functional.scaled_dot_product_attention is own and len(calls) == 2 * count
    for a, b in zip(plain.recordings[0].arrays, trace.recordings[0].arrays, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=0)


def test_a_trace_whose_end_raises_has_no_maps_and_leaves_the_pipeline_as_it_was():
    """Here of a loop with a timestep that is not the scheduler's."""
    pipe, kernel = random_pipeline(), functional.scaled_dot_product_attention
    trace, latents = hm.trace(pipe), torch.zeros(1, 4, 16, 16)
    pipe.scheduler.set_timesteps(2)
    with torch.no_grad(), pytest.raises(TraceError, match="timestep"), trace:
        states, _ = pipe.encode_prompt("a red house", "cpu", 1, False)
        for number, timestep in enumerate(pipe.scheduler.timesteps):
            noise = pipe.unet(latents, timestep - number, states).sample
            latents = pipe.scheduler.step(noise, timestep, latents).prev_sample
    with pytest.raises(NothingRecordedError):
        _ = trace.maps
    assert functional.scaled_dot_product_attention is kernel
    with hm.trace(pipe) as again:
        run(pipe, "a red house", steps=2)
    assert again.maps
