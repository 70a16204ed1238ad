"""Edits on a pipeline: what they change, what they leave, what is recorded of them."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor
from test_tracing import run, state_without_timing

from heedmap.edits import Inject, Weights
from heedmap.errors import TraceError
from heedmap.steering import Steering
from heedmap.tracing import trace

K = 77


def inject(end=1.0, columns=None):
    columns = torch.eye(K) if columns is None else columns
    return Inject(columns, torch.zeros(K), torch.full((K,), end))


def edited(pipe, prompts, steering, steps=3, keep=("layer",), seeds=None, **arguments):
    with trace(pipe, keep, steering=steering) as recorder:
        images = run(pipe, prompts, seeds or (5,) * len(prompts), steps=steps, **arguments)
    return images, recorder


@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_a_prompt_replaced_by_itself_is_the_plain_picture(pipe, guidance):
    prompts = ["a red house", "a red house"]
    plain = run(pipe, prompts, (5, 5), guidance_scale=guidance)
    steering = Steering({1: [inject(), Weights(torch.ones(K))]}, {1: 0}, {1: (0, 1)})
    images, recorder = edited(pipe, prompts, steering, guidance_scale=guidance)
    assert np.abs(images - plain).max() < 1e-4
    assert np.array_equal(images[0], plain[0])
    assert recorder.steerer.acted == {1: 3 * 7}  # three steps at each of seven layers
    assert recorder.steerer.shared == {1: 3 * 7}
    assert max(recorder.steerer.moved[1]) < 1e-5


def test_only_the_image_that_is_named_is_changed(pipe):
    prompts = ["a red house", "at the cat", "a red house"]
    seeds = (1, 2, 3)
    plain = run(pipe, prompts, seeds)
    images, recorder = edited(
        pipe, prompts, Steering({1: [Weights(torch.full((K,), 3.0))]}), seeds=seeds
    )
    assert np.array_equal(images[[0, 2]], plain[[0, 2]])
    assert np.abs(images[1] - plain[1]).max() > 1e-3
    assert set(recorder.steerer.acted) == {1}


def test_the_maps_are_of_what_was_changed(pipe):
    prompts = ["a red house", "a red sea"]
    _, recorder = edited(
        pipe, prompts, Steering({1: [inject()]}, {1: 0}), keep=("layer", "step", "head")
    )
    source, target = recorder.recordings
    for a, b in zip(source.arrays, target.arrays, strict=True):
        shared = min(a.shape[-1], b.shape[-1])
        np.testing.assert_allclose(a[..., :shared], b[..., :shared], atol=1e-5)
    assert 0 < np.mean(recorder.steerer.moved[1]) < 1


@pytest.mark.parametrize("processor", [None, AttnProcessor])
def test_a_rule_of_a_users_own_does_what_the_fast_way_does(pipe, processor):
    prompts = ["a red house", "a red sea"]
    if processor is not None:
        pipe.unet.set_attn_processor(processor())
    rule = inject(0.5)
    weights = Weights(torch.linspace(-1, 2, K))
    fast, _ = edited(pipe, prompts, Steering({1: [rule, weights]}, {1: 0}, {1: (0, 0.7)}))
    own = [lambda p, site: rule(p, site), lambda p, site: weights(p, site)]
    slow, recorder = edited(pipe, prompts, Steering({1: own}, {1: 0}, {1: (0, 0.7)}))
    np.testing.assert_allclose(fast, slow, atol=1e-4)
    assert np.abs(fast - run(pipe, prompts, (5, 5))).max() > 1e-3
    assert recorder.steerer.acted[1] == 3 * 7


def test_both_kinds_of_processors_give_the_same_edit(pipe):
    prompts = ["a red house", "a red sea"]
    steering = Steering({1: [inject(0.7), Weights(torch.linspace(0, 2, K))]}, {1: 0}, {1: (0, 0.7)})
    fused, _ = edited(pipe, prompts, steering)
    pipe.unet.set_attn_processor(AttnProcessor())
    classic, _ = edited(pipe, prompts, steering)
    np.testing.assert_allclose(fused, classic, atol=1e-4)


def test_restored_also_where_self_attention_was_shared(pipe):
    before = state_without_timing(pipe)
    edited(pipe, ["a house", "a sea"], Steering({1: [inject()]}, {1: 0}, {1: (0, 1)}))
    assert state_without_timing(pipe) == before
    with (
        pytest.raises(RuntimeError, match="stop"),
        trace(pipe, steering=Steering({1: [inject()]}, {1: 0})),
    ):
        raise RuntimeError("stop")
    assert state_without_timing(pipe) == before


def test_slices_cannot_take_from_each_other(pipe):
    pipe.enable_attention_slicing(1)
    with pytest.raises(TraceError, match=r"disable_attention_slicing\(\) before an edit"):
        edited(pipe, ["a house", "a sea"], Steering({1: [inject()]}, {1: 0}))
