"""Recording: means over axes, labels, the negative branch, edits, and what is refused."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from diffusers import HeunDiscreteScheduler
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0
from making import cross_attention_layers, generate_batch, random_pipeline, run
from oracle import compare_layers, propagated_maps
from torch.nn.functional import interpolate

import heedmap as hm
from heedmap.backends.prompts import prompt_table
from heedmap.errors import (
    ArgumentError,
    HeedmapWarning,
    NothingRecordedError,
    SelectionError,
    TraceError,
)
from heedmap.recording.edits import Reweight
from heedmap.recording.tracing import trace

HEUN = [(0, 1), (2, 3), (4, 5), (6,)]  # the passes of each of four steps


@pytest.mark.parametrize(
    ("keep", "size", "tokens"),
    [
        (("layer", "step"), (128, 128), "prompt"),
        (("layer", "head"), (128, 128), "prompt"),
        (("layer",), (264, 256), "all"),  # too many numbers for all heads at once
        (("step",), (128, 128), "prompt"),
        ((), (104, 128), "prompt"),
    ],
)
def test_maps_are_means_over_the_axes_that_are_not_kept(pipe, keep, size, tokens):
    """A step of two passes weighs as much as one of one; layers are brought to 64 cells a side."""
    pipe.scheduler = HeunDiscreteScheduler.from_config(pipe.scheduler.config)
    with compare_layers(pipe, 7) as held, trace(pipe, keep, tokens=tokens) as recorder:
        run(pipe, "a red house", guidance_scale=1.0, steps=4, height=size[0], width=size[1])
    (recording,) = recorder.recordings
    near = max(held.near.values())
    whole = recording.layers[0].grid
    assert "layer" in keep or min(whole) == 64
    means = []
    for name, grid in held.grids.items():
        steps = [
            torch.stack([held.edited[name, number][0] for number in passes]).mean(0)
            for passes in HEUN
        ]
        p = torch.stack(steps)[..., recording.positions]
        p = p if "step" in keep else p.mean(0, keepdim=True)
        p = p if "head" in keep else p.mean(1, keepdim=True)
        if "layer" not in keep:
            plane = p[:, 0].mT.unflatten(-1, grid)
            large = interpolate(plane, whole, mode="bilinear", antialias=True)
            p = large.flatten(-2).mT[:, None]
        means.append(p)
    if "layer" not in keep:
        means = [torch.stack(means).mean(0)]
    for found, expected in zip(recording.arrays, means, strict=True):
        np.testing.assert_allclose(found, expected, rtol=near, atol=1e-6)
    passes = [(1 / len(some), step >= 2) for step, some in enumerate(HEUN) for _ in some]
    _, refined = propagated_maps(held, 0, passes)
    expected = refined[..., recording.positions]
    np.testing.assert_allclose(recording.refined, expected, rtol=1e-4, atol=1e-6)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keep", {"colour"}),
        ("keep", "step"),
        ("tokens", "some"),
        ("branches", ["left"]),
        ("limit", 0),
        ("prompts", ["a", None]),
        ("edits", 3),
        ("edits", ["red"]),
    ],
)
def test_wrong_arguments_are_refused(random_model, name, value):
    with pytest.raises(ArgumentError, match=name.removesuffix("s")):
        trace(random_model, **{name: value})


def test_what_was_not_recorded_is_an_error(pipe):
    with trace(pipe) as recorder, pytest.raises(TraceError, match="another trace"), trace(pipe):
        pass
    with pytest.raises(NothingRecordedError):
        _ = recorder.maps
    with pytest.raises(TraceError, match="open already"), recorder, recorder:
        pass
    with pytest.raises(TraceError, match="negative"), trace(pipe, branches=["negative"]):
        run(pipe, "a house", guidance_scale=1.0)
    with trace(pipe) as recorder:
        run(pipe, "a house", steps=1)
    with pytest.raises(NothingRecordedError):
        _ = recorder.negative_maps
    with pytest.raises(TraceError, match="encoded"), trace(pipe):
        pipe.unet(torch.zeros(1, 4, 16, 16), 1, torch.zeros(1, 77, 32))


def test_words_past_the_limit_give_a_warning_and_have_no_map(pipe):
    prompt = "at house " + "x" * 80 + " the end"
    with trace(pipe) as recorder, pytest.warns(hm.HeedmapWarning, match="'the' and 'end'"):
        run(pipe, prompt, steps=1)
    maps = recorder.maps[0]
    assert maps["house"].values.shape == (64, 64)
    with pytest.raises(hm.errors.TruncatedWordError):
        _ = maps["end"]
    with pytest.raises(SelectionError):
        maps.select(steps=0)


# --- prompt_embeds, the negative branch, what may be kept ---


def test_labels_that_differ_from_the_encoded_text_are_refused(pipe):
    states = pipe.encode_prompt(["a red house", "at the cat"], "cpu", 1, False)[0]

    for prompts, embeds in (
        ("abc", states[:1]),
        ("a red house", torch.zeros(1, 9, 32)),
        ("a red house", states),
        (["at the cat", "a red house"], states),
    ):
        with pytest.raises(TraceError, match="prompts of the trace"), trace(pipe, prompts=prompts):
            run(pipe, None, guidance_scale=1.0, prompt_embeds=embeds)
    with (
        pytest.raises(TraceError, match="prompts of the trace"),
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
    with pytest.warns(HeedmapWarning), trace(pipe, prompts="a red house") as recorder:
        run(pipe, None, prompt_embeds=states[:1], guidance_scale=1.0)
    assert recorder.maps[0]["house"].values.max() > 0
    with trace(pipe) as recorder:
        run(pipe, None, prompt_embeds=states[:1], guidance_scale=1.0)
    assert recorder.maps[0]["3"].values.max() > 0


def test_the_negative_branch_is_recorded_on_request(pipe):
    """The first step sees the same noise in both branches; edits are of the prompt alone."""

    def record(prompt, negative, *branches, edits=()):
        with trace(pipe, {"step"}, branches=branches, edits=edits) as recorder:
            run(pipe, prompt, negative_prompt=negative, steps=2)
        return recorder

    both = record("a house", "at cat", "conditional", "negative", edits=[Reweight("house", 3)])
    assert both.maps[0].tokens.prompt == "a house"
    assert both.negative_maps[0].tokens.prompt == "at cat"
    swapped = record("at cat", "a house", "conditional")
    alone = record("a house", "at cat", "negative")
    expected = swapped.recordings[0].arrays[0][0]
    for recorder in (both, alone):
        found = recorder.negative_maps[0].recording.arrays[0][0]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    # Of equal texts, too.
    same = record("a house", "a house", "conditional", "negative", edits=[Reweight("house", 3)])
    edited, plain = same.maps[0]["house"].values, same.negative_maps[0]["house"].values
    assert edited.mean() > 2 * plain.mean()


# --- edits --------------------------------------------------------------------------------------


def test_edits_of_a_traced_call_equal_those_of_generate():
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


SDPA = torch.nn.functional.scaled_dot_product_attention
OF_THEIR_OWN = {
    "rows of others first": lambda q, k, v: (
        1.3 * SDPA(q, k, v) - 0.3 * SDPA(q, k.roll(1, 0), v.roll(1, 0))
    ),
    "the picture first": lambda q, k, v: SDPA(q, q, q) + SDPA(q, k, v),
    "a key in front": lambda q, k, v: SDPA(
        q, torch.cat([k[:, :, :1], k], 2), torch.cat([v[:, :, :1], v], 2)
    ),
    "keys in parts": lambda q, k, v: (
        SDPA(q, k[:, :, :20], v[:, :, :20]) + SDPA(q, k[:, :, 20:], v[:, :, 20:])
    ),
    "head by head": lambda q, k, v: torch.cat(
        [SDPA(q[:, [i]], k[:, [i]], v[:, [i]]) for i in range(q.shape[1])], 1
    ),
    "without an axis of heads": lambda q, k, v: SDPA(
        *(x.flatten(0, 1) for x in (q, k, v))
    ).unflatten(0, q.shape[:2]),
    "causal": lambda q, k, v: SDPA(q, k, v, is_causal=True),
}


@pytest.mark.parametrize(
    ("name", "edits"),
    [*((name, []) for name in OF_THEIR_OWN), ("causal", [Reweight("house", 2.0)])],
)
def test_a_processor_that_attends_otherwise_is_refused(name, edits):
    """The first attention of a layer is not always the text's, in all heads and alone."""

    class Own:
        def __call__(self, attn, hidden_states, encoder_hidden_states=None, **_):
            states = (
                attn.to_q(hidden_states),
                *(to(encoder_hidden_states) for to in (attn.to_k, attn.to_v)),
            )
            parts = (x.unflatten(-1, (attn.heads, -1)).transpose(1, 2) for x in states)
            return attn.to_out[0](OF_THEIR_OWN[name](*parts).transpose(1, 2).flatten(2))

    pipe = random_pipeline()
    for path, layer in pipe.unet.named_modules():
        if path.endswith("attn2"):
            layer.set_processor(Own())
    with pytest.raises(TraceError, match="attention"), trace(pipe, edits=edits):
        run(pipe, "a red house", steps=1)
    layers = cross_attention_layers(pipe).values()
    assert all(isinstance(layer.processor, Own) for layer in layers)  # restored


class Tripled:
    """Attention by definition, in which some tokens have three times their weight."""

    def __init__(self, tokens):
        self.tokens = tokens

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, **_):
        states = (hidden_states, encoder_hidden_states, encoder_hidden_states)
        pairs = zip((attn.to_q, attn.to_k, attn.to_v), states, strict=True)
        each = (to(one).unflatten(-1, (attn.heads, -1)).transpose(1, 2) for to, one in pairs)
        query, key, value = each
        p = (query @ key.mT * attn.scale).softmax(-1)
        weights = torch.ones(p.shape[-1])
        weights[self.tokens] = 3
        return attn.to_out[0]((p * weights @ value).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(("kind", "named"), [(AttnProcessor2_0, True), (AttnProcessor, False)])
def test_gradients_flow_through_edits(kind, named):
    """As in a loop that moves the latents by a loss; the maps are recorded without a graph."""
    pipe = random_pipeline()
    pipe.unet.requires_grad_(False)
    tokens = list(prompt_table(pipe, "a red house").find("red"))

    def rule(p, site):
        return p * torch.ones(p.shape[-1]).index_fill(0, torch.tensor(tokens), 3)

    def gradient(recorder):
        start = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(3))
        start.requires_grad_()
        pipe.scheduler.set_timesteps(2)
        with recorder:
            states = pipe.encode_prompt("a red house", "cpu", 1, False)[0].detach()
            latents = start
            for t in pipe.scheduler.timesteps:
                output = pipe.unet(latents, t, states).sample
                latents = pipe.scheduler.step(output, t, latents).prev_sample
            latents.square().sum().backward()
        return start.grad

    layers = cross_attention_layers(pipe)
    for layer in layers.values():
        layer.set_processor(kind())
    plain = gradient(trace(pipe))
    recorder = trace(pipe, edits=[Reweight("red", 3) if named else rule])
    edited = gradient(recorder)
    assert recorder.maps[0]["red"].values.max() > 0
    for layer in layers.values():
        layer.set_processor(Tripled(tokens))
    expected = gradient(nullcontext())
    scale = float(expected.abs().max())
    torch.testing.assert_close(edited, expected, rtol=0, atol=1e-4 * scale)
    assert (plain - expected).abs().max() > 1e-2 * scale
