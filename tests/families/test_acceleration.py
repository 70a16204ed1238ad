"""What makes a pipeline faster or smaller: it works under a trace, or is refused beforehand."""

import numpy as np
import pytest
import torch
from accelerate import cpu_offload
from diffusers import StableDiffusionImg2ImgPipeline
from diffusers.models.attention_processor import AttnProcessor

from families.checking import (
    GUIDED,
    TOLERANCE,
    WHOLE,
    assert_restored,
    check,
    compare,
    denoiser,
    expect,
    paint,
    reference,
    state_of,
)
from families.models import OneLayer, picture
from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import HeedmapError, TraceError
from heedmap.recording.tracing import trace

PROMPT = "a red house"
PAIR = [PROMPT, "the cat sat at a big tree"]
SMALL = {"width": 64, "height": 96, "use_resolution_binning": False}


def pair(pipe, **arguments):
    more = SMALL if type(pipe).__name__.startswith(("Sana", "Hunyuan")) else {}
    return paint(pipe, PAIR, seeds=(1, 2), **more, **arguments)


class Steps:
    """Counts the steps that were spent."""

    def __init__(self):
        self.count = 0

    def __call__(self, pipe, step, timestep, given):
        self.count += 1
        return given


# --- other processors ---


@pytest.mark.parametrize("family", ["sd1", "sigma"])
def test_the_classic_processor_gives_exact_maps(load, family):
    pipe = load(family)
    denoiser(pipe).set_attn_processor(AttnProcessor())
    check(pipe, lambda: pair(pipe), PAIR)


@pytest.mark.parametrize(("family", "size"), [("sd1", "max"), ("sd2", "auto")])
def test_attention_slicing_gives_exact_maps(load, family, size):
    pipe = load(family)
    pipe.enable_attention_slicing(size)
    check(pipe, lambda: pair(pipe), PAIR, branches=("conditional", "negative"))


@pytest.mark.parametrize("family", ["sd1", "sigma", "hunyuan"])
def test_fused_projections_give_exact_maps(load, family):
    pipe = load(family)
    (pipe.transformer if hasattr(pipe, "transformer") else pipe).fuse_qkv_projections()
    check(pipe, lambda: pair(pipe), PAIR)


@pytest.mark.parametrize(
    ("method", "undo"),
    [
        ("enable_attention_slicing", "SlicedAttnProcessor"),
        ("fuse_qkv_projections", "FusedAttnProcessor2_0"),
    ],
)
def test_processors_replaced_in_a_trace_are_refused(load, method, undo):
    pipe, steps = load("sd1"), Steps()
    with pytest.raises(TraceError, match="replaced while the trace was open"), trace(pipe):
        getattr(pipe, method)()
        paint(pipe, PROMPT, callback_on_step_end=steps)
    assert not steps.count
    # What the user set stays theirs.
    found = {type(layer.processor).__name__ for layer in cross_attention_layers(pipe).values()}
    assert found == {undo}


def test_processors_replaced_between_two_steps_are_refused(load):
    pipe = load("sd1")

    def slice_up(pipe, step, timestep, given):
        pipe.enable_attention_slicing()
        return given

    with pytest.raises(TraceError, match="replaced while the trace was open"), trace(pipe):
        paint(pipe, PROMPT, callback_on_step_end=slice_up)


def test_a_missing_xformers_leaves_the_trace_working(load):
    """diffusers says so itself, and the pipeline goes on as it was, with its maps."""
    pipe = load("sd1")
    with trace(pipe) as recorder:
        with pytest.raises(ModuleNotFoundError, match="xformers"):
            pipe.enable_xformers_memory_efficient_attention()
        paint(pipe, PROMPT)
    assert recorder.maps[0]["house"].values.max() > 0


# --- types and layouts of memory ---


@pytest.mark.parametrize(
    ("family", "dtype", "processor"),
    [
        ("sd1", torch.bfloat16, AttnProcessor),
        ("sd2", torch.float16, AttnProcessor),
        ("sd2", torch.bfloat16, None),
        ("sdxl", torch.float16, None),
        ("sigma", torch.float16, AttnProcessor),
        ("sigma", torch.bfloat16, None),
        ("sana", torch.bfloat16, None),
        ("sana15", torch.float16, None),
        ("hunyuan", torch.bfloat16, None),
    ],
)
def test_low_precision_gives_exact_maps(load, family, dtype, processor):
    pipe = load(family, dtype=dtype)
    assert denoiser(pipe).dtype == dtype
    if processor is not None:
        denoiser(pipe).set_attn_processor(processor())
    more = SMALL if family.startswith(("sana", "hunyuan")) else {}
    check(pipe, lambda: paint(pipe, PROMPT, output_type="latent", **more), [PROMPT])


def test_channels_last_gives_exact_maps(load):
    pipe = load("sd1")
    pipe.unet.to(memory_format=torch.channels_last)
    check(pipe, lambda: pair(pipe), PAIR)


def test_slices_and_tiles_of_the_vae_give_exact_maps(load):
    pipe = load("sd1")
    pipe.vae.enable_slicing()
    pipe.vae.enable_tiling()
    check(pipe, lambda: pair(pipe), PAIR)


# --- offloading: accelerate's hooks; its accelerator is the CPU here ---


@pytest.mark.parametrize("family", ["sd1", "sana"])
def test_model_offload_gives_exact_maps(load, family):
    pipe = load(family)
    pipe.enable_model_cpu_offload(device="cpu")
    assert hasattr(denoiser(pipe), "_hf_hook")
    check(pipe, lambda: pair(pipe), PAIR)


@pytest.mark.parametrize("family", ["sd1", "sigma"])
def test_sequential_offload_gives_exact_maps(load, family):
    """What `enable_sequential_cpu_offload` does, but to "cpu": accelerate fails on its "cpu:0"."""
    pipe = load(family)
    for part in (pipe.text_encoder, denoiser(pipe), pipe.vae):
        cpu_offload(part, torch.device("cpu"))
    assert {parameter.device.type for parameter in denoiser(pipe).parameters()} == {"meta"}
    check(pipe, lambda: pair(pipe), PAIR)


def test_offload_begun_in_a_trace_gives_exact_maps(load):
    pipe = load("sd1")
    with reference(pipe) as scores:
        bare = pair(pipe)
    with trace(pipe, WHOLE) as recorder:
        cpu_offload(pipe.unet, torch.device("cpu"))
        traced = pair(pipe)
    assert np.array_equal(bare, traced)
    compare(recorder.recordings, expect(scores, [GUIDED] * 2, [[0], [1]]), scores.near)


# --- one UNet in two pipelines ---


def test_another_pipeline_with_the_traced_unet_is_refused(load):
    pipe, steps = load("sd1"), Steps()
    other = StableDiffusionImg2ImgPipeline.from_pipe(pipe)
    assert other.unet is pipe.unet
    given = {"image": picture(64, 64), "strength": 0.99, "callback_on_step_end": steps}
    before = state_of(pipe)
    with pytest.raises(TraceError, match="pipeline"), trace(pipe):
        paint(other, PROMPT, **given)
    assert not steps.count
    assert_restored(pipe, before)
    # Traced itself it is as good as the first.
    check(other, lambda: paint(other, PROMPT, **given), [PROMPT])


@pytest.mark.parametrize("prompt", [PROMPT, "the cat"])
def test_another_pipeline_after_the_traced_one_is_refused_and_the_map_stays(load, prompt):
    """The traced one's map must not change, be the other's prompt a different one or the same."""
    pipe = load("sd1")
    other = StableDiffusionImg2ImgPipeline.from_pipe(pipe)
    with trace(pipe, WHOLE) as recorder:
        paint(pipe, PROMPT)
        before = [array.copy() for array in recorder.recordings[0].arrays]
        with pytest.raises(HeedmapError, match="pipeline"):
            paint(other, prompt, image=picture(128, 128), strength=0.99)
    assert len(recorder.recordings) == 1
    for a, b in zip(recorder.recordings[0].arrays, before, strict=True):
        assert np.array_equal(a, b)


def test_two_pipelines_with_one_unet_are_traced_in_turn(load):
    pipe = load("sd1")
    other = StableDiffusionImg2ImgPipeline.from_pipe(pipe)
    with trace(pipe), pytest.raises(TraceError, match="another trace is open"), trace(other):
        pass


# --- compiled ---


def close(bare, traced):
    """A compiled UNet is cut where a trace listens, and fuses its pieces in another way."""
    return np.abs(bare - traced).max() <= 1e-4 * np.ptp(bare)


def compiled(pipe, how, **options):
    if how == "in place":
        denoiser(pipe).compile(**options)
    else:
        name = "unet" if hasattr(pipe, "unet") else "transformer"
        setattr(pipe, name, torch.compile(denoiser(pipe), **options))


@pytest.fixture
def compiler():
    """Compiled code of a test is not the next one's."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "when", "backend"), [("wrapped", "before", "inductor"), ("in place", "after", "eager")]
)
# The compiler's own import meets what torch deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_compiled_unet_gives_exact_maps(load, compiler, how, when, backend):
    """Compiled before or after the trace is opened."""
    pipe = load("least")
    pipe.unet.__class__ = OneLayer  # inductor starts a C++ compiler for each operation that runs
    with reference(pipe) as scores:
        paint(pipe, PROMPT)
    expected = expect(scores, [GUIDED] * 2, [[0], [1]])
    if when == "before":
        compiled(pipe, how, backend=backend)
        bare = paint(pipe, PROMPT)
    before = state_of(pipe)
    with trace(pipe, WHOLE, tokens="all") as recorder:
        if when == "after":
            compiled(pipe, how, backend=backend)
        traced = paint(pipe, PROMPT)
    if when == "before":
        assert_restored(pipe, before)
    else:
        bare = paint(pipe, PROMPT)
    assert close(bare, traced)
    assert close(bare, paint(pipe, PROMPT))
    assert len(recorder.recordings) == 1
    recording = recorder.recordings[0]
    assert {layer.name for layer in recording.layers} == set(expected)
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        # The compiler rounds in its own way, and these networks are sharp.
        np.testing.assert_allclose(array[:, None], expected[layer.name], atol=50 * TOLERANCE)
