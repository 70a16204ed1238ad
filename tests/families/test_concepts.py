"""Concepts beside a prompt in every family: exact, and nothing that is drawn changes."""

import inspect
import re
from collections import defaultdict
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch
from diffusers import FirstBlockCacheConfig
from oracle import Kernel, assert_probabilities, denoiser, softmax, tolerance, watch

import heedmap as hm
from families.checking import WHOLE, assert_restored, paint, state_of
from families.models import FAMILIES, TABLE
from heedmap.backends.prompts import prompt_table
from heedmap.errors import SelectionError, TraceError
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "a cat"]

# --- a softmax of the text alone ---

CONCEPTS = ["sea wind", "house", "cat"]


@pytest.mark.parametrize("family", [name for name in FAMILIES if name in TABLE])
def test_concepts_have_their_share_of_a_text_that_names_them(load, family):
    """The image's queries of the call, and the keys of a call with that text."""
    row, pipe = TABLE[family], load(family)
    more, queries, keys = row.arguments(2, seeds=(1, 2)), defaultdict(list), {}
    if "max_sequence_length" in more:
        more["max_sequence_length"] = 300
    asking = [" and ".join([*CONCEPTS, prompt]) for prompt in PROMPTS]
    with watch(pipe, lambda run: queries[run.name].append(run.query)):
        bare = paint(pipe, PROMPTS, **more)
    with watch(pipe, lambda run: keys.update({run.name: (run.key, run.mask)})):
        paint(pipe, asking, **more)
    before = state_of(pipe)
    with trace(pipe, WHOLE, concepts=CONCEPTS) as recorder:
        assert np.array_equal(paint(pipe, PROMPTS, **more), bare)
    assert_restored(pipe, before)
    first = row.layout.index("conditional") * 2
    for image, recording in enumerate(recorder.concept_recordings):
        assert [word.text for word in recording.table.words] == CONCEPTS
        # Sana's self-attention is linear, and the upscaler has too little.
        assert (recording.refined is None) == family.startswith(("sana", "sprint", "upscaler"))
        table = prompt_table(pipe, asking[image], more)
        tokens = [list(table.find(concept)) for concept in CONCEPTS]
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            key, mask = (part if part is None else part[first + image] for part in keys[layer.name])
            for found, query in zip(array, queries[layer.name], strict=True):
                query = query[first + image]
                p = softmax(query, key, query.shape[-1] ** -0.5, mask)
                expected = torch.stack([p[..., places].sum(-1) for places in tokens], dim=-1)
                assert_probabilities(found, expected, tolerance(query, key), layer.name)


def test_concepts_with_prompt_embeds_are_read_with_their_label(load):
    pipe = load("sd1")
    states, _ = pipe.encode_prompt("a red house", "cpu", 1, False)
    more = {"steps": 1, "guidance_scale": 1.0}
    with trace(pipe, {"layer", "step"}, concepts=["cat"], prompts=["a red house"]) as labelled:
        paint(pipe, prompt_embeds=states, **more)
    with trace(pipe, {"layer", "step"}, concepts=["cat"]) as plain:
        paint(pipe, "a red house", **more)
    for mine, theirs in zip(
        labelled.concept_recordings[0].arrays, plain.concept_recordings[0].arrays, strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-7)


# --- text and image in one softmax ---

SOUGHT = ["sky", "at sea"]


def unguided(family, **more):
    """The arguments of a call without a negative prompt."""
    row = TABLE[family]
    call = {"max_sequence_length": row.call["max_sequence_length"] + 16}
    if family in ("sd3", "sd35", "chroma", "klein", "cogview4"):
        call["guidance_scale"] = 1.0
    return call | {"width": 48, "height": 80} | more


@contextmanager
def block_calls(pipe):
    """The name, the pass and the arguments of each block, and the text states of each pass."""
    calls, texts, handles = [], [], []

    def begin(_, args, kwargs):
        texts.append(kwargs["encoder_hidden_states"])

    def keep(block, args, kwargs, name):
        given = inspect.signature(block.forward).bind(*args, **kwargs).arguments
        calls.append((name, len(texts) - 1, dict(given)))

    model = denoiser(pipe)
    handles.append(model.register_forward_pre_hook(begin, with_kwargs=True))
    for name, block in model.named_modules():
        if re.fullmatch(r"(single_)?transformer_blocks\.\d+", name):
            hook = partial(keep, name=name)
            handles.append(block.register_forward_pre_hook(hook, with_kwargs=True))
    try:
        yield calls, texts
    finally:
        for handle in handles:
            handle.remove()


def project(double, states):
    """The text states as the first block is given them."""
    if hasattr(double, "txt_in"):
        return double.txt_in(double.txt_norm(states))
    if hasattr(double, "context_embedder"):
        return double.context_embedder(states)
    return double.patch_embed.text_proj(states)


def row_in_float64(given, row):
    """One row of a block's arguments."""
    rows = len(given["hidden_states"])

    def double(value):
        if isinstance(value, tuple):  # rotations, of no row
            return tuple(
                one.to(torch.cdouble if one.is_complex() else torch.double) for one in value
            )
        if not isinstance(value, torch.Tensor):
            return value
        value = value[[row]] if len(value) == rows else value
        return value.double() if value.is_floating_point() else value

    return {name: double(value) for name, value in given.items()}


def replace_text(given, concepts, tokens, family):
    """The arguments of a block with the concepts for its text of so many tokens."""
    given, count = dict(given), concepts.shape[1]
    if given.get("encoder_hidden_states") is None:
        given["hidden_states"] = torch.cat([concepts, given["hidden_states"][:, tokens:]], dim=1)
    else:
        given["encoder_hidden_states"] = concepts
    given |= {name: None for name in given if "mask" in name}
    if "joint_attention_kwargs" in given:
        given["joint_attention_kwargs"] = {}
    if family == "qwen":
        image, text = given["image_rotary_emb"]
        given["image_rotary_emb"] = image, text[:1].repeat(count, 1)
    elif family not in ("sd3", "sd35", "cogview4"):
        given["image_rotary_emb"] = tuple(
            torch.cat([one[:1].repeat(count, 1), one[tokens:]]) for one in given["image_rotary_emb"]
        )
    return given


@torch.no_grad()
def joint_concepts(pipe, family, calls, texts, states, places, row):
    """By layer the shares of concepts (S, H, Q, C) and the similarities of outputs (S, 1, Q, C).

    The blocks of a float64 copy run on the image's states of the call, with its text and with the
    concepts' own, whose states are (1, K, C) and whose places are those among them.
    """
    double, shares, alike = deepcopy(denoiser(pipe)).double(), defaultdict(list), defaultdict(list)
    concepts, last = None, None
    for name, number, given in calls:
        if number != last:
            concepts, last = project(double, states.double()), number
        tokens, count = texts[number].shape[1], concepts.shape[1]
        given = row_in_float64(given, row)
        with Kernel() as prompt:
            double.get_submodule(name)(**given)
        with Kernel() as own:
            after = double.get_submodule(name)(**replace_text(given, concepts, tokens, family))
        if isinstance(after, torch.Tensor):
            concepts = after[:, :count]
        else:
            concepts = after[1] if family == "cogview4" else after[0]
        image, theirs = slice(tokens, None), slice(count)
        if family in ("sd3", "sd35"):  # the text follows the image
            image, theirs = slice(-tokens), slice(-count, None)
        query, key = prompt.given["query"][:, :, image], prompt.given["key"]
        both = torch.cat([key, own.given["key"][:, :, theirs]], dim=2)
        scores = query @ both.mT * query.shape[-1] ** -0.5
        if prompt.mask is not None:
            mask = prompt.mask.expand(-1, -1, key.shape[2], -1)
            scores[..., : key.shape[2]] += mask[:, :, image]
        p = scores.softmax(-1)[0, :, :, key.shape[2] :]
        layer = f"{name}.attn1" if family == "cogview4" else f"{name}.attn"
        shares[layer].append(torch.stack([p[..., one].sum(-1) for one in places], dim=-1))
        image = prompt.given["output"][0, :, image].transpose(0, 1).flatten(1)
        text = own.given["output"][0, :, theirs].transpose(0, 1).flatten(1)
        means = torch.stack([text[one].mean(0) for one in places], dim=-1)
        alike[layer].append((image @ means).softmax(-1)[None])
    return [{name: torch.stack(one) for name, one in of.items()} for of in (shares, alike)]


def regional(tokens: int, positions: int) -> dict[str, torch.Tensor]:
    """A mask of regional prompting: half of the image sees half of the text alone."""
    seen = torch.ones(1, 1, tokens + positions, tokens + positions, dtype=torch.bool)
    seen[..., tokens : tokens + positions // 2, 2 : tokens // 2] = False
    return {"attention_mask": seen}


@pytest.mark.parametrize(
    ("family", "is_masked"),
    [
        *((name, False) for name, row in TABLE.items() if row.is_joint and name != "schnell"),
        ("flux", True),
    ],
)
def test_concepts_have_their_share_beside_the_prompt_and_the_similarity_of_outputs(
    load, family, is_masked
):
    """Their tokens have the place of the text's first one, and no mask hides them."""
    pipe, more = load(family), unguided(family, seeds=(1, 2))
    length = more["max_sequence_length"]
    if is_masked:
        more["joint_attention_kwargs"] = regional(length, 15)
    with block_calls(pipe) as (calls, texts):
        bare = paint(pipe, prompt=PROMPTS, **more)
    before = state_of(pipe)
    with trace(pipe, "all", concepts=SOUGHT) as traced:
        assert np.array_equal(paint(pipe, prompt=PROMPTS, **more), bare)
    assert_restored(pipe, before)
    with trace(pipe, "all") as alone:
        paint(pipe, prompt=PROMPTS, **more)
    asking = [f"sky and at sea and {prompt}" for prompt in PROMPTS]
    with block_calls(pipe) as (_, states):
        paint(pipe, prompt=asking, steps=1, **more)
    read = states[0]
    for image, recording in enumerate(traced.concept_recordings):
        table = prompt_table(pipe, asking[image], {"max_sequence_length": length})
        # CogView 4 pads the shorter prompt of a batch in front.
        shift = read.shape[1] - len(table.tokens) if family == "cogview4" else 0
        own = [[n + shift for n in table.find(one) if table.tokens[n].start < 15] for one in SOUGHT]
        tokens = sorted({*chain(*own)})
        places = [[*map(tokens.index, one)] for one in own]
        states = read[[image]][:, tokens]
        expected, similar = joint_concepts(pipe, family, calls, texts, states, places, image)
        assert [word.text for word in recording.table.words] == SOUGHT
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            np.testing.assert_allclose(array, expected[layer.name], atol=1e-5)
            assert array.max() > 1e-2
        assert recording.refined is not None
        for layer, array in zip(recording.layers, recording.outputs, strict=True):
            np.testing.assert_allclose(array, similar[layer.name], atol=1e-5)
            # The outputs of CogView 4's random weights are nearly 0, so that all are alike.
            assert family == "cogview4" or np.ptp(array) > 1e-2
    for one, other in zip(traced.recordings, alone.recordings, strict=True):
        assert all(map(np.array_equal, one.arrays, other.arrays))


def test_similarities_of_outputs_are_averaged_saved_and_change_with_weights(load, tmp_path):
    pipe, maps = load("sd3"), []
    more = unguided("sd3", seeds=(1, 2, 3, 4), num_images_per_prompt=2)
    for keep, edits in (((), ()), (("layer", "step"), ()), ((), [hm.Reweight("cat", -4)])):
        with trace(pipe, keep, concepts=SOUGHT, edits=edits) as traced:
            paint(pipe, ["a cat", "at cat"], **more)
        maps.append([one.outputs["sky"].values for one in traced.concept_maps])
    np.testing.assert_allclose(maps[0], maps[1], atol=1e-5)
    assert len(maps[0]) == 4 and np.ptp(maps[0], axis=0).max() > 1e-3
    assert np.abs(np.subtract(maps[0], maps[2])).max() > 1e-4
    run = hm.generate(pipe, "at", seed=1, steps=1, concepts=SOUGHT, size=(48, 80))
    outputs = hm.Run.load(run.save(tmp_path / "run")).concepts.outputs
    np.testing.assert_allclose(outputs["sky"].values + outputs["at sea"].values, 1, atol=1e-6)


@pytest.mark.parametrize("halved", [False, True])  # by autocast, but not for probabilities
def test_concepts_as_shares_of_the_text_and_their_own(load, halved):
    """Without the image's keys: the odds to the prompt's words stay as they are."""
    pipe, found = load("sd3"), {}
    for share_of in ("all", "text"):
        spec = {"tokens": "all", "concepts": ["sky"], "share_of": share_of}
        half = torch.autocast("cpu", torch.bfloat16, enabled=halved)
        with half, trace(pipe, "all", **spec) as traced:
            paint(pipe, "a red house", **unguided("sd3"))
        (words,), (concepts,) = traced.recordings, traced.concept_recordings
        found[share_of] = words.arrays[1].astype(float), concepts.arrays[1].astype(float)
    (of_all, sky), (of_text, expected) = found["all"], found["text"]
    # With the concept's keys beside them the words have 1 - sky of what they had.
    words = of_all.sum(-1, keepdims=True) * (1 - sky)
    np.testing.assert_allclose(expected, sky / (words + sky), atol=1e-5)
    np.testing.assert_allclose(of_text.sum(-1), 1, atol=1e-5)


# --- what cannot be recorded ---


@pytest.mark.parametrize(("family", "concepts"), [("sd3", ["sky"]), ("sd1", SOUGHT)])
def test_one_concept_or_a_softmax_of_the_text_alone_has_no_similarities(load, family, concepts):
    run = hm.generate(load(family), "at", seed=1, steps=1, concepts=concepts, size=(64, 64))
    assert run.concepts["sky"].values.max() > 0
    with pytest.raises(SelectionError):
        run.concepts.outputs  # noqa: B018


def test_a_pipeline_without_encoders_refuses_concepts(load):
    pipe = load("sd1")
    states, _ = pipe.encode_prompt("a red house", "cpu", 1, False)
    pipe.text_encoder = None
    with pytest.raises(TraceError), trace(pipe, concepts=["sky"]):
        paint(pipe, prompt_embeds=states, steps=1, guidance_scale=1.0)


def test_concepts_are_refused_where_layers_are_skipped(load):
    pipe = load("flux")
    pipe.transformer.enable_cache(FirstBlockCacheConfig(threshold=0.1))
    with pytest.raises(TraceError), trace(pipe, concepts=["sky"]):
        paint(pipe, "at", **unguided("flux"))
