"""Edits on a pipeline: what they change, what they leave, what is recorded of them."""

import numpy as np
import pytest
import torch
from making import run, state_without_timing

from heedmap.errors import TraceError
from heedmap.mathematics.events import AttentionEvent
from heedmap.mathematics.rules import Inject, Weights
from heedmap.recording.accumulation import row_probabilities
from heedmap.recording.calls import RecordingSpec
from heedmap.recording.edits import AttentionController, RunPosition, Steering
from heedmap.recording.tracing import Trace

K = 77


def inject(end=1.0, columns=None):
    columns = torch.eye(K) if columns is None else columns
    return Inject(columns, torch.zeros(K), torch.full((K,), end))


def edited(pipe, prompts, steering, steps=3, keep=("layer",), seeds=None, **arguments):
    with Trace(pipe, RecordingSpec(frozenset(keep)), steering=steering) as recorder:
        images = run(pipe, prompts, seeds or (5,) * len(prompts), steps=steps, **arguments)
    return images, recorder


@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_a_prompt_replaced_by_itself_gives_the_plain_image(pipe, guidance):
    prompts = ["a red house", "a red house"]
    plain = run(pipe, prompts, (5, 5), guidance_scale=guidance)
    steering = Steering({1: [inject(), Weights(torch.ones(K))]}, {1: 0}, {1: (0, 1)})
    images, recorder = edited(pipe, prompts, steering, guidance_scale=guidance)
    assert np.abs(images - plain).max() < 1e-4
    assert np.array_equal(images[0], plain[0])
    assert list(recorder.controller.acted) == list(recorder.controller.shared) == [1]
    assert len(recorder.controller.acted[1]) == 3 * 7  # three steps at each of seven layers
    assert len(recorder.controller.shared[1]) == 3 * 7
    assert max(recorder.controller.moved[1]) < 1e-5


def test_only_the_image_that_is_named_is_changed(pipe):
    prompts = ["a red house", "at the cat", "a red house"]
    seeds = (1, 2, 3)
    plain = run(pipe, prompts, seeds)
    images, recorder = edited(
        pipe, prompts, Steering({1: [Weights(torch.full((K,), 3.0))]}), seeds=seeds
    )
    assert np.array_equal(images[[0, 2]], plain[[0, 2]])
    assert np.abs(images[1] - plain[1]).max() > 1e-3
    assert set(recorder.controller.acted) == {1}


def test_layers_are_restored_after_sharing_self_attention(pipe):
    before = state_without_timing(pipe)
    edited(pipe, ["a house", "a sea"], Steering({1: [inject()]}, {1: 0}, {1: (0, 1)}))
    assert state_without_timing(pipe) == before
    with pytest.raises(RuntimeError), Trace(pipe, steering=Steering({1: [inject()]}, {1: 0})):
        raise RuntimeError("stop")
    assert state_without_timing(pipe) == before


def test_attention_slicing_refuses_an_injection(pipe):
    pipe.enable_attention_slicing(1)
    with pytest.raises(TraceError):
        edited(pipe, ["a house", "a sea"], Steering({1: [inject()]}, {1: 0}))


# --- rows that read the prompt more than once ---------------------------------------------------


def rows_of_two_blocks():
    """One image whose prompt is read in the rows 1 and 3 of a batch of four."""
    generator = torch.Generator().manual_seed(3)
    query, value = (torch.randn(4, 2, n, 8, generator=generator) for n in (6, 5))
    key = torch.randn(4, 2, 5, 8, generator=generator)
    scores = Scores(query, key, 8**-0.5)
    return scores, value, RunPosition((1, 3), 0, 2, {"layer": (2, 3)})


@pytest.mark.parametrize("classic", [False, True])
def test_the_recording_has_what_a_rule_made_of_each_block(classic):
    scores, value, position = rows_of_two_blocks()
    gave = []

    def chance(p, site):
        assert site.grid == (2, 3)
        gave.append(torch.rand(p.shape, generator=torch.Generator().manual_seed(len(gave))))
        return gave[-1]

    controller = AttentionController(Steering({0: [chance]}))
    controller.position = position
    p = (scores.query @ scores.key.mT * scores.scale).softmax(-1)
    output = p @ value
    if classic:
        found = controller.weights("layer", scores, p.clone()) @ value
    else:
        found = controller.output("layer", scores, value, output.clone())
    assert len(gave) == 2
    for row, made in ((1, gave[0]), (3, gave[1])):
        torch.testing.assert_close(found[row], made @ value[row])
    assert torch.equal(found[[0, 2]], (p @ value)[[0, 2]])
    assert list(controller.acted) == [0] and len(controller.acted[0]) == 1
    of = controller.probabilities(scores, 0, "layer", row_probabilities(scores, 1)).of
    for head in range(2):
        assert torch.equal(of(slice(head, head + 1), [1, 4]), gave[0][head : head + 1, :, [1, 4]])
    moved = float((gave[0] - p[1]).abs().sum(-1).mean()) / 2
    assert controller.moved[0] == [pytest.approx(moved)]
    # What else is asked of the same heads is not counted again.
    of(slice(0, 1), [0])
    of(slice(None), [0, 2])
    assert controller.moved[0] == [pytest.approx(moved)] and len(gave) == 2
    # In the next layer it is made anew.
    controller.output("layer", scores, value, output.clone())
    assert len(gave) == 4


def test_self_attention_is_replaced_in_each_block_of_the_batch():
    scores, _, _ = rows_of_two_blocks()
    steering = Steering({}, {1: 0}, {1: (0.0, 1.0)})
    query, key = scores.query, scores.query + 1
    rows = {(0,): [0, 0, 2, 3], (2,): [0, 1, 2, 2], (0, 2): [0, 0, 2, 2], (2, 4): [0, 1, 2, 2]}
    for blocks, expected in rows.items():
        controller = AttentionController(steering)
        controller.position = RunPosition(blocks, 0, 1, {"layer": (2, 3)})
        queries, keys = controller.inputs("own", query, key)
        assert torch.equal(queries, query[expected]) and torch.equal(keys, key[expected])
        assert controller.shared == {1: {("own", 0)}}
    # Outside of its window nothing is.
    late = AttentionController(Steering({}, {1: 0}, {1: (0.5, 1.0)}))
    late.position = RunPosition((0,), 0, 2, {})
    assert late.inputs("own", query, key) == (query, key) and late.shared == {}


def test_self_attention_is_replaced_within_its_window_and_grid():
    query, key = torch.randn(4, 1, 16, 2), torch.randn(4, 1, 16, 2)
    windows = {1: (0.2, 0.4), 2: (0, 0.3)}  # 3 has none

    def taking(step, cells=16):
        controller = AttentionController(Steering({}, {1: 0, 2: 0, 3: 0}, windows, cells))
        controller.position = RunPosition((0,), step, 10, {})
        made = controller.inputs("own", query, key)
        rows = [0 if n in controller.shared else n for n in range(4)]
        assert torch.equal(made[0], query[rows]) and torch.equal(made[1], key[rows])
        return sorted(controller.shared)

    expected = {0: [2], 1: [2], 2: [1, 2], 3: [1], 4: []}
    assert {step: taking(step) for step in expected} == expected
    assert taking(2, cells=15) == []
