"""Attention masks that differ from row to row, and scores too large for a log-sum."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0
from making import random_pipeline
from oracle import (
    HOUSE,
    RED,
    SIZE,
    SWAP,
    UNIT,
    K,
    compare_layers,
    confined,
    denoiser,
    edited,
    generated,
    held_maps,
    injected,
    load_random,
    reads,
    weighed,
)

import heedmap as hm

KINDS = [("unet", AttnProcessor), ("pixart", AttnProcessor2_0)]


@pytest.fixture(params=KINDS, ids=str)
def masked_model(request):
    """A pipeline in which each row of the batch has other tokens hidden."""
    pipe = load_random(*request.param)

    def hide(model, args, kwargs):
        rows = len(args[0])
        seen = torch.ones(rows, K, dtype=torch.bool)
        for row in range(rows):
            seen[row, 6 + row :: rows] = False
        return args, kwargs | {"encoder_attention_mask": seen}

    denoiser(pipe).register_forward_pre_hook(hide, with_kwargs=True)
    return pipe


def test_masks_of_each_image_give_exact_maps(masked_model):
    with (
        compare_layers(masked_model, 2, images=2) as held,
        hm.trace(masked_model, ("layer", "step", "head"), tokens="all") as recorder,
    ):
        given = reads(masked_model) and {**reads(masked_model), "use_resolution_binning": False}
        prompts = ["a red house", "at the sea"]
        masked_model(prompts, num_inference_steps=2, output_type="latent", **given)
    held_maps(recorder.recordings, held)
    apart = next(iter(held.plain.values()))
    assert (apart[0] == 0).any() and not torch.equal(apart[0] == 0, apart[1] == 0)


def test_edits_with_masks_equal_the_definition(masked_model):
    box = (0, 0, 64, 128)
    word = hm.Confine("house", box, along=[], end=1.0, tail=False)

    def rule(here):
        bias = confined(here, HOUSE, box, 3.0, (0, 1), SIZE)
        return weighed((here.scores[0] + bias).softmax(-1), [(RED, 3)])

    generated(masked_model, [hm.Reweight("red", 3), word], rule)


def test_a_replaced_word_with_masks_equals_the_definition(masked_model):
    def rule(here, source, own):
        return injected(here, source, own, SWAP, 0.6)

    edited(masked_model, "a red house", "a blue house", rule, steps=3, cross_replace=0.6)


def test_rows_sum_to_one_however_large_the_scores():
    """A log-sum of thousands has no digits left for probabilities."""
    pipe = random_pipeline()
    for name, parameter in pipe.unet.named_parameters():
        if ".attn2.to_q." in name:
            parameter.data.mul_(300)
    with hm.trace(pipe, ("layer", "step", "head"), tokens="all") as recorder:
        pipe("a red house", num_inference_steps=1, output_type="latent")
    for array in recorder.recordings[0].arrays:
        np.testing.assert_allclose(array.sum(-1), 1, rtol=2 * K * UNIT)
