"""Joint attention in the company of other tools: exact maps of what was computed, or a refusal.

The queries and keys are taken where a bare run hands them to torch, so that whatever a tool does to
them is in the expected shares; those are computed in float64.
"""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from accelerate import cpu_offload
from diffusers import (
    FirstBlockCacheConfig,
    FluxControlNetModel,
    FluxControlNetPipeline,
    MagCacheConfig,
    PyramidAttentionBroadcastConfig,
    SD3ControlNetModel,
    StableDiffusion3ControlNetPipeline,
    TaylorSeerCacheConfig,
)
from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry
from oracle import assert_probabilities, tolerance
from peft import LoraConfig
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from families import models
from families.checking import WHOLE, denoiser, paint, state_of
from heedmap.backends.registry import cross_attention_layers
from heedmap.recording.tracing import trace

PROMPT, STEPS = "a red house", 3
CALL = {"steps": STEPS, "max_sequence_length": 12, "output_type": "latent", "width": 48}
CALL |= {"height": 64, "guidance_scale": 1.0}


@contextmanager
def computed(pipe):
    """The shares (B, H, Q, K) of each layer at each step at which it computed.

    Yields also what float32 allows of them, by layer.
    """
    found: dict[str, dict[int, np.ndarray]] = {name: {} for name in cross_attention_layers(pipe)}
    near: dict[str, float] = {}
    now = {"step": -1, "layer": None, "tokens": 0}

    class Taking(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            given = kwargs or {}
            if func is scaled_dot_product_attention and now["layer"] is not None:
                parts = args or tuple(given[name] for name in ("query", "key"))
                query, key = (part.double() for part in parts[:2])
                p = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1)
                count = now["tokens"]
                is_first = hasattr(pipe.transformer, "single_transformer_blocks")
                p = p[:, :, count:, :count] if is_first else p[:, :, :-count, -count:]
                name = now["layer"]
                found[name][now["step"]] = p.numpy()
                near[name] = max(tolerance(query, key), near.get(name, 0.0))
                now["layer"] = None
            return func(*args, **given)

    def begin(_, args, given):
        now.update(step=now["step"] + 1, tokens=given["encoder_hidden_states"].shape[1])

    model = denoiser(pipe)
    handles = [model.register_forward_pre_hook(begin, with_kwargs=True)]
    for name, layer in cross_attention_layers(pipe).items():
        handles.append(
            layer.register_forward_pre_hook(lambda *_, name=name: now.update(layer=name))
        )
    try:
        with Taking():
            yield found, near
    finally:
        for handle in handles:
            handle.remove()


def check(make, prepare=lambda pipe: None, **arguments):
    """Hold every share of a traced run against a bare run's; return what was computed there."""
    call = {**CALL, **arguments}
    pipe = make()
    prepare(pipe)
    with computed(pipe) as (expected, near):
        bare = paint(pipe, PROMPT, **call)
    pipe = make()
    prepare(pipe)
    before = state_of(pipe)
    with trace(pipe, WHOLE, tokens="all") as recorder:
        assert np.array_equal(paint(pipe, PROMPT, **call), bare)
    after = state_of(pipe)
    assert after["processors"] == before["processors"] and after["classes"] == before["classes"]
    (recording,) = recorder.recordings
    assert [layer.name for layer in recording.layers] == [n for n, ran in expected.items() if ran]
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        ran = expected[layer.name]
        mean = np.mean([*ran.values()], axis=0)
        for step in range(STEPS):
            wanted = ran.get(step, mean)[0]
            assert_probabilities(array[step], wanted, near[layer.name], layer.name)
    assert recorder.maps[0]["house"].values.max() > 0
    return expected


@pytest.mark.parametrize(
    ("family", "dtype"),
    [("sd3", torch.bfloat16), ("sd35", torch.float16), ("flux", torch.bfloat16)],
)
def test_half_types_are_summed_in_float32(load, family, dtype):
    """A kernel's log-sum in bfloat16 is good to 1e-4 only: the recording does not use it."""
    check(lambda: load(family, dtype=dtype))


@pytest.mark.parametrize("family", ["sd35", "flux"])
def test_a_lora(load, family):
    def adapt(pipe):
        torch.manual_seed(3)
        targets = ["to_q", "to_k", "to_v", "to_out.0", "add_k_proj", "add_q_proj"]
        pipe.transformer.add_adapter(
            LoraConfig(r=2, target_modules=targets, init_lora_weights=False)
        )

    plain, adapted = check(lambda: load(family)), check(lambda: load(family), adapt)
    last = list(plain)[-1]
    assert np.abs(plain[last][0] - adapted[last][0]).max() > 1e-3


@pytest.mark.parametrize("family", ["sd3", "flux"])
def test_fused_projections(load, family):
    check(lambda: load(family), lambda pipe: pipe.transformer.fuse_qkv_projections())


@pytest.mark.parametrize(
    ("family", "way"), [("sd3", "model"), ("sd35", "group"), ("flux", "sequential")]
)
def test_offload_hooks(load, family, way):
    def offload(pipe):
        if way == "model":
            pipe.enable_model_cpu_offload(device="cpu")
        elif way == "sequential":
            cpu_offload(pipe.transformer, torch.device("cpu"))
        else:
            where = {"onload_device": torch.device("cpu"), "offload_device": torch.device("cpu")}
            pipe.transformer.enable_group_offload(offload_type="leaf_level", **where)

    check(lambda: load(family), offload)


@pytest.mark.parametrize("backend", ["native", "_native_math"])
@pytest.mark.parametrize("family", ["flux"])  # SD 3 does not go through the dispatcher
def test_native_backends(load, family, backend):
    try:
        check(lambda: load(family), lambda pipe: pipe.transformer.set_attention_backend(backend))
    finally:
        _AttentionBackendRegistry.set_active_backend(AttentionBackendName.NATIVE)  # of all models


@pytest.mark.parametrize("family", ["sd3", "flux"])
def test_a_controlnet(load, family):
    def of():
        pipe = load(family)
        torch.manual_seed(4)
        if family == "sd3":
            kind, config = (
                StableDiffusion3ControlNetPipeline,
                {"num_extra_conditioning_channels": 0},
            )
            net = SD3ControlNetModel.from_transformer(pipe.transformer, num_layers=2, **config)
        else:
            kind, sizes = FluxControlNetPipeline, {"num_layers": 1, "num_single_layers": 1}
            net = FluxControlNetModel.from_config({**pipe.transformer.config, **sizes})
        for name, parameter in net.named_parameters():
            if name.startswith(("controlnet_", "pos_embed_input")):  # these start at zero
                torch.nn.init.normal_(parameter, std=0.2)
        made = kind(**pipe.components, controlnet=net.eval())
        made.set_progress_bar_config(disable=True)
        made.default_sample_size = 8
        return made

    more = {"guidance_scale": 3.5} if family == "flux" else {}
    check(of, control_image=models.picture(48, 64), **more)


CACHES = {
    "first block": FirstBlockCacheConfig(threshold=10.0),
    "mag": MagCacheConfig(
        threshold=10.0, retention_ratio=0.1, num_inference_steps=STEPS, mag_ratios=[1.0] * STEPS
    ),
    "taylor": TaylorSeerCacheConfig(cache_interval=2, disable_cache_before_step=1),
    "pyramid": PyramidAttentionBroadcastConfig(
        spatial_attention_block_skip_range=2, current_timestep_callback=lambda: 500
    ),
}


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("cache", CACHES)
def test_layers_that_a_cache_skips_are_counted(load, cache):
    expected = check(
        lambda: load("flux"), lambda pipe: pipe.transformer.enable_cache(CACHES[cache])
    )
    assert sum(map(len, expected.values())) < STEPS * len(expected)
