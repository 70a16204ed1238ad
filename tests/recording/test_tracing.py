"""Recording: the picture unchanged, the pipeline as it was, each image its own true maps."""

import numpy as np
import pytest
import torch
from diffusers import EulerAncestralDiscreteScheduler, HeunDiscreteScheduler
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0
from making import random_pipeline, run, state_without_timing

import heedmap as hm
from heedmap.drawing.generation import generate_batch
from heedmap.errors import (
    ArgumentError,
    ModelError,
    NothingRecordedError,
    SelectionError,
    TraceError,
    UnknownWordError,
)
from heedmap.options import DrawOptions
from heedmap.recording.recorder import WARN
from heedmap.recording.tracing import trace
from heedmap.wiring.processors import RecordingProcessor
from heedmap.wiring.registry import cross_attention_layers


class Reference:
    """The classic computation of diffusers, beside an untouched SDPA output."""

    def __init__(self, original, store):
        self.original, self.store = original, store

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
        query = attn.head_to_batch_dim(attn.to_q(hidden_states)).float()
        key = attn.head_to_batch_dim(attn.to_k(encoder_hidden_states)).float()
        scores = attn.get_attention_scores(query, key)
        self.store.append(scores.unflatten(0, (-1, attn.heads)))  # (B, H, Q, K)
        return self.original(attn, hidden_states, encoder_hidden_states, attention_mask)


@pytest.mark.parametrize("guidance", [1.0, 5.0])
@pytest.mark.parametrize("size", [(128, 128), (96, 128), (104, 176)])
def test_picture_is_bit_identical(pipe, guidance, size):
    arguments = {"guidance_scale": guidance, "height": size[0], "width": size[1]}
    plain = run(pipe, "a red house", **arguments)
    with trace(pipe, {"layer", "step", "head"}) as recorder:
        traced = run(pipe, "a red house", **arguments)
    assert np.array_equal(plain, traced)
    assert recorder.recordings[0].latent == (size[0] // 8, size[1] // 8)
    assert recorder.recordings[0].size == (size[1], size[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("processor", [AttnProcessor2_0, AttnProcessor])
def test_any_processor_and_type_is_untouched(pipe, dtype, processor):
    pipe.to(dtype)
    pipe.unet.set_attn_processor(processor())
    plain = run(pipe, "a house")
    with trace(pipe) as recorder:
        traced = run(pipe, "a house")
    assert np.array_equal(plain, traced)
    assert recorder.recordings[0].arrays[0].dtype == np.float32


@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_probabilities_equal_diffusers_own(pipe, guidance):
    prompts, seeds = ["a red house", "at the cat"], (3, 4)
    layers = cross_attention_layers(pipe)
    stores = {name: [] for name in layers}
    originals = {name: layer.processor for name, layer in layers.items()}
    for name, layer in layers.items():
        layer.set_processor(Reference(originals[name], stores[name]))
    run(pipe, prompts, seeds, guidance_scale=guidance)
    for name, layer in layers.items():
        layer.set_processor(originals[name])
    with trace(pipe, {"layer", "step", "head"}, tokens="all") as recorder:
        run(pipe, prompts, seeds, guidance_scale=guidance)
    for image, recording in enumerate(recorder.recordings):
        assert [layer.name for layer in recording.layers] == list(layers)
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            for step, scores in enumerate(stores[layer.name]):
                conditional = scores[-2:][image].numpy()
                np.testing.assert_allclose(array[step], conditional, atol=1e-5)
            np.testing.assert_allclose(array.sum(-1), 1, atol=1e-5)


def test_kept_axes_are_means_of_the_whole(pipe):
    def record(keep):
        with trace(pipe, keep) as recorder:
            run(pipe, "a red house")
        return recorder.recordings[0]

    whole = record({"layer", "step", "head"})
    for keep in ({"layer"}, {"layer", "step"}, {"layer", "head"}):
        part = record(keep)
        axes = tuple(i for i, axis in enumerate(("step", "head")) if axis not in keep)
        for full, reduced in zip(whole.arrays, part.arrays, strict=True):
            np.testing.assert_allclose(reduced, full.mean(axes, keepdims=True), atol=1e-6)
    for keep in ((), {"step"}):
        part = record(keep)
        assert [layer.name for layer in part.layers] == ["mean"]
        assert part.arrays[0].shape == ((len(keep) and 3) or 1, 1, 256, len(part.positions))
        np.testing.assert_allclose(part.arrays[0].sum(-1).mean(), _mass(whole), atol=1e-5)


def _mass(recording):
    """The share of attention on the recorded tokens, averaged over layers and places."""
    return np.mean([a.sum(-1).mean() for a in recording.arrays])


def test_each_image_its_own_map(pipe):
    prompts = ["a red house", "at the very big cat"]
    with trace(pipe, {"layer", "step"}) as recorder:
        # One noise for each of four pictures: prompt by prompt, two each.
        run(pipe, prompts, seeds=(1, 2, 3, 4), num_images_per_prompt=2)
        run(pipe, "a house", seeds=(5,), guidance_scale=1.0)
    texts = [m.tokens.prompt for m in recorder.maps]
    assert texts == [prompts[0]] * 2 + [prompts[1]] * 2 + ["a house"]
    for prompt, seed, together in (
        (prompts[0], 2, recorder.recordings[1]),
        (prompts[1], 3, recorder.recordings[2]),
    ):
        with trace(pipe, {"layer", "step"}) as alone:
            run(pipe, prompt, seeds=(seed,))
        for a, b in zip(alone.recordings[0].arrays, together.arrays, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)


def test_later_runs_do_not_alter_a_recording(pipe):
    with trace(pipe) as recorder:
        run(pipe, "a house")
        first = recorder.recordings[0]
        before = [a.copy() for a in first.arrays]
        run(pipe, "the other cat", seeds=(8,))
    assert all(np.array_equal(a, b) for a, b in zip(before, first.arrays, strict=True))
    assert len(recorder.maps) == 2


@pytest.mark.parametrize(
    ("scheduler", "steps"), [(EulerAncestralDiscreteScheduler, 4), (HeunDiscreteScheduler, 4)]
)
def test_one_map_a_step(pipe, scheduler, steps):
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
    with trace(pipe, {"layer", "step"}) as recorder:
        run(pipe, "a house", steps=steps)
    recording = recorder.recordings[0]
    assert len(recording.timesteps) == steps
    assert all(len(array) == steps for array in recording.arrays)
    assert list(recording.timesteps) == sorted(recording.timesteps, reverse=True)


def test_tokens_are_the_prompts_own_or_all(pipe):
    with trace(pipe) as own, pytest.raises(TraceError, match="another trace is open"), trace(pipe):
        pass
    with trace(pipe) as own:
        run(pipe, "at house")
    assert own.recordings[0].positions == (0, 1, 2, 3)
    with trace(pipe, tokens="all") as every:
        run(pipe, "at house")
    assert every.recordings[0].positions == tuple(range(77))


# --- the pipeline comes back as it was ---


def test_restored_after_success_and_errors(pipe):
    before = state_without_timing(pipe)
    with trace(pipe):
        run(pipe, "a house")
    assert state_without_timing(pipe) == before

    class Stop(BaseException):
        pass

    def stop(*_):
        raise Stop

    with pytest.raises(Stop), trace(pipe):
        run(pipe, "a house", callback_on_step_end=stop)
    assert state_without_timing(pipe) == before
    with pytest.raises(KeyboardInterrupt), trace(pipe):
        raise KeyboardInterrupt
    assert state_without_timing(pipe) == before


def test_restored_when_installing_fails_half_way(pipe, monkeypatch):
    before = state_without_timing(pipe)
    layers = list(cross_attention_layers(pipe).values())
    original = layers[3].set_processor
    monkeypatch.setattr(
        type(layers[3]), "set_processor",
        lambda self, processor: (_ for _ in ()).throw(RuntimeError("full"))
        if self is layers[3] and isinstance(processor, RecordingProcessor)
        else AttnSet(self, processor),
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="full"), trace(pipe):
        pass
    monkeypatch.undo()
    assert original.__func__ is type(layers[3]).set_processor
    assert state_without_timing(pipe) == before


def AttnSet(layer, processor):
    layer.processor = processor


def test_restored_when_a_layer_fails_within(pipe):
    before = state_without_timing(pipe)
    layer = next(iter(cross_attention_layers(pipe).values()))

    def fail(*_):
        raise RuntimeError("within")

    handle = layer.to_v.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="within"), trace(pipe):
        run(pipe, "a house")
    handle.remove()
    assert state_without_timing(pipe) == before


def test_keyword_arguments_still_reach_the_processor(pipe):
    seen = []

    class Curious(AttnProcessor2_0):
        def __call__(
            self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, mood=None
        ):
            seen.append(mood)
            return super().__call__(attn, hidden_states, encoder_hidden_states, attention_mask)

    pipe.unet.set_attn_processor(Curious())
    with trace(pipe):
        run(pipe, "a house", steps=1, cross_attention_kwargs={"mood": "curious"})
    assert set(seen) == {"curious"}


# --- no silent nothing ---


def test_errors_say_what_to_do(pipe):
    with pytest.raises(ArgumentError, match=r"keep=\['colour'\] is not known"):
        trace(pipe, {"colour"})
    with pytest.raises(ArgumentError, match="expected 'prompt' or 'all'"):
        trace(pipe, tokens="some")
    with trace(pipe) as recorder:
        pass
    with pytest.raises(NothingRecordedError, match="inside of the `with` block"):
        _ = recorder.maps
    with pytest.raises(TraceError, match="open already"), recorder, recorder:
        pass
    with pytest.raises(ArgumentError, match=r"branches=\['left'\] is not known"):
        trace(pipe, branches=["left"])
    with pytest.raises(TraceError, match="guidance is off"), trace(pipe, branches=["negative"]):
        run(pipe, "a house", guidance_scale=1.0)
    with trace(pipe) as recorder:
        run(pipe, "a house", steps=1)
    with pytest.raises(NothingRecordedError, match="the negative branch was not recorded"):
        _ = recorder.negative_maps
    with pytest.raises(TraceError, match="of this trace encoded a prompt"), trace(pipe):
        pipe.unet(torch.zeros(1, 4, 16, 16), 1, torch.zeros(1, 77, 32))


def test_replaced_processors_are_told_before_a_step_is_spent(pipe):
    calls = []
    with pytest.raises(TraceError, match="was replaced while the trace was open"), trace(pipe):
        pipe.enable_attention_slicing()
        run(pipe, "a house", callback_on_step_end=lambda *a: calls.append(1) or a[-1])
    assert not calls
    # What the user set stays theirs.
    assert all(
        type(layer.processor).__name__ == "SlicedAttnProcessor"
        for layer in cross_attention_layers(pipe).values()
    )


def test_slicing_and_fusing_before_the_trace(pipe):
    pipe.enable_attention_slicing()
    plain = run(pipe, "a house")
    with trace(pipe) as recorder:
        assert np.array_equal(plain, run(pipe, "a house"))
    assert recorder.maps[0]["house"].values.max() > 0
    pipe = random_pipeline()
    with trace(pipe) as apart:
        run(pipe, "a house")
    pipe.unet.fuse_qkv_projections()
    plain = run(pipe, "a house")
    with trace(pipe) as recorder:
        assert np.array_equal(plain, run(pipe, "a house"))
    for a, b in zip(apart.recordings[0].arrays, recorder.recordings[0].arrays, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_processors_whose_attention_cannot_be_seen(pipe):
    class Hidden:
        def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
            return hidden_states

    pipe.unet.set_attn_processor(Hidden())
    with pytest.raises(TraceError, match=r"Hidden at .* computes its attention where"), trace(pipe):
        run(pipe, "a house")


def test_models_without_text_cross_attention(pipe):
    class Transformer:
        unet = None

    with pytest.raises(ModelError, match="Transformer has no text cross-attention"):
        trace(Transformer())


def test_words_past_the_limit(pipe):
    prompt = "at house " + "x" * 80 + " the end"
    with trace(pipe) as recorder:
        run(pipe, prompt, steps=1)
    maps = recorder.maps[0]
    assert maps["house"].values.shape == (64, 64)
    with pytest.raises(Exception, match="77"):
        _ = maps["end"]
    with pytest.raises(SelectionError, match="steps cannot be selected"):
        maps.select(steps=0)


# --- prompt_embeds, the negative branch, what may be kept ---


def test_states_given_directly_are_labelled_by_position_or_by_their_prompts(pipe):
    states = pipe.encode_prompt("a red house", "cpu", 1, False)[0]
    arguments = {"prompt_embeds": states, "guidance_scale": 1.0}
    with trace(pipe) as known:
        plain = run(pipe, "a red house", guidance_scale=1.0)
    with trace(pipe) as positions:
        assert np.array_equal(plain, run(pipe, None, **arguments))
    house = known.maps[0].tokens.find("house")
    by_position = positions.maps[0][str(house[0])].values
    np.testing.assert_allclose(by_position, known.maps[0]["house"].values, atol=1e-6)
    with trace(pipe, prompts="a red house") as told:
        run(pipe, None, **arguments)
    assert np.array_equal(told.maps[0]["house"].values, known.maps[0]["house"].values)


def test_labels_that_are_not_what_was_read(pipe):
    states = pipe.encode_prompt(["a red house", "at the cat"], "cpu", 1, False)[0]

    def refused(said, prompts, **arguments):
        with pytest.raises(TraceError, match=said), trace(pipe, prompts=prompts):
            run(pipe, None, guidance_scale=1.0, **arguments)

    nothing_of = "not what this pipeline makes of "
    refused(nothing_of + "'abc'", "abc", prompt_embeds=states[:1])
    refused(nothing_of + "'a red house'", "a red house", prompt_embeds=torch.zeros(1, 9, 32))
    three = ["a", "b", "c"]
    refused("given 3 labels in `prompts` and the pipeline 1 ", three, prompt_embeds=states[:1])
    refused("given 1 label in `prompts` and the pipeline 2 ", "a red house", prompt_embeds=states)
    refused(nothing_of + "'at the cat'", ["at the cat", "a red house"], prompt_embeds=states)
    with (
        pytest.raises(TraceError, match="give the labels of prompt_embeds alone"),
        trace(pipe, prompts="a red house"),
    ):
        run(pipe, "at the cat")
    with trace(pipe, prompts=["a red house", "at the cat"]) as recorder:
        run(pipe, None, (1, 2, 3, 4), prompt_embeds=states, num_images_per_prompt=2)
    prompts = [maps.tokens.prompt for maps in recorder.maps]
    assert prompts == ["a red house"] * 2 + ["at the cat"] * 2
    # Rounded by half a type they are still the same words.
    with trace(pipe, prompts="a red house") as recorder:
        run(pipe, None, prompt_embeds=states[:1].bfloat16().float(), guidance_scale=1.0)
    assert recorder.maps[0]["house"].values.max() > 0
    pipe.text_encoder = None
    with (
        pytest.raises(TraceError, match="no text encoder, so it cannot be known"),
        trace(pipe, prompts="a red house"),
    ):
        run(pipe, None, prompt_embeds=states[:1], guidance_scale=1.0)
    with trace(pipe) as recorder:
        run(pipe, None, prompt_embeds=states[:1], guidance_scale=1.0)
    assert recorder.maps[0]["3"].values.max() > 0


def test_the_negative_branch_on_request(pipe):
    negative = {"negative_prompt": "at cat"}
    with trace(pipe, branches=["conditional", "negative"]) as both:
        run(pipe, "a house", **negative)
    with trace(pipe) as swapped:  # the first step sees the same noise in both branches
        run(pipe, "at cat", negative_prompt="a house")
    assert both.maps[0].tokens.prompt == "a house"
    assert both.negative_maps[0].tokens.prompt == "at cat"
    with trace(pipe, {"step"}, branches=["negative"]) as one:
        run(pipe, "a house", **negative)
    with trace(pipe, {"step"}) as other:
        run(pipe, "at cat", negative_prompt="a house")
    first = (one.negative_recordings[0].arrays[0][0], other.recordings[0].arrays[0][0])
    np.testing.assert_allclose(*first, atol=1e-6)
    assert swapped.maps[0].tokens.prompt == "at cat"


def test_what_is_kept_is_known_before_a_step_is_spent(pipe):
    everything = {"layer", "step", "head"}
    with trace(pipe, everything, tokens="all") as recorder:
        run(pipe, "a house", height=104, width=176)
    size = recorder.recordings[0].nbytes
    calls = []
    with (
        pytest.raises(ArgumentError, match=r"would take \d+ MiB, and the limit is"),
        trace(pipe, everything, tokens="all", limit=size - 1),
    ):
        run(pipe, "a house", height=104, width=176, callback_on_step_end=lambda *a: calls.append(1))
    assert not calls
    with trace(pipe, everything, tokens="all", limit=size) as recorder:
        run(pipe, "a house", height=104, width=176)


def test_large_recordings_say_so_beforehand(pipe, monkeypatch):
    monkeypatch.setattr("heedmap.recording.recorder.WARN", 1000)
    with pytest.warns(UserWarning, match="MiB of memory"), trace(pipe):
        run(pipe, "a house", steps=1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_latents_that_are_no_numbers(pipe, bad):
    with pytest.raises(ArgumentError, match="the latents hold NaN or Inf before"), trace(pipe):
        run(pipe, "a house", latents=torch.full((1, 4, 16, 16), bad))

    def spoil(pipe, step, timestep, tensors):
        return {"latents": tensors["latents"] * bad}

    with trace(pipe) as recorder:
        pipe("a house", num_inference_steps=2, output_type="latent", callback_on_step_end=spoil)
    with pytest.raises(TraceError, match="holds NaN or Inf"):
        _ = recorder.maps


def test_what_a_trace_may_keep_unless_told_otherwise():
    assert (DrawOptions.limit, WARN) == (2 * 1024**3, 256 * 1024**2)


def test_steps_are_those_of_the_last_call(pipe):
    with trace(pipe) as recorder:
        run(pipe, "a house", steps=3)
        run(pipe, "a house", steps=2)
        assert recorder.steps == 2
    assert recorder.steps == 2


@pytest.mark.parametrize(
    ("keep", "cells", "steps"),
    [
        ((), 256, 1),
        (("step",), 256, 3),
        (("head",), 2 * 256, 1),
        (("layer",), 3 * 256 + 3 * 64 + 16, 1),
        (("layer", "step", "head"), 2 * (3 * 256 + 3 * 64 + 16), 3),
    ],
)
def test_what_is_kept_is_known_to_the_byte(pipe, keep, cells, steps):
    """Four bytes a cell, for start, "a", "house" and end."""
    size = 4 * cells * steps * 4
    with trace(pipe, keep, limit=size) as recorder:
        run(pipe, "a house", steps=3)
    assert sum(array.nbytes for array in recorder.recordings[0].arrays) == size
    with pytest.raises(ArgumentError, match="would take"), trace(pipe, keep, limit=size - 1):
        run(pipe, "a house", steps=3)


def test_a_unet_that_is_called_by_names(pipe):
    """The timestep, the text states or all may come as keywords."""
    with trace(pipe) as recorder:
        run(pipe, "a house")
    expected = recorder.recordings[0].arrays
    names = ("sample", "timestep", "encoder_hidden_states")
    for count in (0, 1, 3):

        def named(unet, args, kwargs, count=count):
            given = dict(zip(names, args, strict=False)) | kwargs
            return (
                tuple(given[name] for name in names[:count]),
                {name: value for name, value in given.items() if name not in names[:count]},
            )

        handle = pipe.unet.register_forward_pre_hook(named, with_kwargs=True)
        with trace(pipe) as recorder:
            run(pipe, "a house")
        handle.remove()
        for mine, whole in zip(recorder.recordings[0].arrays, expected, strict=True):
            np.testing.assert_array_equal(mine, whole)


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
        with pytest.raises(RuntimeError, match="stop"):
            run(pipe, "the sea", callback_on_step_end=stop)
        run(pipe, "a cat")
        with pytest.raises(RuntimeError, match="stop"):
            run(pipe, "a dog", callback_on_step_end=stop)
    assert seen == [["a house", "the sea"]] * 2 + [["a house", "a cat", "a dog"]] * 2
    assert [maps.tokens.prompt for maps in recorder.maps] == ["a house", "a cat"]


def test_whether_a_negative_prompt_was_read(pipe):
    with trace(pipe) as recorder:
        assert not recorder.guided
        for scale, guided in ((1.0, False), (2.0, True), (1.0, False)):
            run(pipe, "a house", steps=1, guidance_scale=scale)
            assert recorder.guided is guided


def test_guidance_that_ends_on_the_way(pipe):
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


def test_pipelines_that_cannot_be_recorded_are_refused(pipe):
    """Also what is made of one of them."""
    base = type("StableDiffusionPanoramaPipeline", (type(pipe),), {})
    pipe.__class__ = type("Mine", (base,), {})
    with pytest.raises(ModelError, match="StableDiffusionPanoramaPipeline draws views that overl"):
        trace(pipe)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keep": 3}, "keep is 3: expected a list of names"),
        ({"keep": "step"}, "keep is 'step': expected a list of names"),
        ({"keep": ("step", 3)}, r"keep is \('step', 3\): expected a list of names"),
        ({"branches": None}, "branches is None: expected a list of names"),
        ({"limit": "2GB"}, "limit is '2GB': expected a whole number"),
        ({"limit": 0}, "limit is 0: expected a whole number from 1"),
    ],
)
def test_what_a_trace_is_not_asked_for(pipe, given, said):
    with pytest.raises(ArgumentError, match=said):
        trace(pipe, **given)


def test_a_pass_without_a_step_drew_nothing(pipe):
    with trace(pipe) as recorder:
        states, _ = pipe.encode_prompt("a red house", "cpu", 1, False)
        pipe.scheduler.set_timesteps(2)
        pipe.unet(torch.zeros(1, 4, 8, 8), pipe.scheduler.timesteps[0], states)
        with pytest.raises(NothingRecordedError, match="nothing was recorded"):
            _ = recorder.maps


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


def test_latents_given_back_without_letting_go_of_the_models():
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


# --- edits --------------------------------------------------------------------------------------


def test_edits_of_a_call_of_ones_own_are_those_of_generate():
    """Each prompt of the batch has the rules of its own words, and the pictures are equal."""
    edits = [hm.Reweight("house", 3), hm.Confine("house", (0, 0, 64, 128))]
    pipe = random_pipeline()
    prompts = ["a red house", "the big old house"]
    runs = generate_batch(pipe, prompts, seeds=[1, 2], steps=3, edits=edits)
    generators = [torch.Generator("cpu").manual_seed(seed) for seed in (1, 2)]
    with trace(pipe, edits=edits) as recorder:
        images = pipe(prompts, num_inference_steps=3, generator=generators).images
    for made, image, maps in zip(runs, images, recorder.maps, strict=True):
        assert np.array_equal(made.image, image)
        for word in made.maps.words:
            np.testing.assert_array_equal(
                maps.at(word.number).values, made.maps.at(word.number).values
            )
    plain = generate_batch(pipe, prompts, seeds=[1, 2], steps=3)
    assert not np.array_equal(plain[0].image, images[0])
    # A second call in the same trace reads its own prompts; a bare one afterwards is bare.
    with trace(pipe, edits=edits[:1]) as recorder:
        for prompt in ("a house", "one red house"):
            pipe(prompt, num_inference_steps=2, generator=torch.Generator().manual_seed(1))
    assert len(recorder.maps) == 2
    alone = hm.generate(pipe, "one red house", seed=1, steps=2, edits=edits[:1])
    np.testing.assert_array_equal(recorder.maps[1]["house"].values, alone.maps["house"].values)


def test_edits_that_do_nothing_or_cannot_are_told():
    pipe = random_pipeline()

    def call(*edits):
        with trace(pipe, edits=edits):
            pipe("a red house", num_inference_steps=2, generator=torch.Generator().manual_seed(1))

    with pytest.warns(hm.HeedmapWarning, match="changed nothing in a run of 2 steps"):
        call(hm.Confine("red", (0, 0, 64, 64), start=0.1, end=0.2))
    with pytest.raises(UnknownWordError, match="'dog' is not in the prompt"):
        call(hm.Reweight("dog", 2))
    with pytest.raises(ArgumentError, match="expected a list of edits"):
        trace(pipe, edits=3)
    with pytest.raises(ArgumentError, match="is no edit"):
        trace(pipe, edits=["red"])
    call(hm.Reweight("red", 2))  # what was refused is no longer in the way
