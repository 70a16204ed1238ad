"""One call of a pipeline: what its UNet reads, pass by pass."""

import pytest
import torch
from making import random_pipeline, table

from heedmap.backends.latents import Schedule
from heedmap.backends.prompts import Branch, Encoding, encoding_of
from heedmap.backends.unet import UNet
from heedmap.errors import TraceError
from heedmap.recording.calls import Call, RecordingSpec


def states(*seeds):
    """Text states (B, 4, 3), a seed an image."""
    made = [torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack(made)


def branch(*seeds):
    return Branch(tuple(table("a", 4) for _ in seeds), states(*seeds))


def started(encoding, timesteps=(9.0, 6.0), steps=(0, 1), kind="Pipe"):
    pipe = random_pipeline()
    pipe.__class__ = type(kind, (type(pipe),), {})
    branches = ("conditional", *(["negative"] if encoding.negative else []))
    spec, schedule = RecordingSpec(branches=frozenset(branches)), Schedule(timesteps, steps)
    return Call(UNet(pipe), spec, encoding, schedule, (8, 8), {}, ())


# --- which rows are read by which branch --------------------------------------------------------


def test_blocks_of_a_batch_are_found_by_their_states():
    mine, other = branch(1, 2), branch(3, 4)
    batch = torch.cat([states(3, 4), states(1, 2), states(1, 2), states(2, 1), states(1, 9)])
    assert mine.blocks_in(batch) == [1, 2]
    assert mine.blocks_in(batch.double()) == [1, 2]
    assert mine.blocks_in(batch[:, :3]) == [] == mine.blocks_in(batch[..., :2])
    both = Encoding(mine, other)
    assert both.blocks_in(batch) == {"conditional": [1, 2], "negative": [0]}
    assert both.blocks_in(states(5, 6)) == {}
    assert both.blocks_in(states(3, 4)) == {"negative": [0]}
    assert Encoding(mine, None).blocks_in(batch) == {"conditional": [1, 2]}


@pytest.mark.parametrize(
    ("prompt_first", "count", "expected"),
    [
        (False, 2, {"conditional": [1], "negative": [0]}),
        (True, 2, {"conditional": [0], "negative": [1]}),
        (False, 3, {"conditional": [1, 2], "negative": [0]}),  # perturbed-attention guidance
        (True, 3, {"conditional": [0], "negative": [1, 2]}),  # InstructPix2Pix
        (False, 1, {"conditional": [0], "negative": [0]}),
    ],
)
def test_equal_texts_of_both_branches_are_told_apart_by_order(prompt_first, count, expected):
    same = Encoding(branch(1, 2), branch(1, 2), prompt_first)
    assert same.blocks_in(torch.cat([states(1, 2)] * count)) == expected


def test_the_encoding_that_the_unet_reads_is_found():
    """The one with the most pictures, then the one read last in the batch, then the newest."""
    one, two = Encoding(branch(1), None), Encoding(branch(1, 2), None)
    assert encoding_of([two, one], states(1, 2)) is two
    swapped = Encoding(branch(5), branch(1))
    assert encoding_of([one, swapped, Encoding(branch(9), None)], states(1, 5)) is swapped
    again = Encoding(branch(1), None)
    assert encoding_of([one, again], states(1)) is again
    # One of which only the negative branch is there is worth less than one that is read.
    assert encoding_of([one, Encoding(branch(7), branch(1))], states(1)) is one
    with pytest.raises(TraceError):
        encoding_of([one], states(3))


# --- pass by pass -------------------------------------------------------------------------------


def test_a_guided_pass_has_both_branches():
    call = started(Encoding(branch(1), branch(2)))
    given = torch.cat([states(2), states(1)])
    for step, timestep in enumerate((9.0, 6.0)):
        call.enter(given, timestep)
        assert list(call.blocks) == [1]
        assert (call.records["conditional"].block, call.records["negative"].block) == (1, 0)
        assert call.moment.step == step
        call.leave()
    for record in call.records.values():
        assert record.timesteps == {0: 9.0, 1: 6.0}
    assert call.done == 2


def test_guidance_that_ends_early_leaves_the_conditional_branch():
    call = started(Encoding(branch(1), branch(2)))
    call.enter(torch.cat([states(2), states(1)]), 9.0)
    call.leave()
    call.enter(states(1), 6.0)
    assert (call.records["conditional"].block, call.records["negative"].block) == (0, None)
    assert call.records["negative"].timesteps == {0: 9.0}
    assert not call.records["negative"].recorded


def test_two_passes_of_one_step_have_one_step():
    """Each is a call of the scheduler; the step is told by the first."""
    call = started(Encoding(branch(1), None), (9.0, 8.0), (0, 0))
    for timestep in (9.0, 8.0):
        call.enter(states(1), timestep)
        call.leave()
    assert call.records["conditional"].timesteps == {0: 9.0}


def test_passes_with_unknown_text_or_timestep_are_refused():
    call = started(Encoding(branch(1), branch(2)))
    with pytest.raises(TraceError):
        call.enter(states(7), 9.0)
    with pytest.raises(TraceError):
        call.enter(states(1), 6.0)
    given = states(1)
    call.enter(given, 9.0)
    with pytest.raises(TraceError):
        call.enter(given, 9.0)


def test_blurred_passes_are_left_out():
    call = started(Encoding(branch(1), branch(2)), kind="StableDiffusionSAGPipeline")
    call.enter(torch.cat([states(2), states(1)]), 9.0)
    assert [record.block for record in call.records.values()] == [1, 0]
    call.enter(states(2), 9.0)
    assert [record.block for record in call.records.values()] == [None, None]
    call.leave()
    call.enter(torch.cat([states(2), states(1)]), 6.0)
    assert [record.block for record in call.records.values()] == [1, 0]


@pytest.mark.parametrize(
    ("name", "blocks"), [("CycleDiffusionPipeline", [2]), ("StableDiffusionPipeline", [1, 2])]
)
def test_a_source_prompt_in_the_batch_has_its_own_block(name, blocks):
    call = started(Encoding(branch(1), branch(2)), kind=name)
    call.enter(torch.cat([states(2), states(1), states(1)]), 9.0)
    assert list(call.blocks) == blocks
    assert call.records["conditional"].block == blocks[0]
    assert call.records["negative"].block == 0


# --- what is left -------------------------------------------------------------------------------


def test_a_pass_of_the_negative_prompts_has_no_conditional_block():
    """Guidance in two passes: each has a row a picture."""
    call = started(Encoding(branch(1, 2), branch(3, 4)))
    call.enter(states(3, 4), 9.0)
    assert (call.records["conditional"].block, call.records["negative"].block) == (None, 0)
    with pytest.raises(TraceError):
        call.enter(torch.cat([states(3, 4), states(5, 6)]), 9.0)


def test_sites_are_the_layers_at_each_step():
    call = started(Encoding(branch(1), None), (9.0, 8.0, 6.0), (0, 0, 1))
    call.grids = {"a": (4, 6), "b": (2, 3)}
    found = [(site.layer, site.step, site.steps, site.grid) for site in call.sites]
    assert found == [(n, step, 2, grid) for n, grid in call.grids.items() for step in (0, 1)]
