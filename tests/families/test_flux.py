"""Flux.1: true guidance, T5's words, masks in the softmax, and backends that cannot be seen."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_dispatch import AttentionBackendName
from diffusers.models.transformers.transformer_flux import FluxAttnProcessor
from oracle import assert_probabilities

import heedmap as hm
from families.checking import WHOLE, assert_restored, paint, reference, state_of
from families.joint import SHORT
from heedmap.backends.prompts import prompt_table
from heedmap.errors import HeedmapWarning, TraceError
from heedmap.recording.tracing import trace

PROMPT = "a red house"
SMALL = {"width": 64, "height": 64, **SHORT}


def test_a_negative_prompt_needs_true_guidance(load):
    pipe = load("flux")
    with pytest.warns(HeedmapWarning, match="true_cfg_scale"):
        hm.generate(pipe, PROMPT, seed=1, steps=1, negative="at sea", **SHORT)
    with pytest.raises(TraceError, match="true_cfg_scale"):
        hm.generate(pipe, PROMPT, seed=1, steps=1, branches=["conditional", "negative"], **SHORT)


def test_words_are_those_that_t5_reads(load):
    pipe = load("flux")
    table = prompt_table(pipe, PROMPT, SHORT)
    assert [(word.text, word.tokens) for word in table.words] == [
        ("a", (0, 1)), ("red", (2, 3, 4)), ("house", (5,)),
    ]  # fmt: skip
    assert table.limit == 12 and table.room == 11 and not table.parts
    assert prompt_table(pipe, "a").limit == 512


def test_positions_of_another_image_are_refused(load):
    """Also where the class of the pipeline does not tell it."""
    pipe, ran = load("flux"), []
    pipe.transformer.register_forward_hook(lambda *_: ran.append(1))
    prepare = pipe.prepare_latents

    def doubled(*args, **kwargs):
        latents, places = prepare(*args, **kwargs)
        return torch.cat([latents] * 2, dim=1), torch.cat([places] * 2)

    pipe.prepare_latents = doubled
    with pytest.raises(TraceError, match="positions"), trace(pipe):
        paint(pipe, PROMPT, output_type="latent", **SMALL)
    assert not ran


@pytest.mark.parametrize("way", ["active", "of the layers", "parallel"])
def test_a_backend_that_cannot_be_seen_is_refused_before_sampling(load, way, monkeypatch):
    pipe, ran = load("flux"), []
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
        hm.generate(pipe, PROMPT, seed=1, steps=1, **SHORT)
    monkeypatch.undo()
    assert not ran
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
    pipe, name = load("flux"), "transformer_blocks.0.attn"
    with reference(pipe) as scores:
        paint(pipe, PROMPT, steps=1, **SMALL)
    pipe.transformer.transformer_blocks[0].attn.set_processor(Masked())
    bare = paint(pipe, PROMPT, steps=1, **SMALL)
    with trace(pipe, WHOLE, tokens="all") as recorder:
        assert np.array_equal(paint(pipe, PROMPT, steps=1, **SMALL), bare)
    (layer,) = [one for one in recorder.recordings[0].layers if one.name == name]
    found = recorder.recordings[0].arrays[recorder.recordings[0].layers.index(layer)][0]
    plain = scores[name][0][0]
    factor = np.ones(12)
    factor[2], factor[3] = 0.0, np.exp(1.5)
    expected = plain * factor
    expected /= expected.sum(-1, keepdims=True) + 1 - plain.sum(-1, keepdims=True)
    assert_probabilities(found, expected, 2 * scores.near[name])
    assert (found[..., 2] == 0).all() and plain[..., 2].min() > 0
