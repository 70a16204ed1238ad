"""Layers that do not run at every step, and calls that end early: served exactly, or refused."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from DeepCache import DeepCacheSDHelper
from diffusers import (
    FasterCacheConfig,
    LayerSkipConfig,
    PyramidAttentionBroadcastConfig,
    StableDiffusionXLInpaintPipeline,
)
from diffusers.hooks import apply_faster_cache, apply_layer_skip, apply_pyramid_attention_broadcast
from diffusers.models.attention_processor import AttnProcessor2_0
from oracle import assert_probabilities, tolerance
from torch.nn.attention import SDPBackend, sdpa_kernel

import heedmap
from families.checking import TOLERANCE, WHOLE, after_steps, denoiser, paint
from families.models import mask, picture
from heedmap.backends.registry import cross_attention_layers, self_attention_layers
from heedmap.errors import ModelError, SelectionError, TraceError
from heedmap.recording.tracing import trace

PROMPT = "a red house"
STEPS = 4


def deep_cache(pipe):
    helper = DeepCacheSDHelper(pipe=pipe)
    helper.set_params(cache_interval=3, cache_branch_id=0)
    helper.enable()


def pyramid(pipe):
    config = PyramidAttentionBroadcastConfig(
        cross_attention_block_skip_range=2,
        cross_attention_timestep_skip_range=(100, 900),
        current_timestep_callback=lambda: pipe.current,
    )
    apply_pyramid_attention_broadcast(denoiser(pipe), config)
    model = denoiser(pipe)
    model.register_forward_pre_hook(
        lambda module, args, given: setattr(pipe, "current", int(given["timestep"][0])),
        with_kwargs=True,
    )


def layer_skip(pipe):
    config = LayerSkipConfig(indices=[1], fqn="transformer_blocks", skip_attention=True)
    apply_layer_skip(denoiser(pipe), config)


CACHES = [("sd1", deep_cache), ("sigma", pyramid), ("sigma", layer_skip)]
each_cache = pytest.mark.parametrize(("family", "cache"), CACHES)


@contextmanager
def computed(pipe):
    """The float64 probabilities (B, H, Q, K) that were computed, and what float32 allows.

    Hooks on the projections see a layer only where it computes.
    """
    found, held, near, step = {}, {}, {}, [-1]

    def hook(name, layer, kind):
        def read(_, args, output):
            held[kind] = output.double().unflatten(-1, (layer.heads, -1)).transpose(1, 2)
            if kind == "key":
                scores = held["query"] @ held["key"].mT * layer.scale + bias(name)
                found[name, step[0]] = scores.softmax(-1).numpy()
                now = tolerance(held["query"], held["key"], layer.scale)
                near[name] = max(now, near.get(name, 0.0))

        return read

    def bias(name):
        return 0.0 if held["mask"] is None else held["mask"].double()[:, None]

    def begin(_, args, given):
        step[0] += 1
        visible = given.get("encoder_attention_mask")
        held["mask"] = None if visible is None else ((1 - visible.double()) * -10000.0)[:, None]

    handles = [denoiser(pipe).register_forward_pre_hook(begin, with_kwargs=True)]
    for name, layer in cross_attention_layers(pipe).items():
        handles.append(layer.to_q.register_forward_hook(hook(name, layer, "query")))
        handles.append(layer.to_k.register_forward_hook(hook(name, layer, "key")))
    yield found, near
    for handle in handles:
        handle.remove()


@each_cache
@pytest.mark.filterwarnings("ignore:.*skipped")
def test_maps_of_skipped_layers_are_means_over_the_steps_that_ran(load, family, cache):
    pipe = load(family)
    cache(pipe)
    with computed(pipe) as (expected, near):
        bare = paint(pipe, PROMPT, steps=STEPS)
    pipe = load(family)
    cache(pipe)
    with trace(pipe, WHOLE) as recorder:
        assert np.array_equal(bare, paint(pipe, PROMPT, steps=STEPS))
    (recording,) = recorder.recordings
    ran = {name for name, _ in expected}
    assert {layer.name for layer in recording.layers} == ran
    assert len(expected) < STEPS * len(cross_attention_layers(pipe))
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        steps = {step: p[-1] for (name, step), p in expected.items() if name == layer.name}
        mean = np.mean([*steps.values()], axis=0)
        for step in range(STEPS):
            wanted = steps.get(step, mean)[..., list(recording.positions)]
            assert_probabilities(array[step], wanted, near[layer.name], layer.name)
    for kept in ((), ("head",), ("layer",), ("step",)):
        pipe = load(family)
        cache(pipe)
        with trace(pipe, kept) as other:
            paint(pipe, PROMPT, steps=STEPS)
        found, whole = (one.maps[0]["house"].values for one in (other, recorder))
        np.testing.assert_allclose(found, whole, rtol=0, atol=TOLERANCE)


def test_a_cache_is_in_the_settings_and_warned_of(load):
    pipe = load("sd1")
    deep_cache(pipe)
    with pytest.warns(heedmap.HeedmapWarning, match="DeepCache"):
        run = heedmap.generate(pipe, PROMPT, seed=1, steps=4)
    assert run.settings.skipping == ("DeepCache",)


def test_faster_cache_is_refused_before_sampling(load):
    pipe = load("sigma")
    config = FasterCacheConfig(
        unconditional_batch_skip_range=2,
        attention_weight_callback=lambda _: 0.3,
        current_timestep_callback=lambda: 500,
    )
    apply_faster_cache(denoiser(pipe), config)
    with pytest.raises(ModelError), trace(pipe):
        paint(pipe, PROMPT)


def test_a_layer_whose_forward_was_replaced_is_refused_before_sampling(load):
    pipe = load("sd1")
    layer = [*cross_attention_layers(pipe).values()][1]
    layer.forward = lambda hidden_states, **_: hidden_states
    with pytest.raises(TraceError), trace(pipe):
        pytest.fail("the trace was opened")


def test_a_layer_that_stops_running_is_an_error_and_the_images_stay(load):
    pipe = load("sd1")
    name, layer = [*cross_attention_layers(pipe).items()][1]

    def replace(step):
        layer.forward = lambda hidden_states, **_: hidden_states

    with trace(pipe, {"step"}) as recorder:
        assert len(paint(pipe, PROMPT, steps=3, **after_steps(pipe, replace))) == 1
    with pytest.raises(TraceError, match=f"{name} at step 1, 2"):
        recorder.maps  # noqa: B018


def test_a_processor_that_returns_a_cached_output_is_refused(load):
    class Cached(AttnProcessor2_0):
        def __init__(self):
            super().__init__()
            self.output = None

        def __call__(self, attn, hidden_states, *args, **kwargs):
            if self.output is None:
                self.output = super().__call__(attn, hidden_states, *args, **kwargs)
            return self.output

    pipe = load("sd1")
    for layer in cross_attention_layers(pipe).values():
        layer.set_processor(Cached())
    with pytest.raises(TraceError, match="cached"), trace(pipe):
        paint(pipe, PROMPT)


def test_attention_scores_that_diffusers_skips_are_skipped_in_a_trace(load):
    def skip(pipe):
        config = LayerSkipConfig(
            indices=[0, 1], fqn="transformer_blocks", skip_attention=False, skip_ff=False,
            skip_attention_scores=True,
        )  # fmt: skip
        apply_layer_skip(denoiser(pipe), config)

    pipe = load("sigma")
    plain = paint(pipe, PROMPT)
    skip(pipe)
    bare = paint(pipe, PROMPT)
    assert not np.array_equal(plain, bare)
    with trace(pipe):
        assert np.array_equal(bare, paint(pipe, PROMPT))


# --- calls that end early, or are not the pipeline's -------------------------------------------


def test_an_interrupted_call_that_returns_latents_keeps_its_maps(load):
    pipe = load("sdxl", StableDiffusionXLInpaintPipeline)
    given = {"image": picture(64, 64), "mask_image": mask(64, 64), "strength": 1.0}
    given |= {"height": 64, "width": 64, "output_type": "latent", "steps": 4}

    def interrupt(step):
        pipe._interrupt = step == 1

    with trace(pipe) as alone:
        paint(pipe, "the cat", **given)
    with trace(pipe, {"step"}) as recorder:
        paint(pipe, PROMPT, **given, **after_steps(pipe, interrupt))
        paint(pipe, "the cat", **given)
    assert [maps.tokens.prompt for maps in recorder.maps] == [PROMPT, "the cat"]
    assert len(recorder.recordings[0].timesteps) == 2
    np.testing.assert_allclose(
        recorder.maps[1]["cat"].values, alone.maps[0]["cat"].values, rtol=0, atol=TOLERANCE
    )


@torch.no_grad()
def test_a_users_own_loop_can_be_read_after_the_trace(load):
    pipe = load("sd1")
    scheduler, latents = pipe.scheduler, torch.randn(1, 4, 8, 8)
    with trace(pipe, {"step"}) as recorder:
        for prompt in (PROMPT, "the cat"):
            states, negative = pipe.encode_prompt(prompt, "cpu", 1, True)
            scheduler.set_timesteps(3)
            x = latents
            for t in scheduler.timesteps:
                guess = pipe.unet(torch.cat([x, x]), t, torch.cat([negative, states])).sample
                x = scheduler.step(guess.chunk(2)[1], t, x).prev_sample
    assert [maps.tokens.prompt for maps in recorder.maps] == [PROMPT, "the cat"]
    assert len(recorder.recordings[1].timesteps) == 3


@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_text_states_that_a_callback_changes_in_place_are_refused(load, guidance):
    pipe = load("sd1")

    def change(pipe, step, timestep, given):
        given["prompt_embeds"].copy_(torch.randn_like(given["prompt_embeds"]))
        return given

    with pytest.raises(TraceError), trace(pipe):
        paint(
            pipe, PROMPT, steps=3, guidance_scale=guidance, callback_on_step_end=change,
            callback_on_step_end_tensor_inputs=["latents", "prompt_embeds"],
        )  # fmt: skip


# --- self-attention that is not of an image to itself alone ------------------------------------


class Shared(AttnProcessor2_0):
    """Self-attention in which each image also sees the first one (StyleAligned)."""

    def __init__(self, first):
        super().__init__()
        self.first = first

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, *args, **kwargs):
        other = hidden_states[:1].expand_as(hidden_states)
        both = [other, hidden_states] if self.first else [hidden_states, other]
        return super().__call__(attn, hidden_states, torch.cat(both, dim=1), *args, **kwargs)


@pytest.mark.parametrize(
    ("kernel", "first"), [(SDPBackend.MATH, True), (SDPBackend.FLASH_ATTENTION, False)]
)
def test_shared_self_attention_gives_no_refined_maps(load, kernel, first):
    pipe = load("sd1")
    for layer in self_attention_layers(pipe).values():
        layer.set_processor(Shared(first))
    with sdpa_kernel(kernel):
        bare = paint(pipe, PROMPT)
        with trace(pipe) as recorder:
            assert np.array_equal(bare, paint(pipe, PROMPT))
    assert recorder.maps[0]["house"].values.max() > 0
    with pytest.raises(SelectionError):
        recorder.maps[0].refined  # noqa: B018


def test_replacing_processors_inside_a_trace_is_refused(load):
    pipe = load("sd1")
    with trace(pipe):
        for change in (pipe.unload_ip_adapter, pipe.unet.set_default_attn_processor):
            with pytest.raises(TraceError):
                change()
    pipe.unet.set_default_attn_processor()
