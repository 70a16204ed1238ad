"""Flux.1: double and single blocks, packed latents, T5's tokens, guidance embedded and true."""

import numpy as np
import pytest
import torch
from diffusers import FluxImg2ImgPipeline, FluxKontextPipeline
from diffusers.models.attention_dispatch import AttentionBackendName, attention_backend
from diffusers.models.transformers.transformer_flux import FluxAttnProcessor

import heedmap as hm
from families import models
from families.checking import ALONE, WHOLE, assert_restored, check, paint, reference, state_of
from heedmap.backends import loading
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import cross_attention_layers, family_of, unit, usual_size
from heedmap.errors import HeedmapError, HeedmapWarning, ModelError, TraceError
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "at sea"]
SHORT = {"max_sequence_length": 12}
SMALL = {"width": 64, "height": 64, **SHORT}
LAYERS = [
    "transformer_blocks.0.attn",
    "transformer_blocks.1.attn",
    "single_transformer_blocks.0.attn",
    "single_transformer_blocks.1.attn",
]


@pytest.fixture
def load(load):
    def of(family="flux", *args, **arguments):
        pipe = load(family, *args, **arguments)
        pipe.default_sample_size = 8  # it is no part of the configuration
        return pipe

    return of


# --- the probabilities --------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["flux", "schnell"])
@pytest.mark.parametrize(("width", "height"), [(64, 64), (48, 80)])
def test_shares_agree_with_float64_in_double_and_single_blocks(load, family, width, height):
    pipe = load(family)
    more = {"width": width, "height": height, "num_images_per_prompt": 2, **SHORT}
    prompts = [text for text in PROMPTS for _ in range(2)]
    call = lambda: paint(pipe, PROMPTS, seeds=(1, 2, 3, 4), **more)  # noqa: E731
    recorder = check(pipe, call, prompts, ALONE)
    for recording in recorder.recordings:
        assert [layer.name for layer in recording.layers] == LAYERS
        assert recording.size == (width, height)
        assert {layer.grid for layer in recording.layers} == {(height // 16, width // 16)}
        for array in recording.arrays:
            assert array.sum(-1).max() <= 1 + 1e-6 and array.sum(-1).min() < 0.95


def test_true_guidance_runs_the_negative_prompt_in_a_pass_of_its_own(load):
    pipe = load()
    more = {"negative_prompt": ["at night", "a cat"], "true_cfg_scale": 3.0, **SMALL}

    def call():
        return paint(pipe, PROMPTS, seeds=(1, 2), **more)

    with reference(pipe) as scores:
        bare = call()
    before = state_of(pipe)
    branches = ("conditional", "negative")
    with trace(pipe, WHOLE, tokens="all", branches=branches) as recorder:
        assert np.array_equal(call(), bare)
    assert_restored(pipe, before)
    for first, recordings in ((0, recorder.recordings), (1, recorder.negative_recordings)):
        assert len(recordings) == 2
        for image, recording in enumerate(recordings):
            for layer, array in zip(recording.layers, recording.arrays, strict=True):
                expected = np.stack([found[image] for found in scores[layer.name][first::2]])
                np.testing.assert_allclose(array, expected, atol=1e-5)
    assert [maps.tokens.prompt for maps in recorder.negative_maps] == ["at night", "a cat"]


def test_a_negative_prompt_needs_true_guidance(load):
    pipe = load()
    with pytest.warns(HeedmapWarning, match="true_cfg_scale"):
        hm.generate(pipe, "a red house", seed=1, steps=1, negative="at sea", **SHORT)
    with pytest.raises(TraceError, match="true_cfg_scale"):
        hm.generate(
            pipe, "a red house", seed=1, steps=1, branches=["conditional", "negative"], **SHORT
        )


def test_the_same_text_as_negative_prompt_is_refused(load):
    """The two passes of a step then read the same states, in no order that is known."""
    pipe = load()
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, "at", negative_prompt="at", true_cfg_scale=3.0, **SMALL)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_round_the_timestep(load, dtype):
    """The pipeline divides it by 1000 in the latents' type."""
    pipe = load(dtype=dtype)
    bare = paint(pipe, PROMPTS[0], steps=5, output_type="latent", **SMALL)
    with trace(pipe, WHOLE) as recorder:
        made = paint(pipe, PROMPTS[0], steps=5, output_type="latent", **SMALL)
    assert np.array_equal(bare, made)
    (recording,) = recorder.recordings
    assert recording.timesteps == tuple(map(float, pipe.scheduler.timesteps))


def test_fused_projections(load):
    pipe = load()
    call = {"steps": 1, **SMALL}
    with reference(pipe) as scores:
        paint(pipe, PROMPTS[0], **call)
    pipe.transformer.fuse_qkv_projections()
    bare = paint(pipe, PROMPTS[0], **call)
    with trace(pipe, WHOLE, tokens="all") as recorder:
        assert np.array_equal(paint(pipe, PROMPTS[0], **call), bare)
    for name, array in zip(LAYERS, recorder.recordings[0].arrays, strict=True):
        np.testing.assert_allclose(array, np.concatenate(scores[name]), atol=1e-5)


# --- words and layers ---------------------------------------------------------------------------


def test_words_are_those_that_t5_reads(load, folder):
    pipe = load()
    table = prompt_table(pipe, "a red house", SHORT)
    assert [(word.text, word.tokens) for word in table.words] == [
        ("a", (0, 1)), ("red", (2, 3, 4)), ("house", (5,)),
    ]  # fmt: skip
    assert table.limit == 12 and table.room == 11 and not table.parts
    assert prompt_table(pipe, "a").limit == 512
    assert loading.token_table("a red house", folder("flux")).find("house") == (5,)
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, "a red house", prompt_2="a blue house", **SMALL)


def test_groups_are_double_and_single_blocks(load, tmp_path):
    pipe = load()
    assert list(cross_attention_layers(pipe)) == LAYERS
    assert unit(pipe) == 16 and usual_size(pipe) == (64, 64)
    run = hm.generate(pipe, "a red house", seed=1, steps=3, keep="all", **SHORT)
    run.save(tmp_path / "run")
    for maps in (run.maps, hm.Run.load(tmp_path / "run").maps):
        groups = [layer.group for layer in maps.recording.layers]
        assert groups == ["double", "double", "single", "single"]
        single = maps.select(layers="single")["house"].values
        names = ["single_transformer 0", "single_transformer 1"]
        assert np.array_equal(single, maps.select(layers=names)["house"].values)
        assert not np.array_equal(single, maps.select(layers="double")["house"].values)
    assert hm.repeat(pipe, tmp_path / "run").same


def test_each_step_has_a_small_image_of_its_latents(load):
    """Latents are unpacked for it: packed ones have no rows and columns."""
    pipe, seen = load(), []
    size = (64, 48)
    run = hm.generate(
        pipe, "at", seed=1, steps=3, size=size, keep=["step"], preview=seen.append, **SHORT
    )
    assert [tuple(latents.shape) for latents in seen] == [(1, 4, 6, 8)] * 3
    finished = pipe.vae.decode(seen[-1] / 0.3611 + 0.1159).sample[0] / 2 + 0.5
    shown = torch.from_numpy(np.array(run.image)).movedim(-1, 0) / 255
    torch.testing.assert_close(finished.clamp(0, 1), shown, atol=0.003, rtol=0)
    assert len(run.step_pictures.frames) == 3


def test_packing_is_undone(load):
    pipe = load()
    latents = torch.randn(2, 4, 6, 10)
    family = family_of(pipe)
    packed = family.pack(latents)
    assert packed.shape == (2, 15, 16)
    assert torch.equal(packed[1, 7].view(4, 2, 2), latents[1, :, 2:4, 4:6])  # row 1, column 2
    assert torch.equal(family.unpack(packed, (6, 10)), latents)


# --- other pipelines and backends ---------------------------------------------------------------


def test_image_to_image(load):
    pipe = load("flux", FluxImg2ImgPipeline)
    more = {"image": models.picture(64, 64), "strength": 0.7, "steps": 4, **SMALL}
    check(pipe, lambda: paint(pipe, PROMPTS[0], **more), PROMPTS[:1], ALONE)


def test_positions_of_another_image_are_refused(load):
    parts = {name: part for name, part in load().components.items() if part is not None}
    pipe = FluxKontextPipeline(**parts)
    with pytest.raises(ModelError, match="beside"):
        trace(pipe)
    # Also where the class of the pipeline does not tell it.
    plain, ran = load(), []
    plain.transformer.register_forward_hook(lambda *_: ran.append(1))
    prepare = plain.prepare_latents

    def doubled(*args, **kwargs):
        latents, places = prepare(*args, **kwargs)
        return torch.cat([latents] * 2, dim=1), torch.cat([places] * 2)

    plain.prepare_latents = doubled
    with pytest.raises(TraceError, match="positions"), trace(plain):
        paint(plain, PROMPTS[0], output_type="latent", **SMALL)
    assert not ran


def test_native_backends_are_recorded(load):
    pipe = load()
    with attention_backend(AttentionBackendName._NATIVE_MATH):
        check(pipe, lambda: paint(pipe, PROMPTS[0], **SMALL), PROMPTS[:1], ALONE)


@pytest.mark.parametrize("way", ["active", "of the layers", "parallel"])
def test_a_backend_that_cannot_be_seen_is_refused_before_sampling(load, way, monkeypatch):
    pipe, ran = load(), []
    pipe.transformer.register_forward_pre_hook(lambda *_: ran.append(1))
    before = state_of(pipe)
    if way == "active":
        registry = "diffusers.models.attention_dispatch._AttentionBackendRegistry._active_backend"
        monkeypatch.setattr(registry, AttentionBackendName.SAGE)
    elif way == "of the layers":
        monkeypatch.setattr(FluxAttnProcessor, "_attention_backend", "flash")
    else:
        monkeypatch.setattr(FluxAttnProcessor, "_parallel_config", object())
    with pytest.raises(TraceError):
        hm.generate(pipe, "a red house", seed=1, steps=1, **SHORT)
    monkeypatch.undo()
    assert not ran
    assert_restored(pipe, before)


class Failing(FluxAttnProcessor):
    def __call__(self, attn, hidden_states, *args, **kwargs):
        raise RuntimeError("out of order")


def test_the_pipeline_is_restored_after_an_error(load):
    pipe = load()
    pipe.transformer.single_transformer_blocks[1].attn.set_processor(Failing())
    with pytest.raises(RuntimeError):  # a call leaves attributes and hooks of its own
        paint(pipe, PROMPTS[0], **SMALL)
    before = state_of(pipe)
    with pytest.raises(RuntimeError, match="out of order"), trace(pipe):
        paint(pipe, PROMPTS[0], **SMALL)
    assert_restored(pipe, before)


class Masked(FluxAttnProcessor):
    """Hides the third text token from the image, and adds to the scores of the fourth."""

    def __call__(self, attn, image, text=None, attention_mask=None, image_rotary_emb=None):
        count = image.shape[1] + (0 if text is None else text.shape[1])
        mask = torch.zeros(1, 1, count, count)
        mask[..., 12:, 2], mask[..., 12:, 3] = -torch.inf, 1.5
        return super().__call__(attn, image, text, mask, image_rotary_emb)


def test_a_mask_acts_before_the_softmax_of_text_and_image(load):
    """Of the layer's own scores: what is hidden has exactly nothing, also of the log-sum."""
    pipe, name = load(), "transformer_blocks.0.attn"
    with reference(pipe) as scores:
        paint(pipe, PROMPTS[0], steps=1, **SMALL)
    pipe.transformer.transformer_blocks[0].attn.set_processor(Masked())
    bare = paint(pipe, PROMPTS[0], steps=1, **SMALL)
    with trace(pipe, WHOLE, tokens="all") as recorder:
        assert np.array_equal(paint(pipe, PROMPTS[0], steps=1, **SMALL), bare)
    (layer,) = [one for one in recorder.recordings[0].layers if one.name == name]
    found = recorder.recordings[0].arrays[recorder.recordings[0].layers.index(layer)][0]
    plain = scores[name][0][0].astype(np.float64)
    factor = np.ones(12)
    factor[2], factor[3] = 0.0, np.exp(1.5)
    expected = plain * factor
    expected /= expected.sum(-1, keepdims=True) + 1 - plain.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (found[..., 2] == 0).all() and plain[..., 2].min() > 0


def test_latents_of_the_users_own(load):
    pipe = load()
    latents = torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(3))
    runs = [
        hm.generate(pipe, "at", seed=seed, steps=1, size=(64, 64), latents=latents, **SHORT)
        for seed in (1, 2)
    ]
    assert np.array_equal(runs[0].image, runs[1].image)
    with pytest.raises(HeedmapError):
        hm.generate(pipe, "at", seed=1, size=(72, 64))
