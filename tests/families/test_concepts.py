"""Concepts beside a prompt in every family: exact, and nothing that is drawn changes."""

from collections import defaultdict
from itertools import chain
from math import prod

import numpy as np
import pytest
import torch
from diffusers import FirstBlockCacheConfig
from making import recordings_of
from oracle import assert_probabilities, block_calls, joint_concepts, softmax, tolerance, watch

import heedmap as hm
from families.checking import WHOLE, assert_restored, paint, state_of
from families.models import TABLE, lengthened
from heedmap.backends.prompts import prompt_table
from heedmap.errors import ArgumentError, SelectionError, TraceError
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "a cat"]

# --- a softmax of the text alone ---

CONCEPTS = ["sea wind", "house", "cat"]


# Others differ from these in nothing that concepts read.
@pytest.mark.parametrize(
    "family",
    ["sd1", "lcm", "pix2pix", "sdxl", "refiner", "upscaler", "sigma", "sana", "sprint", "hunyuan"],
)
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
    for image, recording in enumerate(recordings_of(recorder.concept_maps)):
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
        labelled.concept_maps[0].recording.arrays,
        plain.concept_maps[0].recording.arrays,
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-7)


# --- text and image in one softmax ---

SOUGHT = ["sky", "at sea"]
UNREAD = ("schnell", "qwen_edit", "qwen21_images", "fibo")


def unguided(family, **more):
    """The arguments of a call without a negative prompt."""
    call = lengthened(TABLE[family].call, 16)
    off = float(family not in ("zimage", "krea"))
    call |= {name: off for name in call if name.endswith("scale")}
    wide, high = TABLE[family].size
    return call | {"width": wide, "height": high} | more


def regional(tokens: int, positions: int) -> dict[str, torch.Tensor]:
    """A mask of regional prompting: half of the image sees half of the text alone."""
    seen = torch.ones(1, 1, tokens + positions, tokens + positions, dtype=torch.bool)
    seen[..., tokens : tokens + positions // 2, 2 : tokens // 2] = False
    return {"attention_mask": seen}


@pytest.mark.parametrize(
    ("family", "is_masked"),
    [
        *((name, False) for name, row in TABLE.items() if row.is_joint and name not in UNREAD),
        ("flux", True),
    ],
)
def test_concepts_have_their_share_beside_the_prompt_and_the_similarity_of_outputs(
    load, family, is_masked
):
    """Their tokens have the place of the text's first one, and no mask hides them."""
    pipe, more = load(family), unguided(family, seeds=(1, 2))
    if is_masked:
        more["joint_attention_kwargs"] = regional(more["max_sequence_length"], 15)
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
    for image, recording in enumerate(recordings_of(traced.concept_maps)):
        table = prompt_table(pipe, asking[image], more)
        # CogView 4 pads the shorter prompt of a batch in front.
        shift = read.shape[1] - len(table.tokens) if family == "cogview4" else 0
        own = [[n + shift for n in table.find(one) if table.tokens[n].start < 15] for one in SOUGHT]
        tokens = sorted({*chain(*own)})
        places = [[*map(tokens.index, one)] for one in own]
        states = read[[image]][:, tokens]
        positions = prod(TABLE[family].grids[0])
        expected, similar = joint_concepts(
            pipe, family, calls, texts, states, places, image, positions
        )
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
    outputs = hm.Run.load(run.save(tmp_path / "run", overlays=False)).concepts.outputs
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
        (words,), (concepts,) = traced.recordings, recordings_of(traced.concept_maps)
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


def test_concepts_are_refused_where_the_encoder_reads_an_image(load):
    with pytest.raises(TraceError, match="image"):
        hm.generate(load("qwen_edit"), "at", concepts=["sky"], **TABLE["qwen_edit"].options())


def test_concepts_are_refused_where_each_block_has_a_text_of_its_own(load):
    with pytest.raises(ArgumentError, match="not yet supported"):
        hm.generate(load("fibo"), "at", seed=1, steps=1, concepts=["sky"])


def test_concepts_are_refused_where_layers_are_skipped(load):
    pipe = load("flux")
    pipe.transformer.enable_cache(FirstBlockCacheConfig(threshold=0.1))
    with pytest.raises(TraceError), trace(pipe, concepts=["sky"]):
        paint(pipe, "at", **unguided("flux"))
