"""Recording: the picture unchanged, the pipeline as it was, each image its own true maps."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from diffusers import EulerAncestralDiscreteScheduler, HeunDiscreteScheduler
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0
from making import generate_batch, random_pipeline, run
from oracle import assert_probabilities, tolerance

import heedmap as hm
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import (
    ArgumentError,
    HeedmapWarning,
    ModelError,
    NothingRecordedError,
    SelectionError,
    TraceError,
    UnknownWordError,
)
from heedmap.recording.edits import Reweight
from heedmap.recording.tracing import trace


class Reference:
    """The definition in float64 on the layer's projections, beside an untouched SDPA output."""

    def __init__(self, original, store):
        self.original, self.store = original, store

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
        query, key = (
            states.double().unflatten(-1, (attn.heads, -1)).transpose(1, 2)
            for states in (attn.to_q(hidden_states), attn.to_k(encoder_hidden_states))
        )
        p = (query @ key.mT * query.shape[-1] ** -0.5).softmax(dim=-1)
        self.store.append((p, tolerance(query, key)))
        return self.original(attn, hidden_states, encoder_hidden_states, attention_mask)


@pytest.mark.parametrize(("guidance", "size"), [(1.0, (96, 128)), (5.0, (104, 176))])
def test_a_traced_image_is_bit_identical(pipe, guidance, size):
    arguments = {"guidance_scale": guidance, "height": size[0], "width": size[1]}
    plain = run(pipe, "a red house", **arguments)
    with trace(pipe, {"layer", "step", "head"}) as recorder:
        traced = run(pipe, "a red house", **arguments)
    assert np.array_equal(plain, traced)
    assert recorder.recordings[0].latent == (size[0] // 8, size[1] // 8)
    assert recorder.recordings[0].size == (size[1], size[0])


@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_probabilities_equal_the_definition(pipe, guidance):
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
            for step, (p, near) in enumerate(stores[layer.name]):
                assert_probabilities(array[step], p[-2:][image], near, layer.name)
                np.testing.assert_allclose(array[step].sum(-1), 1, rtol=near)


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
        assert part.arrays[0].shape == ((len(keep) and 3) or 1, 1, 64 * 64, len(part.positions))
        np.testing.assert_allclose(part.arrays[0].sum(-1).mean(), _mass(whole), atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(128, 128), (104, 176)])
def test_a_map_is_the_same_whether_layers_were_averaged_or_kept(pipe, height, width):
    """Latents of fewer and of more cells than a map: each layer is brought to it by itself."""
    made = []
    for keep in ({"layer", "step", "head"}, (), {"step"}, {"layer"}):
        with trace(pipe, keep) as recorder:
            run(pipe, "a red house", steps=2, height=height, width=width)
        made.append(recorder.maps[0])
    whole = made[0]
    for part in made[1:]:
        for word in whole.words:
            values = whole.at(word.number).values
            np.testing.assert_allclose(part.at(word.number).values, values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        made[2].select(steps=1)["house"].values, whole.select(steps=1)["house"].values,
        rtol=1e-5, atol=1e-6,
    )  # fmt: skip


def _mass(recording):
    """The share of attention on the recorded tokens, averaged over layers and places."""
    return np.mean([a.sum(-1).mean() for a in recording.arrays])


def test_each_image_has_its_own_map(pipe):
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
            # A batch rounds otherwise, and each step of these sharp networks multiplies that.
            np.testing.assert_allclose(a[0], b[0], atol=2e-5)
            np.testing.assert_allclose(a, b, atol=2e-4)


@pytest.mark.parametrize(
    ("scheduler", "steps"), [(EulerAncestralDiscreteScheduler, 4), (HeunDiscreteScheduler, 4)]
)
def test_each_step_has_one_map(pipe, scheduler, steps):
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
    with trace(pipe, {"layer", "step"}) as recorder:
        run(pipe, "a house", steps=steps)
    recording = recorder.recordings[0]
    assert len(recording.timesteps) == steps
    assert all(len(array) == steps for array in recording.arrays)
    assert list(recording.timesteps) == sorted(recording.timesteps, reverse=True)


def test_the_prompts_tokens_or_all_are_recorded(pipe):
    with trace(pipe) as own, pytest.raises(TraceError), trace(pipe):
        pass
    with trace(pipe) as own:
        run(pipe, "at house")
    assert own.recordings[0].positions == (0, 1, 2, 3)
    with trace(pipe, tokens="all") as every:
        run(pipe, "at house")
    assert every.recordings[0].positions == tuple(range(77))


def test_wrong_arguments_and_empty_traces_are_errors(pipe):
    with pytest.raises(ArgumentError):
        trace(pipe, {"colour"})
    with pytest.raises(ArgumentError):
        trace(pipe, tokens="some")
    with trace(pipe) as recorder:
        pass
    with pytest.raises(NothingRecordedError):
        _ = recorder.maps
    with pytest.raises(TraceError), recorder, recorder:
        pass
    with pytest.raises(ArgumentError):
        trace(pipe, branches=["left"])
    with pytest.raises(TraceError), trace(pipe, branches=["negative"]):
        run(pipe, "a house", guidance_scale=1.0)
    with trace(pipe) as recorder:
        run(pipe, "a house", steps=1)
    with pytest.raises(NothingRecordedError):
        _ = recorder.negative_maps
    with pytest.raises(TraceError), trace(pipe):
        pipe.unet(torch.zeros(1, 4, 16, 16), 1, torch.zeros(1, 77, 32))


def test_models_without_text_cross_attention_are_refused(pipe):
    class Transformer:
        unet = None

    with pytest.raises(ModelError):
        trace(Transformer())


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


def test_prompt_embeds_are_labelled_by_position_or_by_their_prompts(pipe):
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


def test_labels_that_differ_from_the_encoded_text_are_refused(pipe):
    states = pipe.encode_prompt(["a red house", "at the cat"], "cpu", 1, False)[0]

    for prompts, embeds in (
        ("abc", states[:1]),
        ("a red house", torch.zeros(1, 9, 32)),
        (["a", "b", "c"], states[:1]),
        ("a red house", states),
        (["at the cat", "a red house"], states),
    ):
        with pytest.raises(TraceError), trace(pipe, prompts=prompts):
            run(pipe, None, guidance_scale=1.0, prompt_embeds=embeds)
    with pytest.raises(TraceError), trace(pipe, prompts="a red house"):
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


def test_pipelines_that_cannot_be_recorded_are_refused(pipe):
    """Also what is made of one of them."""
    base = type("StableDiffusionPanoramaPipeline", (type(pipe),), {})
    pipe.__class__ = type("Mine", (base,), {})
    with pytest.raises(ModelError):
        trace(pipe)


@pytest.mark.parametrize(
    "given",
    [
        {"keep": 3}, {"keep": "step"}, {"keep": ("step", 3)}, {"branches": None},
        {"limit": "2GB"}, {"limit": 0},
    ],
)  # fmt: skip
def test_arguments_of_a_trace_are_checked(random_model, given):
    with pytest.raises(ArgumentError):
        trace(random_model, **given)


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


def test_edits_that_change_nothing_or_cannot_act_are_reported():
    pipe = random_pipeline()

    def call(*edits):
        with trace(pipe, edits=edits):
            pipe("a red house", num_inference_steps=2, generator=torch.Generator().manual_seed(1))

    with pytest.warns(hm.HeedmapWarning, match="changed nothing in a run of 2 steps"):
        call(hm.Confine("red", (0, 0, 64, 64), start=0.1, end=0.2))
    with pytest.raises(UnknownWordError):
        call(hm.Reweight("dog", 2))
    with pytest.raises(ArgumentError):
        trace(pipe, edits=3)
    with pytest.raises(ArgumentError):
        trace(pipe, edits=["red"])
    call(hm.Reweight("red", 2))  # what was refused is no longer in the way


@pytest.mark.parametrize("prompts", [[1], ["a", None], 3, {"a": 1}, {"a"}])
def test_prompts_that_are_no_texts_are_refused(random_model, prompts):
    with pytest.raises(ArgumentError):
        trace(random_model, prompts=prompts)


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
    with pytest.raises(TraceError), trace(pipe, edits=edits):
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


@pytest.mark.parametrize("kind", [AttnProcessor2_0, AttnProcessor])
@pytest.mark.parametrize("named", [True, False])
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
