"""What UNets have beside maps, where text and image share a softmax: against float64."""

import re
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.models.attention_processor import Attention
from diffusers.models.transformers.transformer_flux import FluxAttention

import heedmap as hm
from families import models
from families.checking import denoiser, joint_attention, paint, state_of
from heedmap.backends.processors import pick
from heedmap.recording.tracing import trace

SHORT = {"max_sequence_length": 12}
EACH = pytest.mark.parametrize("family", ["sd3", "sd35", "flux"])


@contextmanager
def watched(pipe, tell):
    """Call `tell(name, P, values)` after each joint layer, with those of `joint_attention`."""
    places = {}

    def before(model, args, kwargs):
        places.update({n: one for n, one in kwargs.items() if n in ("txt_ids", "img_ids")})

    def after(name, layer, args, kwargs, output):
        image, text = kwargs["hidden_states"], kwargs.get("encoder_hidden_states")
        if isinstance(layer, Attention) and layer.added_kv_proj_dim is None:
            return  # the second attention of SD 3.5
        if text is None:  # a single block of Flux has joined them
            text, image = image.split([len(one) for one in places.values()], dim=1)
        p, values = joint_attention(layer, image, text, [*places.values()])
        tell(name, text.shape[1], p, values)

    handles = [denoiser(pipe).register_forward_pre_hook(before, with_kwargs=True)]
    for name, layer in denoiser(pipe).named_modules():
        if isinstance(layer, Attention | FluxAttention):
            hook = partial(after, name)
            handles.append(layer.register_forward_hook(hook, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@pytest.fixture
def load(load):
    def of(family, **arguments):
        pipe = load(family, **arguments)
        pipe.default_sample_size = 8  # of Flux; it is no part of the configuration
        return pipe

    return of


# --- the shapes of layers -----------------------------------------------------------------------


@EACH
def test_shapes_equal_those_of_a_real_pass(load, family):
    pipe, seen = load(family), {}

    def shapes_of(name, layer):
        def after(_, args, kwargs, output):
            text = kwargs.get("encoder_hidden_states")
            found = {name: kwargs["hidden_states"].shape[1:], "text": text}
            seen[name] = found | {"output": output if text is None else output[0]}

        return layer.register_forward_hook(after, with_kwargs=True)

    shapes = {one.name: one for one in hm.layer_shapes(pipe, "at", size=(48, 80), **SHORT)}
    layers = {name: denoiser(pipe).get_submodule(name) for name in shapes}
    assert all(isinstance(layer, Attention | FluxAttention) for layer in layers.values())
    handles = [shapes_of(*pair) for pair in layers.items()]
    paint(pipe, "at", steps=1, width=48, height=80, **SHORT)
    for handle in handles:
        handle.remove()
    for name, one in shapes.items():
        found, layer = seen[name], layers[name]
        (places, channels), text = found[name], found["text"]
        if text is None:  # a single block of Flux is given both at once
            places -= one.text[0]
            assert not one.projected and one.text == (12, channels)
        else:
            assert one.projected and one.text == text.shape[1:]
        assert one.grid == (5, 3) and places == 15
        assert one.hidden == (15, channels) and one.query == (15, layer.to_q.out_features)
        assert one.key == (one.text[0], layer.to_k.out_features)
        assert one.image_key == (15, layer.to_k.out_features)
        assert one.scores == (15, one.text[0] + 15) and one.scale == 16**-0.5
        assert one.output[1] == found["output"].shape[2]
        for what, how, shape in one.chain():
            a, b, c, d = map(int, re.findall(r"\d+", how))
            assert b == c and (a, d) == shape, what


def test_layers_are_picked_by_their_group(load):
    shapes = hm.layer_shapes(load("flux"))
    assert [one.part for one in shapes] == ["double"] * 2 + ["single"] * 2
    assert pick(shapes, "single") == list(shapes[2:])
    assert len(pick(hm.layer_shapes(load("sd3")), "early")) == 2


# --- maps of a given image ----------------------------------------------------------------------


@torch.no_grad()
def by_diffusers(pipe, picture, seed, steps, **asked):
    """The maps of an image by a scheduler, a callback and an encoder of diffusers alone."""
    noise, own, factor = torch.Generator().manual_seed(seed), pipe.scheduler, pipe.vae.config
    clean = pipe.vae.encode(pipe.image_processor.preprocess(picture)).latent_dist.mode()
    clean = (clean - factor.shift_factor) * factor.scaling_factor
    if hasattr(pipe, "_pack_latents"):
        clean = pipe._pack_latents(clean, *clean.shape)
    sigmas = [(2 * (steps - n) - 1) / (2 * steps) for n in range(steps)]
    oracle = FlowMatchEulerDiscreteScheduler(shift=1.0)
    oracle.set_timesteps(sigmas=sigmas)

    def noised(step):
        fresh = torch.randn(clean.shape, generator=noise)
        return oracle.scale_noise(clean, oracle.timesteps[step : step + 1], fresh)

    def again(pipe, step, timestep, given):
        return {**given, "latents": noised(step + 1) if step + 1 < steps else clean}

    pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=1.0)
    try:
        with trace(pipe, **asked) as traced:
            pipe(
                "a red house", sigmas=sigmas, latents=noised(0), guidance_scale=1.0, height=48,
                width=80, callback_on_step_end=again, output_type="latent", **SHORT,
            )  # fmt: skip
    finally:
        pipe.scheduler = own
    return traced.recordings[0]


@EACH
def test_maps_of_an_image_equal_those_of_its_noised_latents(load, family, tmp_path):
    pipe, picture = load(family), models.picture(80, 48)
    own, before = pipe.scheduler, state_of(pipe)["processors"]
    found = hm.locate(pipe, picture, "a red house", seed=4, steps=3, keep="all", **SHORT)
    assert pipe.scheduler is own and state_of(pipe)["processors"] == before
    recording, expected = found.maps.recording, by_diffusers(pipe, picture, 4, 3, keep="all")
    assert recording.timesteps == expected.timesteps and len(recording.timesteps) == 3
    for mine, theirs in zip(recording.arrays, expected.arrays, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    assert np.ptp(recording.arrays[0], axis=0).max() > 1e-3  # another map at each level
    assert np.array_equal(found.image, picture)
    again = hm.repeat(pipe, found.save(tmp_path / "found"))
    assert again.same and not again.changed


# --- refined maps -------------------------------------------------------------------------------


@EACH
def test_refined_maps_are_propagated_along_the_images_part_of_the_softmax(load, family):
    pipe, plain, made = load(family), [], []

    def tell(name, count, p, values):
        text, image = p[-1][..., :count], p[-1][..., count:]
        plain.append(text.mean(0))
        if len(plain) > 4:  # the second of two steps; there are four layers
            squared = (image / image.sum(-1, keepdim=True)) ** 2
            squared /= squared.sum(-1, keepdim=True)
            made.append((squared @ torch.stack(plain).mean(0)).mean(0))

    with watched(pipe, tell):
        run = hm.generate(
            pipe, "a red house", seed=1, steps=2, tokens="all", size=(48, 80), **SHORT
        )
    expected = torch.stack(made).mean(0).view(5, 3, -1)
    np.testing.assert_allclose(run.maps.recording.refined, expected, rtol=1e-4, atol=1e-7)
    assert len(made) == 4 and run.maps.refined["house"].values.std() > 0
    assert run.maps["house"].mask().shape == (80, 48)
    assert run.maps.segment().labels.shape == (80, 48)
