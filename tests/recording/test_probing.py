"""A probe in a run: it ends the run after the pass that is meant, and leaves the rest alone."""

import numpy as np
import pytest
import torch
from diffusers import HeunDiscreteScheduler
from making import run as draw
from making import state_without_timing

from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import SelectionError, TraceError
from heedmap.maps.aims import Aim
from heedmap.recording.calls import RecordingSpec
from heedmap.recording.probing import Probe, Reached, branches_of
from heedmap.recording.tracing import Trace, trace

PROMPT = "a red house"


def aim(layer=None, head=None, step=1, tokens=(3,)) -> Aim:
    return Aim("house", tokens, (9, 9), (64, 64), layer, head, step)


def looked(pipe, probe, steps=3, seeds=(0,), **arguments):
    """How often the model ran until the probe had seen enough."""
    passes = []
    handle = pipe.unet.register_forward_pre_hook(lambda *_: passes.append(1))
    try:
        spec = RecordingSpec(branches=frozenset(branches_of((), probe)))
        with pytest.raises(Reached), Trace(pipe, spec, probe=probe):
            draw(pipe, [PROMPT] * len(seeds), seeds, steps, **arguments)
    finally:
        handle.remove()
    return len(passes)


@pytest.mark.parametrize("step", [0, 2])
def test_it_ends_the_run_and_leaves_the_pipeline(random_model, step):
    before = state_without_timing(random_model)
    probe = Probe(aim(step=step), 0, "conditional", 0)
    assert looked(random_model, probe) == step + 1
    assert state_without_timing(random_model) == before
    assert probe.found is not None
    assert probe.found.table.prompt == PROMPT and probe.found.passes == (0, 1)


def test_what_it_takes_is_what_a_trace_records(random_model):
    """Of the second of two pictures, in all heads."""
    with trace(random_model, keep=("layer", "step", "head"), tokens="all") as open_trace:
        draw(random_model, [PROMPT] * 2, (0, 1), 3)
    recorded = open_trace.recordings[1]
    name = recorded.layers[1].name
    probe = Probe(aim(name, 1), 1, "conditional", 0)
    looked(random_model, probe, seeds=(0, 1))
    taken = probe.found
    assert taken is not None and (taken.layer, taken.head) == (name, 1)
    row, column = probe.aim.place(taken.grid)
    scores = np.einsum("hd,hkd->hk", taken.query, taken.key) * taken.scale
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    place = row * taken.grid[1] + column
    np.testing.assert_allclose(p, recorded.arrays[1][1, :, place], atol=1e-6)
    joined = np.einsum("hk,hkd->hd", p, taken.value).reshape(-1)
    np.testing.assert_allclose(joined, taken.joined, atol=1e-5)
    assert taken.mask is None and taken.edited is None


def test_of_several_layers_the_one_that_draws_most(random_model):
    by_layer = {}
    for name in cross_attention_layers(random_model):
        probe = Probe(aim(name), 0, "conditional", 0)
        looked(random_model, probe)
        taken = probe.found
        assert taken is not None
        scores = torch.tensor(np.einsum("hd,hkd->hk", taken.query, taken.key) * taken.scale)
        drawn = scores.softmax(-1)[:, 3]
        assert taken.head == int(drawn.argmax())
        by_layer[name] = float(drawn.max())
    probe = Probe(aim(), 0, "conditional", 0)
    looked(random_model, probe)
    assert probe.found is not None
    assert probe.found.layer == max(by_layer, key=lambda name: by_layer[name])


def test_what_is_not_there(random_model):
    for head, said in ((99, "99"), (10**5000, ".*")):
        with (
            pytest.raises(
                SelectionError, match=f"head is {said}, and no layer has it: take a smaller one"
            ),
            Trace(random_model, probe=Probe(aim(head=head), 0, "conditional", 0)),
        ):
            draw(random_model, PROMPT)
    name = next(iter(cross_attention_layers(random_model)))
    with (
        pytest.raises(SelectionError, match=r"head is 99, and .* has 2 heads: the nearest is 1"),
        Trace(random_model, probe=Probe(aim(name, 99), 0, "conditional", 0)),
    ):
        draw(random_model, PROMPT)
    with (
        pytest.raises(SelectionError, match="pass_ is 1, and step 1 has 1 pass: the nearest is 0"),
        Trace(random_model, probe=Probe(aim(), 0, "conditional", 1)),
    ):
        draw(random_model, PROMPT)
    spec = RecordingSpec(branches=frozenset({"negative"}))
    with (
        pytest.raises(TraceError, match="the negative branch was asked for"),
        Trace(random_model, spec, probe=Probe(aim(), 0, "negative", 0)),
    ):
        draw(random_model, PROMPT, guidance_scale=0)
    probe = Probe(aim(step=7), 0, "conditional", 0)
    with Trace(random_model, probe=probe):
        draw(random_model, PROMPT)
    assert probe.found is None  # the run has no such step


def test_the_branches_that_a_trace_has():
    assert branches_of((), None) == {"conditional"}
    assert branches_of((), Probe(aim(), 0, "negative", 0)) == {"conditional", "negative"}


@pytest.mark.parametrize(("number", "runs", "found"), [(0, 3, 0), (1, 4, 1), (-1, 4, 1)])
def test_each_pass_of_a_step_of_several(pipe, number, runs, found):
    pipe.scheduler = HeunDiscreteScheduler.from_config(pipe.scheduler.config)
    probe = Probe(aim(step=1), 0, "conditional", number)
    assert looked(pipe, probe) == runs  # each step but the last asks twice
    assert probe.found is not None and probe.found.passes == (found, 2)
