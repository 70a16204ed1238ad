"""An open recording: what it keeps of which calls, and the pipeline as it was afterwards."""

import gc
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from diffusers import EulerDiscreteScheduler
from diffusers.models.attention_processor import Attention
from families.checking import assert_restored, state_of
from making import cross_attention_layers, recordings_of, run

from heedmap.errors import ArgumentError, NothingRecordedError, TraceError
from heedmap.recording.tracing import Trace, trace


def prompts_of(recorder):
    return [maps.tokens.prompt for maps in recorder.maps]


def test_later_runs_do_not_alter_a_recording(pipe):
    with trace(pipe) as recorder:
        run(pipe, "a house")
        first = recorder.recordings[0]
        before = [a.copy() for a in first.arrays]
        run(pipe, "the other cat", seeds=(8,))
    assert all(np.array_equal(a, b) for a, b in zip(before, first.arrays, strict=True))
    assert len(recorder.maps) == 2


class Stop(BaseException):
    pass


def stop(*_):
    raise Stop


def failing_layer(pipe, monkeypatch):
    layer = next(iter(cross_attention_layers(pipe).values()))
    monkeypatch.setitem(vars(layer.to_v), "forward", stop)


def failing_installation(pipe, monkeypatch):
    """It fails half-way: three layers have their processors already."""
    last = list(cross_attention_layers(pipe).values())[3]
    install = Attention.set_processor

    def set_processor(layer, processor):
        if layer is last:
            raise Stop
        install(layer, processor)

    monkeypatch.setattr(Attention, "set_processor", set_processor)


@pytest.mark.parametrize("spoil", [failing_layer, failing_installation])
def test_the_pipeline_is_restored_when_a_part_fails(pipe, monkeypatch, spoil):
    run(pipe, "a house", steps=1)  # which sets some attributes itself
    before = state_of(pipe)
    with monkeypatch.context() as context:
        spoil(pipe, context)
        with pytest.raises(Stop), trace(pipe):
            run(pipe, "a house")
    assert_restored(pipe, before)


def test_replaced_processors_are_refused_before_the_first_step(pipe):
    calls = []
    with pytest.raises(TraceError, match="processor"), trace(pipe):
        pipe.enable_attention_slicing()
        run(pipe, "a house", callback_on_step_end=lambda *a: calls.append(1) or a[-1])
    assert not calls
    # What the user set stays theirs.
    assert all(
        type(layer.processor).__name__ == "SlicedAttnProcessor"
        for layer in cross_attention_layers(pipe).values()
    )


def test_latents_with_nan_or_infinity_are_refused(pipe):
    with pytest.raises(ArgumentError, match="latents"), trace(pipe):
        run(pipe, "a house", latents=torch.full((1, 4, 16, 16), torch.inf))

    def spoil(pipe, step, timestep, tensors):
        return {"latents": tensors["latents"] * torch.nan}

    for edits, callback in (((), spoil), ([lambda p, site: p / 0], None)):
        with trace(pipe, edits=edits) as recorder:
            run(pipe, "a house", callback_on_step_end=callback)
        with pytest.raises(TraceError, match="NaN"):
            _ = recorder.maps


@pytest.mark.parametrize(
    ("keep", "cells", "steps"),
    [
        ((), 64 * 64, 1),
        (("step",), 64 * 64, 3),
        (("head",), 2 * 64 * 64, 1),
        (("layer",), 3 * 256 + 3 * 64 + 16, 1),
        (("layer", "step", "head"), 2 * (3 * 256 + 3 * 64 + 16), 3),
    ],
)
def test_the_memory_of_a_recording_is_known_to_the_byte(pipe, keep, cells, steps):
    """Four bytes a cell, for start, "a", "house" and end."""
    size = 4 * cells * steps * 4
    with trace(pipe, keep, limit=size) as recorder:
        run(pipe, "a house", steps=3)
    assert sum(array.nbytes for array in recorder.recordings[0].arrays) == size
    with pytest.raises(ArgumentError, match="limit"), trace(pipe, keep, limit=size - 1):
        run(pipe, "a house", steps=3)


def test_a_trace_can_be_opened_again(pipe):
    with trace(pipe) as recorder:
        run(pipe, "a house", steps=1)
    with recorder:
        run(pipe, "the sea", steps=1)
    assert prompts_of(recorder) == ["a house", "the sea"]


def test_a_call_that_failed_is_left_out(pipe):
    """While it runs it can be looked at; when a step has failed another call may follow."""
    seen = []

    def fail(pipe, step, timestep, given):
        seen.append(prompts_of(recorder))
        if step == 1:
            raise RuntimeError("stop")
        return given

    def leave(pipe, step, timestep, given):
        if step == 2:
            raise KeyboardInterrupt
        return given

    with trace(pipe) as recorder:
        run(pipe, "a house")
        with pytest.raises(RuntimeError):
            run(pipe, "the sea", callback_on_step_end=fail)
        with pytest.raises(KeyboardInterrupt):  # after its last step, so that its maps are whole
            run(pipe, "a tree", callback_on_step_end=leave)
        run(pipe, "a cat")
        with pytest.raises(RuntimeError):
            run(pipe, "a dog", callback_on_step_end=fail)
    assert seen == [["a house", "the sea"]] * 2 + [["a house", "a tree", "a cat", "a dog"]] * 2
    assert prompts_of(recorder) == ["a house", "a tree", "a cat"]


@pytest.mark.parametrize("frees", [True, False])
def test_a_call_that_gives_latents_has_maps(pipe, frees):
    """Also of pipelines like SDXL's, which then do not let go of their models."""
    if not frees:
        pipe.maybe_free_model_hooks = lambda: None
    with trace(pipe) as recorder:
        pipe("a sea", num_inference_steps=2, output_type="latent")
        assert prompts_of(recorder) == ["a sea"]
        run(pipe, "a house", steps=1)
    assert prompts_of(recorder) == ["a sea", "a house"]


def test_a_trace_knows_the_steps_and_the_guidance_of_the_last_call(pipe):
    with trace(pipe) as recorder:
        assert not recorder.guided
        for scale, steps, guided in ((1.0, 1, False), (2.0, 3, True), (1.0, 2, False)):
            run(pipe, "a house", steps=steps, guidance_scale=scale)
            assert (recorder.guided, recorder.steps) == (guided, steps)
    assert recorder.steps == 2


def test_guidance_that_ends_early_keeps_its_steps_of_the_negative_branch(pipe):
    """The negative branch has the maps of the steps at which it ran."""

    def end(pipe, step, timestep, given):
        if step == 1:
            pipe._guidance_scale = 1.0
            given["prompt_embeds"] = given["prompt_embeds"].chunk(2)[-1]
        return given

    with trace(pipe, ("step",), branches=("conditional", "negative")) as recorder:
        run(
            pipe,
            "a house",
            steps=4,
            negative_prompt="sea",
            callback_on_step_end=end,
            callback_on_step_end_tensor_inputs=["latents", "prompt_embeds"],
        )
    (mine,), (theirs,) = recorder.recordings, recordings_of(recorder.negative_maps)
    assert (len(mine.arrays[0]), len(theirs.arrays[0])) == (4, 2)
    assert theirs.timesteps == mine.timesteps[:2]


def test_the_scheduler_of_each_call_is_followed_and_restored(pipe):
    first = pipe.scheduler
    with trace(pipe) as recorder:
        run(pipe, "a house", steps=2)
        pipe.scheduler = EulerDiscreteScheduler.from_config(first.config)
        run(pipe, "a house", steps=3)
        assert "step" not in vars(first) and "step" not in vars(pipe.scheduler)
    assert recorder.steps == 3 and len(recorder.maps) == 2


def test_a_finished_call_keeps_no_text_states(pipe):
    def alive():
        gc.collect()
        tensors = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
        return sum(one.shape[-2:] == (77, 32) for one in tensors)

    before = alive()
    with trace(pipe, branches=("conditional", "negative"), concepts=["cat"]) as recorder:
        run(pipe, "a house", steps=1)
        assert alive() == before
    assert len(recorder.concept_maps) == 1


def test_a_pass_without_a_scheduler_step_records_nothing(pipe):
    with trace(pipe) as recorder:
        states, _ = pipe.encode_prompt("a red house", "cpu", 1, False)
        pipe.scheduler.set_timesteps(2)
        pipe.unet(torch.zeros(1, 4, 8, 8), pipe.scheduler.timesteps[0], states)
        with pytest.raises(NothingRecordedError):
            _ = recorder.maps


def test_prompts_of_several_images_that_a_loop_encodes_apart_are_refused(pipe):
    """The last one would be recorded alone. Equal latents are those of guidance."""
    latents = torch.randn(2, 4, 8, 8)
    for sample, expected in (
        (latents[:1].expand_as(latents), nullcontext()),
        (latents, pytest.raises(TraceError, match="encode_prompt")),
    ):
        with trace(pipe), expected:
            texts = [pipe.encode_prompt(text, "cpu", 1, False)[0] for text in ("", "a red house")]
            pipe.scheduler.set_timesteps(2)
            pipe.unet(sample, pipe.scheduler.timesteps[0], torch.cat(texts))


def test_the_latents_after_a_step_are_those_of_the_hook(pipe):
    """Latents of nothing but zeros after the last step are a picture of one colour."""
    steps = []

    def blank(state):
        steps.append(state.moment.step)
        return torch.zeros_like(state.latents) if state.moment.step == 2 else state.latents

    plain = run(pipe, "a house", steps=3)
    with Trace(pipe, after_step=blank):
        images = run(pipe, "a house", steps=3)
        other = run(pipe, "a cat", seeds=(9,), steps=3)
    assert steps == [0, 1, 2] * 2
    assert images[0].tobytes() != plain[0].tobytes()
    assert other[0].tobytes() == images[0].tobytes()  # no word and no noise is left in them
