"""What is looked for beside a prompt, in a trace; its numbers: tests/families/test_concepts."""

import numpy as np
import pytest
import torch
from families.checking import assert_restored, state_of
from making import recordings_of, run

from heedmap.backends.prompts import prompt_table
from heedmap.errors import ArgumentError
from heedmap.recording.edits import Confine, Reweight
from heedmap.recording.tracing import trace

EVERY = ("layer", "step", "head")


@pytest.mark.parametrize("keep", [("layer",), ("step",)])
def test_concepts_have_the_axes_that_the_prompt_has(pipe, keep):
    plain = run(pipe, ["a house", "at sea"], (1, 2), steps=2)
    before = state_of(pipe)
    with trace(pipe, keep, concepts=["cat", "red tree"]) as recorder:
        traced = run(pipe, ["a house", "at sea"], (1, 2), steps=2)
    assert_restored(pipe, before)
    assert np.array_equal(plain, traced)
    with trace(pipe, EVERY, concepts=["cat", "red tree"]) as whole:
        run(pipe, ["a house", "at sea"], (1, 2), steps=2)
    for mine, own, every in zip(
        recordings_of(recorder.concept_maps),
        recorder.recordings,
        recordings_of(whole.concept_maps),
        strict=True,
    ):
        assert mine.keep == frozenset(keep) and mine.positions == (0, 1)
        assert [a.shape[:3] for a in mine.arrays] == [a.shape[:3] for a in own.arrays]
        assert mine.timesteps == own.timesteps and mine.size == own.size
        assert np.allclose(mine.refined, every.refined, atol=1e-6)
        if "layer" in keep:
            for array, all_of_it in zip(mine.arrays, every.arrays, strict=True):
                axes = tuple(n for n, axis in enumerate(("step", "head")) if axis not in keep)
                expected = all_of_it.mean(axis=axes, keepdims=True)
                assert np.abs(array - expected).max() < 1e-6
    first, second = recorder.concept_maps
    assert np.ptp(first["red tree"].values - second["red tree"].values) > 0


def test_concepts_count_in_the_memory_limit(pipe):
    with trace(pipe, EVERY, concepts=["cat", "red tree"]) as recorder:
        run(pipe, "a house", steps=2)
    size = sum(
        sum(a.nbytes for a in one.arrays)
        for one in (*recorder.recordings, *recordings_of(recorder.concept_maps))
    )
    taken = sum(a.nbytes for a in recorder.recordings[0].arrays)
    assert size > taken
    with (
        pytest.raises(ArgumentError, match="limit"),
        trace(pipe, EVERY, concepts=["cat", "red tree"], limit=size - 1),
    ):
        run(pipe, "a house", steps=2)
    with trace(pipe, EVERY, concepts=["cat", "red tree"], limit=size):
        run(pipe, "a house", steps=2)


def test_edits_of_the_prompt_do_not_act_on_concepts(pipe):
    """In the first layer at the first step, where nothing has been drawn otherwise yet."""
    edits = [Reweight("house", 3.0), Confine("red", (0, 0, 64, 128))]
    found = []
    for some in ([], edits):
        with trace(pipe, EVERY, concepts=["house", "red"], edits=some) as recorder:
            run(pipe, "a red house", steps=1)
        found.append(
            (recorder.recordings[0].arrays[0], recorder.concept_maps[0].recording.arrays[0])
        )
    (plain, sought), (edited, with_others) = found
    assert np.abs(plain - edited).max() > 0.01
    assert np.array_equal(sought, with_others)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, "sliced"])
def test_concepts_equal_the_prompts_maps_for_one_text(pipe, kind):
    """In half precision and by slices, too: in one run, whose prompt is that very text."""
    if kind == "sliced":
        pipe.enable_attention_slicing(1)
    else:
        pipe.to(kind)
    states = pipe.encode_prompt(["red"], "cpu", 1, False)[0]
    with trace(pipe, EVERY, concepts=["red"]) as recorder:
        run(pipe, None, steps=2, guidance_scale=1.0, prompt_embeds=states)
    (theirs,), (mine,) = recorder.recordings, recordings_of(recorder.concept_maps)
    columns = [theirs.columns[p] for p in prompt_table(pipe, "red").find("red")]
    near = 1e-2 if kind == torch.bfloat16 else 1e-5
    arrays = [*zip(mine.arrays, theirs.arrays, strict=True), (mine.refined, theirs.refined)]
    for one, every in arrays:
        assert np.abs(one[..., 0] - every[..., columns].sum(axis=-1)).max() < near
