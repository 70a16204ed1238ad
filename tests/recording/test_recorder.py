"""An open recording: what it keeps of which calls, and the pipeline as it was afterwards."""

import gc

import numpy as np
import pytest
import torch
from diffusers import EulerDiscreteScheduler, HeunDiscreteScheduler
from diffusers.models.attention_processor import AttnProcessor2_0
from making import random_pipeline, run, state_without_timing

from heedmap.backends.tap import RecordingProcessor
from heedmap.backends.registry import cross_attention_layers, self_attention_layers
from heedmap.errors import ArgumentError, NothingRecordedError, TraceError
from heedmap.mathematics.rules import Weights
from heedmap.recording.accumulation import regrid
from heedmap.recording.calls import RecordingSpec
from heedmap.recording.controller import Steering
from heedmap.recording.tracing import Trace, trace


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


def test_the_pipeline_is_restored_after_success_and_errors(pipe):
    before = state_without_timing(pipe)
    with trace(pipe):
        run(pipe, "a house")
    assert state_without_timing(pipe) == before
    with pytest.raises(Stop), trace(pipe):
        run(pipe, "a house", callback_on_step_end=stop)
    assert state_without_timing(pipe) == before
    with pytest.raises(KeyboardInterrupt), trace(pipe):
        raise KeyboardInterrupt
    assert state_without_timing(pipe) == before


def test_the_pipeline_is_restored_when_installation_fails_half_way(pipe, monkeypatch):
    before = state_without_timing(pipe)
    layers = list(cross_attention_layers(pipe).values())
    original = layers[3].set_processor
    monkeypatch.setattr(
        type(layers[3]), "set_processor",
        lambda self, processor: (_ for _ in ()).throw(RuntimeError("full"))
        if self is layers[3] and isinstance(processor, RecordingProcessor)
        else AttnSet(self, processor),
    )  # fmt: skip
    with pytest.raises(RuntimeError), trace(pipe):
        pass
    monkeypatch.undo()
    assert original.__func__ is type(layers[3]).set_processor
    assert state_without_timing(pipe) == before


def AttnSet(layer, processor):
    layer.processor = processor


def test_the_pipeline_is_restored_when_a_layer_fails(pipe):
    before = state_without_timing(pipe)
    layer = next(iter(cross_attention_layers(pipe).values()))

    def fail(*_):
        raise RuntimeError("within")

    handle = layer.to_v.register_forward_hook(fail)
    with pytest.raises(RuntimeError), trace(pipe):
        run(pipe, "a house")
    handle.remove()
    assert state_without_timing(pipe) == before


def test_replaced_processors_are_refused_before_the_first_step(pipe):
    calls = []
    with pytest.raises(TraceError), trace(pipe):
        pipe.enable_attention_slicing()
        run(pipe, "a house", callback_on_step_end=lambda *a: calls.append(1) or a[-1])
    assert not calls
    # What the user set stays theirs.
    assert all(
        type(layer.processor).__name__ == "SlicedAttnProcessor"
        for layer in cross_attention_layers(pipe).values()
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_latents_with_nan_or_infinity_are_refused(pipe, bad):
    with pytest.raises(ArgumentError), trace(pipe):
        run(pipe, "a house", latents=torch.full((1, 4, 16, 16), bad))

    def spoil(pipe, step, timestep, tensors):
        return {"latents": tensors["latents"] * bad}

    with trace(pipe) as recorder:
        pipe("a house", num_inference_steps=2, output_type="latent", callback_on_step_end=spoil)
    with pytest.raises(TraceError):
        _ = recorder.maps


def test_steps_are_those_of_the_last_call(pipe):
    with trace(pipe) as recorder:
        run(pipe, "a house", steps=3)
        run(pipe, "a house", steps=2)
        assert recorder.steps == 2
    assert recorder.steps == 2


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
    with pytest.raises(ArgumentError), trace(pipe, keep, limit=size - 1):
        run(pipe, "a house", steps=3)


def test_a_trace_can_be_opened_again(pipe):
    with trace(pipe) as recorder:
        run(pipe, "a house", steps=1)
    with recorder:
        run(pipe, "the sea", steps=1)
    assert [maps.tokens.prompt for maps in recorder.maps] == ["a house", "the sea"]


def test_a_call_that_failed_is_left_out(pipe):
    """While it runs it can be looked at; when it has failed another may follow."""
    seen = []

    def stop(pipe, step, timestep, given):
        seen.append([maps.tokens.prompt for maps in recorder.maps])
        if step == 1:
            raise RuntimeError("stop")
        return given

    with trace(pipe) as recorder:
        run(pipe, "a house")
        with pytest.raises(RuntimeError):
            run(pipe, "the sea", callback_on_step_end=stop)
        run(pipe, "a cat")
        with pytest.raises(RuntimeError):
            run(pipe, "a dog", callback_on_step_end=stop)
    assert seen == [["a house", "the sea"]] * 2 + [["a house", "a cat", "a dog"]] * 2
    assert [maps.tokens.prompt for maps in recorder.maps] == ["a house", "a cat"]


def test_a_trace_knows_if_a_call_was_guided(pipe):
    with trace(pipe) as recorder:
        assert not recorder.guided
        for scale, guided in ((1.0, False), (2.0, True), (1.0, False)):
            run(pipe, "a house", steps=1, guidance_scale=scale)
            assert recorder.guided is guided


def test_guidance_that_ends_early_keeps_its_steps_of_the_negative_branch(pipe):
    """The negative branch has the maps of the steps at which it ran."""

    def end(pipe, step, timestep, given):
        if step == 1:
            pipe._guidance_scale = 1.0
            given["prompt_embeds"] = given["prompt_embeds"].chunk(2)[-1]
        return given

    with trace(pipe, ("step",), branches=("conditional", "negative")) as recorder:
        run(
            pipe, "a house", steps=4, negative_prompt="sea", callback_on_step_end=end,
            callback_on_step_end_tensor_inputs=["latents", "prompt_embeds"],
        )  # fmt: skip
    (mine,), (theirs,) = recorder.recordings, recorder.negative_recordings
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


def test_large_recordings_warn_before_the_first_step_ends(pipe):
    size = {"height": 512, "width": 512}
    everything = trace(pipe, keep={"step", "layer", "head"})
    with pytest.warns(UserWarning), pytest.raises(Stop), everything:
        run(pipe, "a house", steps=900, callback_on_step_end=stop, **size)


# --- what takes part in the run ---------------------------------------------------------------


def test_the_latents_after_a_step_are_those_of_the_hook(pipe):
    """Latents of nothing but zeros after the last step are a picture of one colour."""
    calls = []

    def blank(state):
        calls.append(state.moment.step)
        return torch.zeros_like(state.latents) if state.moment.step == 2 else state.latents

    with Trace(pipe, after_step=blank):
        images = run(pipe, "a house", steps=3)
    plain = run(pipe, "a house", steps=3)
    assert calls == [0, 1, 2]
    assert images[0].tobytes() != plain[0].tobytes()
    with Trace(pipe, after_step=blank):
        other = run(pipe, "a cat", seeds=(9,), steps=3)
    assert other[0].tobytes() == images[0].tobytes()  # no word and no noise is left in them


def test_self_attention_is_edited_where_a_call_replaces_processors():
    """As perturbed-attention guidance does."""
    pipe, mine = random_pipeline(), AttnProcessor2_0()
    layers = list(self_attention_layers(pipe).values())
    steering = Steering({1: ()}, {1: 0}, {1: (0.0, 1.0)})

    def look(state):
        assert layers[0].processor.original is mine
        assert all(isinstance(layer.processor, RecordingProcessor) for layer in layers)
        return state.latents

    with Trace(pipe, steering=steering, after_step=look) as recorder:
        layers[0].set_processor(mine)
        run(pipe, ["a house", "at sea"], (1, 1), steps=1)
        assert layers[0].processor is mine
    assert list(recorder.controller.shared) == [1]
    assert len(recorder.controller.shared[1]) == len(layers)


class ValuesAlone:
    """A processor without attention."""

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
        return attn.to_out[0](attn.to_v(hidden_states))


@pytest.mark.parametrize("propagated", [True, False])
def test_the_blends_map_is_refined_as_soon_as_maps_are_propagated(pipe, propagated):
    """The latent is 16×16, whose layers of 16 cells on a side propagate; signs do not cancel."""
    seen, tokens = [], [2, 3]
    if not propagated:
        for layer in self_attention_layers(pipe).values():
            layer.set_processor(ValuesAlone())

    def look(state):
        seen.append(state.strength(0, tokens))
        return state.latents

    weights = Weights(torch.where(torch.arange(77) == 3, -2.0, 1.0))
    spec, steering = RecordingSpec(frozenset({"layer", "step"})), Steering({0: [weights]})
    with Trace(
        pipe, spec, map_tokens={0: [2, 3, 4]}, after_step=look, steering=steering
    ) as recorder:
        run(pipe, "a house", steps=3)
    (recording,) = recorder.recordings
    columns = [recording.positions.index(n) for n in tokens]
    planes = np.array(
        [
            [regrid(torch.tensor(p), layer.grid, (16, 16))[0].numpy() for p in array]
            for layer, array in zip(recording.layers, recording.arrays, strict=True)
        ]
    )[..., columns]
    for step, (refined, plain) in enumerate(seen):
        expected = np.abs(planes[:, : step + 1].mean((0, 1))).sum(-1).reshape(16, 16)
        np.testing.assert_allclose(plain, expected, atol=1e-6)
        assert np.array_equal(refined, plain) == (step < 2 or not propagated)
    assert (recording.refined is not None) == propagated
    if propagated:
        expected = np.abs(recording.refined[..., columns]).sum(-1)
        np.testing.assert_allclose(seen[-1][0], expected, rtol=1e-5)


@pytest.mark.parametrize("scheduler", [EulerDiscreteScheduler, HeunDiscreteScheduler])
def test_the_blends_map_equals_the_prompts_refined_map(pipe, scheduler):
    """Whatever else is recorded, and of however many passes a step is made."""
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
    seen = []

    def look(state):
        seen.append(state.strength(0, [2, 3])[0])
        return state.latents

    both = RecordingSpec(branches=frozenset({"conditional", "negative"}))
    with Trace(pipe, both, map_tokens={0: [2, 3]}, after_step=look) as recorder:
        run(pipe, "a house", steps=4, negative_prompt="at sea", guidance_scale=5.0)
    (recording,) = recorder.recordings
    columns = [recording.positions.index(n) for n in (2, 3)]
    expected = np.abs(recording.refined[..., columns]).sum(-1)
    np.testing.assert_allclose(seen[-1], expected, rtol=1e-5)
    (against,) = recorder.negative_recordings
    assert not np.allclose(against.refined[..., columns], recording.refined[..., columns])


def test_rules_change_nothing_of_the_negative_branch(pipe):
    """Neither its picture nor what is recorded of it, though both have as many tokens."""
    made = []
    for rules in ({}, {0: [Weights(torch.full((77,), 0.5))]}):
        both = RecordingSpec(branches=frozenset({"conditional", "negative"}))
        with Trace(pipe, both, steering=Steering(rules)) as recorder:
            run(pipe, "a house", steps=1, negative_prompt="at sea", guidance_scale=5.0)
        made.append([*recorder.recordings, *recorder.negative_recordings])
    (first, against), (halved, same) = ([one.arrays[0] for one in each] for each in made)
    np.testing.assert_array_equal(against, same)
    np.testing.assert_allclose(halved, first / 2, rtol=1e-5)


def test_a_call_that_failed_after_its_last_step_is_left_out_too(pipe):
    """Its picture was never made; where latents are asked for, the last step is the end."""

    def leave(pipe, step, timestep, given):
        if step == 1:
            raise KeyboardInterrupt
        return given

    with trace(pipe) as recorder:
        with pytest.raises(KeyboardInterrupt):
            run(pipe, "a sea", steps=2, callback_on_step_end=leave)
        run(pipe, "a red house", steps=2)
    assert [maps.tokens.prompt for maps in recorder.maps] == ["a red house"]
    with trace(pipe) as recorder:
        pipe("a sea", num_inference_steps=2, output_type="latent")
        assert [maps.tokens.prompt for maps in recorder.maps] == ["a sea"]
    assert len(recorder.maps) == 1


def test_latents_as_output_without_freeing_the_models_have_maps():
    """As pipelines of SDXL do, which let go of them only where they make a picture."""
    pipe = random_pipeline()

    class Early(type(pipe)):
        def __call__(self, *args, output_type="pil", **kwargs):
            release = self.maybe_free_model_hooks
            if output_type == "latent":
                self.maybe_free_model_hooks = lambda: None
            try:
                return super().__call__(*args, output_type=output_type, **kwargs)
            finally:
                self.maybe_free_model_hooks = release

    pipe.__class__ = Early
    for kind in ("latent", "np"):
        with trace(pipe) as recorder:
            pipe("a house", num_inference_steps=2, output_type=kind)
        assert [maps.tokens.prompt for maps in recorder.maps] == ["a house"]
