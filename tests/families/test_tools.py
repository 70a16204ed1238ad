"""What makes a pipeline faster or smaller: exact maps under a trace, or refused beforehand."""

import numpy as np
import pytest
import torch
from accelerate import cpu_offload
from DeepCache import DeepCacheSDHelper
from diffusers import (
    FasterCacheConfig,
    FirstBlockCacheConfig,
    LayerSkipConfig,
    PyramidAttentionBroadcastConfig,
    StableDiffusionImg2ImgPipeline,
)
from diffusers.hooks import apply_faster_cache, apply_layer_skip, apply_pyramid_attention_broadcast
from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry
from diffusers.models.attention_processor import (
    AttnProcessor,
    AttnProcessor2_0,
    JointAttnProcessor2_0,
)
from diffusers.models.transformers.transformer_flux import FluxAttnProcessor
from diffusers.models.transformers.transformer_qwenimage21 import QwenImage21FlexAttnProcessor
from making import cross_attention_layers, self_attention_layers
from oracle import assert_probabilities, denoiser, reference

import heedmap as hm
from families.checking import (
    TOLERANCE,
    WHOLE,
    after_steps,
    assert_restored,
    check_family,
    count_passes,
    paint,
    state_of,
)
from families.models import TABLE, fuse, picture
from heedmap.errors import HeedmapError, ModelError, SelectionError, TraceError
from heedmap.recording.tracing import trace

PROMPT = "a red house"


def call_of(family, **more):
    return {"prompt": PROMPT, **TABLE[family].arguments(), **more}


# --- processors, types, offloading ---


def classic(pipe):
    denoiser(pipe).set_attn_processor(AttnProcessor())


def slices(size):
    return lambda pipe: pipe.enable_attention_slicing(size)


def channels_last(pipe):
    pipe.unet.to(memory_format=torch.channels_last)


def offload_model(pipe):
    pipe.enable_model_cpu_offload(device="cpu")


def offload_group(pipe):
    where = {"onload_device": torch.device("cpu"), "offload_device": torch.device("cpu")}
    pipe.transformer.enable_group_offload(offload_type="leaf_level", **where)


def offload_each(pipe):
    """What `enable_sequential_cpu_offload` does, but to "cpu": accelerate fails on its "cpu:0"."""
    cpu_offload(denoiser(pipe), torch.device("cpu"))


def tile(pipe):
    pipe.vae.enable_slicing()
    pipe.vae.enable_tiling()


TOOLS = [
    *[(family, classic) for family in ("sd1", "sigma")],
    *[("sd1", slices("max")), ("sd2", slices("auto"))],
    *[(family, fuse) for family in ("sd1", "hunyuan", "sd3", "flux", "aura")],
    *[(family, offload_model) for family in ("sd1", "sd3")],
    *[(family, offload_each) for family in ("sd1", "flux", "zimage", "ernie")],
    *[("sd35", offload_group), ("sd1", channels_last), ("sd1", tile)],
]


@pytest.mark.parametrize(("family", "prepare"), TOOLS)
def test_a_tool_leaves_maps_exact(load, family, prepare):
    pipe = load(family)
    prepare(pipe)
    check_family(pipe, family, PROMPT)


HALF = [
    *[(family, torch.bfloat16) for family in ("sd1", "sigma", "hunyuan", "sd3", "flux", "klein")],
    *[(family, torch.bfloat16) for family in ("qwen", "cogview4", "aura", "zimage", "lumina2")],
    *[(family, torch.float16) for family in ("sd2", "sana15", "sd35", "flux")],
]


@pytest.mark.parametrize(("family", "dtype"), HALF)
def test_half_types_leave_maps_exact(load, family, dtype):
    """They are summed in float32. Some pipelines round the timestep in the latents' type."""
    is_mixed = family == "krea"  # whose norms stay in float32
    pipe = load(family, dtype=dtype) if is_mixed else load(family).to(dtype)
    if family in ("sd2", "sigma"):
        classic(pipe)
    recorder = check_family(pipe, family, PROMPT, output_type="latent")
    assert recorder.recordings[0].timesteps == tuple(map(float, pipe.scheduler.timesteps))


def test_a_native_backend_leaves_maps_exact(load):
    pipe = load("flux")
    try:
        pipe.transformer.set_attention_backend("_native_math")
        check_family(pipe, "flux", PROMPT)
    finally:
        _AttentionBackendRegistry.set_active_backend(AttentionBackendName.NATIVE)  # of all models


def test_qwen_image_21_needs_no_cache_and_no_flex_attention(load):
    pipe = load("qwen21")
    check_family(pipe, "qwen21", PROMPT, use_kv_cache=False)
    pipe.transformer.set_attn_processor(QwenImage21FlexAttnProcessor())
    passes = count_passes(pipe)
    with pytest.raises(TraceError, match="flex"):
        hm.generate(pipe, PROMPT, seed=1)
    assert not passes


@pytest.mark.parametrize("way", ["active", "of the layers"])
def test_a_backend_that_cannot_be_seen_is_refused_before_sampling(load, way, monkeypatch):
    pipe = load("flux")
    passes, before = count_passes(pipe), state_of(pipe)
    if way == "active":
        registry = "diffusers.models.attention_dispatch._AttentionBackendRegistry._active_backend"
        monkeypatch.setattr(registry, AttentionBackendName.SAGE)
    else:
        monkeypatch.setattr(FluxAttnProcessor, "_attention_backend", "flash")
    with pytest.raises(TraceError):
        hm.generate(pipe, PROMPT, seed=1, steps=1)
    monkeypatch.undo()
    assert not passes
    assert_restored(pipe, before)


# --- one UNet in two pipelines ---


def test_another_pipeline_on_the_traced_unet_is_refused_and_the_map_stays(load):
    pipe = load("sd1")
    other, more = StableDiffusionImg2ImgPipeline.from_pipe(pipe), {"image": picture(64, 64)}
    with trace(pipe, WHOLE) as recorder:
        paint(pipe, PROMPT)
        kept = [array.copy() for array in recorder.recordings[0].arrays]
        with pytest.raises(HeedmapError, match="pipeline"):
            paint(other, PROMPT, **more)
    assert len(recorder.recordings) == 1
    assert all(map(np.array_equal, recorder.recordings[0].arrays, kept))
    with trace(pipe), pytest.raises(TraceError, match="another trace"), trace(other):
        pass


# --- tools that skip layers ---

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
    denoiser(pipe).register_forward_pre_hook(
        lambda module, args, given: setattr(pipe, "current", int(given["timestep"][0])),
        with_kwargs=True,
    )


def layer_skip(pipe):
    config = LayerSkipConfig(indices=[1], fqn="transformer_blocks", skip_attention=True)
    apply_layer_skip(denoiser(pipe), config)


def cache_of(config):
    return lambda pipe: pipe.transformer.enable_cache(config)


CACHES = {
    "DeepCache": ("sd1", deep_cache),
    "pyramid": ("sigma", pyramid),
    "layers": ("sigma", layer_skip),
    "first block": ("schnell", cache_of(FirstBlockCacheConfig(threshold=10.0))),
}


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("cache", CACHES)
def test_maps_of_skipped_layers_are_means_over_the_steps_that_ran(load, cache):
    family, prepare = CACHES[cache]
    call = call_of(family, steps=STEPS)

    def cached():
        pipe = load(family)
        prepare(pipe)
        return pipe

    pipe = cached()
    with reference(pipe) as shares:
        bare = paint(pipe, **call)
    pipe = cached()
    with trace(pipe, WHOLE) as recorder:
        assert np.array_equal(bare, paint(pipe, **call))
    (recording,) = recorder.recordings
    assert [layer.name for layer in recording.layers] == list(shares)
    assert sum(map(len, shares.values())) < STEPS * len(cross_attention_layers(pipe))
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        passes = [p[-1][..., list(recording.positions)] for p in shares[layer.name]]
        ran = dict(zip(shares.passes[layer.name], passes, strict=True))
        mean = np.mean(passes, axis=0)
        for step in range(STEPS):
            near = shares.near[layer.name]
            assert_probabilities(array[step], ran.get(step, mean), near, layer.name)
    for kept in ((), ("step",)):
        pipe = cached()
        with trace(pipe, kept) as other:
            paint(pipe, **call)
        found, whole = (one.maps[0]["house"].values for one in (other, recorder))
        np.testing.assert_allclose(found, whole, rtol=0, atol=TOLERANCE)


def test_a_cache_is_in_the_settings_and_gives_a_warning(load):
    pipe = load("sd1")
    deep_cache(pipe)
    with pytest.warns(hm.HeedmapWarning, match="DeepCache"):
        run = hm.generate(pipe, PROMPT, seed=1, steps=4)
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


def test_a_layer_whose_forward_was_replaced_is_refused(load):
    pipe = load("sd1")
    name, layer = [*cross_attention_layers(pipe).items()][1]

    def replace(*_):
        layer.forward = lambda hidden_states, **_: hidden_states

    with trace(pipe, {"step"}) as recorder:
        paint(pipe, PROMPT, steps=3, **after_steps(pipe, replace))
    with pytest.raises(TraceError, match=f"{name} at step 1, 2"):
        recorder.maps  # noqa: B018
    with pytest.raises(TraceError), trace(pipe):
        pytest.fail("the trace was opened")


# --- processors of one's own ---


class Widened(JointAttnProcessor2_0):
    """Adds keys of its own to those of text and image."""

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, *args, **kwargs):
        wide = torch.cat([encoder_hidden_states, encoder_hidden_states[:, :3]], dim=1)
        output, text = super().__call__(attn, hidden_states, wide, *args, **kwargs)
        return output, text[:, : encoder_hidden_states.shape[1]]


def test_attention_with_keys_of_its_own_is_refused(load):
    pipe = load("sd3")
    for layer in cross_attention_layers(pipe).values():
        layer.set_processor(Widened())
    before = state_of(pipe)["processors"]
    with pytest.raises(TraceError):
        hm.generate(pipe, PROMPT, seed=1, steps=2)
    assert state_of(pipe)["processors"] == before


class Shared(AttnProcessor2_0):
    """Self-attention in which each image also sees the first one (StyleAligned)."""

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, *args, **kwargs):
        other = hidden_states[:1].expand_as(hidden_states)
        both = torch.cat([hidden_states, other], dim=1)
        return super().__call__(attn, hidden_states, both, *args, **kwargs)


def test_shared_self_attention_gives_no_refined_maps(load):
    pipe = load("sd1")
    for layer in self_attention_layers(pipe).values():
        layer.set_processor(Shared())
    bare = paint(pipe, PROMPT)
    with trace(pipe) as recorder:
        assert np.array_equal(bare, paint(pipe, PROMPT))
    assert recorder.maps[0]["house"].values.max() > 0
    with pytest.raises(SelectionError):
        recorder.maps[0].refined  # noqa: B018
